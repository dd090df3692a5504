"""A lookup table seen through a query: columns and conditions of the query as expressions over the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lookup_hints.spi.model import LookupTable
from lookup_hints.sql.lexer import quoted

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

    @classmethod
    def of_column(cls, name: str) -> Expression:
        return cls((TableColumn(name),))

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
        where: the conditions that its rows meet.
        shown: what EXPLAIN calls it.
        hinted: where hints inside it may stand: the offset of a SELECT, and the table's alias there.
    """

    base: LookupTable
    columns: tuple[tuple[str, Expression], ...]
    where: tuple[Expression, ...] = ()
    shown: str = ""
    hinted: tuple[tuple[int, str], ...] = ()

    @classmethod
    def whole(cls, table: LookupTable) -> LookThrough:
        return cls(table, tuple((name, Expression.of_column(name)) for name in table.schema.names))

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
        by_base = self.by_base
        has_key = all(name in by_base for name in self.base.primary_key)
        return replace(
            self.base,
            schema=pa.schema([pa.field(name, self._type_of(each)) for name, each in self.columns]),
            primary_key=tuple(by_base[name] for name in self.base.primary_key) if has_key else (),
        )

    @cached_property
    def by_base(self) -> Mapping[str, str]:
        """For each column of the lookup table that is a column of it as it is: what it is called."""
        return {each.bare: name for name, each in reversed(self.columns) if each.bare is not None}

    def expression(self, name: str) -> Expression:
        return next(expression for called, expression in self.columns if called == name)

    def named(self, base_columns: Iterable[str]) -> frozenset[str]:
        """What those columns of the lookup table are called, as far as it has them as they are."""
        return frozenset(self.by_base[name] for name in base_columns if name in self.by_base)

    def _type_of(self, expression: Expression) -> pa.DataType:
        # What is computed is never a key: Spark alone needs its type.
        bare = expression.bare
        return pa.null() if bare is None else self.base.schema.field(bare).type
