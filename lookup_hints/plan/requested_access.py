"""What the user says of a use of a lookup table: ask it, read it, or what is cheaper."""

from __future__ import annotations

from lookup_hints.plan.choose import options_of_table
from lookup_hints.plan.draft import Draft
from lookup_hints.plan.hinted import hint_of
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.times import versions_wanted
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.options import InForce, Place, in_force

_OPTIONS = {option.key: option for option in LOOKUP_OPTIONS}

LOOKUP, SCAN, AUTO = "lookup", "scan", "auto"


def value_of(key: str, draft: Draft, use: LookupUse) -> InForce:
    """The value in force of a lookup option for ``use``.

    Raises:
        OptionError: the table or the session gives a bad value.
    """
    hint = hint_of(draft, use)
    given = {Place.HINT: {} if hint is None else hint.options, Place.TABLE: options_of_table(use.table)}
    return in_force(_OPTIONS[key], draft.context.conf, given)


def requested_access(draft: Draft, use: LookupUse) -> InForce:
    """``lookup``, ``scan`` or ``auto``: a LOOKUP hint that says nothing of it wants a lookup."""
    requested = value_of("access", draft, use)
    if requested.value is not None:
        return requested
    is_hinted = hint_of(draft, use) is not None
    return InForce(LOOKUP, Place.HINT) if is_hinted else InForce(AUTO)


def must_be_asked(draft: Draft, use: LookupUse) -> bool:
    """Whether reading it would be against what is said of this use or its table; the session only prefers."""
    requested = requested_access(draft, use)
    return requested.value == LOOKUP and requested.source is not Place.SESSION


def can_be_read(connector: Connector, use: LookupUse) -> bool:
    """Whether the connector gives all rows, and no moment chooses among them."""
    return isinstance(connector, Scan) and versions_wanted(use) is None
