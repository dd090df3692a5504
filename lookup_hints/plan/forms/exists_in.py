"""``[NOT] EXISTS (SELECT ... FROM c)`` and ``x [NOT] IN (SELECT ... FROM c)`` in WHERE: SEMI and ANTI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.forms.on_using_natural import has_query_or_function, keys_from_queries, range_join
from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.key_conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    bare_column,
    conjuncts,
    is_random,
    sorted_conditions,
)
from lookup_hints.plan.keys_in_where import where_of
from lookup_hints.plan.parse.query_blocks import Role
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide
from lookup_hints.plan.table_use import TableUse
from lookup_hints.plan.views_and_derived_tables import plain_block, select_items
from lookup_hints.plan.write.lateral_view import Text, lateral_view
from lookup_hints.sql.text_edits import Cut, Edit


# A view without columns: EXISTS and IN add no rows and no names. (docs/decisions/0011)
class ExistsOrIn(Form):
    """A semi or anti join with the rows of the surrounding block: its view comes after that block's FROM."""

    shown = "EXISTS or IN in WHERE"
    compares_as_in = True

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        source = join.home.source
        assert source is not None, "its home has a FROM"
        last = join.home.views_last if join.home.views_last > -1 else source.last
        return LeftSide(statement.tokens.cut(source.first, last))

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        yield Edit(join.at, ("true",))

    def behind_from(self, join: LookupJoin, statement: Statement, numbers: Iterator[int]) -> Text:
        return lateral_view(statement, join, next(numbers))


def exists_or_in(use: TableUse) -> FoundJoin | None:
    """The join that an EXISTS or IN over ``use``, and nothing more, is; else None."""
    found = _find_membership(use)
    conditions = None if found is None else _join_conditions(use, found)
    if found is None or conditions is None or _may_be_null(use, found):
        return None
    kind = "LEFT ANTI" if found.negated else "LEFT SEMI"
    home = use.block.query.parent or use.block
    join = FoundJoin(use, ExistsOrIn(), kind, found.condition.at, home, conditions)
    return join if conditions.keys else range_join(join)


def why_no_anti_join(use: TableUse) -> UnsupportedLookup | None:
    """The error of a NOT IN that would be an anti join, were no NULL possible; else None."""
    found = _find_membership(use)
    if found is None or _join_conditions(use, found) is None or not _may_be_null(use, found):
        return None
    return UnsupportedLookup(
        Problem(
            f"NOT IN over the lookup table {use.table.name} cannot run: where either side may be NULL it"
            " needs the whole table.",
            use.statement.span(found.condition.at),
            "Write NOT EXISTS (SELECT 1 FROM ... WHERE column = value) instead, or add IS NOT NULL for"
            " the left side of a NOT IN over the primary key.",
        )
    )


@dataclass(frozen=True)
class _Membership:
    """One EXISTS or IN condition.

    Args:
        condition: the condition.
        negated: whether it is negated by NOT.
        keys: the equalities that IN stands for; none for EXISTS.
        left_is_not_null: whether another condition ensures that the left side of IN is not NULL.
    """

    condition: Conjunct
    negated: bool
    keys: tuple[KeyEquality, ...] = ()
    left_is_not_null: bool = False


def _find_membership(use: TableUse) -> _Membership | None:
    """The condition of the WHERE around the query that is an EXISTS or IN over ``use``, or None."""
    query, statement = use.block.query, use.statement
    parent, opening = query.parent, query.first - 1
    if parent is None or query.role is not Role.EXPRESSION or parent.source is None:
        return None
    use.refuse_aliases()
    if not use.relation.plain or plain_block(statement, use.block.query) is None or use.around:
        return None
    start, conditions = statement.pieces[opening].start, statement.once(where_of, parent)
    around = next((each for each in conditions if each.at.start <= start < each.at.end), None)
    return None if around is None else _read_membership(use, around, conditions)


def _join_conditions(use: TableUse, found: _Membership) -> Conditions | None:
    """The conditions of the join; None if they lack a required key, or cannot be checked in a lambda.

    They may be without keys, as those of a range are.
    """
    statement, block = use.statement, use.block
    inner = list(conjuncts(statement, block.wheres[0])) if block.wheres else []
    askable = use.askable
    given = [key for key in found.keys if key.column in askable]
    conditions = sorted_conditions(statement, inner, use.names, askable, given, use.always).without_gate
    if len(given) < len(found.keys) or use.missing(conditions.keys):
        return None
    checked = [*conditions.residual, *conditions.left_only]
    if checked and keys_from_queries(use.statement, conditions.keys):
        return None
    if any(has_query_or_function(each.tree) for each in checked) or is_random(found.condition.tree):
        return None
    return conditions


def _may_be_null(use: TableUse, found: _Membership) -> bool:
    """Whether it is a NOT IN with a side that may be NULL: then it is no anti join."""
    if not found.negated or not found.keys:
        return False
    key = found.keys[0]
    is_plain = len(found.keys) == 1 and key.column in use.table.primary_key
    return not (is_plain and found.left_is_not_null)


def _read_membership(use: TableUse, around: Conjunct, conditions: Iterable[Conjunct]) -> _Membership | None:
    statement, tokens, opening = use.statement, use.statement.tokens, use.block.query.first - 1
    first, last = tokens.indices(around.at)
    if tokens.closing(opening) != last:
        return None
    negated = tokens.is_word(first, "NOT") or tokens.is_symbol(first, "!")
    first += negated
    tree = around.tree
    while isinstance(tree, exp.Not):
        tree = tree.this
    if isinstance(tree, exp.Exists):
        assert use.block.source is not None
        listed = statement.pieces[use.block.selects[0] : use.block.source.at]
        # A call may be an aggregate, which gives a row of nothing.
        is_whole = first + 1 == opening and not any(piece.is_symbol("(") for piece in listed)
        return _Membership(around, negated) if is_whole else None
    if not isinstance(tree, exp.In) or not tokens.is_word(opening - 1, "IN"):
        return None
    end = opening - 2
    if tokens.is_word(end, "NOT"):
        if negated:
            return None
        negated, end = True, end - 1
    left = tokens.cut(first, end)
    keys = _keys_of_in(use, left, around.at)
    if keys is None or statement.expression(left) != tree.this:
        return None
    return _Membership(around, negated, keys, _is_not_null(statement, left, conditions))


def _keys_of_in(use: TableUse, left: Cut, whole: Cut) -> tuple[KeyEquality, ...] | None:
    """``left`` with the columns that the query gives, or None where it gives anything else."""
    assert use.block.source is not None
    statement, names = use.statement, use.names
    listed = select_items(statement, use.block)
    trees = [statement.expression(part) for part in listed]
    items = [tree.this if isinstance(tree, exp.Alias) else tree for tree in trees]
    columns = [bare_column(tree, names) if isinstance(tree, exp.Column) else None for tree in items]
    if len(listed) == 1 and _is_star(use, listed[0]):
        columns = list(use.table.schema.names)
    lefts = [left]
    if len(columns) > 1:
        first, last = statement.tokens.indices(left)
        if not statement.tokens.is_symbol(first, "(") or statement.tokens.closing(first) != last:
            return None
        lefts = statement.tokens.parts(first + 1, last - 1)
    if len(lefts) != len(columns):
        return None
    keys = []
    for part, column in zip(lefts, columns, strict=True):
        tree = statement.expression(part)
        if column is None or tree is None:
            return None
        constant = tree.find(exp.Column) is None
        keys.append(KeyEquality(column, part, whole, constant, shared=True))
    return tuple(keys)


def _is_star(use: TableUse, part: Cut) -> bool:
    tree = use.statement.expression(part)
    is_qualified = isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)
    star = tree.this if isinstance(tree, exp.Column) else tree
    if not isinstance(star, exp.Star) or any(star.args.values()):
        return False
    return not is_qualified or (isinstance(tree, exp.Column) and tree.table.lower() == use.alias.lower())


def _is_not_null(statement: Statement, left: Cut, conditions: Iterable[Conjunct]) -> bool:
    wanted = statement.expression(left)
    if isinstance(wanted, exp.Literal):
        return True
    for condition in conditions:
        tree = condition.tree
        if isinstance(tree, exp.Not) and isinstance(tree.this, exp.Is):
            is_null = isinstance(tree.this.expression, exp.Null)
            if is_null and tree.this.this == wanted:
                return True
    return False
