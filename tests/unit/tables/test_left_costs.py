"""What a left side costs is remembered for a minute, under the hash of its analysed plan."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from itertools import count
from threading import Thread
from typing import Any

import pytest

from lookup_hints.execution.left_costs import MOST_REMEMBERED, LeftCosts, explained_cost


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Query:
    """A frame with that analysed plan; ``explain`` tells what it prints."""

    def __init__(self, plan: int, explain: Callable[[], str]) -> None:
        self._plan, self._explain = plan, explain

    def semanticHash(self) -> int:  # noqa: N802 - PySpark's name
        return self._plan

    def explain(self, *, mode: str) -> None:
        assert mode == "cost"
        print(self._explain())


def query(plan: int, explain: Callable[[], str]) -> Any:
    return Query(plan, explain)


def test_a_cost_is_remembered_for_a_minute() -> None:
    clock, numbers = Clock(), count()
    costs = LeftCosts(clock)
    found = []
    for clock.now in (0.0, 59.0, 60.0, 61.0):
        found.append(costs.of(query(1, lambda: f"explained {next(numbers)}")))
    assert found == ["explained 0\n", "explained 0\n", "explained 1\n", "explained 1\n"]


def explained_anew(costs: LeftCosts, plans: Iterable[int]) -> list[int]:
    """Those of ``plans`` that Spark had to explain, one after the other."""
    asked: list[int] = []

    def explained(plan: int) -> Callable[[], str]:
        def explain() -> str:
            asked.append(plan)
            return f"plan {plan}"

        return explain

    for plan in plans:
        assert costs.of(query(plan, explained(plan))) == f"plan {plan}\n"
    return asked


def test_another_plan_has_a_cost_of_its_own() -> None:
    assert explained_anew(LeftCosts(Clock()), [1, 2, 1]) == [1, 2]


def test_only_the_last_costs_are_kept() -> None:
    plans = range(MOST_REMEMBERED + 1)
    assert explained_anew(LeftCosts(Clock()), [*plans, MOST_REMEMBERED, 0]) == [*plans, 0]


def test_nothing_is_redirected_meanwhile() -> None:
    stdout, seen = io.StringIO(), []

    def explain() -> str:
        seen.append(sys.stdout)
        print("the planning thread")
        other = Thread(target=print, args=("another thread",))
        other.start()
        other.join()
        return "the plan"

    with redirect_stdout(stdout):
        assert explained_cost(query(1, explain)) == "the plan\n"
        assert seen == [stdout]
    assert stdout.getvalue() == "the planning thread\nanother thread\n"


def test_a_plan_that_cannot_be_explained_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        explained_cost(query(1, lambda: str(1 // 0)))


class ToldElsewhere(Query):
    """As if PySpark told its plans in another way."""

    def explain(self, *, mode: str) -> None:
        sys.stdout.write("the plan\n")


def test_where_pyspark_prints_no_plan_nothing_is_known_and_nothing_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: Any = ToldElsewhere(1, str)
    assert explained_cost(told) == ""
    assert capsys.readouterr().out == ""
