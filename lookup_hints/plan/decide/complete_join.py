"""Complete a lookup join that was found: its settings, key types, columns, and function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from lookup_hints.errors import OptionError, Problem, UnsupportedLookup
from lookup_hints.lookup_spec import FullCache, LookupName, LookupSettings, LookupSpec, PeriodicReload, Switch
from lookup_hints.plan.column_pruning import residual_columns, used_columns
from lookup_hints.plan.cte_read_twice import must_run_once
from lookup_hints.plan.decide.access import AccessDecision
from lookup_hints.plan.decide.ask_or_read import stopped_early
from lookup_hints.plan.decide.asof_and_range_joins import is_order_asked, order_cast_of
from lookup_hints.plan.decide.budgets import gives_limits
from lookup_hints.plan.decide.nearest_joins import is_nearest_asked, value_cast_of, with_comparable_value
from lookup_hints.plan.decide.settings import Choice, choose
from lookup_hints.plan.facts_of_lookup_tables import Facts
from lookup_hints.plan.joins import (
    FoundJoin,
    LookupJoin,
    asked_columns,
)
from lookup_hints.plan.key_casts import ANSI, KeyCast, key_cast
from lookup_hints.plan.key_conditions import KeyEquality
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.spark_analysis import Analysis, KeyTypeError
from lookup_hints.plan.table_use import CannotBeAsked, NotReadEither, TableUse
from lookup_hints.spi import Connector
from lookup_hints.spi.arrow_types import type_name, written_type
from lookup_hints.sql.text_edits import Cut


def completed(
    facts: Facts, joins: Sequence[FoundJoin], access: dict[TableUse, AccessDecision]
) -> tuple[LookupJoin, ...]:
    """``joins`` completed, ready to be written.

    Raises:
        CannotBeAsked: the keys of a join cannot be computed, or do not identify rows.
        QueryError: contradictory options.
    """
    stopped, others = stopped_early(facts, joins), _connectors_with_limits(facts.context, joins)
    choices = [_choose_settings(join, access[join.use], others, join.use.index in stopped) for join in joins]
    types = _types_of_keys(facts.analysis, joins)
    joins = [with_comparable_value(join, kinds) for join, kinds in zip(joins, types, strict=True)]
    casts = [_cast_keys(join, kinds) for join, kinds in zip(joins, types, strict=True)]
    return tuple(
        _complete_join(join, access[join.use], choice, *cast)
        for join, choice, cast in zip(joins, choices, casts, strict=True)
    )


def _complete_join(
    join: FoundJoin,
    access: AccessDecision,
    choice: Choice,
    casts: tuple[KeyCast, ...],
    order_casts: tuple[KeyCast, ...],
) -> LookupJoin:
    statement, context, keys = join.use.statement, join.use.context, join.conditions.keys
    is_asked = is_order_asked if join.ranking is None else is_nearest_asked
    order_asked = is_asked(join, choice.settings)
    if order_asked:
        # A table that executors may read whole serves plain keys, not moments.
        choice = replace(choice, settings=replace(choice.settings, switch=None))
    columns = _used_columns(join, casts)
    repeated = must_run_once(statement, join)
    notes = [*join.notes, *choice.notes, *join.use.connector.remarks()]
    is_shuffled = choice.shuffle and join.left_table is not None and not join.is_in_range
    if choice.shuffle and not is_shuffled:
        why = "it has no key" if join.is_in_range else "the left side of this join is not one table"
        notes.append(f"'shuffle'='true' has no effect: {why}")
    name = LookupName(join.use.table.name, join.use.shown, join.use.table.connector, context.line)
    unnamed = LookupSpec(
        connector=join.use.connector,
        key_columns=tuple(join.use.base_column(key.column) for key in keys),
        columns=asked_columns(join.use, columns, join.answered),
        settings=_with_invalidations(join, choice.settings),
        name=name,
        kind=join.kind,
        packed=_is_packed(statement, join),
        order=None if join.order is None else join.order.condition,
        order_asked=order_asked,
        null_safe=tuple(join.use.base_column(key.column) for key in keys if key.null_safe),
    )
    function = context.name_function(unnamed, repeated)
    named = replace(unnamed, name=replace(name, function=function))
    found = {**vars(join), "notes": (*notes, *_notes_of_changes(named))}
    return LookupJoin(
        **found,
        access=access,
        chosen=choice,
        casts=casts,
        order_casts=order_casts,
        columns=columns,
        repeated=repeated,
        shuffled=is_shuffled,
        function=named,
    )


# --- settings ---------------------------------------------------------------------------------------


def _choose_settings(
    join: FoundJoin, access: AccessDecision, others: Sequence[Connector], is_stopped: bool
) -> Choice:
    """The runner and the options of a join.

    Executors may switch to reading the table if ``access`` allows it, except where a retry waits for late
    rows or inspects rows, or where ``cache`` is set: these need the answers of the source.
    """
    context = join.use.context
    choice = choose(
        join.use.hint,
        join.use.connector,
        context.conf,
        context.predicates,
        context.unwritable,
        others,
    )
    settings = replace(choice.settings, stops_early=is_stopped)
    if join.is_in_range:
        return replace(choice, settings=_settings_for_ranges(join, settings))
    wants_source = "cache" in choice.sources or settings.retry.on_miss or settings.retry.on_rows is not None
    if access.reads_after is not None and not wants_source:
        settings = replace(settings, switch=Switch(access.reads_after))
    return replace(choice, settings=settings)


def _settings_for_ranges(join: FoundJoin, settings: LookupSettings) -> LookupSettings:
    """``settings`` with a full cache; it lives only for this statement unless others keep it anyway.

    Raises:
        CannotBeAsked: a retry needs answers of the source.
    """
    if settings.retry.on_miss or settings.retry.on_rows is not None:
        what = "ranges are" if join.ranking is None else "the nearest rows are"
        reason = f"{what} found in the whole table, and a retry asks for rows that were not there"
        raise join.use.refused(join.at, reason)
    whole = settings.whole
    if whole is None or whole.changed is not None:
        most_bytes = join.use.value_of("full-cache.max-bytes").value
        whole = FullCache(PeriodicReload(math.inf), max_bytes=most_bytes)
    return replace(settings, cache=None, whole=whole)


def _connectors_with_limits(context: Context, joins: Sequence[FoundJoin]) -> list[Connector]:
    """The connectors of the statement's lookups and of the session's tables, as far as they give limits."""
    found = [join.use.connector for join in joins]
    known = {id(connector.table) for connector in found}
    for table in context.tables() if found else ():
        if gives_limits(table) and id(table) not in known:
            with suppress(OptionError):  # reported where that table is used
                found.append(context.connector(table))
    return found


def _with_invalidations(join: FoundJoin, settings: LookupSettings) -> LookupSettings:
    """``settings`` with the invalidations to honour: older ones than the time to live have expired anyway."""
    if settings.cache is None and settings.whole is None:
        return settings
    told = join.use.context.invalidations(join.use.connector.table, settings.longest)
    return replace(settings, invalidations=told)


def _notes_of_changes(spec: LookupSpec) -> Iterator[str]:
    """Notes on changes that move a row to another key: the old key's answer would keep the row, so
    each change drops all that is cached.
    """
    changed = spec.settings.changed
    if changed is not None and not spec.keys_are_immutable:
        columns = ", ".join(spec.key_columns)
        yield (
            f"each change that {changed.column.name} tells drops all that is remembered of this lookup, as"
            f" ({columns}) is not a part of a PRIMARY KEY of {spec.table.name}"
        )


# --- keys and columns -------------------------------------------------------------------------------


def _types_of_keys(analysis: Analysis, joins: Sequence[FoundJoin]) -> Sequence[Sequence[str] | None]:
    if not analysis.knows or not joins:
        return [None] * len(joins)
    try:
        return analysis.key_types([join.question(analysis.statement) for join in joins])
    except KeyTypeError as error:
        join = next(join for join in joins if join.use is error.question.use)
        raise _key_not_computable(join, error) from error


def _key_not_computable(join: FoundJoin, error: KeyTypeError) -> UnsupportedLookup:
    """The error for a key that Spark cannot analyse alone, though the whole statement was analysed."""
    statement, at = join.use.statement, error.part if isinstance(error.part, Cut) else join.at
    written = error.part if isinstance(error.part, str) else " ".join(at.of(statement.text).split())
    is_key = not any(error.part is value for value in error.question.values)
    what = "key" if is_key else "time" if join.order is None or not join.order.is_sparks else "value"
    reason = f"its {what} {written} cannot be computed before the lookup"
    problem = Problem(
        f"The lookup join with {join.use.shown} cannot run: {reason}. Spark says: {error}",
        statement.span(at),
        f"Write a subquery on the left that gives {written} as a column, and join by that.",
    )
    return NotReadEither(problem) if what == "time" else CannotBeAsked(problem, join.use, reason)


def _cast_keys(
    join: FoundJoin, types: Sequence[str] | None
) -> tuple[tuple[KeyCast, ...], tuple[KeyCast, ...]]:
    """The casts of each key, and of each value compared by order, to the types of their columns."""
    keys, values = join.conditions.keys, () if join.order is None else join.order.values
    if types is None:
        return (KeyCast(),) * len(keys), (KeyCast(),) * len(values)
    casts = tuple(_cast_key(join, key, kind) for key, kind in zip(keys, types, strict=False))
    cast_of = order_cast_of if join.ranking is None else value_cast_of
    moments = zip(values, types[len(keys) :], strict=False)
    return casts, tuple(cast_of(join, value, kind) for value, kind in moments)


def _cast_key(join: FoundJoin, key: KeyEquality, left: str) -> KeyCast:
    """How a key of the type ``left`` becomes a value of its column's type, if one value can be it."""
    kind = join.use.table.schema.field(key.column).type
    column = type_name(kind)
    ansi = (join.use.context.conf(ANSI) or "true").lower() == "true"
    zone = join.use.context.conf("spark.sql.session.timeZone") or ""
    cast = key_cast(left, column, ansi=ansi, zone=zone)
    has_query = any(_has_query(join.use.statement, each) for each in join.conditions.keys)
    if cast is not None and cast.recheck and not key.kept and has_query:
        cast = None  # the row that is found is checked in a lambda, where Spark takes no query
    is_mixed = (left == "string") != (column == "string")
    if join.form.compares_as_in and key.shared and not ansi and is_mixed:
        cast = None  # without ANSI, IN compares them as texts, which = does not
    if cast is None:
        written = key.left if isinstance(key.left, str) else key.left.of(join.use.statement.text)
        reason = (
            f"{written} is {left.upper()} and {join.use.alias}.{key.column} is {column.upper()}, so one key"
            " may equal several values of the column"
        )
        tip = f"Write CAST({written} AS {written_type(column)})."
        raise join.use.refused(key.whole, reason, tip=tip)
    return replace(cast, wrapping=join.use.context.wrapping(kind))


def _has_query(statement: Statement, key: KeyEquality) -> bool:
    tree = statement.expression(key.left)
    return tree is not None and tree.find(exp.Query) is not None


def _used_columns(join: FoundJoin, casts: Sequence[KeyCast]) -> tuple[str, ...]:
    """The columns that the query uses, or that check a key again, in the table's order.

    A SEMI or ANTI join uses only those of its conditions.
    """
    keys = join.conditions.keys
    if join.is_semi:
        used = {*residual_columns(join.use, join.checked, join.answered)}
    else:
        used = {*used_columns(join.use, join.answered)}
    used |= {key.column for key, cast in zip(keys, casts, strict=True) if cast.recheck}
    used |= set() if join.ranking is None else {*join.use.table.primary_key}
    return tuple(name for name in join.use.table.schema.names if name in used)


def _is_packed(statement: Statement, join: FoundJoin) -> bool:
    """Whether its keys travel as one argument: several that hold a query make Spark fail."""
    keys, conditions = join.conditions.keys, join.conditions.left_only
    return len(keys) + (join.order is not None) > 1 and (
        any(_has_query(statement, key) for key in keys)
        or any(each.tree.find(exp.Query) for each in conditions)
    )
