"""Joins by order: rows valid at a moment (FOR SYSTEM_TIME AS OF), the nearest row (ASOF), or a range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from sqlglot import exp

from lookup_hints.errors import HintError, Problem
from lookup_hints.lookup_spec import LookupSettings
from lookup_hints.plan.joins import FoundJoin, JoinOrder
from lookup_hints.plan.key_casts import KeyCast, is_key_type, order_cast
from lookup_hints.plan.key_conditions import (
    OPERATORS,
    TURNED,
    Conjunct,
    KeyEquality,
    bare_column,
    between_parts,
    can_be_key,
    comparison_sides,
)
from lookup_hints.plan.parse.query_blocks import Step
from lookup_hints.plan.table_use import NotReadEither, TableUse
from lookup_hints.spi import OrderCondition, OrderedLookup
from lookup_hints.spi.arrow_types import type_name, written_type
from lookup_hints.spi.changed_column_and_versions import KNOWN_FROM, VALID_FROM, VALID_TO, Versions
from lookup_hints.spi.lookup_options import KNOWN_AS_OF
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.sql.text_edits import Cut, Fragment

FEW_ROWS = 16
"""Up to this many rows of a key are all fetched, as they answer every value; of more the source picks."""

# The present as Spark knows it; others are compared with `current_timestamp()`.
_PRESENT = {"timestamp_ntz": "localtimestamp()", "date": "current_date()"}


# AS OF over versions and ASOF JOIN become one `OrderCondition`. (docs/decisions/0191)
def with_order(join: FoundJoin) -> FoundJoin:
    """``join`` with its ``order`` set, if it joins only some of the rows of a key.

    Raises:
        CannotBeAsked: only Spark can find the nearest row, among all rows of the table.
        UnsupportedLookup: versions of one row cannot be distinguished from other rows.
        HintError: a moment says which rows were known, and the table does not.
    """
    versions, step = join.use.versions, join.use.step
    if versions is None or versions.known is None:
        _refuse_known_as_of(join.use)
    if join.ranking is not None:
        return join
    if versions is not None:
        return join.with_(order=_order_of_versions(join, versions))
    if step is not None and step.takes_nearest:
        return join.with_(order=_order_of_match(join, step))
    return join


def _order_of_versions(join: FoundJoin, versions: Versions) -> JoinOrder:
    use = join.use
    assert use.time is not None, "there is a time"
    if use.step is not None and use.step.takes_nearest:
        reason = "an ASOF JOIN chooses the rows itself; leave FOR SYSTEM_TIME AS OF out"
        raise NotReadEither(use.cannot_run(use.time, reason).problems)
    if versions.need_key:
        _refuse_parts_of_key(join, versions)
    value: Fragment = use.time
    if use.statement.calls_the_present(use.time):
        value = _PRESENT.get(type_name(versions.since.type), "current_timestamp()")
    until, known = (None if each is None else each.name for each in (versions.until, versions.known))
    known_by = use.value_of(KNOWN_AS_OF).value
    is_apart = known_by is not None
    condition = OrderCondition(versions.since.name, until=until, known_from=known, known_apart=is_apart)
    return JoinOrder(condition, value, use.time, known_by=known_by)


def _refuse_known_as_of(use: TableUse) -> None:
    """Refuse the option where there is no column that its moment could be compared with."""
    hint = use.hint
    if hint is None or KNOWN_AS_OF not in hint.options:
        return
    if use.time is None:
        reason = "needs FOR SYSTEM_TIME AS OF, or as_of, which says when the rows are valid"
        tip = "Give both moments, or none."
    else:
        reason = f"chooses no rows of {use.table.name}: no column says from when they are known"
        tip = f"Name that column in its WITH: {KNOWN_FROM!r} = '...'."
    raise HintError(Problem(f"{KNOWN_AS_OF!r} {reason}.", hint.places.get(KNOWN_AS_OF, hint.at), tip))


def _refuse_parts_of_key(join: FoundJoin, versions: Versions) -> None:
    """Where a key may have several rows at a time, nothing says which rows are versions of one."""
    asked = {join.use.base_column(key.column) for key in join.conditions.keys}
    missing = [name for name in join.use.base.primary_key if name not in {*asked, *versions.times}]
    if not missing:
        return
    names = " and ".join(missing)
    instead = "" if versions.known else f", or name the column with the end of a row by {VALID_TO!r}"
    raise NotReadEither(
        Problem(
            f"The lookup join with {join.use.shown} cannot run: without {names}, nothing says which of its"
            " rows are versions of one row.",
            join.use.statement.span(join.at),
            f"Add an equality with {names}{instead}.",
        )
    )


def _order_of_match(join: FoundJoin, step: Step) -> JoinOrder:
    use, conditions = join.use, join.conditions
    sides = None if step.match is None else _comparison_sides(join, step.match)
    if step.match is None or sides is None:
        reason = "its MATCH_CONDITION does not compare one of its columns with the left side"
        raise use.refused(join.at, reason)
    if use.through is not None and use.through.where:
        reason = f"conditions of {use.through.shown} take part in choosing the nearest row"
        raise use.refused(join.at, reason)
    if conditions.residual or conditions.after or conditions.queries:
        reason = "conditions beside its keys take part in choosing the nearest row"
        raise use.refused(join.at, reason)
    operator, column, value = sides
    field = use.base.schema.field(use.base_column(column))
    if not is_key_type(type_name(field.type)):
        reason = f"its MATCH_CONDITION compares {field.name}, which is {type_name(field.type).upper()}"
        raise use.refused(join.at, reason)
    return JoinOrder(OrderCondition(field.name, operator), value.at, step.match, is_sparks=True)


def _comparison_sides(join: FoundJoin, at: Cut) -> tuple[str, str, Conjunct] | None:
    """How the value on the left is compared, the column that it is compared with, and the value."""
    for kind, operator in OPERATORS.items():
        sides = comparison_sides(join.use.statement, at, kind)
        if sides is None or operator == "=":
            continue
        for one, other, how in ((*sides, operator), (*sides[::-1], TURNED[operator])):
            column = own_column(join.use, other.tree)
            if column is not None and can_be_key(one.tree, join.use.names):
                return how, column, one
    return None


def own_column(use: TableUse, tree: exp.Expr) -> str | None:
    """The column of the lookup table itself that ``tree`` is, and nothing more."""
    column, through = bare_column(tree, use.names), use.through
    is_own = column is not None and (through is None or through.expression(column).bare is not None)
    return column if is_own else None


# A range without an equality has no key: the table is kept whole, sorted by its starts. (docs/decisions/0208)
def ranges_in(join: FoundJoin, conditions: Iterable[Conjunct]) -> Iterator[tuple[JoinOrder, Conjunct]]:
    """The ranges of the table that ``conditions`` compare with a value, and that value."""
    found = [(each, *sides) for each in conditions for sides in _range_ends(join, each)]
    for first, operator, start, value in found:
        for last, other, end, same in found:
            if operator in (">=", ">") and other in ("<=", "<") and value.tree == same.tree:
                order = _range_condition(join, (start, operator), (end, other))
                if order is None or value.tree.find(exp.Query):
                    continue
                parts = (KeyEquality(start, value.at, first.at), KeyEquality(end, same.at, last.at))
                yield JoinOrder(order, value.at, first.at, is_sparks=True, parts=parts), value


def _range_ends(join: FoundJoin, condition: Conjunct) -> list[tuple[str, str, Conjunct]]:
    """The comparisons of ``condition`` with columns, as ``_comparison_sides`` gives them."""
    between = between_parts(join.use.statement, condition.at)
    if between is None:
        sides = _comparison_sides(join, condition.at)
        return [] if sides is None else [sides]
    value, *ends = between
    columns = [column for each in ends if (column := own_column(join.use, each.tree)) is not None]
    if len(columns) < 2 or not can_be_key(value.tree, join.use.names):
        return []
    return [(operator, column, value) for operator, column in zip((">=", "<="), columns, strict=True)]


def _range_condition(join: FoundJoin, start: tuple[str, str], end: tuple[str, str]) -> OrderCondition | None:
    """The range between two columns, each with its operator; None where they cannot be compared alike."""
    fields = [join.use.base.schema.field(join.use.base_column(column)) for column, _ in (start, end)]
    if fields[0].type != fields[1].type or not is_key_type(type_name(fields[0].type)):
        return None
    return OrderCondition(fields[0].name, start[1], fields[1].name, end[1], is_open=False)


def order_cast_of(join: FoundJoin, value: Fragment, kind: str) -> KeyCast:
    """How a ``value`` compared by order, of the type ``kind``, becomes one of its column's type.

    Raises:
        CannotBeAsked: Spark compares both as something else; it can find the nearest row itself.
        UnsupportedLookup: the same of a moment.
    """
    order = join.order
    if order is None:
        return KeyCast()
    assert isinstance(order.condition, OrderCondition), "it compares by order"
    option, name = VALID_FROM, order.condition.column
    if value is order.known_by and order.condition.known_from is not None:
        option, name = KNOWN_FROM, order.condition.known_from
    field = join.use.base.schema.field(name)
    column = type_name(field.type)
    cast = order_cast(kind, column)
    if cast is not None:
        return replace(cast, wrapping=join.use.context.wrapping(field.type))
    text = value if isinstance(value, str) else value.of(join.use.statement.text)
    written = " ".join(text.split())
    reason = f"{written} compares {kind.upper()} with {field.name}, which is {column.upper()}"
    if order.is_sparks:
        raise join.use.refused(order.at, reason)
    raise NotReadEither(
        Problem(
            f"The lookup join with {join.use.shown} cannot run: {written} is {kind.upper()}, and"
            f" {field.name}, which {option!r} names, is {column.upper()}.",
            join.use.statement.span(order.at),
            f"Write CAST({written} AS {written_type(column)}), in parentheses.",
        )
    )


def is_order_asked(join: FoundJoin, settings: LookupSettings) -> bool:
    """Whether the source picks the matching rows, as it can and keys have many rows; else the worker does.

    Always True for ranges. Always False with a cache: it keeps all rows of a key, as they answer every value.
    """
    order, connector = join.order, join.use.connector
    if join.is_in_range:
        return True
    if order is None or settings.cache is not None or settings.whole is not None:
        return False
    if any(key.null_safe for key in join.conditions.keys):
        return False
    if multiple_match_of(join.use.base) != ALL:
        return False  # which rows of a key count is decided before
    assert isinstance(order.condition, OrderCondition), "it compares by order"
    if not isinstance(connector, OrderedLookup) or not connector.can_order(order.condition):
        return False
    if order.condition.known_from and (order.condition.until or not connector.picks_known_rows):
        return False
    rows = rows_of_a_key(join)
    # Quotes are many; versions of a customer are few.
    return order.is_sparks if rows is None else rows > FEW_ROWS


def rows_of_a_key(join: FoundJoin) -> float | None:
    """About how many rows a key has, as the source knows; None where it does not."""
    size = join.use.context.table_size(join.use.connector)
    columns = [join.use.base_column(key.column) for key in join.conditions.keys]
    if size.rows is None or any(not size.distinct.get(name) for name in columns):
        return None
    return size.rows / min(size.rows or 1, prod(size.distinct[name] for name in columns))
