"""Invalidate cached answers: the log of a session's invalidations, and how it reaches executors.

Each later plan carries the invalidations to the executors on which it runs. So every executor is reached, and
no clocks are compared: an executor drops the answers that were requested before the message arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from lookup_hints.errors import Problem, QueryError
from lookup_hints.lookup_spec import Invalidation, LookupSettings, LookupSpec
from lookup_hints.plan.decide.settings import cache_of, whole_of
from lookup_hints.spi import AsyncLookup, Connector
from lookup_hints.spi.option_values import Conf
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_KEYS = 10_000
"""Plans carry no more keys of a table; where there are more, all of the table is invalidated."""

MOST_NOTED = 2 * MOST_KEYS
"""This many keys of a table are noted; where there are more, the older half becomes a note of all keys."""


@dataclass(frozen=True)
class _Noted:
    taken: Invalidation
    time: float


# Kept by the driver, and handed on with each plan. (docs/decisions/0160)
class InvalidationLog:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._session, self._numbers, self._clock = uuid4().hex, count(1), clock
        self._noted: dict[str, list[_Noted]] = {}
        self._lock = Lock()  # a note that another thread overwrites is an old answer that is used

    def invalidate(
        self, table: LookupTable, columns: tuple[str, ...] = (), keys: tuple[tuple[Any, ...], ...] = ()
    ) -> None:
        """Note that answers of ``table`` may not be used: those to ``keys``, or all without ``columns``."""
        if columns and not keys:
            return
        with self._lock:
            taken = Invalidation(self._session, next(self._numbers), columns, keys)
            older = self._noted.get(table.name.lower(), []) if columns else []
            # ``noted``, or less that invalidates more: who invalidates keys for days must not fill memory.
            noted = [*older, _Noted(taken, self._clock())]
            if _count_keys(noted) <= MOST_NOTED:
                self._noted[table.name.lower()] = noted
            else:
                half = (len(noted) + 1) // 2
                self._noted[table.name.lower()] = [_widen_to_all_keys(noted[half - 1]), *noted[half:]]

    def of(self, table: LookupTable, longest: float) -> tuple[Invalidation, ...]:
        """Invalidations of ``table`` in the last ``longest`` seconds; of many keys, the whole table."""
        since = self._clock() - longest
        with self._lock:
            noted = [each for each in self._noted.get(table.name.lower(), ()) if each.time >= since]
            if _count_keys(noted) > MOST_KEYS:
                noted = [_widen_to_all_keys(noted[-1])]
                self._noted[table.name.lower()] = noted
        return tuple(each.taken for each in noted)


def _count_keys(noted: Sequence[_Noted]) -> int:
    return sum(len(each.taken.keys) for each in noted)


def _widen_to_all_keys(last: _Noted) -> _Noted:
    return _Noted(Invalidation(last.taken.session, last.taken.number), last.time)


def invalidation_spec(connector: Connector, log: InvalidationLog, conf: Conf) -> LookupSpec:
    """A lookup whose only purpose is to carry the invalidations of a table to an executor."""
    table = connector.table
    try:
        whole = whole_of(connector, conf)
    except QueryError:  # a lookup of it says so
        whole = None
    cache = cache_of(table, conf) if whole is None else None
    settings = LookupSettings(asynchronous=isinstance(connector, AsyncLookup), cache=cache, whole=whole)
    settings = replace(settings, invalidations=log.of(table, settings.longest))
    columns = table.schema.names[:1]
    return LookupSpec(connector, table.primary_key or tuple(columns), tuple(columns), settings)


def keys_of(table: LookupTable, keys: Iterable[Any] | DataFrame) -> tuple[tuple[Any, ...], ...]:
    """``keys`` as values of the primary key of ``table``; those with a NULL are in no answer.

    Raises:
        QueryError: the table declares no primary key, or they are none of its keys.
    """
    columns = table.primary_key
    if not columns:
        tip = "Declare PRIMARY KEY (...) NOT ENFORCED, or invalidate the whole table: give no keys."
        raise QueryError(Problem(f"The keys of table {table.name} are not known.", tip=tip))
    rows = [
        tuple(map(_hashable_value, each if isinstance(each, list | tuple) else (each,)))
        for each in _collect_keys(table, keys)
    ]
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise _invalid_key_error(table, f"one has {len(wrong)} values")
    kinds = [table.schema.field(name).type for name in columns]
    try:
        rows = [tuple(map(_moment_in_utc, kinds, row)) for row in rows]
        for column, values in zip(columns, zip(*rows, strict=True), strict=False):
            pa.array(values, table.schema.field(column).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _invalid_key_error(table, type(error).__name__) from None  # its text may hold a key
    return tuple(row for row in dict.fromkeys(rows) if None not in row)


def _collect_keys(table: LookupTable, keys: Any) -> Iterable[Any]:
    if hasattr(keys, "collect"):
        names = {name.lower(): name for name in keys.columns}
        wanted = [each.lower() for each in table.primary_key]
        if len(names) == len(keys.columns) and names.keys() == set(wanted):
            keys = keys.select([quoted(names[each]) for each in wanted])
        rows: Iterable[Any] = keys.collect()
        return rows
    is_one_value = isinstance(keys, str | bytes | bytearray | Mapping) or hasattr(keys, "columns")
    if is_one_value or not isinstance(keys, Iterable):
        raise _invalid_key_error(table, f"{type(keys).__name__} is not a list of keys")
    return keys


def _hashable_value(value: Any) -> Any:
    """As it is, but that it can be hashed (Spark before 4.1 gives a bytearray); NaT of pandas is None."""
    if isinstance(value, datetime) and value != value:
        return None
    return bytes(value) if isinstance(value, bytearray) else value


def _moment_in_utc(kind: pa.DataType, value: Any) -> Any:
    """A TIMESTAMP in UTC: without a zone it is a time of this process, as ``collect`` gives it.

    Two times of the hour that comes twice in autumn are written alike, but differ in UTC.
    """
    if not isinstance(value, datetime) or not pa.types.is_timestamp(kind) or kind.tz is None:
        return value
    plain = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    try:
        return plain.astimezone(timezone.utc)
    except (OverflowError, ValueError):
        # Python cannot convert local times at the ends of the calendar; UTC needs no conversion.
        if plain.tzinfo is None and time.localtime().tm_gmtoff == 0:
            return plain.replace(tzinfo=timezone.utc)
        raise


def _invalid_key_error(table: LookupTable, why: str) -> QueryError:
    kinds = ", ".join(f"{name} {table.schema.field(name).type}" for name in table.primary_key)
    tip = f"Give values of ({kinds}): a value each, or a tuple where there are several columns."
    return QueryError(Problem(f"Invalid keys for table {table.name}: {why}.", tip=tip))
