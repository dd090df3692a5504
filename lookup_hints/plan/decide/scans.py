"""A lookup table that is read whole: its columns and filters, by how many tasks, and whether it may be."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.columns import used_columns
from lookup_hints.plan.decide.access import MOST_ROWS, AccessDecision, size_text
from lookup_hints.plan.decide.budgets import CONCURRENCY, cluster_of, limits_of
from lookup_hints.plan.decide.filters import filters_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.facts import Facts
from lookup_hints.plan.joins import TableScan
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.spi import Connector, Filter, FilteredScan, TableSize
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.options import Conf, InForce, Place, options_at, parsed

PARTITIONS = "lookup.scan.partitions"

_MOST_READERS = 16
"""Each reader has a connection of its own: by default no source has more of them at once."""


def scan_of(facts: Facts, use: LookupUse, decision: AccessDecision) -> TableScan:
    """The scan that ``use`` is: of the columns that its query block names."""
    names, connector = facts.names(use), facts.connector(use)
    columns = used_columns(facts.statement, use, names)
    if use.column_aliases:
        columns = tuple(use.table.schema.names)
    filters: tuple[Filter, ...] = ()
    if isinstance(connector, FilteredScan):
        filters = tuple(filter(connector.can_filter, filters_of(facts.statement, use, names)))
    size = facts.context.table_size(connector)
    return TableScan(
        use=use,
        connector=connector,
        columns=columns,
        relation=facts.context.name_scan(use.table, columns, filters),
        readers=_readers_of(connector, facts.context.conf),
        decision=decision,
        size=size,
        filters=filters,
        warning=_warning(facts, use, size),
    )


def refuse_forbidden(facts: Facts, scan: TableScan) -> None:
    """Let no table be read by accident, whatever caused the read.

    Raises:
        UnsupportedLookup: the table may not be read; names it, the reason for reading, and its rows.
    """
    guard, most = facts.value_of("on-scan", scan.use), facts.value_of("scan.max-rows", scan.use)
    rows = scan.size.rows
    if not facts.value_of("scan", scan.use).value:
        raise _forbidden(facts, scan, "'scan' = 'false' in its WITH", "take that out of its WITH")
    if guard.value == "error":
        tip = "allow it with 'lookup.on-scan' = 'allow'"
        raise _forbidden(facts, scan, f"'lookup.on-scan' = 'error'{_place(guard)}", tip)
    if most.value is not None and rows is not None and rows > most.value:
        rule = f"'lookup.scan.max-rows' = '{most.value}'{_place(most)}"
        raise _forbidden(facts, scan, rule, "raise that number")


def _forbidden(facts: Facts, scan: TableScan, rule: str, tip: str) -> UnsupportedLookup:
    statement, use = facts.statement, scan.use
    message = (
        f"The lookup table {use.table.name} would be read whole, because {scan.decision.reason}: {rule}"
        f" forbids it. It has {_rows(scan.size)}."
    )
    at = statement.span(statement.tokens.cut(use.index, use.index))
    return UnsupportedLookup(Problem(message, at, f"Join it by an equality with its key, or {tip}."))


def _warning(facts: Facts, use: LookupUse, size: TableSize) -> str:
    """What to say of a read that nobody may have meant; empty for others."""
    guard = facts.value_of("on-scan", use)
    is_large = guard.value is None and size.rows is not None and size.rows > MOST_ROWS
    if guard.value != "warn" and not is_large:
        return ""
    return (
        f"the table has {_rows(size)}, and all of them are read; 'lookup.on-scan' = 'allow' says that"
        " this is meant"
    )


def _rows(size: TableSize) -> str:
    return f"an unknown number of rows ({size.source})" if size.rows is None else size_text(size)


def _place(given: InForce) -> str:
    return f" ({given.source.value})" if given.source is not None else ""


def _readers_of(connector: Connector, conf: Conf) -> int:
    """In how many parts the table is read, at most: what the user says, else as many as tasks run at once.

    No more than the source may be asked for at once.
    """
    table = connector.table
    text = table.options.get(PARTITIONS)
    if text is not None:
        option = options_at(Place.TABLE, LOOKUP_OPTIONS)[PARTITIONS]
        return int(parsed(option, PARTITIONS, text, owner=f"table {table.name}: "))
    tasks = cluster_of(conf, session_option("cluster-tasks", conf)).tasks
    limit = limits_of(connector, ()).get(CONCURRENCY)
    at_once = [number for number in (tasks, None if limit is None else int(limit.value)) if number]
    return min([_MOST_READERS, *at_once])
