"""Checking a script without Spark and without touching any external system, for CI."""

from __future__ import annotations

from dataclasses import dataclass, field

from lookup_hints.catalog import LookupCatalog, build_connector, declared_table
from lookup_hints.commands import explained, own_setting
from lookup_hints.ddl import CreateLookupTable, DropTable, parse_ddl
from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.hints.validate import lookup_hints
from lookup_hints.model import LookupTable
from lookup_hints.plan.draft import Context
from lookup_hints.plan.planner import mentions_lookup, plan, surely_uses_lookup
from lookup_hints.plan.reading import UnreadableStatement
from lookup_hints.retry import RowPredicate
from lookup_hints.script import Statement, split_statements
from lookup_hints.spec import LookupSpec


@dataclass(frozen=True)
class Finding:
    """Something to tell about a script: an error, or a note about what could not be checked."""

    message: str
    line: int
    column: int = 1
    excerpt: str = ""
    is_error: bool = True


@dataclass
class _Checker:
    predicates: dict[str, RowPredicate]
    catalog: LookupCatalog = field(default_factory=LookupCatalog)
    settings: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, LookupTable] = field(default_factory=dict)
    """Tables that take their columns from their source, by lower-case name."""

    def check(self, statement: Statement) -> None:
        """Raise what is wrong with ``statement``; later statements see the tables that it creates."""
        text = statement.text
        ddl = parse_ddl(text)
        setting = own_setting(text)
        if isinstance(ddl, CreateLookupTable):
            self._create(ddl)
        elif isinstance(ddl, DropTable) and self.catalog.find(ddl.name) is not None:
            self.catalog.drop(ddl.name)
        elif setting is not None:
            self.settings.update([setting])
        elif ddl is None:
            self._plan(text)

    def not_checked(self, text: str) -> str | None:
        """The table whose unknown columns keep ``text`` from being checked, or None."""
        named = [name for name in self.unknown if mentions_lookup(text, {name: self.unknown[name]}.get)]
        return named[0] if named else None

    def _create(self, ddl: CreateLookupTable) -> None:
        if ddl.columns is not None:
            self.catalog.create(ddl, _unread)
            return
        table = declared_table(ddl, _unread)
        build_connector(table)
        self.unknown[ddl.name.lower()] = table

    def _plan(self, text: str) -> None:
        inner = explained(text)
        if inner is not None:
            text = " " * (len(text) - len(inner[0])) + inner[0]  # places stay true
        hints = lookup_hints(text)
        if self.not_checked(text) or not (hints or mentions_lookup(text, self.catalog.find)):
            return
        try:
            plan(text, hints, self._context())
        except UnreadableStatement:
            if hints or surely_uses_lookup(text, self.catalog.find):
                raise

    def _context(self) -> Context:
        return Context(
            find_table=self.catalog.find,
            connector=build_connector,
            conf=self.settings.get,
            analyse=None,
            name_function=_function_name,
            name_scan=_scan_name,
            predicates=self.predicates,
        )


def check_script(text: str, predicates: dict[str, RowPredicate] | None = None) -> list[Finding]:
    """Everything that is wrong with the lookup joins, hints and DDL of a script, as far as its text tells.

    Types of keys and names of other tables are not known without Spark; a statement over a lookup table
    without a column list is not checked, and a note says so.

    Raises:
        QueryError: the script cannot be split into statements.
    """
    checker = _Checker(predicates or {})
    findings: list[Finding] = []
    for statement in split_statements(text):
        try:
            checker.check(statement)
        except QueryError as error:
            findings += [_finding(problem, statement, text) for problem in error.problems]
            continue
        table = checker.not_checked(statement.text)
        if table is not None and parse_ddl(statement.text) is None:
            note = f"not checked: {table} takes its columns from its source; give it a column list"
            findings.append(Finding(note, statement.line, is_error=False))
    return findings


def _finding(problem: Problem, statement: Statement, script: str) -> Finding:
    message = f"{problem.message} {problem.tip}".rstrip()
    if problem.at is None:
        return Finding(message, statement.line)
    at = Span(script, statement.offset + problem.at.start, statement.offset + problem.at.end)
    return Finding(message, at.line, at.column, at.underlined())


def _unread(key: str) -> str:
    """A stand-in for a value of Spark's configuration."""
    return f"${{conf:{key}}}"


def _function_name(spec: LookupSpec, _repeated: bool) -> str:
    return f"lookup_{spec.table.name}"


def _scan_name(table: LookupTable, _columns: tuple[str, ...]) -> str:
    return f"lookup_scan_{table.name}"
