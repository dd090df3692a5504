"""ON, USING and NATURAL of a join: its kind, its keys, and conditions that Spark takes in no lookup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from lookup_hints.errors import Problem
from lookup_hints.plan.decide.asof_and_range_joins import ranges_in
from lookup_hints.plan.joins import Form, FoundJoin
from lookup_hints.plan.key_conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    conjuncts,
    has_condition_subquery,
    is_random,
    key_equality,
    references,
    sorted_conditions,
)
from lookup_hints.plan.keys_in_where import where_of, with_where
from lookup_hints.plan.parse.query_blocks import Relation, Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import LeftSide
from lookup_hints.plan.table_use import CannotBeAsked, TableUse
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut

KINDS = {
    (): "INNER",
    ("INNER",): "INNER",
    ("CROSS",): "INNER",
    ("LEFT",): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
    ("SEMI",): "LEFT SEMI",
    ("LEFT", "SEMI"): "LEFT SEMI",
    ("ASOF",): "INNER",
    ("INNER", "ASOF"): "INNER",
    ("LEFT", "ASOF"): "LEFT",
    ("LEFT", "OUTER", "ASOF"): "LEFT",
    ("ANTI",): "LEFT ANTI",
    ("LEFT", "ANTI"): "LEFT ANTI",
}
_REFUSED_KINDS = {
    "RIGHT": ("a RIGHT JOIN needs every row of the lookup table", "write LEFT JOIN with the sides swapped"),
    "FULL": ("a FULL JOIN needs every row of the lookup table", "write LEFT JOIN"),
}


def left_of_step(statement: Statement, use: TableUse) -> LeftSide:
    """The left side of a join with ``use`` on its right: part of a FROM, or all before a pipe operator."""
    if use.pipe is not None:
        start, end = statement.pieces[use.block.first].start, statement.pieces[use.pipe.first].start
        return LeftSide(Cut(start, end), is_query=True)
    assert use.chain is not None
    assert use.step is not None
    source = use.block.source
    # A LATERAL subquery needs the relations before it.
    has_lateral = any(each.lateral and each.first < use.index for each in use.chain.everything)
    is_lateral = has_lateral and source is not None and use.chain in source.chains
    first = source.first if is_lateral and source is not None else use.chain.first
    return LeftSide(Cut(statement.pieces[first].start, statement.pieces[use.step.first].start))


def join_of_step(form: Form, use: TableUse, step: Step) -> FoundJoin:
    """The lookup join that ``step`` states, in the given form.

    Raises:
        CannotBeAsked: its kind, or its condition, makes it none.
    """
    statement = use.statement
    use.refuse_extra_clauses()
    kind = _kind_of_join(use, step)
    shared = _shared_keys(use, step)
    conditions = sorted_conditions(
        statement,
        conjuncts(statement, step.on) if step.on is not None else (),
        use.names,
        use.askable,
        shared,
        use.always,
    )
    if kind == "INNER" and not shared:
        conditions = with_where(use, conditions)
    join = FoundJoin(use, form, kind, statement.tokens.place(step), use.block, conditions)
    if not conditions.keys:
        found = None if step.takes_nearest else range_join(join)
        if found is None:
            raise _no_key_error(use, step)
        return found
    _refuse_missing(join, step)
    return join


def range_join(join: FoundJoin, shown: Iterable[Relation] | None = None) -> FoundJoin | None:
    """``join`` by a value of its left side that lies in a range of the table, without keys; else None.

    Conditions of WHERE stay there; their value must come from ``shown`` relations or those before the table.
    """
    use, conditions = join.use, join.conditions
    if not use.can_be_read:
        return None
    for order, value in ranges_in(join, conditions.residual):
        if not is_random(value.tree) and not join.use.scopes.of_from(join.home).referred(value.tree).outer:
            asked = {part.whole for part in order.parts}
            rest = tuple(each for each in conditions.residual if each.at not in asked)
            return join.with_(conditions=replace(conditions, residual=rest), order=order)
    scope = use.scopes.of_where(use.block)
    if join.kind != "INNER" or use.relation not in scope.relations or not use.may_be_narrowed:
        return None
    left = use.chain.before(use.relation) if use.chain is not None else []
    before = frozenset(left if shown is None else shown)
    where = join.use.statement.once(where_of, use.block)
    for order, value in ranges_in(join, where):
        referred = scope.referred(value.tree)
        is_before = bool(referred.relations) and referred.relations <= before
        if is_before and not referred.outer and not is_random(value.tree):
            kept = tuple(replace(part, kept=True) for part in order.parts)
            return join.with_(order=replace(order, parts=kept))
    return None


def with_outer_checked_after(join: FoundJoin, *, can_check_after: bool) -> FoundJoin:
    """``join`` without conditions that name an outer query: they are checked on its result.

    Raises:
        UnsupportedLookup: there are some, and its result cannot be checked.
    """
    if not join.use.statement.has_outer(join.home):
        return join
    scope, conditions = join.use.scopes.of_from(join.home), join.conditions
    outer_keys = [key for key in conditions.keys if join.use.scopes.referred(scope, key).outer]
    outer = [
        conjunct
        for conjunct in (*conditions.residual, *conditions.left_only)
        if scope.referred(conjunct.tree).outer
    ]
    trees = ((key.whole, join.use.statement.expression(key.whole)) for key in outer_keys)
    outer += [Conjunct(at, tree) for at, tree in trees if tree is not None]
    if not outer:
        return join
    if not can_check_after:
        reason = "its ON condition names the outer query, which Spark allows in an INNER JOIN only"
        raise join.use.refused(join.at, reason)
    kept = replace(
        conditions,
        keys=tuple(key for key in conditions.keys if key not in outer_keys),
        residual=tuple(each for each in conditions.residual if each not in outer),
        left_only=tuple(each for each in conditions.left_only if each not in outer),
        after=(*conditions.after, *outer),
    )
    return join.with_(conditions=kept)


def _kind_of_join(use: TableUse, step: Step) -> str:
    head = use.statement.tokens.cut(step.first, use.relation.last)
    for word, (reason, instead) in _REFUSED_KINDS.items():
        if word in step.words:
            raise use.refused(head, reason, instead)
    kind = KINDS.get(step.words[1:] if step.words[:1] == ("NATURAL",) else step.words)
    if kind is None:
        raise use.cannot_run(head, f"{' '.join(step.words)} JOIN is not a join type")
    return kind


def _refuse_missing(join: FoundJoin, step: Step) -> None:
    names = join.use.missing(join.conditions.keys)
    if not names:
        return
    equalities = " and ".join(f"{join.use.alias}.{name} = ..." for name in names)
    problem = Problem(
        f"The lookup join with {join.use.shown} cannot ask its source without {' and '.join(names)}.",
        join.use.statement.span(join.at if step.on is None else step.on),
        f"Add {equalities} to the condition.",
    )
    reason = f"its source cannot be asked without {' and '.join(names)}"
    raise CannotBeAsked(problem, join.use, reason)


def _no_key_error(use: TableUse, step: Step) -> CannotBeAsked:
    statement = use.statement
    if step.on is None:
        head = statement.tokens.cut(step.first, use.relation.last)
        if "CROSS" in step.words:
            reason = "a CROSS JOIN gives no key to ask for"
            return use.refused(head, reason, "write JOIN ... ON with an equality")
        reason = "it has no ON condition, so nothing says which rows to ask for"
        return use.refused(head, reason)
    told = replace(use.names, asked_by_null=use.askable)
    for each in conjuncts(statement, step.on):
        key = key_equality(statement, each, told)
        if key is not None and key.null_safe:
            reason = f"its source cannot be asked for rows in which {key.column} is NULL"
            return use.refused(each.at, reason, tip="Write = if NULL need not equal NULL.")
    can = ", ".join(name for name in use.table.schema.names if name in use.askable)
    reason = "no equality between an expression of the left side and a column that can be asked by"
    problem = Problem(
        f"The lookup join with {use.shown} has no key: {reason}.",
        statement.span(step.on),
        f"Columns that can be asked by: {can}.",
    )
    return CannotBeAsked(problem, use, f"its condition has {reason}")


# --- USING and NATURAL ------------------------------------------------------------------------------


def _shared_keys(use: TableUse, step: Step) -> list[KeyEquality]:
    """Keys from the columns of USING, or those that both sides of a NATURAL join have; else empty.

    Raises:
        UnsupportedLookup: the sides share no column, or the source cannot look up by the shared ones.
    """
    head = use.statement.tokens.cut(step.first, use.relation.last)
    if step.words[:1] == ("NATURAL",):
        common = _common_names(use, head)
        return [_shared_key(use, name, quoted(name), head, position) for position, name in enumerate(common)]
    pieces, cut = use.statement.pieces, use.statement.tokens.cut
    return [
        _shared_key(use, pieces[index].name, cut(index, index), cut(index, index), position)
        for position, index in enumerate(step.using)
    ]


def _common_names(use: TableUse, head: Cut) -> list[str]:
    """The names that both sides of a NATURAL join have."""
    left = use.scopes.columns_before(use.block, left_of_step(use.statement, use))
    own = {name.lower() for name in use.column_aliases or use.table.schema.names}
    common = [name for name in left or () if name.lower() in own]
    if not common:
        reason = "NATURAL JOIN finds no column of the same name"
        raise use.refused(head, reason, "write JOIN ... ON with the equality")
    return common


def _shared_key(use: TableUse, name: str, left: str | Cut, at: Cut, position: int) -> KeyEquality:
    column = use.names.own_name(name)
    reason = f"{use.alias} cannot be looked up by column {name}"
    if column is None:
        raise use.cannot_run(at, reason)
    if column not in use.askable:
        raise use.refused(at, reason)
    return KeyEquality(column, left, at, shared=True, position=position)


def possible_conditions(join: FoundJoin) -> Conditions:
    """The conditions of ``join``; those that Spark takes neither in a lambda nor in a generator are moved.

    Of an INNER JOIN in FROM they are checked on the joined rows; a SEMI or ANTI join there is written as a
    condition. Where a query gives a key, no lambda may look at the rows found.

    Raises:
        CannotBeAsked: the form and the kind of the join can move none of them.
        UnsupportedLookup: one of them is an IN or EXISTS that names both sides.
    """
    conditions, is_piped = join.conditions.without_gate, join.use.pipe is not None
    by_query = keys_from_queries(join.use.statement, conditions.keys)
    awkward = tuple(each for each in conditions.residual if by_query or has_query_or_function(each.tree))
    hard = tuple(each for each in conditions.left_only if has_condition_subquery(each.tree))
    for conjunct in awkward:
        _refuse_both_sides(join, conjunct)
    possible = replace(
        conditions,
        residual=tuple(each for each in conditions.residual if each not in awkward),
        left_only=tuple(each for each in conditions.left_only if each not in hard),
    )
    if join.kind == "INNER" and not is_piped:
        return replace(possible, after=(*possible.after, *awkward, *hard))
    if join.is_semi and not is_piped:
        return replace(possible, after=hard, queries=awkward)
    refused_ones = [each for each in awkward if by_query or each.tree.find(exp.Query)]
    # In pipe syntax a lambda fills the rows of a LEFT JOIN with NULLs, and lambdas hold no queries.
    for conjunct in (*refused_ones, *hard, *(by_query if is_piped and join.kind == "LEFT" else ())):
        tip = "Move it to WHERE." if join.kind == "INNER" else "Compute it in a subquery on the left first."
        reason = "its ON condition has a subquery"
        raise join.use.refused(conjunct.at, reason, tip=tip)
    return conditions


def keys_from_queries(statement: Statement, keys: Iterable[KeyEquality]) -> list[Conjunct]:
    """The keys that a query gives: Spark takes none in the call whose rows a lambda looks at."""
    trees = ((key, statement.expression(key.left)) for key in keys)
    return [Conjunct(key.whole, tree) for key, tree in trees if tree is not None and tree.find(exp.Query)]


def has_query_or_function(tree: exp.Expr) -> bool:
    """Whether a condition must not go into a lambda: it holds a query or, possibly, a user's function."""
    return tree.find(exp.Query, exp.Anonymous) is not None


def _refuse_both_sides(join: FoundJoin, conjunct: Conjunct) -> None:
    """Refuse an IN or EXISTS in ON that names both sides, as Spark's optimizer does."""
    scope = join.use.scopes.of_from(join.home)
    for found in conjunct.tree.find_all(exp.Exists, exp.In):
        names_table = any(True for _ in references(found, join.use.names))
        others = scope.referred(found).relations - {join.use.relation}
        if found.find(exp.Query) and names_table and others:
            reason = "an IN or EXISTS in its ON condition names both sides, which Spark does not take"
            tip = "Move it to WHERE." if join.kind == "INNER" else ""
            raise join.use.cannot_run(conjunct.at, reason, tip)
