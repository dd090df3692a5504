"""Parts of a FROM that are written again, what that made so far, and what it asks of lookup joins in it."""

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
    """A packed relation with columns that its star does not show.

    Args:
        relation: the relation.
        alias: what it is called, as it is written.
        private: the private name of each such column.
        own: where they still have their own names: the pieces from the first to the last index.
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


class Rewrite:
    """The joins of a statement, and what edits so far made: private names, hidden columns, shared columns.

    Attributes:
        numbers: they tell private names apart.
        hidden: the private columns that blocks, and relations in parentheses, have beside the user's.
        using: the joins by USING that relations in parentheses, written again, still have.
        merged: of the block that is written: joins by USING whose right side has private columns.
        concealed: of that block: relations with columns that no star shows, packed under private names.
        block: that block.
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
        """The lookup join whose table ``relation`` is, in whatever form."""
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
