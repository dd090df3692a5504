"""What the names in a block's expressions refer to: which of its relations, or an outer query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.plan.reading import Statement
from lookup_hints.plan.structure import Block, Relation

ColumnsOf = Callable[[Relation], tuple[str, ...] | None]
"""The names of a relation's columns, or None where they cannot be known."""


@dataclass(frozen=True)
class Referred:
    """What an expression refers to.

    Args:
        relations: relations of the block.
        outer: whether it also names something that no relation of the block has.
    """

    relations: frozenset[Relation]
    outer: bool = False


class Scope:
    """The relations that the expressions of a block can name."""

    def __init__(
        self,
        statement: Statement,
        block: Block,
        relations: Iterable[Relation],
        columns_of: ColumnsOf,
        case_sensitive: bool,
    ) -> None:
        self._statement, self._columns_of = statement, columns_of
        self._case_sensitive = case_sensitive
        self.relations = tuple(relations)
        self._has_views = block.views_last > -1
        self._has_outer = block.query.outer is not None
        self._outer = tuple(_relations_around(block))

    def referred(self, tree: exp.Expr) -> Referred:
        """What ``tree`` refers to; names inside its subqueries count where they have a qualifier."""
        relations: set[Relation] = set()
        outer = False
        for column in tree.find_all(exp.Column):
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
            named = {each for each in self.relations if self._is_named(each, parts[0])}
            if named:
                return named
        if is_inner:
            return None
        having = self._having(parts[0])
        is_guess = having is not None and all(self._columns_of(each) is None for each in having)
        return None if is_guess and len(parts) > 1 and self._names_outer(parts[0]) else having

    def _names_outer(self, name: str) -> bool:
        """Whether a relation of a query around the block is called ``name``."""
        return any(self._is_named(relation, name) for relation in self._outer)

    def _having(self, name: str) -> set[Relation] | None:
        known = {relation: self._columns_of(relation) for relation in self.relations}
        having = {
            relation
            for relation, columns in known.items()
            if columns is not None and any(self._same(name, column) for column in columns)
        }
        if having:
            return having
        unknown = {relation for relation, columns in known.items() if columns is None}
        if self._has_views:
            # It may be a column of a LATERAL VIEW, which comes after all relations.
            return set(self.relations)
        # Spark knows the name, so without an outer query it is a variable's.
        return unknown or (None if self._has_outer else set())

    def _is_named(self, relation: Relation, name: str) -> bool:
        alias = self._statement.alias_of(relation)
        return alias is not None and self._same(alias, name)

    def _same(self, one: str, other: str) -> bool:
        return one == other if self._case_sensitive else one.lower() == other.lower()


def _relations_around(block: Block) -> Iterator[Relation]:
    around = block.query.outer
    while around is not None:
        yield from around.relations
        around = around.query.outer
