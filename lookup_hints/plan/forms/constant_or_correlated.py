"""``FROM c WHERE c.id = 1``, ``IN (1, 2)``, or ``= o.id`` of an outer query: WHERE alone gives the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pyarrow as pa
from sqlglot import exp

from lookup_hints.plan.forms.on_using_natural import KINDS
from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.key_casts import KEY, KeyCast
from lookup_hints.plan.key_conditions import (
    ColumnNames,
    Conditions,
    Conjunct,
    KeyEquality,
    bare_column,
    chosen_keys,
    conjuncts,
    cut_at,
    key_equality,
    known_conjuncts,
)
from lookup_hints.plan.keys_in_where import where_equalities, where_of
from lookup_hints.plan.parse.name_resolution import Referred
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide, selected_instead
from lookup_hints.plan.table_use import TableUse
from lookup_hints.plan.write.lateral_view import Text, joined, source_query
from lookup_hints.sql.text_edits import Cut, Edit, Fragment


class ConstantOrCorrelated(Form):
    """A relation that is the rows of a key from outside its FROM."""

    shown = "asked by the outer query or a constant"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        return LeftSide(None)

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        statement, relation = analysis.statement, join.use.relation
        yield Edit(statement.tokens.place(relation), source_query(statement, join))
        yield from selected_instead(statement, join.use)
        # Left in place, it would refer to the outer query again, and show in Spark's name of the subquery.
        yield from (Edit(key.whole, ("true",)) for key in join.conditions.keys if not key.kept)


def constant_or_correlated(use: TableUse) -> FoundJoin | None:
    """The relation whose keys conditions of its block give from outside, or None."""
    if not use.relation.plain:
        return None
    keys: dict[str, KeyEquality] = {}
    for equality, referred in (*where_equalities(use), *_on_equalities(use)):
        if referred.relations or (referred.outer and not use.keeps_rows):
            continue  # Spark allows no outer references on the side that an outer join fills with NULLs.
        if equality.column not in keys or keys[equality.column].constant:
            keys[equality.column] = equality
    chosen = chosen_keys(keys.values(), use.table, use.always)
    if not chosen or use.missing(chosen):
        return None
    at = use.statement.tokens.place(use.relation)
    # Of rows filled with NULLs a condition that stays is all that keeps them out.
    conditions = Conditions(_mark_for_removal(chosen) if use.keeps_rows else chosen)
    return FoundJoin(
        use, ConstantOrCorrelated(), "INNER", at, use.block, conditions, notes=_notes_on_keys(chosen)
    )


def correlated_join(join: FoundJoin) -> FoundJoin | None:
    """``join`` as a correlated join, if the outer query gives its keys and its left side none; else None."""
    keys = join.conditions.keys
    if not is_correlated(join.use, keys):
        return None
    conditions, notes = Conditions(_mark_for_removal(keys)), _notes_on_keys(keys)
    return FoundJoin(
        join.use, ConstantOrCorrelated(), join.kind, join.at, join.use.block, conditions, notes=notes
    )


def is_correlated(use: TableUse, keys: Iterable[KeyEquality]) -> bool:
    """Whether only the outer query (and constants) give the keys, nothing on the left side."""
    if not use.statement.has_outer(use.block):
        return False
    scope = use.scope
    referred = [use.scopes.referred(scope, key) for key in keys]
    return not any(each.relations for each in referred) and any(each.outer for each in referred)


def _on_equalities(use: TableUse) -> Iterator[tuple[KeyEquality, Referred]]:
    """The key equalities in the ON of the INNER joins right behind the relation."""
    statement, names, scope = use.statement, use.names, use.scope
    for step in use.chain.steps if use.chain is not None else ():
        if KINDS.get(step.words) != "INNER":
            break
        for conjunct in conjuncts(statement, step.on) if step.on is not None else ():
            equality = key_equality(statement, conjunct, names)
            if equality is not None and equality.column in use.askable:
                yield replace(equality, kept=True), use.scopes.referred(scope, equality)


def _mark_for_removal(keys: Iterable[KeyEquality]) -> tuple[KeyEquality, ...]:
    """``keys`` marked for removal from the text, except those that an OR implies: the OR says more."""
    return tuple(replace(key, kept=key.implied) for key in keys)


def _notes_on_keys(keys: Iterable[KeyEquality]) -> tuple[str, ...]:
    if all(key.constant for key in keys):
        return ()
    return ("Spark computes the outer query twice for it: once for its distinct keys, which are asked",)


_KEYS = "`__lookup_keys`"
# Longer lists of constants are not looked up.
_MOST = 10_000

# Columns of a lookup table, and the constant that each equals.
_Alternative = Mapping[str, Cut]


# WHERE id IN (1, 2, 3) is looked up, and stays a condition: other relations may be joined by it.
# (docs/decisions/0154)
@dataclass(frozen=True)
class ConstantList(Form):
    """The rows of a list of constant keys; the conditions that list them stay in place.

    Args:
        listed: for each key column its constants; equal positions form one key.
    """

    listed: tuple[tuple[Cut, ...], ...]

    shown = "asked for a list of constants"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        return LeftSide(None)

    def asked_for(self, key: KeyEquality) -> Fragment:
        return f"one of {len(self.listed[0])} constants"

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        """The relation as a query over the rows of its keys, each once, in one row each of one partition."""
        statement, relation, keys = analysis.statement, join.use.relation, join.conditions.keys
        arrays = [
            _array_of_constants(listed, cast) for listed, cast in zip(self.listed, join.casts, strict=True)
        ]
        rows = (" FROM (SELECT explode(array_distinct(arrays_zip(", *joined(arrays, ", "), f"))) AS {_KEYS})")
        # The keys of those rows have their column's type already.
        by_number = (replace(key, left=f"{_KEYS}.`{number}`") for number, key in enumerate(keys))
        casts = tuple(KeyCast(wrapping=cast.wrapping) for cast in join.casts)
        asked = join.with_(conditions=replace(join.conditions, keys=tuple(by_number)), casts=casts)
        at = statement.tokens.place(relation)
        yield Edit(at, source_query(statement, asked, rows))
        yield from selected_instead(statement, join.use)


def constant_list(use: TableUse) -> FoundJoin | None:
    """The lookup of the two or more constant keys to which WHERE narrows the table, or None."""
    if not use.relation.plain:
        return None
    every = _constant_alternatives(use)
    columns = [name for name in use.table.schema.names if name in every[0]]
    listed = tuple(tuple(each[column] for each in every) for column in columns)
    if len(every) < 2:
        return None
    # Spark compares a list of one kind of constants with a column as it compares each alone.
    expression = use.statement.expression
    kinds = [{_kind_of_constant(expression(each)) for each in column} - {"null"} for column in listed]
    if any(None in each or len(each) > 1 for each in kinds):
        return None
    keys = tuple(_constant_key(use.statement, *each) for each in zip(columns, listed, strict=True))
    asked = constant_or_correlated(use)
    is_asked_from_outside = asked is not None and not all(key.constant for key in asked.conditions.keys)
    if use.missing(keys) or is_asked_from_outside:
        return None
    at = use.statement.tokens.place(use.relation)
    return FoundJoin(use, ConstantList(listed), "INNER", at, use.block, Conditions(keys))


def _constant_alternatives(use: TableUse) -> list[_Alternative]:
    """The constants that WHERE gives key columns.

    If they give the whole primary key: only those of it, and of columns that every request uses.
    """
    if use.relation not in use.scopes.of_where(use.block).relations or not use.may_be_narrowed:
        return [{}]
    names = use.names
    # Two floating point numbers may be equal and look different.
    inexact = {column.name for column in use.table.schema if pa.types.is_floating(column.type)}
    askable = use.askable - inexact
    conditions = use.statement.once(where_of, use.block)
    found = (_alternatives_of(use.statement, each, names) for each in conditions)
    every = [_only_columns(each, askable) for each in found if each]
    key = set(use.table.primary_key)
    if key and key <= {column for each in every for column in each[0]}:
        every = [_only_columns(each, frozenset(key | use.always)) for each in every]
    return _combine_alternatives(each for each in every if each[0])


def _only_columns(every: Sequence[_Alternative], columns: frozenset[str]) -> list[_Alternative]:
    return [{column: value for column, value in each.items() if column in columns} for each in every]


def _constant_key(statement: Statement, column: str, listed: Sequence[Cut]) -> KeyEquality:
    texts = (" ".join(each.of(statement.text).split()) for each in listed)
    left = f"element_at(array({', '.join(dict.fromkeys(texts))}), 1)"
    return KeyEquality(column, left, listed[0], constant=True, kept=True)


def _array_of_constants(listed: Sequence[Cut], cast: KeyCast) -> Text:
    """The array of the constants as values of their column's type."""
    before, after = replace(cast, wrapping=("", "")).prefix_and_suffix()
    array: Text = ("array(", *joined([(each,) for each in listed], ", "), ")")
    return ("transform(", *array, f", {KEY} -> {before}{KEY}{after})") if before or after else array


def _alternatives_of(
    statement: Statement, conjunct: Conjunct, names: ColumnNames
) -> list[_Alternative] | None:
    """The alternatives a condition allows for the table's columns; None if it is not of that kind."""
    tree = conjunct.tree
    if isinstance(tree, exp.EQ):
        equality = key_equality(statement, conjunct, names)
        is_constant = equality is not None and equality.constant and isinstance(equality.left, Cut)
        return [{equality.column: equality.left}] if equality and is_constant else None  # type: ignore[dict-item]
    if isinstance(tree, exp.In):
        return _alternatives_of_in(statement, conjunct, tree, names)
    if isinstance(tree, exp.Or):
        return _alternatives_of_or(statement, conjunct, names)
    return None


def _combine_alternatives(found: Iterable[Sequence[_Alternative]]) -> list[_Alternative]:
    """The alternatives that satisfy all of ``found``; skips those that add no column, or make too many."""
    every: list[_Alternative] = [{}]
    for each in found:
        known = every[0].keys()
        if each[0].keys() <= known or len(every) * len(each) > _MOST:
            continue
        every = [{**other, **one} for one, other in product(every, each)]
    return every


def _alternatives_of_or(
    statement: Statement, conjunct: Conjunct, names: ColumnNames
) -> list[_Alternative] | None:
    found: list[_Alternative] = []
    branches = list(cut_at(statement, conjunct.at, "OR"))
    if len(branches) < 2:
        return None
    for branch in branches:
        said = (_alternatives_of(statement, each, names) for each in known_conjuncts(statement, branch) or ())
        inside = [one for one in _combine_alternatives(filter(None, said)) if one]
        if not inside:
            return None
        found += inside
    shared = set(found[0]).intersection(*found[1:])
    return [{column: each[column] for column in shared} for each in found] if shared else None


def _alternatives_of_in(
    statement: Statement, conjunct: Conjunct, tree: exp.In, names: ColumnNames
) -> list[_Alternative] | None:
    """The alternatives of ``column IN (...)`` or ``(column, column) IN (...)``."""
    tokens = statement.tokens
    first, last = tokens.indices(conjunct.at)
    depth = tokens.depth(first)
    at = [
        index for index in range(first, last) if tokens.depth(index) == depth and tokens.is_word(index, "IN")
    ]
    if len(at) != 1 or at[0] == first or tokens.closing(at[0] + 1) != last or not tree.expressions:
        return None
    left = tokens.cut(first, at[0] - 1)
    values = tokens.parts(at[0] + 2, last - 1)
    if statement.expression(left) != tree.this or len(values) != len(tree.expressions):
        return None
    columns = _columns_compared(tree.this, names)
    if columns is None:
        return None
    if not isinstance(tree.this, exp.Tuple):
        return [{columns[0]: value} for value in values]
    tuples = [list(_tuple_members(statement, value)) for value in values]
    # Spark treats NULLs in tuples as equal; no lookup can do that.
    kinds = [{_kind_of_constant(statement.expression(value)) for value in each} for each in tuples]
    is_whole = all(len(each) == len(columns) for each in tuples)
    is_whole = is_whole and not any(each & {None, "null", "parameter"} for each in kinds)
    return [dict(zip(columns, each, strict=True)) for each in tuples] if is_whole else None


def _columns_compared(tree: exp.Expr, names: ColumnNames) -> list[str] | None:
    trees = tree.expressions if isinstance(tree, exp.Tuple) else [tree]
    columns = [bare_column(each, names) for each in trees if isinstance(each, exp.Column)]
    found = [each for each in columns if each is not None]
    return found if len(found) == len(trees) == len(set(found)) else None


def _tuple_members(statement: Statement, value: Cut) -> Iterator[Cut]:
    """The values of a tuple; none where it is none."""
    tokens = statement.tokens
    first, last = tokens.indices(value)
    if tokens.is_symbol(first, "(") and tokens.closing(first) == last:
        yield from tokens.parts(first + 1, last - 1)


def _kind_of_constant(tree: exp.Expr | None) -> str | None:
    """The kind of a constant: constants of a kind share one type, or exact number types. None if unknown."""
    if isinstance(tree, exp.Neg | exp.Paren):
        return _kind_of_constant(tree.this)
    if isinstance(tree, exp.Literal):
        is_exact = tree.is_string or tree.name.replace(".", "", 1).isdigit()
        return ("text" if tree.is_string else "number") if is_exact else None
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):
        return tree.to.sql()
    simple = {exp.Null: "null", exp.Boolean: "boolean", exp.Placeholder: "parameter"}
    return next((kind for node, kind in simple.items() if isinstance(tree, node)), None)
