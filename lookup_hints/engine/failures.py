"""What is said of a lookup that failed for good."""

from __future__ import annotations

import pyarrow as pa

from lookup_hints.engine.steps import Part
from lookup_hints.errors import AnswerError, ConnectorError, LookupHintsError, LookupTimeout
from lookup_hints.spec import LookupSpec

_KEYS_SHOWN = 3


def failure(spec: LookupSpec, part: Part, error: Exception) -> ConnectorError:
    """``error`` as that of the keys of ``part``."""
    message = f"{_what(spec, part)} failed after {_times(part.attempt)}: {_said(error)}"
    kind = LookupTimeout if isinstance(error, LookupTimeout) else ConnectorError
    return _chained(kind(message), error)


def out_of_time(spec: LookupSpec, part: Part, error: Exception | None) -> ConnectorError:
    """The time of the keys of ``part`` is up; ``error`` is the last failure, if there was one."""
    last = f" The last one failed: {_said(error).rstrip('.')}." if error is not None else ""
    message = (
        f"{_what(spec, part)} has no final outcome within the timeout of {spec.settings.timeout:g} s,"
        f" after {_times(part.attempt)}.{last} Raise 'timeout', or lower 'max-attempts' or the delay."
    )
    return _chained(LookupTimeout(message), error)


def connector_name(spec: LookupSpec) -> str:
    return f"connector {type(spec.connector).__name__} of table {spec.table.name}"


def is_defect(error: Exception) -> bool:
    """Whether ``error`` tells of a wrong connector, query or library, which no policy may hide."""
    return isinstance(error, AnswerError) or (
        isinstance(error, LookupHintsError) and not isinstance(error, ConnectorError)
    )


def _what(spec: LookupSpec, part: Part) -> str:
    table = spec.table
    connector = table.options.get("connector", type(spec.connector).__name__)
    function = f", function {spec.name.function}" if spec.name.function else ""
    return f"The lookup of {shown_keys(part.keys)} in table {table.name} (connector {connector}{function})"


def shown_keys(keys: pa.Table) -> str:
    """How many ``keys`` there are, the first few in full: ``2 keys (id = 1; id = 2)``."""
    some = keys.slice(0, _KEYS_SHOWN).to_pylist()
    shown = "; ".join(", ".join(f"{name} = {_short(value)}" for name, value in row.items()) for row in some)
    more = "; ..." if keys.num_rows > _KEYS_SHOWN else ""
    noun = "key" if keys.num_rows == 1 else "keys"
    return f"{keys.num_rows} {noun} ({shown}{more})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _said(error: Exception) -> str:
    """What ``error`` says; the kind, too, unless it is one of ours."""
    text = str(error)
    return text if isinstance(error, ConnectorError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _chained(error: ConnectorError, cause: Exception | None) -> ConnectorError:
    error.__cause__ = cause
    return error
