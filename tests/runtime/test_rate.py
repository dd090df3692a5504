"""The pace of requests: its bound, and that the flow keeps to it in every runner."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.retry import FixedDelay
from lookup_hints.runtime.async_runner import AsyncDriver, run_async
from lookup_hints.runtime.flow import LookupFlow
from lookup_hints.runtime.rate import BUNCH_SECONDS, Pace
from lookup_hints.runtime.row_runner import RowDriver
from lookup_hints.runtime.sync_runner import run_sync
from tests.runtime.support import Asked, Clock, VirtualLoop, handed_back, keys, names_of, slow, spec
from tests.runtime.test_row_runner import People, named


def within(times: list[float], rate: float) -> None:
    """No stretch of time has more requests than ``rate`` allows."""
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            allowed = rate * (times[last] - start + BUNCH_SECONDS) + 1
            assert last - first + 1 <= allowed + 1e-6, (times[first : last + 1], rate)


@given(
    rate=st.floats(0.01, 10_000),
    waits=st.lists(st.floats(0, 2), min_size=1, max_size=60),
    wishes=st.lists(st.integers(1, 50), min_size=1, max_size=60),
)
def test_no_stretch_of_time_has_more_than_the_rate_allows(
    rate: float, waits: list[float], wishes: list[int]
) -> None:
    pace, first, sent = Pace(rate), 3.0, []
    now = first
    assert not pace.allowed(now)
    for wait, wish in zip(waits, wishes, strict=False):
        now += wait
        taken = min(wish, pace.allowed(now))
        pace.take(taken)
        sent += [now] * taken
    within(sent, rate)
    assert all(number + 1 <= rate * (time - first) + 1e-6 for number, time in enumerate(sent))


@given(rate=st.floats(0.01, 10_000), requests=st.integers(1, 50))
def test_it_opens_when_it_says_so_and_not_before(rate: float, requests: int) -> None:
    pace, now = Pace(rate), 5.0
    for number in range(requests):
        opens = pace.opens(now)
        assert opens >= now
        if opens > now:
            assert not pace.allowed(now)
        now = opens
        assert pace.allowed(now), number
        pace.take(1)
    assert now - 5.0 <= requests / rate + 1e-6


def test_sync_requests_go_out_at_the_rate_and_nothing_is_lost() -> None:
    clock, times = Clock(), []
    asked = Asked(names_of())
    answer = asked.answer

    def noted(request):  # type: ignore[no-untyped-def]
        times.append(clock())
        return answer(request)

    asked.answer = noted
    flow = LookupFlow(spec(asked, batch_size=2, rate=4.0), Random(1))
    run = run_sync(flow, iter([keys(*range(20))]), asked.lookup, clock=clock, sleep=clock.sleep)
    assert handed_back(run) == named(*range(20))
    assert len(times) == 10
    assert clock() == pytest.approx(10 / 4)
    within(times, 4.0)


def test_async_batches_go_out_at_the_rate_while_others_are_in_flight(loop: VirtualLoop) -> None:
    asked = Asked(names_of())
    flow = LookupFlow(spec(asked, asynchronous=True, batch_size=1, rate=10.0), Random(1))
    driver = AsyncDriver(flow, slow(asked.lookup, lambda _: 3.0))
    assert handed_back(run_async(driver, iter([keys(*range(31))]), loop.call)) == named(*range(31))
    assert loop.time() == pytest.approx(3.1 + 3.0, abs=0.1), "the last of 31 goes out after 3.1 s"


@pytest.mark.parametrize("rate", [2.0, 100.0, 1000.0])
@pytest.mark.parametrize("capacity", [1, 10, 100])
def test_a_row_door_s_keys_go_out_at_the_rate(loop: VirtualLoop, rate: float, capacity: int) -> None:
    people = People(lambda key: 0.01 * (key % 7))
    lookup = spec(people, asynchronous=True, rate=rate, capacity=capacity)
    driver = RowDriver(LookupFlow(lookup, Random(1)), people, people.alookup_row, capacity)
    assert handed_back(run_async(driver, iter([keys(*range(60))]), loop.call)) == named(*range(60))
    within([time for time, _ in people.asked], rate)
    assert people.most_in_flight <= capacity
    if capacity == 100:
        assert loop.time() <= 60 / rate + 0.2


def test_retries_count(loop: VirtualLoop) -> None:
    people = People(lambda _: 0.0, failing=[0, 1, 2], healed_on=3)
    retry = FixedDelay(3, 0.001).if_exception()
    lookup = spec(people, asynchronous=True, rate=1.0, retry=retry)
    driver = RowDriver(LookupFlow(lookup, Random(1)), people, people.alookup_row, 100)
    assert handed_back(run_async(driver, iter([keys(*range(6))]), loop.call)) == named(*range(6))
    assert Counter(key for _, key in people.asked) == {0: 3, 1: 3, 2: 3, 3: 1, 4: 1, 5: 1}
    within([time for time, _ in people.asked], 1.0)
    assert loop.time() == pytest.approx(12.0, abs=0.3)


def test_a_row_of_short_tasks_keeps_to_the_rate_as_one_long_task_does(loop: VirtualLoop) -> None:
    people = People(lambda _: 0.0)
    for task in range(10):
        lookup = spec(people, asynchronous=True, rate=5.0)
        driver = RowDriver(LookupFlow(lookup, Random(1)), people, people.alookup_row, 100)
        assert handed_back(run_async(driver, iter([keys(task)]), loop.call)) == named(task)
    assert loop.time() == pytest.approx(10 / 5.0)
