"""Tables for tests of the connector `adbc`, over each of its drivers."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.testing import CONTRACT_SCHEMA
from tests.servers.postgres import PostgresServer

_numbers = itertools.count(1)


def adbc_table(
    name: str, schema: pa.Schema, key: tuple[str, ...] = (), /, *, driver: str, **options: str
) -> LookupTable:
    """A table over ``driver``, such as ``duckdb``; `_` in names of options stands for `-`."""
    given = {each.replace("_", "-"): text for each, text in options.items()}
    return LookupTable(name, schema, key, {"connector": "adbc", "driver": f"adbc_driver_{driver}", **given})


class DuckDbSource:
    """A table of a DuckDB file."""

    def __init__(self, path: Path, **options: str) -> None:
        self.path, self.options = path, options

    def execute(self, script: str) -> None:
        """Run statements."""
        with duckdb.connect(str(self.path)) as connection:
            connection.execute(script)

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        with duckdb.connect(str(self.path)) as connection:
            connection.execute(
                f'CREATE TABLE "{name}" (id BIGINT, region TEXT, name TEXT, amount DOUBLE, active BOOL)'
            )
            connection.execute(f'INSERT INTO "{name}" SELECT * FROM rows')
        return self.table(name)

    def missing(self) -> LookupTable:
        self.execute("SELECT 1")
        return self.table("nowhere")

    def table(self, name: str, schema: pa.Schema = CONTRACT_SCHEMA, /, **options: str) -> LookupTable:
        return adbc_table(name, schema, driver="duckdb", uri=str(self.path), **self.options, **options)


class SqliteFileSource:
    """A table of an SQLite file, asked over ADBC."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, script: str) -> None:
        """Run statements."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract {next(_numbers)}"
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                f'CREATE TABLE "{name}" (id BIGINT, region TEXT, name TEXT, amount REAL, active BOOL)'
            )
            values = [tuple(row.values()) for row in rows.to_pylist()]
            connection.executemany(f'INSERT INTO "{name}" VALUES (?, ?, ?, ?, ?)', values)
            connection.execute(f'CREATE INDEX "by {name}" ON "{name}" (id)')
        return self.table(name)

    def missing(self) -> LookupTable:
        self.execute("SELECT 1")
        return self.table("nowhere")

    def table(self, name: str, schema: pa.Schema = CONTRACT_SCHEMA, /, **options: str) -> LookupTable:
        return adbc_table(name, schema, driver="sqlite", uri=str(self.path), **options)


class PostgresAdbcSource:
    """A table of a PostgreSQL server, asked over ADBC."""

    def __init__(self, server: PostgresServer, **options: str) -> None:
        self.server, self.options = server, options

    def execute(self, script: str) -> None:
        """Run statements."""
        self.server.execute(script)

    def filled(self, rows: pa.Table) -> LookupTable:
        name = f"contract adbc {next(_numbers)}"
        self.server.execute(
            f'CREATE TABLE "{name}" (id bigint, region text, name varchar(40), amount float8, active bool);'
            f'CREATE INDEX ON "{name}" (region, id);'
        )
        self.server.copy(name, [tuple(row.values()) for row in rows.to_pylist()], rows.column_names)
        return self.table(name)

    def missing(self) -> LookupTable:
        return self.table("nowhere")

    def table(self, name: str, schema: pa.Schema = CONTRACT_SCHEMA, /, **options: str) -> LookupTable:
        given: dict[str, Any] = {"uri": self.server.url(), **self.options, **options}
        return adbc_table(name, schema, driver="postgresql", **given)
