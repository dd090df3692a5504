"""Which columns of a lookup table a query block uses: only those are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from lookup_hints.plan.conditions import KeyEquality, Names
from lookup_hints.plan.reading import LookupUse
from lookup_hints.plan.splice import Cut


def used_columns(use: LookupUse, names: Names, keys: Sequence[KeyEquality] = ()) -> tuple[str, ...]:
    """The columns of ``use.table`` that its query block names, in the table's order.

    The dimension's side of a key equality does not count: the connector answers it. A star counts for
    all columns. Never empty: a table of which nothing is named gives its first key (or first) column.
    """
    every = tuple(use.table.schema.names)
    block = use.node.find_ancestor(exp.Select)
    if block is None or _needs_all(block, names):
        return every
    consumed = [(key.whole, key.left) for key in keys]
    used = {
        name
        for column in block.find_all(exp.Column)
        if not _is_consumed(column, consumed)
        for name in names.possible_columns(column)
    }
    least = keys[0].column if keys else every[0]
    return tuple(column for column in every if column in used) or (least,)


def _needs_all(block: exp.Select, names: Names) -> bool:
    if block.find(exp.Pivot) is not None or _has_identifier_clause(block):
        return True
    return any(_takes_all(star, block, names) for star in block.find_all(exp.Star))


def _has_identifier_clause(block: exp.Select) -> bool:
    """Whether ``IDENTIFIER('c.zip')`` may name a column that the text does not show."""
    return any(call.name.upper() == "IDENTIFIER" for call in block.find_all(exp.Anonymous))


def _takes_all(star: exp.Star, block: exp.Select, names: Names) -> bool:
    """Whether the star gives the dimension's columns: ``*`` of this block, or ``c.*`` anywhere in it."""
    parent = star.parent
    if isinstance(parent, exp.Column):
        return parent.table.lower() == names.alias.lower()
    return not isinstance(parent, exp.Count) and star.find_ancestor(exp.Select) is block


def _is_consumed(column: exp.Column, consumed: Sequence[tuple[Cut, Cut]]) -> bool:
    start = column.parts[0].meta.get("start", -1)
    place = Cut(start, start)
    return any(whole.holds(place) and not left.holds(place) for whole, left in consumed)
