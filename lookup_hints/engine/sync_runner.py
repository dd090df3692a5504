"""Drives a flow with direct calls, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lookup_hints.engine.arrow import Keys
from lookup_hints.engine.flow import LookupFlow, feed
from lookup_hints.engine.permits import with_permits
from lookup_hints.engine.steps import Ask, WaitUntil
from lookup_hints.engine.window import Settled
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from lookup_hints.spi.request_context import reporting_to, using_permits


def run_sync(
    flow: LookupFlow,
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
    lookup = with_permits(lookup, flow.connector, flow.limiter, clock)
    pending_waits = flow.recorder.pending_waits
    pending_waits.on_change = lambda: flow.waits(pending_waits.most_of(1) or "source", clock())
    try:
        while not flow.is_done:
            now = clock()
            flow.show(now)
            step = flow.next(now)
            if isinstance(step, Ask):
                _ask(flow, step, lookup, clock)
            elif flow.wants_input:
                feed(flow, next(inputs, None))
            elif isinstance(step, WaitUntil):
                _wait(flow, step.time, clock, sleep)
            yield from flow.finished()
    finally:
        flow.recorder.close()
        flow.limiter.close()


def _ask(
    flow: LookupFlow,
    ask: Ask,
    lookup: Callable[[LookupRequest], Answer],
    clock: Callable[[], float],
) -> None:
    flow.waits("source", clock())
    permits = flow.limiter.permits()
    try:
        with reporting_to(flow.recorder), using_permits(permits):
            answer = lookup(ask.request)
    except Exception as error:
        flow.failed(ask, error, clock())
    else:
        if permits.waited:
            ask = replace(ask, asked=ask.asked + permits.waited)
        flow.answered(ask, answer, clock())


def _wait(flow: LookupFlow, until: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    while until > (now := clock()):
        flow.waits(flow.blocked_by(now), now)
        sleep(min(until, flow.show(now)) - now)
    flow.waits(None, now)
