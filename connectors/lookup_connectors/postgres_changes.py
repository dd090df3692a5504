"""Which rows of PostgreSQL have changed: queries on a column of numbers, dates or moments."""

from __future__ import annotations

from collections.abc import Sequence

from lookup_connectors.postgres_types import PostgresColumn


def latest_query(relation: str, column: PostgresColumn) -> str:
    """The query for the greatest value of ``column``, in its type of the wire: one step in an index."""
    greatest = f"SELECT max({column.compared}) AS {column.column} FROM {relation}"  # noqa: S608  quoted
    return f"SELECT {column.selected} FROM ({greatest}) AS greatest"  # noqa: S608  quoted


def changed_query(relation: str, column: PostgresColumn, keys: Sequence[PostgresColumn], most: int) -> str:
    """The query for how many rows have ``column`` greater than $1, and their ``keys`` as an array for each.

    Of more than ``most`` rows it reads one more, and gives no arrays.
    """
    above = f"{column.compared} > {column.key.replace('{k}', f'$1::{column.bound}')}"
    names = ", ".join(key.column for key in keys)
    rows = f"SELECT {names} FROM {relation} WHERE {above} LIMIT {most + 1}"  # noqa: S608  quoted
    arrays = "".join(f", CASE WHEN count(*) <= {most} THEN array_agg({key.selected}) END" for key in keys)
    return f"SELECT count(*){arrays} FROM ({rows}) AS changed"  # noqa: S608  quoted
