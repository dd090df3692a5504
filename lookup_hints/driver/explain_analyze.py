"""What the lookups of one statement counted while it ran, and its plan with these figures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lookup_hints.driver.parse_and_plan import Prepared
from lookup_hints.errors import Problem, QueryError
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.readable_summary import Measured, facts_of, seconds_text, what_mattered
from lookup_hints.plan.explain import explain
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.streaming.insert import StreamInsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lookup_hints.driver.run_statement import Statements

MetricsByName = Mapping[LookupName, LookupMetrics]
"""Counts of lookups, as ``LookupSession.metrics`` gives them."""


def measured(
    plan: LookupPlan | None, before: MetricsByName, after: MetricsByName
) -> dict[LookupName, Measured]:
    """What each lookup of ``plan`` counted between two looks at the session's metrics."""
    none = LookupMetrics()
    found = {}
    for join in () if plan is None else plan.joins:
        name, settings = join.function.name, join.function.settings
        counts = after.get(name, none) - before.get(name, none)
        found[name] = Measured(name, counts, settings.capacity if settings.asynchronous else None)
    return found


def run_to_its_end(frame: DataFrame) -> None:
    """Compute all rows of ``frame``, and keep none. A statement that writes has run when it is a frame."""
    if frame.columns:
        frame.write.format("noop").mode("overwrite").save()


def explain_analyze(statements: Statements, prepared: Prepared) -> str:
    """Run a statement, and give its plan with what each lookup counted.

    Raises:
        QueryError: it has no lookup join, or is a streaming query.
    """
    plan = prepared.plan
    if isinstance(prepared.statement, StreamInsert):
        raise QueryError(
            Problem(
                "A streaming query has no end at which it could be measured.",
                tip="Start it, and look at session.streams: each batch has its figures.",
            )
        )
    if plan is None or not plan.joins:
        raise QueryError(
            Problem("This statement has no lookup join to measure.", tip="EXPLAIN shows its plan.")
        )
    functions = statements.scope.state.functions
    before, began = functions.metrics(), time.perf_counter()
    frame = statements.run(prepared)
    if plan.query is None:
        run_to_its_end(frame)
    seconds = time.perf_counter() - began
    return analyzed(plan, measured(plan, before, functions.metrics()), seconds)


def analyzed(
    plan: LookupPlan, lookups: Mapping[LookupName, Measured], seconds: float, first_line: int = 1
) -> str:
    """The plan with the figures of its lookups; the first line says what mattered."""
    figures = {name: tuple(facts_of(each)) for name, each in lookups.items() if each.counts.tasks}
    mattered = what_mattered(lookups)
    head = f"{seconds_text(seconds)}; {mattered}" if mattered else seconds_text(seconds)
    return f"{head}\n\n{explain(plan, figures, first_line)}"
