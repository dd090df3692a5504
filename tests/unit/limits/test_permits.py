"""What one task holds, who waits for it, and what all limits of an origin say together, on times that are made up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat

import pytest

from lookup_hints.errors import SourceDown, TooManyRequests
from lookup_hints.limits.adaptive_concurrency import START
from lookup_hints.limits.circuit_breaker import PROBES, Breaker
from lookup_hints.limits.origin_limiter import OriginLimiter, Waiter, WaitQueue
from lookup_hints.limits.shared_limits import (
    CELLS,
    IS_SHUT,
    POLL_SECONDS,
    UNBOUNDED,
    Lack,
    Leases,
    OriginSignal,
    Rules,
    SharedLimits,
    in_memory,
)
from lookup_hints.limits.shared_memory_record import Record
from lookup_hints.limits.task_permits import PUBLISH_SECONDS, TaskPermits
from lookup_hints.spi.request_context import NOBODY, Ending, Wait
from tests.unit.engine.support import VirtualLoop

NOW = 1000.0


# --- the queue


class Waits:
    """Listens to what one request waits for."""

    def __init__(self) -> None:
        self.current: list[Wait] = []

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[None]:
        self.current.append(wait)
        yield
        self.current.remove(wait)

    sent, received, throttled, http = NOBODY.sent, NOBODY.received, NOBODY.throttled, NOBODY.http


def queue_of(loop: VirtualLoop, waiting: int) -> tuple[WaitQueue, list[Waiter], list[Waits]]:
    reports = [Waits() for _ in range(waiting)]
    waiters = [Waiter(loop.create_future(), each, "throttle") for each in reports]
    return WaitQueue(waiters), waiters, reports


def times(permits: int, lack: Lack = (0.5, "budget")) -> Callable[[], Lack | None]:
    left = iter([*repeat(None, permits)])
    return lambda: next(left, lack)


@pytest.mark.parametrize(
    ("waiting", "cancelled", "permits", "granted"),
    [
        (3, (), 0, []),
        (3, (), 2, [0, 1]),
        (3, (), 9, [0, 1, 2]),
        (3, (0,), 2, [1, 2]),
        (4, (1, 2), 2, [0, 3]),
        (0, (), 2, []),
    ],
)
def test_permits_go_to_those_who_came_first_and_still_wait(
    loop: VirtualLoop, waiting: int, cancelled: tuple[int, ...], permits: int, granted: list[int]
) -> None:
    queue, waiters, _ = queue_of(loop, waiting)
    for number in cancelled:
        waiters[number].granted.cancel()
    lack = queue.serve(times(permits))
    turns = [each.granted for each in waiters]
    assert [n for n, turn in enumerate(turns) if turn.done() and not turn.cancelled()] == granted
    assert lack == ((0.5, "budget") if queue else None)


def test_no_permit_is_taken_for_a_cancelled_request(loop: VirtualLoop) -> None:
    queue, [one], _ = queue_of(loop, 1)
    one.granted.cancel()
    assert queue.serve(lambda: pytest.fail("it was")) is None


def test_a_waiting_request_reports_the_reason(loop: VirtualLoop) -> None:
    queue, _, reports = queue_of(loop, 2)
    for why in ("outage", "outage", "budget"):
        lack: Lack = (1.0, why)
        queue.serve(times(0, lack))
        assert [each.current for each in reports] == [[why]] * len(reports)
        late = Waits()
        queue.append(Waiter(loop.create_future(), late, "throttle"))
        reports.append(late)
        queue.serve(times(0, lack))
        assert [each.current for each in reports] == [[why]] * len(reports)


def test_an_error_of_the_limiter_fails_all_waiting_requests(loop: VirtualLoop) -> None:
    queue, waiters, _ = queue_of(loop, 3)
    waiters[1].granted.cancel()

    def refuses() -> Lack | None:
        raise TooManyRequests("no more")

    assert queue.serve(refuses) is None
    assert not queue
    assert [str(each.granted.exception()) for each in waiters[::2]] == ["no more", "no more"]


def test_who_is_cancelled_while_waiting_sends_nothing_that_counts(loop: VirtualLoop) -> None:
    rules = Rules(concurrency=1, max_requests=2)
    limiter = OriginLimiter(in_memory(), rules, spent=in_memory(), process=os.getpid(), clock=loop.time)

    async def run() -> None:
        await limiter.acquire(None)
        gone, last = loop.create_task(limiter.acquire(None)), loop.create_task(limiter.acquire(None))
        await asyncio.sleep(0)
        gone.cancel()
        limiter.release(loop.time(), "served")
        await last
        with pytest.raises(asyncio.CancelledError):
            await gone
        limiter.close()

    loop.run_until_complete(run())


def test_who_does_not_wait_for_a_source_that_is_down_waits_for_its_probes(loop: VirtualLoop) -> None:
    store = in_memory()
    limiter = OriginLimiter(store, Rules(waits_on_open=False), process=os.getpid(), clock=loop.time)

    async def run() -> None:
        assert limiter.try_acquire(20) >= 10
        for _ in range(20):
            limiter.release(loop.time(), "lost")
        with pytest.raises(SourceDown, match=r"It is asked again in 5 s"):
            await limiter.acquire(None)
        await asyncio.sleep(5.0)
        assert limiter.try_acquire(20) == PROBES
        # If it failed at once, its task would fail, and its probes would be cancelled before their answer.
        waits = loop.create_task(limiter.acquire(None))
        await asyncio.sleep(0.1)
        assert not waits.done()
        limiter.release(loop.time() - 0.1, "served")
        await waits
        limiter.close()

    loop.run_until_complete(run())


# --- a task


def task(rules: Rules = Rules(), limits: SharedLimits | None = None) -> TaskPermits:  # noqa: B008
    return TaskPermits(limits or SharedLimits([0.0] * CELLS), rules, 7, lambda _: True)


def acquires(permits: TaskPermits, now: float, waiting: int = 0) -> Lack | None:
    """As the limiter does it."""
    if permits.use():
        return None
    permits.warm(now)
    lack = permits.lack(waiting, now)
    if lack is None:
        permits.sends(now)
    return lack


@pytest.mark.parametrize(
    ("rules", "granted", "lack"),
    [
        (Rules(), START, (POLL_SECONDS, "throttle")),
        (Rules(concurrency=3), 3, (POLL_SECONDS, "budget")),
        (Rules(concurrency=50), START, (POLL_SECONDS, "throttle")),
        (Rules(concurrency=50, adapts=False), 50, (POLL_SECONDS, "budget")),
        (Rules(rate=1.0), 1, (1.0, "budget")),
        (Rules(rate=1.0, concurrency=1), 1, (POLL_SECONDS, "budget")),
    ],
)
def test_permits_are_taken_up_to_the_least_of_the_limits(rules: Rules, granted: int, lack: Lack) -> None:
    permits = task(rules)
    answers = [acquires(permits, NOW) for _ in range(granted + 1)]
    assert answers == [*repeat(None, granted), lack]
    assert permits.in_use == granted


def test_who_misses_its_time_waits_for_another_one() -> None:
    limits = SharedLimits([0.0] * CELLS)
    late, other = (task(Rules(rate=2.0), limits=limits) for _ in range(2))
    assert acquires(other, NOW) is None
    assert acquires(late, NOW) == (0.5, "budget")
    assert acquires(other, NOW) == (1.0, "budget")
    assert acquires(other, NOW + 1.0) is None
    seconds, _ = acquires(late, NOW + 1.2) or (0.0, "")
    assert seconds == pytest.approx(0.3), "two would go out at once"
    assert acquires(late, NOW + 1.55) is None, "so little is nothing"


def test_a_permit_in_hand_is_used_without_a_look_at_the_others() -> None:
    limits = SharedLimits([0.0] * CELLS)
    permits = task(limits=limits)
    assert not permits.use(), "none is in hand"
    acquires(permits, NOW, waiting=4)
    assert [permits.use() for _ in range(5)] == [*repeat(True, 4), False]
    permits.release(NOW, "served", None, 0, NOW)
    limits.cells[IS_SHUT] = 1.0
    assert not permits.use(), "a pause may be going on"


@pytest.mark.parametrize(
    ("ending", "pause", "is_free", "is_told"),
    [
        ("served", None, True, False),
        ("served", 3.0, True, True),
        ("unknown", None, True, False),
        ("lost", None, True, True),
        ("refused", 3.0, True, True),
        ("refused", None, False, True),
    ],
)
def test_refusals_and_losses_are_published_at_once(
    ending: Ending, pause: float | None, is_free: bool, is_told: bool
) -> None:
    permits = task()
    acquires(permits, NOW)
    assert permits.release(NOW, ending, pause, 0, NOW) == is_told
    assert (permits.in_use == 0) == is_free
    permits.warm(NOW + 0.1)
    assert permits.in_use == 0, "after a round, a refused request is over for the source, too"


def test_idle_permits_are_returned_with_the_next_publish() -> None:
    limits = SharedLimits([0.0] * CELLS)
    permits = task(limits=limits)
    acquires(permits, NOW, waiting=4)
    assert limits.leases.held == 5
    permits.publish(NOW + PUBLISH_SECONDS)
    assert limits.leases.held == 1
    assert permits.release(NOW, "served", None, 0, NOW + 2 * PUBLISH_SECONDS), "it is time to tell"
    permits.drop(NOW + 1.0)
    assert limits.leases.held == 0


def test_a_task_gives_back_what_another_one_lacks() -> None:
    limits = SharedLimits([0.0] * CELLS)
    one, other = task(Rules(concurrency=4), limits), task(Rules(concurrency=4), limits)
    for _ in range(4):
        acquires(one, NOW, waiting=4)
    assert acquires(other, NOW) == (POLL_SECONDS, "budget")
    assert one.release(NOW, "served", None, 1, NOW), "it has more than is fair"
    one.publish(NOW)
    one.rebalance(1)
    assert acquires(other, NOW) is None


def test_a_request_keeps_its_permit_for_as_long_as_it_may_last() -> None:
    limits = SharedLimits([0.0] * CELLS)
    acquires(task(Rules(timeout=3.0), limits), NOW)
    limits.leases.drop_lost(lambda _: True, NOW + 3.0)
    assert limits.leases.held == 1


def test_a_task_takes_no_more_than_its_capacity() -> None:
    limits = SharedLimits([0.0] * CELLS)
    permits = task(Rules(capacity=3), limits)
    acquires(permits, NOW, waiting=9)
    assert limits.leases.held == 3
    assert acquires(permits, NOW, waiting=9) is None
    assert limits.leases.held == 3


def test_what_was_served_and_sent_is_published() -> None:
    limits = SharedLimits([0.0] * CELLS)
    permits = task(limits=limits)
    for waiting in range(START, 0, -1):
        acquires(permits, NOW, waiting - 1)
    for _ in range(START):
        permits.release(NOW, "served", None, 0, NOW + 0.01)
    permits.publish(NOW + 0.01)
    assert permits.allowed == 2 * START
    assert limits.limit.round == pytest.approx(0.01)
    limits.retries.reserve(100, NOW + 0.01)
    assert limits.retries.reserve(12, NOW + 0.01) == pytest.approx(1.0), "ten requests allow two retries"


@pytest.mark.parametrize(
    ("endings", "pause", "is_shut", "outages"),
    [
        (["served"] * 20, None, False, 0),
        (["lost"] * 19, None, False, 0),
        (["lost"] * 20, None, True, 1),
        (["refused"], 3.0, True, 0),
        (["refused"], None, False, 0),
    ],
)
def test_an_outage_and_a_pause_are_seen_by_all(
    endings: list[Ending], pause: float | None, is_shut: bool, outages: int
) -> None:
    limits = SharedLimits([0.0] * CELLS)
    permits = task(limits=limits)
    for ending in endings:
        acquires(permits, NOW)
        permits.release(NOW, ending, pause, 0, NOW)
    permits.publish(NOW)
    assert (bool(limits.cells[IS_SHUT]), permits.outages) == (is_shut, outages)
    assert (permits.allowed < START) == (endings[0] != "served"), "less is asked of who does not serve"


def test_permits_of_dead_tasks_are_returned_when_others_lack_them() -> None:
    limits, rules = SharedLimits([0.0] * CELLS), Rules(concurrency=2)
    dead: set[int] = set()
    one, other = (TaskPermits(limits, rules, number, lambda each: each not in dead) for number in (7, 8))
    acquires(other, NOW, waiting=1)
    answers = []
    for seconds in (0.0, 0.4, 0.5):
        answers.append(acquires(one, NOW + seconds))
        dead.add(8)
    assert answers == [(POLL_SECONDS, "budget"), (POLL_SECONDS, "budget"), None], (
        "each half a second it looks"
    )


# --- all of it


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (Rules(), START),
        (Rules(concurrency=3), 3),
        (Rules(adapts=False), UNBOUNDED),
        (Rules(adapts=False, concurrency=3), 3),
    ],
)
def test_what_is_allowed_is_what_was_found_and_at_most_the_budget(rules: Rules, allowed: int) -> None:
    assert SharedLimits([0.0] * CELLS).allowed(rules) == allowed


LOST: list[tuple[Ending, float | None]] = [("lost", None)]
REFUSED: list[tuple[Ending, float | None]] = [("refused", 10.0)]


@pytest.mark.parametrize(
    ("signals", "after", "lack", "is_shut"),
    [
        ([], 0.0, None, False),
        (LOST, 0.0, None, False),
        (LOST * 20, 0.0, (5.0, "outage"), True),
        (LOST * 20, 5.0, None, True),
        (REFUSED, 0.0, (pytest.approx(0.1), "throttle"), True),
        (REFUSED, 0.1, None, True),
        (REFUSED, 10.0, None, False),
        ([("served", 10.0)], 0.1, (pytest.approx(9.9), "throttle"), True),
        ([("refused", None)], 0.0, None, False),
        ([*REFUSED, *LOST * 20], 0.0, (5.0, "outage"), True),
    ],
)
def test_an_outage_is_waited_for_before_a_pause(
    signals: list[tuple[Ending, float | None]], after: float, lack: Lack | None, is_shut: bool
) -> None:
    limits = SharedLimits([0.0] * CELLS)
    opened = [limits.ended(OriginSignal(NOW, *each, NOW), Rules()) for each in signals]
    limits.cells[IS_SHUT] = 1.0
    assert limits.shut(30.0, NOW + after) == lack
    assert sum(opened) == (len(signals) >= 20)
    assert bool(limits.cells[IS_SHUT]) == is_shut, "until it is over"


def test_where_nothing_less_can_be_asked_a_refusal_is_a_pause() -> None:
    limits = SharedLimits([0.0] * CELLS)
    limits.ended(OriginSignal(NOW, "refused", None, NOW), Rules(concurrency=1))
    assert limits.pause.opens == NOW + 1.0


def test_no_two_limits_share_a_cell() -> None:
    limits = SharedLimits([0.0] * CELLS)
    records: list[Record] = [limits.limit, limits.pause, limits.rate, limits.retries, limits.breaker]
    records += [limits.leases, limits.spent]
    end = IS_SHUT + 1
    for record in records:
        assert record.start == end
        end += record.cells_for() if isinstance(record, Breaker | Leases) else record.SIZE
    assert end <= CELLS


def test_what_goes_out_in_a_pause_or_an_outage_is_a_try() -> None:
    limits = SharedLimits([0.0] * CELLS)
    limits.cells[IS_SHUT] = 1.0
    limits.ended(OriginSignal(NOW, "refused", 10.0, NOW), Rules())
    assert limits.shut(30.0, NOW + 0.2) is None
    limits.sends(NOW + 0.2)
    assert limits.shut(30.0, NOW + 0.2) == (POLL_SECONDS, "throttle")
    limits.served(1, NOW + 0.2, NOW + 0.3, Rules(), NOW + 0.3)
    assert limits.shut(30.0, NOW + 0.3) is None
    for _ in range(20):
        limits.ended(OriginSignal(NOW + 1.0, "lost", None, NOW + 1.0), Rules())
    limits.cells[IS_SHUT] = 1.0
    for _ in range(PROBES):
        assert limits.shut(30.0, NOW + 6.0) is None
        limits.sends(NOW + 6.0)
    assert limits.shut(30.0, NOW + 6.0) == (5.0, "outage")
