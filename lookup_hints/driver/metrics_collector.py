"""How counts of the workers reach the driver, and what it keeps of them."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, Any

from lookup_hints.metrics.lookup_metrics import LookupMetrics, Plain, TaskRecord, TaskRun
from lookup_hints.worker.process.running_task import PROPERTY, Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEMBERED_TASKS = 20_000
"""This many of the last tasks are remembered: Spark repeats a task soon, or not at all."""

REMEMBERED_BATCHES = 1_000
"""This many of the last micro-batches are remembered, of all streaming queries together."""

AWAITED = 2.0
"""So many seconds the counts of a micro-batch are waited for, where its query has counted before."""

AWAITED_OF_NEW_QUERY = 0.5
"""The same where it has not: it may have no lookup at all."""

_FOLLOWING = 0.05
"""Counts that come less than so many seconds after others belong to them: each task sends its own."""

Batch = tuple[str, int]
"""A micro-batch: the id of its streaming query, and its number."""

_LARGEST = 64 * 1024
"""No datagram is larger."""

_log = logging.getLogger("lookup_hints")


class Counts:
    """What the lookups of one application counted. A task that Spark repeats counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._totals: dict[str, LookupMetrics] = {}
        self._batches: OrderedDict[Batch, dict[str, LookupMetrics]] = OrderedDict()
        self._tasks: OrderedDict[tuple[str, int, int], _Known] = OrderedDict()
        self._running: dict[tuple[str, int], tuple[LookupMetrics, int]] = {}

    @property
    def totals(self) -> Mapping[str, LookupMetrics]:
        with self._lock:
            return dict(self._totals)

    def of_batch(self, query: str, batch: int) -> Mapping[str, LookupMetrics]:
        """The sum of one micro-batch of a streaming query, by function; empty where nothing is remembered."""
        with self._lock:
            return dict(self._batches.get((query, batch), {}))

    def awaited_of_batch(self, query: str, batch: int) -> Mapping[str, LookupMetrics]:
        """The same, where counts may still be on their way in another thread's response from the server."""
        with self._lock:
            is_known = any(each == query for each, _ in self._batches)
            patience = AWAITED if is_known else AWAITED_OF_NEW_QUERY
            deadline = time.monotonic() + patience
            if self._arrived.wait_for(lambda: (query, batch) in self._batches, patience):
                while time.monotonic() < deadline and self._arrived.wait(_FOLLOWING):
                    pass
            return dict(self._batches.get((query, batch), {}))

    @property
    def so_far(self) -> Mapping[str, tuple[LookupMetrics, int]]:
        """The sum of all tasks, those that run too, and the keys that wait for a retry, by function."""
        with self._lock:
            found = {function: (counts, 0) for function, counts in self._totals.items()}
            for (function, _), (counts, waiting) in self._running.items():
                before, waited = found.get(function, (LookupMetrics(), 0))
                found[function] = before + counts, waited + waiting
            return found

    def see(self, record: TaskRecord, waiting: int) -> None:
        """A task that runs has counted ``record`` so far, and this many of its keys wait for a retry."""
        run = record.run
        with self._lock:
            ended = self._tasks.get((record.function, run.stage, run.partition))
            if ended is None:
                self._running[record.function, run.number] = record.counts, waiting

    def forget_running(self) -> None:
        """Nobody tells of running tasks any more."""
        with self._lock:
            self._running.clear()

    def take(self, update: Sequence[Plain]) -> None:
        """Add what a task counted: a plain `TaskRecord` for each lookup in it."""
        for plain in update:
            record = TaskRecord.of(plain)
            with self._lock:
                self._running.pop((record.function, record.run.number), None)
                self._add(record.function, record.run.batch, self._new_in(record))
                self._arrived.notify_all()

    def _new_in(self, record: TaskRecord) -> LookupMetrics:
        """The record's counts, or only that a task was repeated."""
        run = record.run
        task = (record.function, run.stage, run.partition)
        known = self._tasks.setdefault(task, _Known(run.number))
        self._tasks.move_to_end(task)
        if len(self._tasks) > REMEMBERED_TASKS:
            self._tasks.popitem(last=False)
        counts = record.counts if run.number == known.counted else LookupMetrics()
        return counts + LookupMetrics(repeated_tasks=known.new_repeats(run))

    def _add(self, function: str, batch: Batch | None, counts: LookupMetrics) -> None:
        sums = [self._totals]
        if batch is not None:
            sums.append(self._batches.setdefault(batch, {}))
            if len(self._batches) > REMEMBERED_BATCHES:
                self._batches.popitem(last=False)
        for each in sums:
            each[function] = each.get(function, LookupMetrics()) + counts


class _Known:
    def __init__(self, counted: int) -> None:
        self.counted = counted
        self._others: set[int] = set()
        self._repeats = 0

    def new_repeats(self, run: TaskRun) -> int:
        """How many repeats ``run`` tells of that were not known: attempts that failed tell of nothing."""
        if run.number != self.counted:
            self._others.add(run.number)
        repeats = max(self._repeats, run.attempt, len(self._others))
        new, self._repeats = repeats - self._repeats, repeats
        return new


# --- when tasks end -------------------------------------------------------------------------------


def accumulating(spark: SparkSession, counts: Counts) -> Send:
    """A way to ``counts`` through an accumulator of classic Spark."""
    from pyspark.accumulators import AccumulatorParam

    # On the driver the value is `counts`, on a worker the records of one task.
    class Records(AccumulatorParam[Any]):
        def zero(self, value: Any) -> list[Plain]:
            return []

        def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802 (Spark's name)
            if isinstance(value1, list):
                return [*value1, *value2]
            value1.take(value2)
            return value1

    accumulator = spark.sparkContext.accumulator(counts, Records())

    def send(records: list[Plain]) -> None:
        accumulator.add(records)

    return send


# --- while they run -------------------------------------------------------------------------------


@contextmanager
def listening(spark: SparkSession, counts: Counts) -> Iterator[None]:
    """Let tasks of statements that this thread runs inside the block tell ``counts`` how far they are.

    For classic Spark: with Connect the driver is out of reach. Where no address can be had, nothing is told,
    and counts come when tasks end.
    """
    context = spark.sparkContext
    try:
        sock = _bound(_host(context))
    except OSError as error:
        _log.debug("no live counts: %s", error)
        yield
        return
    word = token_hex(8)
    before = context.getLocalProperty(PROPERTY)
    listener = threading.Thread(
        target=_listen, args=(sock, word, counts), name="lookup-live-counts", daemon=True
    )
    listener.start()
    host, port = sock.getsockname()[:2]
    context.setLocalProperty(PROPERTY, f"{host} {port} {word}")
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type]  # None takes it away
        _stop(sock)
        listener.join()
        counts.forget_running()


def _host(context: Any) -> str:
    if (context.master or "").startswith("local"):
        return "127.0.0.1"
    conf = context.getConf()
    return str(conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host") or "127.0.0.1")


def _bound(host: str) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _listen(sock: socket.socket, word: str, counts: Counts) -> None:
    with sock:
        while said := sock.recv(_LARGEST):
            told = _read(said, word)
            if told is not None:
                counts.see(*told)


def _stop(sock: socket.socket) -> None:
    with socket.socket(sock.family, socket.SOCK_DGRAM) as own:
        own.sendto(b"", sock.getsockname())


def _read(said: bytes, word: str) -> tuple[TaskRecord, int] | None:
    """The record in a datagram, and the keys that wait for a retry; None for what is not of ours."""
    try:
        told = json.loads(said)
        if not compare_digest(str(told["word"]), word):
            return None
        latency: Mapping[str, int] = told["record"]["counts"].get("latency", {})
        told["record"]["counts"]["latency"] = {int(bucket): count for bucket, count in latency.items()}
        return TaskRecord.of(told["record"]), int(told["waiting"])
    except Exception as error:
        _log.debug("a datagram that is not ours: %s", error)
        return None
