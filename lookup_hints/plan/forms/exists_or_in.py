"""``[NOT] EXISTS (SELECT ...)`` and ``x [NOT] IN (SELECT ...)`` over a lookup table, in a WHERE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.plan.conditions import ColumnNames, Conjunct, KeyEquality
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.sql.splice import Cut


@dataclass(frozen=True)
class Membership:
    """One such condition.

    Args:
        at: the condition.
        tree: the same.
        negated: whether NOT stands before it.
        keys: the equalities that IN means; none for EXISTS.
        left_is_not_null: whether another condition says that the left side of IN is not NULL.
    """

    at: Cut
    tree: exp.Expr
    negated: bool
    keys: tuple[KeyEquality, ...] = ()
    left_is_not_null: bool = False


def membership(
    statement: Statement, use: LookupUse, conditions: list[Conjunct], names: ColumnNames
) -> Membership | None:
    """The one of ``conditions`` that is an EXISTS or IN over ``use`` and nothing more, or None."""
    if not _is_plain(statement, use):
        return None
    opening = use.block.query.first - 1
    start = statement.pieces[opening].start
    around = next((each for each in conditions if each.at.start <= start < each.at.end), None)
    if around is None:
        return None
    return _read(statement, use, around, opening, names, conditions)


def _is_plain(statement: Statement, use: LookupUse) -> bool:
    """Whether the query is [WITH ...] SELECT ... FROM the table [WHERE ...] and nothing more."""
    block, query = use.block, use.block.query
    if query.blocks != [block] or query.branches or not block.selects:
        return False
    if block.source is None or len(block.source.chains) != 1 or block.source.chains[0].steps or use.around:
        return False
    if len(block.wheres) > 1 or block.pipes or block.first != block.selects[0]:
        return False
    end = statement.tokens.index_at(block.wheres[0].end - 1) if block.wheres else block.source.last
    return end == query.last


def _read(
    statement: Statement,
    use: LookupUse,
    around: Conjunct,
    opening: int,
    names: ColumnNames,
    conditions: Iterable[Conjunct],
) -> Membership | None:
    tokens = statement.tokens
    first, last = tokens.index_at(around.at.start), tokens.index_at(around.at.end - 1)
    if tokens.closing(opening) != last:
        return None
    negated = tokens.is_word(first, "NOT") or tokens.is_symbol(first, "!")
    first += negated
    tree = around.tree
    while isinstance(tree, exp.Not):
        tree = tree.this
    if isinstance(tree, exp.Exists):
        is_whole = first + 1 == opening and _selects_columns(statement, use)
        return Membership(around.at, tree, negated) if is_whole else None
    if not isinstance(tree, exp.In) or not tokens.is_word(opening - 1, "IN"):
        return None
    end = opening - 2
    if tokens.is_word(end, "NOT"):
        if negated:
            return None
        negated, end = True, end - 1
    left = tokens.cut(first, end)
    keys = _keys(statement, use, left, around.at, names)
    if keys is None or statement.expression(left) != tree.this:
        return None
    return Membership(around.at, tree, negated, keys, _is_not_null(statement, left, conditions))


def _selects_columns(statement: Statement, use: LookupUse) -> bool:
    """Whether the SELECT list holds no calls: an aggregate would give a row of nothing."""
    assert use.block.source is not None
    listed = statement.pieces[use.block.selects[0] : use.block.source.at]
    return not any(piece.is_symbol("(") for piece in listed)


def _keys(
    statement: Statement, use: LookupUse, left: Cut, whole: Cut, names: ColumnNames
) -> tuple[KeyEquality, ...] | None:
    """``left`` with the columns that the query gives, or None where it gives anything else."""
    assert use.block.source is not None
    select = use.block.selects[0]
    if use.block.distinct:
        select += 1
    listed = _parts(statement, select + 1, use.block.source.at - 1)
    columns = [_column(statement, part, names) for part in listed]
    if len(listed) == 1 and _is_star(statement, listed[0], use):
        columns = list(use.table.schema.names)
    lefts = [left]
    if len(columns) > 1:
        first, last = statement.tokens.index_at(left.start), statement.tokens.index_at(left.end - 1)
        if not statement.tokens.is_symbol(first, "(") or statement.tokens.closing(first) != last:
            return None
        lefts = list(_parts(statement, first + 1, last - 1))
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


def _parts(statement: Statement, first: int, last: int) -> list[Cut]:
    """The stretches between the commas."""
    tokens = statement.tokens
    parts, begin = [], first
    for index in range(first, last + 1):
        if tokens.is_symbol(index, ",") and tokens.depth(index) == tokens.depth(first):
            parts.append(tokens.cut(begin, index - 1))
            begin = index + 1
    return [*parts, tokens.cut(begin, last)] if begin <= last else parts


def _is_star(statement: Statement, part: Cut, use: LookupUse) -> bool:
    """Whether ``part`` is ``*``, or ``c.*``."""
    tree = statement.expression(part)
    is_qualified = isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)
    star = tree.this if isinstance(tree, exp.Column) else tree
    if not isinstance(star, exp.Star) or any(star.args.values()):
        return False
    return not is_qualified or (isinstance(tree, exp.Column) and tree.table.lower() == use.alias.lower())


def _column(statement: Statement, part: Cut, names: ColumnNames) -> str | None:
    """The dimension column that ``part`` is, or None."""
    tree = statement.expression(part)
    if isinstance(tree, exp.Alias):
        tree = tree.this
    if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
        return None
    is_top_level = len(tree.parts) == names.qualifier_length(tree) + 1
    return names.column(tree) if is_top_level else None


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
