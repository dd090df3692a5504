"""A plan as text, for EXPLAIN and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType

from lookup_hints.errors import Span, counted
from lookup_hints.lookup_spec import LookupName
from lookup_hints.plan.decide.access import size_text
from lookup_hints.plan.decide.budgets import shown_owner
from lookup_hints.plan.joins import JoinOrder, LookupJoin, LookupPlan, Ranking, TableScan
from lookup_hints.spi import NearestCondition, NearestLookup, OrderCondition
from lookup_hints.spi.lookup_options import (
    CACHE_KEYS,
    DEAD_LETTER_KEYS,
    ERROR_LIMIT_KEYS,
    FULL_CACHE_KEYS,
    RETRY_KEYS,
)
from lookup_hints.spi.multiple_match import ALL, FIRST, multiple_match_of
from lookup_hints.spi.request_and_answer import LookupTable

Figures = Mapping[LookupName, Sequence[tuple[str, str]]]
"""Measured figures of lookups: name and text of each."""


class PlanText(str):
    """A plan as text, which shows itself line by line where a string would show its escapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def explain(plan: LookupPlan, measured: Figures = MappingProxyType({}), first_line: int = 1) -> str:
    """The lookup joins and scans of ``plan``, as ``joins_text`` gives them, and the Spark SQL that runs."""
    joins = joins_text(plan, first_line, measured)
    return "\n\n".join(["== Lookup joins ==", joins, f"== Spark SQL ==\n{plan.sql.strip()}"])


def joins_text(plan: LookupPlan, first_line: int = 1, measured: Figures = MappingProxyType({})) -> str:
    """The lookup joins and scans of ``plan`` alone.

    Args:
        plan: the plan.
        first_line: that of the statement in its file.
        measured: figures of lookups that have run.
    """
    parts = [
        _join_text(plan, number, join, first_line, measured) for number, join in enumerate(plan.joins, 1)
    ]
    return "\n\n".join([*parts, *map(_scan_text, plan.scans), *(f"Note: {note}." for note in plan.notes)])


def _join_text(plan: LookupPlan, number: int, join: LookupJoin, first_line: int, measured: Figures) -> str:
    line = Span(plan.text, join.at.start, join.at.end).line + first_line - 1
    alias = "" if join.use.shown == join.use.table.name else f" AS {join.use.shown}"
    head = f"({number}) {join.kind} lookup join with {join.use.table.name}{alias}, line {line}"
    figures = measured.get(join.function.name, ())
    ran = ["  measured", *_aligned_lines(figures)] if figures else []
    return "\n".join([head, *_aligned_lines(_join_facts(plan, join)), *ran])


def _scan_text(scan: TableScan) -> str:
    table = scan.use.table
    at_once = "one task" if scan.readers == 1 else f"at most {scan.readers} tasks at once"
    facts = [
        ("read because", scan.decision.reason),
        ("rows", rows_of(scan)),
        *(("instead", text) for text in [scan.decision.other_way] if text),
        ("columns", ", ".join(scan.columns)),
        *([("filters", " AND ".join(map(str, scan.filters)))] if scan.filters else []),
        *_match_facts(table, scan.match_key),
        ("connector", table.connector),
        ("read by", at_once),
        *(("warning", text) for text in [scan.warning] if text),
    ]
    return "\n".join([f"Whole table {table.name} is read", *_aligned_lines(facts)])


def _match_facts(table: LookupTable, key: Sequence[str]) -> Iterator[tuple[str, str]]:
    """How many rows of ``key`` count, where that is not all of them."""
    how = multiple_match_of(table)
    if key and how != ALL:
        several = "others are left out" if how == FIRST else "several are an error"
        yield "one row of", f"{', '.join(key)}: {several} ('multiple-match' = {how!r}, table)"


def rows_of(scan: TableScan) -> str:
    """The size of the table that is read, or why it is unknown."""
    return f"unknown: {scan.size.source}" if scan.size.rows is None else size_text(scan.size)


def _aligned_lines(facts: Iterable[tuple[str, str]]) -> list[str]:
    facts = list(facts)
    width = max(len(name) for name, _ in facts)
    return [f"    {name:<{width}}  {value}" for name, value in facts]


def _order_text(plan: LookupPlan, order: JoinOrder, is_asked: bool) -> str:
    value, condition = plan.text_of(order.value), order.condition
    assert isinstance(condition, OrderCondition), "the nearest rows are told by their ranking"
    if order.parts and condition.until is not None:
        begun = f"{condition.column} {'<=' if condition.operator == '>=' else '<'} {value}"
        lasts = f"{condition.until} {'>=' if condition.until_operator == '<=' else '>'} {value}"
        return f"those with {begun} and {lasts}, in range, from the whole table"
    by_whom = "chosen by the source" if is_asked else "chosen by the worker"
    if condition.known_from is not None:
        ended = "" if condition.until is None else f", unless {condition.until} <= {value}"
        known_by = value if order.known_by is None else plan.text_of(order.known_by)
        known = f"of those with {known_by} >= {condition.known_from}"
        return f"the last one with {value} >= {condition.column}{ended}, {known}, {by_whom}"
    if condition.until is not None:
        return f"those with {condition.column} <= {value} and {condition.until} > {value} or NULL, {by_whom}"
    which = "last" if condition.operator in (">=", ">") else "first"
    return f"the {which} one with {value} {condition.operator} {condition.column}, {by_whom}"


def _nearest_text(join: LookupJoin, ranking: Ranking) -> str:
    """Which rows stay, and who finds them before Spark ranks them."""
    which = counted(ranking.most, "nearest row") if ranking.most > 1 else "nearest row"
    condition = None if join.order is None else join.order.condition
    if not isinstance(condition, NearestCondition):
        return f"the {which}, chosen by Spark among all rows of its key"
    by, connector = f"by {condition.metric} of {', '.join(condition.columns)}", join.use.connector
    if not join.function.order_asked:
        return f"the {which} {by}, exactly, found by the worker"
    how = connector.nearest_search(condition) if isinstance(connector, NearestLookup) else ""
    told = "exactly" if condition.exact else "about"
    return f"the {which} {by}, {told}, found by the source{how and f': {how}'}"


def _budget_facts(join: LookupJoin) -> Iterator[tuple[str, str]]:
    """The request budget, ``on-open`` and the most requests, where they are set."""
    budget, source = join.chosen.settings.budget, join.chosen.source
    is_bounded = bool(budget.name) or budget.is_limited
    if is_bounded:
        yield "budget", f"{shown_owner(join.use.connector)}{source('budget')}"
    if is_bounded or source("on-open"):
        yield "on open", f"{budget.on_open}{source('on-open')}"
    if budget.max_requests is not None:
        where = "" if budget.executors == 1 else " in each executor"
        most = f"{budget.max_requests:,} of one statement{where}"
        yield "max requests", f"{most}{source('max-requests')}"


def _join_facts(plan: LookupPlan, join: LookupJoin) -> Iterator[tuple[str, str]]:
    conditions, settings, source = join.conditions, join.chosen.settings, join.chosen.source
    yield "connector", join.use.table.connector
    yield "access", f"{'kept whole' if join.is_in_range else 'asked'}: {join.access.reason}"
    if join.access.other_way:
        yield "instead", join.access.other_way
    runner = "async" if settings.asynchronous else "sync"
    yield "runner", f"{runner}: {join.chosen.runner_reason}{source('async')}"
    if join.use.through is not None:
        yield "through", join.use.through.shown
    named = join.use.base_column
    keys = [
        f"{named(key.column)} {key.sign} {plan.text_of(join.form.asked_for(key))}" for key in conditions.keys
    ]
    yield from [("keys", ", ".join(keys))] if keys else []
    if join.ranking is not None:
        yield "rows", _nearest_text(join, join.ranking)
    elif join.order is not None:
        yield "rows", _order_text(plan, join.order, join.function.order_asked)
    yield from _match_facts(join.function.table, join.function.match_key)
    yield "columns", ", ".join(join.function.columns)
    if join.form.shown:
        yield "place", join.form.shown
    if conditions.residual:
        yield "residual", " AND ".join(plan.text_of(each.at) for each in conditions.residual)
    if conditions.left_only:
        yield "asked only if", " AND ".join(plan.text_of(each.at) for each in conditions.left_only)
    if conditions.after:
        yield "checked after", " AND ".join(plan.text_of(each.at) for each in conditions.after)
    if not join.is_in_range:
        yield from _request_facts(join)
    if settings.cache is not None:
        past = "" if join.function.past_order is None else "; versions that have ended do not expire"
        yield "cache", f"{settings.cache}{past}{source(*CACHE_KEYS)}"
    if settings.whole is not None:
        yield "cache", f"{settings.whole}{source(*FULL_CACHE_KEYS)}"
    if settings.switch is not None:
        yield "may read", str(settings.switch)
    if settings.stops_early:
        yield "limit", "may stop it early, so nothing is read ahead of its rows"
    yield "function", join.function.name.function
    if join.shuffled:
        yield "shuffle", f"left rows are partitioned by key{source('shuffle')}"
    if join.repeated:
        yield "note", "the CTE around it is read more than once; it is computed once"
    for note in join.notes:
        yield "note", note


def _request_facts(join: LookupJoin) -> Iterator[tuple[str, str]]:
    """How requests to the source are made."""
    settings, source = join.chosen.settings, join.chosen.source
    if settings.asynchronous:
        yield "capacity", f"{counted(settings.capacity, 'request')} in flight per task{source('capacity')}"
        mode = "ordered" if settings.ordered else "allow_unordered"
        yield "output mode", f"{mode}{source('output-mode')}"
    yield "timeout", f"{settings.timeout:g} s{source('timeout')}"
    yield "retry", f"{settings.retry}{source(*RETRY_KEYS)}"
    letters = () if settings.dead_letters is None else DEAD_LETTER_KEYS
    limits = () if settings.on_error == "fail" else ERROR_LIMIT_KEYS
    yield "on error", f"{settings.failures}{source('on-error', *letters, *limits)}"
    yield "batch size", f"at most {counted(settings.batch_size, 'key')} in one request{source('batch-size')}"
    yield from _budget_facts(join)
