"""Streaming queries that start again after a failure, as a restart strategy says.

One thread of each supervisor decides and acts, so that nothing here happens twice or at the same time; each
running query has a thread that waits for its end and says so.
"""

from __future__ import annotations

import logging
import queue
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from lookup_hints.errors import cause_of
from lookup_hints.streaming.restart_strategy import ExponentialDelayRestart, Failures, RestartStrategy

_log = logging.getLogger("lookup_hints")

FOR_GOOD = "for_good"
"""The attribute that marks log records about failures without a restart."""

REGION, FULL = "region", "full"


class SparkQuery(Protocol):
    """The part of Spark's ``StreamingQuery`` that a supervisor uses."""

    @property
    def id(self) -> str:
        """The same for all runs from one checkpoint."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's name)
        """Wait for the end; raises when the query failed."""

    def stop(self) -> None:
        """Stop, and wait for the end."""


class Status(Enum):
    """The status of a supervised query."""

    RUNNING = "running"
    WAITING = "waiting for its restart"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Whether nothing comes after it."""
        return self in (Status.FINISHED, Status.STOPPED, Status.FAILED)


@dataclass(frozen=True)
class Restart:
    """One restart: why, and after how many seconds."""

    cause: str
    wait: float


class Supervised:
    """A streaming query under a supervisor.

    Args:
        name: how it is called in logs.
        strategy: when it starts again.
        failover: ``region``: it restarts alone; ``full``: together with all others of its supervisor that
            have this set.
    """

    def __init__(
        self,
        name: str,
        strategy: RestartStrategy,
        failover: str,
        supervisor: Supervisor,
        start: Callable[[], SparkQuery],
        query: Any,
    ) -> None:
        self.name, self.strategy, self.failover = name, strategy, failover
        self._supervisor, self._start = supervisor, start
        # Written only by the supervisor's thread.
        self.query = query
        """Spark's query: the one that runs, or ran last."""
        self.status = Status.RUNNING
        self.restarts: tuple[Restart, ...] = ()
        self.error: Exception | None = None
        """The final failure, once the strategy has given up."""
        self._run_number = 0
        self._failures = Failures()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended for good; False if ``timeout`` (seconds) ran out before.

        Raises:
            Exception: the last failure, when the strategy has given up.
        """
        ended = self._supervisor.wait_for(lambda: self.status.is_end, timeout)
        if self.error is not None:
            self._supervisor.is_told(self)
            raise self.error
        return ended

    def stop(self) -> None:
        """Stop the query and start it no more; returns when it has stopped."""
        self._supervisor.stop(self)


class _Event(NamedTuple):
    """The run with this number ended, with or without an error; without a number: stop the query."""

    query: Supervised
    number: int | None = None
    error: Exception | None = None


# Each query has its own strategy and count of failures, as an INSERT outside a statement set is a job of its
# own in Flink. (docs/decisions/0047)
class Supervisor:
    """Keeps streaming queries running; each as its own strategy says."""

    def __init__(self) -> None:
        self._queries: list[Supervised] = []
        self._script_failures = Failures()
        self._told: set[Supervised] = set()
        self._events: queue.Queue[_Event] = queue.Queue()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def queries(self) -> tuple[Supervised, ...]:
        return tuple(self._queries)

    def start(
        self,
        start: Callable[[], SparkQuery],
        strategy: RestartStrategy,
        *,
        name: str = "",
        failover: str = REGION,
    ) -> Supervised:
        query = start()
        try:
            called = name or getattr(query, "name", None) or str(query.id)
            supervised = Supervised(called, strategy, failover, self, start, query)
            self._supervise_query(supervised)
        except Exception:  # one that nobody watches must not run
            _stop_quietly(query)
            raise
        return supervised

    def _supervise_query(self, supervised: Supervised) -> None:
        with self._changed:
            if supervised.failover == FULL and not self._queries_to_restart(supervised):
                self._script_failures = Failures()  # of another script
            if self._thread is None:
                thread = threading.Thread(
                    target=self._supervise_queries, name="lookup-supervisor", daemon=True
                )
                thread.start()  # it waits for this lock
                self._thread = thread
            self._queries.append(supervised)
            try:
                self._watch_query(supervised)
            except Exception:
                self._queries.remove(supervised)
                raise

    def await_all(self, timeout: float | None = None) -> bool:
        """Wait until all queries have ended; False when ``timeout`` (seconds) ran out before.

        If one fails for good, the others are stopped. A failure that was raised is not raised again.

        Raises:
            Exception: the first final failure.
        """

        def settled() -> bool:
            return self._first_failed() is not None or all(query.status.is_end for query in self._queries)

        in_time = self.wait_for(settled, timeout)
        failed = self._first_failed()
        if failed is not None and failed.error is not None:
            self.stop_all()
            self._told.update(self._queries)
            raise failed.error
        return in_time

    def is_told(self, query: Supervised) -> None:
        """Mark the failure of ``query`` as reported, so that ``await_all`` does not raise it again."""
        self._told.add(query)

    def stop_all(self) -> None:
        for query in self._queries:
            self.stop(query)

    def stop(self, query: Supervised) -> None:
        self._events.put(_Event(query))
        self.wait_for(lambda: query.status.is_end, None)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _first_failed(self) -> Supervised | None:
        failed = (query for query in self._queries if query.status is Status.FAILED)
        return next((query for query in failed if query not in self._told), None)

    # --- the supervisor's thread -------------------------------------------------------------------

    def _supervise_queries(self) -> None:
        while not self._may_end():
            try:
                try:
                    event = self._events.get(timeout=self._time_to_next_restart())
                except queue.Empty:
                    event = None
                if event is not None and event.number is None:
                    self._stop_query(event.query)
                elif event is not None and event.number == event.query._run_number:
                    self._handle_end(event.query, event.error)
                now = time.monotonic()
                for query in self._waiting_queries():
                    # Looked at in turn: a start that fails may put off that of others.
                    if query._failures.restart_at <= now:
                        self._start_again(query)
            except Exception as error:  # raised by a user's strategy: waiting callers must not hang
                _log.exception("supervision failed")
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        for query in self._queries:
            if not query.status.is_end:
                _stop_quietly(query.query)
                query.error = error
                self._set_status(query, Status.FAILED)

    def _may_end(self) -> bool:
        """Whether no query is left; the next one that is started brings a thread of its own."""
        with self._changed:
            if any(not query.status.is_end for query in self._queries):
                return False
            self._thread = None
            return True

    def _time_to_next_restart(self) -> float | None:
        waiting = self._waiting_queries()
        if not waiting:
            return None
        return max(0.0, min(query._failures.restart_at for query in waiting) - time.monotonic())

    def _waiting_queries(self) -> list[Supervised]:
        return [query for query in self._queries if query.status is Status.WAITING]

    def _handle_end(self, query: Supervised, error: Exception | None) -> None:
        if error is None:
            self._set_status(query, Status.FINISHED)
        else:
            self._handle_failure(query, error)

    def _handle_failure(self, query: Supervised, error: Exception) -> None:
        is_full = query.failover == FULL
        known = self._script_failures if is_full else query._failures
        spread = random.uniform(-1, 1)  # noqa: S311 (no secret)
        decision = query.strategy.after_failure(known, time.monotonic(), spread)
        cause = cause_of(error)
        if decision.wait is None:
            _log.error(
                "query %s failed, and is not started again (%s): %s",
                *(query.name, query.strategy, cause),
                extra={FOR_GOOD: True},
            )
            self._stop_running(query)
            query.error = error
            self._set_status(query, Status.FAILED)
            return
        if is_full:
            self._script_failures = decision.failures
        for other in self._queries_to_restart(query):
            why = cause if other is query else f"{query.name} failed: {cause}"
            self._plan_restart(other, decision.failures, Restart(why, decision.wait))

    def _queries_to_restart(self, query: Supervised) -> list[Supervised]:
        if query.failover != FULL:
            return [query]
        return [other for other in self._queries if other.failover == FULL and not other.status.is_end]

    def _plan_restart(self, query: Supervised, failures: Failures, restart: Restart) -> None:
        number = len(query.restarts) + 1
        _log.warning(
            "query %s: restart %d in %.1f s (%s): %s",
            *(query.name, number, restart.wait, query.strategy, restart.cause),
        )
        query._run_number += 1  # later reports about the old run are ignored
        self._stop_running(query)
        query._failures = failures
        query.restarts = (*query.restarts, restart)
        self._set_status(query, Status.WAITING)

    # What failed may be the question after its end, and not the query.
    def _stop_running(self, query: Supervised) -> None:
        if query.status is Status.RUNNING:
            _stop_quietly(query.query)

    def _start_again(self, query: Supervised) -> None:
        if query.status is not Status.WAITING:
            return
        before = query.query
        try:
            query.query = query._start()
            has_begun_anew = query.query.id != before.id
            self._watch_query(query)
        except Exception as error:
            if query.query is not before:
                _stop_quietly(query.query)
            # If Spark itself has been stopped, no restart can succeed.
            if type(error).__name__ == "Py4JNetworkError" or _GONE.search(str(error)):
                query.error = error
                self._set_status(query, Status.FAILED)
            else:
                self._handle_failure(query, error)
            return
        if has_begun_anew:
            _log.warning("query %s has no checkpoint: it began from its first row again", query.name)
        _log.info("query %s runs again", query.name)
        self._set_status(query, Status.RUNNING)

    # The run's number changes, so that its late end does not count for the next run.
    def _stop_query(self, query: Supervised) -> None:
        if query.status.is_end:
            return
        query._run_number += 1
        _stop_quietly(query.query)
        self._set_status(query, Status.STOPPED)

    def _set_status(self, query: Supervised, status: Status) -> None:
        with self._changed:
            query.status = status
            self._changed.notify_all()

    # awaitTermination blocks, so each run of a query has a thread.
    def _watch_query(self, query: Supervised) -> None:
        watched, number = query.query, query._run_number

        def wait_for_end() -> None:
            error: Exception | None = None
            try:
                watched.awaitTermination()
            except Exception as failure:
                error = failure
            self._events.put(_Event(query, number, error))

        threading.Thread(target=wait_for_end, name=f"lookup-watch-{query.name}", daemon=True).start()


def supervise(
    start: Callable[[], Any] | Any, strategy: RestartStrategy | None = None, *, name: str = ""
) -> Supervised:
    """Start a streaming query, and restart it after failures according to ``strategy``.

    The query should have a checkpoint: without one each restart begins at the first row, and a warning is
    logged.

    Args:
        start: a ``DataStreamWriter`` (``frame.writeStream...``), or a function that starts the query and
            returns it.
        strategy: default: exponential delays, as Flink does for jobs with a checkpoint.
        name: its name in logs; default: the name or id of the query.

    Raises:
        TypeError: ``start`` is neither; a running query does not tell how to start it again.
        Exception: the error of the first start.

    Examples:
        >>> writer = frame.writeStream.option("checkpointLocation", "/checkpoints/a").format("parquet")
        >>> query = supervise(writer.option("path", "/enriched"), FixedDelayRestart(attempts=3, delay=10))
        >>> query.await_termination()
    """
    begin = start if callable(start) else getattr(start, "start", None)
    if not callable(begin):
        raise TypeError(
            "supervise() takes a DataStreamWriter or a function that starts a query, not"
            f" {type(start).__name__}: a query that runs already does not tell how to start it again."
        )
    return Supervisor().start(begin, strategy or ExponentialDelayRestart(), name=name)


def _stop_quietly(query: Any) -> None:
    """Stop a query. One that cannot be told so is told again, as it would run on."""
    for tries_left in (1, 0):
        try:
            query.stop()
            return
        except Exception as error:
            if not tries_left:
                _log.warning("a query could not be stopped: %s", cause_of(error))


_GONE = re.compile(
    r"stopped SparkContext|RpcEnv has been stopped|SparkContext (was|has been) (shut down|stopped)"
    r"|SESSION_CLOSED"
)
