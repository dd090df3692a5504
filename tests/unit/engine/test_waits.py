"""For what a task waits: one cause at a time, and never more than its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import Budget
from lookup_hints.metrics.lookup_metrics import Cause, CountsByKey
from lookup_hints.metrics.task_recorder import Waits
from lookup_hints.testing import FakeConnector, looked_up
from tests.unit.engine.support import ON_ERROR, ON_MISS, SCHEMA, asks, keys, names_of, rows, scheduler


def people(*present: int) -> FakeConnector:
    return FakeConnector({"id": SCHEMA.field("id").type}, [(each,) for each in present], key=["id"])


@given(st.lists(st.tuples(st.sampled_from(["source", "slot", "retry", None]), st.floats(0.0, 9.0))))
def test_all_waits_together_are_no_longer_than_the_time(turns: list[tuple[Cause | None, float]]) -> None:
    waits, now = Waits(), 0.0
    for cause, seconds in turns:
        waits.turn(cause, now)
        now += seconds
    waits.turn(None, now)
    expected = sum(seconds for cause, seconds in turns if cause is not None)
    assert waits.total.total == pytest.approx(expected)


def test_waiting_time_reported_late_is_not_counted_twice() -> None:
    waits = Waits()
    waits.turn("source", 0.0)
    waits.turn("slot", 2.0)  # a deadline, told a moment before it
    waits.turn(None, 1.0)
    waits.turn("retry", 1.5)
    waits.turn(None, 3.0)
    assert waits.total == CountsByKey({"source": 2.0, "retry": 1.0})


# --- what the scheduler says


def test_answers_are_waited_for_when_nothing_else_may_be_asked() -> None:
    lookup = scheduler(capacity=2)
    lookup.add(keys(1))
    asks(lookup)
    assert lookup.blocked_by(0.0) == "source"


def test_a_slot_is_waited_for_where_more_keys_could_be_asked() -> None:
    lookup = scheduler(capacity=2, batch_size=1)
    lookup.add(keys(1, 2, 3))
    first, _ = asks(lookup)
    assert lookup.blocked_by(0.0) == "slot"
    lookup.answered(first, names_of()(first.request), 1.0)
    asks(lookup, 1.0)
    assert lookup.blocked_by(1.0) == "source"


def test_a_slot_is_waited_for_that_settled_keys_hold_behind_others() -> None:
    lookup = scheduler(capacity=2, batch_size=1)
    lookup.add(keys(1, 2, 3))
    _, second = asks(lookup)
    lookup.answered(second, names_of()(second.request), 1.0)
    assert asks(lookup, 1.0) == []
    assert lookup.blocked_by(1.0) == "slot"


def test_keys_that_are_due_again_wait_for_a_slot() -> None:
    lookup = scheduler(capacity=1, batch_size=1, retry=ON_MISS, ordered=False)
    lookup.add(keys(1, 2))
    (first,) = asks(lookup)
    lookup.answered(first, rows(), 0.0)
    asks(lookup)
    assert lookup.blocked_by(1.0) == "source"  # 1 is not due yet
    assert lookup.blocked_by(11.0) == "slot"


def test_a_retry_is_waited_for_where_nothing_is_under_way() -> None:
    lookup = scheduler(retry=ON_ERROR)
    lookup.add(keys(1))
    lookup.failed(asks(lookup)[0], ConnectorError("down"), 0.0)
    assert lookup.blocked_by(0.0) == "retry"


# --- what the runners count


@pytest.mark.parametrize("asynchronous", [False, True])
def test_waits_for_the_source_and_for_retries_are_counted_apart(asynchronous: bool) -> None:
    source = people(1, 2)
    source.miss(2)
    source.delay(1, seconds=3.0)
    found = looked_up(source, [(1,), (2,)], retry=ON_MISS, asynchronous=asynchronous)
    waited = found.metrics.waited.counts
    assert waited["source"] == pytest.approx(3.0)
    assert waited["retry"] == pytest.approx(10.0, abs=0.2)
    assert found.metrics.waited.total == pytest.approx(found.seconds)


ONE_A_SECOND = Budget(rate=1.0, task_rate=1.0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_rate_limit_is_counted(asynchronous: bool) -> None:
    found = looked_up(
        people(), [(1,), (2,), (3,)], budget=ONE_A_SECOND, batch_size=1, asynchronous=asynchronous
    )
    assert found.metrics.waited.counts == {"budget": pytest.approx(2.0)}
    assert found.seconds == pytest.approx(2.0)


def test_a_sync_call_is_the_source_even_at_a_rate() -> None:
    source = people()
    source.delay(1, seconds=0.25)
    found = looked_up(source, [(1,), (2,)], budget=ONE_A_SECOND, batch_size=1, asynchronous=False)
    assert found.metrics.waited.counts == {"budget": pytest.approx(0.75), "source": pytest.approx(0.25)}


def test_a_full_capacity_is_counted() -> None:
    source = people()
    for key in range(6):
        source.delay(key, seconds=1.0)
    found = looked_up(source, [(key,) for key in range(6)], capacity=2, batch_size=1)
    assert found.metrics.waited.counts == {"slot": pytest.approx(2.0), "source": pytest.approx(1.0)}
