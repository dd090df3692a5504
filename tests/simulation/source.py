"""A source whose rows change with time, and which errs, throttles, dawdles, hangs, lies and falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

import pyarrow as pa

from lookup_hints.errors import AnswerTooLarge, ConnectorError
from lookup_hints.limits.shared_limits import LimitStores
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import (
    Answer,
    LookupRequest,
    LookupTable,
    Outcomes,
    PlacedRows,
    RowRequest,
    Rows,
)
from tests.simulation.world import SimulatedProcess, SimulatedThread, World, asker, this_process, this_thread

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("until", pa.int64())])
LENGTH = 3
"""The range of a row begins at its value, and is so long."""
VERSIONS = 100_000
"""A value is its key times this, and a number that grows with each change: a foreign one shows."""

QUICK = 0.01
"""Seconds for half an answer once nothing goes wrong any more."""

_NULL = 1000

Found = tuple[int, ...]
"""The values that a key has."""

FAULTS = (
    *("error", "permanent", "throttle", "too-large", "some-fail", "hang", "ignores-cancelling", "slow"),
    *("strangers", "lies"),
)


@dataclass(eq=False)
class Ask:
    """One request that the source got.

    Args:
        at: when it came.
        keys: what was asked.
        attempt: which one it was, as the library tells.
        thread: the thread of the task that asks.
        process: its process.
        timeout: so many seconds the library gives it.
        until: when it was over, or its process was.
        outcomes: what was answered for each key; None where that failed.
        error: how all of it failed.
        is_cancelled: whether the library has ended it.
        probes: when the outage began that it probes, and when that was to be probed; None for none.
    """

    at: float
    keys: list[int | None]
    attempt: int
    thread: SimulatedThread | None
    process: SimulatedProcess
    timeout: float | None
    until: float = inf
    outcomes: dict[int | None, Found | None] = field(default_factory=dict)
    error: Exception | None = None
    is_cancelled: bool = False
    probes: tuple[float, float] | None = None


class Source:
    """The rows of each key at each time, and what goes wrong with requests for them."""

    def __init__(self, world: World, keys: int, *, changes: float, late: float, has_null: bool) -> None:
        self.world, self.keys, self.has_null = world, keys, has_null
        self._changes, self._late = changes, late
        self._histories: dict[int | None, tuple[Random, list[tuple[float, Found]]]] = {}
        self.faults: dict[str, float] = {}
        """How probable each fault is."""
        self.latency = 0.05
        self.down: list[tuple[float, float]] = []
        """When it does not answer: from, until."""
        self.asked: list[Ask] = []
        self.failures = 0
        self.outages: dict[float, None] = {}
        """When the library took it for down, each time."""
        self.reads: list[tuple[float, float]] = []
        """When the table was read whole, each time from begin to end; one that has not ended has no end yet."""

    # What is true.

    def rows_at(self, key: int | None, at: float) -> Found:
        """The values of ``key`` at that time."""
        return next(found for since, found in reversed(self._history(key, at)) if since <= at)

    def rows_between(self, key: int | None, since: float, until: float) -> set[Found]:
        """All that ``key`` had at some time between these."""
        history = self._history(key, until)
        ends = [*(since for since, _ in history[1:]), inf]
        return {found for (at, found), end in zip(history, ends, strict=True) if at <= until and end >= since}

    def _history(self, key: int | None, until: float) -> list[tuple[float, Found]]:
        if key not in self._histories:
            random = Random(f"{self.world.seed} {key}")
            first: Found = () if random.random() < self._late else self._version(key, 0, random)
            self._histories[key] = random, [(-inf, first)]
        random, history = self._histories[key]
        while history[-1][0] <= until:
            since = max(10_000.0, history[-1][0])
            history.append(
                (since + random.expovariate(1 / self._changes), self._version(key, len(history), random))
            )
        return history

    def _version(self, key: int | None, number: int, random: Random) -> Found:
        rows = random.choice((0, 1, 1, 1, 1, 2))
        return tuple(self.first_value(key) + 2 * number + row for row in range(rows))

    def first_value(self, key: int | None) -> int:
        """The least value that ``key`` may have; NULL is one behind all others."""
        return (_NULL if key is None else key) * VERSIONS

    # What is answered.

    def begin(self, keys: list[int | None], request: LookupRequest | RowRequest) -> Ask:
        process = this_process()
        process.work()
        ask = Ask(self.world.now, keys, request.attempt, asker.get(None), process, request.timeout)
        ask.probes = self._outage_at_origin(process)
        self.asked.append(ask)
        self.world.tell(f"process {process.number} asks for {keys}, attempt {request.attempt}")
        return ask

    def _outage_at_origin(self, process: SimulatedProcess) -> tuple[float, float] | None:
        """When the library took the source for down that may be probed now, and when that was to be."""
        for store in process.here.the(LimitStores)._opened.values():
            breaker = store.limits.breaker
            if breaker.opened_at:
                self.outages[breaker.opened_at] = None
                if self.world.now >= breaker.until:
                    return breaker.opened_at, breaker.until
        return None

    def end(self, ask: Ask) -> None:
        ask.until = min(self.world.now, ask.process.died_at)

    def _happens(self, fault: str) -> bool:
        return fault in self.faults and not self.world.is_well and self.world.chance(self.faults[fault])

    @property
    def is_down(self) -> bool:
        if self.world.is_gone:
            return True
        now = self.world.now
        return not self.world.is_well and any(begin <= now < end for begin, end in self.down)

    def delays(self) -> tuple[float, float]:
        """Seconds until the source looks, and until its answer is there."""
        random = self.world.random
        if self.world.is_well:
            return QUICK, QUICK
        seconds = self.latency * random.choice((0.1, 0.5, 1.0, 1.0, 2.0))
        if self._happens("slow"):
            seconds *= 40
        if self._happens("hang"):
            seconds = random.choice((7.0, 30.0))
        return seconds * 0.5, seconds * 0.5

    def answer(self, request: LookupRequest | RowRequest, ask: Ask) -> dict[int | None, Found]:
        """The rows of all keys, and which of them failed alone.

        Raises:
            Exception: the request failed.
        """
        self._fail(ask)
        found = {key: self.rows_at(key, self.world.now) for key in ask.keys}
        if isinstance(request, LookupRequest) and self._happens("some-fail"):
            for key in ask.keys:
                if self.world.chance(0.5):
                    ask.outcomes[key] = None
        ask.outcomes = {**found, **ask.outcomes}
        return found

    def _fail(self, ask: Ask) -> None:
        random = self.world.random
        error: Exception | None = None
        if self.is_down:
            error = ConnectionResetError("the source is down")
        elif self._happens("error"):
            error = random.choice(
                (OSError("reset"), ConnectorError("busy"), ValueError("cut off in the middle"))
            )
        elif self._happens("permanent"):
            error = ConnectorError("no such table", permanent=True)
        elif self._happens("throttle"):
            told = random.choice((None, 0.2, 1.0))
            if self._happens("lies"):
                told = random.choice((0.0, 1e-9, 40.0))
            error = ConnectorError("too many requests", retry_after=told)
        elif len(ask.keys) > 1 and self._happens("too-large"):
            error = AnswerTooLarge("too large", keys=random.randrange(1, len(ask.keys)))
        if error is not None:
            if not isinstance(error, AnswerTooLarge):
                self.failures += 1
            ask.outcomes, ask.error = dict.fromkeys(ask.keys), error
            self.world.tell(f"the source fails {ask.keys}: {error!r}")
            raise error

    def shaped(self, request: LookupRequest, ask: Ask, found: dict[int | None, Found]) -> Answer:
        """The answer, in an order that nobody promised, maybe with rows that nobody asked for."""
        random = self.world.random
        failed = {
            at: OSError("this key fails") for at, key in enumerate(ask.keys) if ask.outcomes[key] is None
        }
        self.failures += len(failed)
        rows = [
            (at, key, value) for at, key in enumerate(ask.keys) if at not in failed for value in found[key]
        ]
        if random.random() < 0.5:
            random.shuffle(rows)
        found_rows = [(key, value) for _, key, value in rows]
        if not failed and random.random() < 0.5:
            if self._happens("strangers"):
                stranger = self.keys + random.randrange(3)
                found_rows.append((stranger, stranger * VERSIONS))
            return _table_of(found_rows)
        positions = pa.array([at for at, _, _ in rows], pa.int32())
        table = _table_of(found_rows)
        return Outcomes(table, positions, failed) if failed else PlacedRows(table, positions)


def _keys_of(request: LookupRequest) -> list[int | None]:
    """What is asked for; a request for NULL has no column of keys."""
    return [None] if request.nulls else request.keys.column(0).to_pylist()


def _table_of(rows: Sequence[tuple[int | None, int]]) -> pa.Table:
    """Keys and values as the source answers with them."""
    values = [value for _, value in rows]
    ends = [value + LENGTH for value in values]
    return pa.table([[key for key, _ in rows], values, ends], schema=SCHEMA)


class SourceConnector(SyncLookup, AsyncLookup, Scan):
    """Asks the source in batches, sync or async, or reads it whole."""

    def __init__(self, source: Source, origin: str) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "simulated"}))
        self.source, self._origin = source, origin

    def origin(self) -> str:
        return self._origin

    def place(self) -> str:
        return "made up"

    def lookup(self, request: LookupRequest) -> Answer:
        source = self.source
        ask = source.begin(_keys_of(request), request)
        try:
            before, after = source.delays()
            this_thread().sleep(before)
            found = source.answer(request, ask)
            this_thread().sleep(after)
            return source.shaped(request, ask, found)
        finally:
            source.end(ask)

    async def alookup(self, request: LookupRequest) -> Answer:
        source = self.source
        ask = source.begin(_keys_of(request), request)
        try:
            return source.shaped(request, ask, await self._wait_for_rows(request, ask))
        finally:
            source.end(ask)

    async def _wait_for_rows(self, request: LookupRequest | RowRequest, ask: Ask) -> dict[int | None, Found]:
        source = self.source
        before, after = source.delays()
        try:
            await asyncio.sleep(before)
            found = source.answer(request, ask)
            await asyncio.sleep(after)
        except asyncio.CancelledError:
            ask.outcomes, ask.is_cancelled = dict.fromkeys(ask.keys), True
            if source._happens("ignores-cancelling"):
                await asyncio.sleep(source.world.random.choice((0.1, 3.0)))
                found = {key: source.rows_at(key, source.world.now) for key in ask.keys}
                ask.outcomes = {**found}
                return found
            raise
        return found

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        source = self.source
        began = source.world.now
        source.world.tell(f"process {this_process().number} reads the table")
        number = len(source.reads)
        source.reads.append((began, inf))
        keys = [*range(source.keys), *([None] if source.has_null else [])]
        for start in range(0, len(keys), 5):
            this_thread().sleep(source.latency)
            if source.is_down or source._happens("error"):
                source.failures += 1
                raise ConnectorError("the table cannot be read on")
            # As a snapshot: all rows are those of when it began.
            rows = [(key, value) for key in keys[start : start + 5] for value in source.rows_at(key, began)]
            yield from _table_of(rows).to_batches()
        source.reads[number] = began, source.world.now


class RowConnector(SourceConnector, AsyncRowLookup):
    """Asks the source key by key."""

    def keys_per_request(self) -> int | None:
        return 1

    async def alookup_row(self, request: RowRequest) -> Rows:
        source = self.source
        ask = source.begin([request.key["id"]], request)
        try:
            found = await self._wait_for_rows(request, ask)
            return [{"value": value, "until": value + LENGTH} for value in found[ask.keys[0]]]
        finally:
            source.end(ask)
