"""A lookup table that is read whole: columns, filters, by how many tasks, and whether it may be.

Filters only narrow: each condition also stays in the statement. So conditions that are not understood here,
or that Spark might read differently, are left out. A filter may drop a row only if the row cannot contribute
to the result:

- A WHERE condition that is never true of NULL can go below any join: if its partner was left out, an outer
  join fills the row with NULLs, and WHERE drops it.
- ``IS NULL`` is true of such rows, so it goes below WHERE only where no join fills the table's columns.
- A condition of ON goes to the side that the join does not keep by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pyarrow as pa
from pyarrow import types
from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.column_pruning import used_columns
from lookup_hints.plan.decide.access import MOST_ROWS, AccessDecision, size_text
from lookup_hints.plan.decide.budgets import CONCURRENCY, REQUESTS, cluster_of, limits_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.joins import TableScan
from lookup_hints.plan.key_conditions import (
    OPERATORS,
    TURNED,
    ColumnNames,
    Conjunct,
    bare_column,
    known_conjuncts,
)
from lookup_hints.plan.keys_in_where import where_of
from lookup_hints.plan.table_use import TableUse
from lookup_hints.spi import Connector, FilteredScan, TableSize
from lookup_hints.spi.connector import why_not_read
from lookup_hints.spi.lookup_options import LOOKUP, LOOKUP_OPTIONS, TABLE_OPTIONS, options_of_table
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.spi.option_values import Conf, InForce, Place, in_force, parsed
from lookup_hints.spi.request_and_answer import Filter, FilterValue

PARTITIONS = "lookup.scan.partitions"

# Each reader has a connection, and a read is one long request that adaptive limits do not see.
# (docs/decisions/0146)
# Each reader has a connection of its own: by default no source has more of them at once.
_MOST_READERS = 16


def scan_of(use: TableUse, decision: AccessDecision) -> TableScan:
    """The scan that ``use`` is: of the columns that its query block names."""
    connector, columns = use.connector, used_columns(use)
    if use.column_aliases:
        columns = tuple(use.table.schema.names)
    filters: tuple[Filter, ...] = ()
    if isinstance(connector, FilteredScan):
        filters = tuple(filter(connector.can_filter, filters_of(use)))
    match_key = _match_key_of(use, columns)
    if match_key:
        filters = tuple(each for each in filters if each.column in match_key)
    size = use.context.table_size(connector)
    return TableScan(
        use=use,
        columns=columns,
        relation=use.context.name_scan(use.table, columns, filters, match_key),
        readers=_count_readers(connector, use.context.conf),
        decision=decision,
        size=size,
        filters=filters,
        match_key=match_key,
        warning=_warning_of_scan(use, size),
    )


def _match_key_of(use: TableUse, columns: Sequence[str]) -> tuple[str, ...]:
    """The primary key of which one row counts; empty where all do, or where it makes no difference."""
    is_there = use.step is not None and use.step.hides_right and {*columns} <= {*use.table.primary_key}
    return () if is_there or multiple_match_of(use.table) == ALL else use.table.primary_key


def refuse_forbidden(scan: TableScan) -> None:
    """Refuse to read a table whose ``scan``, ``on-scan`` or ``scan.max-rows`` forbids it, whatever the cause.

    Raises:
        UnsupportedLookup: the table may not be read; names it, the reason for reading, and its rows.
    """
    most, rows = scan.use.value_of("scan.max-rows"), scan.size.rows
    forbids = _forbidding_option(scan.use.value_of)
    if forbids is not None:
        raise _forbidden_scan(scan, *forbids)
    if most.value is not None and rows is not None and rows > most.value:
        rule = f"'lookup.scan.max-rows' = '{most.value}'{_source_text(most)}"
        raise _forbidden_scan(scan, rule, "raise that number")


@dataclass(frozen=True)
class ReadRule:
    """Whether a table may be read whole where no statement names it, as Spark's own API does.

    Args:
        refusal: why it may not, with what to do instead; empty if it may.
        most_rows: more rows than these are not read; None for no limit.
    """

    refusal: str = ""
    most_rows: int | None = None


def read_rule(connector: Connector, conf: Conf) -> ReadRule:
    """The rule in force for the table of ``connector``."""
    table = connector.table
    given = {Place.TABLE: options_of_table(table)}
    options = {option.key: option for option in LOOKUP_OPTIONS}

    def value_of(key: str) -> InForce:
        return in_force(options[key], conf, given)

    forbids = _forbidding_option(value_of)
    why = why_not_read(connector) or ("" if forbids is None else f"{forbids[0]} forbids it")
    if not why and value_of("access") == InForce(LOOKUP, Place.TABLE):
        why = f"'lookup.access' = '{LOOKUP}' in its WITH wants it to be looked up"
    if not why:
        return ReadRule(most_rows=value_of("scan.max-rows").value)
    return ReadRule(
        f"The lookup table {table.name} is not read whole: {why}. Look up its rows by key: join it in SQL, or"
        f" df.join(spark.table({table.name!r}).hint('lookup'), ...)."
    )


def _forbidding_option(value_of: Callable[[str], InForce]) -> tuple[str, str] | None:
    """The option that forbids to read a table whatever its size, and what would allow it."""
    if not value_of("scan").value:
        return "'scan' = 'false' in its WITH", "take that out of its WITH"
    guard = value_of("on-scan")
    if guard.value == "error":
        return f"'lookup.on-scan' = 'error'{_source_text(guard)}", "allow it with 'lookup.on-scan' = 'allow'"
    return None


def _forbidden_scan(scan: TableScan, rule: str, tip: str) -> UnsupportedLookup:
    statement, use = scan.use.statement, scan.use
    message = (
        f"The lookup table {use.table.name} would be read whole, because {scan.decision.reason}: {rule}"
        f" forbids it. It has {_rows_text(scan.size)}."
    )
    at = statement.span(statement.tokens.cut(use.index, use.index))
    return UnsupportedLookup(Problem(message, at, f"Join it by an equality with its key, or {tip}."))


def _warning_of_scan(use: TableUse, size: TableSize) -> str:
    """A warning for a read that may be unintended; empty for others."""
    guard = use.value_of("on-scan")
    is_large = guard.value is None and size.rows is not None and size.rows > MOST_ROWS
    if guard.value != "warn" and not is_large:
        return ""
    return (
        f"the table has {_rows_text(size)}, and all of them are read; 'lookup.on-scan' = 'allow' says that"
        " this is meant"
    )


def _rows_text(size: TableSize) -> str:
    return f"an unknown number of rows ({size.source})" if size.rows is None else size_text(size)


def _source_text(given: InForce) -> str:
    return f" ({given.source.value})" if given.source is not None else ""


def _count_readers(connector: Connector, conf: Conf) -> int:
    """The most parts in which the table is read: the user's number as it is, else the tasks that run at once.

    The latter are at most ``_MOST_READERS``, and the requests that the table allows at once and in all.
    """
    table = connector.table
    text = table.options.get(PARTITIONS)
    if text is not None:
        option = TABLE_OPTIONS[PARTITIONS]
        return int(parsed(option, PARTITIONS, text, owner=f"table {table.name}: "))
    tasks = cluster_of(conf, session_option("cluster-tasks", conf)).tasks
    limit = limits_of(connector, ()).get(CONCURRENCY)
    requests = in_force(TABLE_OPTIONS[REQUESTS], conf, {Place.TABLE: options_of_table(table)}).value
    at_once = [number for number in (tasks, None if limit is None else int(limit.value), requests) if number]
    return min([_MOST_READERS, *at_once])


# A longer IN is left to Spark: it would be sent in the text of the statement.
_MOST_VALUES = 1000


# A filter narrows and never replaces: the condition stays, so a source may give more rows, never fewer.
# (docs/decisions/0156)
def filters_of(use: TableUse) -> tuple[Filter, ...]:
    if not use.relation.plain or use.block.views_last > -1:
        return ()  # a sample is taken before rows are filtered, and a view may have a column of the same name
    if not use.may_be_narrowed:
        return ()  # the nearest of all rows is another than the nearest of some
    if "${" in use.statement.text:
        return ()  # the value that Spark puts there may hold an OR
    conditions = use.statement.once(where_of, use.block) if use.relation in use.block.shown else []
    of_where = (each for condition in conditions for each in _filters_of_conjunct(use, condition))
    kept = (each for each in of_where if use.keeps_rows or each.op != "IS NULL")
    return tuple(dict.fromkeys([*kept, *_filters_of_on(use)]))


# An outer join keeps rows that do not meet its ON, so a condition there filters one side alone.
# (docs/decisions/0156)
def _filters_of_on(use: TableUse) -> Iterator[Filter]:
    step, keeping = use.step, {"RIGHT", "FULL"}
    if step is None and use.chain is not None and use.chain.steps:
        # A LEFT SEMI JOIN keeps no row by itself.
        step = use.chain.steps[0]
        keeping = {"FULL", "ANTI"} if "SEMI" in step.words else {"LEFT", "FULL", "ANTI"}
    if step is None or step.on is None or step.takes_nearest or keeping & set(step.words):
        return
    # Unreadable conditions can be ignored: they stay in the statement.
    for conjunct in known_conjuncts(use.statement, step.on) or ():
        yield from _filters_of_conjunct(use, conjunct)


def _filters_of_conjunct(use: TableUse, conjunct: Conjunct) -> Iterator[Filter]:
    if any(sign in conjunct.at.of(use.statement.text) for sign in ("\\", '"')):
        return  # only Spark knows what such a text means, and "a" may be a name
    column = next(conjunct.tree.find_all(exp.Column), None)
    if column is not None and len(column.parts) == 1 and _has_shared_columns(use):
        return
    yield from filters_in(conjunct.tree, use.names)


def _has_shared_columns(use: TableUse) -> bool:
    """Whether USING or NATURAL may make one column of two, which belongs to no table alone."""
    first, last = use.block.first, use.block.last
    places = (use.statement.tokens.places(word, first, last) for word in ("USING", "NATURAL"))
    return any(True for found in places for _ in found)


# Only comparisons that every source evaluates as Spark does: a bare column against literals.
# (docs/decisions/0156)
def filters_in(tree: exp.Expr, names: ColumnNames) -> tuple[Filter, ...]:
    """The filters that ``tree`` is, all of them together; none where it is anything else."""
    tree = tree.unnest()
    if isinstance(tree, exp.Between):
        low = _column_filter(tree.this, ">=", [tree.args["low"]], names)
        high = _column_filter(tree.this, "<=", [tree.args["high"]], names)
        return (*low, *high) if low and high and not tree.args.get("symmetric") else ()
    if isinstance(tree, exp.In):
        is_list = tree.expressions and not (tree.args.get("query") or tree.args.get("unnest"))
        is_short = is_list and len(tree.expressions) <= _MOST_VALUES
        return _column_filter(tree.this, "IN", tree.expressions, names) if is_short else ()
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        return _null_filter(tree.this, "IS NULL", names)
    if isinstance(tree, exp.Not):
        negated = tree.this.unnest()
        if isinstance(negated, exp.Is) and isinstance(negated.expression, exp.Null):
            return _null_filter(negated.this, "IS NOT NULL", names)
        return _boolean_filter(negated, False, names)
    if isinstance(tree, exp.Column):
        return _boolean_filter(tree, True, names)
    op = OPERATORS.get(type(tree))
    if op is None:
        return ()
    found = _column_filter(tree.this, op, [tree.expression], names)
    return found or _column_filter(tree.expression, TURNED[op], [tree.this], names)


def _null_filter(tree: exp.Expr, op: str, names: ColumnNames) -> tuple[Filter, ...]:
    column = bare_column(tree, names)
    kind = None if column is None else names.table.schema.field(column).type
    return (Filter(str(column), op),) if kind is not None and _is_exact(kind) else ()


def _boolean_filter(tree: exp.Expr, value: bool, names: ColumnNames) -> tuple[Filter, ...]:
    column = bare_column(tree, names)
    is_boolean = column is not None and types.is_boolean(names.table.schema.field(column).type)
    return (Filter(str(column), "=", (value,)),) if is_boolean else ()


def _column_filter(
    tree: exp.Expr, op: str, written: Sequence[exp.Expr], names: ColumnNames
) -> tuple[Filter, ...]:
    column = bare_column(tree, names)
    if column is None:
        return ()
    kind = names.table.schema.field(column).type
    values = [_literal_value(each.unnest(), kind) for each in written]
    known = tuple(value for value in values if value is not None)
    if len(known) < len(values) or (types.is_decimal(kind) and not _is_compared_exactly(kind, known)):
        return ()
    return (Filter(column, op, known),)


# --- values ---------------------------------------------------------------------------------------

_WHOLE, _FRACTION = re.compile(r"\d+"), re.compile(r"\d*\.\d+|\d+\.")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Digits that Spark may give a BIGINT when it compares it with a DECIMAL.
_DIGITS_OF_WHOLE = 20


def _is_exact(kind: pa.DataType) -> bool:
    """Whether values of the type are equal in Spark exactly where they are in any source: no float is."""
    tests = (types.is_boolean, types.is_integer, types.is_decimal, types.is_date, types.is_string)
    return any(test(kind) for test in tests)


def _literal_value(tree: exp.Expr, kind: pa.DataType) -> FilterValue | None:
    """The value that a literal has for Spark where it meets a column of the type; None for anything else."""
    if types.is_boolean(kind):
        return bool(tree.this) if isinstance(tree, exp.Boolean) else None
    if types.is_integer(kind):
        return _integer_value(tree)
    if types.is_decimal(kind):
        return _integer_value(tree) if _decimal_value(tree) is None else _decimal_value(tree)
    if types.is_date(kind):
        is_typed = isinstance(tree, exp.Cast) and tree.to.is_type(exp.DataType.Type.DATE)
        return _date_value(tree.this if is_typed else tree)
    return _string_value(tree) if types.is_string(kind) else None


def _number_text(tree: exp.Expr, form: re.Pattern[str]) -> str | None:
    is_negative = isinstance(tree, exp.Neg)
    literal = tree.this if is_negative else tree
    is_number = isinstance(literal, exp.Literal) and not literal.is_string and form.fullmatch(literal.this)
    return ("-" if is_negative else "") + literal.this if is_number else None


def _integer_value(tree: exp.Expr) -> int | None:
    digits = _number_text(tree, _WHOLE)
    value = None if digits is None else int(digits)
    return value if value is not None and -(2**63) <= value < 2**63 else None


def _decimal_value(tree: exp.Expr) -> Decimal | None:
    digits = _number_text(tree, _FRACTION)
    return None if digits is None else Decimal(digits)


def _string_value(tree: exp.Expr) -> str | None:
    if not (isinstance(tree, exp.Literal) and tree.is_string):
        return None
    # A quote inside is two quotes for one version of Spark, and two texts side by side for another.
    return None if "'" in tree.this else str(tree.this)


def _date_value(tree: exp.Expr) -> date | None:
    text = _string_value(tree)
    try:
        return date.fromisoformat(text) if text is not None and _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _is_compared_exactly(kind: pa.DataType, values: Sequence[FilterValue]) -> bool:
    """Whether Spark's common type of column and values has all their digits: it has 38 at most."""
    sizes = [(kind.precision - kind.scale, kind.scale), *map(_digits_of, values)]
    return bool(max(whole for whole, _ in sizes) + max(scale for _, scale in sizes) <= 38)


def _digits_of(value: FilterValue) -> tuple[int, int]:
    if not isinstance(value, Decimal):
        return _DIGITS_OF_WHOLE, 0
    scale = max(0, -int(value.as_tuple().exponent))
    return max(0, len(value.as_tuple().digits) - scale), scale
