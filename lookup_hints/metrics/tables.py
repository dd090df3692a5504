"""Counts and rows as tables: of text, and of HTML for a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from operator import attrgetter
from typing import Any

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.readable_summary import (
    Measured,
    from_cache,
    has_cache,
    seconds_text,
    waited_for_source,
)

_CELL = "padding:2px 10px;border-bottom:1px solid #8883;white-space:pre;"
_TABLE = "border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:4px 0"
# Characters of a value that are shown.
_LONGEST = 100


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


def table_of(
    lookups: Lookups, title_of: Callable[[LookupName], str] = attrgetter("alias")
) -> list[list[str]]:
    """Titles, then a line for each lookup that counted something; nothing where none did."""
    lines = [
        [title_of(name), *(text(each.counts) for _, text in COLUMNS)]
        for name, each in lookups.items()
        if each.counts.rows_in
    ]
    return without_empty([list(TITLES), *lines]) if lines else []


def without_empty(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Titles and lines without the columns in which no line says anything."""
    filled = [any(cells) for cells in zip(*lines[1:], strict=True)]
    return [[cell for cell, is_filled in zip(line, filled, strict=True) if is_filled] for line in lines]


class SessionMetrics(dict[LookupName, LookupMetrics]):
    """Counts by lookup, which show themselves as a table."""

    def __repr__(self) -> str:
        lines = self._write_lines()
        return aligned(lines) if lines else "no lookup has counted anything"

    def _repr_html_(self) -> str:
        lines = self._write_lines()
        return html_counts(lines) if lines else escape(repr(self))

    def _write_lines(self) -> list[list[str]]:
        return table_of({name: Measured(name, counts) for name, counts in self.items()}, str)


def html_counts(lines: Sequence[Sequence[str]]) -> str:
    """A table of counts as HTML."""
    return html_table(lines[0], lines[1:], [False, *[True] * (len(lines[0]) - 1)])


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


def html_table(titles: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[bool] = ()) -> str:
    align = ["right" if number else "left" for number in numbers] or ["left"] * len(titles)
    head = "".join(
        f'<th style="{_CELL}text-align:{side};font-weight:600">{escape(title)}</th>'
        for title, side in zip(titles, align, strict=True)
    )
    body = "".join(
        '<tr style="background:none">'
        + "".join(
            f'<td style="{_CELL}text-align:{side}">{_cell_html(value)}</td>'
            for value, side in zip(row, align, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def shown_value(value: Any) -> str:
    """A value as text, on one line and not too long."""
    text = "NULL" if value is None else value if isinstance(value, str) else str(value)
    text = text.replace("\n", "\u23ce")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def _cell_html(value: Any) -> str:
    if value is None:
        return '<span style="opacity:.45">NULL</span>'
    return escape(shown_value(value))
