"""Second requests in place of slow ones, on a clock that waits in no time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.runtime.hedging import Hedges
from lookup_hints.runtime.spec import Budget, Hedge
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector
from lookup_hints.spi.model import LookupRequest, LookupTable, RowRequest, Rows
from lookup_hints.testing import LookedUp, looked_up
from tests.unit.runtime.support import SCHEMA

AFTER = Hedge(0.2)
FAST, SLOW = 0.05, 5.0


class Replicas:
    """Answers each request after seconds that depend on the key and on how often it was asked before."""

    def __init__(
        self, seconds: Callable[[int, int], float], failing: set[tuple[int, int]] | None = None
    ) -> None:
        self._seconds, self._failing = seconds, failing or set()
        self.asked: Counter[int] = Counter()
        self.in_flight = self.cancelled = 0

    async def serve(self, key: int) -> dict[str, Any]:
        attempt = self.asked[key]
        self.asked[key] += 1
        self.in_flight += 1
        try:
            await asyncio.sleep(self._seconds(key, attempt))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        if (key, attempt) in self._failing:
            raise ConnectorError(f"replica {attempt} lost {key}")
        return {"id": key, "name": f"n{key}"}


class ByTable(AsyncLookup):
    """One that is asked for tables of keys."""

    def __init__(self, replicas: Replicas, options: dict[str, str]) -> None:
        super().__init__(LookupTable("people", SCHEMA, options=options))
        self._replicas = replicas

    async def alookup(self, request: LookupRequest) -> pa.Table:
        (key,) = request.keys.column("id").to_pylist()
        return pa.Table.from_pylist([await self._replicas.serve(key)], SCHEMA)


class ByRow(AsyncRowLookup):
    """One that is asked for one key at a time."""

    def __init__(self, replicas: Replicas, options: dict[str, str]) -> None:
        super().__init__(LookupTable("people", SCHEMA, options=options))
        self._replicas = replicas

    async def alookup_row(self, request: RowRequest) -> Rows:
        return [await self._replicas.serve(request.key["id"])]


LOCAL = {"connector": "mine"}
REMOTE = {"connector": "mine", "url": "mine://crm:99"}
Source = Callable[[Replicas, dict[str, str]], Connector]
BOTH = pytest.mark.parametrize("source", [ByTable, ByRow])


def ask(connector: Connector, keys: int, **settings: Any) -> LookedUp:
    given = {"hedge": AFTER, "batch_size": 1, "timeout": 60.0, "capacity": 10, **settings}
    return looked_up(connector, [(key,) for key in range(keys)], **given)


def slow_at_first(*keys: int) -> Callable[[int, int], float]:
    return lambda key, attempt: SLOW if key in keys and not attempt else FAST


@BOTH
@pytest.mark.parametrize("options", [LOCAL, REMOTE])
def test_a_slow_request_is_sent_again_and_the_first_answer_counts(
    source: Source, options: dict[str, str]
) -> None:
    replicas = Replicas(slow_at_first(77))
    found = ask(source(replicas, options), 100)
    assert found.rows == [[(key, f"n{key}")] for key in range(100)]
    assert found.seconds < 1.0
    assert replicas.asked == Counter({**dict.fromkeys(range(100), 1), 77: 2})
    assert (replicas.cancelled, replicas.in_flight) == (1, 0)
    assert (found.metrics.requests, found.metrics.hedges, found.metrics.hedges_won) == (101, 1, 1)


@BOTH
def test_a_first_request_that_is_faster_after_all_wins(source: Source) -> None:
    replicas = Replicas(lambda key, attempt: (SLOW if attempt else 0.3) if key == 77 else FAST)
    found = ask(source(replicas, LOCAL), 100)
    assert found.rows[77] == [(77, "n77")]
    assert found.seconds < 1.5
    assert (found.metrics.hedges, found.metrics.hedges_won, replicas.cancelled) == (1, 0, 1)


@BOTH
def test_without_a_hedge_nothing_is_sent_twice(source: Source) -> None:
    replicas = Replicas(slow_at_first(77))
    found = ask(source(replicas, LOCAL), 100, hedge=None)
    assert found.seconds > SLOW
    assert (replicas.asked.total(), found.metrics.hedges) == (100, 0)


@BOTH
def test_all_that_is_slow_gets_a_twentieth_more_at_most(source: Source) -> None:
    replicas = Replicas(lambda *_: 0.5)
    found = ask(source(replicas, LOCAL), 400)
    assert found.metrics.hedges == 20
    assert replicas.asked.total() == 420


@BOTH
@pytest.mark.parametrize("failing", [(77, 0), (77, 1)])
def test_one_try_that_fails_is_no_failure(source: Source, failing: tuple[int, int]) -> None:
    # The first one fails while the second is under way, or the other way round.
    replicas = Replicas(lambda key, _: 0.3 if key == 77 else FAST, {failing})
    found = ask(source(replicas, LOCAL), 100)
    assert found.rows[77] == [(77, "n77")]
    assert (found.metrics.hedges, found.metrics.errors) == (1, 0)


@BOTH
def test_two_tries_that_fail_are_one_failure_of_the_first(source: Source) -> None:
    replicas = Replicas(lambda key, _: 0.3 if key == 77 else FAST, {(77, 0), (77, 1)})
    with pytest.raises(ConnectorError, match="replica 0 lost 77"):
        ask(source(replicas, LOCAL), 100)
    assert replicas.in_flight == 0


@BOTH
def test_no_try_outlives_the_time_of_its_key(source: Source) -> None:
    replicas = Replicas(lambda key, _: 1e6 if key == 77 else FAST)
    with pytest.raises(LookupTimeout, match="no answer within 5 s"):
        ask(source(replicas, LOCAL), 100, timeout=5.0)
    assert (replicas.asked[77], replicas.in_flight) == (2, 0)


@BOTH
def test_time_without_a_turn_is_not_slow(source: Source) -> None:
    replicas = Replicas(lambda *_: 0.15)
    budget = Budget(concurrency=1, task_concurrency=1)
    found = ask(source(replicas, REMOTE), 30, budget=budget)
    assert found.seconds > 30 * 0.15 - 1e-6
    assert (replicas.asked.total(), found.metrics.hedges) == (30, 0)


@BOTH
def test_who_waited_for_its_turn_may_be_slow_after_that(source: Source) -> None:
    replicas = Replicas(slow_at_first(39))
    found = ask(source(replicas, REMOTE), 40, capacity=40)
    assert (replicas.asked[39], found.metrics.hedges_won) == (2, 1)
    assert found.seconds < 2.0


@BOTH
def test_a_source_without_a_free_turn_gets_no_second_request(source: Source) -> None:
    replicas = Replicas(lambda key, _: 1.0 if key >= 90 else FAST)
    budget = Budget(concurrency=10, task_concurrency=10)
    found = ask(source(replicas, REMOTE), 100, budget=budget)
    assert found.rows == [[(key, f"n{key}")] for key in range(100)]
    assert (replicas.asked.total(), found.metrics.requests, found.metrics.hedges) == (100, 100, 0)


@pytest.mark.work(4)
@BOTH
def test_what_is_slow_is_learned_where_nobody_says(source: Source) -> None:
    slow = slow_at_first(3, 777)
    replicas = Replicas(lambda key, attempt: slow(key, attempt) + key % 50 / 1e3)
    found = ask(source(replicas, LOCAL), 1000, hedge=Hedge(), capacity=5)
    assert replicas.asked[3] == 1, "nothing was known"
    assert replicas.asked[777] == 2
    assert found.seconds < SLOW + 1000 / 5 * 0.1
    assert found.metrics.hedges <= 50


@BOTH
def test_one_that_stays_slow_is_sent_again_once_there_is_one_to_spend(source: Source) -> None:
    replicas = Replicas(slow_at_first(0))
    found = ask(source(replicas, LOCAL), 100, ordered=False)
    assert (replicas.asked[0], found.metrics.hedges) == (2, 1)
    assert found.seconds < 1.0


def test_the_percentile_is_that_of_the_last_thousand() -> None:
    hedges = Hedges(Hedge())
    for millisecond in range(99):
        hedges.took(millisecond / 1e3)
    assert hedges.delay is None
    hedges.took(0.099)
    assert hedges.delay == pytest.approx(0.095)
    for _ in range(1000):
        hedges.took(2.0)
    assert hedges.delay == 2.0


def test_what_is_saved_has_a_bound() -> None:
    hedges = Hedges(AFTER)
    for _ in range(10_000):
        hedges.begin()
    assert [hedges.spend() for _ in range(11)] == [*[True] * 10, False]


@pytest.mark.parametrize("delay", [0.0, -1.0, float("nan")])
def test_a_delay_is_some_time(delay: float) -> None:
    with pytest.raises(ValueError, match="some time after"):
        Hedge(delay)
