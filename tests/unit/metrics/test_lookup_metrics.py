"""Counts add up over tasks, and say what came since."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.errors import ConnectorError
from lookup_hints.metrics.lookup_metrics import CountsByKey, Latencies, LookupMetrics, MaxGauge, about_counts
from lookup_hints.metrics.task_recorder import TaskRecorder
from tests.unit.engine.support import ON_ERROR, ON_MISS, asks, keys, rows, scheduler

SECONDS = st.floats(1e-6, 3600.0)


def tally_of(seconds: list[float]) -> TaskRecorder:
    recorder = TaskRecorder()
    recorder.took(seconds)
    return recorder


@given(st.lists(SECONDS, min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_exact_to_ten_percent(seconds: list[float], part: float) -> None:
    exact = sorted(seconds)[max(0, -int(-part * len(seconds) // 1) - 1)]
    assert tally_of(seconds).total.latency.quantile(part) == pytest.approx(exact, rel=0.1)


def test_a_request_of_a_second_is_in_the_p99() -> None:
    assert tally_of([0.001] * 98 + [1.0] * 2).total.latency.quantile(0.99) == pytest.approx(1.0, rel=0.1)
    assert Latencies().quantile(0.99) == 0.0


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_histograms_of_tasks_add_up_to_that_of_all(some: list[float], others: list[float]) -> None:
    both = tally_of(some).total + tally_of(others).total
    assert both.latency.counts == tally_of(some + others).total.latency.counts
    assert (both - tally_of(some).total).latency == tally_of(others).total.latency


def test_counts_by_key_add_up_key_by_key() -> None:
    one, other = CountsByKey({"a": 1}), CountsByKey({"a": 2, "b": 1})
    assert one + other == CountsByKey({"a": 3, "b": 1})
    assert (one + other) - other == one
    assert (one + other).total == 4


def test_the_largest_number_of_requests_in_flight_counts() -> None:
    recorder = TaskRecorder()
    for requests in (1, 3, 2):
        recorder.in_flight(requests)
    both = recorder.total + LookupMetrics(most_in_flight=MaxGauge(2))
    assert both.most_in_flight == 3
    assert (both - recorder.total).most_in_flight == 3


def test_each_count_has_a_unit_and_a_meaning() -> None:
    about = about_counts()
    assert [*about, "events"] == [each.name for each in fields(LookupMetrics)]
    assert all(each.unit and each.meaning for each in about.values())


def test_retries_are_counted_by_their_cause() -> None:
    missing = scheduler(retry=ON_MISS)
    missing.add(keys(1, 2))
    missing.answered(asks(missing)[0], rows((1, "a")), 0.0)
    assert (missing.metrics.retried_misses, missing.metrics.retried_failures) == (1, 0)
    failing = scheduler(retry=ON_ERROR)
    failing.add(keys(1, 2))
    failing.failed(asks(failing)[0], ConnectorError("down"), 0.0)
    assert (failing.metrics.retried_misses, failing.metrics.retried_failures) == (0, 2)
    assert failing.metrics.errors_by_class == CountsByKey({"ConnectorError": 1})


def test_each_request_is_timed_and_those_in_flight_are_counted() -> None:
    lookup = scheduler(batch_size=1, capacity=3)
    lookup.add(keys(1, 2, 3, 4))
    first, second, third = asks(lookup)
    lookup.answered(first, rows((1, "a")), 0.5)
    lookup.answered(second, rows((2, "b")), 2.0)
    lookup.answered(third, rows((3, "c")), 2.0)
    assert lookup.metrics.most_in_flight == 3
    assert lookup.metrics.latency.total == 3
    assert lookup.metrics.latency.quantile(0.3) == pytest.approx(0.5, rel=0.1)
    assert lookup.metrics.latency.quantile(0.99) == pytest.approx(2.0, rel=0.1)
