"""What Spark's EXPLAIN COST says of a left side, remembered: it takes Spark a plan."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TextIO, cast

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


_captures = Lock()
"""One at a time: what is put in the place of ``sys.stdout`` is taken away in the same order."""


def explained_cost(query: DataFrame) -> str:
    """What EXPLAIN COST says of ``query``.

    ``DataFrame.explain`` prints it. As a command, EXPLAIN makes Spark plan and run two more queries.
    """
    with _captures:
        printed = _Printed(sys.stdout)
        try:
            with redirect_stdout(cast("TextIO", printed)):
                query.explain(mode="cost")
        finally:
            printed.ends()
    return printed.text


class _Printed:
    """Keeps what one thread prints, until it ends; all else goes on to ``stdout``."""

    def __init__(self, stdout: TextIO) -> None:
        self._stdout = stdout
        self._thread: int | None = get_ident()
        self.text = ""

    def ends(self) -> None:
        """Whoever still has this prints to where it did before."""
        self._thread = None

    def write(self, text: str) -> int:
        """Keep the text of that thread."""
        if get_ident() != self._thread:
            return self._stdout.write(text)
        self.text += text
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)
