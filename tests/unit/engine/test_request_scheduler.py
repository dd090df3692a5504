"""The scheduler alone: what it asks and when, told step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine import input_window
from lookup_hints.engine.arrow import distinct_keys
from lookup_hints.engine.backlog import Idle, ScheduledRequest, WaitUntil
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import AnswerError, ConnectorError, LookupTimeout, OptionError, Problem
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.retry import ExponentialDelay, FixedDelay, RetryPolicy
from tests.unit.engine.support import (
    ON_ERROR,
    ON_MISS,
    Asked,
    asks,
    handed_back,
    ids,
    keys,
    names_of,
    rows,
    scheduler,
    spec,
)

ALL = names_of()
NONE = rows()


def answer_all(of: RequestScheduler, found: Sequence[ScheduledRequest], now: float = 0.0) -> None:
    for ask in found:
        of.answered(ask, ALL(ask.request), now)


# --- asking and handing back


def test_equal_keys_of_a_window_are_asked_once() -> None:
    lookup = scheduler()
    lookup.add(keys(1, 2, 1, 1))
    (ask,) = asks(lookup)
    assert ids(ask) == [1, 2]
    lookup.answered(ask, rows((2, "b"), (1, "a")), 0.0)
    assert handed_back(lookup.finished()) == [[(1, "a")], [(2, "b")], [(1, "a")], [(1, "a")]]


def test_null_keys_are_never_asked_and_match_nothing() -> None:
    lookup = scheduler()
    lookup.add(keys(None, 1, None))
    (ask,) = asks(lookup)
    assert ids(ask) == [1]
    answer_all(lookup, [ask])
    assert handed_back(lookup.finished()) == [[], [(1, "n1")], []]
    assert lookup.metrics.null_key_rows == 2


def test_a_window_of_null_keys_asks_nothing() -> None:
    lookup = scheduler()
    lookup.add(keys(None, None))
    assert lookup.next(0.0) == Idle()
    assert lookup.wants_input
    assert handed_back(lookup.finished()) == [[], []]


def test_a_key_may_have_many_rows() -> None:
    lookup = scheduler()
    lookup.add(keys(1, 2))
    (ask,) = asks(lookup)
    lookup.answered(ask, rows((1, "a"), (2, "c"), (1, "b")), 0.0)
    assert handed_back(lookup.finished()) == [[(1, "a"), (1, "b")], [(2, "c")]]


def test_a_request_holds_batch_size_keys_at_most() -> None:
    lookup = scheduler(batch_size=2)
    lookup.add(keys(1, 2, 3, 4, 5))
    assert [ids(ask) for ask in asks(lookup)] == [[1, 2], [3, 4], [5]]


def test_a_request_carries_the_columns_wanted_and_the_time_left() -> None:
    lookup = scheduler(timeout=30.0)
    lookup.add(keys(1))
    (ask,) = asks(lookup, now=5.0)
    assert ask.request.columns == ("id", "name")
    assert ask.request.key_columns == ("id",)
    assert (ask.request.timeout, ask.deadline) == (30.0, 35.0)


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_leave_in_input_order_whatever_is_answered_first(ordered: bool) -> None:
    lookup = scheduler(batch_size=1, ordered=ordered)
    lookup.add(keys(1, 2))
    lookup.add(keys(3))
    first, second, third = asks(lookup)
    answer_all(lookup, [third, second])
    assert list(lookup.finished()) == []
    answer_all(lookup, [first])
    assert handed_back(lookup.finished()) == [[(1, "n1")], [(2, "n2")], [(3, "n3")]]


def test_a_flow_is_done_when_its_input_ended_and_all_is_handed_back() -> None:
    lookup = scheduler()
    lookup.add(keys(1))
    lookup.add(None)
    answer_all(lookup, asks(lookup))
    assert not lookup.is_done
    list(lookup.finished())
    assert lookup.is_done


# --- capacity


def test_no_more_than_capacity_requests_are_in_flight() -> None:
    lookup = scheduler(batch_size=1, capacity=3, ordered=False)
    lookup.add(keys(*range(10)))
    first = asks(lookup)
    assert [ids(ask) for ask in first] == [[0], [1], [2]]
    answer_all(lookup, first[1:2])
    assert [ids(ask) for ask in asks(lookup)] == [[3]]


def test_a_slow_head_does_not_stop_new_requests_when_unordered_is_allowed() -> None:
    lookup = scheduler(batch_size=1, capacity=2, ordered=False)
    lookup.add(keys(*range(6)))
    _head, *others = asks(lookup)
    for expected in ([2], [3], [4], [5]):
        answer_all(lookup, others)
        others = asks(lookup)
        assert [ids(ask) for ask in others] == [expected]


def test_a_slow_head_takes_all_capacity_when_ordered() -> None:
    lookup = scheduler(batch_size=1, capacity=3, ordered=True)
    lookup.add(keys(*range(6)))
    head, *others = asks(lookup)
    answer_all(lookup, others)
    assert lookup.next(0.0) == Idle()
    answer_all(lookup, [head])
    assert [ids(ask) for ask in asks(lookup)] == [[3], [4], [5]]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_key_that_waits_for_its_retry_holds_no_slot(ordered: bool) -> None:
    lookup = scheduler(batch_size=1, capacity=1, ordered=ordered, retry=ON_MISS)
    lookup.add(keys(*range(4)))
    for expected in range(4):
        (ask,) = asks(lookup)
        assert ids(ask) == [expected]
        lookup.answered(ask, NONE, 0.0)
    assert lookup.next(0.0) == WaitUntil(10.0)


def test_a_retry_may_be_sent_though_settled_requests_wait_behind_it() -> None:
    lookup = scheduler(batch_size=1, capacity=3, ordered=True, retry=ON_MISS)
    lookup.add(keys(*range(6)))
    head, *others = asks(lookup)
    lookup.answered(head, NONE, 0.0)
    answer_all(lookup, others)
    answer_all(lookup, asks(lookup))
    assert lookup.next(0.0) == WaitUntil(10.0)
    (again, *_) = asks(lookup, now=10.0)
    assert ids(again) == [0]


# --- reading input


def test_nothing_is_read_ahead_of_the_first_answer() -> None:
    lookup = scheduler()
    assert lookup.wants_input
    lookup.add(keys(1))
    (ask,) = asks(lookup)
    assert not lookup.wants_input
    lookup.answered(ask, NONE, 0.0)
    assert lookup.wants_input


def test_no_input_is_wanted_while_keys_wait_to_be_sent() -> None:
    lookup = scheduler(batch_size=1, capacity=1)
    lookup.add(keys(1, 2))
    answer_all(lookup, [lookup_ask(lookup)])
    assert not lookup.wants_input
    answer_all(lookup, [lookup_ask(lookup)])
    assert lookup.wants_input


def lookup_ask(of: RequestScheduler) -> ScheduledRequest:
    step = of.next(0.0)
    assert isinstance(step, ScheduledRequest)
    return step


def test_reading_stops_while_too_much_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_window, "BUFFER_BYTES", 2000)
    lookup = scheduler(batch_size=1, ordered=False)
    lookup.add(keys(1))
    (head,) = asks(lookup)
    lookup.add(keys(2))
    (second,) = asks(lookup)
    lookup.answered(second, rows((2, "x" * 3000)), 0.0)
    assert not lookup.wants_input
    assert lookup.metrics.buffer_full == 1
    answer_all(lookup, [head])
    list(lookup.finished())
    assert lookup.wants_input


# --- retries of misses


def test_without_a_policy_a_miss_is_final() -> None:
    lookup = scheduler()
    lookup.add(keys(1))
    lookup.answered(lookup_ask(lookup), NONE, 0.0)
    assert handed_back(lookup.finished()) == [[]]
    assert lookup.metrics.misses == 1


def test_a_miss_is_asked_again_until_the_row_appears() -> None:
    lookup = scheduler(retry=ON_MISS)
    lookup.add(keys(1, 2))
    lookup.answered(lookup_ask(lookup), rows((1, "a")), 0.0)
    assert lookup.next(9.9) == WaitUntil(10.0)
    (again,) = asks(lookup, now=10.0)
    assert ids(again) == [2]
    lookup.answered(again, rows((2, "late")), 10.0)
    assert handed_back(lookup.finished()) == [[(1, "a")], [(2, "late")]]
    assert (lookup.metrics.hits, lookup.metrics.misses, lookup.metrics.retried_keys) == (2, 0, 1)


def test_max_attempts_counts_the_retries_after_the_first_try() -> None:
    lookup = scheduler(retry=ON_MISS)
    lookup.add(keys(1))
    times = []
    now = 0.0
    while not isinstance(step := lookup.next(now), Idle):
        if isinstance(step, WaitUntil):
            now = step.time
        else:
            times.append(now)
            lookup.answered(step, NONE, now)
    assert times == [0.0, 10.0, 20.0, 30.0]
    assert handed_back(lookup.finished()) == [[]]


def test_misses_of_many_requests_go_out_together() -> None:
    lookup = scheduler(batch_size=100, retry=ON_MISS, ordered=False)
    lookup.add(keys(*range(1000)))
    for index, ask in enumerate(asks(lookup)):
        lookup.answered(ask, names_of(index * 100)(ask.request), now=0.01 + index * 0.01)
    step = lookup.next(1.0)
    assert isinstance(step, WaitUntil)
    (again,) = asks(lookup, now=step.time)
    assert ids(again) == [index * 100 for index in range(10)]
    lookup.answered(again, ALL(again.request), step.time)
    assert handed_back(lookup.finished()) == [[(key, f"n{key}")] for key in range(1000)]


def test_a_retry_is_late_by_a_sixteenth_of_its_delay_at_most() -> None:
    for delay in (0.001, 0.3, 1.0, 7.0, 3600.0):
        lookup = scheduler(retry=FixedDelay(1, delay).if_miss(), timeout=1e6)
        lookup.add(keys(1))
        (ask,) = asks(lookup)
        lookup.answered(ask, NONE, 0.123)
        step = lookup.next(0.123)
        assert isinstance(step, WaitUntil)
        assert delay <= step.time - 0.123 + 1e-9
        assert step.time - 0.123 <= delay + min(delay / 16, 0.125)


def test_due_keys_are_cut_at_batch_size_and_none_is_lost() -> None:
    lookup = scheduler(batch_size=3, retry=ON_MISS)
    lookup.add(keys(*range(7)))
    for ask in asks(lookup):
        lookup.answered(ask, NONE, 0.0)
    retried = asks(lookup, now=10.0)
    assert [len(ids(ask)) for ask in retried] == [3, 3, 1]
    assert sorted(key for ask in retried for key in ids(ask)) == list(range(7))


def test_a_key_that_two_windows_wait_for_is_asked_once_and_answers_both() -> None:
    lookup = scheduler(retry=ON_MISS)
    lookup.add(keys(1, 2))
    first = asks(lookup)
    lookup.add(keys(3, 2))
    for ask in [*first, *asks(lookup)]:
        lookup.answered(ask, NONE, 0.0)
    (again,) = asks(lookup, now=10.0)
    assert sorted(ids(again)) == [1, 2, 3]
    lookup.answered(again, rows((2, "x"), (2, "y"), (3, "z")), 10.0)
    for ask in asks(lookup, now=20.0):
        lookup.answered(ask, ALL(ask.request), 20.0)
    pair = [(2, "x"), (2, "y")]
    assert handed_back(lookup.finished()) == [[(1, "n1")], pair, [(3, "z")], pair]


def test_keys_on_different_attempts_share_a_request_and_keep_their_own_count() -> None:
    lookup = scheduler(retry=FixedDelay(2, 10.0).if_miss())
    lookup.add(keys(1))
    (first,) = asks(lookup)
    lookup.answered(first, NONE, 0.0)
    (second,) = asks(lookup, now=10.0)
    lookup.add(keys(2))
    (fresh,) = asks(lookup, now=10.0)
    lookup.answered(second, NONE, 10.0)
    lookup.answered(fresh, NONE, 10.0)
    (both,) = asks(lookup, now=20.0)
    assert ids(both) == [1, 2]
    lookup.answered(both, NONE, 20.0)
    (last,) = asks(lookup, now=30.0)
    assert ids(last) == [2]


def test_the_end_of_the_input_waits_for_retries() -> None:
    lookup = scheduler(retry=ON_MISS)
    lookup.add(keys(1))
    lookup.add(None)
    lookup.answered(lookup_ask(lookup), NONE, 0.0)
    assert not lookup.is_done
    assert lookup.next(0.0) == WaitUntil(10.0)


def test_exponential_waits_stay_within_their_jitter() -> None:
    strategy = ExponentialDelay(6, 1.0, maximum=8.0, multiplier=2.0, jitter=0.25)
    lookup = scheduler(retry=strategy.if_miss(), batch_size=1)
    lookup.add(keys(*range(20)))
    waits: dict[int, list[float]] = {}
    last: dict[int, float] = {}
    now = 0.0
    while not isinstance(step := lookup.next(now), Idle):
        if isinstance(step, WaitUntil):
            now = step.time
            continue
        (key,) = ids(step)
        if key in last:
            waits.setdefault(key, []).append(now - last[key])
        last[key] = now
        lookup.answered(step, NONE, now)
    for index, expected in enumerate([1.0, 2.0, 4.0, 8.0, 8.0, 8.0]):
        found = [of_key[index] for of_key in waits.values()]
        assert all(expected * 0.75 <= wait <= expected * 1.25 * 17 / 16 for wait in found)
    assert len({of_key[3] for of_key in waits.values()}) > 5


def wants_names(found: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["name"] is None for row in found)


def test_rows_that_a_registered_predicate_refuses_are_asked_again() -> None:
    retry = FixedDelay(2, 10.0).if_result(wants_names)
    lookup = scheduler(retry=retry)
    lookup.add(keys(1, 2, 3))
    lookup.answered(lookup_ask(lookup), rows((1, "a"), (2, "b"), (2, None)), 0.0)
    (again,) = asks(lookup, now=10.0)
    assert ids(again) == [2]  # the predicate does not refuse the miss of 3
    lookup.answered(again, rows((2, "c"), (2, "d")), 10.0)
    assert handed_back(lookup.finished()) == [[(1, "a")], [(2, "c"), (2, "d")], []]


def test_refused_rows_are_the_answer_when_no_attempt_is_left() -> None:
    retry = FixedDelay(1, 10.0).if_result(wants_names)
    lookup = scheduler(retry=retry)
    lookup.add(keys(1))
    lookup.answered(lookup_ask(lookup), rows((1, None)), 0.0)
    (again,) = asks(lookup, now=10.0)
    lookup.answered(again, rows((1, None), (1, "x")), 10.0)
    assert handed_back(lookup.finished()) == [[(1, None), (1, "x")]]


def test_a_predicate_is_shown_misses_as_no_rows_and_adds_to_lookup_miss() -> None:
    shown: list[int] = []

    def refuses_pairs(found: Sequence[Mapping[str, Any]]) -> bool:
        shown.append(len(found))
        return len(found) == 2

    retry = FixedDelay(1, 10.0).if_result(refuses_pairs).if_miss()
    lookup = scheduler(retry=retry)
    lookup.add(keys(1, 2, 3))
    lookup.answered(lookup_ask(lookup), rows((1, "a"), (2, "b"), (2, "c")), 0.0)
    assert shown == [1, 2, 0]
    (again,) = asks(lookup, now=10.0)
    assert sorted(ids(again)) == [2, 3]


# --- errors


def test_an_error_fails_the_task_with_its_cause() -> None:
    lookup = scheduler()
    lookup.add(keys(1, 2, 3, 4))
    cause = ConnectorError("table people: connection reset")
    with pytest.raises(ConnectorError) as raised:
        lookup.failed(lookup_ask(lookup), cause, 0.0)
    assert raised.value.__cause__ is cause
    assert str(raised.value) == (
        "connection reset. The lookup of 4 keys (id = 1; id = 2; id = 3; ...) in table people failed after 1"
        " attempt (connector asked, function lookup_1)."
    )


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        (
            "[Errno 111] Connect call failed ('127.0.0.1', 5432)",
            "Is the server running at 127.0.0.1:5432? Start",
        ),
        (
            "All connection attempts failed",
            "Is the server running? Start it, or correct host and port of the",
        ),
    ],
)
def test_where_nobody_answers_the_error_asks_whether_the_server_runs(said: str, cure: str) -> None:
    lookup = scheduler()
    lookup.add(keys(1))
    with pytest.raises(ConnectorError) as raised:
        lookup.failed(lookup_ask(lookup), ConnectorError(said), 0.0)
    assert str(raised.value).startswith(f"{said}. {cure}")


def test_an_error_of_a_driver_is_named_by_its_kind() -> None:
    lookup = scheduler()
    lookup.add(keys(1))
    with pytest.raises(ConnectorError, match=r"^OSError: broken pipe\. .* of 1 key \(id = 1\)"):
        lookup.failed(lookup_ask(lookup), OSError("broken pipe"), 0.0)


def test_an_error_is_retried_when_the_predicate_covers_it() -> None:
    lookup = scheduler(retry=ON_ERROR)
    lookup.add(keys(1))
    lookup.failed(lookup_ask(lookup), OSError("reset"), 0.0)
    (again,) = asks(lookup, now=10.0)
    answer_all(lookup, [again], now=10.0)
    assert handed_back(lookup.finished()) == [[(1, "n1")]]
    assert (lookup.metrics.errors, lookup.metrics.hits) == (1, 1)


def test_errors_are_retried_max_attempts_times() -> None:
    lookup = scheduler(retry=ON_ERROR)
    lookup.add(keys(1))
    for attempt in range(3):
        (ask,) = asks(lookup, now=attempt * 10.0)
        lookup.failed(ask, OSError("reset"), attempt * 10.0)
    (ask,) = asks(lookup, now=30.0)
    with pytest.raises(ConnectorError, match=r"^OSError: reset\. .* failed after 4 attempts"):
        lookup.failed(ask, OSError("reset"), 30.0)


@pytest.mark.parametrize("retry", [ON_ERROR, ON_MISS])
def test_a_permanent_error_and_one_without_predicate_are_not_retried(retry: RetryPolicy) -> None:
    lookup = scheduler(retry=retry)
    lookup.add(keys(1))
    with pytest.raises(ConnectorError, match="no such table"):
        lookup.failed(lookup_ask(lookup), ConnectorError("no such table", permanent=True), 0.0)


def test_a_source_that_says_how_long_to_wait_is_believed() -> None:
    lookup = scheduler(retry=ON_ERROR)
    lookup.add(keys(1))
    lookup.failed(lookup_ask(lookup), ConnectorError("slow down", retry_after=42.0), 0.0)
    assert lookup.next(0.0) == WaitUntil(42.0)


@pytest.mark.parametrize(("on_error", "expected"), [("null", []), ("skip", None)])
def test_on_error_makes_a_failure_a_miss_or_drops_the_row(on_error: str, expected: object) -> None:
    lookup = scheduler(on_error=on_error, batch_size=1)
    lookup.add(keys(1, 2, None))
    first, second = asks(lookup)
    lookup.failed(first, OSError("reset"), 0.0)
    answer_all(lookup, [second])
    assert handed_back(lookup.finished()) == [expected, [(2, "n2")], []]
    assert lookup.metrics.skipped == (on_error == "skip")
    assert lookup.metrics.misses == (on_error == "null")


@pytest.mark.parametrize(
    "error", [AnswerError("no column 'name'"), OptionError(Problem("the variable X cannot be read"))]
)
def test_a_defect_is_never_retried_nor_hidden(error: Exception) -> None:
    lookup = scheduler(on_error="null", retry=ON_ERROR)
    lookup.add(keys(1))
    with pytest.raises(type(error)) as raised:
        lookup.failed(lookup_ask(lookup), error, 0.0)
    assert raised.value is error


def test_a_wrong_answer_fails_whatever_on_error_says() -> None:
    lookup = scheduler(on_error="skip", retry=ON_ERROR)
    lookup.add(keys(1))
    with pytest.raises(AnswerError, match="connector Asked of table people has no column 'name'"):
        lookup.answered(lookup_ask(lookup), pa.table({"id": [1]}), 0.0)


# --- time


def test_a_retry_after_the_timeout_is_a_timeout_at_once() -> None:
    lookup = scheduler(timeout=25.0, retry=ON_MISS)
    lookup.add(keys(1))
    lookup.answered(lookup_ask(lookup), NONE, 0.0)
    (second,) = asks(lookup, now=10.0)
    assert second.request.timeout == 15.0
    lookup.answered(second, NONE, 12.0)
    (third,) = asks(lookup, now=22.0)
    with pytest.raises(LookupTimeout) as raised:
        lookup.answered(third, NONE, 23.0)
    assert str(raised.value) == (
        "The lookup of 1 key (id = 1) in table people has no final outcome within"
        " the timeout of 25 s, after 3 attempts. Raise 'timeout', or lower 'max-attempts' or the delay"
        " (connector asked, function lookup_1)."
    )


def test_a_beat_never_carries_a_retry_past_its_deadline() -> None:
    lookup = scheduler(timeout=10.3, retry=ON_MISS)
    lookup.add(keys(1))
    (ask,) = asks(lookup)
    lookup.answered(ask, NONE, 0.27)
    assert lookup.next(0.27) == WaitUntil(10.27)


def test_a_timeout_over_errors_says_what_the_last_error_was() -> None:
    lookup = scheduler(timeout=5.0, retry=ON_ERROR)
    lookup.add(keys(1))
    cause = OSError("reset")
    with pytest.raises(
        LookupTimeout, match=r"after 1 attempt\. The last one failed: OSError: reset"
    ) as raised:
        lookup.failed(lookup_ask(lookup), cause, 0.0)
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize(("on_error", "expected"), [("null", []), ("skip", None)])
def test_on_error_covers_timeouts(on_error: str, expected: object) -> None:
    lookup = scheduler(timeout=5.0, retry=ON_MISS, on_error=on_error)
    lookup.add(keys(1))
    lookup.answered(lookup_ask(lookup), NONE, 0.0)
    assert handed_back(lookup.finished()) == [expected]


def test_an_answer_that_came_late_still_counts() -> None:
    lookup = scheduler(timeout=5.0)
    lookup.add(keys(1))
    answer_all(lookup, [lookup_ask(lookup)], now=6.0)
    assert handed_back(lookup.finished()) == [[(1, "n1")]]


def test_keys_whose_request_was_cut_short_by_more_urgent_ones_are_asked_again() -> None:
    lookup = scheduler(timeout=30.0, retry=ON_MISS, on_error="null")
    lookup.add(keys(1))
    (first,) = asks(lookup)
    lookup.answered(first, NONE, 15.0)
    lookup.add(keys(2))
    (second,) = asks(lookup, now=15.0)
    lookup.answered(second, NONE, 15.0)
    (both,) = asks(lookup, now=25.0)
    assert (ids(both), both.request.timeout) == ([1, 2], 5.0)
    lookup.failed(both, LookupTimeout("no answer within 5 s"), 30.0)
    (again,) = asks(lookup, now=30.0)
    assert (ids(again), again.request.timeout) == ([2], 15.0)
    answer_all(lookup, [again], now=30.0)
    assert handed_back(lookup.finished()) == [[], [(2, "n2")]]


def test_keys_whose_time_ran_out_while_all_slots_were_taken_are_not_asked() -> None:
    lookup = scheduler(timeout=12.0, retry=ON_MISS, capacity=1, batch_size=1, ordered=False, on_error="null")
    lookup.add(keys(1, 2))
    lookup.answered(lookup_ask(lookup), NONE, 0.0)
    (slow_one,) = asks(lookup, now=9.0)
    assert lookup.next(10.0) == Idle()
    answer_all(lookup, [slow_one], now=13.0)
    assert lookup.next(13.0) == Idle()
    assert handed_back(lookup.finished()) == [[], [(2, "n2")]]


# --- messages


def test_long_keys_are_shortened_in_messages() -> None:
    schema = pa.schema([("id", pa.string()), ("name", pa.string())])
    lookup = RequestScheduler(spec(Asked(ALL, schema)), Random(1))
    lookup.add(distinct_keys(pa.table({"id": ["x" * 1000]})))
    with pytest.raises(ConnectorError) as raised:
        lookup.failed(lookup_ask(lookup), OSError("reset"), 0.0)
    assert len(str(raised.value)) < 200


def test_composite_keys_are_shown_with_their_names() -> None:
    by_two = LookupSpec(Asked(ALL), ("id", "name"), ("name",), LookupSettings(asynchronous=False))
    lookup = RequestScheduler(by_two, Random(1))
    lookup.add(distinct_keys(pa.table({"id": [1], "name": ["x"]})))
    with pytest.raises(ConnectorError, match=r"of 1 key \(id = 1, name = 'x'\) in table people failed"):
        lookup.failed(lookup_ask(lookup), OSError("reset"), 0.0)
