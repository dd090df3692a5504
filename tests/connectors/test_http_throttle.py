"""Pauses and rates, on times that are made up."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from lookup_connectors.http.throttle import Gate, reported_pause

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "7"}, 7.0),
        (503, {"retry-after": " 1.5 "}, 1.5),
        (429, {"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0),
        (429, {"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0),
        (429, {"retry-after": "soon"}, None),
        (500, {"retry-after": "7"}, None),
        (200, {"retry-after": "7"}, None),
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 9)}, 9.0),
        (200, {"x-rate-limit-remaining": "0", "x-rate-limit-reset": str(int(NOW) - 9)}, 0.0),
        (200, {"ratelimit-remaining": "1", "ratelimit-reset": "12"}, None),
        (200, {"ratelimit-remaining": "0"}, None),
        (200, {"ratelimit": '"default";r=0;t=30'}, 30.0),
        (200, {"ratelimit": "limit=10, remaining=0, reset=5"}, 5.0),
        (200, {"ratelimit": '"default";r=4;t=30'}, None),
        (429, {"retry-after": "3", "ratelimit-remaining": "0", "ratelimit-reset": "60"}, 3.0),
        (200, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((int(NOW) + 9) * 1000)}, 9.0),
        (429, {"retry-after": "9" * 400}, None),
        (429, {"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, None),
        (429, {"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        (200, {"ratelimit-remaining": "0", "ratelimit-reset": "999999999"}, None),
        (200, {}, None),
    ],
)
def test_what_a_response_asks_for(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert reported_pause(status, headers, NOW) == seconds


def test_requests_go_out_at_their_rate() -> None:
    gate = Gate(4.0, 1.0)
    assert [gate.reserve(10.0) for _ in range(3)] == [0.0, 0.25, 0.5]
    assert gate.reserve(20.0) == 0.0


def test_without_a_rate_nothing_waits() -> None:
    gate = Gate(None, 1.0)
    assert [gate.reserve(1.0) for _ in range(3)] == [0.0] * 3
    assert gate.paused(1.0) == 0.0


def test_a_pause_that_is_told_holds_and_a_shorter_one_does_not_end_it() -> None:
    gate = Gate(None, 1.0)
    assert gate.refused(0.0, 10.0) == 10.0
    gate.refused(1.0, 2.0)
    gate.served(1.0, None)
    assert gate.paused(4.0) == 6.0


def test_guesses_double_and_many_refusals_at_once_count_once() -> None:
    gate = Gate(None, 1.0)
    assert [gate.refused(0.0, None), gate.refused(0.1, None), gate.refused(0.2, None)] == [1.0] * 3
    assert gate.refused(1.3, None) == 2.0
    assert gate.refused(9.0, None) == 4.0
    gate.served(20.0, None)
    assert gate.refused(21.0, None) == 1.0


def test_a_pause_of_no_time_is_a_guess_too() -> None:
    gate = Gate(None, 1.0)
    assert gate.refused(0.0, 0.0) == 1.0
    assert gate.refused(1.3, 0.0) == 2.0


def test_after_a_pause_those_who_waited_go_out_at_the_pace_before_it() -> None:
    gate = Gate(None, 1.0)
    for number in range(40):
        assert gate.reserve(number * 0.05) == 0.0
    gate.refused(2.0, 10.0)
    assert [round(gate.reserve(3.0), 6) for _ in range(4)] == [9.0, 9.05, 9.1, 9.15]
    gate.refused(3.5, 0.1)
    assert round(gate.reserve(12.01), 6) == 0.19, "who comes later waits behind them"
    assert [gate.reserve(20.0) for _ in range(3)] == [0.0] * 3, "and nobody when they are gone"


def test_who_woke_into_a_longer_pause_waits_again_in_the_row() -> None:
    gate = Gate(None, 1.0)
    assert [gate.reserve(now) for now in (0.0, 0.1, 0.2, 0.3)] == [0.0] * 4
    gate.refused(0.4, 1.0)
    assert [round(gate.reserve(0.4), 6) for _ in range(2)] == [1.0, 1.1]
    gate.refused(1.0, 5.0)
    assert gate.paused(1.4) == pytest.approx(4.6)
    assert [round(gate.reserve(1.4), 6) for _ in range(2)] == [4.6, 4.7]


def test_a_burst_before_a_pause_is_spread_and_a_slow_pace_has_an_end() -> None:
    burst = Gate(None, 1.0)
    for _ in range(100):
        burst.reserve(0.0)
    burst.refused(0.5, 3.0)
    waits = [burst.reserve(0.5) for _ in range(100)]
    assert (waits[0], round(waits[-1], 6)) == (3.0, 3.0 + 99 * 0.005)
    slow = Gate(None, 1.0)
    slow.reserve(0.0)
    slow.refused(500.0, 3.0)
    assert [slow.reserve(500.0) for _ in range(3)] == [3.0, 4.0, 5.0]


def test_a_rate_holds_after_a_pause() -> None:
    gate = Gate(4.0, 1.0)
    gate.reserve(0.0)
    gate.refused(0.01, 2.0)
    assert [round(gate.reserve(0.01), 6) for _ in range(3)] == [2.0, 2.25, 2.5]


def test_guesses_have_an_end() -> None:
    gate = Gate(None, 1.0)
    assert max(gate.refused(now * 100.0, None) for now in range(40)) == 60.0
