"""What is decided about other relations while the form of a use is sought."""

from __future__ import annotations

from dataclasses import dataclass, field

from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement


@dataclass
class OtherUses:
    """What has been decided about the other relations of the statement.

    Args:
        read: lookup tables that are read whole.
        asked_through: derived tables, CTEs and views known to be looked up by key.
        waiting: relations that still lack keys, and so cannot give keys to others yet.
        tied: for each block the relations that can give no keys; filled on demand.
    """

    read: set[Relation]
    asked_through: set[Relation] = field(default_factory=set)
    waiting: set[Relation] = field(default_factory=set)
    tied: dict[Block, set[Relation]] = field(default_factory=dict)

    def may_be_asked(self, statement: Statement, relation: Relation) -> bool:
        """Whether the relation is a lookup table that is not sure to be read, or one seen through a query."""
        is_table = statement.table_of(relation) is not None
        return relation in self.asked_through or (is_table and relation not in self.read)
