"""How a worker asks the source what has changed, before it uses what its executor remembers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.store.checks import MOST_CHANGED, Checks, Unanswered
from lookup_hints.engine.arrow import conform
from lookup_hints.engine.masking import known_secrets, masked
from lookup_hints.errors import ConnectorError, InternalError
from lookup_hints.spec import LookupSpec
from lookup_hints.spi import Changes, ChangesRequest, ReportsChanges
from lookup_hints.spi.secrets import masker
from lookup_hints.worker.process.open_connectors import needing_its_driver

SECONDS = 30.0
"""The source has so long to say what has changed; tasks wait for that."""

_FIRST_DAY = -719_162
"""The first of January of the year 1, in days since 1970: no column of Spark goes further back."""


class WatchedTable:
    """A table whose changes are asked for, as one task looks at it."""

    def __init__(self, checks: Checks, spec: LookupSpec, warn: Callable[[str], None]) -> None:
        self._checks, self._spec, self._warn = checks, spec, warn
        self.asked = 0
        """How often this task has asked."""

    def is_current(self) -> bool:
        """Whether all that has changed is invalidated; asks the source if that is due.

        Raises:
            OSError: what the executor knows cannot be read or written.
        """
        failure = self._checks.failure(self._ask)
        if failure:
            self._warn(f"what has changed is not known: {failure}")
        return not failure

    def _ask(self, since: int | None) -> tuple[int | None, pa.Table | None]:
        self.asked += 1
        connector = self._spec.connector
        try:
            found = _asked(self._spec, since)
        except Exception as error:
            text = str(masked(error, masker(known_secrets(connector))))
            raise Unanswered(text.rstrip(".")) from None
        return _number(found.latest), found.keys


def _asked(spec: LookupSpec, since: int | None) -> Changes:
    connector, changed = spec.connector, spec.settings.changed
    if not isinstance(connector, ReportsChanges) or changed is None:
        raise InternalError(f"{type(connector).__name__} was planned to tell changes, which it cannot")
    kind, by_key = changed.column.type, spec.keys_are_immutable
    request = ChangesRequest(
        changed.column.name,
        None if since is None else _scalar(since, kind),
        spec.key_schema if by_key else pa.schema([]),
        MOST_CHANGED if by_key else 0,
        SECONDS,
    )
    with needing_its_driver(connector):
        told = connector.changes(request)
    who = f"connector {type(connector).__name__} of table {spec.table.name}"
    if not isinstance(told, Changes) or told.latest.type != kind:
        raise ConnectorError(f"{who} must tell changes by a Changes, with a latest {kind}", permanent=True)
    if request.since is None or told.keys is None or told.keys.num_rows > request.most:
        return Changes(told.latest)
    return Changes(told.latest, _complete(conform(told.keys, request.schema, who)))


def _complete(keys: pa.Table) -> pa.Table:
    """Those without a NULL: a key has none."""
    for name in keys.column_names:
        keys = keys.filter(pc.is_valid(keys.column(name)))
    return keys


def _number(latest: pa.Scalar) -> int | None:
    """A value of the column as a number of its unit: microseconds or days since 1970, or itself."""
    if not latest.is_valid:
        return None
    return int(latest.as_py() if types.is_integer(latest.type) else latest.value)


def _scalar(number: int, kind: pa.DataType) -> pa.Scalar:
    """The value of the column that is ``number`` of its unit; one that is too early is the first there is."""
    if types.is_date(kind):
        return pa.scalar(max(number, _FIRST_DAY), pa.int32()).cast(kind)
    if types.is_timestamp(kind):
        return pa.scalar(max(number, _FIRST_DAY * 86_400 * 10**6), pa.int64()).cast(kind)
    return pa.scalar(number, kind)
