"""Filters of scans, and what Python says of the rows that meet them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lookup_hints.spi import Filter

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def filters_over(name: str, column: pa.ChunkedArray) -> list[Filter]:
    """Filters of each kind, by a value that the column has."""
    value = next((each for each in column.to_pylist() if each is not None), None)
    if not isinstance(value, bool | int | str | Decimal) and type(value) is not date:
        return []
    by_value = [Filter(name, op, (value,)) for op in (*_COMPARED, "IN")]
    return [*by_value, Filter(name, "IS NULL"), Filter(name, "IS NOT NULL")]


def meets(wanted: Filter, value: Any) -> bool:
    """Whether ``value`` meets the filter, by Python's own comparison."""
    if wanted.op in ("IS NULL", "IS NOT NULL"):
        return (value is None) == (wanted.op == "IS NULL")
    if value is None:
        return False
    if wanted.op == "IN":
        return value in wanted.values
    return bool(_COMPARED[wanted.op](value, wanted.values[0]))
