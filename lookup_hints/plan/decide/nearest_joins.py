"""``NEAREST BY``: the keys among whose rows the nearest ones are, the metric, and who finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import types
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from lookup_hints.lookup_spec import LookupSettings
from lookup_hints.nearest import DISTANCE, FORMULAS, MOST, SIMILARITY, Formula
from lookup_hints.plan.decide.asof_and_range_joins import FEW_ROWS, own_column, rows_of_a_key
from lookup_hints.plan.joins import Form, FoundJoin, JoinOrder, Ranking
from lookup_hints.plan.key_casts import KeyCast, order_cast
from lookup_hints.plan.key_conditions import (
    Conditions,
    Conjunct,
    KeyEquality,
    can_be_key,
    chosen_keys,
    conjuncts,
    is_random,
    references,
    sorted_conditions,
)
from lookup_hints.plan.parse.lookup_use import TableColumn
from lookup_hints.plan.parse.query_blocks import Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.table_use import CannotBeAsked, TableUse
from lookup_hints.spi import NearestCondition, NearestLookup
from lookup_hints.spi.arrow_types import type_name, written_type
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.spi.request_and_answer import METRICS
from lookup_hints.sql.lexer import quoted, text_value
from lookup_hints.sql.text_edits import Cut, Fragment

VECTORS = frozenset({"l2", "cosine", "inner-product"})
# A database may lack the extension for them; who writes EXACT, as in Spark, should not have to know.
_BY_EXTENSIONS = frozenset({"great-circle", "trigram", "levenshtein"})
WHY_READ = "NEAREST BY chooses among all its rows"


# Spark compares each row with each. A condition around the distance, whose NULL is never near, is what makes
# a key in plain SQL: Spark takes none in ON, and no LATERAL. (docs/decisions/0300)
def nearest_join(form: Form, use: TableUse, step: Step) -> FoundJoin:
    """The lookup join that ``NEAREST BY`` states: by the keys of its distance, or by the distance alone.

    Raises:
        CannotBeAsked: neither a key nor a metric is recognised; Spark can compare each row with each.
        UnsupportedLookup: Spark takes no such number of rows.
    """
    use.refuse_extra_clauses()
    statement = use.statement
    assert step.nearest is not None, "it is a NEAREST BY"
    ranking = _ranking_of(use, step.nearest)
    _refuse_ranking_by_others(use, ranking)
    gated = _gated_distance(use, ranking)
    order = _order_of_distance(use, ranking, gated)
    conditions = Conditions(gated.keys, left_only=gated.left_only if gated.keys else ())
    if not gated.keys and order is None:
        instead = f"write CASE WHEN {use.alias}.key = ... THEN distance END, or a distance that is asked for"
        raise use.refused(step.nearest, WHY_READ, instead)
    kind = "LEFT" if "LEFT" in step.words else "INNER"
    at = statement.tokens.cut(step.first, step.last)
    join = FoundJoin(use, form, kind, at, use.block, conditions, order=order, ranking=ranking)
    missing = use.missing(join.conditions.keys)
    if missing:
        raise use.refused(step.nearest, f"its source cannot be asked without {' and '.join(missing)}")
    return join


def _ranking_of(use: TableUse, by: Cut) -> Ranking:
    """What the words of ``NEAREST BY`` say."""
    statement, tokens = use.statement, use.statement.tokens
    first = tokens.index_at(by.start)
    number = first - 3 if not tokens.is_word(first - 3, "NEAREST") else None
    word = (first - 3 if number is None else number - 1) - 1
    most = 1 if number is None else _read_number(statement.pieces[number].text)
    tree = statement.expression(by)
    if tree is None:
        raise use.refused(by, WHY_READ)
    if most is None or not 1 <= most <= MOST:
        at = tokens.cut(first - 3, first - 3)
        raise use.cannot_run(at, f"NEAREST takes a number from 1 to {MOST:,}")
    direction = SIMILARITY if tokens.is_word(first - 1, SIMILARITY) else DISTANCE
    return Ranking(Conjunct(by, tree), direction, most, is_exact=tokens.is_word(word, "EXACT"))


def _read_number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _refuse_ranking_by_others(use: TableUse, ranking: Ranking) -> None:
    """Refuse what cannot be computed over the rows found, in a lambda."""
    tree, at = ranking.by.tree, ranking.by.at
    calls = {str(call.this).lower() for call in tree.find_all(exp.Anonymous)}
    reason = ""
    if multiple_match_of(use.base) != ALL:
        reason = f"'multiple-match' = {multiple_match_of(use.base)!r} looks at all rows of a key"
    elif strange := sorted(calls - _functions_of_formulas()):
        reason = f"{strange[0]} in its distance may be a function that cannot be called for the rows found"
    is_named = any(True for _ in references(tree, use.names))
    if reason or not is_named or tree.find(exp.Query) or is_random(tree) or use.scope.referred(tree).outer:
        raise use.refused(at, reason or WHY_READ)


# --- keys -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GatedDistance:
    """A distance, and the keys and conditions without which it is NULL.

    Args:
        distance: the distance itself.
        keys: the equalities that all rows meet that are at a distance.
        left_only: conditions on the left alone.
        is_narrowed: whether other conditions leave rows of a key out.
    """

    distance: exp.Expr
    keys: tuple[KeyEquality, ...] = ()
    left_only: tuple[Conjunct, ...] = ()
    is_narrowed: bool = False


def _gated_distance(use: TableUse, ranking: Ranking) -> _GatedDistance:
    """The distance of ``CASE WHEN condition THEN distance END`` or ``if(condition, distance, NULL)``."""
    statement, tree = use.statement, ranking.by.tree.unnest()
    branch = tree.args["ifs"][0] if isinstance(tree, exp.Case) and len(tree.args["ifs"]) == 1 else tree
    otherwise = tree.args.get("default" if isinstance(tree, exp.Case) else "false")
    is_gated = isinstance(branch, exp.If) and not (isinstance(tree, exp.Case) and tree.this)
    constants, is_filtered = _constant_keys(use)
    if not is_gated or not (otherwise is None or isinstance(otherwise, exp.Null)):
        keys = chosen_keys(constants, use.table, use.always)
        return _GatedDistance(tree, keys, is_narrowed=is_filtered or len(keys) < len(constants))
    distance = branch.args["true"].unnest()
    at = place_of(statement, branch.this, ranking.by.at)
    parts = [] if at is None else list(conjuncts(statement, at))
    within = [each for each in parts if _only_cuts_off(each.tree, distance, ranking.direction)]
    found = sorted_conditions(
        statement, [each for each in parts if each not in within], use.names, use.askable, always=use.always
    )
    by_column = {key.column: key for key in (*constants, *found.keys)}
    # The condition stays in the distance that is computed for the rows found.
    keys = chosen_keys([replace(key, kept=True) for key in by_column.values()], use.table, use.always)
    is_narrowed = is_filtered or at is None or bool(found.residual) or len(keys) < len(by_column)
    return _GatedDistance(distance, keys, found.left_only, is_narrowed)


def _only_cuts_off(condition: exp.Expr, distance: exp.Expr, direction: str) -> bool:
    """Whether ``condition`` leaves out rows that are too far away: the same others are the nearest ones."""
    kinds = (exp.LTE, exp.LT) if direction == DISTANCE else (exp.GTE, exp.GT)
    if not isinstance(condition, kinds) or condition.this.unnest() != distance:
        return False
    return condition.expression.find(exp.Column, exp.Query) is None


def _constant_keys(use: TableUse) -> tuple[list[KeyEquality], bool]:
    """The constants that columns equal in the query through which the table is seen, and whether it has
    other conditions.
    """
    keys, others = list[KeyEquality](), False
    for condition in () if use.through is None else use.through.where:
        found = list(_constant_key(use, condition.parts))
        keys += found
        others = others or not found
    return keys, others


def _constant_key(use: TableUse, parts: Sequence[str | TableColumn]) -> Iterator[KeyEquality]:
    columns = [part for part in parts if isinstance(part, TableColumn)]
    if len(columns) != 1 or use.through is None:
        return
    text = "".join(part if isinstance(part, str) else quoted(part.name) for part in parts)
    try:
        tree = parse_one(text, read="spark")
    except SqlglotError:
        return
    name = use.through.by_base.get(columns[0].name)
    if not isinstance(tree, exp.EQ) or name not in use.askable or name is None:
        return
    for column, value in ((tree.this, tree.expression), (tree.expression, tree.this)):
        if isinstance(column, exp.Column) and isinstance(value, exp.Literal):
            written = text_value(value.name) if value.is_string else value.name
            whole = use.statement.tokens.place(use.relation)
            yield KeyEquality(name, written, whole, constant=True, kept=True)


def place_of(statement: Statement, tree: exp.Expr, within: Cut) -> Cut | None:
    """Where ``tree``, which names a column, stands in the text; None where that cannot be told."""
    tokens = statement.tokens
    named = [part for column in tree.find_all(exp.Column) for part in column.parts if "start" in part.meta]
    if not named:
        return None
    begin, end = tokens.indices(within)
    first = tokens.index_at(min(part.meta["start"] for part in named))
    last = tokens.index_at(max(part.meta["end"] for part in named))
    for more in range(max(first - begin, end - last) + (first - begin) + 1):
        for before in range(more + 1):
            if first - before < begin or last + more - before > end:
                continue
            cut = tokens.cut(first - before, last + more - before)
            if statement.expression(cut) == tree:
                return cut
    return None


# --- metrics ----------------------------------------------------------------------------------------


def _order_of_distance(use: TableUse, ranking: Ranking, gated: _GatedDistance) -> JoinOrder | None:
    """The condition that the nearest rows of a key meet; None where no metric is recognised."""
    if gated.is_narrowed:
        return None  # the nearest of all rows are others than the nearest of some
    for formula in FORMULAS:
        if formula.by != ranking.direction:
            continue
        bound: dict[str, exp.Expr] = {}
        if not _binds_to(_parse_template(formula), gated.distance, bound):
            continue
        pairs = _compared_columns(use, bound)
        columns = tuple(column for column, _ in pairs)
        fields = [use.base.schema.field(name) for name in columns]
        if not pairs or not all(_is_compared_by(formula, field.type) for field in fields):
            continue
        value = _value_of(use, formula.metric, pairs, ranking.by.at)
        if value is None:
            continue
        condition = NearestCondition(
            columns, formula.metric, ranking.most, ranking.is_exact, use.base.primary_key
        )
        by_source = not gated.keys and _is_found_by_source(use, condition)
        return JoinOrder(condition, value, ranking.by.at, is_sparks=True, by_source=by_source)
    return None


@cache  # a few formulas
def _parse_template(formula: Formula) -> exp.Expr:
    names = [(f"a{number}", f"b{number}") for number in range(3)]
    return parse_one(formula.over(names, scale="scale"), read="spark")


@cache
def _functions_of_formulas() -> frozenset[str]:
    """The functions of Spark's own that sqlglot does not know."""
    calls = (call for each in FORMULAS for call in _parse_template(each).find_all(exp.Anonymous))
    return frozenset({"make_dt_interval", *(str(call.this).lower() for call in calls)})


_PLACEHOLDERS = frozenset(f"{side}{number}" for side in "ab" for number in range(3))


def _binds_to(template: exp.Expr, tree: exp.Expr, bound: dict[str, exp.Expr]) -> bool:
    """Whether ``tree`` is ``template`` with the expressions ``bound`` in the place of its names."""
    template, tree = template.unnest(), tree.unnest()
    name = template.name if isinstance(template, exp.Column) else ""
    if name == "scale":
        return _is_positive(tree)
    if name in _PLACEHOLDERS:
        return bound.setdefault(name, tree) == tree
    if type(template) is not type(tree):
        return False
    parts, others = [*_parts_of(template)], [*_parts_of(tree)]
    return len(parts) == len(others) and all(
        key == other_key
        and (
            _binds_to(one, other, bound)
            if hasattr(one, "unnest") and hasattr(other, "unnest")
            else _text_of_argument(one, template) == _text_of_argument(other, tree)
        )
        for (key, one), (other_key, other) in zip(parts, others, strict=True)
    )


def _is_positive(tree: exp.Expr) -> bool:
    """Whether it is a number above zero, or a product of such: it keeps what is near near."""
    tree = tree.unnest()
    if isinstance(tree, exp.Mul):
        return _is_positive(tree.this) and _is_positive(tree.expression)
    if isinstance(tree, exp.Cast):  # of a suffix, as 2D has one
        return _is_positive(tree.this)
    return isinstance(tree, exp.Literal) and not tree.is_string and float(tree.name) > 0


def _text_of_argument(value: object, node: exp.Expr) -> str:
    """The text of ``value``, of which case means nothing where it names a function."""
    return str(value).lower() if isinstance(node, exp.Anonymous) else str(value)


def _parts_of(tree: exp.Expr) -> Iterator[tuple[str, Any]]:
    """The arguments of a node by their names, lists taken apart, without those that say nothing."""
    for key, value in tree.args.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and each is not False:
                yield key, each


def _compared_columns(use: TableUse, bound: dict[str, exp.Expr]) -> list[tuple[str, exp.Expr]]:
    """The column of the table on one side of each pair, and what the left rows give on the other."""
    pairs = []
    for number in range(len(bound) // 2):
        sides = (bound[f"a{number}"], bound[f"b{number}"])
        found = [
            (column, other)
            for one, other in (sides, sides[::-1])
            if (column := own_column(use, one)) is not None and can_be_key(other, use.names)
        ]
        if not found:
            return []
        pairs.append((use.base_column(found[0][0]), found[0][1]))
    return pairs


def _is_compared_by(formula: Formula, kind: pa.DataType) -> bool:
    """Whether the metric of ``formula`` compares values of this type as Spark computes it."""
    metric = formula.metric
    if formula.is_of_dates:
        return bool(types.is_date(kind))
    if metric in VECTORS:
        return bool(types.is_list(kind) and kind.value_type == pa.float32())
    if metric in ("levenshtein", "trigram"):
        return bool(kind == pa.string())
    if METRICS[metric] != 1:
        return bool(kind == pa.float64())
    is_ordered = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(is_ordered or types.is_date(kind) or types.is_timestamp(kind))


def _value_of(
    use: TableUse, metric: str, pairs: Sequence[tuple[str, exp.Expr]], within: Cut
) -> Fragment | None:
    places = [place_of(use.statement, tree, within) for _, tree in pairs]
    known = [each for each in places if each is not None]
    if len(known) < len(pairs):
        return None
    if METRICS[metric] == 1:
        return known[0]
    fields = (
        f"{text_value(name)}, CAST((\n{at.of(use.statement.text)}\n) AS DOUBLE)"
        for (name, _), at in zip(pairs, known, strict=True)
    )
    return f"named_struct({', '.join(fields)})"


def with_comparable_value(join: FoundJoin, types_of_keys: Sequence[str] | None) -> FoundJoin:
    """``join``; by its keys alone, whose rows Spark ranks, if no source compares its value as Spark does.

    Raises:
        CannotBeAsked: the same, and there are no keys.
    """
    order = join.order
    if join.ranking is None or order is None or types_of_keys is None or not join.conditions.keys:
        return join
    try:
        value_cast_of(join, order.value, types_of_keys[-1])
    except CannotBeAsked:
        return join.with_(order=None)
    return join


def value_cast_of(join: FoundJoin, value: Fragment, kind: str) -> KeyCast:
    """How the ``value`` of a distance, of the type ``kind``, becomes one of the column's type.

    Raises:
        CannotBeAsked: Spark compares both as something else.
    """
    order = join.order
    if order is None or isinstance(value, str):  # written with its type
        return KeyCast()
    field = join.use.base.schema.field(order.condition.columns[0])
    column = type_name(field.type)
    cast = order_cast(kind, column)
    if cast is None:
        written = " ".join(value.of(join.use.statement.text).split())
        reason = f"{written} is {kind.upper()} and {field.name} is {column.upper()}"
        raise join.use.refused(order.at, reason, tip=f"Write CAST({written} AS {written_type(column)}).")
    return replace(cast, wrapping=join.use.context.wrapping(field.type))


# --- who finds them ---------------------------------------------------------------------------------


# Without an index a source compares each row for each value, and nobody knows on the driver whether there is
# one. Executors that hold all rows search them quickly. (docs/decisions/0300)
def _is_found_by_source(use: TableUse, condition: NearestCondition) -> bool:
    """Whether the source is asked for the rows nearest to a value alone; else the table is kept whole."""
    connector = use.connector
    if not isinstance(connector, NearestLookup) or not connector.can_find_nearest(condition, among=()):
        return False
    if not use.can_be_read or not use.value_of("scan").value:
        return True
    if use.value_of("cache").value == "full":
        return False
    size, most_rows = use.context.table_size(connector), use.value_of("scan.max-rows").value
    is_large = (size.bytes or 0) > use.value_of("full-cache.max-bytes").value
    return not condition.exact or is_large or (most_rows is not None and (size.rows or 0) > most_rows)


def is_nearest_asked(join: FoundJoin, settings: LookupSettings) -> bool:
    """Whether the source finds the nearest rows, where they are among many; else the worker does.

    Always False with a cache of the rows of a key: they answer every value.
    """
    order, keys, connector = join.order, join.conditions.keys, join.use.connector
    if order is None or not keys:
        return order is not None and order.by_source
    if settings.cache is not None or settings.whole is not None or any(key.null_safe for key in keys):
        return False
    assert isinstance(order.condition, NearestCondition), "it is a NEAREST BY"
    among = tuple(join.use.base_column(key.column) for key in keys)
    is_sure = not (order.condition.exact and order.condition.metric in _BY_EXTENSIONS)
    if not isinstance(connector, NearestLookup) or not is_sure:
        return False
    if not connector.can_find_nearest(order.condition, among=among):
        return False
    rows = rows_of_a_key(join)
    return rows is None or rows > FEW_ROWS * order.condition.most
