"""Conditions that name constants for columns: ``id IN (1, 2)``, ``id = 1 OR id = 2``, tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from sqlglot import exp

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.conditions import ColumnNames, Conjunct, conjuncts, cut_at, key_equality
from lookup_hints.plan.read.statement import Statement
from lookup_hints.sql.splice import Cut

MOST = 10_000
"""More constants than this are not asked for one by one."""

Alternative = Mapping[str, Cut]
"""Columns of a lookup table, and the constant that each equals."""


def alternatives(statement: Statement, conjunct: Conjunct, names: ColumnNames) -> list[Alternative] | None:
    """What a condition says of the table's columns: one of these is so. None where it says nothing such."""
    tree = conjunct.tree
    if isinstance(tree, exp.EQ):
        equality = key_equality(statement, conjunct, names)
        is_constant = equality is not None and equality.constant and isinstance(equality.left, Cut)
        return [{equality.column: equality.left}] if equality and is_constant else None  # type: ignore[dict-item]
    if isinstance(tree, exp.In):
        return _listed(statement, conjunct, tree, names)
    if isinstance(tree, exp.Or):
        return _of_branches(statement, conjunct, names)
    return None


def combined(found: Iterable[Sequence[Alternative]]) -> list[Alternative]:
    """What several conditions say together, but for those that would make it too many."""
    every: list[Alternative] = [{}]
    for each in found:
        known = every[0].keys()
        if each[0].keys() <= known or len(every) * len(each) > MOST:
            continue
        every = [{**other, **one} for one, other in product(every, each)]
    return every


def are_alike(statement: Statement, constants: Iterable[Cut]) -> bool:
    """Whether they are constants of one kind, which Spark compares with a column as each by itself."""
    kinds = {_kind(statement.expression(each)) for each in constants} - {"null"}
    return None not in kinds and len(kinds) <= 1


def _of_branches(statement: Statement, conjunct: Conjunct, names: ColumnNames) -> list[Alternative] | None:
    found: list[Alternative] = []
    branches = list(cut_at(statement, conjunct.at, "OR"))
    if len(branches) < 2:
        return None
    for branch in branches:
        inside = _of_branch(statement, branch, names)
        if not inside:
            return None
        found += inside
    shared = set(found[0]).intersection(*found[1:])
    return [{column: each[column] for column in shared} for each in found] if shared else None


def _of_branch(statement: Statement, branch: Cut, names: ColumnNames) -> list[Alternative]:
    try:
        each = [alternatives(statement, conjunct, names) for conjunct in conjuncts(statement, branch)]
    except UnsupportedLookup:
        return []
    return [one for one in combined(filter(None, each)) if one]


def _listed(
    statement: Statement, conjunct: Conjunct, tree: exp.In, names: ColumnNames
) -> list[Alternative] | None:
    """What ``column IN (...)`` or ``(column, column) IN (...)`` says."""
    tokens = statement.tokens
    first, last = tokens.index_at(conjunct.at.start), tokens.index_at(conjunct.at.end - 1)
    depth = tokens.depth(first)
    at = [
        index for index in range(first, last) if tokens.depth(index) == depth and tokens.is_word(index, "IN")
    ]
    if len(at) != 1 or at[0] == first or tokens.closing(at[0] + 1) != last or not tree.expressions:
        return None
    left = tokens.cut(first, at[0] - 1)
    values = list(_parts(statement, at[0] + 2, last - 1))
    if statement.expression(left) != tree.this or len(values) != len(tree.expressions):
        return None
    columns = _columns(tree.this, names)
    if columns is None:
        return None
    if not isinstance(tree.this, exp.Tuple):
        return [{columns[0]: value} for value in values]
    tuples = [list(_inside(statement, value)) for value in values]
    # Spark takes NULLs in tuples for equal, for which nothing can be asked.
    is_whole = all(len(each) == len(columns) and not _holds_null(statement, each) for each in tuples)
    return [dict(zip(columns, each, strict=True)) for each in tuples] if is_whole else None


def _columns(tree: exp.Expr, names: ColumnNames) -> list[str] | None:
    trees = tree.expressions if isinstance(tree, exp.Tuple) else [tree]
    columns = [_column(each, names) for each in trees]
    is_whole = None not in columns and len(set(columns)) == len(columns)
    return [each for each in columns if each is not None] if is_whole else None


def _column(tree: exp.Expr, names: ColumnNames) -> str | None:
    if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
        return None
    return names.column(tree) if len(tree.parts) == names.qualifier_length(tree) + 1 else None


def _inside(statement: Statement, value: Cut) -> Iterator[Cut]:
    """The values of a tuple; none where it is none."""
    tokens = statement.tokens
    first, last = tokens.index_at(value.start), tokens.index_at(value.end - 1)
    if tokens.is_symbol(first, "(") and tokens.closing(first) == last:
        yield from _parts(statement, first + 1, last - 1)


def _holds_null(statement: Statement, values: Iterable[Cut]) -> bool:
    return any(_kind(statement.expression(each)) in (None, "null", "parameter") for each in values)


def _parts(statement: Statement, first: int, last: int) -> Iterator[Cut]:
    """The stretches between the commas."""
    tokens, begin = statement.tokens, first
    for index in range(first, last + 1):
        if tokens.is_symbol(index, ",") and tokens.depth(index) == tokens.depth(first - 1) + 1:
            yield tokens.cut(begin, index - 1)
            begin = index + 1
    if begin <= last:
        yield tokens.cut(begin, last)


def _kind(tree: exp.Expr | None) -> str | None:
    """What kind of constant it is: those of one kind have one type, or exact ones; None for others."""
    if isinstance(tree, exp.Neg | exp.Paren):
        return _kind(tree.this)
    if isinstance(tree, exp.Literal):
        is_exact = tree.is_string or tree.name.replace(".", "", 1).isdigit()
        return ("text" if tree.is_string else "number") if is_exact else None
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):
        return tree.to.sql()
    simple = {exp.Null: "null", exp.Boolean: "boolean", exp.Placeholder: "parameter"}
    return next((kind for node, kind in simple.items() if isinstance(tree, node)), None)
