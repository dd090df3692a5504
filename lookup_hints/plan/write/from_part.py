"""Part of a FROM that is written again, and what it asks of the lookup joins that are views in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.read.structure import Chain, Relation, Step
from lookup_hints.sql.splice import Fragment


@dataclass(frozen=True)
class Visible:
    """A relation that the block's expressions can name, and by which alias."""

    relation: Relation
    alias: str


@dataclass(eq=False)
class FromPart:
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
        return bool(self.views or self.filters)

    @property
    def asked(self) -> list[LookupJoin]:
        """The lookup joins that are still to be appended, in the order of the text."""
        return sorted([*self.views, *self.filters], key=lambda join: join.use.index)

    @property
    def relations(self) -> list[Relation]:
        return [visible.relation for visible in self.visible]

    def shows(self, relation: Relation) -> bool:
        return any(visible.relation is relation for visible in self.visible)


def using_in(chain: Chain) -> Iterator[Step]:
    """The joins by USING or NATURAL of a chain, whose relations can be named behind it."""
    for relation in chain.direct_shown:
        if relation.open_chain is not None:
            yield from using_in(relation.open_chain)
    yield from (step for step in chain.steps if step.using or "NATURAL" in step.words)


class FromForm(Form):
    """A form whose relation gives way to a view behind what it is joined with."""

    waits: ClassVar[bool] = False
    """Whether its relation, a chain by itself, is written behind the chains that it ``needs``."""

    def opens(self, join: FoundJoin) -> Step | None:
        """Where its relation begins a chain: the join whose right side is written first; None for others."""
        return None

    def stays_in(self, join: FoundJoin, chain: Chain) -> bool:
        """Whether its view can stand where the join does, in ``chain``, if nothing else must move."""
        return False

    @abstractmethod
    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        """``built``, which gives its keys, with it appended; it is called ``own``."""


def form_of(join: FoundJoin) -> FromForm:
    """The form of a join that is a view in FROM."""
    assert isinstance(join.form, FromForm), "it has a view"
    return join.form
