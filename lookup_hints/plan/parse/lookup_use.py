"""One use of a lookup table in a statement, and the query through which it is seen, where there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lookup_hints.plan.parse.query_blocks import Block, Chain, Pipe, Relation, Step
from lookup_hints.spi.changed_column_and_versions import Versions, versions_of
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut

UNNAMED = "__lookup_relation_"
"""Prefix of the private names of relations without a name of their own."""

OF_LOOKUP_GET = f"{UNNAMED}get_"
"""Prefix of those of the relations in which ``lookup_get`` finds its values."""

LONGEST = 4_000
"""An expression over expressions may grow with each query around it; longer ones are not looked through."""


@dataclass(frozen=True)
class TableColumn:
    """A column of the lookup table within an expression."""

    name: str


@dataclass(frozen=True)
class Expression:
    """An expression over the columns of a lookup table, as text around those columns."""

    parts: tuple[str | TableColumn, ...]

    @property
    def bare(self) -> str | None:
        """The column that it is, or None where it computes something."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only.name if isinstance(only, TableColumn) else None

    @property
    def columns(self) -> set[str]:
        return {part.name for part in self.parts if isinstance(part, TableColumn)}

    @property
    def length(self) -> int:
        """How long its text is, roughly."""
        return sum(len(part) if isinstance(part, str) else len(part.name) for part in self.parts)

    def over(self, variable: str) -> str:
        """Its text, each column taken from ``variable``."""
        return "".join(
            part if isinstance(part, str) else f"{variable}.{quoted(part.name)}" for part in self.parts
        )

    def with_columns(self, given: Mapping[str, Expression]) -> Expression:
        """It with another expression for each of its columns."""
        parts: list[str | TableColumn] = []
        for part in self.parts:
            if isinstance(part, str):
                parts.append(part)
                continue
            inner = given[part.name]
            parts += inner.parts if inner.bare is not None else ("(", *inner.parts, ")")
        return Expression(tuple(parts))


@dataclass(frozen=True)
class LookThrough:
    """A query that only projects, renames, computes and filters one lookup table.

    Args:
        base: the lookup table.
        columns: name and expression of each of its columns.
        where: the conditions that filter its rows.
        shown: its name in EXPLAIN.
        hinted: where hints inside it may be: the offset of a SELECT, and the table's alias there.
    """

    base: LookupTable
    columns: tuple[tuple[str, Expression], ...]
    where: tuple[Expression, ...] = ()
    shown: str = ""
    hinted: tuple[tuple[int, str], ...] = ()

    @classmethod
    def whole(cls, table: LookupTable) -> LookThrough:
        return cls(table, tuple((name, Expression((TableColumn(name),))) for name in table.schema.names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def is_clear(self) -> bool:
        """Whether each of its columns has a name of its own, and no expression is too long."""
        names = Counter(name.lower() for name in self.names)
        every = (*self.where, *(expression for _, expression in self.columns))
        return max(names.values(), default=2) == 1 and all(each.length <= LONGEST for each in every)

    @cached_property
    def table(self) -> LookupTable:
        """It as a lookup table: the primary key is its own where its columns hold all of it."""
        by_base, fields = self.by_base, []
        for name, each in self.columns:
            # A computed column is never a key, so only Spark needs its type.
            kind = pa.null() if each.bare is None else self.base.schema.field(each.bare).type
            fields.append(pa.field(name, kind))
        has_key = all(name in by_base for name in self.base.primary_key)
        return replace(
            self.base,
            schema=pa.schema(fields),
            primary_key=tuple(by_base[name] for name in self.base.primary_key) if has_key else (),
        )

    @cached_property
    def by_base(self) -> Mapping[str, str]:
        """For each column of the lookup table that is passed on unchanged: its name here."""
        return {each.bare: name for name, each in reversed(self.columns) if each.bare is not None}

    def expression(self, name: str) -> Expression:
        return next(expression for called, expression in self.columns if called == name)

    def named(self, base_columns: Iterable[str]) -> frozenset[str]:
        """The names here of those columns of the lookup table that are passed on unchanged."""
        return frozenset(self.by_base[name] for name in base_columns if name in self.by_base)


@dataclass(frozen=True, eq=False)
class LookupUse:
    """One place where a statement names a lookup table.

    Args:
        table: the lookup table.
        relation: where it is named.
        alias: the name by which the query calls it.
        block: the query block whose FROM (or pipe operator) holds it.
        chain: the chain of joins that holds it, or None in a pipe operator.
        step: the join whose right side it is, or None for the first relation of a chain.
        around: the relations in parentheses around its chain, outermost first.
        pipe: the pipe operator that holds it, if one does.
        through: the query through which the table is seen, where the relation is a derived table, CTE or
            view; ``table`` then has its columns.
    """

    table: LookupTable
    relation: Relation
    alias: str
    block: Block
    chain: Chain | None
    step: Step | None
    around: tuple[Relation, ...] = ()
    pipe: Pipe | None = None
    through: LookThrough | None = None

    @property
    def index(self) -> int:
        """Position of the table's name, or of the derived table, among the pieces."""
        relation = self.relation
        return relation.name_at if relation.name_at > -1 else relation.first

    @property
    def shown(self) -> str:
        """The name by which it is shown: its table's where the query gives it none."""
        return self.table.name if self.alias.startswith(UNNAMED) else self.alias

    @property
    def base(self) -> LookupTable:
        return self.table if self.through is None else self.through.base

    def base_column(self, column: str) -> str:
        """The lookup table's own name of a key column."""
        bare = column if self.through is None else self.through.expression(column).bare
        assert bare is not None, "what is computed cannot be asked by"
        return bare

    def named(self, base_columns: Iterable[str]) -> frozenset[str]:
        """The names here of those columns of the lookup table that can be keys."""
        return frozenset(base_columns) if self.through is None else self.through.named(base_columns)

    @property
    def time(self) -> Cut | None:
        return self.relation.time

    @property
    def versions(self) -> Versions | None:
        """The columns by which its time chooses rows; None where no time chooses any."""
        return None if self.time is None else versions_of(self.base)

    @property
    def keeps_rows(self) -> bool:
        """Whether no outer join around it fills its columns with NULL."""
        inside = (*self.around, self.relation)
        holding = [chain for chain in self.block.chains if any(each is inside[0] for each in chain.direct)]
        holding += [relation.chain for relation in self.around if relation.chain is not None]
        return all(chain.keeps_rows_of(each) for chain, each in zip(holding, inside, strict=False))

    @property
    def may_be_narrowed(self) -> bool:
        """Whether conditions on its rows may be applied before it is joined: not behind ASOF JOIN."""
        return self.relation not in self.block.behind_asof

    @property
    def column_aliases(self) -> tuple[str, ...]:
        return self.relation.columns
