"""Checking a script without Spark and without touching any external system, for CI."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from lookup_hints.cli.names_in_text import (
    ScriptNames,
    created_name,
    no_column_before_from,
    possible_columns,
    unknown_columns,
)
from lookup_hints.driver.init_statements import InitStatements, init_file
from lookup_hints.errors import OptionError, Problem, QueryError, Span, UnsupportedLookup, counted
from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.explain import joins_text
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.lookup_get.calls import calls_lookup_get, tables_of_calls
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import Statement as ReadStatement
from lookup_hints.plan.parse.statement import UnreadableStatement
from lookup_hints.plan.planner import plan, surely_uses_lookup
from lookup_hints.plan.session_interface import Context
from lookup_hints.retry import RowPredicate
from lookup_hints.spi import Connector
from lookup_hints.spi.lookup_options import INIT
from lookup_hints.spi.request_and_answer import Filter, LookupTable
from lookup_hints.spi.security_policy import policy_of_configuration
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import (
    Explain,
    ScriptStatement,
    Setting,
    SparkStatement,
    check_first_word,
    parameters,
    read_script,
    read_statement,
    shown_text,
    split_statements,
)
from lookup_hints.streaming.insert import ROOT, StreamInsert, stream_settings, written_options
from lookup_hints.streaming.sinks import no_checkpoint, sink_without_table
from lookup_hints.tables.catalog import LookupCatalog, build_connector
from lookup_hints.tables.ddl import CreateLookupTable, DropTable
from lookup_hints.tables.ddl_columns import plain_timestamp
from lookup_hints.tables.registry import check_connector_name, module_named, retry_predicates
from lookup_hints.version import __version__


@dataclass(frozen=True)
class Finding:
    """A finding in a script: an error, or a note about something that could not be checked.

    It is about the characters from ``start`` to ``end`` of the script.
    """

    message: str
    line: int
    column: int = 1
    excerpt: str = ""
    is_error: bool = True
    start: int = 0
    end: int = 0

    @property
    def is_gap(self) -> bool:
        """Whether it notes a statement that could not be checked, or not fully; not that a file is empty."""
        return not self.is_error and self.end > 0


@dataclass(frozen=True)
class _Checked:
    """The result of checking the text of a statement.

    Args:
        plan: the plan of its lookups.
        unread: the table that prevents planning, as its columns must be discovered from its source.
        not_created: the table that prevents planning, as its own CREATE is wrong and reported there.
        is_ours: whether it is about lookup tables or their options, and never reaches Spark.
        into: the sink of the streaming query that it starts.
    """

    plan: LookupPlan | None = None
    unread: str | None = None
    not_created: str | None = None
    is_ours: bool = False
    into: str | None = None


@dataclass(frozen=True)
class CheckOptions:
    """The surroundings that a script is checked with.

    Args:
        params: the given parameters, by name; None if unknown.
        modules: the modules that may be imported for ``'connector' = 'my_module:MyConnector'``.
        settings: Spark's configuration at its start; None if unknown.
        tables: lookup tables with columns discovered from their sources, by name in lower case.
    """

    params: Collection[str] | None = None
    modules: Collection[str] = ()
    settings: Mapping[str, str] | None = None
    tables: Mapping[str, LookupTable] = field(default_factory=dict)


# Answers for the same options as `run`: a marker without a value is an error here, as it is there.
# (docs/decisions/0091)
class _Checker:
    def __init__(self, given: CheckOptions, script: str = "") -> None:
        self._given = given
        self._settings = dict(given.settings or {})
        self._catalog = LookupCatalog(policy_of_configuration(self._settings))
        self._names = ScriptNames()
        setting = session_option(INIT.key, self._settings.get)
        file = init_file(setting)
        # Its own statements are checked without those of the session: all its tables would exist already.
        if file is not None and not (script and file.is_file() and read_script(file) == script):
            InitStatements(setting).run_once(self._catalog, lambda each: self.check(each.text), None)

    def check(self, text: SqlText) -> _Checked:
        """Check a statement as far as its text allows; raises its errors.

        Later statements see the tables that it creates and the options that it sets.
        """
        created = created_name(text.code)
        try:
            checked = self._check_text(text)
        except QueryError:
            if created is not None:
                self._names.failed.add(created.lower())
            raise
        if created is not None:
            self._names.failed.discard(created.lower())
        return checked

    def _check_text(self, text: SqlText) -> _Checked:
        if self._given.params is not None:
            unbound = [(name, at) for name, at in parameters(text) if name not in self._given.params]
            if unbound:
                message, tip = "The parameter :{} has no value.", "Give it: --param {}=VALUE."
                raise QueryError(
                    [Problem(message.format(name), at, tip.format(name)) for name, at in unbound]
                )
        statement = read_statement(text, self._catalog.concerns, plain_timestamp(self._settings.get))
        if isinstance(statement, StreamInsert):
            return self._check_stream(statement)
        if isinstance(statement, Explain):
            return self.check(statement.text)
        if isinstance(statement, SparkStatement):
            checked = self._plan_query(text)
            self._names.read(text, self._catalog.find)
            return checked
        if isinstance(statement, Setting):
            self._settings[statement.key] = statement.value
        elif isinstance(statement, CreateLookupTable):
            self._create_table(statement)
        elif isinstance(statement, DropTable) and self._catalog.find(statement.name) is not None:
            self._catalog.drop(statement.name)
        return _Checked(is_ours=True)

    def _create_table(self, ddl: CreateLookupTable) -> None:
        """Create a table; one that takes its columns from its source has none here, if they are not known."""
        name = ddl.options["connector"]
        module = module_named(name)
        if module is not None and module.partition(".")[0] not in self._given.modules:
            tip = f"Add --module {module.partition('.')[0]}." if module else ""
            message = f"Connector {name!r}: check imports no module that is not named by --module."
            raise OptionError(Problem(message, tip=tip))
        known = self._given.tables.get(ddl.name.lower())
        if known is not None:
            ddl = replace(ddl, columns=known.schema, primary_key=known.primary_key)
        elif ddl.columns is None:
            ddl = replace(ddl, columns=pa.schema([]), primary_key=())
        self._catalog.create(ddl, "${{conf:{}}}".format)

    def _check_stream(self, insert: StreamInsert) -> _Checked:
        """Check a statement that starts a streaming query; whether its sink is a table, Spark knows."""
        written = written_options(insert)
        sink = sink_without_table(insert)
        keeps_rows = sink is None or sink.needs_checkpoint
        settings = stream_settings(written, self._settings.get, keeps_rows=keeps_rows)
        if keeps_rows and settings.checkpoint is None and self._given.settings is not None:
            has_root = settings.name is None and ROOT in self._settings
            raise QueryError(no_checkpoint(insert, has_root=has_root))
        return replace(self._plan_query(insert.query), into=insert.shown_sink)

    def _plan_query(self, text: SqlText) -> _Checked:
        hints = lookup_hints(text)
        names = [*(piece.name for piece in text.code if piece.is_name), *tables_of_calls(text)]
        tables = [self._catalog.find(name) for name in names]
        not_created = self._names.failed.intersection(map(str.lower, names))
        if not_created:
            return _Checked(not_created=not_created.pop())
        if all(hint.may_be_others for hint in hints) and not any(tables):
            return _Checked()
        unread = next((each.name for each in tables if each is not None and not each.schema.names), None)
        if unread is not None and calls_lookup_get(text):
            return _Checked(unread=unread)
        planning = _TextPlanning(self._catalog, self._settings, possible_columns(text))
        try:
            planned = plan(text, hints, planning)
        except UnsupportedLookup as error:
            if any(each.is_symbol("$") for each in text.code):
                return _Checked()  # the value of a variable in the text is unknown
            if isinstance(error, UnreadableStatement):
                if hints or surely_uses_lookup(text, self._catalog.find):
                    raise
                return _Checked()
            if unread is None:
                raise
            planned = None
        if problems := list(self._unknown_names(text)):
            raise QueryError(problems)
        return _Checked(planned if unread is None else None, unread)

    def _unknown_names(self, text: SqlText) -> Iterator[Problem]:
        statement = ReadStatement(text, self._catalog.find)
        statement.queries = query_parts(statement)
        yield from unknown_columns(statement)
        yield from self._names.unknown_aliases(statement)
        yield from no_column_before_from(text)


# A table whose CREATE is wrong is not spoken of again: later statements would have a second error of the same
# cause. (docs/decisions/0184)
def check_script(text: str, given: CheckOptions = CheckOptions()) -> list[Finding]:
    """All errors in the lookup joins, hints and DDL of a script that its text shows.

    Types of keys and names of other tables are not known without Spark; a statement over a lookup table
    without a column list is checked as far as that needs no columns, and a note says so.

    Args:
        text: the script.
        given: its surroundings; by default parameters have values and streams have a checkpoint.
    """
    if "\0" in text:
        at = Span(text, text.index("\0"), text.index("\0") + 1)
        return [_finding_at(Problem("There is a NUL character here. Is this UTF-8 text?"), at)]
    try:
        statements = split_statements(text)
        checker = _Checker(given, text)
    except QueryError as error:
        # Without an excerpt: who knows which words are secret, when a quote is never closed.
        return [_finding_at(problem, problem.at or Span(text, 0, 0)) for problem in error.problems]
    if not statements:
        return [Finding("the file contains no statements", 1, is_error=False)]
    return [finding for statement in statements for finding in _findings_in(checker, statement, text)]


def _findings_in(checker: _Checker, statement: ScriptStatement, script: str) -> Iterator[Finding]:
    try:
        note = check_first_word(statement.text)
        table = checker.check(statement.text).unread
    except QueryError as error:
        yield from (_finding_in(statement, problem, script) for problem in error.problems)
        return
    if table is not None:
        note = f"columns not checked: {table} takes them from its source; give it a column list"
    if note is not None:
        yield replace(_finding_at(Problem(note), _first_line(statement, script)), is_error=False)


def unknown_connectors(
    statements: Iterable[ScriptStatement],
) -> Iterator[tuple[ScriptStatement, OptionError]]:
    """The statements that create a table with an unregistered connector, and the errors.

    Imports nothing and checks nothing else, so that it is quick enough to run before Spark starts.
    """
    for statement in statements:
        with suppress(QueryError):  # reported when it runs
            read = read_statement(statement.text)
            if isinstance(read, CreateLookupTable):
                try:
                    check_connector_name(read.options["connector"])
                except OptionError as error:
                    yield statement, error


def lookups_of(statements: Iterable[ScriptStatement], given: CheckOptions) -> Iterator[list[LookupSpec]]:
    """The lookups of each statement, as far as its text shows them."""
    checker = _Checker(given)
    for statement in statements:
        with suppress(QueryError):  # reported when it runs
            planned = checker.check(statement.text).plan
            yield [join.function for join in planned.joins] if planned else []


def dry_run_results(
    statements: Iterable[ScriptStatement], given: CheckOptions = CheckOptions()
) -> Iterator[tuple[ScriptStatement, str | QueryError]]:
    """What each statement would do, as far as its text shows, or its error."""
    checker = _Checker(given)
    for statement in statements:
        try:
            check_first_word(statement.text)
            yield statement, _text_of_checked(checker.check(statement.text), statement.line)
        except QueryError as error:
            yield statement, error


def _text_of_checked(checked: _Checked, line: int) -> str:
    if checked.into is not None:
        lookups = "" if checked.plan is None else f"\n{_text_of_checked(replace(checked, into=None), line)}"
        return f"starts a streaming query into {checked.into}{lookups}"
    if checked.is_ours:
        return "handled by lookup_hints"
    if checked.not_created is not None:
        return f"lookups unknown: {checked.not_created} is not created"
    if checked.unread is not None:
        return f"lookups unknown before it runs: {checked.unread} takes its columns from its source"
    if checked.plan is None or not (checked.plan.joins or checked.plan.scans):
        return "handed to Spark as it is"
    return joins_text(checked.plan, line)


def _finding_in(statement: ScriptStatement, problem: Problem, script: str) -> Finding:
    """The finding of a problem with ``statement``; its excerpt shows no values of a table's options."""
    place = problem.at or _named_in_with(statement.text, problem.message)
    if place is None:
        return _finding_at(problem, _first_line(statement, script))
    at = Span(script, statement.offset + place.start, statement.offset + place.end)
    excerpt = Span(shown_text(statement.text), place.start, place.end).underlined()
    return replace(_finding_at(problem, at), excerpt=excerpt)


def _named_in_with(text: SqlText, message: str) -> Span | None:
    """The first option of a CREATE that ``message`` names, else the first value."""
    if not text.starts_with("CREATE"):
        return None
    strings = [
        (not behind.is_symbol("="), message.index(repr(piece.value)), Span(text, piece.start, piece.end))
        for piece, behind in pairwise(text.code)
        if piece.kind is Kind.STRING and repr(piece.value) in message
    ]
    return min(strings, key=lambda each: each[:2])[2] if strings else None


def _first_line(statement: ScriptStatement, script: str) -> Span:
    return Span(script, statement.offset, statement.offset + len(statement.text.splitlines()[0]))


def _finding_at(problem: Problem, at: Span) -> Finding:
    message = f"{problem.message} {problem.tip}".rstrip()
    return Finding(message, at.line, at.column, start=at.start, end=at.end)


@dataclass(frozen=True)
class _TextPlanning(Context):
    """The planner's interface without Spark and without any source."""

    catalog: LookupCatalog
    settings: Mapping[str, str]
    guessed: Collection[str]
    """The columns of a table that takes them from its source."""

    @property
    def predicates(self) -> Mapping[str, RowPredicate]:
        return retry_predicates()

    def conf(self, key: str) -> str | None:
        # Settings that only Spark knows, such as the number of tasks, must not cause errors.
        return self.settings.get(key, "local" if key == "spark.master" else None)

    def tables(self) -> Sequence[LookupTable]:
        return self.catalog.tables()

    def find_table(self, name: str) -> LookupTable | None:
        table = self.catalog.find(name)
        if table is None or table.schema.names:
            return table
        return replace(table, schema=pa.schema([(each, pa.string()) for each in sorted(self.guessed)]))

    def connector(self, table: LookupTable) -> Connector:
        try:
            return build_connector(table)
        except OptionError:
            known = self.catalog.find(table.name)
            if known is None or known.schema.names:
                raise
            # Its class is unavailable, so its abilities are unknown; a plain one stands in.
            return build_connector(replace(table, options={"connector": "memory", "rows": "[]"}))

    def name_function(self, spec: LookupSpec, repeated: bool) -> str:
        return f"lookup_{spec.table.name}"

    def name_scan(
        self,
        table: LookupTable,
        columns: tuple[str, ...],
        filters: tuple[Filter, ...],
        match_key: tuple[str, ...],
    ) -> str:
        return f"lookup_scan_{table.name}"


Findings = Mapping[str, Sequence[Finding]]
"""Findings by file, as the user named it."""


def as_text(found: Findings) -> str:
    """Each finding with an excerpt of its line, and a sum for each file."""
    return "\n".join(line for file, findings in found.items() for line in _text_lines(file, findings))


def as_github(found: Findings) -> str:
    """Commands of GitHub Actions, which shows each finding at its line of a pull request."""
    return "\n".join(_github_line(file, each) for file, findings in found.items() for each in findings)


def as_json(found: Findings) -> str:
    """A list of objects: file, line, column, severity (``error`` or ``note``) and message."""
    listed = [
        {
            "file": file,
            "line": each.line,
            "column": each.column,
            "severity": _kind_of_finding(each),
            "message": each.message,
        }
        for file, findings in found.items()
        for each in findings
    ]
    return json.dumps(listed, indent=2)


def as_sarif(found: Findings) -> str:
    """A log in SARIF 2.1.0, which GitHub code scanning, Azure DevOps and editors read."""
    results = [_sarif_result(file, each) for file, findings in found.items() for each in findings]
    driver = {"name": "lookup-hints", "version": __version__, "rules": [{"id": _RULE}]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


FORMATS: Mapping[str, Callable[[Findings], str]] = MappingProxyType(
    {"text": as_text, "github": as_github, "json": as_json, "sarif": as_sarif}
)
"""How findings are written, by the name of ``--format``."""

_RULE = "lookup-hints"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _kind_of_finding(finding: Finding) -> str:
    return "error" if finding.is_error else "note"


def _text_lines(file: str, findings: Sequence[Finding]) -> list[str]:
    errors, gaps = (sum(each.is_error for each in findings), sum(each.is_gap for each in findings))
    left = f", {counted(gaps, 'statement')} not fully checked" if gaps else ""
    return [*(_text_line(file, each) for each in findings), f"{file}: {counted(errors, 'error')}{left}"]


def _text_line(file: str, finding: Finding) -> str:
    excerpt = f"\n{finding.excerpt}" if finding.excerpt else ""
    return f"{file}:{finding.line}:{finding.column}: {_kind_of_finding(finding)}: {finding.message}{excerpt}"


def _github_line(file: str, finding: Finding) -> str:
    command = "error" if finding.is_error else "notice"
    where = f"file={_escape_property(file)},line={finding.line},col={finding.column}"
    return f"::{command} {where},title=lookup-hints::{_escape_data(finding.message)}"


def _escape_data(text: str) -> str:
    """As the message of a command: it ends with its line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """As a property of a command: it ends at a comma or a colon, too."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _sarif_result(file: str, finding: Finding) -> dict[str, Any]:
    region = {"startLine": finding.line, "startColumn": finding.column}
    # A relative path stays relative, so that the reader finds it in its own copy of the files.
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {
        "ruleId": _RULE,
        "level": _kind_of_finding(finding),
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
    }
