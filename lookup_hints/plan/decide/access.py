"""Whether a lookup join asks its table or reads it whole: values in, a decision with its reason out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from lookup_hints.errors import counted
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.table_use import TableUse
from lookup_hints.spi import TableSize
from lookup_hints.spi.lookup_options import AUTO, SCAN

# Where reading begins to be faster, measured over keys at random. (docs/decisions/0153)
LEFT_ROWS_PER_ROW = 0.9
"""Reading the table wins above this ratio of left rows to table rows (`benchmarks/bench_crossover.py`)."""

KEYS_PER_ROW = 0.35
"""To ask for this many keys is a bit cheaper than to read a row: decision 0163."""

MOST_BYTES = 10**9
"""A larger table is not read while a statement runs."""

FEWEST_KEYS = 10_000
"""Below this many keys, looking up always wins: it takes one or two requests for a table of any size."""

MOST_ROWS = 10_000_000
"""A larger table is never read because that is cheaper, and with a warning where it must be."""


@dataclass(frozen=True)
class Case:
    """The facts about a lookup join that cost no trip to a source or to Spark.

    Args:
        requested: the value of ``access`` in force.
        requested_by: that value and where it was set, as EXPLAIN shows it; empty if nobody set it.
        must_ask: why the table cannot or should not be read, whatever the costs; empty if it may be.
        most_rows: larger tables are not read.
    """

    requested: str
    requested_by: str
    must_ask: str = ""
    most_rows: int = MOST_ROWS


@dataclass(frozen=True)
class AccessDecision:
    """The decision for a lookup join: look up by key, or read the table whole.

    Args:
        reads: True to read the table whole, False to look up by key.
        reason: why, in words that follow "because".
        other_way: the estimated cost of the alternative; empty if unknown.
        reads_after: number of keys after which an executor may switch to reading; None if it must not.
    """

    reads: bool
    reason: str
    other_way: str = ""
    reads_after: int | None = None


# Read only where it is certain: Spark's sizes are bounds from above, so a guess could be wrong by any factor.
# (docs/decisions/0153)
def decide(case: Case, size: Callable[[], TableSize], left: Callable[[], LeftRows]) -> AccessDecision:
    """Choose; ``size`` and ``left`` cost a trip each, and are called only if they can change the result."""
    if case.requested == SCAN:
        return AccessDecision(reads=True, reason=case.requested_by)
    why_ask = "" if case.requested == AUTO else case.requested_by
    why_ask = why_ask or case.must_ask
    return AccessDecision(reads=False, reason=why_ask) if why_ask else _decide_by_price(case, size(), left)


def keys_worth_reading(size: TableSize, most_rows: int) -> int | None:
    """The number of keys after which a lookup switches to reading the table; None for never.

    >>> keys_worth_reading(TableSize(1_000_000, 64_000_000, "pg_class"), 10_000_000)
    350000
    >>> keys_worth_reading(TableSize(100, 6_400, "counted"), 10_000_000)
    10000
    >>> keys_worth_reading(TableSize(None, source="a view"), 10_000_000)
    """
    if size.rows is None or size.rows > most_rows or (size.bytes or 0) > MOST_BYTES:
        return None
    return max(FEWEST_KEYS, math.ceil(KEYS_PER_ROW * size.rows))


def _decide_by_price(case: Case, size: TableSize, left: Callable[[], LeftRows]) -> AccessDecision:
    if size.rows is None:
        return _decide_to_ask(f"the table's rows are not known ({size.source})")
    reading = f"reading brings {size_text(size)}"
    if size.rows > case.most_rows:
        return _decide_to_ask(f"a table of more than {counted(case.most_rows, 'row')} is not read", reading)
    told = left()
    if told.rows is None:
        return _decide_to_ask(f"the rows on the left are {told.source}", reading)
    on_left = f"{counted(told.rows, 'row')} or more on the left ({told.source})"
    if told.rows < FEWEST_KEYS:
        return _decide_to_ask(f"{on_left} are few", reading)
    if told.rows > LEFT_ROWS_PER_ROW * size.rows:
        if told.keys is not None and told.keys < KEYS_PER_ROW * size.rows:
            few = f"at most {told.keys:,} different keys on the left ({told.source})"
            return _decide_to_ask(f"{few} are fewer than {KEYS_PER_ROW:g} for each row of the table", reading)
        asking = f"asking takes a key for each of {on_left}, fewer where keys repeat"
        reason = f"there are {on_left}, more than {LEFT_ROWS_PER_ROW:g} for each of {size_text(size)}"
        return AccessDecision(reads=True, reason=reason, other_way=asking)
    return _decide_to_ask(
        f"{on_left} are not more than {LEFT_ROWS_PER_ROW:g} for each row of the table", reading
    )


def _decide_to_ask(reason: str, other_way: str = "") -> AccessDecision:
    return AccessDecision(reads=False, reason=reason, other_way=other_way)


def size_text(size: TableSize) -> str:
    """The size of a table, as EXPLAIN shows it.

    >>> size_text(TableSize(1_000_000, 68_000_000, "pg_class"))
    'about 1,000,000 rows, 68.0 MB (pg_class)'
    """
    rows = f"{'' if size.exact else 'about '}{counted(size.rows or 0, 'row')}"
    room = "" if size.bytes is None else f", {size.bytes / 1e6:,.1f} MB"
    return f"{rows}{room} ({size.source})"


# --- what is decided of a statement -----------------------------------------------------------------


@dataclass(frozen=True)
class Decisions:
    """What earlier rounds of planning have settled.

    Args:
        looked_through: derived tables, CTEs and views that count as uses of the table inside them.
        read: the uses whose tables are read whole, and why.
        chosen: of ``read``, the uses that could be looked up by key as well.
        unlisted: of ``read``, the uses that must not become a lookup of listed constants either.
    """

    looked_through: tuple[TableUse, ...] = ()
    read: Mapping[TableUse, AccessDecision] = field(default_factory=dict)
    chosen: frozenset[TableUse] = frozenset()
    unlisted: frozenset[TableUse] = frozenset()

    def reading(self, decisions: Mapping[TableUse, AccessDecision]) -> Decisions:
        """A copy that also reads the uses in ``decisions``, which cannot be looked up or are better read."""
        return replace(self, read={**self.read, **decisions})

    def choosing(self, decisions: Mapping[TableUse, AccessDecision]) -> Decisions:
        """It with uses that are better read: of queries that are seen through, the same relation is."""
        settled = self.reading(decisions).without_list(decisions).without_look_through(decisions)
        return replace(settled, chosen=self.chosen.union(decisions))

    def without_list(self, uses: Collection[TableUse]) -> Decisions:
        return replace(self, unlisted=self.unlisted.union(uses))

    def without_look_through(self, uses: Collection[TableUse]) -> Decisions:
        """It where ``uses`` are ordinary relations; the tables inside them are uses of their own."""
        return replace(self, looked_through=tuple(use for use in self.looked_through if use not in uses))
