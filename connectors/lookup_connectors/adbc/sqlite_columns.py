"""Columns of SQLite, whose driver tells types only from rows: its own catalog tells the declared ones."""

from __future__ import annotations

import pyarrow as pa
from adbc_driver_manager import dbapi
from pyarrow import types

from lookup_connectors.adbc.columns import AdbcColumn, find_name
from lookup_connectors.adbc.statements import schema_and_name
from lookup_connectors.sqlite_types import arrow_type, never_fits
from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import LookupTable

_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo(?)"
_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"


def plan_sqlite(connection: dbapi.Connection, table: LookupTable, relation: str) -> dict[str, AdbcColumn]:
    """How each declared column is read.

    Raises:
        ConnectorError: a column is not there, or can never be read as declared.
    """
    declared = {name: kind for name, kind, _ in _stored(connection, relation, table.name)}
    return {field.name: _plan(field, declared, table.name, relation) for field in table.schema}


def told_by_sqlite(
    connection: dbapi.Connection, relation: str, table: str
) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns, from their declared types, and the primary key.

    Raises:
        ConnectorError: the declared type of a column does not say what it holds.
    """
    stored = _stored(connection, relation, table)
    kinds = [(name, arrow_type(declared)) for name, declared, _ in stored]
    unknown = [name for name, kind in kinds if kind is None]
    if unknown:
        what = f"the declared type of column {unknown[0]!r} does not say what it holds. Give a column list."
        raise ConnectorError(f"table {table}: {what}", permanent=True)
    key = sorted((place, name) for name, _, place in stored if place)
    return pa.schema(kinds), tuple(name for _, name in key)


def _stored(connection: dbapi.Connection, relation: str, table: str) -> list[tuple[str, str, int]]:
    """Name, declared type and place in the primary key (or 0) of each column."""
    _, name = schema_and_name(relation, "sqlite")
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, parameters=[name])
        columns = [(str(each), str(kind or ""), int(place)) for each, kind, place in cursor.fetchall()]
    if not columns:
        with connection.cursor() as cursor:
            cursor.execute(_TABLES)
            known = [str(each) for (each,) in cursor.fetchall()]
        what = f"the file has no table or view {relation}. {nearest(name, known)}".rstrip()
        raise ConnectorError(f"table {table}: {what}", permanent=True)
    return columns


def _plan(field: pa.Field, declared: dict[str, str], table: str, relation: str) -> AdbcColumn:
    name = find_name(field.name, list(declared), table, relation)
    problem = never_fits(declared[name], field.type)
    if problem:
        raise ConnectorError(f"table {table}: column {field.name!r}: {problem}", permanent=True)
    return AdbcColumn(field, name, None, as_exact_text=bool(types.is_decimal(field.type)))
