"""What the FROM of a block asks of the lookup joins that are views in it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from lookup_hints.plan.draft import LookupJoin
from lookup_hints.plan.read.structure import Chain, Step
from lookup_hints.plan.write.built import Built, Visible


class FromJoin(LookupJoin):
    """A lookup join whose relation gives way to a view behind what it is joined with."""

    waits: ClassVar[bool] = False
    """Whether its relation, a chain by itself, is written behind the chains that it ``needs``."""

    @property
    def opens(self) -> Step | None:
        """Where its relation begins a chain: the join whose right side is written first; None for others."""
        return None

    def stays_in(self, chain: Chain) -> bool:
        """Whether its view can stand where the join does, in ``chain``, if nothing else must move."""
        return False

    @abstractmethod
    def behind(self, built: Built, own: Visible) -> Built:
        """``built``, which gives its keys, with it appended; it is called ``own``."""
