"""What the lookups of a statement did, as tables of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lookup_hints.metrics.counts import LookupMetrics
from lookup_hints.metrics.figures import Measured, from_cache, has_cache, seconds_text, waited_for_source
from lookup_hints.spec import LookupName

Lookups = Mapping[LookupName, Measured]
"""What was counted for the lookups of a statement."""

COLUMNS: tuple[tuple[str, Callable[[LookupMetrics], str]], ...] = (
    ("rows in", lambda counts: f"{counts.rows_in:,}"),
    ("rows out", lambda counts: f"{counts.rows_out:,}"),
    ("keys", lambda counts: f"{counts.keys:,}"),
    ("requests", lambda counts: f"{counts.requests:,}"),
    ("hits", lambda counts: f"{counts.hits:,}"),
    ("misses", lambda counts: f"{counts.misses:,}"),
    ("cached", lambda counts: f"{from_cache(counts):,}" if has_cache(counts) else ""),
    ("retried", lambda counts: f"{counts.retried_keys:,}"),
    ("errors", lambda counts: f"{counts.errors:,}"),
    ("p99", lambda counts: seconds_text(counts.latency.quantile(0.99)) if counts.requests else ""),
    ("waited", lambda counts: f"{waited_for_source(counts):.1f} s"),
)
"""What is shown of the counts: title and text."""

TITLES = ("lookup", *(title for title, _ in COLUMNS))


def table_of(lookups: Lookups) -> list[list[str]]:
    """Titles, then a line for each lookup that counted something; nothing where none did."""
    lines = [
        [name.alias, *(text(each.counts) for _, text in COLUMNS)]
        for name, each in lookups.items()
        if each.counts.rows_in
    ]
    return without_empty([list(TITLES), *lines]) if lines else []


def without_empty(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Titles and lines without the columns in which no line says anything."""
    filled = [any(cells) for cells in zip(*lines[1:], strict=True)]
    return [[cell for cell, is_filled in zip(line, filled, strict=True) if is_filled] for line in lines]


def uncounted(lookups: Lookups, *, can_arrive: bool) -> str:
    """Why lookups have no counts; empty where all have."""
    names = ", ".join(name.alias for name, each in lookups.items() if not each.counts.rows_in)
    if not names:
        return ""
    why = (
        "none of its tasks ran to its end (LIMIT), or had a row"
        if can_arrive
        else "Spark Connect brings them back from PySpark 4.0 on"
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
