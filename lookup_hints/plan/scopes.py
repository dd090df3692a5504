"""The names that the expressions of each block of a statement can use."""

from __future__ import annotations

from lookup_hints.plan.key_conditions import KeyEquality
from lookup_hints.plan.parse.name_resolution import InnerNames, NameScope, Referred
from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Remembering, Statement, once
from lookup_hints.plan.spark_analysis import Analysis, LeftSide


class Scopes(Remembering):
    """The names visible in each block of one statement, each scope computed once."""

    def __init__(self, statement: Statement, analysis: Analysis, case_sensitive: bool) -> None:
        """``analysis`` knows the columns of relations."""
        super().__init__()
        self.statement, self.case_sensitive, self._analysis = statement, case_sensitive, analysis
        self.inner_names = InnerNames(statement, analysis.columns_of, case_sensitive)

    @once
    def of_from(self, block: Block) -> NameScope:
        """The names visible to conditions inside the FROM of the block."""
        return NameScope(self.inner_names, block, block.relations)

    @once
    def of_where(self, block: Block) -> NameScope:
        """The names visible to the WHERE of the block."""
        return NameScope(self.inner_names, block, block.shown)

    def referred(self, scope: NameScope, equality: KeyEquality) -> Referred:
        tree = self.statement.expression(equality.left)
        return Referred(frozenset()) if tree is None else scope.referred(tree)

    def columns_before(self, block: Block, left: LeftSide) -> tuple[str, ...]:
        """The columns of the left side of a join of the block; empty if they are not known."""
        return self._analysis.columns_before(block, left) or ()

    def may_name(self, lateral: Relation, relation: Relation) -> bool:
        """Whether ``lateral`` contains the name of ``relation``, or an unqualified one of its columns.

        True if its columns are not known.
        """
        columns, tokens = self._analysis.columns_of(relation), self.statement.tokens
        if columns is None:
            return True
        alias = self.statement.alias_of(relation) or ""
        bare = (at for name in columns for at in tokens.places(name, lateral.first, lateral.last))
        return any(not tokens.is_symbol(at - 1, ".") for at in bare) or any(
            True for _ in tokens.places(alias, lateral.first, lateral.last)
        )
