"""What the FROM of a block asks of the lookup joins that are views in it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.read.structure import Chain, Step
from lookup_hints.plan.write.built import Built, Visible


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
    def behind(self, join: LookupJoin, built: Built, own: Visible) -> Built:
        """``built``, which gives its keys, with it appended; it is called ``own``."""


def form_of(join: FoundJoin) -> FromForm:
    """The form of a join that is a view in FROM."""
    assert isinstance(join.form, FromForm), "it has a view"
    return join.form
