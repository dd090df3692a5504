"""Retry strategies and policies: pure values, made by hints and by Python alike."""

from __future__ import annotations

import asyncio
import math
import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.memory import MemoryConnector

from lookup_hints.errors import ConnectorError, InternalError
from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.plan.decide.settings import choose
from lookup_hints.retry import ExponentialDelay, FixedDelay, RetryPolicy, RetryStrategy
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.sql_text import SqlText


def nameless(rows: Any) -> bool:
    return any(row["name"] is None for row in rows)


def is_busy(error: BaseException) -> bool:
    return "busy" in str(error)


@dataclass(frozen=True)
class Squares(RetryStrategy):
    most: int

    def can_retry(self, attempt: int) -> bool:
        return attempt <= self.most

    def backoff(self, attempt: int) -> float:
        return float(attempt**2)


def from_hint(options: str) -> RetryPolicy:
    """What the planner makes of a hint."""
    table = LookupTable("t", pa.schema([("id", pa.int64())]), options={"connector": "memory", "rows": "[]"})
    (hint,) = lookup_hints(SqlText(f"SELECT /*+ LOOKUP('table'='t', {options}) */ 1"))
    return choose(hint, MemoryConnector(table), lambda _: None, {"nameless": nameless}).settings.retry


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (
            "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='10s', 'max-attempts'='3'",
            FixedDelay(3, 10.0).if_miss(),
        ),
        (
            "'retry-predicate'='exception,lookup-miss', 'retry-strategy'='exponential_delay', 'initial-backoff'='1s',"
            " 'max-backoff'='8s', 'backoff-multiplier'='3', 'jitter-factor'='0', 'max-attempts'='5'",
            ExponentialDelay(5, 1.0, maximum=8.0, multiplier=3.0, jitter=0.0).if_exception().if_miss(),
        ),
        (
            "'retry-predicate'='nameless', 'retry-strategy'='fixed_delay', 'fixed-delay'='1 ms', 'max-attempts'='1'",
            FixedDelay(1, 0.001).if_result(nameless),
        ),
    ],
)
def test_a_hint_and_python_make_the_same_policy(options: str, policy: RetryPolicy) -> None:
    assert from_hint(options) == policy
    assert str(from_hint(options)) == str(policy)


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        FixedDelay(3, 10.0).if_miss(),
        ExponentialDelay(2, 1.0).if_exception(OSError, is_busy).if_exception(ValueError),
        Squares(3).if_result(nameless).if_result(nameless),
    ],
)
def test_policies_travel_to_workers(policy: RetryPolicy) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy


def waits(policy: RetryPolicy, spread: float = 0.0) -> list[float | None]:
    return [policy.delay_after_miss(attempt, spread) for attempt in range(1, 6)]


def test_waits_of_each_strategy() -> None:
    assert waits(FixedDelay(2, 10.0).if_miss()) == [10.0, 10.0, None, None, None]
    growing = ExponentialDelay(4, 1.0, maximum=5.0, jitter=0.5).if_miss()
    assert waits(growing) == [1.0, 2.0, 4.0, 5.0, None]
    assert waits(growing, spread=1.0) == [1.5, 3.0, 6.0, 7.5, None]
    assert waits(Squares(3).if_miss()) == [1.0, 4.0, 9.0, None, None]
    assert waits(FixedDelay(2, 10.0).if_exception()) == [None] * 5


def test_a_multiplier_that_overflows_stays_at_the_maximum() -> None:
    policy = ExponentialDelay(10**6, 1.0, maximum=30.0, jitter=0.0).if_miss()
    assert policy.delay_after_miss(100_000, 0.0) == 30.0


def test_an_exception_is_asked_again_by_class_subclass_and_predicate() -> None:
    policy = FixedDelay(1, 1.0).if_exception(OSError).if_exception(is_busy)
    for error in (OSError(), ConnectionResetError(), ValueError("busy")):
        assert policy.delay_after_error(1, error, 0.0) == 1.0
    assert policy.delay_after_error(1, ValueError("wrong"), 0.0) is None
    assert policy.delay_after_error(2, OSError(), 0.0) is None
    assert policy.delay_after_miss(1, 0.0) is None


def test_what_cannot_pass_is_final_whatever_the_predicate_says() -> None:
    policy = FixedDelay(1, 1.0).if_exception(lambda error: True)
    for error in (
        ConnectorError("refused", permanent=True),
        InternalError("ours"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ):
        assert policy.delay_after_error(1, error, 0.0) is None


def test_a_source_that_asks_for_more_time_gets_it() -> None:
    policy = FixedDelay(1, 1.0).if_exception()
    assert policy.delay_after_error(1, ConnectorError("429", retry_after=7.0), 0.0) == 7.0
    assert policy.delay_after_error(1, ConnectorError("429", retry_after=0.1), 0.0) == 1.0


def test_the_longest_wait() -> None:
    assert RetryPolicy().longest_wait() == 0.0
    assert FixedDelay(3, 10.0).if_miss().longest_wait() == 30.0
    assert ExponentialDelay(3, 1.0, jitter=0.5).if_exception().longest_wait() == pytest.approx(10.5)
    assert Squares(10**9).if_miss().longest_wait() == math.inf


@dataclass(frozen=True)
class Gives(RetryStrategy):
    wait: Any

    def can_retry(self, attempt: int) -> bool:
        return True

    def backoff(self, attempt: int) -> float:
        return float(self.wait)


def test_a_strategy_that_gives_no_wait_waits_the_shortest_one() -> None:
    assert Gives(0.0).if_miss().delay_after_miss(1, 0.0) == 0.001


@pytest.mark.parametrize("wait", [-1.0, math.nan, math.inf])
def test_a_strategy_that_gives_nonsense_is_named(wait: float) -> None:
    with pytest.raises(ValueError, match=r"backoff\(2\) of the retry strategy Gives gave (-1.0|nan|inf)"):
        Gives(wait).if_miss().delay_after_miss(2, 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedDelay(0, 1.0), "max_attempts must be a whole number from 1 on, not 0"),
        (lambda: FixedDelay(2.5, 1.0), "max_attempts must be a whole number from 1 on, not 2.5"),  # type: ignore[arg-type]
        (lambda: FixedDelay(1, 0.0), "longer than 0 s, not 0.0 s"),
        (lambda: FixedDelay(1, math.nan), "longer than 0 s, not nan s"),
        (lambda: ExponentialDelay(1, -1.0), "longer than 0 s, not -1.0 s"),
        (lambda: ExponentialDelay(1, 9.0, maximum=8.0), "shorter than the initial one"),
        (lambda: ExponentialDelay(1, 1.0, multiplier=0.5), "must be at least 1, not 0.5"),
        (lambda: ExponentialDelay(1, 1.0, jitter=2.0), "between 0 and 1, not 2.0"),
        (lambda: RetryPolicy(on_miss=True), "a retry needs a strategy"),
        (lambda: FixedDelay(1, 1.0).if_exception("OSError"), "classes and predicates, not 'OSError'"),  # type: ignore[arg-type]
        (lambda: FixedDelay(1, 1.0).if_result(None), "a function of the rows found, not None"),  # type: ignore[arg-type]
        (lambda: RetryPolicy(10.0), "such as FixedDelay"),  # type: ignore[arg-type]
    ],
)
def test_policies_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_what_a_reader_sees() -> None:
    assert str(RetryPolicy()) == "none"
    policy = FixedDelay(3, 10.0).if_miss().if_exception(OSError, is_busy).if_result(nameless)
    assert str(policy) == (
        "lookup_miss,exception (OSError, is_busy),nameless, fixed_delay 10 s, max-attempts 3"
    )
    assert str(Squares(3).if_miss()) == "lookup_miss, Squares"
