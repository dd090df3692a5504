"""The functions that Spark calls on its Python workers: key columns in, lists of rows out."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from queue import Full, Queue
from random import Random
from threading import Lock, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.cache.open_caches import OpenCaches
from lookup_hints.cache.task_cache import TaskCache
from lookup_hints.engine.adaptive_batch_size import (
    CAREFUL_GROWTH,
    GROWTH,
    PAUSE_ROWS,
    LimitPause,
    LimitPauses,
    after_pause,
    ending_at,
    filling,
    key_batches,
    window_sizes,
    windows,
)
from lookup_hints.engine.arrow import (
    Keys,
    distinct_keys,
    ordered_keys,
    whole,
    without_keys,
    without_null_parts,
)
from lookup_hints.engine.asof_and_ranges import compared_values
from lookup_hints.engine.async_runner import AsyncRunner, run_async
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.permits import UNLIMITED, RequestLimiter, limiter_of
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.row_runner import RowRunner
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.limits.shared_limits import LimitStores, folder_of_executor
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.lookup_metrics import Cause, LookupMetrics, MaxGauge, Report
from lookup_hints.metrics.otel_setup import Telemetry
from lookup_hints.metrics.task_recorder import UNOBSERVED, OnCounts, RequestObserver, Waits
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Opened, OpenedAsync, OpenedSync, Process
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.process.running_task import running_statement, teller
from lookup_hints.pyspark_internals import leave_input_unread
from lookup_hints.spi import AsyncRowLookup, NearestCondition
from lookup_hints.spi.secrets import without_secrets
from lookup_hints.worker.dead_letter_files import DeadLetterWriter

ArrowLookup = Callable[[Iterator[Any]], Iterator[pa.Array]]


def arrow_lookup(spec: LookupSpec, report: Report | None = None) -> ArrowLookup:
    """The lookup join ``spec`` as a function for ``arrow_udf``, of the iterator kind.

    Spark hands an iterator of arrays to a function of one argument and one of tuples to others; the
    annotations tell it so. The function returns ``ARRAY<STRUCT<...>>``: empty for a miss or a NULL in
    the key, NULL for a key that `on-error=skip` drops. ``report`` is called at the end of each task.
    """
    carried = PickledConnector.of(spec.connector)
    identity, spec = carried.identity, spec.over(carried)

    def one_key(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return look_up(spec, identity, ((column,) for column in columns), report)

    def several_keys(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return look_up(spec, identity, columns, report)

    def packed_keys(structs: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return look_up(spec, identity, (struct.flatten() for struct in structs), report)

    if spec.packed:
        return packed_keys
    return one_key if len(spec.argument_schema) == 1 else several_keys


def look_up(
    spec: LookupSpec, identity: str, batches: Iterator[Sequence[pa.Array]], report: Report | None
) -> Iterator[pa.ListArray]:
    """For each row of ``batches``, in order, the list of its rows; the arrays are cut again.

    Raises:
        ConnectorError: the lookup failed; secrets are masked.
        NotAllowed: this machine does not allow the connector, or a reference.
    """
    spec.table.check_allowed()
    process.this_process.the(FrozenObjects).begin_task()
    here = process.this_process
    with open_connector(spec, identity, here) as opened:
        observer = here.the(Telemetry).observer(spec.name)
        watch = teller(spec.name.function)
        own = spec.over(opened.connector)
        memory = here.the(OpenCaches).task_cache(
            own, identity, folder_of_executor(), _refresh_in_background(spec, identity)
        )
        limiter = _limiter_for(own, here, running_statement())
        task = _Task(own, opened, batches, watch, observer, limiter, memory)
        try:
            yield from task.results()
        except Exception:
            leave_input_unread()
            raise
        finally:
            counts = task.metrics
            if report is not None:
                report(spec.name.function, counts)
            observer.task_ended(counts)


def _refresh_in_background(spec: LookupSpec, identity: str) -> Callable[[pa.Table], None] | None:
    """Lets keys be asked for again beside the tasks, where rows that are too old may be used meanwhile."""
    cache, background = spec.settings.cache, process.this_process.the(Background)
    if cache is None or not cache.stale_while_revalidate:
        return None
    statement = running_statement()  # whose requests they are, as its task finds them too old
    return lambda keys: background.do(
        partial(_refresh_keys, spec, identity, keys, background.process, statement)
    )


def _refresh_keys(
    spec: LookupSpec, identity: str, keys: pa.Table, here: process.Process, statement: str | None
) -> None:
    """Request ``keys`` that no other task has refreshed by now; failures are ignored."""
    settings = replace(spec.settings, on_error="fail", dead_letters=None, stops_early=False)
    with open_connector(spec, identity, here) as opened:
        order = spec.order if spec.order_asked else None
        own = replace(spec, settings=settings, columns=spec.held_columns, order=order).over(opened.connector)
        memory = here.the(OpenCaches).task_cache(own, identity, folder_of_executor())
        columns = iter([[column.combine_chunks() for column in keys.columns]])
        limiter = _limiter_for(own, here, statement)
        for _ in _Task(own, opened, columns, limiter=limiter, memory=memory, here=here).results():
            pass


def open_connector(spec: LookupSpec, identity: str, here: process.Process) -> AbstractContextManager[Opened]:
    """The open connector for ``spec``: its own, or an equal one that an earlier task has opened."""
    carried = spec.connector
    read = carried.connector if isinstance(carried, PickledConnector) else lambda: carried
    return here.opened(identity, read, asynchronous=spec.settings.asynchronous)


def _limiter_for(spec: LookupSpec, here: process.Process, statement: str | None) -> RequestLimiter:
    return limiter_of(spec, here.the(LimitStores), folder_of_executor(), statement=int(statement or 0))


def _pause_seconds() -> float:
    return process.this_process.the(LimitPauses).next_seconds(running_statement())


def rows_of_join(lists: pa.ListArray, kind: str) -> tuple[int, int]:
    """How many rows ``lists`` hold, and how many rows a join of that ``kind`` has of them.

    Each list is what one input row found; NULL stands for a row that is dropped.
    """
    lengths = pc.list_value_length(lists)
    found = pc.sum(lengths).as_py() or 0
    if kind == "INNER":
        return found, found
    missing = pc.sum(pc.equal(lengths, 0)).as_py() or 0
    if kind == "LEFT":
        return found, found + missing
    return found, missing if kind == "LEFT ANTI" else len(lists) - lists.null_count - missing


# The generator's `finally` is the only clean-up: Spark drops a worker after LIMIT without a last word, so
# nothing may depend on one. (docs/decisions/0060)
class _Task:
    """One lookup join over the rows of one task; the connector of ``spec`` is the one that is ``opened``."""

    def __init__(
        self,
        spec: LookupSpec,
        opened: OpenedSync | OpenedAsync,
        batches: Iterator[Sequence[pa.Array]],
        watch: OnCounts | None = None,
        observer: RequestObserver = UNOBSERVED,
        limiter: RequestLimiter = UNLIMITED,
        memory: TaskCache | None = None,
        here: process.Process | None = None,
    ) -> None:
        self._spec = spec
        self._here = here or process.this_process
        self._opened = opened
        self._batches = batches
        self._observer = observer
        self._letters = DeadLetterWriter(spec, opened.secrets)
        self._memory = memory or TaskCache(spec, None)
        self._scheduler = RequestScheduler(
            spec,
            Random(),  # noqa: S311 - jitter, not cryptography
            secrets=opened.secrets,
            watch=watch and (lambda counts, waiting: watch(counts + self._measured_counts, waiting)),
            observer=observer,
            keep=self._letters.keep,
            learn=self._memory.learn,
            limiter=limiter,
        )
        self._limit_pause = LimitPause(PAUSE_ROWS if spec.settings.stops_early else 0, _pause_seconds)
        self._rows_found = self._rows_out = 0
        self._waits = Waits()
        self._started = time.monotonic()

    @property
    def metrics(self) -> LookupMetrics:
        """The counts so far; read at the end of the task, as the scheduler may run on another thread."""
        return self._scheduler.metrics + self._measured_counts + self._memory.counts

    @property
    def _measured_counts(self) -> LookupMetrics:
        return LookupMetrics(
            tasks=1,
            seconds=time.monotonic() - self._started,
            rows_out=self._rows_out,
            rows_found=self._rows_found,
            waited=self._waits.total,
            limit=MaxGauge(self._scheduler.limiter.limit),
            outages=self._scheduler.limiter.outages,
        )

    def results(self) -> Iterator[pa.ListArray]:
        try:
            yield from self._joined_lists()
        except GeneratorExit:
            self._scheduler.stopped()
            raise

    def _joined_lists(self) -> Iterator[pa.ListArray]:
        for settled in self._settled_rows():
            for lists in settled.results(self._spec):
                found, out = rows_of_join(lists, self._spec.kind)
                self._rows_found += found
                self._rows_out += out
                with self._counting_wait("writing"):
                    yield lists
                if self._limit_pause.is_due_after(len(lists), time.monotonic()):
                    yield from filling(lists.type)
            del settled, lists  # they may be large, and the next ones take their time

    @contextmanager
    def _counting_wait(self, cause: Cause) -> Iterator[None]:
        self._waits.turn(cause, time.monotonic())
        try:
            yield
        finally:
            self._waits.turn(None, time.monotonic())

    def _settled_rows(self) -> Iterator[Settled]:
        opened, inputs = self._opened, self._read_windows()
        if isinstance(opened, OpenedSync):
            run = run_sync(
                self._scheduler,
                inputs,
                opened.lookup,
                clock=time.monotonic,
                sleep=time.sleep,
                call=opened.call,
            )
        else:
            run = run_async(self._make_runner(opened), inputs, self._here.loop.call)
        return without_secrets(self._with_final_checks(run), opened.connector, opened.secrets)

    def _with_final_checks(self, run: Iterator[Settled]) -> Iterator[Settled]:
        """``run``; it ends when its dead letters are written, and not too much has failed."""
        with closing(self._memory), self._letters:
            for settled in run:
                self._memory.write_if_due()
                yield settled
                del settled  # it may be large, and the next one takes its time
                self._letters.write_full_parts()
            self._scheduler.check_errors()
            self._letters.finish()

    def _make_runner(self, opened: OpenedAsync) -> AsyncRunner:
        if not self._spec.by_row:
            return AsyncRunner(self._scheduler, opened.lookup)
        assert isinstance(opened.connector, AsyncRowLookup)
        capacity = self._spec.settings.capacity
        if self._observer is not UNOBSERVED:  # who is told of each request
            return RowRunner(self._scheduler, opened.connector, opened.lookup_row, capacity)
        return RowRunner(self._scheduler, opened.connector, opened.lookup_row, capacity, opened.row_starter)

    def _read_windows(self) -> Iterator[Keys]:
        batches = key_batches(self._read_batches(), self._spec.argument_schema)
        stops_early = self._spec.settings.stops_early
        growth = CAREFUL_GROWTH if stops_early or self._spec.by_row else GROWTH
        sizes = window_sizes(growth, self._most_rows)
        read = windows(batches, ending_at(PAUSE_ROWS, sizes) if stops_early else sizes)
        wanted = after_pause(read, self._limit_pause, clock=time.monotonic, sleep=self._sleep_writing)
        return (self._memory.recall(self._keys_of(rows)) for rows in wanted)

    def _keys_of(self, rows: pa.Table) -> Keys:
        """The keys of a window; the values that rows are compared with are beside them."""
        if isinstance(self._spec.order, NearestCondition):
            last = rows.num_columns - 1
            values = without_null_parts(whole(rows.column(last)))
            rows = rows.set_column(last, rows.schema.field(last), values)
        keys_of = distinct_keys if self._spec.by_row else ordered_keys
        if self._spec.chosen_order is None:
            return self._memory.keys_of(rows) or keys_of(rows)
        values = compared_values(rows.columns[len(self._spec.key_columns) :])
        rows = without_keys(rows.select(self._spec.key_columns), values.is_null())
        return replace(self._memory.keys_of(rows) or keys_of(rows), values=values)

    def _read_batches(self) -> Iterator[Sequence[pa.Array]]:
        while True:
            with self._counting_wait("reading"):
                batch = next(self._batches, None)
            if batch is None:
                return
            yield batch

    def _sleep_writing(self, seconds: float) -> None:
        with self._counting_wait("writing"):
            time.sleep(seconds)

    def _most_rows(self) -> int | None:
        limits = (self._scheduler.most_rows, self._memory.most_rows())
        return min((each for each in limits if each is not None), default=None)


class FrozenObjects:
    """The objects that live as long as the worker, which collections leave alone from its second task on.

    PySpark has collected after the first one, so that there is no garbage among them. It does so after each
    task, which takes some 45 ms without this (docs/decisions/0031).
    """

    def __init__(self) -> None:
        self._tasks = 0

    def begin_task(self) -> None:
        self._tasks += 1
        if self._tasks == 2:
            gc.freeze()


MOST_WAITING = 64
"""So much work may wait; what comes then is not done, and is asked for another time."""

_log = logging.getLogger("lookup_hints.cache")


# Refreshing happens beside the tasks: a stale answer may be used meanwhile, so no row waits for it.
class Background:
    def __init__(self) -> None:
        self.process = Process()
        """Its own connectors and stores: many may not be used on two threads."""
        self._work: Queue[Callable[[], object]] = Queue(MOST_WAITING)
        self._lock = Lock()
        self._is_running = False

    def do(self, work: Callable[[], object]) -> None:
        """Do ``work`` after what waits; where it fails, that is logged."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                Thread(target=self._run_queued_refreshes, name="lookup_hints background", daemon=True).start()
        try:
            self._work.put_nowait(work)
        except Full:
            _log.info("Rows that are too old are not fetched again now: too many are due.")

    def wait(self) -> None:
        self._work.join()

    def _run_queued_refreshes(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                _log.info("Rows that are too old were not fetched again: %s", type(error).__name__)
            finally:
                self._work.task_done()
