"""The time of ``FOR SYSTEM_TIME AS OF``: a lookup reads current rows, so the time must be processing time.

A column is processing time if the statement, or Spark's plan of a view, computes it from the current time.
A column that cannot be traced so far is not, as a lookup would ignore its value and return current rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.parse.query_blocks import Block, Query, Relation, Shape
from lookup_hints.plan.parse.statement import PRESENT, Statement
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.table_use import NotReadEither
from lookup_hints.plan.views_and_derived_tables import FindView, names_of_cte, select_items
from lookup_hints.spi.changed_column_and_versions import versions_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, options_of_table
from lookup_hints.spi.option_values import Conf, InForce, Place, in_force
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut

_OPTION = next(option for option in LOOKUP_OPTIONS if option.key == "on-event-time")
_STRICTEST = ("error", "warn", "allow")


@dataclass(frozen=True)
class TimedRelation:
    """A relation with a FOR SYSTEM_TIME AS OF that is ours.

    Args:
        relation: the relation.
        block: the block whose FROM holds it.
        time: the expression.
        tables: the lookup tables that it is, or reads, as far as that is known.
    """

    relation: Relation
    block: Block
    time: Cut
    tables: tuple[LookupTable, ...]


def check_times(statement: Statement, analysis: Analysis, context: Context) -> tuple[list[str], list[str]]:
    """Notes on each FOR SYSTEM_TIME AS OF that does not select rows, and the subset to log.

    Raises:
        UnsupportedLookup: its time is a constant, or not processing time although that is required, or it
            would choose rows of a query over a table with versions.
    """
    times = _ProcessingTimes(statement, analysis, context.analysed_plan)
    unused: dict[str, list[TimedRelation]] = {}
    own = {use.relation for use in statement.uses}
    for use in _timed_relations(statement, context.find_view):
        versioned = [table for table in use.tables if versions_of(table) is not None]
        if versioned and use.relation in own:
            continue  # it does choose rows
        if versioned:
            raise _over_versions(statement, use, versioned[0])
        _refuse_other_times(statement, use)
        if not times.is_processing_time(use):
            unused.setdefault(" ".join(use.time.of(statement.text).split()), []).append(use)
    notes, warnings = list[str](), list[str]()
    for time, uses in unused.items():
        note = _event_time_note(statement, time, uses)
        wanted = [_strictest_option(context.conf, use) for use in uses]
        for use, value in zip(uses, wanted, strict=True):
            if value.value == "error":
                raise _forbidden_time(statement, use, note, value)
        notes.append(note)
        warnings += [note] if any(value.value == "warn" for value in wanted) else []
    return notes, warnings


def _timed_relations(statement: Statement, find_view: FindView) -> Iterator[TimedRelation]:
    own = {use.relation: (use.table,) for use in statement.uses}
    queries = frozenset(statement.timed)
    for block, relation in statement.structure.relations:
        if relation.time is None or not (relation in own or relation in queries):
            continue
        tables = own.get(relation) or tuple(
            use.table for use in statement.uses if use.relation in statement.read_by(relation)
        )
        seen = find_view(relation.name) if relation.name and not tables else None
        yield TimedRelation(relation, block, relation.time, tables if seen is None else (seen.base,))


def _strictest_option(conf: Conf, use: TimedRelation) -> InForce:
    """What to do about an unused time: the strictest setting of its tables, else the session's."""
    given = [options_of_table(table) for table in use.tables] or [{}]
    found = [in_force(_OPTION, conf, {Place.HINT: {}, Place.TABLE: each}) for each in given]
    return min(found, key=lambda each: _STRICTEST.index(each.value))


def _over_versions(statement: Statement, use: TimedRelation, table: LookupTable) -> NotReadEither:
    name = statement.alias_of(use.relation) or "a derived table"
    return NotReadEither(
        Problem(
            f"FOR SYSTEM_TIME AS OF chooses rows of {table.name}, and {name} is a query over it.",
            statement.span(use.time),
            f"Write it behind {table.name} itself.",
        )
    )


def _event_time_note(statement: Statement, time: str, uses: Iterable[TimedRelation]) -> str:
    names = " and ".join(dict.fromkeys(statement.alias_of(use.relation) or "a derived table" for use in uses))
    return (
        f"FOR SYSTEM_TIME AS OF {time} does not choose the rows of {names}: they are those of now, as {time}"
        " is not known to be processing time (current_timestamp(), or a column made of it)"
    )


def _forbidden_time(statement: Statement, use: TimedRelation, note: str, value: InForce) -> UnsupportedLookup:
    said = f" ({value.source.value})" if value.source is not None else ""
    return UnsupportedLookup(
        Problem(
            f"{note}: 'lookup.on-event-time' = 'error'{said} forbids that.",
            statement.span(use.time),
            "Write PROCTIME() or current_timestamp(), or allow it with 'lookup.on-event-time' = 'allow'.",
        )
    )


def _refuse_other_times(statement: Statement, use: TimedRelation) -> None:
    """Refuse a time that is neither a column nor the present.

    Raises:
        UnsupportedLookup: it is one; names the place.
    """
    if statement.calls_the_present(use.time) or _is_column(statement, use.time):
        return
    connectors = " and ".join(dict.fromkeys(repr(table.connector) for table in use.tables))
    by_whom = (
        f"connector {connectors} knows only the present" if connectors else "a lookup knows only the present"
    )
    name = statement.alias_of(use.relation) or "The relation"
    raise UnsupportedLookup(
        Problem(
            f"{name} is asked for a time of its own, but {by_whom}.",
            statement.span(use.time),
            "Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.",
        )
    )


def _is_column(statement: Statement, time: Cut) -> bool:
    first, last = statement.tokens.indices(time)
    found = statement.pieces[first : last + 1]
    names, dots = found[::2], found[1::2]
    return all(piece.is_name for piece in names) and all(piece.is_symbol(".") for piece in dots)


class _ProcessingTimes:
    """Says of columns whether they are made of the present: by the statement, then by Spark's plan."""

    def __init__(self, statement: Statement, analysis: Analysis, analysed_plan: Callable[[str], str]) -> None:
        self._statement, self._analysis, self._analysed_plan = statement, analysis, analysed_plan

    def is_processing_time(self, use: TimedRelation) -> bool:
        """Whether the time is sure to be that at which the row is processed."""
        if self._statement.calls_the_present(use.time):
            return True
        tokens = self._statement.tokens
        first, last = tokens.indices(use.time)
        parts = [piece.name for piece in self._statement.pieces[first : last + 1 : 2]]
        return self._is_made_of_now(parts, use.block, without=use.relation)

    def _is_made_of_now(self, parts: list[str], block: Block, without: Relation | None = None) -> bool:
        """Whether the column ``parts`` in ``block`` is computed from the current time; False if unknown."""
        if len(parts) > 2:
            return False
        relations = [each for each in block.relations if each is not without]
        named = [each for each in relations if self._may_hold(each, parts, is_only=len(relations) == 1)]
        if len(named) != 1:
            return False
        relation, name = named[0], parts[-1]
        query = relation.query if relation.cte is None else relation.cte.query
        if relation.columns or relation.plain is False:
            return False  # names that an alias gives, and samples, are not followed
        if query is not None:
            renamed = relation.cte is not None and names_of_cte(self._statement, relation.cte)
            return not renamed and self._is_listed_as_now(name, query)
        is_ordinary = relation.shape is Shape.TABLE and self._statement.table_of(relation) is None
        return is_ordinary and self._is_now_in_plan(name, relation)

    def _may_hold(self, relation: Relation, parts: list[str], *, is_only: bool) -> bool:
        if len(parts) == 2:
            return (self._statement.alias_of(relation) or "").lower() == parts[0].lower()
        columns = self._analysis.columns_of(relation)
        return is_only if columns is None else parts[0].lower() in map(str.lower, columns)

    def _is_listed_as_now(self, name: str, query: Query) -> bool:
        """Whether the item ``name`` of the one SELECT list of ``query`` is made of the present."""
        block = query.blocks[0] if len(query.blocks) == 1 else None
        if block is None or block.pipes or len(block.selects) != 1:
            return False
        for part in select_items(self._statement, block):
            tree = self._statement.expression(part)
            if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star):
                if self._is_made_of_now([tree.table, name], block):
                    return True
            elif isinstance(tree, exp.Star):
                if self._is_made_of_now([name], block):
                    return True
            elif tree is not None and tree.alias_or_name.lower() == name.lower():
                return self._is_now(tree, block)
        return False

    def _is_now(self, tree: exp.Expr, block: Block) -> bool:
        while isinstance(tree, exp.Alias | exp.Paren | exp.Cast):
            tree = tree.this
        if isinstance(tree, exp.Column):
            return self._is_made_of_now([part.name for part in tree.parts], block)
        called = (
            tree.name
            if isinstance(tree, exp.Anonymous)
            else tree.sql_name()
            if isinstance(tree, exp.Func)
            else ""
        )
        return called.upper().replace("_", "") in (name.replace("_", "") for name in PRESENT)

    def _is_now_in_plan(self, name: str, relation: Relation) -> bool:
        """Whether Spark's own plan of a table or view makes the column of the present."""
        at = self._statement.tokens.cut(relation.start, relation.last)
        plan = self._analysed_plan(f"SELECT {quoted(name)} FROM {at.of(self._statement.text)}")  # noqa: S608
        return is_now_in_plan(plan)


_OUTPUT = re.compile(r"^\s*Project \[[^,\[\]]*#(\d+)L?\]", re.MULTILINE)
_CAST = r"(?:cast\()?{}(?: as timestamp(?:_ntz)?\))? AS [^,\[\]]*#{}\b"


def is_now_in_plan(plan: str) -> bool:
    """Whether the one column that an analysed plan gives is the time at which it runs.

    >>> is_now_in_plan("Project [t#2]\\n+- Project [cast(now() as timestamp) AS t#2]")
    True
    >>> is_now_in_plan("Project [t#2]\\n+- Project [ts#1 AS t#2]")
    False
    """
    output = _OUTPUT.search(plan)
    number, seen = (output[1] if output else ""), set[str]()
    while number and number not in seen:
        seen.add(number)
        now = r"(?:current_timestamp\(\)|now\(\)|localtimestamp\([^()]*\))"
        if re.search(_CAST.format(now, number), plan):
            return True
        below = re.search(_CAST.format(r"[^,\[\]()]*#(\d+)L?", number), plan)
        number = below[1] if below else ""
    return False
