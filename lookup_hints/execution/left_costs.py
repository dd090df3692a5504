"""What Spark's EXPLAIN COST says of a left side, remembered: it takes Spark a plan."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from inspect import unwrap
from io import StringIO
from types import FunctionType
from typing import TYPE_CHECKING

from lookup_hints.execution.table_sizes import REMEMBERED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_REMEMBERED = 100
"""The text of one plan may be long."""


class LeftCosts:
    """The costs of left sides, each remembered for a minute under the hash of Spark's analysed plan.

    A view that was replaced, or a file that is another one, is another plan. One that only grew is not.

    Args:
        clock: tells the time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[int, tuple[float, str]] = {}

    def of(self, query: DataFrame) -> str:
        """What EXPLAIN COST says of ``query``, or what it said less than a minute ago."""
        plan, now = query.semanticHash(), self._clock()
        at, cost = self._told.get(plan, (now - REMEMBERED_SECONDS, ""))
        if now - at < REMEMBERED_SECONDS:
            return cost
        return self._remembered(plan, now, explained_cost(query))

    def _remembered(self, plan: int, now: float, cost: str) -> str:
        kept = {each: told for each, told in self._told.items() if now - told[0] < REMEMBERED_SECONDS}
        self._told = dict([*kept.items(), (plan, (now, cost))][-MOST_REMEMBERED:])
        return cost


def explained_cost(query: DataFrame) -> str:
    """What EXPLAIN COST says of ``query``; nothing where PySpark's ``explain`` is not as it was.

    ``DataFrame.explain`` prints it. As a command, EXPLAIN makes Spark plan and run two more queries. So the
    function is called with a ``print`` of its own, and what others print goes where it did.
    """
    explain = unwrap(type(query).explain)
    if not isinstance(explain, FunctionType) or "print" not in explain.__code__.co_names:
        return ""
    text = StringIO()
    names = {**explain.__globals__, "print": partial(print, file=text)}
    own = FunctionType(explain.__code__, names, None, explain.__defaults__, explain.__closure__)
    own.__kwdefaults__ = explain.__kwdefaults__
    own(query, mode="cost")
    return text.getvalue()
