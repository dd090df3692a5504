"""Streaming queries under the library's supervisor: their batches fail, run again with the same number, and end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lookup_hints.streaming.restart_strategy import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from lookup_hints.streaming.supervisor import FULL, REGION, Status, Supervised, Supervisor
from tests.simulation.world import Broken, SimulatedThread, this_thread

if TYPE_CHECKING:
    from tests.simulation.jobs import Attempt, Job

Batch = list[list[int | None]]
"""The keys of each partition."""

_PATIENCE = 120.0
"""Seconds after which streams are stopped that have not ended."""

_TOLERANCE = 1e-6


class QueryFailed(Exception):
    """A streaming query failed outside of its tasks: its source, sink or checkpoint."""


class Stream:
    """A query from one checkpoint over all of its runs.

    Args:
        number: which of the job's it is.
        batches: all that its source will ever have.
        strategy: when it starts again.
        failing: how probable it is that its sink, or its next start, fails.
    """

    def __init__(
        self, job: Job, number: int, batches: list[Batch], strategy: RestartStrategy, failing: float
    ) -> None:
        self.job, self.id, self.batches = job, f"stream{number}", batches
        self.strategy, self.failing = strategy, failing
        self.committed = 0
        """So many batches are over for good."""
        self.sink: dict[int, list[Attempt]] = {}
        """What each batch wrote last: one attempt of each of its tasks."""
        self.running: SimulatedQuery | None = None
        self.tries: list[float] = []
        """When somebody tried to start it."""
        self.failures: list[tuple[float, Exception]] = []
        self.is_stopped = False
        """Whether its stop has returned."""
        self.problems: list[str] = []
        self.supervised: Supervised

    def start(self) -> SimulatedQuery:
        """Begin a run at the first batch that is not committed."""
        job = self.job
        job.world.tell(f"{self.id} starts at batch {self.committed}")
        if self.running is not None:
            self.problems.append("it was started while it ran")
        if self.is_stopped:
            self.problems.append("it was started after its stop")
        self.tries.append(job.world.now)
        if len(self.tries) > 1 and job.world.chance(self.failing):
            error = QueryFailed("the topic is not there")
            self.failures.append((job.world.now, error))
            raise error
        self.running = SimulatedQuery(self)
        return self.running

    def write(self, batch: int, taken: list[Attempt]) -> None:
        """As a sink that is asked for the same batch twice, and keeps it once.

        Raises:
            QueryFailed: before or after it was written.
        """
        chance = self.job.world.chance
        if chance(self.failing / 2):
            for each in taken:
                each.is_taken = False
            raise QueryFailed("the sink is not there")
        self.sink[batch] = taken
        if chance(self.failing / 2):
            raise QueryFailed("the checkpoint cannot be written")


class SimulatedQuery:
    """One run of a streaming query: the ``SparkQuery`` of the supervisor."""

    def __init__(self, stream: Stream) -> None:
        self.id, self._stream = stream.id, stream
        self._is_stopping = False
        self._error: Exception | None = None
        self._tasks: list[SimulatedThread] = []
        self._thread = SimulatedThread(stream.job.world.driver, self._run_batches, stream.id)

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's name)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return None

    def stop(self) -> None:
        self._is_stopping = True
        for task in self._tasks:
            task.wake()
        self._thread.join()

    def _run_batches(self) -> None:
        stream, world = self._stream, self._stream.job.world
        try:
            while not self._is_stopping and stream.committed < len(stream.batches):
                self._run_batch(stream.committed)
        except Exception as error:
            if not self._is_stopping:
                self._error = error
                stream.failures.append((world.now, error))
                world.tell(f"{stream.id} fails: {error!r}")
        finally:
            stream.running = None

    def _run_batch(self, batch: int) -> None:
        stream, job = self._stream, self._stream.job
        for each in stream.sink.get(batch, []):
            each.is_taken = False  # its letters go, as the batch runs again
        statement = job.next_statement()
        taken: dict[int, Attempt] = {}

        def run_task(partition: int, keys: list[int | None]) -> None:
            taken[partition] = job.run_task(
                statement, partition, keys, (stream.id, batch, len(stream.tries)), lambda: self._is_stopping
            )

        job.world.tell(f"{stream.id} runs batch {batch} as statement {statement}")
        parts = stream.batches[batch]
        self._tasks = [
            SimulatedThread(job.world.driver, partial(run_task, number, keys), f"{stream.id} task {number}")
            for number, keys in enumerate(parts)
        ]
        for task in self._tasks:
            task.join()
        failed = [task.error for task in self._tasks if task.error is not None]
        if failed or self._is_stopping:
            for each in taken.values():
                each.is_taken = False  # as the batch will run again
            if failed:
                raise failed[0]
            return
        stream.write(batch, [taken[number] for number in range(len(parts))])
        stream.committed += 1


class Streams:
    """The streaming queries of a job, under one supervisor."""

    def __init__(self, job: Job) -> None:
        self.job = job
        random = job.random
        strategies: tuple[Callable[[], RestartStrategy], ...] = (
            NoRestart,
            lambda: FixedDelayRestart(random.choice((0, 1, 3)), random.choice((0.0, 2.0))),
            lambda: FailureRateRestart(2, 10.0, random.choice((0.0, 1.0))),
            lambda: ExponentialDelayRestart(0.5, 4.0, 2.0, 20.0, 0.1, attempts=4),
        )
        strategy = random.choice(strategies)()
        self.failover = random.choice((REGION, REGION, FULL))
        failing = random.choice((0.0, 0.0, 0.3))
        self.streams = [
            Stream(job, next(job.stream_numbers), self._choose_batches(), strategy, failing)
            for _ in range(job.choose_partitions())
        ]

    def _choose_batches(self) -> list[Batch]:
        job = self.job
        batches = job.random.choice((1, 2, 3) if job.is_deep else (1, 2))
        return [[job.choose_rows() for _ in range(job.choose_partitions())] for _ in range(batches)]

    def run(self) -> None:
        """Run them to their end, or stop them.

        Raises:
            Broken: something does not hold.
        """
        random, supervisor = self.job.random, Supervisor()
        for stream in self.streams:
            stream.supervised = supervisor.start(
                stream.start, stream.strategy, name=stream.id, failover=self.failover
            )
        if random.random() < 0.3:
            this_thread().sleep(random.choice((0.1, 3.0, 15.0)))
            stream = random.choice(self.streams)
            self.job.world.tell(f"{stream.id} is stopped")
            stream.supervised.stop()
            stream.is_stopped = True
        told: Exception | None = None
        try:
            if not supervisor.await_all(_PATIENCE):  # some strategies restart for ever
                supervisor.stop_all()
                supervisor.await_all()
        except Exception as error:
            told = error
        for stream in self.streams:
            stream.is_stopped = True
        self.job.world.tell("all streams have ended")
        self._check_end(told)

    def _check_end(self, told: Exception | None) -> None:
        """What must hold of all of them once the supervisor says that they have ended."""
        failed = [each for each in self.streams if each.supervised.status is Status.FAILED]
        errors = [each.supervised.error for each in failed]
        if (told is None) != (not failed) or (told is not None and told not in errors):
            raise Broken(f"streams failed with {errors}, and {told!r} was told")
        for stream in self.streams:
            try:
                _check_stream(stream, is_alone=self.failover == REGION)
            except Broken as error:
                raise Broken(f"{stream.id}: {error}") from error

    def check(self) -> None:
        """What must hold at the end of the job, when everything has had time to come.

        Raises:
            Broken: it does not.
        """
        for stream in self.streams:
            if stream.problems:
                raise Broken(f"{stream.id}: {', '.join(stream.problems)}")


def _check_stream(stream: Stream, *, is_alone: bool) -> None:
    query = stream.supervised
    if not query.status.is_end or stream.running is not None:
        raise Broken(f"all had ended, and it is {query.status.value}; its run: {stream.running}")
    if query.status is Status.FINISHED and stream.committed < len(stream.batches):
        raise Broken(f"it has finished with {stream.committed} of {len(stream.batches)} batches")
    if len(stream.sink) not in (stream.committed, stream.committed + 1):
        raise Broken(f"{len(stream.sink)} batches were written, and {stream.committed} committed")
    for batch, taken in stream.sink.items():
        rows = [len(each.keys) if each.is_cut else len(each.rows) for each in taken]
        if rows != [len(keys) for keys in stream.batches[batch]]:
            raise Broken(f"batch {batch} has {rows} rows for {stream.batches[batch]}")
    if query.status is Status.FAILED and query.error is not stream.failures[-1][1]:
        raise Broken(f"its last failure is {stream.failures[-1][1]!r}, and it tells {query.error!r}")
    if is_alone:
        _check_restarts(stream)


def _check_restarts(stream: Stream) -> None:
    """A query that restarts alone: as often, and as late, as its strategy says."""
    query, strategy = stream.supervised, stream.strategy
    for (at, error), restart, again in zip(stream.failures, query.restarts, stream.tries[1:], strict=False):
        if again < at + restart.wait - _TOLERANCE:
            raise Broken(
                f"it failed at {at} ({error!r}), was to wait {restart.wait:g} s, and began at {again}"
            )
    if not isinstance(strategy, NoRestart | FixedDelayRestart):
        return
    most = 0 if isinstance(strategy, NoRestart) else strategy.attempts
    is_failed = query.status is Status.FAILED
    if len(query.restarts) > most or (is_failed and len(query.restarts) < most):
        raise Broken(f"it was restarted {len(query.restarts)} times ({query.status.value}): {strategy}")
    if is_failed and len(stream.failures) != len(query.restarts) + 1:
        raise Broken(f"it failed {len(stream.failures)} times, and was restarted {len(query.restarts)} times")
