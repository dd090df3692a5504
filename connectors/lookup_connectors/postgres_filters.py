"""Filters of a read as conditions of PostgreSQL, where it compares as Spark does or drops fewer rows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
from pyarrow import types

from lookup_connectors.postgres_types import INTEGERS, PostgresColumn
from lookup_hints.spi import Filter, FilterValue

_TEXTS = frozenset({"text", "varchar"})
_EQUALITY = ("=", "IN")
_NULLS = ("IS NULL", "IS NOT NULL")
_EXACT = INTEGERS | _TEXTS | {"bool", "numeric", "date"}
"""Types whose NULL is Spark's. A composite of NULLs alone is NULL to PostgreSQL, and is read as a text."""


def can_filter(kind: pa.DataType, wanted: Filter) -> bool:
    """Whether a column of the declared type can be filtered so, if the source's own type allows it."""
    if types.is_string(kind):
        return wanted.op in (*_EQUALITY, *_NULLS)
    exact = types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind) or types.is_date(kind)
    return bool(exact)


def filter_of(plan: PostgresColumn, wanted: Filter, encoding: str) -> str:
    """``wanted`` as a condition on the column of ``plan``; empty where it could drop too much, or fail.

    ``encoding`` is that of the server.
    """
    if not _is_safe(plan, wanted, encoding):
        return ""
    if wanted.op in _NULLS:
        return f"{plan.column} {wanted.op}"
    values = ", ".join(map(literal, wanted.values))
    return f"{plan.compared} {wanted.op} {f'({values})' if wanted.op == 'IN' else values}"


def _is_safe(plan: PostgresColumn, wanted: Filter, encoding: str) -> bool:
    kind, source = plan.field.type, plan.source.type
    if wanted.op in _NULLS:
        return source in _EXACT
    if types.is_string(kind):
        # A collation may find more texts equal than are the same, but never fewer.
        return source in _TEXTS and all(_can_be_told(str(value), encoding) for value in wanted.values)
    if types.is_integer(kind):
        return source in INTEGERS
    if types.is_decimal(kind):
        return source in INTEGERS | {"numeric"}
    return source == ("bool" if types.is_boolean(kind) else "date")


def _can_be_told(text: str, encoding: str) -> bool:
    """Whether the server can read ``text``: one that knows no Unicode refuses the whole statement."""
    return "\0" not in text and (text.isascii() or encoding.upper() in ("UTF8", "UTF-8"))


def literal(value: FilterValue) -> str:
    """``value`` as a typed literal, whatever the server's `standard_conforming_strings`.

    >>> literal("it's"), literal(-5), literal(True)
    ("E'it''s'::text", "'-5'::bigint", 'TRUE')
    """
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        doubled = value.replace("\\", "\\\\").replace("'", "''")
        return f"E'{doubled}'::text"
    return f"'{value}'::{_type_of(value)}"


def _type_of(value: int | Decimal | date) -> str:
    if isinstance(value, date):
        return "date"
    return "numeric" if isinstance(value, Decimal) else "bigint"
