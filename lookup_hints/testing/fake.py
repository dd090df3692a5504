"""A source in memory that misbehaves as scripted, and a lookup join without Spark, on a clock of its own.

Both are public as ``lookup_hints.testing``.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from lookup_hints.engine.arrow import Placed, distinct_keys
from lookup_hints.engine.async_runner import AsyncRunner, LoopCall, run_async
from lookup_hints.engine.backlog import Learn
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.permits import limiter_of
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.row_runner import RowRunner
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.errors import ConnectorError
from lookup_hints.limits.shared_limits import LimitStores
from lookup_hints.lookup_spec import LookupName, LookupSettings, LookupSpec
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector, SyncLookup
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable, Outcomes

KeyTuple = tuple[Any, ...]
_T = TypeVar("_T")


# --- a source -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One request that a source got: when, for which keys, and which try it was."""

    at: float
    keys: tuple[KeyTuple, ...]
    attempt: int = 1


@dataclass(frozen=True)
class _Act:
    error: Exception | None = None
    seconds: float = 0.0
    misses: bool = False


class FakeConnector(SyncLookup, AsyncLookup):
    """Rows in memory, asked by ``key``; the next answers for a key may be scripted.

    Examples:
        >>> import pyarrow as pa
        >>> people = FakeConnector({"id": pa.int64(), "name": pa.string()}, [(1, "Ada")], key=["id"])
        >>> people.miss(1, times=2)             # a row that comes late
        >>> people.fail(2, error="busy")        # a failure that may pass
        >>> people.delay(1, seconds=0.5)
        >>> looked_up(people, [(1,)], on_error="null").rows
        [[]]
        >>> people.calls
        [Call(at=0.0, keys=((1,),), attempt=1)]
    """

    def __init__(
        self,
        columns: Mapping[str, pa.DataType],
        rows: Iterable[Sequence[Any]] = (),
        *,
        key: Sequence[str],
        name: str = "fake",
    ) -> None:
        super().__init__(LookupTable(name, pa.schema(list(columns.items())), options={"connector": "fake"}))
        self.rows = [tuple(row) for row in rows]
        self.calls: list[Call] = []
        self.clock = FakeClock()
        self._key = tuple(key)
        self._scripts: dict[KeyTuple, deque[_Act]] = defaultdict(deque)

    def miss(self, *key: Any, times: int = 1) -> None:
        """Find nothing for ``key``, this many times."""
        self._script_key(key, _Act(misses=True), times)

    def fail(self, *key: Any, error: Exception | str = "scripted", times: int = 1) -> None:
        """Fail for ``key``, this many times; a text is a failure that may pass."""
        raised = ConnectorError(error) if isinstance(error, str) else error
        self._script_key(key, _Act(error=raised), times)

    def delay(self, *key: Any, seconds: float, times: int = 1) -> None:
        """Answer for ``key`` so late, this many times."""
        self._script_key(key, _Act(seconds=seconds), times)

    def lookup(self, request: LookupRequest) -> Answer:
        """The rows of each key, as scripted."""
        keys, acts = self._next_acts(request, self.clock())
        self.clock.sleep(max(act.seconds for act in acts))
        return self._answer_keys(request, keys, acts)

    async def alookup(self, request: LookupRequest) -> Answer:
        """The rows of each key, as scripted."""
        keys, acts = self._next_acts(request, asyncio.get_running_loop().time())
        await asyncio.sleep(max(act.seconds for act in acts))
        return self._answer_keys(request, keys, acts)

    def _script_key(self, key: KeyTuple, act: _Act, times: int) -> None:
        self._scripts[key].extend([act] * times)

    def _next_acts(self, request: LookupRequest, now: float) -> tuple[list[KeyTuple], list[_Act]]:
        keys = [tuple(row[name] for name in self._key) for row in request.keys.to_pylist()]
        self.calls.append(Call(now, tuple(keys), request.attempt))
        scripts = [self._scripts[key] for key in keys]
        return keys, [script.popleft() if script else _Act() for script in scripts]

    def _answer_keys(self, request: LookupRequest, keys: list[KeyTuple], acts: list[_Act]) -> Outcomes:
        names = self.table.schema.names
        places = [names.index(name) for name in self._key]
        found = [
            (position, row)
            for position, (key, act) in enumerate(zip(keys, acts, strict=True))
            for row in self.rows
            if not (act.misses or act.error) and tuple(row[place] for place in places) == key
        ]
        rows = [dict(zip(names, row, strict=True)) for _, row in found]
        failures = {position: act.error for position, act in enumerate(acts) if act.error}
        positions = pa.array([position for position, _ in found], pa.int32())
        return Outcomes(pa.Table.from_pylist(rows, request.schema), positions, failures)


# --- a lookup join without Spark ------------------------------------------------------------------


@dataclass(frozen=True)
class LookedUp:
    """The result of a lookup join.

    Args:
        rows: for each input key, in order, its rows as tuples; None where `on-error=skip` drops it.
        seconds: how long it took, on the clock that only waits move.
        metrics: what was counted.
        cached: what a cache would keep: for each key how many rows, 0 for a miss.
    """

    rows: list[list[tuple[Any, ...]] | None]
    seconds: float
    metrics: LookupMetrics
    cached: dict[tuple[Any, ...], int]


def looked_up(
    connector: Connector,
    keys: Sequence[Sequence[Any]],
    *,
    by: Sequence[str] = (),
    waits: bool = False,
    **settings: Any,
) -> LookedUp:
    """Ask ``connector`` for ``keys`` as the engine would in one task, without Spark and without waiting.

    Args:
        connector: not opened; it is opened and closed here.
        keys: one tuple for each input row; None is NULL.
        by: the columns asked by; by default the first ones of the table.
        waits: whether time passes as it does, for connectors that talk to something: a clock that only timers
            move knows nothing of sockets.
        settings: those of ``LookupSettings``: ``retry``, ``timeout``, ``capacity``, ``batch_size``,
            ``on_error``, ``asynchronous`` (where the connector can, by default).
    """
    settings.setdefault("asynchronous", isinstance(connector, AsyncLookup))
    limit = connector.keys_per_request()
    if limit is not None:
        settings["batch_size"] = min(limit, settings.get("batch_size", limit))
    names = tuple(connector.table.schema.names)
    key_columns = tuple(by) or names[: len(keys[0])]
    spec = LookupSpec(connector, key_columns, names, LookupSettings(**settings), LookupName(function="test"))
    table = pa.table([list(column) for column in zip(*keys, strict=True)], schema=spec.key_schema)
    run = _run_async if spec.settings.asynchronous else _run_sync
    cached: dict[tuple[Any, ...], int] = {}

    def learn(keys: pa.Table, found: Placed, missing: pa.Array, _: float) -> None:
        names = [tuple(row.values()) for row in keys.to_pylist()]
        cached.update((names[position], 0) for position in missing.to_pylist())
        cached.update((names[at], rows) for at, rows in Counter(found.positions.to_pylist()).items())

    windows, seconds, scheduler = run(spec, table, learn, waits=waits)
    lists = [each for window in windows for part in window.results(spec) for each in part.to_pylist()]
    rows = [None if each is None else [tuple(row.values()) for row in each] for each in lists]
    return LookedUp(rows, seconds, scheduler.metrics, cached)


def _make_scheduler(
    spec: LookupSpec, learn: Learn, clock: Callable[[], float], sleep: Callable[[float], None]
) -> RequestScheduler:
    limiter = limiter_of(spec, LimitStores(), None, clock=clock, sleep=sleep)
    return RequestScheduler(spec, Random(0), limiter=limiter, learn=learn)  # noqa: S311 - jitter, not cryptography


def _run_sync(
    spec: LookupSpec, table: pa.Table, learn: Learn, *, waits: bool
) -> tuple[list[Settled], float, RequestScheduler]:
    connector = spec.connector
    assert isinstance(connector, SyncLookup), f"{type(connector).__name__} cannot be asked sync"
    fake = connector.clock if isinstance(connector, FakeConnector) else FakeClock()
    clock, sleep = (time.monotonic, time.sleep) if waits else (fake, fake.sleep)
    scheduler = _make_scheduler(spec, learn, clock, sleep)
    started = clock()
    connector.open()
    try:
        inputs = iter([distinct_keys(table)])
        windows = list(run_sync(scheduler, inputs, connector.lookup, clock=clock, sleep=sleep))
    finally:
        connector.close()
    return windows, clock() - started, scheduler


def _run_async(
    spec: LookupSpec, table: pa.Table, learn: Learn, *, waits: bool
) -> tuple[list[Settled], float, RequestScheduler]:
    connector = spec.connector
    assert isinstance(connector, AsyncLookup), f"{type(connector).__name__} cannot be asked async"
    loop = asyncio.SelectorEventLoop() if waits else FakeLoop()
    scheduler = _make_scheduler(spec, learn, loop.time, time.sleep)
    if isinstance(connector, AsyncRowLookup) and spec.by_row:
        runner: AsyncRunner = RowRunner(
            scheduler, connector, connector.alookup_row, spec.settings.capacity, connector.row_starter
        )
    else:
        runner = AsyncRunner(scheduler, connector.alookup)
    call: LoopCall = loop.run_until_complete
    started = loop.time()
    try:
        call(connector.aopen())
        try:
            windows = list(run_async(runner, iter([distinct_keys(table)]), call))
            return windows, loop.time() - started, scheduler
        finally:
            call(connector.aclose())
    finally:
        loop.close()


# --- clocks ---------------------------------------------------------------------------------------


class FakeClock:
    """A clock that stands still until someone sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move the clock on."""
        self.now += seconds


class FakeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only by its own timers, and at once."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Seconds since it was made."""
        return self._skipping.now

    def call(self, coroutine: Coroutine[Any, Any, _T], /) -> _T:
        """Run ``coroutine`` to its end."""
        return self.run_until_complete(coroutine)


class _SkippingSelector(selectors.DefaultSelector):
    """Instead of waiting, moves the loop's time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError(
                    "the loop would wait for ever: only timers move this clock. For a connector that talks to"
                    " something write looked_up(..., waits=True)."
                )
            self.now += timeout
        return ready
