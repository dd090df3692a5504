"""Texts for Spark's own analysis: the user's statement with an empty stub for each lookup table.

Spark then finds unknown and ambiguous columns, with its own words, and says what columns the rewritten
statement must give.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.hints.parse import removals
from lookup_hints.model import LookupTable
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.reading import LookupUse, Statement, visible_ctes
from lookup_hints.plan.splice import Cut, Edit, Fragment, spliced
from lookup_hints.sqltext import quoted
from lookup_hints.types import sql_type


def plain_sql(draft: Draft) -> str:
    """The statement's query over stubs."""
    return spliced(draft.statement.text, stub_edits(draft), draft.query)


def key_types_sql(draft: Draft, joins: Sequence[LookupJoin]) -> str:
    """A query over stubs whose columns are the left sides of the keys of ``joins``, all of one block."""
    statement = draft.statement
    keys = [key.left for join in joins for key in join.sorted.keys]
    out: list[Fragment] = [*_visible_with(statement, joins[0].use), "SELECT "]
    for number, key in enumerate(keys):
        out += [", " if number else "", key, f" AS k{number}"]
    out += [" ", Cut(_from(statement, joins[0]), joins[-1].at.end)]
    edits = stub_edits(draft)
    return "".join(spliced(statement.text, edits, part) if isinstance(part, Cut) else part for part in out)


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
        if statement.depth(earlier) == depth and statement.pieces[earlier].is_word("FROM"):
            return statement.pieces[earlier].start
    raise UnsupportedLookup(Problem("This join has no FROM.", statement.span(join.at)))


def _visible_with(statement: Statement, use: LookupUse) -> list[Fragment]:
    """A WITH clause of all CTEs that the use's query block can name."""
    innermost: dict[str, Cut] = {}
    recursive = False
    for cte in visible_ctes(use.node):
        innermost.setdefault(cte.alias.lower(), _cte_cut(statement, cte))
        recursive = recursive or bool(cte.parent is not None and cte.parent.args.get("recursive"))
    out: list[Fragment] = []
    for cut in reversed(innermost.values()):
        out += [", " if out else f"WITH {'RECURSIVE ' if recursive else ''}", cut]
    return [*out, " "] if out else []


def _cte_cut(statement: Statement, cte: exp.CTE) -> Cut:
    """``name [(columns)] AS (query)``."""
    start = cte.args["alias"].this.meta["start"]
    index = statement.index_at(start)
    while not statement.pieces[index].is_word("AS"):
        index += 1
    while not statement.pieces[index].is_symbol("("):
        index += 1
    return Cut(start, statement.pieces[statement.closing(index)].end)
