"""What is known of the other uses of a statement while it is said which form of join one has."""

from __future__ import annotations

from dataclasses import dataclass, field

from lookup_hints.plan.facts import Facts
from lookup_hints.plan.read.structure import Block, Relation


@dataclass
class Others:
    """The other uses.

    Args:
        read: relations that are lookup tables and are read whole.
        asked_through: derived tables, CTEs and views that are asked by key, as far as that is known.
        waiting: relations that wait for keys of their own, and can give none yet.
        tied: for each block the relations that can give no keys, once that is asked.
    """

    read: set[Relation]
    asked_through: set[Relation] = field(default_factory=set)
    waiting: set[Relation] = field(default_factory=set)
    tied: dict[Block, set[Relation]] = field(default_factory=dict)

    def may_be_asked(self, facts: Facts, relation: Relation) -> bool:
        """Whether the relation is a lookup table that is not sure to be read, or one seen through a query."""
        is_table = facts.statement.table_of(relation) is not None
        return relation in self.asked_through or (is_table and relation not in self.read)
