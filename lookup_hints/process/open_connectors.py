"""State of a worker process between tasks: an event loop, and open connectors.

Spark reuses a worker over tasks and queries, so pools of connections are worth keeping; and it drops
workers without a word, so nothing here is needed to end well. Calls that block are made on threads of their
own, so that whoever waits for them need not wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

import pyarrow as pa

from lookup_hints.engine.arrow import conform
from lookup_hints.engine.null_keys import ask_beside_nulls
from lookup_hints.errors import ConnectorError, InternalError, LookupTimeout
from lookup_hints.spi import (
    AcquiresPermits,
    AsyncLookup,
    AsyncRowLookup,
    Connector,
    Filter,
    FilteredScan,
    RowStarter,
    Scan,
    SyncLookup,
    TakeRows,
)
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, RowRequest, Rows
from lookup_hints.spi.request_context import NOBODY, permits, reporting_to
from lookup_hints.spi.secrets import known_secrets, without_secrets

T = TypeVar("T")


class CallThread:
    """A thread that runs one call after the other, each in the context of its caller.

    Nobody can end a call that hangs. So it is a daemon, unlike those of ``ThreadPoolExecutor``, for whose
    calls Python waits when a process ends.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._run_calls, name=name, daemon=True).start()

    def call(
        self, work: Callable[[], T], seconds: float | None, more: Callable[[], float] = lambda: 0.0
    ) -> T:
        """What ``work`` gives, or raises. A call that has not begun when its time is up is not made.

        Args:
            work: the call.
            seconds: that it may take.
            more: seconds that it may still take when these are over; asked again when those are over.

        Raises:
            CallTimeout: it took longer.
        """
        future: Future[T] = Future()
        self._calls.put((future, partial(copy_context().run, work)))
        try:
            while True:
                try:
                    return future.result(seconds)
                except NotInTime:
                    if future.done():  # an error of the call itself, or it is over since
                        return future.result()
                    seconds = more()
                    if seconds <= 0:
                        raise CallTimeout from None
        finally:
            future.cancel()

    def end(self) -> None:
        self._calls.put(None)

    def _run_calls(self) -> None:
        while (called := self._calls.get()) is not None:
            future, work = called
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del called, future, work  # they may be large, and the next call takes its time


class CallTimeout(Exception):
    """A call has not come back in time. It may still be running."""


def call_with_timeout(work: Callable[[], T], seconds: float, what: str) -> T:
    """Run ``work`` on a thread of its own, named after ``what``; returns its result or raises its error.

    Raises:
        TimeoutError: it took longer than ``seconds``.
    """
    thread = CallThread(f"lookup_hints {what}")
    try:
        return thread.call(work, seconds)
    except CallTimeout:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    finally:
        thread.end()


IDLE_CONNECTORS = 8
"""How many opened connectors are kept that no task uses."""

OPEN_SECONDS = 900.0
"""After so many seconds the next task reopens a connector: its host may resolve differently by now."""

CLOSE_SECONDS = 5.0

GRACE_SECONDS = 0.25
"""A connector that keeps to the time of a request itself may be so late, and says more of its failure."""


class LoopThread:
    """An event loop on a daemon thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        try:
            Thread(target=self._loop.run_forever, name="lookup_hints", daemon=True).start()
        except RuntimeError:  # this process can start no more threads
            self._loop.close()
            raise

    def call(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run ``coroutine`` on the loop and wait for its result; called on any other thread."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # an interrupt of this thread must not leave it running


class OpenedSync:
    """A connector that is opened at its first lookup, and asked by one caller at a time.

    It is called on a thread of its own: a call that hangs must not keep the task from failing in time.
    """

    def __init__(self, connector: SyncLookup) -> None:
        self.connector = connector
        self.secrets: set[str] = set()
        """The secrets that it was opened with; a file may hold another one by now."""
        self._lock = Lock()
        self._thread: CallThread | None = None
        self._is_open = False

    def call(self, work: Callable[[], T], timeout: float | None, more: Callable[[], float]) -> T:
        """What ``work`` gives on the thread of the connector.

        Args:
            work: the call.
            timeout: seconds that it may take.
            more: seconds that it may still take when these are over, as it has waited for its permit.

        Raises:
            LookupTimeout: it did not return within these, and a moment.
        """
        with self._lock:
            thread = self._thread = self._thread or CallThread("lookup_hints sync")
        try:
            seconds = None if timeout is None else timeout + GRACE_SECONDS
            return thread.call(work, seconds, lambda: more() + GRACE_SECONDS)
        except CallTimeout:
            raise LookupTimeout(
                f"{type(self.connector).__name__}.lookup has not returned within {timeout:g} s"
            ) from None

    def lookup(self, request: LookupRequest) -> Answer:
        """The connector's answer; called on its thread."""
        with needing_its_driver(self.connector):
            if not self._is_open:
                self.secrets |= known_secrets(self.connector)
                self.connector.open()
                self._is_open = True
            return self.connector.lookup(ask_beside_nulls(request))

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.call(self._close_connector, CLOSE_SECONDS)
        except CallTimeout:
            raise ConnectorError(f"{type(self.connector).__name__}.close has not returned") from None
        finally:
            thread.end()

    def _close_connector(self) -> None:
        if self._is_open:
            self._is_open = False
            self.connector.close()


# All async connectors of a process share one event loop and stay open between tasks: opening costs more than
# most lookups. (docs/decisions/0110)
class OpenedAsync:
    def __init__(self, connector: AsyncLookup, loop: LoopThread) -> None:
        self.connector = connector
        self.secrets: set[str] = set()
        """The secrets that it was opened with; a file may hold another one by now."""
        self._loop = loop
        self._opening: asyncio.Task[None] | None = None
        self._ask_row: Callable[[RowRequest], Awaitable[Rows]] | None = None
        """The row lookup of the connector, once that is open."""

    async def lookup(self, request: LookupRequest) -> Answer:
        with needing_its_driver(self.connector):
            await asyncio.shield(self._open_task())  # a lookup out of time takes no other's connection away
            return await self.connector.alookup(ask_beside_nulls(request))

    async def lookup_row(self, request: RowRequest) -> Rows:
        ask = self._ask_row
        if ask is None:  # looked at for every key: no detour for those that come later
            assert isinstance(self.connector, AsyncRowLookup)
            with needing_its_driver(self.connector):
                await asyncio.shield(self._open_task())
            ask = self._ask_row = self.connector.alookup_row
        try:
            return await ask(request)
        except ModuleNotFoundError as error:
            raise _missing_driver(self.connector, error) from error

    def row_starter(self, take: TakeRows) -> RowStarter | None:
        """The connector's, once it is open; none where it is not the connector that takes the turns."""
        if self._ask_row is None or not isinstance(self.connector, AcquiresPermits):
            return None
        assert isinstance(self.connector, AsyncRowLookup), "it is asked by row"
        return self.connector.row_starter(take)

    def _open_task(self) -> asyncio.Task[None]:
        if self._opening is None or _has_failed(self._opening):
            self.secrets |= known_secrets(self.connector)
            with reporting_to(NOBODY, permits()):  # what it starts in the background serves all tasks
                self._opening = asyncio.get_running_loop().create_task(self.connector.aopen())
        return self._opening

    def close(self) -> None:
        if self._opening is not None and not _has_failed(self._opening):
            self._loop.call(asyncio.wait_for(self.connector.aclose(), CLOSE_SECONDS))


Opened = OpenedSync | OpenedAsync


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


@contextmanager
def needing_its_driver(connector: Connector) -> Iterator[None]:
    """Let a module that is missing be an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing_driver(connector, error) from error


def _missing_driver(connector: Connector, error: ModuleNotFoundError) -> ConnectorError:
    return ConnectorError(
        f"connector {type(connector).__name__} needs the Python module {error.name!r}, which the worker on"
        f" {socket.gethostname()} (Python {platform.python_version()}, {sys.executable}) does not have;"
        f" install it for that Python on every worker{install_tip(connector)}, or name one that has it in"
        " PYSPARK_PYTHON before Spark starts",
        permanent=True,
    )


def install_tip(connector: Connector) -> str:
    """How the drivers of ``connector`` are installed, where that is known."""
    is_ours = type(connector).__module__.startswith("lookup_connectors.")
    return f" (pip install 'lookup-hints[{connector.table.connector}]')" if is_ours else ""


class _Shared:
    def __init__(self, opened: Opened, opened_with: Hashable, time: float) -> None:
        self.opened = opened
        self.users = 0
        self._opened_with = opened_with
        self._until = time + OPEN_SECONDS

    def is_fresh(self, opened_with: Hashable, now: float) -> bool:
        """Whether opening it now would give the same."""
        return now < self._until and opened_with == self._opened_with


class Process:
    """The loop and the opened connectors of this process, and what it knows of its tasks so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._loop: LoopThread | None = None
        self._shared: OrderedDict[tuple[str, bool], _Shared] = OrderedDict()
        self._outdated: list[_Shared] = []
        self._kept: dict[type, Any] = {}

    def the(self, kind: type[T]) -> T:
        """The one object of ``kind`` that this process keeps, made when it is first wanted."""
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = kind()
            kept: T = self._kept[kind]
            return kept

    @property
    def loop(self) -> LoopThread:
        with self._lock:
            self._loop = self._loop or LoopThread()
            return self._loop

    def has(self, identity: str) -> bool:
        with self._lock:
            return any(kept == identity for kept, _ in self._shared)

    @contextmanager
    def opened(self, identity: str, read: Callable[[], Connector], *, asynchronous: bool) -> Iterator[Opened]:
        """The connector of that ``identity``: the one that is here, or what ``read`` gives."""
        shared = self._mark_used(identity, read, asynchronous)
        try:
            yield shared.opened
        finally:
            with self._lock:
                shared.users -= 1
                dropped = self._drop_unused()
            for one in dropped:
                with suppress(Exception):  # it must not fail the task that happens to be here
                    one.close()

    def _mark_used(self, identity: str, read: Callable[[], Connector], asynchronous: bool) -> _Shared:
        key = identity, asynchronous
        with self._lock:
            kept = self._shared.get(key)
            if kept is not None:
                kept.users += 1  # another task's end must not drop it while it is looked at
        try:
            shared, now = kept, self._clock()
            if shared is None or not shared.is_fresh(shared.opened.connector.opened_with(), now):
                opened = self._open_by_runner(read(), asynchronous)
                shared = _Shared(opened, opened.connector.opened_with(), now)
            with self._lock:
                there = self._shared.get(key)
                if there is not None and there is not kept:  # another task was faster
                    shared = there
                elif kept is not None and shared is not kept:
                    self._outdated.append(kept)  # tasks that use it go on with it
                self._shared[key] = shared
                self._shared.move_to_end(key)
                shared.users += 1
            return shared
        finally:
            if kept is not None:
                with self._lock:
                    kept.users -= 1

    def _open_by_runner(self, connector: Connector, asynchronous: bool) -> Opened:
        if asynchronous and isinstance(connector, AsyncLookup):
            return OpenedAsync(connector, self.loop)
        if not asynchronous and isinstance(connector, SyncLookup):
            return OpenedSync(connector)
        kind = "async" if asynchronous else "sync"
        raise InternalError(f"{type(connector).__name__} was planned to run {kind}, which it cannot")

    def _drop_unused(self) -> list[Opened]:
        idle = [key for key, shared in self._shared.items() if shared.users == 0]
        dropped = [self._shared.pop(key) for key in idle[: max(0, len(idle) - IDLE_CONNECTORS)]]
        dropped += [shared for shared in self._outdated if shared.users == 0]
        self._outdated = [shared for shared in self._outdated if shared.users]
        return [shared.opened for shared in dropped]


this_process = Process()
_left_behind: list[Process] = []


def _reset_after_fork() -> None:
    # A forked child has neither the parent's threads nor a right to its connections. They are kept, as
    # a driver's finalizer might say goodbye on a socket that the parent still uses.
    global this_process
    _left_behind.append(this_process)
    this_process = Process()


os.register_at_fork(after_in_child=_reset_after_fork)


def scanned(
    connector: Connector, schema: pa.Schema, partition: str = "", filters: Sequence[Filter] = ()
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of the table of ``connector``, with the columns of ``schema``.

    Rows that ``filters`` leave out may be missing.

    Raises:
        ConnectorError: the scan failed; secrets are masked.
    """
    batches = _scan_conformed(connector, schema, partition, filters)
    return without_secrets(batches, connector, known_secrets(connector), kind=Exception)


PLACE = "__lookup_place"
"""The column of ``with_places``: Spark's own number of a row counts as random, which some queries refuse."""
_PLACE_BITS = 40
"""A part has fewer than two to the power of this many rows."""


def with_places(found: Iterator[pa.RecordBatch], part: int) -> Iterator[pa.RecordBatch]:
    """The batches of the partition of that number, with a number for each row in the order of reading."""
    place = part << _PLACE_BITS
    for batch in found:
        places = pa.array(range(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, places], [*batch.schema.names, PLACE])


def _scan_conformed(
    connector: Connector, schema: pa.Schema, partition: str, filters: Sequence[Filter]
) -> Iterator[pa.RecordBatch]:
    if not isinstance(connector, Scan):
        raise InternalError(f"{type(connector).__name__} was planned to be scanned, which it cannot")
    connector.table.check_allowed()
    who = f"connector {type(connector).__name__} of table {connector.table.name}"
    with needing_its_driver(connector):
        if filters and isinstance(connector, FilteredScan):
            batches = connector.scan_filtered(schema, partition, filters)
        else:
            batches = connector.scan_partition(schema, partition) if partition else connector.scan(schema)
        for batch in batches:
            yield from conform(pa.Table.from_batches([batch]), schema, who).to_batches()
