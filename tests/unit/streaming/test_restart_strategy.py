"""Restart strategies on a clock of the test's own: Flink's rules, number by number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.errors import OptionError
from lookup_hints.spi.option_values import in_force
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import own_setting
from lookup_hints.streaming.restart_strategy import (
    UNLIMITED,
    ExponentialDelayRestart,
    FailureRateRestart,
    Failures,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    restart_strategy,
)
from lookup_hints.streaming.stream_options import RESTART_OPTIONS


def waits(strategy: RestartStrategy, times: Sequence[float], spread: float = 0.0) -> list[float | None]:
    """What is decided after failures at these times; nothing comes after a failure that stands."""
    failures, decided = Failures(), []
    for now in times:
        decision = strategy.after_failure(failures, now, spread)
        decided.append(decision.wait)
        failures = decision.failures
        if decision.wait is None:
            break
    return decided


def in_a_row(strategy: RestartStrategy, number: int, spread: float = 0.0) -> list[float | None]:
    """What is decided when each restart fails one second after it happens."""
    failures, decided, now = Failures(), [], 0.0
    for _ in range(number):
        decision = strategy.after_failure(failures, now, spread)
        decided.append(decision.wait)
        if decision.wait is None:
            break
        failures, now = decision.failures, now + decision.wait + 1
    return decided


def test_none_never_restarts() -> None:
    assert waits(NoRestart(), [0.0]) == [None]


def test_fixed_delay_restarts_so_many_times_in_all() -> None:
    assert in_a_row(FixedDelayRestart(), 9) == [1.0, None]
    assert in_a_row(FixedDelayRestart(attempts=3, delay=10.0), 9) == [10.0, 10.0, 10.0, None]
    assert in_a_row(FixedDelayRestart(attempts=0), 9) == [None]


def test_fixed_delay_never_forgets() -> None:
    assert waits(FixedDelayRestart(attempts=2), [0, 1e6, 2e6]) == [1.0, 1.0, None]


def test_failure_rate_bears_so_many_failures_within_the_interval() -> None:
    strategy = FailureRateRestart(max_failures_per_interval=3, interval=10.0, delay=0.5)
    assert waits(strategy, [0, 1, 2, 3]) == [0.5, 0.5, 0.5, None]


def test_failure_rate_looks_back_from_the_last_failure() -> None:
    strategy = FailureRateRestart(max_failures_per_interval=2, interval=10.0)
    assert waits(strategy, [0, 6, 12, 18, 24]) == [1.0] * 5, "never three within ten seconds"
    assert waits(strategy, [0, 5, 10]) == [1.0, 1.0, None], "the interval's end belongs to it"
    assert waits(strategy, [0, 5, 10.1]) == [1.0, 1.0, 1.0]


def test_failure_rate_with_its_defaults_bears_one_failure_a_minute() -> None:
    assert waits(FailureRateRestart(), [0, 61, 122]) == [1.0] * 3
    assert waits(FailureRateRestart(), [0, 30]) == [1.0, None]


def test_exponential_delay_grows_up_to_its_maximum() -> None:
    grown = in_a_row(ExponentialDelayRestart(), 13)
    assert grown[:4] == [1.0, 1.5, 2.25, 3.375]
    assert grown[10:] == [pytest.approx(1.5**10), 60.0, 60.0]


def test_exponential_delay_begins_anew_after_a_quiet_time() -> None:
    strategy = ExponentialDelayRestart(multiplier=2.0, reset_threshold=100.0)
    # Restarts at 1, 12, 124: the quiet time counts from the restart, not from the failure.
    assert waits(strategy, [0, 10, 111.9]) == [1.0, 2.0, 4.0]
    assert waits(strategy, [0, 10, 112.0]) == [1.0, 2.0, 1.0]


def test_exponential_delay_counts_attempts_until_a_quiet_time() -> None:
    strategy = ExponentialDelayRestart(multiplier=2.0, reset_threshold=100.0, attempts=2)
    assert in_a_row(strategy, 9) == [1.0, 2.0, None]
    assert waits(strategy, [0, 10, 200, 210, 220]) == [1.0, 2.0, 1.0, 2.0, None]


def test_a_failure_before_the_restart_of_the_last_one_is_part_of_it() -> None:
    strategy = ExponentialDelayRestart(initial_backoff=10.0)
    assert waits(strategy, [0, 4, 10]) == [10.0, 6.0, 0.0]
    assert waits(strategy, [0, 4, 11]) == [10.0, 6.0, 15.0]


def test_jitter_adds_or_takes_its_part_within_the_bounds() -> None:
    strategy = ExponentialDelayRestart(multiplier=2.0, jitter_factor=0.25, max_backoff=5.0)
    assert in_a_row(strategy, 4, spread=1.0) == [1.25, 2.5, 5.0, 5.0]
    assert in_a_row(strategy, 4, spread=-1.0) == [1.0, 1.5, 3.0, 5.0], "never below the first backoff"


@given(
    st.floats(0.001, 100),
    st.floats(1, 1000),
    st.floats(1.0001, 10),
    st.floats(0, 1),
    st.integers(0, 10_000),
    st.floats(-1, 1),
)
def test_a_backoff_never_leaves_its_bounds(
    first: float, factor: float, multiplier: float, jitter: float, attempts: int, spread: float
) -> None:
    strategy = ExponentialDelayRestart(first, first * factor, multiplier, jitter_factor=jitter)
    decision = strategy.after_failure(Failures(attempts, restart_at=-1.0), 0.0, spread)
    assert decision.wait is not None
    assert first <= decision.wait <= first * factor
    assert math.isfinite(decision.wait)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDelayRestart(attempts=-1), "the number of attempts must be at least 0, not -1"),
        (lambda: FixedDelayRestart(delay=-1), "the delay must be at least 0 s, not -1 s"),
        (lambda: FailureRateRestart(0), "the failures per interval must be at least 1, not 0"),
        (lambda: FailureRateRestart(interval=0), "the interval must be longer than 0 s, not 0 s"),
        (lambda: ExponentialDelayRestart(0), "the initial backoff must be longer than 0 s, not 0 s"),
        (
            lambda: ExponentialDelayRestart(5, 4),
            "the maximum backoff (4 s) is shorter than the initial one (5 s)",
        ),
        (
            lambda: ExponentialDelayRestart(multiplier=1),
            "the backoff multiplier must be more than 1, not 1",
        ),
        (
            lambda: ExponentialDelayRestart(jitter_factor=2),
            "the jitter factor must be between 0 and 1, not 2",
        ),
        (lambda: ExponentialDelayRestart(attempts=0), "the number of attempts must be at least 1, not 0"),
        (
            lambda: ExponentialDelayRestart(reset_threshold=0),
            "the reset threshold must be longer than 0 s, not 0 s",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_birth(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"must be|is shorter") as caught:
        make()
    assert str(caught.value) == message


# --- options ---------------------------------------------------------------------------------------


def chosen(settings: dict[str, str], *, has_checkpoint: bool = True) -> RestartStrategy:
    values = {option.key: in_force(option, settings.get).value for option in RESTART_OPTIONS}
    return restart_strategy(values, has_checkpoint=has_checkpoint)


def test_the_default_is_exponential_with_a_checkpoint_and_none_without() -> None:
    assert chosen({}) == ExponentialDelayRestart(1.0, 60.0, 1.5, 3600.0, 0.1, UNLIMITED)
    assert chosen({}, has_checkpoint=False) == NoRestart()


@pytest.mark.parametrize(
    ("spellings", "kind"),
    [
        ("none off disable OFF", NoRestart()),
        ("fixed-delay fixeddelay fixed_delay FixedDelay", FixedDelayRestart()),
        ("failure-rate failurerate", FailureRateRestart()),
        ("exponential-delay exponentialdelay", ExponentialDelayRestart()),
    ],
)
@pytest.mark.parametrize("key", ["restart-strategy.type", "restart-strategy", "spark.restart-strategy.type"])
def test_every_spelling_of_a_type_is_taken(key: str, spellings: str, kind: RestartStrategy) -> None:
    for spelling in spellings.split():
        assert chosen({key: spelling}, has_checkpoint=False) == kind


def test_every_option_reaches_its_strategy() -> None:
    prefix = "restart-strategy"
    assert chosen(
        {
            "restart-strategy.type": "fixed-delay",
            f"{prefix}.fixed-delay.attempts": "3",
            f"{prefix}.fixed-delay.delay": "0 s",
        }
    ) == FixedDelayRestart(3, 0.0)
    assert chosen(
        {
            "restart-strategy.type": "failure-rate",
            f"{prefix}.failure-rate.max-failures-per-interval": "4",
            f"{prefix}.failure-rate.failure-rate-interval": "5 min",
            f"{prefix}.failure-rate.delay": "10 s",
        }
    ) == FailureRateRestart(4, 300.0, 10.0)
    assert chosen(
        {
            f"{prefix}.exponential-delay.initial-backoff": "10 s",
            f"{prefix}.exponential-delay.max-backoff": "2 min",
            f"{prefix}.exponential-delay.backoff-multiplier": "1.4",
            f"{prefix}.exponential-delay.reset-backoff-threshold": "8 h",
            f"{prefix}.exponential-delay.jitter-factor": "0.05",
            f"{prefix}.exponential-delay.attempts-before-reset-backoff": "7",
        }
    ) == ExponentialDelayRestart(10.0, 120.0, 1.4, 28_800.0, 0.05, 7)


def test_options_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(OptionError) as caught:
        chosen({"restart-strategy.exponential-delay.initial-backoff": "2 min"})
    assert str(caught.value) == (
        "The restart strategy cannot be: the maximum backoff (60 s) is shorter than the initial one (120 s)."
    )


def test_a_wrong_type_is_refused_where_it_is_set() -> None:
    with pytest.raises(OptionError) as caught:
        own_setting(SqlText("SET 'restart-strategy.type' = 'fixed'"))
    assert "it must be one of none, fixed-delay, exponential-delay, failure-rate." in str(caught.value)


@pytest.mark.parametrize("option", RESTART_OPTIONS, ids=lambda option: option.key)
def test_every_option_can_be_set_under_all_its_names(option: Any) -> None:
    value = {"fixed-delay | ": "fixed-delay"}.get(option.key) or (
        "none" if option.key.endswith(".type") else str(option.default)
    )
    value = f"{value} s".replace(".0 s", " s") if option.type.name == "duration" else value
    for key in option.session_keys:
        assert own_setting(SqlText(f"SET {key} = {value}")) == (key, value)
