"""Messages about a lookup: errors of keys that failed for good, and log lines, once for each kind."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import pyarrow as pa

from lookup_hints.errors import AnswerError, ConnectorError, LookupHintsError, LookupTimeout, counted
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import Events
from lookup_hints.spi import Connector
from lookup_hints.spi.secrets import MASK, known_secrets, masker

if TYPE_CHECKING:
    from lookup_hints.engine.backlog import Part

_KEYS_SHOWN = 3
_REFUSED = re.compile("Connect call failed|Connection refused|All connection attempts failed")
"""How asyncio, the system and httpx say that nobody listens at an address."""
_PLACE = re.compile(r"Connect call failed \('([^']+)', (\d+)")


def failure(spec: LookupSpec, part: Part, error: Exception) -> ConnectorError:
    # The cause first: who reads it knows the statement, and the end may be cut.
    cause = _error_text(error).removeprefix(f"table {spec.table.name}: ").rstrip(".")
    attempts = counted(part.attempt, "attempt")
    message = f"{cause}. {_lookup_text(spec, part)} failed after {attempts}{_name_source(spec)}."
    kind = LookupTimeout if isinstance(error, LookupTimeout) else ConnectorError
    return _with_cause(kind(message), error)


def out_of_time(spec: LookupSpec, part: Part, error: Exception | None) -> ConnectorError:
    """The time of the keys of ``part`` is up; ``error`` is the last failure, if there was one."""
    last = f" The last one failed: {_error_text(error).rstrip('.')}." if error is not None else ""
    message = (
        f"{_lookup_text(spec, part)} has no final outcome within the timeout of {spec.settings.timeout:g} s,"
        f" after {counted(part.attempt, 'attempt')}.{last}"
        f" Raise 'timeout', or lower 'max-attempts' or the delay{_name_source(spec)}."
    )
    return _with_cause(LookupTimeout(message), error)


def connector_name(spec: LookupSpec) -> str:
    return f"connector {type(spec.connector).__name__} of table {spec.table.name}"


def is_defect(error: Exception) -> bool:
    """Whether ``error`` is a defect of connector, query or library, which no `on-error` policy may hide."""
    return isinstance(error, AnswerError) or (
        isinstance(error, LookupHintsError) and not isinstance(error, ConnectorError)
    )


def _lookup_text(spec: LookupSpec, part: Part) -> str:
    return f"The lookup of {shown_keys(part.keys)} in table {spec.table.name}"


def _name_source(spec: LookupSpec) -> str:
    connector = spec.table.options.get("connector", type(spec.connector).__name__)
    function = f", function {spec.name.function}" if spec.name.function else ""
    return f" (connector {connector}{function})"


def shown_keys(keys: pa.Table) -> str:
    """How many ``keys`` there are, the first few in full: ``2 keys (id = 1; id = 2)``."""
    some = keys.slice(0, _KEYS_SHOWN)
    shown = "; ".join(shown_key(some.slice(at, 1)) for at in range(some.num_rows))
    more = "; ..." if keys.num_rows > _KEYS_SHOWN else ""
    return f"{counted(keys.num_rows, 'key')} ({shown}{more})"


def shown_key(keys: pa.Table) -> str:
    """The first of ``keys``: ``id = 1, part = 'a'``."""
    (row,) = keys.slice(0, 1).to_pylist()
    return ", ".join(f"{name} = {_short_repr(value)}" for name, value in row.items())


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _error_text(error: Exception) -> str:
    """The text of ``error``, with its class unless it is one of ours, and what to do where nobody answers."""
    text = str(error)
    told = text if isinstance(error, ConnectorError) else f"{type(error).__name__}: {text}".rstrip(": ")
    if _REFUSED.search(told) is None:
        return told
    place = _PLACE.search(told)
    at = f" at {place[1]}:{place[2]}" if place else ""
    return f"{told.rstrip('.')}. Is the server running{at}? Start it, or correct host and port of the table."


def _with_cause(error: ConnectorError, cause: Exception | None) -> ConnectorError:
    error.__cause__ = cause
    return error


_log = logging.getLogger("lookup_hints.events")


class EventLog:
    """Tells each kind of event once."""

    def __init__(self, spec: LookupSpec, secrets: Set[str]) -> None:
        self._spec = spec
        self._secrets = secrets
        self._told: dict[str, str] = {}

    @property
    def told(self) -> Events:
        return Events(tuple(self._told.items()))

    def failed(self, keys: pa.Table, error: Exception) -> None:
        if "failure" in self._told:
            return
        if self._spec.settings.log_keys:
            which, what = shown_keys(keys), str(error)
        else:
            which, what = counted(keys.num_rows, "key"), without_values(str(error), keys)
        kind = type(error).__name__
        self._log_event(
            "failure", logging.WARNING, f"the first failure in this task, of {which}: {kind}: {what}"
        )

    def dropped(self, strangers: pa.Table, asked: pa.Table) -> None:
        """The answer has rows of ``strangers``: keys that are not among those ``asked``."""
        if "unasked" in self._told:
            return
        which = shown_keys(strangers) if self._spec.settings.log_keys else counted(strangers.num_rows, "key")
        text = f"the first rows in this task of keys that were not asked are dropped: of {which}"
        known = {_normalized_key(row) for row in zip(*asked.to_pydict().values(), strict=True)}
        if any(_normalized_key(row) in known for row in zip(*strangers.to_pydict().values(), strict=True)):
            text += (
                ". They differ from keys that were asked in capitals, blanks, leading zeros or the form of a"
                " character alone: write the key as the source does, as in ON upper(o.k) = c.k"
            )
        self._log_event("unasked", logging.WARNING, text)

    def throttled(self, keys: int) -> None:
        if "throttled" not in self._told:
            text = f"the source refuses requests for a while; {counted(keys, 'key')} under way"
            self._log_event("throttled", logging.WARNING, text)

    def down(self, outage: str) -> None:
        if "outage" not in self._told:
            self._log_event(
                "outage", logging.WARNING, f"{outage}; requests wait, and a few try whether it does again"
            )

    def stopped(self, keys: int) -> None:
        """Spark wants no more rows; this many keys were asked."""
        self._log_event(
            "stopped", logging.INFO, f"stopped after {counted(keys, 'key')}: Spark wants no more rows"
        )

    def _log_event(self, kind: str, level: int, text: str) -> None:
        spec = self._spec
        mask = masker({*self._secrets, *known_secrets(spec.connector)})
        name = str(spec.name) if spec.name.table else spec.table.name
        self._told[kind] = mask(f"Lookup of {name} ({_source_text(spec.connector)}): {text}")
        _log.log(level, "%s", self._told[kind])


def _source_text(connector: Connector) -> str:
    kind, place = connector.table.options.get("connector", type(connector).__name__), ""
    with suppress(Exception):  # it is only for a line
        place = connector.place()
    return f"{kind} at {place}" if place else kind


# As a source might compare: without case, forms of accents, blanks around it and leading zeros.
def _normalized_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        unicodedata.normalize("NFKC", part).casefold().strip().lstrip("0") if isinstance(part, str) else part
        for part in key
    )


def without_values(text: str, keys: pa.Table) -> str:
    """``text`` without the values of ``keys``, as errors may repeat what they were asked.

    Long values are found as secrets are, short ones where they stand alone.
    """
    spellings = " ".join((text, unquote_plus(text), text.replace("\\", ""))).casefold()
    values = {
        value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        for column in keys.columns
        for value in column.to_pylist()
    }
    found = {value for value in values if value and value.casefold() in spellings}
    if not found:
        return text
    short = "|".join(re.escape(value) for value in found if len(value) < _LONG)
    if short:
        text = re.sub(rf"(?<!\w)(?:{short})(?!\w)", MASK, text, flags=re.IGNORECASE)
    return masker({value for value in found if len(value) >= _LONG})(text)


_LONG = 4
