"""What the lookups of a statement did, as tables of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lookup_hints.plan.draft import LookupPlan
from lookup_hints.runtime.metrics import BY_SPARK, LookupMetrics
from lookup_hints.runtime.spec import LookupName

COLUMNS: tuple[tuple[str, str], ...] = (
    ("rows in", "rows_in"),
    ("rows found", "rows_found"),
    ("keys", "keys"),
    ("requests", "requests"),
    ("hits", "hits"),
    ("misses", "misses"),
    ("retried", "retried_keys"),
    ("errors", "errors"),
)
"""What is shown of the counts: title and name."""

MetricsByName = Mapping[LookupName, LookupMetrics]
"""Counts of lookups, as ``LookupSession.metrics`` gives them."""


@dataclass(frozen=True)
class Counted:
    """What one lookup function did for a statement.

    Args:
        lookup: the aliases of its joins.
        metrics: the counts, or None where none arrived.
    """

    lookup: str
    metrics: LookupMetrics | None


def counted(plan: LookupPlan | None, before: MetricsByName, after: MetricsByName) -> list[Counted]:
    """What each lookup function of ``plan`` counted between two looks at the session's metrics."""
    aliases: dict[LookupName, list[str]] = {}
    for join in () if plan is None else plan.joins:
        aliases.setdefault(join.function.name, []).append(join.use.alias)
    none = LookupMetrics()
    done = {name: after.get(name, none) - before.get(name, none) for name in aliases}
    return [
        Counted(", ".join(names), done[name] if done[name].rows_in else None)
        for name, names in aliases.items()
    ]


def table_of(lookups: Sequence[Counted], columns: Sequence[tuple[str, str]] = COLUMNS) -> list[list[str]]:
    """Titles, then a line for each lookup that counted something; nothing where none did."""
    lines = [
        [each.lookup, *(f"{getattr(each.metrics, name):,}" for _, name in columns), waited(each.metrics)]
        for each in lookups
        if each.metrics is not None
    ]
    return [["lookup", *(title for title, _ in columns), "waited"], *lines] if lines else []


def waited(metrics: LookupMetrics) -> str:
    """How long tasks could do nothing but wait for the source, all of them together."""
    return f"{metrics.waited.without(*BY_SPARK).total:.1f} s"


def uncounted(lookups: Sequence[Counted], *, on_connect: bool) -> str:
    """Why lookups have no counts; empty where all have."""
    names = ", ".join(each.lookup for each in lookups if each.metrics is None)
    if not names:
        return ""
    why = (
        "Spark Connect brings none back"
        if on_connect
        else "none of its tasks ran to its end (LIMIT), or had a row"
    )
    return f"no counts of {names}: {why}"


def aligned(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines of cells as columns of text, the first ``left`` of them flush left."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
