"""Resolve the names in a block's expressions: to one of its relations, or to an outer query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from sqlglot import exp

from lookup_hints.plan.parse.query_blocks import Block, Relation
from lookup_hints.plan.parse.statement import Statement

ColumnsOf = Callable[[Relation], tuple[str, ...] | None]
"""The names of a relation's columns, or None where they cannot be known."""


@dataclass(frozen=True)
class Referred:
    """The relations that an expression refers to.

    Args:
        relations: relations of the block.
        outer: whether it also refers to something outside the block.
    """

    relations: frozenset[Relation]
    outer: bool = False


class InnerNames:
    """For queries inside an expression: which names are their own, and which belong to outer blocks."""

    def __init__(self, statement: Statement, columns_of: ColumnsOf, case_sensitive: bool) -> None:
        self.statement, self.columns_of, self._case_sensitive = statement, columns_of, case_sensitive

    def is_inner(self, column: exp.Column, block: Block) -> bool:
        """Whether ``column`` belongs to a query inside an expression of ``block``."""
        return any(self._may_have_column(inner, column) for inner in self._blocks_within(column, block))

    def is_outer(self, column: exp.Column, block: Block) -> bool:
        """Whether ``column`` is inside such a query, and belongs to ``block`` or a block around it."""
        stands_inside = next(self._blocks_within(column, block), None) is not None
        if not stands_inside or self.is_inner(column, block):
            return False
        return any(self._may_have_column(each, column) for each in block.outward)

    def _blocks_within(self, column: exp.Column, block: Block) -> Iterator[Block]:
        """The blocks between ``column`` and ``block``, from the inside."""
        start, statement = column.parts[0].meta.get("start"), self.statement
        inner = None if start is None else statement.structure.block_at(statement.tokens.index_at(start))
        return iter(()) if inner is None else takewhile(lambda each: each is not block, inner.outward)

    def _may_have_column(self, block: Block, column: exp.Column) -> bool:
        parts = [part.name for part in column.parts]
        relations = list(block.relations)
        if len(parts) > 1 and any(self.is_called(relation, parts[0]) for relation in relations):
            return True
        if block.views_last > -1:
            return True
        for relation in relations:
            columns = self.columns_of(relation)
            has = len(parts) == 1 if columns is None else any(self.same(parts[0], each) for each in columns)
            if has:
                return True
        return False

    def is_called(self, relation: Relation, name: str) -> bool:
        alias = self.statement.alias_of(relation)
        return alias is not None and self.same(alias, name)

    def same(self, one: str, other: str) -> bool:
        return one == other if self._case_sensitive else one.lower() == other.lower()


class NameScope:
    """The relations that the expressions of a block can name."""

    def __init__(self, inner: InnerNames, block: Block, relations: Iterable[Relation]) -> None:
        self._inner, self._block, self._columns_of = inner, block, inner.columns_of
        self.relations = tuple(relations)
        self._by_alias: dict[str, list[Relation]] = {}
        for relation in self.relations:
            alias = (inner.statement.alias_of(relation) or "").lower()
            self._by_alias.setdefault(alias, []).append(relation)
        self._has_views = block.views_last > -1
        self._has_outer = inner.statement.has_outer(block)
        self._outer = tuple(
            each for around in block.outward if around is not block for each in around.relations
        )

    def referred(self, tree: exp.Expr) -> Referred:
        """The references of ``tree``, including names that its subqueries do not resolve themselves."""
        relations: set[Relation] = set()
        outer = False
        for column in tree.find_all(exp.Column):
            if self._inner.is_inner(column, self._block):
                continue
            is_inner = column.find_ancestor(exp.Select) is not tree.find_ancestor(exp.Select)
            found = self._relation_of(column, is_inner)
            if found is not None:
                relations |= found
            else:
                outer = outer or not is_inner
        return Referred(frozenset(relations), outer)

    def _relation_of(self, column: exp.Column, is_inner: bool) -> set[Relation] | None:
        """The relations that ``column`` may belong to; None: it is the outer query's."""
        parts = [part.name for part in column.parts]
        if len(parts) > 1:
            alike = self._by_alias.get(parts[0].lower(), ())
            named = {each for each in alike if self._inner.is_called(each, parts[0])}
            if named:
                return named
        if is_inner:
            return self._relations_with(parts[0]) or None
        having = self._relations_named(parts[0])
        is_guess = having is not None and all(self._columns_of(each) is None for each in having)
        is_outer = len(parts) > 1 and any(self._inner.is_called(each, parts[0]) for each in self._outer)
        return None if is_guess and is_outer else having

    def _relations_with(self, name: str) -> set[Relation]:
        return {
            relation
            for relation in self.relations
            if any(self._inner.same(name, column) for column in self._columns_of(relation) or ())
        }

    def _relations_named(self, name: str) -> set[Relation] | None:
        having = self._relations_with(name)
        if having:
            return having
        unknown = {relation for relation in self.relations if self._columns_of(relation) is None}
        if self._has_views:
            # It may be a column of a LATERAL VIEW, which comes after all relations.
            return set(self.relations)
        # Spark knows the name, so without an outer query it is a variable's.
        return unknown or (None if self._has_outer else set())
