"""Checking a script without Spark and without touching any external system, for CI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lookup_hints.catalog import LookupCatalog, build_connector
from lookup_hints.commands import explained, own_setting
from lookup_hints.ddl import CreateLookupTable, DropTable, parse_ddl, shown_statement
from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.hints.validate import lookup_hints
from lookup_hints.model import LookupTable
from lookup_hints.plan.draft import Context, LookupPlan
from lookup_hints.plan.explain import joins_text
from lookup_hints.plan.planner import plan, surely_uses_lookup
from lookup_hints.plan.reading import UnreadableStatement
from lookup_hints.retry import RowPredicate
from lookup_hints.script import Statement, split_statements
from lookup_hints.spec import LookupSpec
from lookup_hints.sqltext import code, pieces
from lookup_hints.streaming.insert import names_a_stream, read_insert, shown_insert, written_options


@dataclass(frozen=True)
class Finding:
    """Something to tell about a script: an error, or a note about what could not be checked."""

    message: str
    line: int
    column: int = 1
    excerpt: str = ""
    is_error: bool = True


@dataclass(frozen=True)
class _Checked:
    """What the text of a statement tells.

    Args:
        plan: how its lookups would run.
        unread: the table that keeps it from being planned: its columns are its source's.
        is_ours: whether it is about lookup tables or their options, so that Spark does not see it.
        into: where the streaming query writes that it starts.
    """

    plan: LookupPlan | None = None
    unread: str | None = None
    is_ours: bool = False
    into: str | None = None


@dataclass
class _Checker:
    predicates: dict[str, RowPredicate]
    catalog: LookupCatalog = field(default_factory=LookupCatalog)
    settings: dict[str, str] = field(default_factory=dict)

    def check(self, text: str) -> _Checked:
        """What can be known of a statement; raises what is wrong with it.

        Later statements see the tables that it creates and the options that it sets.
        """
        ddl = parse_ddl(text)
        setting = own_setting(text)
        if isinstance(ddl, CreateLookupTable):
            self._create(ddl)
        elif isinstance(ddl, DropTable) and self.catalog.find(ddl.name) is not None:
            self.catalog.drop(ddl.name)
        elif setting is not None:
            self.settings.update([setting])
        elif ddl is None:
            return self._plan(text)
        return _Checked(is_ours=True)

    def _create(self, ddl: CreateLookupTable) -> None:
        """Create a table; one that takes its columns from its source has none here."""
        columns = pa.schema([]) if ddl.columns is None else ddl.columns
        self.catalog.create(replace(ddl, columns=columns), _unread)

    def _plan(self, text: str) -> _Checked:
        inner = explained(text)
        text = text if inner is None else inner[0]
        if names_a_stream(text):
            insert = read_insert(text)
            written_options(insert)
            return replace(self._plan_query(insert.query), into=insert.shown_sink)
        return self._plan_query(text)

    def _plan_query(self, text: str) -> _Checked:
        hints = lookup_hints(text)
        tables = [self.catalog.find(piece.name) for piece in code(pieces(text)) if piece.is_name]
        without_columns = [table.name for table in tables if table is not None and not table.schema.names]
        if without_columns:
            return _Checked(unread=without_columns[0])
        if not (hints or any(tables)):
            return _Checked()
        try:
            return _Checked(plan(text, hints, self._context()))
        except UnreadableStatement:
            if hints or surely_uses_lookup(text, self.catalog.find):
                raise
        return _Checked()

    def _context(self) -> Context:
        return Context(
            find_table=self.catalog.find,
            connector=build_connector,
            conf=lambda key: self.settings.get(key, _UNKNOWN_HERE.get(key)),
            analyse=None,
            name_function=_function_name,
            name_scan=_scan_name,
            predicates=self.predicates,
        )


def check_script(text: str, predicates: dict[str, RowPredicate] | None = None) -> list[Finding]:
    """Everything that is wrong with the lookup joins, hints and DDL of a script, as far as its text tells.

    Types of keys and names of other tables are not known without Spark; a statement over a lookup table
    without a column list is not checked, and a note says so.
    """
    if "\0" in text:
        at = Span(text, text.index("\0"), text.index("\0") + 1)
        return [Finding("There is a NUL character here. Is this UTF-8 text?", at.line, at.column)]
    try:
        statements = split_statements(text)
    except QueryError as error:
        # Without an excerpt: who knows which words are secret, when a quote is never closed.
        return [_finding(problem, problem.at) for problem in error.problems]
    if not statements:
        return [Finding("the file contains no statements", 1, is_error=False)]
    checker = _Checker(predicates or {})
    findings: list[Finding] = []
    for statement in statements:
        try:
            table = checker.check(statement.text).unread
        except QueryError as error:
            findings += [_finding_in(statement, problem, text) for problem in error.problems]
            continue
        if table is not None:
            note = f"not checked: {table} takes its columns from its source; give it a column list"
            findings.append(Finding(note, statement.line, is_error=False))
    return findings


def foreseen(statements: Iterable[Statement]) -> Iterator[tuple[Statement, str | QueryError]]:
    """What each statement would do, as far as its text tells, or what is wrong with it."""
    checker = _Checker({})
    for statement in statements:
        try:
            yield statement, _told(checker.check(statement.text), statement.line)
        except QueryError as error:
            yield statement, error


def _told(checked: _Checked, line: int) -> str:
    if checked.into is not None:
        lookups = "" if checked.plan is None else f"\n{_told(replace(checked, into=None), line)}"
        return f"starts a streaming query into {checked.into}{lookups}"
    if checked.is_ours:
        return "handled by lookup_hints"
    if checked.unread is not None:
        return f"lookups unknown before it runs: {checked.unread} takes its columns from its source"
    if checked.plan is None or not (checked.plan.joins or checked.plan.scans):
        return "handed to Spark as it is"
    return joins_text(checked.plan, line)


def _finding_in(statement: Statement, problem: Problem, script: str) -> Finding:
    """The finding of a problem with ``statement``; its excerpt shows no values of a table's options."""
    if problem.at is None:
        return replace(_finding(problem, None), line=statement.line)
    start, end = problem.at.start, problem.at.end
    at = Span(script, statement.offset + start, statement.offset + end)
    excerpt = Span(shown_insert(shown_statement(statement.text)), start, end).underlined()
    return replace(_finding(problem, at), excerpt=excerpt)


def _finding(problem: Problem, at: Span | None) -> Finding:
    message = f"{problem.message} {problem.tip}".rstrip()
    return Finding(message, 1) if at is None else Finding(message, at.line, at.column)


_UNKNOWN_HERE = {"spark.master": "local"}
"""What only Spark knows, so that its absence is no mistake of the text: how many tasks share a budget."""


def _unread(key: str) -> str:
    """A stand-in for a value of Spark's configuration."""
    return f"${{conf:{key}}}"


def _function_name(spec: LookupSpec, _repeated: bool) -> str:
    return f"lookup_{spec.table.name}"


def _scan_name(table: LookupTable, _columns: tuple[str, ...]) -> str:
    return f"lookup_scan_{table.name}"
