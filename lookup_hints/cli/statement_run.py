"""One statement, run and watched: what it gave, how long it took, what its lookups did, how it failed.

The command line, ``spark-submit`` and notebooks show the same things in two ways; this is what they show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from lookup_hints.cli.error_text import brief
from lookup_hints.cli.progress import LiveLines, Watch
from lookup_hints.driver.functions import brings_counts
from lookup_hints.driver.measure import MetricsByName, analyzed, measured
from lookup_hints.metrics.counts import LookupMetrics
from lookup_hints.metrics.figures import Measured, from_cache, has_cache, seconds_text, waited_for_source
from lookup_hints.spec import LookupName
from lookup_hints.statements.statement import gives_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lookup_hints.plan.draft import LookupPlan
    from lookup_hints.session import LookupSession
    from lookup_hints.statements.script import ScriptStatement
    from lookup_hints.streaming.streams import StartedStream

Taken = TypeVar("Taken")


class StatementRun:
    """One statement of a file or a cell: planned when it is made, run once, then what is known of it.

    Examples:
        >>> run = StatementRun(session, statement, {"day": "2013-01-01"}, partial(following, spark, draw))
        >>> rows = run.take(lambda frame: frame.take(20))
        >>> run.seconds, run.lookups
    """

    def __init__(
        self,
        session: LookupSession,
        statement: ScriptStatement,
        params: Mapping[str, Any],
        watch: Watch | None = None,
        *,
        few_rows: bool = True,
    ) -> None:
        self.session, self.statement = session, statement
        self.seconds = 0.0
        """How long it took, its planning too; of a streaming query, until that had started."""
        self.stream: StartedStream | None = None
        """The streaming query that it started."""
        self._watch = watch
        self._began = time.perf_counter()
        with nullcontext() if watch is None else watch(tuple):
            self._prepared = session.prepare(statement.text, params, few_rows=few_rows, line=statement.line)
        self._before = session.metrics()
        self._after: MetricsByName | None = None

    @property
    def plan(self) -> LookupPlan | None:
        return self._prepared.plan

    @property
    def gives_text(self) -> bool:
        """Whether its result is a text of several lines rather than rows."""
        return gives_text(self._prepared.statement)

    def start(self) -> DataFrame:
        """Run it without taking rows; what it gives."""
        known = len(self.session.streams.started)
        frame = self.session.run(self._prepared)
        started = self.session.streams.started[known:]
        self.stream = started[-1] if started else None
        return frame

    def take(self, rows: Callable[[DataFrame], Taken]) -> Taken | None:
        """Run it, and take ``rows`` of what it gives; None of a streaming query, whose rows go elsewhere."""
        with nullcontext() if self._watch is None else self._watched(self._watch):
            frame = self.start()
            taken = None if self.stream is not None else rows(frame)
        self.seconds = time.perf_counter() - self._began
        if self.stream is None:
            self._after = self.session.metrics()
        return taken

    @contextmanager
    def _watched(self, watch: Watch) -> Iterator[None]:
        names = [] if self.plan is None else [join.function.name for join in self.plan.joins]
        if not names:
            with watch(tuple):
                yield
            return
        with self.session.watching() as look, watch(LiveLines(names, look)):
            yield

    @property
    def lookups(self) -> Lookups:
        """What its lookups did, until now if its streaming query still runs."""
        return measured(self.plan, self._before, self._after or self.session.metrics())

    @property
    def analyzed(self) -> str:
        """Its plan with what its lookups did; for a statement with lookup joins that has run."""
        assert self.plan is not None
        return analyzed(self.plan, self.lookups, self.seconds, self.statement.line)

    @property
    def uncounted(self) -> str:
        """Why lookups of it have no counts; empty where all have."""
        return uncounted(self.lookups, can_arrive=brings_counts(self.session.spark))


def failure(statement: ScriptStatement, error: Exception) -> str:
    """What to say of a statement that failed, with the place in its file."""
    return brief(error, statement.text, statement.line, statement.column)


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
