"""A dimension table in a dictionary, connectors over it, and clocks that only tests move."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from lookup_hints.engine.arrow import Keys, distinct_keys
from lookup_hints.engine.backlog import ScheduledRequest
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.lookup_spec import LookupName, LookupSettings, LookupSpec
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import AsyncLookup, SyncLookup
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable
from lookup_hints.testing.fake import FakeLoop

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_T = TypeVar("_T")

Row = tuple[Any, ...]
ON_MISS = FixedDelay(3, 10.0).if_miss()
ON_ERROR = FixedDelay(3, 10.0).if_exception()


class Asked(SyncLookup, AsyncLookup):
    """A connector that gives each request to a function, and keeps them."""

    def __init__(self, answer: Callable[[LookupRequest], Answer], schema: pa.Schema = SCHEMA) -> None:
        super().__init__(LookupTable("people", schema, options={"connector": "asked"}))
        self.answer = answer
        self.requests: list[LookupRequest] = []

    def lookup(self, request: LookupRequest) -> Answer:
        self.requests.append(request)
        return self.answer(request)

    async def alookup(self, request: LookupRequest) -> Answer:
        return self.lookup(request)


def names_of(*missing: int) -> Callable[[LookupRequest], pa.Table]:
    """Answers one row ``(id, 'n<id>')`` for each key, but none for the ``missing``."""

    def answer(request: LookupRequest) -> pa.Table:
        return rows(*((key, f"n{key}") for key in ids(request) if key not in missing))

    return answer


def rows(*values: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table of tuples."""
    return pa.Table.from_pylist(
        [dict(zip(schema.names, value, strict=True)) for value in values], schema=schema
    )


def ids(asked: LookupRequest | ScheduledRequest) -> list[Any]:
    """The keys of a request, of one column."""
    request = asked.request if isinstance(asked, ScheduledRequest) else asked
    return list(request.keys.column(0).to_pylist())


def spec(connector: SyncLookup | AsyncLookup | None = None, **settings: Any) -> LookupSpec:
    """A lookup of ``people`` by id, which hands back id and name."""
    connector = connector or Asked(names_of())
    settings.setdefault("asynchronous", False)
    return LookupSpec(
        connector, ("id",), ("id", "name"), LookupSettings(**settings), name=LookupName(function="lookup_1")
    )


def scheduler(**settings: Any) -> RequestScheduler:
    """A scheduler over ``people``."""
    return RequestScheduler(spec(**settings), Random(7))


def keys(*values: Any) -> Keys:
    """The keys of a window of ids."""
    return distinct_keys(pa.table({"id": pa.array(values, pa.int64())}))


def asks(of: RequestScheduler, now: float = 0.0) -> list[ScheduledRequest]:
    """All that ``of`` wants to ask at once."""
    found = []
    while isinstance(step := of.next(now), ScheduledRequest):
        found.append(step)
    return found


def handed_back(windows: Iterable[Settled]) -> list[list[Row] | None]:
    """The results of windows of ``people``, one list of rows for each input row."""
    lookup = replace(spec(), columns=tuple(SCHEMA.names))
    return plain(lists for window in windows for lists in window.results(lookup))


def plain(arrays: Iterable[pa.Array]) -> list[list[Row] | None]:
    """Lists of structs as lists of tuples."""
    found = [row for array in arrays for row in array.to_pylist()]
    return [None if row is None else [tuple(struct.values()) for struct in row] for row in found]


def never_late() -> float:
    return math.inf


class Clock:
    """A clock for sync runs; sleeping moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


VirtualLoop = FakeLoop

Latency = Callable[[LookupRequest], float]


def slow(
    answer: Callable[[LookupRequest], Answer], latency: Latency
) -> Callable[[LookupRequest], Awaitable[Answer]]:
    """``answer`` as an async lookup that takes ``latency`` seconds of virtual time."""

    async def lookup(request: LookupRequest) -> Answer:
        await asyncio.sleep(latency(request))
        return answer(request)

    return lookup


def matches(dimension: Mapping[Row, Sequence[Row]], key: Row) -> list[Row]:
    """What a join finds for ``key``, told with a plain dictionary."""
    return [] if None in key else list(dimension.get(key, ()))


def batches_of(columns: Sequence[pa.Array], *sizes: int) -> Iterator[tuple[pa.Array, ...]]:
    """``columns`` cut into batches of the given sizes, and one of the rest."""
    start = 0
    for size in sizes:
        yield tuple(column[start : start + size] for column in columns)
        start += size
    yield tuple(column[start:] for column in columns)
