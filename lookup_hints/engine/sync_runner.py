"""Drives a scheduler with direct calls, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from lookup_hints.engine.arrow import Keys
from lookup_hints.engine.backlog import ScheduledRequest, WaitUntil
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.permits import BlockingRequests
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from lookup_hints.spi.request_context import reporting_to


class BlockingCall(Protocol):
    """Gives the answer of a call that may take so many seconds, about, and then as many as ``more`` says."""

    def __call__(
        self, work: Callable[[], Answer], seconds: float | None, more: Callable[[], float], /
    ) -> Answer: ...


def call_here(work: Callable[[], Answer], _: float | None, __: Callable[[], float]) -> Answer:
    """On the thread of the task itself, for a connector that cannot hang."""
    return work()


def run_sync(
    scheduler: RequestScheduler,
    inputs: Iterator[Keys],
    lookup: Callable[[LookupRequest], Answer],
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    call: BlockingCall = call_here,
) -> Iterator[Settled]:
    """Settle the rows of ``inputs``, in their order, asking ``lookup`` one request at a time.

    While keys wait for a retry, others are asked, as long as there is input and room for it; it sleeps
    when there is nothing else to do. ``call`` makes each call, on the thread of the connector.
    """
    recorder = scheduler.recorder
    requests = BlockingRequests(lookup, scheduler.connector, scheduler.limiter, clock, recorder.observer)
    pending_waits = recorder.pending_waits
    pending_waits.on_change = lambda: recorder.waits.turn(pending_waits.most_of(1) or "source", clock())
    try:
        while not scheduler.is_done:
            now = clock()
            scheduler.show(now)
            step = scheduler.next(now)
            if isinstance(step, ScheduledRequest):
                _run_request(scheduler, step, requests, call, clock)
            elif scheduler.wants_input:
                scheduler.add(next(inputs, None))
            elif isinstance(step, WaitUntil):
                _sleep_until(scheduler, step.time, clock, sleep)
            yield from scheduler.finished()
    finally:
        recorder.close()
        requests.close()


def _run_request(
    scheduler: RequestScheduler,
    ask: ScheduledRequest,
    requests: BlockingRequests,
    call: BlockingCall,
    clock: Callable[[], float],
) -> None:
    scheduler.recorder.waits.turn("source", clock())
    permits = scheduler.limiter.permits()

    def late_at() -> float:
        return scheduler.late_at(ask, permits.waited)

    begun = ask.asked

    def send() -> Answer:
        nonlocal begun
        begun = clock()  # answers are as old as this: an earlier call may have kept the thread until now
        return requests.send(ask.request, late_at)

    outcome: Answer | Exception
    try:
        with reporting_to(scheduler.recorder, permits):
            outcome = call(send, ask.request.timeout, lambda: late_at() - clock())
    except Exception as error:
        requests.give_up()
        outcome = error
    ask = replace(ask, asked=begun)
    if permits.waited:
        ask = scheduler.forgive(ask, permits)
    if isinstance(outcome, Exception):
        scheduler.failed(ask, outcome, clock())
    else:
        scheduler.answered(ask, outcome, clock())


def _sleep_until(
    scheduler: RequestScheduler, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    while until > (now := clock()):
        scheduler.recorder.waits.turn(scheduler.blocked_by(now), now)
        sleep(min(until, scheduler.show(now)) - now)
    scheduler.recorder.waits.turn(None, now)
