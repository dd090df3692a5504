"""What is known and kept while the text of a statement is written again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from lookup_hints.plan.analysis import Analysis, alias_text
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.read.structure import Block, Chain, Relation, Step
from lookup_hints.plan.write.from_part import FromForm, FromPart, Visible, using_in
from lookup_hints.plan.write.hidden_columns import Concealed
from lookup_hints.plan.write.using import Merged
from lookup_hints.plan.write.views import Text, lateral_view
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Fragment


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
        at = self.statement.tokens.cut(relation.first, relation.last)
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
