"""What is settled of the uses of a statement, and why. What is read stays read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from lookup_hints.plan.access import AccessDecision
from lookup_hints.plan.read.statement import LookupUse


@dataclass(frozen=True)
class Decisions:
    """What is settled.

    Args:
        looked_through: derived tables, CTEs and views that count as uses of the table inside them.
        read: the uses whose tables are read whole, and why.
        chosen: those of them that could be asked as well.
        unlisted: those of them for which no list of constants is asked either.
    """

    looked_through: tuple[LookupUse, ...] = ()
    read: Mapping[LookupUse, AccessDecision] = field(default_factory=dict)
    chosen: frozenset[LookupUse] = frozenset()
    unlisted: frozenset[LookupUse] = frozenset()

    def reading(self, decisions: Mapping[LookupUse, AccessDecision]) -> Decisions:
        """It with uses that cannot be asked."""
        return replace(self, read={**self.read, **decisions})

    def choosing(self, decisions: Mapping[LookupUse, AccessDecision]) -> Decisions:
        """It with uses that are better read: of queries that are seen through, the same relation is."""
        settled = self.reading(decisions).without_list(decisions).without_look_through(decisions)
        return replace(settled, chosen=self.chosen.union(decisions))

    def without_list(self, uses: Collection[LookupUse]) -> Decisions:
        """It with no list of constants asked for ``uses``."""
        return replace(self, unlisted=self.unlisted.union(uses))

    def without_look_through(self, uses: Collection[LookupUse]) -> Decisions:
        """It where ``uses`` are ordinary relations; the tables inside them are uses of their own."""
        return replace(self, looked_through=tuple(use for use in self.looked_through if use not in uses))
