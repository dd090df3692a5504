"""The order in which Spark gives the columns of joins by USING and NATURAL.

A star that is written again must keep it. The rules are those of Spark's ``ResolveNaturalAndUsingJoin``
(the shared columns of the left side come first, those of the right side need a qualifier) and of its
``UnresolvedStar`` (``c.*`` gives the columns of ``c`` that need a qualifier before all others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lookup_hints.plan.read.structure import Block, Chain, Relation, Step


@dataclass(frozen=True)
class Owned:
    """A column and the relation that it is from; None for one that a FULL JOIN makes of two."""

    relation: Relation | None
    name: str

    def is_called(self, name: str) -> bool:
        """Whether this is its name, ignoring case."""
        return self.name.lower() == name.lower()


@dataclass(frozen=True)
class Columns:
    """The columns of some joined relations: those that ``*`` shows, and those that need a qualifier."""

    shown: tuple[Owned, ...] = ()
    qualified: tuple[Owned, ...] = ()

    def beside(self, right: Columns) -> Columns:
        """Both, one after the other."""
        return Columns(self.shown + right.shown, self.qualified + right.qualified)

    def found(self, names: Sequence[str]) -> tuple[Owned, ...]:
        """The first shown column of each of ``names``; one that none has belongs to no relation known."""
        return tuple(
            next((each for each in self.shown if each.is_called(name)), Owned(None, name)) for name in names
        )

    def without(self, some: Sequence[Owned]) -> tuple[Owned, ...]:
        """The shown columns but ``some``."""
        return tuple(each for each in self.shown if each not in some)


@dataclass
class SharedOrder:
    """The columns of a block's FROM in Spark's order.

    Args:
        block: the block.
        columns_of: the names of a relation's columns, as far as they are known.
        given: the shared columns of a join, where they are known without looking at its sides.
        names: the shared columns of each join by USING or NATURAL.
    """

    block: Block
    columns_of: Callable[[Relation], Sequence[str]]
    given: Callable[[Step], Sequence[str]]
    names: dict[Step, tuple[str, ...]] = field(default_factory=dict)
    _shared: set[Owned] = field(default_factory=set)

    def __post_init__(self) -> None:
        columns = Columns()
        for chain in self.block.source.chains if self.block.source is not None else ():
            columns = columns.beside(self._of_chain(chain))
        for pipe in self.block.pipes:
            if pipe.join is not None:
                columns = self._joined(columns, pipe.join)
        self._columns = columns

    def first_of(self, relation: Relation) -> tuple[str, ...]:
        """The shared columns of ``relation``, which come first in its star, in their order there."""
        return tuple(
            each.name
            for each in (*self._columns.qualified, *self._columns.shown)
            if each.relation is relation and each in self._shared
        )

    def _of_chain(self, chain: Chain) -> Columns:
        columns = self._of_relation(chain.head)
        for step in chain.steps:
            columns = self._joined(columns, step)
        return columns

    def _of_relation(self, relation: Relation) -> Columns:
        if relation.open_chain is not None:
            return self._of_chain(relation.open_chain)
        return Columns(tuple(Owned(relation, name) for name in self.columns_of(relation)))

    def _joined(self, left: Columns, step: Step) -> Columns:
        if step.right is None:
            return left if step.pivoted is None else self._of_relation(step.pivoted)
        right = self._of_relation(step.right)
        names = self._names_of(step, left, right)
        if not names:
            return left if step.hides_right else left.beside(right)
        self.names[step] = names
        lefts, rights = left.found(names), right.found(names)
        self._shared |= {*lefts, *rights}
        first, hidden = lefts, rights
        if "RIGHT" in step.words:
            first, hidden = rights, lefts
        elif "FULL" in step.words:
            first, hidden = tuple(Owned(None, name) for name in names), lefts + rights
        if step.hides_right:
            return Columns(first + left.without(lefts), left.qualified)
        return Columns(
            first + left.without(lefts) + right.without(rights),
            hidden + left.qualified + right.qualified,
        )

    def _names_of(self, step: Step, left: Columns, right: Columns) -> tuple[str, ...]:
        given = tuple(self.given(step))
        if given or "NATURAL" not in step.words:
            return given
        of_right = {each.name for each in right.shown}
        return tuple(each.name for each in left.shown if each.name in of_right)
