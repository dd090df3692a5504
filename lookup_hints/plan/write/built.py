"""Part of a FROM that is written again: its text, what it shows, and what is still to be appended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.read.structure import Chain, Relation, Step
from lookup_hints.sql.splice import Fragment


@dataclass(frozen=True)
class Visible:
    """A relation that the block's expressions can name, and by which alias."""

    relation: Relation
    alias: str


@dataclass(eq=False)
class Built:
    """Part of a FROM written again.

    Args:
        parts: its text.
        visible: the relations that it shows, in the user's order.
        views: lookup joins that are still to be appended to it.
        filters: lookup joins that are conditions on its rows, still to be appended to it, too.
        reordered: whether the text shows the relations in another order than ``visible``.
        hidden: private columns that it has beside.
        using: its ordinary joins by USING or NATURAL: packed, they must not be joins any more.
        first: index of its first piece.
        open_ended: whether it holds a LATERAL relation, which may name what stands before it.
    """

    parts: list[Fragment]
    visible: list[Visible]
    views: list[LookupJoin] = field(default_factory=list)
    filters: list[LookupJoin] = field(default_factory=list)
    reordered: bool = False
    hidden: list[str] = field(default_factory=list)
    using: list[Step] = field(default_factory=list)
    first: int = -1
    open_ended: bool = False

    def behind_comma(self) -> list[Fragment]:
        """Its text as it stands behind a comma.

        What gives private columns their names back is a projection over all before it, the comma included,
        and Spark reorders no joins across one: parentheses keep it to its own.
        """
        return ["(", *self.parts, ")"] if self.hidden and not self.open_ended else self.parts

    @property
    def must_be_packed(self) -> bool:
        """Whether its lookup joins leave conditions that can only be checked inside."""
        return bool(self.filters) or any(join.conditions.after for join in self.views)

    @property
    def is_open(self) -> bool:
        """Whether lookup joins are still to be appended to it."""
        return bool(self.views or self.filters)

    @property
    def asked(self) -> list[LookupJoin]:
        """The lookup joins that are still to be appended, in the order of the text."""
        return sorted([*self.views, *self.filters], key=lambda join: join.use.index)

    @property
    def relations(self) -> list[Relation]:
        """The relations that it shows."""
        return [visible.relation for visible in self.visible]

    def shows(self, relation: Relation) -> bool:
        """Whether it shows ``relation``."""
        return any(visible.relation is relation for visible in self.visible)


def using_in(chain: Chain) -> Iterator[Step]:
    """The joins by USING or NATURAL of a chain, whose relations can be named behind it."""
    for relation in chain.direct_shown:
        if relation.open_chain is not None:
            yield from using_in(relation.open_chain)
    yield from (step for step in chain.steps if step.using or "NATURAL" in step.words)
