"""Drives a scheduler whose connector is asked key by key: many in flight, each looked up by itself.

The scheduler is made for columns, and telling it of one key costs as much as of a thousand. So finished keys
are told together, a few milliseconds late at most, and it gives out more keys than may be in flight: the
workers here never wait for it.

A connector may start many keys at once. The others have a worker each, a task, which looks up one after the
other; and so has a key that was started and is not as simple as that.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice, takewhile
from typing import Any, NamedTuple

import pyarrow as pa

from lookup_hints.engine.async_runner import CANCEL_SECONDS, AsyncRunner, no_permit
from lookup_hints.engine.backlog import ScheduledRequest
from lookup_hints.engine.permits import RequestPermits
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.metrics.lookup_metrics import Cause
from lookup_hints.metrics.task_recorder import TIMER_TOLERANCE
from lookup_hints.spi import RowStarter, StartedRow, StartedRows, TakeRows
from lookup_hints.spi.connector import RowsAsTable, outcomes_of, rows_of
from lookup_hints.spi.request_and_answer import RowRequest, Rows
from lookup_hints.spi.request_context import reporting_to

LATE_SECONDS = 0.005
"""Seconds that a finished key may wait, so that several are reported to the scheduler together."""


class _RequestByRow:
    def __init__(self, ask: ScheduledRequest) -> None:
        self.ask = ask
        self.rows = rows_of(ask.request)
        self.unfinished = len(self.rows)
        self.finished: list[tuple[int, Rows | Exception, float]] = []
        """The position of each key, what came of it, and when its first request may have left."""
        self.is_out_of_time = False
        self.timer: asyncio.TimerHandle | None = None


class _KeyOfTask(NamedTuple):
    """The key that a worker looks up, and how long the worker had waited for permits before."""

    asked: _RequestByRow
    position: int
    permits: RequestPermits
    waited: float

    def late_at(self, scheduler: RequestScheduler) -> float:
        return scheduler.late_at(self.asked.ask, self.permits.waited - self.waited)


# Most HTTP APIs take one key per request. As batches of one, a key would pay for Arrow columns; in one batch
# of a thousand, one bad key would fail a thousand, and `capacity` would mean nothing. (docs/decisions/0020)
class RowRunner(AsyncRunner):
    """One run of a scheduler whose connector is asked one key at a time, ``capacity`` of them at once."""

    def __init__(
        self,
        scheduler: RequestScheduler,
        connector: RowsAsTable,
        lookup_row: Callable[[RowRequest], Awaitable[Rows]],
        capacity: int,
        row_starter: Callable[[TakeRows], RowStarter | None] = lambda _: None,
    ) -> None:
        super().__init__(scheduler, _refuse_batch)
        self._row_starter = row_starter
        self._starter: RowStarter | None = None
        self._started: dict[StartedRow, tuple[_RequestByRow, int, float]] = {}
        self._permits = scheduler.limiter.permits()
        """Those of the keys that are started."""
        self._connector = connector
        self._lookup_row = self._with_permits(lookup_row)
        self._capacity = capacity
        self._waiting: deque[tuple[_RequestByRow, int]] = deque()
        self._running: dict[asyncio.Task[None], _KeyOfTask] = {}
        self._asked: dict[_RequestByRow, None] = {}  # in the order of asking
        self._in_flight = self._most_in_flight = 0
        self._took: list[float] = []
        """Seconds that each finished key took, until they are reported to the scheduler."""
        self._untold = 0
        self._telling: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        self._waiting.clear()
        self._is_closing = True
        for row in [*self._started]:
            self._cancel_row(row)
        for asked in self._asked:
            if asked.timer is not None:
                asked.timer.cancel()
        if self._telling is not None:
            self._telling.cancel()
        await super().close()
        self._report_times()

    def _blocked_by(self) -> Cause:
        under_way = len(self._running) + len(self._started)
        has_queue = bool(self._waiting) and under_way >= self._capacity
        return self._scheduler.blocked_by(self._read_clock(), under_way=under_way, has_queue=has_queue)

    def _start_request(self, ask: ScheduledRequest) -> None:
        asked = _RequestByRow(ask)
        self._asked[asked] = None
        asked.timer = asyncio.get_running_loop().call_at(ask.deadline, self._expire_request, asked)
        self._waiting.extend((asked, position) for position in range(len(asked.rows)))
        self._start_waiting_keys()

    def _start_waiting_keys(self) -> None:
        self._start_together()
        for _ in range(self._free_slots):
            self._start_worker(*self._waiting.popleft())

    @property
    def _free_slots(self) -> int:
        return min(len(self._waiting), self._capacity - len(self._running) - len(self._started))

    # A coroutine, a future, a permit and a timer for each key cost more than the request itself, so all keys
    # that may go out now are handed over at once. (docs/decisions/0196)
    def _start_together(self) -> None:
        if self._starter is None:
            if not self._waiting:
                return
            with reporting_to(self._scheduler.recorder, self._permits):
                self._starter = self._row_starter(self._take_outcomes)
        while self._starter is not None and (free := self._free_slots) > 0:
            asked = self._waiting[0][0]
            alike = takewhile(lambda each: each[0] is asked, islice(self._waiting, free))  # noqa: B023
            rows = [asked.rows[position] for _, position in alike]
            started, now = self._starter.start(rows), self._read_clock()
            for row in started:
                self._started[row] = (*self._waiting.popleft(), now)
            self._count_in_flight(len(started))
            if len(started) < len(rows):
                return

    def _count_in_flight(self, keys: int) -> None:
        self._in_flight += keys
        if self._in_flight > self._most_in_flight:
            self._most_in_flight = self._in_flight

    def _take_outcomes(self, came: StartedRows) -> None:
        now = self._read_clock()
        for row, outcome in came:
            asked, position, started = self._started.pop(row)
            self._in_flight -= 1
            if isinstance(outcome, Coroutine):
                self._start_worker(asked, position, outcome, started)
            else:
                self._took.append(now - started)
                asked.finished.append((position, outcome, started))
                self._untold += 1
        self._start_waiting_keys()
        if self._untold:
            self._schedule_report()

    def _cancel_row(self, row: StartedRow) -> tuple[_RequestByRow, int]:
        """Cancel ``row``; returns its request and position."""
        asked, position, started = self._started.pop(row)
        row.cancel()
        self._in_flight -= 1
        self._took.append(self._read_clock() - started)
        return asked, position

    def _start_worker(
        self,
        asked: _RequestByRow,
        position: int,
        begun: Coroutine[Any, Any, Rows] | None = None,
        began: float = math.inf,
    ) -> None:
        permits = self._scheduler.limiter.permits()
        task = self._spawn_task(self._look_up_keys(asked, position, permits, begun, began))
        self._running[task] = _KeyOfTask(asked, position, permits, 0.0)
        task.add_done_callback(self._finish_worker)
        if begun is not None:
            task.add_done_callback(lambda _: begun.close())  # it may not even have come so far

    def _finish_worker(self, task: asyncio.Task[None]) -> None:
        left = self._running.pop(task, None)
        if self._is_closing:
            return
        if left is not None and task.cancelled():  # before it began: its time was up in that moment
            self._finish_key(left.asked, left.position, self._unstarted_error(left.asked))
        self._start_waiting_keys()

    async def _look_up_keys(
        self,
        asked: _RequestByRow,
        position: int,
        permits: RequestPermits,
        begun: Coroutine[Any, Any, Rows] | None,
        began: float,
    ) -> None:
        """Look up one key after the other, the first of which may have ``begun``, when it ``began``.

        It ends where none waits that cannot be started, or where one had to be cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        clock = asyncio.get_running_loop().time
        with reporting_to(self._scheduler.recorder, permits):
            while True:
                self._count_in_flight(1)
                started, waited = clock(), permits.waited
                permits.begin_lookup()
                try:
                    outcome: Rows | Exception = await (begun or self._lookup_row(asked.rows[position]))
                except asyncio.CancelledError as error:
                    if self._is_closing:
                        raise
                    if task not in self._running:
                        return
                    late = self._cancellation_error(asked, error, is_own=not permits.gave_up)
                    self._finish_key(asked, position, late)
                    return  # a task that was cancelled once is not fit for more
                except Exception as error:
                    outcome = error
                finally:
                    if task in self._running:
                        self._in_flight -= 1
                        self._took.append(clock() - started - (permits.waited - waited))
                if task not in self._running:
                    return
                self._finish_key(asked, position, outcome, min(began, started + permits.waited_first))
                del outcome  # it may be large, and the next key takes its time
                del self._running[task]
                self._start_together()
                if self._free_slots <= 0:
                    return
                begun, began = None, math.inf
                asked, position = self._waiting.popleft()
                self._running[task] = _KeyOfTask(asked, position, permits, permits.waited)

    def _cancellation_error(
        self, asked: _RequestByRow, error: asyncio.CancelledError, *, is_own: bool
    ) -> Exception:
        if asked.is_out_of_time:
            return _timeout_error(asked) if is_own else no_permit(self._scheduler, asked.ask)
        cancelled = ConnectorError("the connector cancelled the lookup itself")
        cancelled.__cause__ = error
        return cancelled

    def _expire_request(self, asked: _RequestByRow) -> None:
        """The time of ``asked`` is up: its keys in flight are cancelled, the others not even started."""
        if self._is_closing:
            return
        asked.is_out_of_time = self._is_late = True
        self._cancel_late_keys(asked)
        unstarted = [position for own, position in self._waiting if own is asked]
        self._waiting = deque(each for each in self._waiting if each[0] is not asked)
        for row in [row for row, (own, _, _) in self._started.items() if own is asked]:
            self._finish_key(*self._cancel_row(row), _timeout_error(asked))
        late = self._unstarted_error(asked)
        for position in unstarted:
            self._finish_key(asked, position, late)

    def _cancel_late_keys(self, asked: _RequestByRow) -> None:
        """Cancel the keys of ``asked`` in flight, each when its own time is up."""
        if self._is_closing:
            return
        loop, left = asyncio.get_running_loop(), list[float]()
        for task, key in self._running.items():
            if key.asked is asked:
                until = key.late_at(self._scheduler)
                if until > loop.time() + TIMER_TOLERANCE:
                    left.append(until)
                else:
                    self._cancel_task(task)
        loop.call_later(CANCEL_SECONDS, self._give_up_keys, asked)
        if left:
            loop.call_at(min(left), self._cancel_late_keys, asked)

    def _unstarted_error(self, asked: _RequestByRow) -> ConnectorError:
        """Why keys of ``asked`` are not started in time."""
        limiter = self._scheduler.limiter
        lacks_permits = limiter.is_crowded(len(self._running) + len(self._waiting)) or limiter.outage
        return no_permit(self._scheduler, asked.ask) if lacks_permits else _timeout_error(asked)

    def _give_up_keys(self, asked: _RequestByRow) -> None:
        """Tell of the keys of ``asked`` that were cancelled and do not end."""
        if self._is_closing:
            return
        for task, key in [*self._running.items()]:
            if key.asked is asked and task in self._cancelled and not task.done():
                del self._running[task]
                self._in_flight -= 1
                self._finish_key(asked, key.position, _timeout_error(asked))
        self._start_waiting_keys()

    def _finish_key(
        self, asked: _RequestByRow, position: int, outcome: Rows | Exception, began: float = math.inf
    ) -> None:
        asked.finished.append((position, outcome, began))
        self._untold += 1
        self._schedule_report()

    def _schedule_report(self) -> None:
        is_last = not self._waiting and not self._in_flight
        if is_last or self._untold >= self._capacity:
            self._report_finished()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(LATE_SECONDS, self._report_finished)

    def _report_finished(self) -> None:
        """Give the scheduler what has finished, and send what it wants next."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._is_closing:
            return
        self._untold = 0
        self._report_times()
        for asked in [each for each in self._asked if each.finished]:
            try:
                self._report_request(asked)
            except Exception as failure:  # other requests are reported all the same: a cache keeps answers
                self._fail_run(failure)
        if self._failure is None:
            self._go_on_asking()

    def _go_on_asking(self) -> None:
        try:
            if self._waiting and not self._scheduler.has_room_for(self._in_flight):
                self._return_unasked()
        except Exception as failure:
            self._fail_run(failure)
        else:
            self._advance_run()

    def _report_times(self) -> None:
        took, self._took = self._took, []
        self._scheduler.recorder.took(took)
        self._scheduler.recorder.in_flight(self._most_in_flight)

    # Keys that have not started go back when rows turn out to be wide: a row lookup hands out hundreds ahead.
    # (docs/decisions/0115)
    def _return_unasked(self) -> None:
        """Let the scheduler say again when the keys that wait here are asked: rows fill the memory."""
        waiting: dict[_RequestByRow, list[int]] = {}
        for asked, position in self._waiting:
            waiting.setdefault(asked, []).append(position)
        self._waiting.clear()
        for asked, positions in waiting.items():
            self._scheduler.unasked(self._split_off(asked, positions), self._read_clock())

    def _split_off(self, asked: _RequestByRow, positions: list[int]) -> ScheduledRequest:
        """The part of ``asked`` at ``positions``, which it will not wait for any more."""
        asked.unfinished -= len(positions)
        if not asked.unfinished:
            del self._asked[asked]
            assert asked.timer is not None
            asked.timer.cancel()
        return asked.ask.among(pa.array(positions, pa.int32()))

    def _report_request(self, asked: _RequestByRow) -> None:
        finished = sorted(asked.finished, key=lambda each: each[0])
        asked.finished = []
        told = self._split_off(asked, [position for position, _, _ in finished])
        # Keys of one request wait here for each other, and what was found is not as old as that.
        first = min(began for _, _, began in finished)
        sent = first if first < math.inf else None
        outcomes = [(asked.rows[position], outcome) for position, outcome, _ in finished]
        now = max(self._read_clock(), asked.ask.deadline) if asked.is_out_of_time else self._read_clock()
        answer = outcomes_of(self._connector, outcomes, asked.ask.request.schema)
        self._scheduler.answered(told, answer, now, sent)


def _timeout_error(asked: _RequestByRow) -> LookupTimeout:
    return LookupTimeout(f"no answer within {asked.ask.request.timeout:g} s")


async def _refuse_batch(_: object) -> pa.Table:
    raise AssertionError("it is asked by row")
