"""The edits that turn a planned statement into Spark SQL.

A lookup join becomes one ``LATERAL VIEW`` over one call of its function, which stands inside the
generator: there Spark evaluates it once per row.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from lookup_hints.plan.analysis import alias_text, removed_hints
from lookup_hints.plan.conditions import over_variable
from lookup_hints.plan.draft import Draft, LookupJoin, TableScan
from lookup_hints.plan.reading import Statement, cte_named_by
from lookup_hints.plan.splice import Cut, Edit, Fragment
from lookup_hints.sqltext import quoted

ROW = "`__lookup_row`"
ROWS = "`__lookup_rows`"


def edits_of(draft: Draft) -> tuple[Edit, ...]:
    """All edits of a draft whose joins are complete."""
    statement = draft.statement
    return (
        *removed_hints(statement),
        *(_lateral_view(statement, join) for join in draft.joins),
        *(_distributed(statement, join) for join in draft.joins if join.shuffled),
        *(_scan(statement, scan) for scan in draft.scans),
    )


def _lateral_view(statement: Statement, join: LookupJoin) -> Edit:
    outer = "OUTER " if join.kind == "LEFT" and not _drops_rows(join) else ""
    renamed = ", ".join(_visible(join, column) for column in join.columns)
    columns = f" AS {renamed}" if join.use.column_aliases else ""
    name = statement.pieces[statement.index_at(alias_text(statement, join.use).start)]
    return Edit(
        join.at,
        (
            f"LATERAL VIEW {outer}inline(",
            *_rows(join),
            ") ",
            Cut(name.start, name.end),
            columns,
        ),
    )


def _visible(join: LookupJoin, column: str) -> str:
    return quoted(join.names.columns[join.use.table.schema.names.index(column)])


def _drops_rows(join: LookupJoin) -> bool:
    return join.chosen.settings.on_error == "skip"


def _rows(join: LookupJoin) -> tuple[Fragment, ...]:
    """The array of rows that a left row is joined with."""
    call = _call(join)
    residual = _residual(join)
    if join.kind == "LEFT" and _drops_rows(join):
        # NULL instead of an array says: drop the row. A miss is padded here, as OUTER would pad both.
        kept = (f"filter({ROWS}, {ROW} -> ", *residual, ")") if residual else (ROWS,)
        return (
            "transform(array(",
            *call,
            f"), {ROWS} -> CASE WHEN {ROWS} IS NULL THEN array() WHEN size(",
            *kept,
            ") = 0 THEN array(NULL) ELSE ",
            *kept,
            " END)[0]",
        )
    return ("filter(", *call, f", {ROW} -> ", *residual, ")") if residual else call


def _residual(join: LookupJoin) -> tuple[Fragment, ...]:
    """The residual condition over a row, and the equalities of keys that were cast."""
    parts = [over_variable(conjunct, join.names, ROW) for conjunct in join.sorted.residual]
    parts += [
        ("((", key.left, f") = {ROW}.{quoted(key.column)})")
        for key, cast in zip(join.sorted.keys, join.casts, strict=True)
        if cast.recheck
    ]
    return tuple(_joined(parts, " AND "))


def _call(join: LookupJoin) -> tuple[Fragment, ...]:
    """The call of the lookup function.

    A condition on the left alone goes into the key: NULL is never asked. (Around the call it would
    save nothing: Spark evaluates Python functions before any CASE or IF around them.)
    """
    arguments: list[tuple[Fragment, ...]] = []
    for key, cast in zip(join.sorted.keys, join.casts, strict=True):
        before, after = cast.prefix_and_suffix()
        arguments.append((before, key.left, after))
    if join.sorted.left_only:
        conditions = _joined([("(", condition.at, ")") for condition in join.sorted.left_only], " AND ")
        arguments[0] = ("if(", *conditions, ", ", *arguments[0], ", NULL)")
    return (f"{join.function.name}(", *_joined(arguments, ", "), ")")


def _joined(parts: list[tuple[Fragment, ...]], separator: str) -> Iterator[Fragment]:
    for number, part in enumerate(parts):
        if number:
            yield separator
        yield from part


def _scan(statement: Statement, scan: TableScan) -> Edit:
    name = statement.pieces[scan.use.index]
    return Edit(Cut(name.start, scan.use.end), (f"{scan.relation} AS ", alias_text(statement, scan.use)))


# --- shuffle ---------------------------------------------------------------------------------------


def single_relation(statement: Statement, join: LookupJoin) -> Cut | None:
    """The one table on the left of the join, with its alias, or None when the left is anything else."""
    block = join.use.node.find_ancestor(exp.Select)
    source = block.args.get("from_") if block is not None else None
    table = source.this if source is not None else None
    index = statement.index_at(join.at.start)
    place = statement.place_of(table) if isinstance(table, exp.Table) else None
    if place is None or statement.pieces[index - 1].end != place.end:
        return None
    before = statement.pieces[statement.index_at(place.start) - 1]
    return place if before.is_word("FROM") else None


def _distributed(statement: Statement, join: LookupJoin) -> Edit:
    """The left table, partitioned by the lookup key."""
    relation = single_relation(statement, join)
    assert relation is not None, "a join is shuffled only when its left side is one table"
    block = join.use.node.find_ancestor(exp.Select)
    assert block is not None
    alias = quoted(block.args["from_"].this.alias_or_name)
    keys = _joined([("(", key.left, ")") for key in join.sorted.keys], ", ")
    return Edit(relation, ("(SELECT * FROM ", relation, " DISTRIBUTE BY ", *keys, f") AS {alias}"))


# --- global ORDER BY -------------------------------------------------------------------------------


def rebalanced(draft: Draft) -> list[Edit]:
    """Edits that put a shuffle between a lookup and a global ORDER BY over it.

    Sorting by range samples its input first, which would ask for every key twice; with a shuffle
    between, the sample is taken from the shuffled rows. Not needed under a LIMIT or an aggregation.
    """
    adaptive = (draft.context.conf("spark.sql.adaptive.enabled") or "true").lower() == "true"
    hint = "REBALANCE" if adaptive else "REPARTITION"
    places = {
        place
        for query in draft.statement.tree.find_all(exp.Query)
        if query.args.get("order") is not None and not _is_limited(query) and not _is_expression(query)
        for select in _branches(query)
        if _is_plain(select) and _reads_lookup(draft, select)
        if (place := _after_select(draft.statement, select)) is not None
    }
    return [Edit(Cut(place, place), (f" /*+ {hint} */",)) for place in sorted(places)]


def _is_limited(query: exp.Expr) -> bool:
    limit = query.args.get("limit")
    return limit is not None and limit.expression.name.upper() != "ALL"


def _is_expression(query: exp.Expr) -> bool:
    """Whether the query stands in an expression (EXISTS, IN, a scalar subquery): its order means nothing."""
    node = query
    while isinstance(node.parent, exp.Subquery | exp.SetOperation):
        node = node.parent
    return isinstance(node.parent, exp.Expr) and not isinstance(
        node.parent, exp.From | exp.Join | exp.CTE | exp.Lateral
    )


def _branches(query: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose rows the query's ORDER BY sorts."""
    if isinstance(query, exp.Select):
        yield query
    elif isinstance(query, exp.SetOperation):
        yield from _branches(query.left)
        yield from _branches(query.right)
    elif isinstance(query, exp.Subquery):
        yield from _branches(query.this)


def _is_plain(select: exp.Select) -> bool:
    """Whether nothing between its FROM and its rows shuffles them anyway."""
    if select.args.get("group") or select.args.get("distinct"):
        return False
    return not any(
        aggregate.find_ancestor(exp.Select) is select for aggregate in select.find_all(exp.AggFunc)
    )


def _reads_lookup(draft: Draft, node: exp.Expr, seen: frozenset[int] = frozenset()) -> bool:
    asked = {id(join.use.node) for join in draft.joins}
    for table in node.find_all(exp.Table):
        if id(table) in asked:
            return True
        cte = cte_named_by(table)
        if cte is not None and id(cte) not in seen and _reads_lookup(draft, cte, seen | {id(cte)}):
            return True
    return False


def _after_select(statement: Statement, select: exp.Select) -> int | None:
    """Place after the SELECT word of ``select``, where a hint may stand."""
    index = select_index(statement, select)
    return None if index is None else statement.pieces[index].end


def select_index(statement: Statement, select: exp.Select) -> int | None:
    """Index of the SELECT word of ``select``, found from the first relation of its FROM."""
    source = select.args.get("from_")
    relation = source.this if source is not None else None
    if isinstance(relation, exp.Subquery):
        inner = next(_branches(relation), None)
        index = select_index(statement, inner) if inner is not None else None
        while index is not None and not statement.pieces[index].is_symbol("("):
            index = index - 1 if index else None
        if index is None:
            return None
    else:
        place = statement.place_of(relation) if relation is not None else None
        if place is None:
            return None
        index = statement.index_at(place.start)
    offset = statement.select_of(index)
    return statement.index_at(offset) if offset >= 0 else None
