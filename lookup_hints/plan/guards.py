"""The rule that lets no table be read by accident, whatever caused the read."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.access import MOST_ROWS, size_text
from lookup_hints.plan.draft import Draft, TableScan
from lookup_hints.plan.requested_access import value_of
from lookup_hints.spi import TableSize
from lookup_hints.spi.options import InForce


def guard_reads(draft: Draft) -> Draft:
    """Every table that is read may be read, and says how large it is; a large one is warned of.

    Raises:
        UnsupportedLookup: a table may not be read; names it, the reason for reading, and its rows.
    """
    scans = [_with_size(draft, scan) for scan in draft.scans]
    for scan in scans:
        _refuse_forbidden(draft, scan)
    return draft.with_(scans=tuple(scan.with_(warning=_warning(draft, scan)) for scan in scans))


def _with_size(draft: Draft, scan: TableScan) -> TableScan:
    decision = draft.decided.get(scan.use)
    other_way = decision.other_way if decision is not None else ""
    return scan.with_(size=draft.context.table_size(scan.connector), other_way=other_way)


def _refuse_forbidden(draft: Draft, scan: TableScan) -> None:
    guard, most = value_of("on-scan", draft, scan.use), value_of("scan.max-rows", draft, scan.use)
    rows = _size(scan).rows
    if not value_of("scan", draft, scan.use).value:
        raise _forbidden(draft, scan, "'scan' = 'false' in its WITH", "take that out of its WITH")
    if guard.value == "error":
        tip = "allow it with 'lookup.on-scan' = 'allow'"
        raise _forbidden(draft, scan, f"'lookup.on-scan' = 'error'{_place(guard)}", tip)
    if most.value is not None and rows is not None and rows > most.value:
        rule = f"'lookup.scan.max-rows' = '{most.value}'{_place(most)}"
        raise _forbidden(draft, scan, rule, "raise that number")


def _forbidden(draft: Draft, scan: TableScan, rule: str, tip: str) -> UnsupportedLookup:
    statement, use = draft.statement, scan.use
    message = (
        f"The lookup table {use.table.name} would be read whole, because {scan.reason}: {rule} forbids it."
        f" It has {_rows(_size(scan))}."
    )
    at = statement.span(statement.tokens.cut(use.index, use.index))
    return UnsupportedLookup(Problem(message, at, f"Join it by an equality with its key, or {tip}."))


def _warning(draft: Draft, scan: TableScan) -> str:
    """What to say of a read that nobody may have meant; empty for others."""
    guard, rows = value_of("on-scan", draft, scan.use), _size(scan).rows
    is_large = guard.value is None and rows is not None and rows > MOST_ROWS
    if guard.value != "warn" and not is_large:
        return ""
    return (
        f"the table has {_rows(_size(scan))}, and all of them are read; 'lookup.on-scan' = 'allow' says that"
        " this is meant"
    )


def _size(scan: TableScan) -> TableSize:
    assert scan.size is not None, "sizes are asked for first"
    return scan.size


def _rows(size: TableSize) -> str:
    return f"an unknown number of rows ({size.source})" if size.rows is None else size_text(size)


def _place(given: InForce) -> str:
    return f" ({given.source.value})" if given.source is not None else ""
