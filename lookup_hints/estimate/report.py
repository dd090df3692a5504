"""The estimate of a statement as a value that shows itself: as text, and in a notebook as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_hints.errors import Problem, QueryError, counted
from lookup_hints.estimate.figures import UNKNOWN, Figure, Money
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.readable_summary import seconds_text
from lookup_hints.metrics.tables import html_table


@dataclass(frozen=True)
class EstimateOptions:
    """How an estimate is made.

    Args:
        sample: the share of keys that are counted; None counts all.
        ask: how many keys of a lookup are looked up, where the keys of others come from its rows; None: none.

    Raises:
        QueryError: ``sample`` is no share, or ``ask`` no number of keys.
    """

    sample: float | None = None
    ask: int | None = None

    def __post_init__(self) -> None:
        if self.sample is not None and not 0 < self.sample <= 1:
            tip = "Write sample=0.01, or --sample 1%."
            raise QueryError(
                Problem(f"A sample is a share above 0 and at most 1, not {self.sample:g}.", tip=tip)
            )
        if self.ask is not None and self.ask < 1:
            tip = "Write ask=100, or --ask 100."
            raise QueryError(Problem(f"At least one key is looked up, not {self.ask}.", tip=tip))


@dataclass(frozen=True)
class LookupEstimate:
    """What one lookup join will do.

    Args:
        name: the lookup.
        rows: left rows that reach it; None: unknown.
        keys: distinct keys, as tasks tell them apart: each counts once per window; None: unknown.
        requests: requests for them; None: unknown.
        seconds: how long these take; None: unknown.
        money: what they and the rows found cost, by the prices of the table; None without a price.
        cached: what is known of keys that a cache answers; empty without a cache.
        notes: why a figure is a range, or unknown.
        max_requests: ``lookup.max-requests`` in force.
    """

    name: LookupName
    rows: Figure | None
    keys: Figure | None
    requests: Figure | None
    seconds: Figure | None = None
    money: Money | None = None
    cached: str = ""
    notes: tuple[str, ...] = ()
    max_requests: int | None = None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Name and text of each figure."""
        yield "left rows", figure_text(self.rows)
        yield "keys", figure_text(self.keys)
        if self.cached:
            yield "cached", self.cached
        limit = "" if self.max_requests is None else f"; 'lookup.max-requests' = {self.max_requests:,}"
        yield "requests", figure_text(self.requests) + limit
        yield "time", _duration_text(self.seconds)
        if self.money is not None:
            yield "price", money_text(self.money)
        yield from (("note", note) for note in self.notes)


@dataclass(frozen=True)
class ReadEstimate:
    """A table that is read whole, in place of lookups.

    Args:
        table: the table.
        rows: how many rows it has, as text.
        reason: why it is read.
    """

    table: str
    rows: str
    reason: str


@dataclass(frozen=True, repr=False)
class StatementEstimate:
    """What the lookups of a statement will cost. Its text has a paragraph for each.

    Args:
        lookups: the lookup joins, in the order of the text.
        reads: the tables that are read whole.
        ran: what was run to know it.
    """

    lookups: tuple[LookupEstimate, ...]
    reads: tuple[ReadEstimate, ...] = ()
    ran: str = ""

    def __str__(self) -> str:
        parts = [
            "\n".join([f"({number}) {each.name}", *_aligned_facts([*each.facts()])])
            for number, each in enumerate(self.lookups, 1)
        ]
        parts += [
            f"Whole table {each.table} is read, as {each.reason}\n    rows  {each.rows}"
            for each in self.reads
        ]
        return "\n\n".join([*filter(None, [self.ran]), *parts]) or "This statement has no lookup join."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        titles = ["lookup", "left rows", "keys", "cached", "requests", "time", "price"]
        rows = [
            [str(each.name), *(dict(each.facts()).get(title, "") for title in titles[1:])]
            for each in self.lookups
        ]
        return html_table(titles, rows, [False, *[True] * 6])


def figure_text(figure: Figure | None) -> str:
    """A count for a reader.

    >>> figure_text(Figure.exactly(1234)), figure_text(Figure(10, 20, 15)), figure_text(Figure(0, 500))
    ('1,234', 'about 15 (10 to 20)', 'UNKNOWN, at most 500')
    """
    if figure is None:
        return UNKNOWN
    if figure.most is None:
        return f"{UNKNOWN}, at least {figure.least:,.0f}" if figure.least else UNKNOWN
    if figure.is_exact:
        return f"{figure.most:,.0f}"
    if figure.likely is not None:
        return f"about {figure.likely:,.0f} ({figure.least:,.0f} to {figure.most:,.0f})"
    return (
        f"{figure.least:,.0f} to {figure.most:,.0f}"
        if figure.least
        else f"{UNKNOWN}, at most {figure.most:,.0f}"
    )


def _duration_text(figure: Figure | None) -> str:
    if figure is None:
        return f"{UNKNOWN}: no rate limit, and no earlier lookup of this session was timed"
    least = seconds_text(figure.least)
    if figure.most is None:
        return f"{UNKNOWN}, at least {least}" if figure.least else UNKNOWN
    return least if figure.is_exact else f"{least} to {seconds_text(figure.most)}"


def money_text(money: Money) -> str:
    """An amount for a reader, in the unit of the table's prices."""
    if money.most is None:
        return f"{UNKNOWN}, at least {money.least:,f}"
    return f"{money.most:,f}" if money.least == money.most else f"{money.least:,f} to {money.most:,f}"


def _aligned_facts(facts: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in facts)
    return [f"    {name:<{width}}  {text}" for name, text in facts]


def admission_problem(table: str, requests: Figure, limit: int) -> str:
    """Why requests should not begin: they are more than the limit; empty where they may be fewer.

    >>> admission_problem("customers", Figure(1200, 2000), 1000)
    "table customers: the estimate is 1,200 to 2,000 requests, and 'lookup.max-requests' is 1,000"
    """
    if requests.least <= limit:
        return ""
    shown = (
        counted(int(requests.least), "request") if requests.is_exact else f"{figure_text(requests)} requests"
    )
    return f"table {table}: the estimate is {shown}, and 'lookup.max-requests' is {limit:,}"
