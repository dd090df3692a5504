"""Supervision of queries that the test ends as it likes: no Spark, and waits of milliseconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from lookup_hints.errors import cause_of
from lookup_hints.streaming.restart_strategy import (
    ExponentialDelayRestart,
    Failures,
    FixedDelayRestart,
    NoRestart,
    RestartDecision,
    RestartStrategy,
)
from lookup_hints.streaming.supervisor import Restart, Status, Supervised, Supervisor, supervise

pytestmark = pytest.mark.timeout(30)
SOON = 20.0
QUICK = FixedDelayRestart(attempts=3, delay=0.001)


class FakeQuery:
    """A query that ends when the test says so."""

    def __init__(self, id: str, name: str | None = None) -> None:  # noqa: A002 (Spark's name)
        self.id, self.name = id, name
        self.stopped = False
        self._over = threading.Event()
        self._error: Exception | None = None

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802 (Spark's name)
        assert self._over.wait(SOON)
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        self.stopped = True
        self._over.set()

    def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._over.set()


class Starts:
    """What starts fake queries; the test takes each as it starts."""

    def __init__(self, same_id: bool = True, failing: dict[int, Exception] | None = None) -> None:
        self.queries: list[FakeQuery] = []
        self._numbers = count()
        self._same_id, self._failing = same_id, failing or {}
        self._started = threading.Condition()

    def __call__(self) -> FakeQuery:
        number = next(self._numbers)
        if number in self._failing:
            raise self._failing[number]
        query = FakeQuery("one" if self._same_id else str(number))
        with self._started:
            self.queries.append(query)
            self._started.notify_all()
        return query

    def take(self, number: int) -> FakeQuery:
        """The query of this start (from 0), once it has started."""
        with self._started:
            assert self._started.wait_for(lambda: len(self.queries) > number, SOON)
        return self.queries[number]


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = Supervisor()
    yield made
    made.stop_all()


def started(supervisor: Supervisor, starts: Callable[[], FakeQuery], strategy: RestartStrategy) -> Supervised:
    return supervisor.start(starts, strategy, name="flights")


def test_a_query_that_ends_by_itself_is_finished(supervisor: Supervisor) -> None:
    starts = Starts()
    query = started(supervisor, starts, QUICK)
    starts.take(0).end()
    assert query.await_termination(SOON)
    assert query.status is Status.FINISHED
    assert query.restarts == ()


def test_a_failed_query_starts_again_and_says_why(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts()
    query = started(supervisor, starts, QUICK)
    with caplog.at_level(logging.INFO, "lookup_hints"):
        starts.take(0).end(RuntimeError("the source is away"))
        starts.take(1).end()
        assert query.await_termination(SOON)
    assert query.restarts == (Restart("the source is away", 0.001),)
    assert query.query is starts.take(1)
    first, second = caplog.messages
    assert first == (
        "query flights: restart 1 in 0.0 s (fixed-delay 0.001 s, 3 attempts at most): the source is away"
    )
    assert second == "query flights runs again"


def test_the_last_failure_is_raised_when_the_strategy_gives_up(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts()
    query = started(supervisor, starts, FixedDelayRestart(attempts=2, delay=0.0))
    for number in range(3):
        starts.take(number).end(RuntimeError(f"failure {number}"))
    with pytest.raises(RuntimeError, match="failure 2"):
        query.await_termination(SOON)
    assert query.status is Status.FAILED
    assert [restart.cause for restart in query.restarts] == ["failure 0", "failure 1"]
    assert "is not started again (fixed-delay 0 s, 2 attempts at most): failure 2" in caplog.messages[-1]


def test_without_a_strategy_the_first_failure_stands(supervisor: Supervisor) -> None:
    starts = Starts()
    query = started(supervisor, starts, NoRestart())
    starts.take(0).end(RuntimeError("once"))
    with pytest.raises(RuntimeError, match="once"):
        query.await_termination(SOON)


def test_a_restart_that_fails_counts_as_a_failure(supervisor: Supervisor) -> None:
    starts = Starts(failing={1: RuntimeError("no metastore"), 2: RuntimeError("no metastore")})
    query = started(supervisor, starts, QUICK)
    starts.take(0).end(RuntimeError("no source"))
    starts.take(1).end()
    assert query.await_termination(SOON)
    assert [restart.cause for restart in query.restarts] == ["no source", "no metastore", "no metastore"]


def test_a_first_start_that_fails_is_raised_at_once(supervisor: Supervisor) -> None:
    with pytest.raises(RuntimeError, match="no table"):
        started(supervisor, Starts(failing={0: RuntimeError("no table")}), QUICK)
    assert supervisor.queries == ()


def test_a_stopped_query_does_not_start_again(supervisor: Supervisor) -> None:
    starts = Starts()
    query = started(supervisor, starts, QUICK)
    query.stop()
    assert starts.take(0).stopped
    assert query.status is Status.STOPPED
    assert query.await_termination(0)


def test_a_query_that_waits_for_its_restart_can_be_stopped(supervisor: Supervisor) -> None:
    starts = Starts()
    query = started(supervisor, starts, FixedDelayRestart(delay=1000.0))
    starts.take(0).end(RuntimeError("away"))
    assert supervisor.wait_for(lambda: query.status is Status.WAITING, SOON)
    query.stop()
    assert query.status is Status.STOPPED
    assert len(starts.queries) == 1


def test_waiting_gives_up_in_time(supervisor: Supervisor) -> None:
    query = started(supervisor, Starts(), QUICK)
    assert not query.await_termination(0.01)
    assert not supervisor.await_all(0.01)


def test_region_restarts_the_failed_query_alone(supervisor: Supervisor) -> None:
    one, two = Starts(), Starts()
    first = supervisor.start(one, QUICK, name="one")
    second = supervisor.start(two, QUICK, name="two")
    one.take(0).end(RuntimeError("away"))
    one.take(1).end()
    assert first.await_termination(SOON)
    assert second.status is Status.RUNNING
    assert len(two.queries) == 1


def test_full_restarts_all_queries_and_counts_their_failures_together(supervisor: Supervisor) -> None:
    one, two, alone = Starts(), Starts(), Starts()
    strategy = FixedDelayRestart(attempts=2, delay=0.001)
    first = supervisor.start(one, strategy, name="one", failover="full")
    second = supervisor.start(two, strategy, name="two", failover="full")
    apart = supervisor.start(alone, strategy, name="alone")
    one.take(0).end(RuntimeError("away"))
    restarted = two.take(1)
    assert supervisor.wait_for(lambda: second.query is restarted, SOON)
    assert two.queries[0].stopped
    two.take(1).end(RuntimeError("away too"))
    one.take(2)
    two.take(2).end(RuntimeError("for good"))
    with pytest.raises(RuntimeError, match="for good"):
        supervisor.await_all(SOON)
    assert [restart.cause for restart in first.restarts] == ["away", "two failed: away too"]
    assert [restart.cause for restart in second.restarts] == ["one failed: away", "away too"]
    assert (first.status, second.status) == (Status.STOPPED, Status.FAILED)
    assert apart.restarts == ()


def test_when_one_fails_for_good_the_others_are_stopped(supervisor: Supervisor) -> None:
    one, two = Starts(), Starts()
    supervisor.start(one, NoRestart(), name="one")
    second = supervisor.start(two, NoRestart(), name="two")
    one.take(0).end(RuntimeError("for good"))
    with pytest.raises(RuntimeError, match="for good"):
        supervisor.await_all(SOON)
    assert second.status is Status.STOPPED
    assert supervisor.await_all(0), "a failure is told once"


def test_a_failure_that_one_has_waited_for_is_not_raised_again(supervisor: Supervisor) -> None:
    starts = Starts()
    query = started(supervisor, starts, NoRestart())
    starts.take(0).end(RuntimeError("once"))
    with pytest.raises(RuntimeError, match="once"):
        query.await_termination(SOON)
    assert supervisor.await_all(0)


def test_a_supervisor_goes_on_after_all_its_queries_have_ended(supervisor: Supervisor) -> None:
    for _ in range(2):
        starts = Starts()
        query = started(supervisor, starts, QUICK)
        starts.take(0).end()
        assert query.await_termination(SOON)


def test_a_query_without_a_checkpoint_is_told_apart(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts(same_id=False)
    query = started(supervisor, starts, QUICK)
    starts.take(0).end(RuntimeError("away"))
    starts.take(1).end()
    assert query.await_termination(SOON)
    assert "query flights has no checkpoint: it began from its first row again" in caplog.messages


def test_nobody_waits_for_ever_on_a_strategy_that_fails(supervisor: Supervisor) -> None:
    class Broken:
        def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
            raise ZeroDivisionError("a strategy of one's own")

    starts = Starts()
    query = started(supervisor, starts, Broken())
    starts.take(0).end(RuntimeError("away"))
    with pytest.raises(ZeroDivisionError):
        query.await_termination(SOON)


def test_a_stopped_spark_is_not_asked_again(supervisor: Supervisor) -> None:
    gone = RuntimeError("java.lang.IllegalStateException: RpcEnv has been stopped")
    starts = Starts(failing={1: gone})
    query = started(supervisor, starts, ExponentialDelayRestart(initial_backoff=0.001))
    starts.take(0).end(RuntimeError("away"))
    with pytest.raises(RuntimeError, match="RpcEnv"):
        query.await_termination(SOON)


# --- what fails beside the query ---------------------------------------------------------------------


class FewThreads(threading.Thread):
    """Threads of a process that cannot start the one with this number."""

    failing = 0
    numbers = count()

    def start(self) -> None:
        if next(self.numbers) == self.failing:
            raise RuntimeError("can't start new thread")
        super().start()


def fail_thread(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the start of the thread with this number fail, from 0."""
    monkeypatch.setattr(FewThreads, "failing", number)
    monkeypatch.setattr(FewThreads, "numbers", count())
    monkeypatch.setattr(threading, "Thread", FewThreads)


@pytest.mark.parametrize("number", [0, 1])
def test_a_query_that_nobody_can_watch_does_not_run(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    starts = Starts()
    fail_thread(monkeypatch, number)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        started(supervisor, starts, QUICK)
    assert starts.take(0).stopped
    assert supervisor.queries == ()
    query = started(supervisor, starts, QUICK)
    starts.take(1).end()
    assert query.await_termination(SOON)


def test_a_restart_that_nobody_can_watch_is_a_failure_of_that_query(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, others = Starts(), Starts()
    query, other = started(supervisor, starts, QUICK), started(supervisor, others, QUICK)
    fail_thread(monkeypatch, 0)
    starts.take(0).end(RuntimeError("away"))
    starts.take(2).end()
    assert query.await_termination(SOON)
    assert [restart.cause for restart in query.restarts] == ["away", "can't start new thread"]
    assert starts.take(1).stopped
    assert other.status is Status.RUNNING


class Untold:
    """An id for which Spark does not answer."""

    def __str__(self) -> str:
        raise ConnectionError("no answer")


def test_a_query_that_does_not_tell_its_name_is_stopped(supervisor: Supervisor) -> None:
    query = FakeQuery(Untold())  # type: ignore[arg-type]
    with pytest.raises(ConnectionError):
        supervisor.start(lambda: query, QUICK)
    assert query.stopped


class LostQuery(FakeQuery):
    """A query that cannot be waited for, and is stopped when it is told so again."""

    stops = 0

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802 (Spark's name)
        raise ConnectionError("no answer")

    def stop(self) -> None:
        self.stops += 1
        if self.stops == 1:
            raise ConnectionError("no answer")
        super().stop()


def test_a_query_that_cannot_be_waited_for_does_not_run_on(supervisor: Supervisor) -> None:
    lost = LostQuery("one")
    query = started(supervisor, lambda: lost, NoRestart())
    with pytest.raises(ConnectionError, match="no answer"):
        query.await_termination(SOON)
    assert lost.stopped


def test_a_start_that_fails_puts_off_the_others_that_restart_with_it(supervisor: Supervisor) -> None:
    class LaterEachTime:
        def after_failure(self, failures: Failures, now: float, spread: float) -> RestartDecision:
            wait = 1000.0 if failures.attempts else 0.001
            return RestartDecision(wait, Failures(failures.attempts + 1, now + wait))

    one, two = Starts(failing={1: RuntimeError("no metastore")}), Starts()
    first = supervisor.start(one, LaterEachTime(), name="one", failover="full")
    second = supervisor.start(two, LaterEachTime(), name="two", failover="full")
    one.take(0).end(RuntimeError("away"))
    assert supervisor.wait_for(lambda: len(second.restarts) == 2, SOON)
    second.stop()
    assert first.status is Status.WAITING
    assert len(two.queries) == 1


# --- supervise -------------------------------------------------------------------------------------


def test_supervise_takes_a_function_or_a_writer() -> None:
    class Writer:
        start = Starts()

    for start in (Starts(), Writer()):
        query = supervise(start, QUICK, name="flights")
        query.stop()
        assert query.status is Status.STOPPED
        assert query.name == "flights"


def test_supervise_restarts_with_exponential_delays_by_default() -> None:
    query = supervise(Starts())
    assert query.strategy == ExponentialDelayRestart()
    assert query.name == "one", "the id of a query without a name"
    query.stop()


def test_supervise_refuses_a_query_that_runs_already() -> None:
    with pytest.raises(TypeError, match=r"not FakeQuery: a query that runs already does not tell"):
        supervise(FakeQuery("one"))


# --- causes ----------------------------------------------------------------------------------------


def test_a_cause_is_one_line_and_that_of_the_lookup_where_there_is_one() -> None:
    text = """[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job aborted due to stage failure
pyspark.errors.exceptions.base.PySparkException: wrapped
Traceback (most recent call last):
  File "x.py", line 1, in f
lookup_hints.errors.ConnectorError: in table planes: cannot connect to 127.0.0.1:5432

\tat org.apache.spark.api.python.BasePythonRunner"""
    assert cause_of(RuntimeError(text)) == (
        "ConnectorError: in table planes: cannot connect to 127.0.0.1:5432"
    )
    assert cause_of(RuntimeError("Job 3 cancelled\n\tat org")) == "Job 3 cancelled"
    assert cause_of(KeyError()) == "KeyError"


def test_the_cause_is_found_where_an_old_spark_says_all_in_one_line() -> None:
    said = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Lost task 0.0 in stage 1.0 (TID 1):"
        " org.apache.spark.api.python.PythonException: lookup_hints.errors.ConnectorError: no answer\n\tat org"
    )
    assert cause_of(RuntimeError(said)) == "ConnectorError: no answer"


def test_the_cause_is_what_could_not_be_opened_and_not_what_could_not_be_closed() -> None:
    def read() -> None:
        """As PySpark reads the rows of a frame."""
        try:
            sockfile = open_socket()
        finally:
            sockfile.close()

    def open_socket() -> Any:
        raise OSError("too many open files")

    with pytest.raises(UnboundLocalError) as raised:
        read()
    assert cause_of(raised.value) == "too many open files"
