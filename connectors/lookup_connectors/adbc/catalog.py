"""Read the catalogs of databases: the size of a table, and the columns of a table of SQLite.

ADBC has a call for statistics, which only PostgreSQL's driver knows. It does not tell whether the table has
grown since it was analysed, which its catalog does. SQLite's driver tells types from rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from adbc_driver_manager import dbapi
from pyarrow import types

from lookup_connectors.adbc.columns import AdbcColumn
from lookup_connectors.adbc.drivers import DUCKDB, POSTGRES, SQLITE
from lookup_connectors.adbc.failures import DRIVER_ERRORS
from lookup_connectors.adbc.lookup_sql import schema_and_name
from lookup_connectors.shared.postgres_server import SECONDS, SIZE, size_of
from lookup_connectors.shared.sql_parts import find_name
from lookup_connectors.shared.sqlite_types import ANALYSED, analysed_size, arrow_type, never_fits
from lookup_hints.errors import ConnectorError, nearest
from lookup_hints.spi import LookupTable, TableSize

_DUCKDB_TABLES = """
SELECT estimated_size FROM duckdb_tables()
WHERE lower(table_name) = lower(?) AND lower(schema_name) = lower(coalesce(nullif(?, ''), current_schema()))
  AND database_name = current_database()
"""
_APPROXIMATE = re.compile(r"approx.unique\W+(\d+)", re.IGNORECASE)
_SQLITE_IS_TABLE = "SELECT count(*) FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type = 'table'"


def table_size(connection: dbapi.Connection, relation: str, driver: str) -> TableSize:
    """The size of ``relation``, a name in SQL, by the catalog."""
    if driver == POSTGRES:
        return _size_in_postgres(connection, relation)
    if driver == DUCKDB:
        return _size_in_duckdb(connection, relation)
    if driver == SQLITE:
        return _size_in_sqlite(connection, relation)
    return TableSize(None, source=f"it is not known where {driver} keeps statistics")


def _size_in_postgres(connection: dbapi.Connection, relation: str) -> TableSize:
    _query_row(connection, f"SET statement_timeout = '{SECONDS:g}s'")
    return size_of(_query_row(connection, SIZE, relation))


def _size_in_duckdb(connection: dbapi.Connection, relation: str) -> TableSize:
    schema, name = schema_and_name(relation, "duckdb")
    found = _query_row(connection, _DUCKDB_TABLES, name, schema)
    if not found:
        return TableSize(None, source="a view, or a table of another database")
    distinct: dict[str, int] = {}
    with suppress(*DRIVER_ERRORS):  # not every version has COLUMNS(*) of them
        kept = _query_row(connection, f"SELECT stats(COLUMNS(*))::VARCHAR FROM {relation} LIMIT 1")  # noqa: S608  quoted
        told = {name: _APPROXIMATE.search(text or "") for name, text in kept.items()}
        distinct = {name: int(each[1]) for name, each in told.items() if each}
    return TableSize(found["estimated_size"], source="duckdb_tables()", distinct=distinct)


def _size_in_sqlite(connection: dbapi.Connection, relation: str) -> TableSize:
    _, name = schema_and_name(relation, "sqlite")
    with suppress(*DRIVER_ERRORS):  # no statistics in this file
        if told := [(row["stat"], row["first"]) for row in _query_rows(connection, ANALYSED, name)]:
            return analysed_size(told)
    with suppress(*DRIVER_ERRORS):  # WITHOUT ROWID
        # Each by itself is one step in the table's tree; both in one SELECT read all of it.
        ends = (f"(SELECT {end}(rowid) FROM {relation})" for end in ("max", "min"))  # noqa: S608  quoted
        span = _query_row(connection, f"SELECT {' - '.join(ends)} + 1 AS span")["span"]
        if span is not None and _query_row(connection, _SQLITE_IS_TABLE, name)["count(*)"]:
            return TableSize(span, source="row numbers, an upper estimate")
    return TableSize(None, source="never analysed, and without numbered rows")


def _query_row(connection: dbapi.Connection, sql: str, *values: str) -> dict[str, Any]:
    return next(iter(_query_rows(connection, sql, *values)), {})


def _query_rows(connection: dbapi.Connection, sql: str, *values: str) -> Sequence[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters=values or None)
        rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist() if cursor.description else []
    return rows


# --- columns of SQLite ----------------------------------------------------------------------------

_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo(?)"
_TABLES = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"


def plan_sqlite(connection: dbapi.Connection, table: LookupTable, relation: str) -> dict[str, AdbcColumn]:
    """How each declared column is read.

    Raises:
        ConnectorError: a column is not there, or can never be read as declared.
    """
    declared = {name: kind for name, kind, _ in _declared_columns(connection, relation, table.name)}
    return {field.name: _plan_sqlite_column(field, declared, table.name, relation) for field in table.schema}


def told_by_sqlite(
    connection: dbapi.Connection, relation: str, table: str
) -> tuple[pa.Schema, tuple[str, ...]]:
    """The columns, from their declared types, and the primary key.

    Raises:
        ConnectorError: the declared type of a column does not say what it holds.
    """
    stored = _declared_columns(connection, relation, table)
    kinds = [(name, arrow_type(declared)) for name, declared, _ in stored]
    unknown = [name for name, kind in kinds if kind is None]
    if unknown:
        what = f"the declared type of column {unknown[0]!r} does not say what it holds. Give a column list."
        raise ConnectorError(f"table {table}: {what}", permanent=True)
    key = sorted((place, name) for name, _, place in stored if place)
    return pa.schema(kinds), tuple(name for _, name in key)


def _declared_columns(connection: dbapi.Connection, relation: str, table: str) -> list[tuple[str, str, int]]:
    """Name, declared type and place in the primary key (or 0) of each column."""
    _, name = schema_and_name(relation, "sqlite")
    found = _query_rows(connection, _COLUMNS, name)
    columns = [(str(row["name"]), str(row["type"] or ""), int(row["pk"])) for row in found]
    if not columns:
        known = [str(row["name"]) for row in _query_rows(connection, _TABLES)]
        what = f"the file has no table or view {relation}. {nearest(name, known)}".rstrip()
        raise ConnectorError(f"table {table}: {what}", permanent=True)
    return columns


def _plan_sqlite_column(field: pa.Field, declared: dict[str, str], table: str, relation: str) -> AdbcColumn:
    name = find_name(field.name, list(declared), table, relation)
    problem = never_fits(declared[name], field.type)
    if problem:
        raise ConnectorError(f"table {table}: column {field.name!r}: {problem}", permanent=True)
    return AdbcColumn(field, name, None, as_exact_text=bool(types.is_decimal(field.type)))
