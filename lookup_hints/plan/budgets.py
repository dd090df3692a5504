"""Which tables share a budget, and the limits that they give it together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi import Connector
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.options import Place, options_at, parsed
from lookup_hints.spi.secrets import has_reference

_NAME = "lookup.budget"
CONCURRENCY, RATE = "lookup.max-concurrency", "lookup.rate-limit"


@dataclass(frozen=True)
class BudgetLimit:
    """A limit of a budget, and the table whose WITH clause gives it."""

    value: float
    table: str


def gives_limits(table: LookupTable) -> bool:
    """Whether ``table`` says how much may be asked of its origin, or of its budget."""
    return CONCURRENCY in table.options or RATE in table.options


def limits_of(connector: Connector, others: Iterable[Connector]) -> Mapping[str, BudgetLimit]:
    """The limits of the budget that the requests of ``connector`` count for, by the names of their options.

    Args:
        connector: that of a table.
        others: those of the other tables that may share its budget.

    Raises:
        OptionError: two tables of one budget give it different limits.
    """
    own = _belongs_to(connector)
    sharing = [other for other in others if own is not None and _belongs_to(other) == own]
    tables = {id(each.table): each.table for each in (connector, *sharing)}
    given = {key: _given(key, tables.values()) for key in (CONCURRENCY, RATE)}
    problems = [
        _contradiction(connector.table.options.get(_NAME), key, limits[0], limit)
        for key, limits in given.items()
        for limit in limits
        if limit.value != limits[0].value
    ]
    if problems:
        raise OptionError(problems)
    return {key: limits[0] for key, limits in given.items() if limits}


def shown_owner(connector: Connector) -> str:
    """What the budget of ``connector`` belongs to, for EXPLAIN; shows nothing that a reference stands for."""
    table = connector.table
    name = table.options.get(_NAME)
    if name:
        return name
    secret = {option.key for option in connector.OPTIONS if option.secret} - {"url"}
    is_hidden = any(has_reference(text) for key, text in table.options.items() if key not in secret)
    place = "" if is_hidden or not _origin(connector) else connector.place()
    return f"the origin {place}" if place else f"the origin of {table.name}"


def _belongs_to(connector: Connector) -> tuple[str, str] | None:
    """The name of its budget, or else its origin; None where neither is known here."""
    name = connector.table.options.get(_NAME)
    if name:
        return _NAME, name
    origin = _origin(connector)
    return ("origin", origin) if origin else None


def _origin(connector: Connector) -> str:
    with suppress(Exception):  # somebody's own may fail where references cannot be resolved
        return connector.origin()
    return ""


def _given(key: str, tables: Iterable[LookupTable]) -> list[BudgetLimit]:
    option = options_at(Place.TABLE, LOOKUP_OPTIONS)[key]
    return [
        BudgetLimit(parsed(option, key, table.options[key], owner=f"table {table.name}: "), table.name)
        for table in tables
        if key in table.options
    ]


def _contradiction(name: str | None, key: str, one: BudgetLimit, other: BudgetLimit) -> Problem:
    what = f"have one budget, {name!r}" if name else "ask one origin, and so have one budget"
    places = " and ".join(f"{each.value:g} in WITH of {each.table}" for each in (one, other))
    tip = (
        "one of them another 'lookup.budget'." if name else "each a 'lookup.budget' of its own, to be apart."
    )
    return Problem(
        f"Tables {one.table} and {other.table} {what}, but {key!r} is {places}.",
        tip=f"Give both one value, leave it out of one of them, or give {tip}",
    )
