"""What a left side costs is remembered for a minute, under the hash of its analysed plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

from lookup_hints.execution.left_costs import MOST_REMEMBERED, LeftCosts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def query(plan: int) -> Any:
    """A frame with that analysed plan."""
    return SimpleNamespace(semanticHash=lambda: plan)


def test_a_cost_is_remembered_for_a_minute() -> None:
    clock, numbers = Clock(), count()
    costs = LeftCosts(clock)
    found = []
    for clock.now in (0.0, 59.0, 60.0, 61.0):
        found.append(costs.of(query(1), lambda: f"explained {next(numbers)}"))
    assert found == ["explained 0", "explained 0", "explained 1", "explained 1"]


def explained_anew(costs: LeftCosts, plans: Iterable[int]) -> list[int]:
    """Those of ``plans`` that Spark had to explain, one after the other."""
    asked: list[int] = []

    def explain(plan: int) -> str:
        asked.append(plan)
        return f"plan {plan}"

    for plan in plans:
        assert costs.of(query(plan), partial(explain, plan)) == f"plan {plan}"
    return asked


def test_another_plan_has_a_cost_of_its_own() -> None:
    assert explained_anew(LeftCosts(Clock()), [1, 2, 1]) == [1, 2]


def test_only_the_last_costs_are_kept() -> None:
    plans = range(MOST_REMEMBERED + 1)
    assert explained_anew(LeftCosts(Clock()), [*plans, MOST_REMEMBERED, 0]) == [*plans, 0]
