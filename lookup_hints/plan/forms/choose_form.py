"""Every use of a lookup table -> the form of join that it has, or why its table is read whole."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.decide.access import AccessDecision, Decisions
from lookup_hints.plan.decide.asof_and_range_joins import with_order
from lookup_hints.plan.facts_of_lookup_tables import Facts
from lookup_hints.plan.forms.comma_join import comma_join, is_by_primary_key, why_no_key
from lookup_hints.plan.forms.constant_or_correlated import constant_list, constant_or_correlated
from lookup_hints.plan.forms.exists_in import exists_or_in, why_no_anti_join
from lookup_hints.plan.forms.explicit_join import explicit_join, swapped_join
from lookup_hints.plan.forms.other_uses import OtherUses
from lookup_hints.plan.joins import FoundJoin
from lookup_hints.plan.parse.lookup_use import OF_LOOKUP_GET
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.table_use import CannotBeAsked, NotReadEither, TableUse
from lookup_hints.spi.connector import why_not_read

BY_THEMSELVES = (explicit_join, exists_or_in)
"""Forms that depend on no other use. The right side of a join has one of them, or is refused."""

Find = Callable[[TableUse, OtherUses], FoundJoin | None]
BY_THEIR_BLOCK: tuple[tuple[Find, ...], ...] = (
    (swapped_join, comma_join),
    (lambda use, _: constant_list(use), lambda use, _: constant_or_correlated(use)),
)
"""Forms of relations that come first in their chains, and may give keys to each other.

Each group is tried only if no use of the block has a form of an earlier group.
"""


@dataclass(frozen=True)
class FoundJoins:
    """The form of each use of a lookup table in a statement.

    Args:
        joins: possible lookup joins, in the order of the text.
        scans: uses whose tables are read whole, in the order of the text, and why.
        settled: the given decisions, plus those made while finding.
        bypassed: uses in derived tables and CTEs that nothing reads any more.
    """

    joins: tuple[FoundJoin, ...]
    scans: Mapping[TableUse, AccessDecision]
    settled: Decisions
    bypassed: tuple[TableUse, ...]


def find_lookups(facts: Facts, settled: Decisions) -> FoundJoins | UnsupportedLookup:
    """Find the form of each use, given the ``settled`` decisions; or return why a use can have none."""
    finder = _Finder(facts, settled)
    uses = _Uses(facts.statement, facts.uses, settled.looked_through)
    try:
        for block in uses.blocks():
            for use in finder.find(block):
                uses.bypass(use)
    except UnsupportedLookup as refusal:
        return refusal
    bypassed = tuple(use for use in facts.uses if uses.is_bypassed(use.block))
    return FoundJoins(
        tuple(sorted(finder.joins, key=lambda join: join.use.index)),
        {use: finder.scans[use] for use in sorted(finder.scans, key=lambda use: use.index)},
        finder.settled,
        (*bypassed, *finder.never_read),
    )


class _Finder:
    """Goes through the uses of a statement, block by block."""

    def __init__(self, facts: Facts, settled: Decisions) -> None:
        self._facts, self.settled = facts, settled
        self._others = OtherUses({use.relation for use in settled.read})
        self.joins: list[FoundJoin] = []
        self.scans: dict[TableUse, AccessDecision] = {}
        self.never_read: list[TableUse] = []
        """The uses in a new view that those who name the view can ask by key, but not read."""

    def find(self, uses: Iterable[TableUse]) -> list[TableUse]:
        """Find the forms of the uses of one block; returns those looked up by key."""
        known, heads = len(self.joins), list[TableUse]()
        for use in uses:
            join = None if use in self.settled.read else self._join_by_itself(use)
            if use in self.settled.read:
                listed = None if use in self.settled.unlisted else constant_list(use)
                if listed is None:
                    self.scans[use] = self.settled.read[use]
                else:
                    self.joins.append(with_order(listed))
            elif join is not None:
                self.joins.append(join)
                self._others.asked_through.update({use.relation} if use.through is not None else ())
            elif use.step is None or use.through is None:
                heads.append(use)
        self._find_heads(heads)
        return [join.use for join in self.joins[known:]]

    def _join_by_itself(self, use: TableUse) -> FoundJoin | None:
        """The join that the use is regardless of other uses; if it cannot be one, settle that it is read.

        A use seen through a query is refused only if a hint names it; else it stays an ordinary relation.
        """
        outcome = self._facts.once(_by_itself, use)
        if not isinstance(outcome, UnsupportedLookup):
            return outcome
        if use.through is not None and not isinstance(outcome, NotReadEither):
            if use.must_be_asked or use.is_named:
                raise outcome
            return None
        if not isinstance(outcome, CannotBeAsked) or not use.may_be_read:
            raise outcome
        self.settled = self.settled.reading({use: AccessDecision(reads=True, reason=outcome.reason)})
        self._others.read.add(use.relation)
        return None

    def _find_heads(self, pending: list[TableUse]) -> None:
        """Find the forms of uses that come first in their chains; those with their own keys first."""
        while pending:
            join = self._next_join(pending)
            if join is not None:
                pending.remove(join.use)
                self.joins.append(with_order(join))
            elif seen := [use for use in pending if use.through is not None]:
                pending.remove(seen[0])  # an ordinary relation: the table inside it is another use
            elif self._facts.makes_view_of_one_table and not pending[0].can_be_read:
                self.never_read.append(pending.pop(0))
            else:
                scan, reason = self._next_scan(pending)
                pending.remove(scan)
                self.scans[scan] = AccessDecision(reads=True, reason=reason)

    def _next_join(self, pending: list[TableUse]) -> FoundJoin | None:
        """The first of ``pending`` that has a form already; those by part of a primary key last."""
        for forms in BY_THEIR_BLOCK:
            self._others.waiting = {use.relation for use in pending}
            other: FoundJoin | None = None
            for use in pending:
                found = (form(use, self._others) for form in forms)
                join = next((join for join in found if join is not None), None)
                if join is not None and (
                    not use.table.primary_key or is_by_primary_key(use, join.conditions.keys)
                ):
                    return join
                other = other or join
            if other is not None:
                return other
        return None

    def _next_scan(self, pending: list[TableUse]) -> tuple[TableUse, str]:
        """The first of ``pending`` (all without keys) that can be read whole, and the reason."""
        for use in pending:
            if use.statement.tokens.is_word(use.relation.first, "STREAM", "LATERAL"):
                use.refuse_extra_clauses()
        unasked = {error.use: error for error in why_no_key(pending, self.scans, self._others)}
        wanted = {use for use in unasked if use.must_be_asked}
        scan = next((use for use in pending if use not in wanted and use.can_be_read), None)
        if scan is None:
            why_not = next(iter(unasked.values()), None) or why_no_anti_join(pending[0])
            raise why_not or cannot_be_read(pending[0])
        return scan, unasked[scan].reason if scan in unasked else why_read(scan)


def _by_itself(_: Facts, use: TableUse) -> FoundJoin | UnsupportedLookup | None:
    """The form of the use regardless of other uses, or why it is refused; None if it has no such form."""
    try:
        found = (form(use) for form in BY_THEMSELVES)
        join = next((join for join in found if join is not None), None)
        return None if join is None else with_order(join)
    except UnsupportedLookup as refusal:
        return refusal


# --- which uses count -------------------------------------------------------------------------------


class _Uses:
    """The uses of a statement, block by block: those that read a block before those in it."""

    def __init__(self, statement: Statement, uses: Sequence[TableUse], through: Sequence[TableUse]) -> None:
        self._by_block: dict[Block, list[TableUse]] = defaultdict(list)
        for use in (*uses, *through):
            self._by_block[use.block].append(use)
        self._structure, self._sees_through = statement.structure, bool(through)
        self._waiting = {use.relation for use in through}
        self._bypassed = set[Relation]()

    def blocks(self) -> Iterator[list[TableUse]]:
        """The uses of each block that count, in the order of the text.

        The next block depends on which relations of those before were bypassed.
        """
        blocks = deque(self._by_block)
        while blocks:
            block = blocks.popleft()
            if any(each in self._waiting for each in self._relations_reading(block)):
                blocks.append(block)
                continue
            here = self._by_block[block]
            self._waiting -= {use.relation for use in here}
            if self.is_bypassed(block):
                self._bypassed.update(use.relation for use in here)
            else:
                yield sorted(here, key=lambda use: use.index)

    def bypass(self, use: TableUse) -> None:
        """Record that ``use`` is looked up by key, so the query that it is seen through is not read there."""
        self._bypassed.add(use.relation)

    def is_bypassed(self, block: Block) -> bool:
        """Whether every reader of the block looks up the table behind it by key instead."""
        readers = self._relations_reading(block)
        return bool(readers) and all(each in self._bypassed for each in readers)

    def _relations_reading(self, block: Block) -> list[Relation]:
        found = self._structure.readers_of(block.query) if self._sees_through else ()
        return [relation for _, relation in found]


# --- tables read whole ------------------------------------------------------------------------------


_NEEDS_LEFT = {
    "ASOF": "an ASOF JOIN",
    "SEMI": "a SEMI JOIN",
    "ANTI": "an ANTI JOIN",
    "LEFT": "a LEFT JOIN",
    "FULL": "a FULL JOIN",
}


def why_read(use: TableUse) -> str:
    """Why a table that comes first in its FROM, or first in a chain of joins there, is read."""
    step = use.chain.steps[0] if use.chain is not None and use.chain.steps else None
    if step is None:
        return "no equality gives its key"
    if step.right is not None and (use.statement.alias_of(step.right) or "").startswith(OF_LOOKUP_GET):
        return "a lookup_get in ON has its columns as key"
    kind = next((word for word in _NEEDS_LEFT if word in step.words), None)
    if kind is not None:
        return f"{_NEEDS_LEFT[kind]} needs every row of its left side"
    is_shared = step.using or "NATURAL" in step.words
    return "the sides of USING and NATURAL stay in their order" if is_shared else "no equality gives its key"


def cannot_be_read(use: TableUse) -> UnsupportedLookup:
    """The error of a table that would have to be read, and cannot be."""
    statement, table = use.statement, use.table
    if use.versions is not None:
        return NotReadEither(
            Problem(
                f"FOR SYSTEM_TIME AS OF chooses among the rows of a key of {table.name}, and no equality"
                " gives one.",
                statement.span(statement.tokens.cut(use.index, use.index)),
                "Put it on the right side of a JOIN with an equality.",
            )
        )
    return UnsupportedLookup(
        Problem(
            f"{table.name} cannot be read whole: {why_not_read(use.connector)}.",
            statement.span(statement.tokens.cut(use.index, use.index)),
            "Put it on the right side of a JOIN with an equality.",
        )
    )
