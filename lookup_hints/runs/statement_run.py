"""One statement, run and watched: what it gave, how long it took, what its lookups did, how it failed.

The command line, ``spark-submit`` and notebooks show the same things in two ways; this is what they show.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from lookup_hints.driver.metrics_collector import brings_counts
from lookup_hints.driver.run_statement import MetricsByName, analyzed, measured
from lookup_hints.errors import LookupHintsError, QueryError, Span, cause_of
from lookup_hints.metrics.readable_summary import in_short
from lookup_hints.metrics.tables import Lookups
from lookup_hints.runs.progress import LiveLines, Watch
from lookup_hints.spi.secrets import masked_text
from lookup_hints.statements import gives_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lookup_hints.plan.joins import LookupPlan
    from lookup_hints.session import LookupSession
    from lookup_hints.statements import ScriptStatement
    from lookup_hints.streaming.streams import StartedStream

_PLACE = re.compile(r"[;(]?\s*\(?line \d+,? pos \d+\)?;?$", re.MULTILINE)
_STACK = re.compile(r"\n\s+at [\w.$]+\(|\nJVM stacktrace|\n\s*\n?== SQL|\n'|\n\+- ")
_FROM_WORKER = ("PythonException", "from the Python worker", "Traceback (most recent call last)")
# Spark's tip is for those who call it from Python.
_UNBOUND = re.compile(r"(unbound parameter: (\w+)\.) Please, fix `args`.*?(?= SQLSTATE|\Z)", re.DOTALL)
_MODULES = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")


def brief(error: BaseException, text: str = "", line: int = 1, column: int = 1) -> str:
    """What ``error`` says to the author of a statement, in few lines.

    Errors of this library stay as they are. Of Spark's, the condition, the message and the place are kept;
    of a failure on a worker, what failed there.

    Args:
        error: anything that came out of a statement.
        text: the statement, for the line and the mark under what is wrong.
        line: where the statement begins in its file or cell; places are those of the file.
        column: and in which column.

    >>> brief(ValueError("no such thing"))
    'ValueError: no such thing'
    """

    def moved(at: Span) -> Span:
        return at.in_file(line, column)

    if isinstance(error, LookupFailed):
        return "\n".join([brief(error.error), *(_shown_place(moved(each)) for each in error.places)])
    if isinstance(error, QueryError):
        return str(QueryError([replace(each, at=each.at and moved(each.at)) for each in error.problems]))
    if isinstance(error, LookupHintsError):
        return str(error)
    said = str(error).strip()
    if any(mark in said or mark in type(error).__name__ for mark in _FROM_WORKER):
        return _MODULES.sub("", cause_of(error))
    is_sparks = any(kind.__module__.startswith(("pyspark", "py4j")) for kind in type(error).__mro__)
    if not is_sparks:
        return f"{type(error).__name__}: {said}".rstrip(": ")
    message = _PLACE.sub("", _STACK.split(said)[0]).strip() or type(error).__name__
    message = _UNBOUND.sub(r"\1 Give it: --param \2=VALUE.", message)
    place = next(map(moved, _places_of_error(error, said, text)), None)
    return message if place is None else f"{message}\n{_shown_place(place)}"


def _shown_place(place: Span) -> str:
    return f"{place}:\n{masked_text(place.underlined())}"


def _places_of_error(error: Any, said: str, text: str) -> Iterator[Span]:
    """Where ``text`` has what Spark points at; Spark may have seen it in other surroundings."""
    try:
        contexts = [each for each in error.getQueryContext() if str(each.contextType()).endswith("SQL")]
    except Exception:  # older errors have none, and those of a lost JVM cannot be asked
        contexts = []
    for context in contexts:
        fragment = context.fragment()
        start = context.startIndex()
        if fragment and text[start : start + len(fragment)] == fragment:
            yield Span(text, start, start + len(fragment))
        elif fragment and text.count(fragment) == 1:
            start = text.index(fragment)
            yield Span(text, start, start + len(fragment))
    marked = re.search(r"^(.*)\n([ \t-]*)(\^+)", said, re.MULTILINE)
    if marked is not None:
        line = marked[1]
        if line and text.count(line) == 1:
            start = text.index(line) + len(marked[2])
            yield Span(text, start, start + len(marked[3]))


Taken = TypeVar("Taken")


class LookupFailed(LookupHintsError):
    """A lookup of a statement failed on a worker.

    Args:
        error: what came of Spark.
        places: its join in the statement; several, where equal joins share what runs them.
    """

    def __init__(self, error: Exception, places: Sequence[Span]) -> None:
        super().__init__(str(error))
        self.error, self.places = error, places


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
        with nullcontext() if self._watch is None else self._watch_lookups(self._watch):
            try:
                frame = self.start()
                taken = None if self.stream is not None else rows(frame)
            except Exception as error:
                places = self._places_of_lookup(str(error))
                if not places:
                    raise
                raise LookupFailed(error, places) from error
        self.seconds = time.perf_counter() - self._began
        if self.stream is None:
            self._after = self.session.metrics()
        return taken

    def _places_of_lookup(self, said: str) -> list[Span]:
        """The joins whose function an error names."""
        if self.plan is None:
            return []
        return [
            Span(self.plan.text, join.at.start, join.at.end)
            for join in self.plan.joins
            if join.function.name.function in said
        ]

    @contextmanager
    def _watch_lookups(self, watch: Watch) -> Iterator[None]:
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
    def in_short(self) -> list[str]:
        """A line for each lookup that counted something, and for each table that was read whole."""
        asked = [in_short(each) for each in self.lookups.values() if each.counts.rows_in]
        scans = () if self.plan is None else self.plan.scans
        read = [f"{scan.use.shown}: read whole, as {scan.decision.reason}" for scan in scans]
        return [*asked, *read, *filter(None, [self.uncounted])]

    @property
    def analyzed(self) -> str:
        assert self.plan is not None
        return analyzed(self.plan, self.lookups, self.seconds, self.statement.line)

    @property
    def uncounted(self) -> str:
        """Why lookups of it have no counts; empty where all have."""
        return uncounted(self.lookups, can_arrive=brings_counts(self.session.spark))


def failure(statement: ScriptStatement, error: Exception) -> str:
    """What to say of a statement that failed, with the place in its file."""
    return brief(error, statement.text, statement.line, statement.column)


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
