"""Drives a scheduler with direct calls, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lookup_hints.engine.arrow import Keys
from lookup_hints.engine.backlog import ScheduledRequest, WaitUntil
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.permits import with_permits
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from lookup_hints.spi.request_context import reporting_to


def run_sync(
    scheduler: RequestScheduler,
    inputs: Iterator[Keys],
    lookup: Callable[[LookupRequest], Answer],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[Settled]:
    """Settle the rows of ``inputs``, in their order, asking ``lookup`` one request at a time.

    While keys wait for a retry, others are asked, as long as there is input and room for it; it sleeps
    when there is nothing else to do.
    """
    lookup = with_permits(lookup, scheduler.connector, scheduler.limiter, clock, scheduler.recorder.observer)
    pending_waits = scheduler.recorder.pending_waits
    pending_waits.on_change = lambda: scheduler.recorder.waits.turn(
        pending_waits.most_of(1) or "source", clock()
    )
    try:
        while not scheduler.is_done:
            now = clock()
            scheduler.show(now)
            step = scheduler.next(now)
            if isinstance(step, ScheduledRequest):
                _run_request(scheduler, step, lookup, clock)
            elif scheduler.wants_input:
                scheduler.add(next(inputs, None))
            elif isinstance(step, WaitUntil):
                _sleep_until(scheduler, step.time, clock, sleep)
            yield from scheduler.finished()
    finally:
        scheduler.recorder.close()
        scheduler.limiter.close()


def _run_request(
    scheduler: RequestScheduler,
    ask: ScheduledRequest,
    lookup: Callable[[LookupRequest], Answer],
    clock: Callable[[], float],
) -> None:
    scheduler.recorder.waits.turn("source", clock())
    permits = scheduler.limiter.permits()
    try:
        with reporting_to(scheduler.recorder, permits):
            answer = lookup(ask.request)
    except Exception as error:
        scheduler.failed(ask, error, clock())
    else:
        if permits.waited:
            ask = replace(ask, asked=ask.asked + permits.waited)
        scheduler.answered(ask, answer, clock())


def _sleep_until(
    scheduler: RequestScheduler, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    while until > (now := clock()):
        scheduler.recorder.waits.turn(scheduler.blocked_by(now), now)
        sleep(min(until, scheduler.show(now)) - now)
    scheduler.recorder.waits.turn(None, now)
