"""Every use of a lookup table -> the form that it has, or a refusal with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lookup_hints.plan.analysis import Analysis
from lookup_hints.plan.draft import Context, LookupJoin, TableScan
from lookup_hints.plan.forms.asked import AskedRelation
from lookup_hints.plan.forms.comma import CommaJoin, refuse_products
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.join import StepJoin
from lookup_hints.plan.forms.membership import MembershipJoin
from lookup_hints.plan.forms.pipe import PipeJoin
from lookup_hints.plan.forms.swapped import SwappedJoin
from lookup_hints.plan.forms.whole import WholeTable, can_be_read, cannot_be_read
from lookup_hints.plan.read.statement import LookupUse, Statement
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


def find_lookups(statement: Statement, context: Context, analysis: Analysis) -> Found:
    """What each use of a lookup table is.

    Raises:
        UnsupportedLookup: a lookup table stands where it can neither be asked nor read; says why.
    """
    facts = Facts(statement, context, analysis)
    joins: list[LookupJoin] = []
    scanned: list[LookupUse] = []
    heads: dict[Block, list[LookupUse]] = defaultdict(list)
    for use in statement.uses:
        check_time(statement, use)
        join = _first(BY_THEMSELVES, facts, use, set())
        if join is not None:
            joins.append(join)
        else:
            heads[use.block].append(use)
    for uses in heads.values():
        _find_heads(facts, uses, joins, scanned)
    joins.sort(key=lambda join: join.use.index)
    scanned.sort(key=lambda use: use.index)
    return Found(tuple(joins), tuple(WholeTable.found(facts, use, context) for use in scanned))


def _find_heads(
    facts: Facts, uses: Iterable[LookupUse], joins: list[LookupJoin], scanned: list[LookupUse]
) -> None:
    """Add to ``joins`` and ``scanned`` what the uses of one block are; those with keys of their own first."""
    pending = list(uses)
    while pending:
        join = _next_join(facts, pending)
        if join is not None:
            pending.remove(join.use)
            joins.append(join)
        else:
            scan = _next_scan(facts, pending, scanned)
            pending.remove(scan)
            scanned.append(scan)


def _next_join(facts: Facts, pending: list[LookupUse]) -> LookupJoin | None:
    """The first of ``pending`` that has a form already, as it is; None where none has."""
    for forms in BY_THEIR_BLOCK:
        waiting = {use.relation for use in pending}
        found = (_first(forms, facts, use, waiting) for use in pending)
        join = next((join for join in found if join is not None), None)
        if join is not None:
            return join
    return None


def _next_scan(facts: Facts, pending: list[LookupUse], scanned: list[LookupUse]) -> LookupUse:
    """The first of ``pending``, none of which has a key, that can be read whole."""
    for use in pending:
        if facts.statement.tokens.is_word(use.relation.first, "STREAM", "LATERAL"):
            refuse_extra_clauses(facts.statement, use)
    refuse_products(facts, pending, scanned)
    scan = next((use for use in pending if can_be_read(facts, use)), None)
    if scan is None:
        raise MembershipJoin.why_not(facts, pending[0]) or cannot_be_read(facts, pending[0])
    return scan


def _first(forms: Iterable[Find], facts: Facts, use: LookupUse, waiting: set[Relation]) -> LookupJoin | None:
    """What ``use`` is by the first of ``forms`` that it has."""
    joins = (found(facts, use, waiting) for found in forms)
    return next((join for join in joins if join is not None), None)
