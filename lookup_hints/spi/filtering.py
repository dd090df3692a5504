"""Conditions that a source may apply itself while its table is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pyarrow as pa

from lookup_hints.errors import InternalError
from lookup_hints.spi.connector import Scan

FilterValue = bool | int | str | date | Decimal

_VALUES = {"=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "IN": None, "IS NULL": 0, "IS NOT NULL": 0}
"""How many values each operator has; None for any number but none."""


@dataclass(frozen=True)
class Filter:
    """A condition on one column: ``=``, ``<``, ``<=``, ``>``, ``>=``, ``IN``, ``IS NULL`` or ``IS NOT NULL``.

    Args:
        column: a column of the table that is BOOLEAN, a whole number, DECIMAL, DATE or STRING.
        op: the operator.
        values: what the column is compared with, as Python's own values of the column's type.

    Raises:
        InternalError: there is no such operator, or it has another number of values.
    """

    column: str
    op: str
    values: tuple[FilterValue, ...] = ()

    def __post_init__(self) -> None:
        wanted = _VALUES.get(self.op, -1)
        if len(self.values) != wanted and not (wanted is None and self.values):
            raise InternalError(f"a filter cannot be {self.op!r} with {len(self.values)} values")

    def __str__(self) -> str:
        """As SQL writes it.

        >>> str(Filter("country", "IN", ("DE", "FR"))), str(Filter("id", "IS NULL"))
        ("country IN ('DE', 'FR')", 'id IS NULL')
        """
        values = ", ".join(map(_shown, self.values))
        return " ".join(filter(None, [self.column, self.op, f"({values})" if self.op == "IN" else values]))


class FilteredScan(Scan):
    """The ability to leave rows out while the whole table is read.

    A filter narrows, it replaces nothing: Spark checks the condition again. So a source may give more rows
    than those that meet a filter, as one that compares texts without case does, but never fewer.
    """

    @abstractmethod
    def can_filter(self, wanted: Filter) -> bool:
        """Whether the source can leave out rows by it. On the driver, while planning; no I/O."""

    @abstractmethod
    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """Of a partition, or of the whole table where ``partition`` is empty, all rows that meet ``filters``.

        On a worker, in one task. ``schema`` need not have the columns of the filters. A filter that turns out
        not to fit the source's own type can be left out.
        """

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows."""
        return self.scan_filtered(schema, "", ())

    def scan_partition(self, schema: pa.Schema, partition: str) -> Iterator[pa.RecordBatch]:
        """The rows of one of several partitions."""
        return self.scan_filtered(schema, partition, ())


def _shown(value: FilterValue) -> str:
    if isinstance(value, bool | int | Decimal):
        return str(value).upper()
    return f"'{value}'" if isinstance(value, str) else f"DATE '{value}'"
