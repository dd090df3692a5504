"""Every use of a lookup table -> the form that it has, or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.draft import Draft, LookupJoin, TableScan
from lookup_hints.plan.forms.asked import AskedRelation
from lookup_hints.plan.forms.comma import CommaJoin, is_by_primary_key, without_key
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.join import StepJoin
from lookup_hints.plan.forms.listed import ListedRelation
from lookup_hints.plan.forms.membership import MembershipJoin
from lookup_hints.plan.forms.pipe import PipeJoin
from lookup_hints.plan.forms.swapped import SwappedJoin
from lookup_hints.plan.forms.uses import Uses
from lookup_hints.plan.forms.whole import WholeTable, cannot_be_read, why_read
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.read.structure import Relation
from lookup_hints.plan.refusal import refuse_extra_clauses

Find = Callable[[Facts, LookupUse, set[Relation]], LookupJoin | None]
"""The join of a form that a use is, or None.

The relations given wait for keys of their own, and can give none yet.
"""

BY_THEMSELVES: tuple[Find, ...] = (StepJoin.found, PipeJoin.found, MembershipJoin.found)
"""Forms that depend on no other use. The right side of a join has one of them, or is refused."""

BY_THEIR_BLOCK: tuple[tuple[Find, ...], ...] = (
    (SwappedJoin.found, CommaJoin.found),
    (ListedRelation.found, AskedRelation.found),
)
"""Forms of relations that stand first in their chains, and may give keys to each other.

Only where no use of a block has the first ones, the next are tried.
"""


@dataclass(frozen=True)
class FoundJoins:
    """The lookup joins of a statement, and the uses that read the whole table, in the order of the text."""

    joins: tuple[LookupJoin, ...]
    scans: tuple[TableScan, ...]
    bypassed: tuple[LookupUse, ...] = ()
    """Uses in derived tables and CTEs of which nobody reads the rows."""


def find_lookups(draft: Draft) -> FoundJoins:
    """What each use of a lookup table is; those that are sure to be read are not asked.

    Raises:
        CannotBeAsked: a lookup table stands where it cannot be asked; says why.
        UnsupportedLookup: neither can it be read.
    """
    facts = Facts(draft)
    joins: list[LookupJoin] = []
    scanned: dict[LookupUse, str] = {}
    uses = Uses(draft.statement, draft.statement.uses, draft.looked_through)
    for block in uses.blocks():
        found = len(joins)
        _find_in_block(facts, block, joins, scanned, draft.read)
        for join in joins[found:]:
            uses.bypass(join.use)
    joins.sort(key=lambda join: join.use.index)
    in_order = sorted(scanned, key=lambda use: use.index)
    bypassed = tuple(use for use in draft.statement.uses if uses.is_bypassed(use.block))
    scans = tuple(WholeTable.found(facts, use, scanned[use]) for use in in_order)
    return FoundJoins(tuple(joins), scans, (*bypassed, *facts.never_read))


def _find_in_block(
    facts: Facts,
    uses: Iterable[LookupUse],
    joins: list[LookupJoin],
    scanned: dict[LookupUse, str],
    read: Mapping[LookupUse, str],
) -> None:
    """Add to ``joins`` and ``scanned`` what the uses of one block are."""
    heads: list[LookupUse] = []
    for use in uses:
        if use in read:
            listed = ListedRelation.found(facts, use, set())
            joins.extend([listed] if listed is not None else [])
            scanned.update({use: read[use]} if listed is None else {})
            continue
        join = _by_itself(facts, use)
        if join is not None:
            joins.append(join)
            facts.asked_through.update({use.relation} if use.through is not None else ())
        elif use.step is None or use.through is None:
            heads.append(use)
    _find_heads(facts, heads, joins, scanned)


def _by_itself(facts: Facts, use: LookupUse) -> LookupJoin | None:
    """The join that the use is whatever the others are.

    What is seen through a query is not refused, but where a hint names it: it is an ordinary relation then.
    """
    try:
        return _first(BY_THEMSELVES, facts, use, set())
    except UnsupportedLookup:
        if use.through is None or facts.must_be_asked(use):
            raise
        return None


def _find_heads(
    facts: Facts, uses: Iterable[LookupUse], joins: list[LookupJoin], scanned: dict[LookupUse, str]
) -> None:
    """Add to ``joins`` and ``scanned`` what the uses of one block are; those with keys of their own first."""
    pending = list(uses)
    while pending:
        join = _next_join(facts, pending)
        if join is not None:
            pending.remove(join.use)
            joins.append(join)
        elif seen := [use for use in pending if use.through is not None]:
            pending.remove(seen[0])  # an ordinary relation: the table inside it is another use
        elif facts.makes_view and not facts.can_be_read(pending[0]):
            facts.never_read.append(pending.pop(0))
        else:
            scan, reason = _next_scan(facts, pending, scanned)
            pending.remove(scan)
            scanned[scan] = reason


def _next_join(facts: Facts, pending: list[LookupUse]) -> LookupJoin | None:
    """The first of ``pending`` that has a form already, as it is; those by part of a primary key last."""
    for forms in BY_THEIR_BLOCK:
        waiting = {use.relation for use in pending}
        other: LookupJoin | None = None
        for use in pending:
            join = _first(forms, facts, use, waiting)
            if join is not None and _is_as_good_as_any(join):
                return join
            other = other or join
        if other is not None:
            return other
    return None


def _is_as_good_as_any(join: LookupJoin) -> bool:
    """Whether it is asked by the primary key, or none is declared."""
    return not join.use.table.primary_key or is_by_primary_key(join.use, join.conditions.keys)


def _next_scan(facts: Facts, pending: list[LookupUse], scanned: Iterable[LookupUse]) -> tuple[LookupUse, str]:
    """The first of ``pending``, none of which has a key, that can be read whole, and why it is."""
    for use in pending:
        if facts.statement.tokens.is_word(use.relation.first, "STREAM", "LATERAL"):
            refuse_extra_clauses(facts.statement, use)
    unasked = {error.use: error for error in without_key(facts, pending, scanned)}
    wanted = {use for use in unasked if facts.must_be_asked(use)}
    scan = next((use for use in pending if use not in wanted and facts.can_be_read(use)), None)
    if scan is None:
        why_not = next(iter(unasked.values()), None) or MembershipJoin.why_not(facts, pending[0])
        raise why_not or cannot_be_read(facts, pending[0])
    return scan, unasked[scan].reason if scan in unasked else why_read(scan)


def _first(forms: Iterable[Find], facts: Facts, use: LookupUse, waiting: set[Relation]) -> LookupJoin | None:
    """What ``use`` is by the first of ``forms`` that it has."""
    joins = (found(facts, use, waiting) for found in forms)
    return next((join for join in joins if join is not None), None)
