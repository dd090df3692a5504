"""Statements over lookups on one executor: Spark runs their tasks, kills some, runs some twice; then all is checked."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_hints.errors import AnswerError, ConnectorError, TooManyRequests
from lookup_hints.limits.rate_and_retry_budget import BUNCH_SECONDS
from lookup_hints.limits.task_permits import _SPARE_SECONDS
from lookup_hints.lookup_spec import (
    Budget,
    DeadLetters,
    FullCache,
    Invalidation,
    LookupName,
    LookupSettings,
    LookupSpec,
    PartialCache,
    PeriodicReload,
    Switch,
)
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.retry import ExponentialDelay, FixedDelay, RetryPolicy
from lookup_hints.spi import OrderCondition
from lookup_hints.worker.arrow_worker import look_up
from tests.simulation.closer_checks import (
    check_ages,
    check_breaker,
    check_cache_answers,
    check_cache_is_used,
    check_delays,
    check_permits_in_use,
    check_reloads,
    check_waits,
    is_in_time,
    is_undisturbed,
    newest_read,
    remembered,
)
from tests.simulation.files import Disk, SimulatedPath
from tests.simulation.seams import set_sizes
from tests.simulation.source import FAULTS, LENGTH, QUICK, Ask, Found, RowConnector, Source, SourceConnector
from tests.simulation.streams import Streams
from tests.simulation.world import Broken, SimulatedProcess, SimulatedThread, World, this_thread

Row = list[tuple[int, int]] | None

LONGEST_OUTAGE = 75.0
"""After so many seconds a source that is well is asked again, whatever it has done before."""

_NEAREST = tuple(OrderCondition("value", operator) for operator in (">=", ">", "<=", "<"))
_RANGE = OrderCondition("value", until="until")

SMALL_FROM, BRIEF_FROM = 10**9, 2 * 10**9
"""From the first of these seeds on most worlds are small; from the second on most have one statement."""

ATTEMPTS = 4
"""Spark tries a task so often."""


@dataclass(frozen=True)
class Amounts:
    """How much happens in the worlds of some seeds.

    Args:
        stormy: how probable it is that many requests meet a source that is down again and again.
        churning: how probable it is, where it is not stormy, that answers come, go and are merged again and again, while
            those before them may still be used.
        deep: how probable it is that there may be more than two statements, and more tasks.
        statements: of which one is how many statements a world has that is not deep.
        settled: how probable it is that such a world goes on until all is well.
    """

    stormy: float
    churning: float
    deep: float
    statements: tuple[int, ...] = ()
    settled: float = 1.0


_AMOUNTS = {
    BRIEF_FROM: Amounts(0.01, 0.01, 0.02, (1, 1, 1, 1, 2), 0.1),
    SMALL_FROM: Amounts(0.05, 0.03, 0.08, (1, 1, 2), 0.3),
    0: Amounts(0.1, 0.1, 1.0),
}
"""By the first of the seeds, which stay the same runs for good."""


@dataclass
class TaskContext:
    """What Spark tells of a task."""

    statement: int
    partition: int
    attempt: int
    number: int
    batch: tuple[str, int, int] | None = None
    """The id of the streaming query, the number of its batch, and which run of the query this is."""

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 (Spark's name)
        properties = {"spark.sql.execution.id": str(self.statement)}
        if self.batch is not None:
            query, batch, run = self.batch
            properties |= {
                "spark.jobGroup.id": f"run-{run}-of-{query}",
                "sql.streaming.queryId": query,
                "streaming.sql.batchId": str(batch),
            }
        return properties.get(name)

    def stageId(self) -> int:  # noqa: N802
        return self.statement

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.number


@dataclass(eq=False)
class Attempt:
    """One run of a task, and what came of it.

    Args:
        keys: of its rows; None is NULL.
        started: when it began.
        invalidated: when each key had been invalidated last.
    """

    keys: list[int | None]
    started: float
    context: TaskContext
    invalidated: dict[int | None, float]
    ended: float = inf
    thread: SimulatedThread | None = None
    read: list[float] = field(default_factory=list)
    """When each of its rows was taken."""
    rows: list[Row] = field(default_factory=list)
    error: Exception | None = None
    is_done: bool = False
    """Whether all its rows came out."""
    is_cut: bool = False
    """Whether Spark wanted no more of them."""
    is_taken: bool = False
    """Whether Spark took them."""
    may_fail: bool = True
    """Whether anything may still have gone wrong."""
    counts: LookupMetrics | None = None


class Job:
    """The statements of one run, over one lookup with one set of options, which has its files in ``folder``."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        world.folder = str(folder)
        self.random = world.random
        world.disk = Disk(world)  # type: ignore[attr-defined]
        self.disk: Disk = world.disk  # type: ignore[attr-defined]
        self._numbers = count(1)
        self.amounts = next(amounts for first, amounts in _AMOUNTS.items() if world.seed >= first)
        self.is_stormy = world.chance(self.amounts.stormy)
        self.is_churning = not self.is_stormy and world.chance(self.amounts.churning)
        # Where all are deep nothing is drawn: the oldest seeds stay the same runs.
        self.is_deep = self.amounts.deep == 1.0 or self.is_churning or world.chance(self.amounts.deep)
        self.keys = self.random.choice((2, 5) if self.is_churning else (2, 5, 12))
        self.source = Source(
            world,
            self.keys,
            changes=2.0 if self.is_churning else self.random.choice((0.5, 20.0, 1e9)),
            late=self.random.choice((0.0, 0.3)),
            has_null=self.world.chance(0.15),
        )
        self.twice = self.random.choice((0.0, 0.0, 0.0, 0.4))
        """How probable it is that Spark runs a task twice at once, as with `spark.speculation`."""
        self.spec = self._choose_spec()
        self.limit = self.random.choice((1, 3, 8)) if self.spec.settings.stops_early else None
        """So many rows of a task are wanted."""
        self.workers: list[SimulatedProcess] = []
        self.executor = folder / "executor"
        """The folder of the executor that runs what comes."""
        self.statements = 0
        self.most_workers = self.random.choice((1, 2, 3))
        self.attempts: list[Attempt] = []
        self.streaming = self.random.choice((0.0, 0.0, 0.0, 0.7))
        """How probable it is that a statement is a stream."""
        self.streams: list[Streams] = []
        self.stream_numbers = count(1)
        self.invalidated: dict[int | None, float] = {}
        self.is_machine_reset = self.has_strange_files = False
        self.reset_at = -inf
        self.invalidates = self.random.choice((0.0, 0.2, 0.8))
        self.kills = self.random.choice((0.0, 0.0, 0.3))
        self.sizes = self._choose_sizes()

    # What is chosen.

    def _choose_spec(self) -> LookupSpec:
        choice, chance = self.random.choice, self.world.chance
        by_row = chance(0.2)
        kind = RowConnector if by_row else SourceConnector
        connector = kind(self.source, choice(("", "the origin", "the origin")))
        on_error = choice(("fail", "null", "skip"))
        settings = LookupSettings(
            asynchronous=by_row or chance(0.7),
            capacity=choice((1, 2, 5)),
            timeout=choice((0.5, 5.0, 20.0)),
            ordered=chance(0.5),
            batch_size=choice((1, 2, 5)),
            on_error=on_error,
            retry=self._choose_retry(),
            budget=self._choose_budget(),
            dead_letters=self._choose_letters() if on_error != "fail" else None,
            max_errors=choice((None, None, 3)),
            max_error_ratio=choice((None, None, 0.5)),
            stops_early=chance(0.1),
            **self._choose_cache(),
        )
        if self.is_stormy:
            retried = FixedDelay(3, 1.0).if_exception()
            on_error = choice(("null", "skip"))
            settings = replace(
                settings, capacity=5, timeout=20.0, batch_size=1, on_error=on_error, retry=retried
            )
            connector = kind(self.source, "the origin")
        name = LookupName(table="people", function="lookup_1")
        order = choice((None, None, None, None, _RANGE, choice(_NEAREST)))
        null_safe = ("id",) if self.source.has_null else ()
        return LookupSpec(
            connector, ("id",), ("id", "value"), settings, name, order=order, null_safe=null_safe
        )

    def _choose_sizes(self) -> dict[str, int]:
        """How much a task may hold, how many rows it reads at once, and how soon a cache merges, or a breaker opens."""
        choice = self.random.choice
        wide = choice((1, 50, 10**6, 10**6))
        return {
            "BUFFER_BYTES": choice((1, 400, 10**6, 10**6)),
            "ROWS_BYTES": choice((1, 60, 200, 10**6, 10**6)),
            "ANSWER_BYTES": choice((1, 60, 10**6, 10**6)),
            "WINDOW_BYTES": wide,
            "HAND_OUT_BYTES": max(1, wide // 2),
            "FIRST_ROWS": choice((1, 3, 1024)),
            "MOST_SEGMENTS": 2 if self.is_churning else choice((2, 2, 16)),
            "_FEWEST": 4 if self.is_stormy else choice((4, 20)),
        }

    def _choose_retry(self) -> RetryPolicy:
        attempts = self.random.choice((1, 2, 3))
        strategy = self.random.choice(
            (FixedDelay(attempts, 1.0), ExponentialDelay(attempts, 0.2, maximum=3.0, jitter=0.2))
        )
        policy = RetryPolicy()
        if self.world.chance(0.4):
            policy = strategy.if_miss()
        if self.world.chance(0.6):
            policy = strategy.if_exception() if policy == RetryPolicy() else policy.if_exception()
        return policy

    def _choose_budget(self) -> Budget:
        choice, chance = self.random.choice, self.world.chance
        concurrency = choice((1, 2, 4)) if chance(0.3) else None
        rate = choice((2.0, 20.0)) if chance(0.3) else None
        return Budget(
            concurrency=concurrency,
            rate=rate,
            task_concurrency=concurrency,
            task_rate=rate,
            max_requests=choice((3, 30)) if chance(0.1) else None,
            on_open=choice(("wait", "fail")),
        )

    def _choose_letters(self) -> DeadLetters | None:
        if self.world.chance(0.4):
            return None
        return DeadLetters(str(self.folder / "letters"), "json", "application-1", copies=self.twice > 0)

    def _choose_cache(self) -> dict[str, Any]:
        choice, chance = self.random.choice, self.world.chance
        if self.is_churning:
            while_asking, on_error = choice(((30.0, 0.0), (0.0, 100.0), (0.0, 0.0)))
            return {
                "cache": PartialCache(
                    choice((2.0, 2.0, 60.0)),
                    missing_ttl=1.0,
                    stale_while_revalidate=while_asking,
                    stale_if_error=on_error,
                )
            }
        kind = choice(("none", "none", "partial", "partial", "partial", "full", "switch"))
        if kind == "partial":
            cache = PartialCache(
                choice((2.0, 60.0)),
                expire_after_access=choice((None, None, None, 1.0)),
                missing_ttl=choice((None, 1.0, 30.0)),
                max_rows=choice((None, None, 3)),
                max_bytes=choice((None, None, 20_000)),
                stale_while_revalidate=choice((0.0, 0.0, 30.0)),
                stale_if_error=choice((0.0, 0.0, 100.0)),
            )
            return {"cache": cache}
        if kind == "full":
            return {
                "whole": FullCache(PeriodicReload(choice((1.0, 60.0)), chance(0.5)), keeps_old=chance(0.5))
            }
        return {"switch": Switch(choice((2, 8)))} if kind == "switch" else {}

    # What happens.

    def run(self) -> None:
        """Run some statements; called on a thread of the driver.

        Raises:
            Broken: something does not hold.
        """
        set_sizes(self.sizes)
        self._choose_faults()
        told = (
            self.spec.settings,
            self.sizes,
            self.source.faults,
            f"latency {self.source.latency}",
            self.disk,
        )
        self.world.setting = "\n".join(map(str, told))
        several = (1, 2, 2, 3, 5) if self.is_deep else self.amounts.statements
        most = 10 if self.is_churning else self.random.choice(several)
        for number in range(1, 1 + most):
            self._prepare(number)
            if self.world.chance(self.streaming):
                self.streams.append(Streams(self))
                self.streams[-1].run()
            else:
                self._run_statement()
        self._settle()
        if self.is_deep or self.world.chance(self.amounts.settled):
            self._run_when_all_is_well()
            self._run_when_source_is_gone()
            self._settle()
        self._check_all()

    def _choose_faults(self) -> None:
        random = self.random
        if random.random() < 0.7:
            chosen = random.sample(FAULTS, random.choice((1, 2, 4)))
            self.source.faults = {fault: random.choice((0.05, 0.3)) for fault in chosen}
        if self.is_stormy or random.random() < 0.1:
            self.source.down = list(self._choose_outages())
        self.source.latency = random.choice((0.0, 0.05, 0.3))
        if random.random() < 0.3:
            self.disk.failing = random.choice((0.02, 0.2))
        self.disk.short_writes = random.random() < 0.2
        self.disk.busy = random.choice((0.0, 0.0, 0.2))
        self.disk.turns = random.choice((0.0, 0.3))
        self.world.stalls = random.random() < 0.2

    def _choose_outages(self) -> Iterator[tuple[float, float]]:
        """A long one, or several short ones, one soon after the other."""
        choice, at = self.random.choice, self.world.now
        lengths = (0.2, 3.0, 8.0) if self.is_stormy else (3.0, 40.0)
        for _ in range(20 if self.is_stormy else choice((1, 3))):
            at += choice((0.2, 0.5, 2.0))
            yield at, (at := at + choice(lengths))

    def _prepare(self, number: int) -> None:
        """What comes between two statements."""
        random = self.random
        if number > 1:
            pauses = (0.0, 0.3, 1.2, 2.5) if self.is_churning else (0.0, 1.5, 20.0, 90.0)
            this_thread().sleep(random.choice(pauses))
            if random.random() < self.invalidates:
                self._invalidate(number)
            if random.random() < (0.3 if self.is_churning else 0.15):
                self._reset_machine()
            if random.random() < 0.1:
                self._change_executor()
            if random.random() < 0.1:
                self._leave_strange_files()

    def _invalidate(self, number: int) -> None:
        settings, random = self.spec.settings, self.random
        keys = random.sample(range(self.keys), 1) if random.random() < 0.7 else None
        for key in (*range(self.keys), None) if keys is None else keys:
            self.invalidated[key] = self.world.now
        told = Invalidation(
            "5e55",
            len(settings.invalidations) + 1,
            ("id",) if keys else (),
            tuple((key,) for key in keys or ()),
        )
        self.world.tell(f"invalidated: {'all' if keys is None else keys}")
        self.spec = replace(
            self.spec, settings=replace(settings, invalidations=(*settings.invalidations, told))
        )

    def _reset_machine(self) -> None:
        for worker in self.workers:
            self.world.kill(worker)
        self.is_machine_reset, self.reset_at = True, self.world.now
        self.disk.crash(self.executor)

    def _change_executor(self) -> None:
        """Let another executor run what comes: a new one, or one that comes back with its processes and files."""
        self.is_machine_reset, self.reset_at = True, self.world.now
        self.executor = self.folder / self.random.choice(("executor", "executor2", "executor3"))
        self.world.tell(f"{self.executor.name} runs what comes")

    def _leave_strange_files(self) -> None:
        """Another version, or somebody else, leaves files in all folders."""
        self.has_strange_files = True
        for folder in [each for each in sorted(self.executor.rglob("*")) if each.is_dir()]:
            for name in (
                "000000000007.1.abc.segment",
                "x.tmp",
                "00000009.1.2.1.1.generation",
                "note",
                "5e55.99x.taken",
            ):
                if self.random.random() < 0.3 and not (folder / name).exists():
                    (folder / name).write_bytes(b"something else")

    def _worker(self) -> SimulatedProcess:
        """A process of the executor that lives."""
        self.workers = [each for each in self.workers if not each.is_dead]
        here = [each for each in self.workers if each.folder == self.executor]
        if len(here) < self.most_workers and (not here or self.world.chance(0.5)):
            worker = self.world.start_process()
            worker.folder = SimulatedPath(self.executor)
            if self.world.chance(self.kills):
                worker.dies_after = self.random.choice((3, 20, 60, 150))
            self.workers.append(worker)
            here.append(worker)
        return self.random.choice(here)

    def next_statement(self) -> int:
        """The id of an execution that begins."""
        self.statements += 1
        return self.statements

    def _run_statement(self) -> None:
        number = self.next_statement()
        self.world.tell(f"statement {number}")
        partitions = [self.choose_rows() for _ in range(self.choose_partitions())]
        runs = [
            SimulatedThread(self.world.driver, partial(self.run_task, number, p, rows), f"task {p}")
            for p, rows in enumerate(partitions)
        ]
        for run in runs:
            run.join()
            if run.error is not None and not isinstance(run.error, TaskFailed):
                raise run.error

    def choose_partitions(self) -> int:
        return self.random.choice((1, 1, 2) if self.is_deep else (1, 1, 1, 2))

    def choose_rows(self) -> list[int | None]:
        most = 12 if self.is_stormy else self.random.choice((1, 4, 12))
        nothing = [None] * (3 if self.source.has_null else 1)
        return [
            self.random.choice((*nothing, *range(self.keys))) for _ in range(self.random.randrange(most + 1))
        ]

    def run_task(
        self,
        statement: int,
        partition: int,
        keys: list[int | None],
        batch: tuple[str, int, int] | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Attempt:
        """Run a task until an attempt is done, as Spark does.

        Raises:
            TaskFailed: it has failed too often, or is cancelled.
        """
        for number in range(ATTEMPTS):
            copies = 2 if self.world.chance(self.twice) else 1
            attempts = [
                self._start(TaskContext(statement, partition, number, next(self._numbers), batch), keys)
                for _ in range(copies)
            ]
            me = this_thread()
            for each in attempts:
                assert each.thread is not None
                each.thread._ends.append(me.wake)
            me.wait_until(lambda: is_cancelled() or _is_decided(attempts))  # noqa: B023 (at once)
            done = next((each for each in attempts if each.is_done), None)
            if done is not None or is_cancelled():
                for each in attempts:
                    if not _is_over(each) and each.thread is not None and self.world.chance(0.5):
                        self.world.kill(each.thread.process)  # as Spark does with the copy that is late
            if is_cancelled():
                break
            if done is not None:
                done.is_taken = True
                return done
        raise TaskFailed(statement, partition) from attempts[-1].error

    def _start(self, context: TaskContext, keys: list[int | None]) -> Attempt:
        worker = self._worker()
        attempt = Attempt(keys, self.world.now, context, {**self.invalidated})
        self.attempts.append(attempt)
        self.world.tell(
            f"process {worker.number} begins task {context.partition} of statement {context.statement}"
            f" (run {context.number}): {keys}"
        )
        attempt.thread = SimulatedThread(worker, lambda: self._run_attempt(attempt), f"run {context.number}")
        attempt.thread.task = context
        return attempt

    def _run_attempt(self, attempt: Attempt) -> None:
        """A task as PySpark's worker runs it."""
        attempt.started = self.world.now

        def report(_: str, counts: LookupMetrics) -> None:
            attempt.counts = counts

        try:
            results: Any = look_up(self.spec, "people", self._batches(attempt), report)
            with closing(results):
                for lists in results:
                    attempt.rows += [_plain(row) for row in lists.to_pylist()]
                    this_thread().process.work()
                    if self.limit is not None and len(attempt.rows) >= self.limit:
                        self._cut_off(attempt)
                        break
            attempt.is_done = True
            self.world.tell(f"run {attempt.context.number} is done: {attempt.rows}")
        except Exception as error:
            attempt.error = error
            self.world.tell(f"run {attempt.context.number} fails: {error!r}")
        finally:
            attempt.ended = self.world.now

    def _cut_off(self, attempt: Attempt) -> None:
        """Want no more rows, as LIMIT does; Spark may end the process without notice."""
        attempt.is_cut = True
        self.world.tell(f"run {attempt.context.number} is cut off: {attempt.rows}")
        if self.world.chance(0.3):
            attempt.is_done = True
            self.world.kill(this_thread().process)
            this_thread().process.work()

    def _batches(self, attempt: Attempt) -> Iterator[Sequence[pa.Array]]:
        start, world, keys = 0, self.world, attempt.keys
        while start < len(keys):
            size = self.random.choice((1, 3, 8))
            if not world.is_well and world.chance(0.1):
                this_thread().sleep(self.random.choice((0.01, 2.0)))
            rows = pa.array(keys[start : start + size], pa.int64())
            attempt.read += [world.now] * len(rows)
            if self.spec.order is None:
                yield (rows,)
            else:
                values = [self.compared_value(keys, at) for at in range(start, start + len(rows))]
                yield rows, pa.array(values, pa.int64())
            start += size

    def compared_value(self, keys: list[int | None], position: int) -> int | None:
        """What the row at ``position`` compares with the values of its key."""
        if position % 7 == 6:
            return None
        return self.source.first_value(keys[position]) + position * position * 5 % 23 - 1

    def _settle(self) -> None:
        """Wait for copies that are late, and until what is given back later is given back."""
        for attempt in self.attempts:
            if attempt.thread is not None:
                attempt.thread.join()
        while any(
            queue.unfinished for each in self.workers if not each.is_dead for queue in each.queues
        ) or any(each.until == inf and not each.process.is_dead for each in self.source.asked):
            this_thread().sleep(1.0)
        this_thread().sleep(1.0)

    def _run_when_all_is_well(self) -> None:
        """Ask for all keys once more: what has gone wrong before has left nothing behind.

        Raises:
            Broken: the task fails, or waits for what nobody holds.
        """
        settings, source, world = self.spec.settings, self.source, self.world
        if settings.retry.on_miss or settings.budget.max_requests is not None:
            return  # there keys may run out of time, and statements out of requests
        world.is_well, self.kills, self.twice = True, 0.0, 0.0
        for worker in self.workers:
            worker.dies_after = None
        world.tell("all is well")
        may_be_shut = source.failures or not all(map(is_in_time, source.asked))
        may_wait = may_be_shut or self.disk.failing or self.is_machine_reset
        if may_wait:
            this_thread().sleep(LONGEST_OUTAGE)
            with suppress(TaskFailed):
                self._ask_for_all()
            this_thread().sleep(5.0)
        began = world.now
        try:
            self._ask_for_all().may_fail = False
        except TaskFailed as error:
            raise Broken(f"a task fails when all is well: {error.__cause__!r}") from error
        rate = settings.budget.rate
        longest = 3.0 + (self.keys + 1) * (2 * QUICK + (1 / rate if rate else 0.0))
        if not may_wait and world.now - began > longest:
            raise Broken(
                f"a task takes {world.now - began:.3f} s when all is well, and may take {longest:.3f} s"
            )

    def _run_when_source_is_gone(self) -> None:
        """Ask for all keys a last time where cached rows may take the place of answers."""
        cache = self.spec.settings.cache
        if cache is not None and cache.stale_if_error:
            this_thread().sleep(self.random.choice((0.0, 3.0, 61.0)))
            self.world.is_gone = True
            self.world.tell("the source is gone")
            with suppress(TaskFailed):
                self._ask_for_all()

    def _ask_for_all(self) -> Attempt:
        return self.run_task(self.next_statement(), 0, list(range(self.keys)))

    # What must hold.

    def _check_all(self) -> None:
        for attempt in self.attempts:
            self._check_attempt(attempt)
        for streams in self.streams:
            streams.check()
        self._check_requests()
        for check in (check_delays, check_breaker, check_reloads, check_permits_in_use, check_waits):
            check(self)
        check_cache_is_used(self)
        check_cache_answers(self)
        check_ages(self)
        self._check_permits()
        self._check_letters()

    def _check_attempt(self, attempt: Attempt) -> None:
        context = attempt.context
        where = f"run {context.number} (task {context.partition} of statement {context.statement})"
        thread = attempt.thread
        if thread is not None and thread.error is not None:
            raise Broken(f"{where} ended with {thread.error!r}") from thread.error
        is_whole = attempt.is_done and not attempt.is_cut
        if len(attempt.rows) > len(attempt.keys) or (is_whole and len(attempt.rows) < len(attempt.keys)):
            raise Broken(f"{where} has {len(attempt.rows)} rows for {len(attempt.keys)}")
        for position in range(len(attempt.rows)):
            self._check_row(where, attempt, position)
        if attempt.error is not None:
            self._check_error(where, attempt, attempt.error)
        if is_whole:
            self._check_counts(where, attempt)

    def _check_error(self, where: str, attempt: Attempt, error: Exception) -> None:
        """It is one of the source, names the table, and has a reason."""
        settings = self.spec.settings
        is_of_source = isinstance(error, ConnectorError | TooManyRequests) and not isinstance(
            error, AnswerError
        )
        if not is_of_source or "table people" not in str(error):
            raise Broken(f"{where} fails with {error!r}") from error
        is_out_of_requests = settings.budget.max_requests is not None and isinstance(error, TooManyRequests)
        is_unwritten = settings.dead_letters is not None and self.disk.failing
        if is_out_of_requests or is_unwritten:
            return
        keys = [key for key in attempt.keys if key is not None or self.source.has_null]
        if not any(self._has_failed(attempt, key) for key in keys):
            raise Broken(f"{where} fails, and nothing has failed: {error!r}") from error

    def _check_row(self, where: str, attempt: Attempt, position: int) -> None:
        settings, key, row = self.spec.settings, attempt.keys[position], attempt.rows[position]
        if key is None and not self.source.has_null:
            if row != []:
                raise Broken(f"{where}: NULL found {row}")
            return
        may_fail = self._has_failed(attempt, key)
        if row is None:
            if settings.on_error != "skip" or not may_fail:
                raise Broken(f"{where}: the row of {key} was dropped, and nothing failed")
            return
        if any(each != key for each, _ in row):
            raise Broken(f"{where}: {key} found rows of another key: {row}")
        found = tuple(sorted(value for _, value in row))
        order = self.spec.order
        since = self._oldest(attempt, key, attempt.read[position], bool(found))
        allowed = self.source.rows_between(key, since, attempt.ended)
        if isinstance(order, OrderCondition):
            value = self.compared_value(attempt.keys, position)
            allowed = {_compared(rows, order, value) for rows in allowed}
        if found in allowed or (not found and settings.on_error == "null" and may_fail):
            return
        raise Broken(
            f"{where}: {key} found {found}, and from {since - 10_000:.6f} to {attempt.ended - 10_000:.6f} it had"
            f" {allowed}"
        )

    def _oldest(self, attempt: Attempt, key: int | None, read: float, is_found: bool) -> float:
        """The first moment whose rows may have come out, for a row that was ``read`` then."""
        settings, cache = self.spec.settings, self.spec.settings.cache
        invalidated = attempt.invalidated.get(key, -inf)
        if settings.whole is not None:
            newest = newest_read(self, attempt) if is_undisturbed(self) else None
            return max(invalidated, -inf if newest is None else newest[0])
        if settings.switch is not None:
            return self._begin_of(attempt.context.statement)
        if cache is None:
            return read
        stale = max(cache.stale_if_error, cache.stale_while_revalidate)
        of_rows, of_misses = cache.expire_after_write + stale, cache.missing_ttl or 0.0
        age = of_rows if is_found else of_misses if self.spec.order is None else max(of_rows, of_misses)
        known = remembered(self, attempt, key)
        return max(read - age, invalidated, -inf if known is None else known.at)

    def _begin_of(self, statement: int) -> float:
        return min(each.started for each in self.attempts if each.context.statement == statement)

    def asks_of(self, attempt: Attempt) -> list[Ask]:
        return [each for each in self.source.asked if each.thread is attempt.thread]

    def _has_failed(self, attempt: Attempt, key: int | None) -> bool:
        """Whether the lookup of ``key`` may have failed: a request failed, was late, or got no permit."""
        settings = self.spec.settings
        if not attempt.may_fail:
            return False
        asks = [each for each in self.asks_of(attempt) if key in each.keys]
        if any(each.outcomes.get(key) is None for each in asks):
            return True
        is_bounded = settings.budget.is_limited or bool(self.source.failures) or self.disk.busy > 0
        is_slow = settings.timeout <= 5.0 or not self.source.faults.keys().isdisjoint(("hang", "slow"))
        return is_bounded or self.world.stalls or is_slow

    def _check_counts(self, where: str, attempt: Attempt) -> None:
        counts = attempt.counts
        if counts is None:
            raise Broken(f"{where} has no counts")
        if counts.keys != counts.hits + counts.misses + counts.skipped or counts.rows_in != len(attempt.keys):
            raise Broken(f"{where} counts {counts}")
        told = Counter(kind for thread, kind in self.world.events if thread is attempt.thread)
        if any(times > 1 for times in told.values()):
            raise Broken(f"{where} told an event twice: {told}")

    def _check_requests(self) -> None:
        settings, asked = self.spec.settings, self.source.asked
        strategy = settings.retry.strategy
        most = 1 + (getattr(strategy, "max_attempts", 0) if strategy is not None else 0)
        for each in asked:
            has_null = None in each.keys and not self.source.has_null
            if len(each.keys) != len(set(each.keys)) or not each.keys or has_null:
                raise Broken(f"a request asks for {each.keys}")
            if each.attempt > most:
                raise Broken(f"{each.keys} were asked {each.attempt} times, and may be {most} times")
            if len(each.keys) > settings.batch_size:
                raise Broken(f"a request has {len(each.keys)} keys, and may have {settings.batch_size}")
        self._check_misses(most)
        self._check_budget()

    def _check_misses(self, most: int) -> None:
        """A miss that is to be tried again was tried as often as it may be."""
        settings = self.spec.settings
        if not settings.retry.on_miss or settings.retry.on_exception or settings.whole or settings.switch:
            return
        if self.spec.order is not None:
            return  # a key that was found may have no row that is near
        for attempt in self.attempts:
            asks = self.asks_of(attempt)
            for key, row in zip(attempt.keys, attempt.rows, strict=False):
                if key is None or row != []:
                    continue
                times = sum(key in each.keys for each in asks)
                if times < most and not self._has_failed(attempt, key):
                    raise Broken(
                        f"run {attempt.context.number}: {key} was asked {times} times, and not {most} times"
                    )

    def _check_budget(self) -> None:
        budget, asked = self.spec.settings.budget, self.source.asked
        if self.disk.failing or self.is_machine_reset:
            return  # each process may have limits of its own
        if budget.concurrency is not None:
            # A permit that its task has not given back, as a call hangs, comes back by itself.
            longest = self.spec.settings.timeout + _SPARE_SECONDS
            ends = [min(each.until, each.process.died_at, each.at + longest) for each in asked]
            moments = sorted([*((each.at, 1) for each in asked), *((end, -1) for end in ends)])
            at_once = 0
            for _, change in moments:
                at_once += change
                if at_once > budget.concurrency:
                    raise Broken(f"{at_once} requests at once, and there may be {budget.concurrency}")
        if budget.rate is not None and not self.world.stalls:
            times = sorted(each.at for each in asked)
            most = budget.rate * (1.0 + BUNCH_SECONDS) + 1.001
            for first, at in enumerate(times):
                within = sum(at <= each < at + 1.0 for each in times[first:])
                if within > most:
                    raise Broken(f"{within} requests in a second, and there may be {budget.rate:g}")
        if budget.max_requests is not None:
            statements = Counter(
                None if each.thread is None or each.thread.task is None else each.thread.task.statement
                for each in asked
            )
            beside = statements.pop(None, 0)  # of which statement a refresh is, the source cannot see
            if any(requests > budget.max_requests for requests in statements.values()):
                raise Broken(f"statements sent {dict(statements)} requests of {budget.max_requests} each")
            if beside + sum(statements.values()) > budget.max_requests * self.statements:
                raise Broken(f"{len(asked)} requests were sent, and {beside} of them to refresh rows")

    def _check_permits(self) -> None:
        """Nobody who lives holds a permit when all is over."""
        from lookup_hints.limits.shared_limits import LimitStores

        for worker in self.workers:
            if worker.is_dead:
                continue
            for store in worker.here.the(LimitStores)._opened.values():
                for lease in store.limits.leases._used_leases():
                    if lease.held and self.world.is_alive(int(lease.owner)):
                        raise Broken(
                            f"process {lease.owner:g} still holds {lease.held:g} permits (lease {lease.ticket:g})"
                        )

    def _check_letters(self) -> None:
        """Each key that a task gave up has its letter; a run that did not come to its end has none."""
        wanted = self.spec.settings.dead_letters
        if wanted is None:
            return
        written = _letters_in(Path(wanted.folder))
        tasks: dict[tuple[str, int], list[Attempt]] = defaultdict(list)
        for each in self.attempts:
            tasks[self._run_of(each.context), each.context.partition].append(each)
        for task, attempts in tasks.items():
            letters = written.pop(task, {})
            ended = {each.context.number: each for each in attempts if len(each.rows) == len(each.keys)}
            for number, keys in letters.items():
                if number not in ended or not self._may_have_written(ended[number], keys):
                    raise Broken(
                        f"run {number} of task {task} left letters of {keys}, and dropped other keys"
                    )
                if _is_repeated(ended[number], attempts):
                    raise Broken(f"run {number} of {task} has letters of {keys}, and its batch ran again")
            for each in attempts:
                # A batch that runs again has not been committed: what its letters are is not decided.
                is_whole = each.is_taken and not each.is_cut and not _is_repeated(each, attempts)
                if is_whole and not self._may_have_written(each, letters.get(each.context.number, [])):
                    raise Broken(f"the rows of {each.context} were taken, and its letters are {letters}")
        if written:
            raise Broken(f"there are dead letters of no task: {written}")

    def _run_of(self, context: TaskContext) -> str:
        if context.batch is None:
            return f"run=application-1-{context.statement}"
        return "run={}-{}".format(*context.batch[:2])

    def _may_have_written(self, attempt: Attempt, letters: list[int]) -> bool:
        """Whether these are the keys that ``attempt`` gave up."""
        kept = None if attempt.counts is None or not attempt.is_done else attempt.counts.dead_letters
        if kept is not None and kept != len(letters):
            return False
        outcomes = defaultdict[int | None, list[Row]](list)
        for key, row in zip(attempt.keys, attempt.rows, strict=False):
            outcomes[key].append(row)
        if self.spec.settings.on_error == "skip":
            return {key for key, rows in outcomes.items() if None in rows} == set(letters)
        return set(letters) <= {key for key, rows in outcomes.items() if [] in rows}


def _letters_in(folder: Path) -> dict[tuple[str, int], dict[int, list[int]]]:
    """The keys of the dead letters of each run of each task."""
    found: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(dict)
    for path in folder.rglob("*.json"):
        if not path.name.startswith("_"):
            _, _, partition, _, number, _ = path.name.split("-")
            keys = [json.loads(json.loads(line)["key"])["id"] for line in path.read_text().splitlines()]
            found[path.parent.name, int(partition[1:])][int(number[1:])] = keys
    return found


class TaskFailed(Exception):
    """A task failed as often as Spark tries it."""


def _is_decided(attempts: Sequence[Attempt]) -> bool:
    """Whether one of them is done, or none will be."""
    return any(each.is_done for each in attempts) or all(map(_is_over, attempts))


def _is_repeated(attempt: Attempt, others: Sequence[Attempt]) -> bool:
    """Whether another run of its stream did the same batch again when ``attempt`` was over."""
    batch = attempt.context.batch
    return batch is not None and any(
        each.is_done and each.context.batch != batch and each.started > attempt.ended for each in others
    )


def _is_over(attempt: Attempt) -> bool:
    return attempt.thread is None or attempt.thread.is_over


def _compared(values: Found, order: OrderCondition, value: int | None) -> Found:
    """Which of ``values`` answer ``value``: the nearest on one side, or those whose range holds it."""
    if value is None:
        return ()
    if order.until is not None:
        return tuple(each for each in values if each <= value < each + LENGTH)
    is_right = {">=": value.__ge__, ">": value.__gt__, "<=": value.__le__, "<": value.__lt__}[order.operator]
    right = [each for each in values if is_right(each)]
    return (max(right) if order.operator in (">=", ">") else min(right),) if right else ()


def _plain(row: list[dict[str, Any]] | None) -> Row:
    return None if row is None else [(each["id"], each["value"]) for each in row]
