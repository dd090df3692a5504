"""Rewritten parts of a FROM, the state of the rewrite, and its interface to the lookup joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Step
from lookup_hints.plan.spark_analysis import Analysis, alias_text
from lookup_hints.plan.write.lateral_view import Text, lateral_view
from lookup_hints.plan.write.using_and_stars import Merged
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Fragment


@dataclass(frozen=True)
class Visible:
    """A relation that the block's expressions can name, and by which alias."""

    relation: Relation
    alias: str


@dataclass(frozen=True)
class Concealed:
    """A packed relation with hidden columns, which its star leaves out.

    Args:
        relation: the relation.
        alias: its alias, as written.
        private: the private name of each hidden column.
        own: the pieces, from first to last index, in which they still have their own names.
    """

    relation: Relation
    alias: str
    private: Mapping[str, str]
    own: tuple[int, int]

    @property
    def qualified(self) -> list[str]:
        """The private names behind the alias."""
        return [f"{self.alias}.{private}" for private in self.private.values()]


@dataclass(eq=False)
class FromPart:
    """Part of a FROM written again.

    Args:
        parts: its text.
        visible: the relations that it exposes, in the user's order.
        views: lookup joins to be appended to it.
        filters: lookup joins that are conditions on its rows, also to be appended.
        reordered: whether the text shows the relations in another order than ``visible``.
        hidden: its additional private columns.
        using: its ordinary joins by USING or NATURAL, which need rewriting once packed.
        first: index of its first piece.
        open_ended: whether it holds a LATERAL relation, which may refer to relations before it.
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
        """Its text for use after a comma.

        Giving private columns their names back is a projection over everything before it, even across the
        comma, and Spark does not reorder joins across one. Parentheses confine it, except around a LATERAL
        relation, which may refer to relations before it.
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
    """A form whose relation is replaced by a view after the relations it is joined with."""

    waits: ClassVar[bool] = False
    """Whether its relation, a chain by itself, is written behind the chains that it ``needs``."""

    def opens(self, join: FoundJoin) -> Step | None:
        """Where its relation begins a chain: the join whose right side is written first; None for others."""
        return None

    def stays_in(self, join: FoundJoin, chain: Chain) -> bool:
        """Whether its view can replace the join in place in ``chain``, if nothing else must move."""
        return False

    @abstractmethod
    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        """``built``, which gives its keys, with it appended; it is called ``own``."""


def form_of(join: FoundJoin) -> FromForm:
    """The form of a join that is a view in FROM."""
    assert isinstance(join.form, FromForm), "it has a view"
    return join.form


class Rewrite:
    """The joins of a statement, and the state of the edits: private names, hidden and shared columns.

    Attributes:
        numbers: make private names unique.
        hidden: additional private columns of blocks, and of relations in parentheses.
        using: joins by USING left in rewritten relations in parentheses.
        merged: joins by USING of ``block`` whose right side has private columns.
        concealed: relations of ``block`` with hidden columns, packed under private names.
        block: the block being written.
    """

    def __init__(self, analysis: Analysis, joins: Sequence[LookupJoin]) -> None:
        self.analysis, self.statement, self.joins = analysis, analysis.statement, joins
        self.numbers: Iterator[int] = count(1)
        self.hidden: dict[Block | Relation, list[str]] = {}
        self.using: dict[Relation, list[Step]] = {}
        self.merged: list[Merged] = []
        self.concealed: list[Concealed] = []
        self.block: Block | None = None
        self._joins = {join.use.relation: join for join in joins}
        self._views = {join.use.relation: join for join in joins if isinstance(join.form, FromForm)}

    def join_of(self, relation: Relation) -> LookupJoin | None:
        """The lookup join of any form whose table is ``relation``."""
        return self._joins.get(relation)

    def view_of(self, relation: Relation | None) -> LookupJoin | None:
        """The lookup join of ``relation``, where it gives way to a view in FROM."""
        return None if relation is None else self._views.get(relation)

    def views_in(self, chain: Chain) -> list[LookupJoin]:
        """The lookup joins of a chain that are views in FROM."""
        joins = map(self.view_of, chain.relations)
        return [join for join in joins if join is not None]

    # --- relations ---------------------------------------------------------------------------------

    def seen(self, relation: Relation) -> Visible:
        """The relation, and how it is called; where it has no name, a private one."""
        at = self.statement.alias_index(relation)
        if at is None:
            return Visible(relation, quoted(self.statement.private_alias(relation)))
        if relation.alias_at is None:
            return Visible(relation, alias_text(self.statement, relation))
        return Visible(relation, self.statement.pieces[at].text)

    def ordinary(self, relation: Relation, named: bool = True) -> FromPart:
        """One ordinary relation, with a name where it has none and one is wanted."""
        at = self.statement.tokens.place(relation)
        if relation.open_chain is not None:
            seen_inside = [self.seen(each) for each in relation.open_chain.shown]
            using = self.using.get(relation, list(using_in(relation.open_chain)))
            hidden = self.hidden_in(relation)
            return FromPart([at], seen_inside, hidden=hidden, using=using, first=relation.first)
        seen = self.seen(relation)
        parts: list[Fragment] = [at]
        if named and self.statement.alias_index(relation) is None:
            parts.append(f" AS {seen.alias}")
        return FromPart(parts, [seen], first=relation.first)

    def hidden_in(self, relation: Relation) -> list[str]:
        """The private columns that a relation has, by the parentheses inside it too."""
        if relation in self.hidden or relation.open_chain is None:
            return list(self.hidden.get(relation, []))
        inside = relation.open_chain.direct_shown
        return [column for each in inside for column in self.hidden_in(each)]

    # --- texts -------------------------------------------------------------------------------------

    def end(self, index: int) -> int:
        return self.statement.pieces[index].end

    def private(self) -> str:
        return f"`__lookup_{next(self.numbers)}`"

    def view(self, join: LookupJoin) -> Text:
        return lateral_view(self.statement, join, next(self.numbers) if join.is_semi else 0)

    def views(self, joins: Sequence[LookupJoin]) -> Text:
        return tuple(part for join in joins for part in (" ", *self.view(join)))
