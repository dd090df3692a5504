"""How counts of the workers reach the driver, and what it keeps of them."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.records import Plain, TaskRecord, TaskRun
from lookup_hints.spark.task import task_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEMBERED_TASKS = 20_000
"""This many of the last tasks are remembered: Spark repeats a task soon, or not at all."""

REMEMBERED_BATCHES = 1_000
"""This many of the last micro-batches are remembered, of all streaming queries together."""

Batch = tuple[str, int]
"""A micro-batch: the id of its streaming query, and its number."""

_log = logging.getLogger("lookup_hints")


class Counts:
    """What the lookups of one application counted. A task that Spark repeats counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, LookupMetrics] = {}
        self._batches: OrderedDict[Batch, dict[str, LookupMetrics]] = OrderedDict()
        self._tasks: OrderedDict[tuple[str, int, int], _Known] = OrderedDict()
        self._running: dict[tuple[str, int], tuple[LookupMetrics, int]] = {}

    @property
    def totals(self) -> Mapping[str, LookupMetrics]:
        """The sum of all tasks so far, by function."""
        with self._lock:
            return dict(self._totals)

    def of_batch(self, query: str, batch: int) -> Mapping[str, LookupMetrics]:
        """The sum of one micro-batch of a streaming query, by function; empty where nothing is remembered."""
        with self._lock:
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
    """What is known of a task: which of its runs was counted, and how many others there were."""

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


Send = Callable[[list[Plain]], None]
"""Hands plain records of one task to the driver; pickled with each function."""


class Reporter:
    """Reports what a lookup counted in the task that runs; pickled into its function."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def __call__(self, function: str, counts: LookupMetrics) -> None:
        """Send the counts of ``function``, with the task that they are of."""
        run = task_run()
        if run is not None:
            self._send([TaskRecord(function, run, counts).plain()])


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
