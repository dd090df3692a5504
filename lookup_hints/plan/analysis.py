"""Texts for Spark's own analysis: the user's statement with an empty stub for each lookup table.

Spark then finds unknown and ambiguous columns, with its own words, and says what columns the rewritten
statement must give.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.hints.parse import removals
from lookup_hints.model import LookupTable
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.reading import LookupUse, Statement, visible_withs
from lookup_hints.plan.shapes import is_time_column
from lookup_hints.plan.splice import Cut, Edit, Fragment, spliced
from lookup_hints.sqltext import quoted
from lookup_hints.types import sql_type


def plain_sql(draft: Draft) -> str:
    """The statement's query over stubs."""
    return spliced(draft.statement.text, stub_edits(draft), draft.statement.query)


def key_types_sql(draft: Draft, join: LookupJoin) -> str:
    """A query over stubs whose first columns are the left sides of the keys of ``join``.

    It ends before the join itself, and knows nothing of the conditions of lookup joins before it: those
    may refer to an outer query. The time of ``FOR SYSTEM_TIME AS OF`` is one more column, so that Spark
    finds a wrong name in it.
    """
    statement = draft.statement
    keys = [key.left for key in join.sorted.keys]
    select: list[Fragment] = ["SELECT "]
    for number, key in enumerate([*keys, *_time_column(statement, join)]):
        select += [", " if number else "", key, f" AS k{number}"]
    source = Cut(_from(statement, join), join.at.start)
    before = [other for other in draft.joins if source.holds(other.at)]
    edits = [*stub_edits(draft), *(_without_condition(statement, other) for other in before)]
    body = "".join(_rendered(statement, edits, [*select, " ", source]))
    for level in visible_withs(join.use.node):
        body = _within(statement, edits, level, body)
    return body


def _time_column(statement: Statement, join: LookupJoin) -> list[Cut]:
    time = join.use.time
    return [time] if time is not None and is_time_column(statement, join.use) else []


def _rendered(statement: Statement, edits: list[Edit], parts: list[Fragment]) -> Iterator[str]:
    for part in parts:
        yield spliced(statement.text, edits, part) if isinstance(part, Cut) else part


def _without_condition(statement: Statement, join: LookupJoin) -> Edit:
    relation = _stub(statement, join.use).new
    return Edit(join.at, ("LEFT JOIN ", *relation, " ON true"))


def _within(statement: Statement, edits: list[Edit], level: list[exp.CTE], body: str) -> str:
    """``body`` as a subquery below one WITH: inner ones may hide outer ones of the same name."""
    if not level:
        return body
    recursive = level[0].parent is not None and level[0].parent.args.get("recursive")
    ctes = ", ".join(spliced(statement.text, edits, _cte_cut(statement, cte)) for cte in level)
    return f"WITH {'RECURSIVE ' if recursive else ''}{ctes} SELECT * FROM ({body})"  # noqa: S608 (the user's own text)


def stub_edits(draft: Draft) -> list[Edit]:
    """The edits that put a stub for each lookup table and take our hints out."""
    return [*removed_hints(draft.statement), *(_stub(draft.statement, use) for use in draft.statement.uses)]


def removed_hints(statement: Statement) -> list[Edit]:
    """The edits that take the LOOKUP hints out."""
    return [Edit(Cut(start, end), (new,)) for start, end, new in removals(statement.text)]


def alias_text(statement: Statement, use: LookupUse) -> Cut:
    """The name by which the query calls the table, as the user wrote it, with its column list if any."""
    alias = use.node.args.get("alias")
    if alias is None:
        piece = statement.pieces[use.index]
        return Cut(piece.start, piece.end)
    return Cut(alias.this.meta["start"], use.end)


def _stub(statement: Statement, use: LookupUse) -> Edit:
    name = statement.pieces[use.index]
    return Edit(Cut(name.start, use.end), (f"({_stub_query(use.table)}) AS ", alias_text(statement, use)))


def _stub_query(table: LookupTable) -> str:
    columns = (f"CAST(NULL AS {sql_type(column.type)}) AS {quoted(column.name)}" for column in table.schema)
    return f"SELECT {', '.join(columns)} WHERE false"


def _from(statement: Statement, join: LookupJoin) -> int:
    """Offset of the FROM that the join belongs to."""
    index = statement.index_at(join.at.start)
    depth = statement.depth(index)
    for earlier in range(index, -1, -1):
        is_comparison = earlier > 0 and statement.pieces[earlier - 1].is_word("DISTINCT")
        if (
            statement.depth(earlier) == depth
            and statement.pieces[earlier].is_word("FROM")
            and not is_comparison
        ):
            return statement.pieces[earlier].start
    raise UnsupportedLookup(Problem("This join has no FROM.", statement.span(join.at)))


def _cte_cut(statement: Statement, cte: exp.CTE) -> Cut:
    """``name [(columns)] [AS] (query)``."""
    start = cte.args["alias"].this.meta["start"]
    index = statement.index_at(start) + 1
    if cte.args["alias"].args.get("columns"):
        index = statement.closing(index) + 1
    while not statement.pieces[index].is_symbol("("):
        index += 1
    return Cut(start, statement.pieces[statement.closing(index)].end)
