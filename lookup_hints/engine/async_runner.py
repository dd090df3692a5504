"""Drives a scheduler on an event loop: many requests in flight, timers instead of sleeping.

The scheduler lives on the loop. Spark's thread reads the input, hands windows over, and takes settled ones
back; it meets the loop only through the ``call`` that it is given, so tests run both on one thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

from lookup_hints.engine.arrow import Keys
from lookup_hints.engine.backlog import Hold, ScheduledRequest, WaitUntil
from lookup_hints.engine.input_window import HAND_OUT_BYTES, Settled
from lookup_hints.engine.permits import Request, RequestPermits, with_permits_async
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import ConnectorError, LookupTimeout, NoTurn
from lookup_hints.metrics.lookup_metrics import Cause
from lookup_hints.metrics.task_recorder import TIMER_TOLERANCE
from lookup_hints.spi import SupportsBackpressure
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from lookup_hints.spi.request_context import reporting_to

CLOSE_SECONDS = 5.0
"""How long the end of a run waits for cancelled requests to hand back what they borrowed."""

CANCEL_SECONDS, CLOSE_LATE_SECONDS = 0.25, 0.8
"""How long a request whose time is up may take to end, and then the run. It fails a second late at most.

What is not handed back by then comes later, on the loop, which goes on.
"""

_T = TypeVar("_T")


class LoopCall(Protocol):
    """Runs a coroutine on the loop and gives its result to another thread."""

    def __call__(self, coroutine: Coroutine[Any, Any, _T], /) -> _T: ...


RunProgress = tuple[tuple[Settled, ...], bool, bool]
"""Settled rows in the order of the input, whether the next window is wanted, and whether all is handed back.

Where rows are large, not all of them come at once.
"""


def run_async(runner: AsyncRunner, inputs: Iterator[Keys], call: LoopCall) -> Iterator[Settled]:
    """Settle the rows of ``inputs``, in their order; on any end every request in flight is cancelled."""
    try:
        finished, wants_input, is_done = call(_feed_and_wait(runner, next(inputs, None)))
        while not is_done:
            yield from finished
            del finished  # they may be large
            step = _feed_and_wait(runner, next(inputs, None)) if wants_input else runner.progress()
            finished, wants_input, is_done = call(step)
    finally:
        call(runner.close())


async def _feed_and_wait(runner: AsyncRunner, keys: Keys | None) -> RunProgress:
    # One call: each takes the time of two threads' waking up.
    await runner.feed(keys)
    return await runner.progress()


def _take_bytes(nbytes: int, finished: Iterator[Settled]) -> Iterator[Settled]:
    """Of ``finished`` what takes about so much memory: the rest stays counted until it is wanted."""
    for settled in finished:
        yield settled
        nbytes -= settled.nbytes
        if nbytes <= 0:
            return


class AsyncRunner:
    """One run of a scheduler on the event loop. Its methods are called on the loop's thread only."""

    def __init__(
        self, scheduler: RequestScheduler, lookup: Callable[[LookupRequest], Awaitable[Answer]]
    ) -> None:
        self._scheduler = scheduler
        self._lookup = self._with_permits(lookup)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._given_up: set[asyncio.Task[Any]] = set()
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None
        self._holding: Hold | None = None
        self._end_of_hold: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._is_closing = False
        self._looks_again = False
        scheduler.recorder.pending_waits.on_change = self._schedule_wait_check

    def _with_permits(self, lookup: Callable[[Request], Awaitable[_T]]) -> Callable[[Request], Awaitable[_T]]:
        scheduler = self._scheduler
        observer = scheduler.recorder.observer
        return with_permits_async(lookup, scheduler.connector, scheduler.limiter, self._read_clock, observer)

    async def feed(self, keys: Keys | None) -> None:
        """Give the next window, or None at the end of the input; its requests start at once."""
        self._scheduler.add(keys)
        self._advance_run()

    async def progress(self) -> RunProgress:
        """Wait until rows are settled, input is wanted, or all is done.

        Raises:
            ConnectorError: the run failed.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            shown_again = self._scheduler.show(self._read_clock())
            finished = tuple(_take_bytes(HAND_OUT_BYTES, self._scheduler.finished()))
            if finished:
                self._advance_run()  # what they held may be what others waited for
            if finished or self._scheduler.wants_input or self._scheduler.is_done:
                is_done = self._scheduler.is_done and not finished
                return finished, self._scheduler.wants_input, is_done
            self._changed.clear()
            await self._wait_for_change(shown_again)

    async def _wait_for_change(self, until: float) -> None:
        """Until something has changed. An answer ends what is counted as waiting before it is worked on."""
        self._scheduler.recorder.waits.turn(self._blocked_by(), self._read_clock())
        timer = None if math.isinf(until) else asyncio.get_running_loop().call_at(until, self._changed.set)
        await self._changed.wait()
        if timer is not None:
            timer.cancel()
        self._scheduler.recorder.waits.turn(None, self._read_clock())

    def _blocked_by(self) -> Cause:
        return self._scheduler.blocked_by(self._read_clock())

    def _schedule_wait_check(self) -> None:
        """Many requests that begin or end to wait together are looked at once."""
        if not self._looks_again and self._scheduler.recorder.waits.cause is not None:
            self._looks_again = True
            asyncio.get_running_loop().call_soon(self._check_waits)

    def _check_waits(self) -> None:
        self._looks_again = False
        if self._scheduler.recorder.waits.cause is not None:
            self._scheduler.recorder.waits.turn(self._blocked_by(), self._read_clock())

    async def close(self) -> None:
        """Cancel every request in flight and wait, for some seconds at most, until they are gone."""
        self._is_closing = True
        self._scheduler.recorder.close()
        self._scheduler.recorder.waits.turn(None, self._read_clock())
        self._set_timer(None)
        self._hold_back(None)
        for task in self._tasks:
            self._cancel_task(task)
        if self._tasks:
            seconds = CLOSE_LATE_SECONDS if self._is_late else CLOSE_SECONDS
            await asyncio.wait(self._tasks, timeout=seconds)
        self._close_limiter()

    # A second time would cut short what it hands back, and give the permit of a request back that goes on.
    def _cancel_task(self, task: asyncio.Task[Any]) -> None:
        """Cancel ``task``, unless that is done already."""
        if task not in self._cancelled:
            self._cancelled.add(task)
            task.add_done_callback(self._cancelled.discard)
            task.cancel()

    def _close_limiter(self, *_: object) -> None:
        """Give the permits back when no request is left: the source still works on one that does not end."""
        for task in self._tasks:
            task.add_done_callback(self._close_limiter)
            return
        self._scheduler.limiter.close()

    def _advance_run(self) -> None:
        """Send all that may be sent now, and wake up when more falls due."""
        if self._is_closing:  # a connector may answer its cancellation with rows, or an error of its own
            return
        try:
            while isinstance(step := self._scheduler.next(self._read_clock()), ScheduledRequest):
                self._start_request(step)
        except Exception as failure:
            self._fail_run(failure)
        else:
            self._set_timer(step.time if isinstance(step, WaitUntil) else None)
            self._apply_backpressure()
            self._changed.set()

    def _start_request(self, ask: ScheduledRequest) -> None:
        self._spawn_task(self._serve_request(ask))

    # Cut short by the time that it waited for its permit, a request would be sent again and again where there
    # are few. (docs/decisions/0309)
    def _expire_task(self, task: asyncio.Task[None], ask: ScheduledRequest, permits: RequestPermits) -> None:
        """Cancel the ``task`` of ``ask`` if its time is up; it must not block the run if it ignores that."""
        if self._is_closing or task.done():
            return
        loop, until = asyncio.get_running_loop(), self._scheduler.late_at(ask, permits.waited)
        if until > loop.time() + TIMER_TOLERANCE:
            loop.call_at(until, self._expire_task, task, ask, permits)
            return
        self._is_late = True
        self._cancel_task(task)
        loop.call_later(CANCEL_SECONDS, self._give_up, task, ask)

    def _give_up(self, task: asyncio.Task[None], ask: ScheduledRequest) -> None:
        """Report a request that was cancelled and does not end; a late answer to it is ignored."""
        if self._is_closing or task.done():
            return
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)
        self._is_late = True
        try:
            self._scheduler.failed(ask, _timeout_error(ask), max(self._read_clock(), ask.deadline))
        except Exception as failure:
            self._fail_run(failure)
        else:
            self._advance_run()

    # Kept in a set, as the event loop holds only weak references to its tasks.
    def _spawn_task(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _set_timer(self, time: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if time is None else asyncio.get_running_loop().call_at(time, self._advance_run)

    def _apply_backpressure(self) -> None:
        """Let the connector's lookups wait while too much is held, if it can."""
        hold = self._scheduler.hold(self._read_clock())
        if hold != self._holding:
            self._hold_back(hold)

    # Cancelling and asking again was not taken: servers would answer the same question twice.
    # (docs/decisions/0115)
    def _hold_back(self, hold: Hold | None) -> None:
        connector = self._scheduler.connector
        if self._end_of_hold is not None:
            self._end_of_hold.cancel()
            self._end_of_hold = None
        if isinstance(connector, SupportsBackpressure):
            if hold is not None:
                connector.hold_back(self, needs_answer=hold.needs_answer)
                self._end_of_hold = asyncio.get_running_loop().call_at(
                    hold.until + TIMER_TOLERANCE, self._apply_backpressure
                )
            elif self._holding is not None:
                connector.go_on(self)
        self._holding = hold

    def _fail_run(self, failure: Exception) -> None:
        self._failure = failure if self._failure is None else self._failure
        self._changed.set()

    async def _serve_request(self, ask: ScheduledRequest) -> None:
        permits = self._scheduler.limiter.permits()
        with reporting_to(self._scheduler.recorder, permits):
            outcome, ended = await self._await_answer(ask, permits)
        if asyncio.current_task() in self._given_up:
            return
        try:
            if permits.waited:
                ask = self._scheduler.forgive(ask, permits)
            if isinstance(outcome, Exception):
                self._scheduler.failed(ask, outcome, ended)
            else:
                self._scheduler.answered(ask, outcome, ended)
        except Exception as failure:
            self._fail_run(failure)
        else:
            self._advance_run()

    async def _await_answer(
        self, ask: ScheduledRequest, permits: RequestPermits
    ) -> tuple[Answer | Exception, float]:
        """The answer to ``ask`` or its error, and when it came."""
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_at(ask.deadline, self._expire_task, task, ask, permits)
        try:
            answer = await self._lookup(ask.request)
        except asyncio.CancelledError as error:
            if self._is_closing:
                raise
            if task in self._cancelled:
                return self._late_outcome(ask, permits)
            cancelled = ConnectorError("the connector cancelled the lookup itself")
            cancelled.__cause__ = error
            return cancelled, self._read_clock()
        except asyncio.TimeoutError as error:  # the driver's own
            now = self._read_clock()
            is_late = now + TIMER_TOLERANCE >= self._scheduler.late_at(ask, permits.waited)
            self._is_late |= is_late
            return self._late_outcome(ask, permits) if is_late or permits.gave_up else (error, now)
        except Exception as error:
            return error, self._read_clock()
        finally:
            timer.cancel()
        return answer, self._read_clock()

    def _late_outcome(self, ask: ScheduledRequest, permits: RequestPermits) -> tuple[Exception, float]:
        """The error of ``ask``, whose time is up, and when that was."""
        now = self._read_clock()
        if permits.gave_up:
            return no_permit(self._scheduler, ask), max(now, ask.deadline)
        return _timeout_error(ask), max(now, self._scheduler.late_at(ask, permits.waited))

    def _read_clock(self) -> float:
        return asyncio.get_running_loop().time()


def _timeout_error(ask: ScheduledRequest) -> LookupTimeout:
    return LookupTimeout(f"no answer within {ask.request.timeout:g} s")


def no_permit(scheduler: RequestScheduler, ask: ScheduledRequest) -> ConnectorError:
    """The time of ``ask`` is up, and some of it got no permit: the source is down, or at its limit."""
    waited = f"no request was allowed within {ask.request.timeout:g} s"
    return (
        LookupTimeout(f"{waited}: {scheduler.limiter.outage}") if scheduler.limiter.outage else NoTurn(waited)
    )
