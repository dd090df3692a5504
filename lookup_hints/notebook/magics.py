"""Notebooks: ``%load_ext lookup_hints`` brings ``%%lookup_sql``, ``%lookup_sql`` and ``%lookup_tables``.

IPython comes with the notebook (or by the extra ``notebook``); only this module knows it.
"""

from __future__ import annotations

import datetime
import decimal
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import DisplayHandle, display

from lookup_hints.driver.interrupts import catch_interrupts
from lookup_hints.driver.run_statement import run_to_its_end
from lookup_hints.errors import LookupHintsError, Problem, QueryError, counted, did_you_mean
from lookup_hints.metrics.readable_summary import facts_of, what_mattered
from lookup_hints.metrics.tables import Lookups, aligned, html_counts, html_table, shown_value, table_of
from lookup_hints.notebook import html
from lookup_hints.plan.explain import joins_text
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.runs.progress import Progress, TerminalBar, Watch, following
from lookup_hints.runs.start import SparkStart, on_terminal
from lookup_hints.runs.statement_run import StatementRun, brief, failure
from lookup_hints.session import LookupSession
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import ScriptStatement, parameters, parse_params, split_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lookup_hints.plan.joins import LookupPlan

_ROWS = 20

# What a parameter can be.
_VALUES = (
    *(str, bool, int, float, decimal.Decimal, bytes, type(None)),
    *(datetime.date, datetime.datetime, datetime.timedelta, list, tuple, dict),
)


def load(shell: InteractiveShell) -> None:
    """Add the magics to a shell, in whose cells an interrupt ends what Spark computes."""
    shell.register_magics(LookupMagics)
    # A kernel sets a handler of its own before each cell.
    shell.events.register("pre_run_cell", lambda _: catch_interrupts())


# IPython shows `_render_traceback_` in place of a stack, and the cell counts as failed: "run all" stops
# there. (docs/decisions/0051)
class CellFailed(LookupHintsError):
    """What a cell of SQL fails with: its message is all that the notebook shows; the error is its cause."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines in place of a stack."""
        first, *more = str(self).splitlines()
        return [f"\x1b[31m{first}\x1b[0m", *more]


@magics_class
class LookupMagics(Magics):
    """``%%lookup_sql``, ``%lookup_sql`` and ``%lookup_tables``, on the Spark session of the notebook."""

    @magic_arguments()
    @argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of the marker :NAME; without it, the variable NAME of the notebook",
    )
    @argument("--into", metavar="NAME", help="keep the DataFrame of the last statement, and show no rows")
    @argument("--limit", type=int, default=_ROWS, metavar="N", help=f"rows to show (default {_ROWS})")
    @argument(
        "--analyze",
        action="store_true",
        help="run the last statement to its end, and show its plan with measured figures, not its rows",
    )
    @argument(
        "--explain",
        action="store_true",
        help="show how the last statement would run, and run only those before",
    )
    @line_cell_magic
    def lookup_sql(self, line: str, cell: str | None = None) -> None:
        """Run SQL with lookup joins, one statement or several, and show the rows of the last.

        As ``%%lookup_sql`` it takes a cell, as ``%lookup_sql`` the rest of the line after its options.
        """
        options, text = _split_line(line) if cell is None else (line, cell)
        self._report_briefly(text, lambda: self._lookup_sql(options, text))

    @line_magic
    def lookup_tables(self, line: str) -> None:
        """Show the lookup tables of the session, and their columns."""
        screen = _Screen(is_kernel=hasattr(self.shell, "kernel"))
        self._report_briefly("", lambda: display(self._find_session(screen)))

    def _report_briefly(self, text: str, action: Callable[[], None]) -> None:
        try:
            with errors_unlogged():
                action()
        except CellFailed:
            raise
        except KeyboardInterrupt:
            raise CellFailed("cancelled") from None
        except Exception as error:
            raise CellFailed(brief(error, text)) from error

    def _lookup_sql(self, line: str, cell: str) -> None:
        options = _cell_options(line)
        if options.into is not None and not options.into.isidentifier():
            raise QueryError(Problem(f"--into {options.into}: a name of a variable is expected."))
        statements = split_statements(cell)
        if not statements:
            display(_note_line("The cell contains no statements."))
            return
        given = parse_params(options.param)
        with _Screen(is_kernel=hasattr(self.shell, "kernel")) as screen:
            session = self._find_session(screen)
            for statement in statements:
                is_last = statement is statements[-1]
                try:
                    values = values_for(statement.text, given, self._user_namespace)
                    result = self._run_cell(session, statement, values, options if is_last else None, screen)
                except Exception as error:
                    where = f"in the statement at line {statement.line}: " if len(statements) > 1 else ""
                    raise CellFailed(f"{where}{failure(statement, error)}") from error
            screen.show(result)

    def _find_session(self, screen: _Screen) -> LookupSession:
        """A session on the Spark of the notebook; where there is none, one starts and is called ``spark``."""
        spark = find_spark(self._user_namespace)
        if spark is None:
            spark = self._user_namespace["spark"] = screen.started_spark()
        return LookupSession(spark)

    def _run_cell(
        self,
        session: LookupSession,
        statement: ScriptStatement,
        values: Mapping[str, Any],
        options: Any,
        screen: _Screen,
    ) -> Shown:
        if options is None:
            return _show_run(session, statement, values, 0, screen)
        if options.explain:
            return _show_explain(session, statement, values)
        if options.analyze:
            return _show_analyze(session, statement, values, screen)
        if options.into is not None:
            run = StatementRun(session, statement, values, few_rows=False)
            frame = self._user_namespace[options.into] = run.start()
            columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in frame.schema)
            text = f"{options.into}: DataFrame[{columns}]"
            return _note_line(text) + _show_plan(run.plan)
        return _show_run(session, statement, values, options.limit, screen)

    @property
    def _user_namespace(self) -> dict[str, Any]:
        shell: Any = self.shell
        namespace: dict[str, Any] = shell.user_ns
        return namespace


_WITH_VALUE = {"--param": "NAME=VALUE", "--into": "NAME", "--limit": "N"}
_OPTIONS = (*_WITH_VALUE, "--analyze", "--explain")
_LEADING_OPTION = re.compile(r"""\s*(?:--(?:explain|analyze)\b|--\w[\w-]*[=\s]\s*(?:"[^"]*"|'[^']*'|\S)+)""")


def _split_line(line: str) -> tuple[str, str]:
    """The options before the SQL of ``%lookup_sql``, and the SQL.

    >>> _split_line("--limit 5 --explain SELECT 1 -- one")
    ('--limit 5 --explain', 'SELECT 1 -- one')
    """
    at = 0
    while option := _LEADING_OPTION.match(line, at):
        at = option.end()
    return line[:at].strip(), line[at:].strip()


def _cell_options(line: str) -> Any:
    """The options of a cell."""
    try:
        return parse_argstring(LookupMagics.lookup_sql, line)
    except UsageError as error:
        given = [word.partition("=")[0] for word in line.split() if word.startswith("--")]
        unknown = next((word for word in given if word not in _OPTIONS), None)
        near = did_you_mean(unknown, _OPTIONS) if unknown else ""
        listed = ", ".join(
            f"{name} {_WITH_VALUE[name]}" if name in _WITH_VALUE else name for name in _OPTIONS
        )
        tip = f"{near} The options: {listed}.".strip()
        raise QueryError(Problem(f"lookup_sql: {error}.", tip=tip)) from None


# --- what a cell shows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """Something to show, for a notebook and for a terminal."""

    html: str
    text: str

    def __add__(self, other: Shown) -> Shown:
        return Shown(self.html + other.html, "\n".join(filter(None, (self.text, other.text))))

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


_NOTHING = Shown("", "")


class _Screen:
    """The output of a cell: a bar while something runs, and what came of it in its place."""

    def __init__(self, *, is_kernel: bool) -> None:
        self._is_kernel = is_kernel
        self._handle: DisplayHandle | None = None

    def following(self, spark: SparkSession) -> Watch | None:
        """Shows how far the statements of a block are; None where nothing can."""
        if self._is_kernel:
            return partial(following, spark, self._show_progress)
        return partial(TerminalBar(sys.stderr).over, spark) if sys.stderr.isatty() else None

    def started_spark(self) -> SparkSession:
        """Starts Spark and shows that it starts; what it logs is kept out of the notebook."""
        if self._is_kernel:
            line = _Screen(is_kernel=True)  # of its own, as it stays: it says where Spark logs
            return SparkStart({}, hides_log=True).session(
                lambda text: line._display_in_place(_note_line(text))
            )
        if not sys.stderr.isatty():
            return SparkStart({}, hides_log=False).session()
        with on_terminal(sys.stderr) as say:
            return SparkStart({}, hides_log=True).session(say)

    def _show_progress(self, progress: Progress) -> None:
        self._display_in_place(Shown(html.bar(progress), "\n".join([str(progress), *progress.lookups])))

    def _display_in_place(self, shown: Shown) -> None:
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def show(self, shown: Shown) -> None:
        if self._is_kernel:
            self._display_in_place(shown)
        else:
            display(shown)

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Take the bar away, where nothing came in its place."""
        if kind is not None and self._handle is not None:
            self._handle.update(_NOTHING)


def _show_run(
    session: LookupSession, statement: ScriptStatement, values: Mapping[str, Any], limit: int, screen: _Screen
) -> Shown:
    ran = StatementRun(session, statement, values, screen.following(session.spark))
    # One row more than are shown: whether there are more is told.
    taken = ran.take(lambda frame: (frame, frame.take(limit + 1) if frame.columns and limit else []))
    if taken is None:
        text = f"started: {ran.stream}; stop it with session.streams.stop()"
        return _note_line(text) + _show_plan(ran.plan)
    notes = filter(None, (*ran.in_short, what_mattered(ran.lookups, ran.seconds)))
    counts = sum(map(_note_line, notes), _NOTHING)
    return _show_rows(ran, *taken, limit) + counts + _show_plan(ran.plan, ran.lookups)


def _show_rows(ran: StatementRun, frame: DataFrame, rows: Sequence[Any], limit: int) -> Shown:
    if not frame.columns:
        return _note_line(f"done in {ran.seconds:.1f} s")
    if ran.gives_text:
        text = "\n".join(str(row[0]) for row in rows)
        return Shown(html.text_block(text), text)
    numbers = [kind not in ("string", "binary", "boolean", "date") for _, kind in frame.dtypes]
    shown = [tuple(row) for row in rows[:limit]]
    cells = [[shown_value(value) for value in row] for row in shown]
    more = "the first " if len(rows) > limit else ""
    count = f"{more}{counted(len(shown), 'row')}, {ran.seconds:.1f} s"
    return Shown(
        html_table(frame.columns, shown, numbers), aligned([frame.columns, *cells], left=0)
    ) + _note_line(count)


def _show_plan(plan: LookupPlan | None, lookups: Lookups = MappingProxyType({})) -> Shown:
    if plan is None:
        return _NOTHING
    title = f"how it ran: {counted(len(plan.joins) + len(plan.scans), 'lookup')}"
    lines = table_of(lookups)
    counts = html_counts(lines) if lines else ""
    return Shown(html.folded(title, counts + html.plan_picture(plan)), "")


def _show_explain(session: LookupSession, statement: ScriptStatement, values: Mapping[str, Any]) -> Shown:
    prepared = session.prepare(statement.text, values, line=statement.line)
    text = session.explain(statement.text, values, line=statement.line)
    if prepared.plan is None:
        return Shown(html.text_block(text), text)
    whole = Shown(html.plan_picture(prepared.plan), "")
    facts = html.folded("all options", html.text_block(joins_text(prepared.plan, statement.line)))
    _, mark, rest = text.partition("== Spark SQL ==")
    sql_text = mark + rest if mark else text
    sql = html.folded("the Spark SQL that runs, and Spark's plan", html.text_block(sql_text))
    return whole + Shown(facts + sql, text)


def _show_analyze(
    session: LookupSession, statement: ScriptStatement, values: Mapping[str, Any], screen: _Screen
) -> Shown:
    ran = StatementRun(session, statement, values, screen.following(session.spark), few_rows=False)
    ran.take(run_to_its_end)
    if ran.plan is None or ran.stream is not None:
        return _note_line(f"started: {ran.stream}" if ran.stream else f"no lookup join; {ran.seconds:.1f} s")
    measured = {name: [text for _, text in facts_of(each)] for name, each in ran.lookups.items()}
    head = _note_line(ran.analyzed.partition("\n")[0])
    facts = html.folded("all figures", html.text_block(ran.analyzed))
    return Shown(head.html + html.plan_picture(ran.plan, measured) + facts, ran.analyzed)


def _note_line(text: str) -> Shown:
    return Shown(html.note(text), text)


# --- the session and the values --------------------------------------------------------------------


def find_spark(namespace: Mapping[str, Any]) -> SparkSession | None:
    """The Spark session that a notebook means: its variable ``spark``, else the active or default one."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession as Classic

    own = namespace.get("spark")
    kinds = ((kind.__name__, kind.__module__) for kind in type(own).__mro__)
    is_session = any(name == "SparkSession" and module.startswith("pyspark.sql") for name, module in kinds)
    if is_session:
        session: SparkSession | None = own
        return session
    try:
        # None is active in other threads, nor after an interrupt: then Spark answers in a new thread.
        return Classic.active()
    except PySparkRuntimeError:
        return None


def values_for(text: SqlText, given: Mapping[str, Any], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each parameter marker (``:name``) of a statement.

    Raises:
        QueryError: a marker has no value, or its variable is none.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, at in parameters(text):
        if name in given:
            values[name] = given[name]
        elif name not in namespace:
            problems.append(
                Problem(
                    f"The marker :{name} has no value.",
                    at,
                    f"Give --param {name}=..., or make a variable {name}.",
                )
            )
        elif not isinstance(value := _numpy_to_python(namespace[name]), _VALUES):
            kind = type(value).__name__
            tip = "Make a temporary view of it." if kind == "DataFrame" else ""
            problems.append(
                Problem(f"The variable {name} is a {kind}, which cannot be used as a SQL parameter.", at, tip)
            )
        else:
            values[name] = value
    if problems:
        raise QueryError(problems)
    return values


def _numpy_to_python(value: Any) -> Any:
    """A value of numpy as Python's own."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
