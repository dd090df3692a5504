"""The async runner, on a loop whose time passes by its own timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine import async_runner
from lookup_hints.engine.arrow import Keys
from lookup_hints.engine.async_runner import AsyncRunner, run_async
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import AnswerError, ConnectorError, LookupTimeout
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from tests.unit.engine.support import (
    ON_ERROR,
    ON_MISS,
    VirtualLoop,
    handed_back,
    ids,
    keys,
    names_of,
    rows,
    slow,
    spec,
)

Lookup = Callable[[LookupRequest], Awaitable[Answer]]


def run(loop: VirtualLoop, lookup: Lookup, *inputs: Keys, **settings: Any) -> Iterator[Settled]:
    runner = AsyncRunner(RequestScheduler(spec(**settings), Random(1)), lookup)
    return run_async(runner, iter(inputs), loop.call)


class Recorder:
    """A lookup that takes a time given per key, and records what happens to it."""

    def __init__(self, latency: Callable[[int], float], *missing: int) -> None:
        self.latency = latency
        self.answer = names_of(*missing)
        self.in_flight = 0
        self.most_in_flight = 0
        self.cancelled: list[int] = []
        self.started: list[tuple[float, list[int]]] = []

    async def __call__(self, request: LookupRequest) -> pa.Table:
        asked = ids(request)
        self.started.append((asyncio.get_running_loop().time(), asked))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency(asked[0]))
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)  # handing back a connection takes time, too
            self.cancelled.append(asked[0])
            raise
        finally:
            self.in_flight -= 1
        return self.answer(request)


def test_requests_run_at_once_up_to_capacity(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 1.0)
    found = handed_back(run(loop, lookup, keys(*range(20)), batch_size=1, capacity=5))
    assert found == [[(key, f"n{key}")] for key in range(20)]
    assert lookup.most_in_flight == 5
    assert loop.time() == pytest.approx(4.0)


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_leave_in_input_order_when_late_ones_are_answered_first(
    loop: VirtualLoop, ordered: bool
) -> None:
    lookup = Recorder(lambda key: 10.0 - key)
    found = handed_back(run(loop, lookup, keys(*range(10)), batch_size=1, ordered=ordered))
    assert found == [[(key, f"n{key}")] for key in range(10)]


@pytest.mark.parametrize(("ordered", "seconds"), [(True, 27.0), (False, 20.0)])
def test_a_slow_head_costs_its_own_time_only_when_unordered_is_allowed(
    loop: VirtualLoop, ordered: bool, seconds: float
) -> None:
    lookup = Recorder(lambda key: 20.0 if key == 0 else 1.0)
    list(run(loop, lookup, keys(*range(10)), batch_size=1, capacity=2, ordered=ordered))
    assert loop.time() == pytest.approx(seconds, abs=3.0)


def test_waiting_keys_let_all_others_through(loop: VirtualLoop) -> None:
    late = set(range(0, 200, 10))
    asked: dict[int, int] = {}

    def answer(request: LookupRequest) -> pa.Table:
        for key in ids(request):
            asked[key] = asked.get(key, 0) + 1
        missing = [key for key in ids(request) if key in late and asked[key] < 4]
        return names_of(*missing)(request)

    inputs = [keys(*range(start, start + 20)) for start in range(0, 200, 20)]
    lookup = slow(answer, lambda _: 0.001)
    found = handed_back(run(loop, lookup, *inputs, batch_size=20, capacity=1, retry=ON_MISS))
    assert found == [[(key, f"n{key}")] for key in range(200)]
    assert 30.0 <= loop.time() < 31.0


@pytest.mark.parametrize(("stops_early", "read"), [(False, [0.0, 1.0, 1.0]), (True, [0.0, 1.0, 2.0])])
def test_nothing_is_read_ahead_of_an_answer_where_a_limit_may_stop_the_task(
    loop: VirtualLoop, stops_early: bool, read: list[float]
) -> None:
    times: list[float] = []

    def inputs() -> Iterator[Keys]:
        for key in range(3):
            times.append(loop.time())
            yield keys(key)

    runner = AsyncRunner(RequestScheduler(spec(stops_early=stops_early), Random(1)), Recorder(lambda _: 1.0))
    found = handed_back(run_async(runner, inputs(), loop.call))
    assert found == [[(key, f"n{key}")] for key in range(3)]
    assert times == read


def test_keys_that_wait_for_a_retry_do_not_stop_reading_where_a_limit_may(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 1.0, 0)
    list(run(loop, lookup, keys(0), keys(1), retry=ON_MISS, stops_early=True))
    assert [(time, asked) for time, asked in lookup.started if asked == [1]] == [(1.0, [1])]


def test_the_end_of_the_input_waits_for_retries(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 0.0, 1)
    assert handed_back(run(loop, lookup, keys(1, 2), retry=ON_MISS)) == [[], [(2, "n2")]]
    assert [time for time, _ in lookup.started] == [0.0, 10.0, 20.0, 30.0]


def test_a_request_out_of_time_is_cancelled_and_fails_the_task(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 100.0)
    with pytest.raises(LookupTimeout, match=r"within the timeout of 5 s, .* no answer within 5 s"):
        list(run(loop, lookup, keys(1), timeout=5.0))
    assert lookup.cancelled == [1]


@pytest.mark.parametrize(("on_error", "expected"), [("null", []), ("skip", None)])
def test_on_error_covers_requests_out_of_time(loop: VirtualLoop, on_error: str, expected: object) -> None:
    lookup = Recorder(lambda key: 100.0 if key == 1 else 0.0)
    found = handed_back(run(loop, lookup, keys(1, 2), timeout=5.0, batch_size=1, on_error=on_error))
    assert found == [expected, [(2, "n2")]]


def test_a_time_out_of_the_driver_is_an_error_like_any_other(loop: VirtualLoop) -> None:
    attempts: list[int] = []

    async def lookup(request: LookupRequest) -> pa.Table:
        attempts.append(1)
        if len(attempts) == 1:
            raise asyncio.TimeoutError("connect")
        return names_of()(request)

    assert handed_back(run(loop, lookup, keys(1), retry=ON_ERROR)) == [[(1, "n1")]]
    assert loop.time() == 10.0


def test_a_failure_cancels_and_awaits_all_others(loop: VirtualLoop) -> None:
    slow_ones = Recorder(lambda _: 1000.0)

    async def lookup(request: LookupRequest) -> Answer:
        if ids(request) == [0]:
            await asyncio.sleep(1.0)
            raise OSError("reset")
        return await slow_ones(request)

    with pytest.raises(ConnectorError, match="OSError: reset") as raised:
        list(run(loop, lookup, keys(0, 1, 2), batch_size=1))
    assert isinstance(raised.value.__cause__, OSError)
    assert sorted(slow_ones.cancelled) == [1, 2]
    assert slow_ones.in_flight == 0


def test_a_wrong_answer_fails_the_task(loop: VirtualLoop) -> None:
    lookup = slow(lambda _: pa.table({"id": [1]}), lambda _: 0.0)
    with pytest.raises(AnswerError, match="no column 'name'"):
        list(run(loop, lookup, keys(1), on_error="null"))


def test_an_early_close_cancels_and_awaits_what_is_in_flight(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda key: 0.0 if key == 1 else 1000.0)
    results: Any = run(loop, lookup, keys(1), keys(2), keys(3), keys(4), batch_size=1, timeout=10_000.0)
    assert handed_back([next(results)]) == [[(1, "n1")]]
    results.close()
    assert lookup.in_flight == 0
    assert loop.time() < 10.0


def test_nothing_is_sent_any_more_once_a_run_is_closed(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda key: 0.0 if key == 1 else 1000.0)
    inputs = (keys(1), keys(*range(2, 20)), keys(20))
    results: Any = run(loop, lookup, *inputs, batch_size=1, capacity=2, on_error="null", timeout=10_000.0)
    next(results)
    results.close()
    started = list(lookup.started)
    loop.call(asyncio.sleep(100.0))
    assert lookup.started == started


@pytest.mark.parametrize("steps", range(6))
def test_answers_that_come_while_a_run_is_closed_start_nothing_new(loop: VirtualLoop, steps: int) -> None:
    answers_are_there = asyncio.Event()

    async def lookup(request: LookupRequest) -> pa.Table:
        await answers_are_there.wait()
        return names_of()(request)

    scheduler = RequestScheduler(spec(batch_size=1, capacity=2), Random(1))
    runner = AsyncRunner(scheduler, lookup)

    async def close_amid_answers() -> None:
        await runner.feed(keys(*range(20)))
        await asyncio.sleep(1.0)
        answers_are_there.set()
        for _ in range(steps):  # each lets the answers come one step nearer to the scheduler
            await asyncio.sleep(0)
        before = scheduler.metrics.requests
        await runner.close()
        assert scheduler.metrics.requests == before < 20

    loop.call(close_amid_answers())


def test_an_interrupt_while_waiting_cancels_what_is_in_flight(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 1000.0)
    runner = AsyncRunner(RequestScheduler(spec(timeout=10_000.0), Random(1)), lookup)

    def inputs() -> Iterator[Keys]:
        yield keys(1)

    def call(coroutine: Any) -> Any:
        try:
            return loop.call(asyncio.wait_for(coroutine, 10.0))
        except asyncio.TimeoutError:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        list(run_async(runner, inputs(), call))
    assert lookup.cancelled == [1]
    assert lookup.in_flight == 0


def test_the_end_does_not_wait_long_for_a_request_that_will_not_stop(loop: VirtualLoop) -> None:
    stubborn_ends = 60.0

    async def lookup(request: LookupRequest) -> pa.Table:
        if ids(request) == [0]:
            raise OSError("reset")
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            await asyncio.sleep(stubborn_ends)
        return rows()

    with pytest.raises(ConnectorError):
        list(run(loop, lookup, keys(1, 0), batch_size=1))
    assert loop.time() == pytest.approx(async_runner.CLOSE_SECONDS)
    loop.call(asyncio.sleep(stubborn_ends))


def test_a_request_that_hands_back_after_its_time_is_not_cancelled_again_by_the_end(
    loop: VirtualLoop,
) -> None:
    handed_over: list[int] = []

    async def lookup(request: LookupRequest) -> pa.Table:
        try:
            await asyncio.sleep(1000.0)
        finally:
            if ids(request) == [1]:  # the other one fails the run meanwhile
                await asyncio.sleep(0.5)
                handed_over.append(1)
        return rows()

    with pytest.raises(LookupTimeout):
        list(run(loop, lookup, keys(1, 2), batch_size=1, timeout=3.0))
    assert handed_over == [1]
    assert loop.time() == 3.5


def test_a_request_whose_permit_came_late_has_its_whole_time(loop: VirtualLoop) -> None:
    store = in_memory()
    rules = Rules("people", concurrency=None, rate=1.25, adapts=False, timeout=1.0)
    own, of_another_task = (OriginLimiter(store, rules, clock=loop.time) for _ in range(2))
    assert of_another_task.try_acquire() == 1
    lookup = Recorder(lambda _: 0.7)
    scheduler = RequestScheduler(spec(timeout=1.0), Random(1), limiter=own)
    assert handed_back(run_async(AsyncRunner(scheduler, lookup), iter([keys(1)]), loop.call)) == [[(1, "n1")]]
    assert lookup.started == [(0.8, [1])]


def test_a_connector_that_cancels_itself_fails_instead_of_hanging(loop: VirtualLoop) -> None:
    async def lookup(request: LookupRequest) -> pa.Table:
        raise asyncio.CancelledError

    with pytest.raises(ConnectorError, match="the connector cancelled the lookup itself"):
        list(run(loop, lookup, keys(1)))


def test_an_error_of_the_input_passes_and_cancels_what_is_in_flight(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda key: float(key))

    def inputs() -> Iterator[Keys]:
        yield keys(0, 1000)
        raise EOFError("upstream")

    runner = AsyncRunner(RequestScheduler(spec(batch_size=1, timeout=10_000.0), Random(1)), lookup)
    with pytest.raises(EOFError):
        list(run_async(runner, inputs(), loop.call))
    assert lookup.cancelled == [1000]


def test_timers_give_up_keys_while_nothing_else_happens(loop: VirtualLoop) -> None:
    lookup = Recorder(lambda _: 6.0, 1)
    found = handed_back(run(loop, lookup, keys(1), retry=ON_MISS, timeout=20.0, on_error="skip"))
    assert found == [None]
    assert loop.time() == 21.0  # a cancelled request needs a second to end


@pytest.mark.parametrize("ends_after", [0.1, 60.0])
@pytest.mark.parametrize("on_error", ["fail", "null"])
def test_a_task_fails_a_second_after_its_timeout_at_most(
    loop: VirtualLoop, ends_after: float, on_error: str
) -> None:
    """Whatever a connector does when it is cancelled."""

    async def lookup(request: LookupRequest) -> pa.Table:
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            await asyncio.sleep(ends_after)
            if ends_after > 1.0:
                return names_of()(request)  # comes too late to be anybody's
            raise
        raise AssertionError("it was not cancelled")

    began = loop.time()
    run_once = partial(run, loop, lookup, keys(1, 2), timeout=3.0, batch_size=1, on_error=on_error)
    if on_error == "null":
        assert handed_back(run_once()) == [[], []]
    else:
        with pytest.raises(LookupTimeout, match="no answer within 3 s"):
            list(run_once())
    assert 3.0 <= loop.time() - began <= 4.1
    loop.call(asyncio.sleep(ends_after))
