"""Every use of a lookup table -> the form that it has, or a refusal with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lookup_hints.plan.draft import Draft, LookupJoin, TableScan
from lookup_hints.plan.forms.asked import AskedRelation
from lookup_hints.plan.forms.comma import CommaJoin, is_by_primary_key, without_key
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.join import StepJoin
from lookup_hints.plan.forms.membership import MembershipJoin
from lookup_hints.plan.forms.pipe import PipeJoin
from lookup_hints.plan.forms.swapped import SwappedJoin
from lookup_hints.plan.forms.whole import WholeTable, cannot_be_read, why_read
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.read.structure import Block, Relation
from lookup_hints.plan.refusal import refuse_extra_clauses
from lookup_hints.plan.times import check_time

Find = Callable[[Facts, LookupUse, set[Relation]], LookupJoin | None]
"""The join of a form that a use is, or None.

The relations given wait for keys of their own, and can give none yet.
"""

BY_THEMSELVES: tuple[Find, ...] = (StepJoin.found, PipeJoin.found, MembershipJoin.found)
"""Forms that depend on no other use. The right side of a join has one of them, or is refused."""

BY_THEIR_BLOCK: tuple[tuple[Find, ...], ...] = ((SwappedJoin.found, CommaJoin.found), (AskedRelation.found,))
"""Forms of relations that stand first in their chains, and may give keys to each other.

Only where no use of a block has the first ones, the next are tried.
"""


@dataclass(frozen=True)
class Found:
    """The lookup joins of a statement, and the uses that read the whole table, in the order of the text."""

    joins: tuple[LookupJoin, ...]
    scans: tuple[TableScan, ...]


def find_lookups(draft: Draft) -> Found:
    """What each use of a lookup table is; those that are sure to be read are not asked.

    Raises:
        CannotBeAsked: a lookup table stands where it cannot be asked; says why.
        UnsupportedLookup: neither can it be read.
    """
    facts = Facts(draft)
    joins: list[LookupJoin] = []
    scanned = dict(draft.read)
    heads: dict[Block, list[LookupUse]] = defaultdict(list)
    for use in draft.statement.uses:
        check_time(draft.statement, use)
        join = None if use in scanned else _first(BY_THEMSELVES, facts, use, set())
        if join is not None:
            joins.append(join)
        elif use not in scanned:
            heads[use.block].append(use)
    for uses in heads.values():
        _find_heads(facts, uses, joins, scanned)
    joins.sort(key=lambda join: join.use.index)
    in_order = sorted(scanned, key=lambda use: use.index)
    return Found(tuple(joins), tuple(WholeTable.found(facts, use, scanned[use]) for use in in_order))


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
