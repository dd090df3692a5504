"""Running the DDL of lookup tables: what is created, dropped, described and shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lookup_hints.driver.scope import StatementScope
from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.secrets import masked_text
from lookup_hints.spi.types import type_name
from lookup_hints.sql.lexer import string_literal
from lookup_hints.tables.catalog import secret_keys
from lookup_hints.tables.ddl import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    ShowColumns,
    ShowLookupTables,
    ShowTables,
    create_statement,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_ddl(ddl: Ddl, scope: StatementScope) -> DataFrame:
    """Run a statement about lookup tables; the rows are those of Spark for the same words."""
    catalog = scope.catalog
    if isinstance(ddl, CreateLookupTable):
        catalog.create(ddl, scope.conf)
        return nothing(scope)
    if isinstance(ddl, ShowLookupTables):
        rows = [(table.name, table.connector) for table in catalog.tables()]
        return scope.rows("tableName STRING, connector STRING", rows)
    if isinstance(ddl, ShowTables):
        return _show_tables(ddl, scope)
    if isinstance(ddl, DropTable):
        _drop(ddl, scope)
        return nothing(scope)
    table = catalog.find(ddl.name)
    assert table is not None, "only statements about lookup tables come here"
    if isinstance(ddl, DescribeTable):
        return scope.rows(
            "col_name STRING, data_type STRING, comment STRING", _described(table, ddl.extended)
        )
    if isinstance(ddl, ShowColumns):
        return scope.rows("col_name STRING", [(name,) for name in table.schema.names])
    return scope.rows("createtab_stmt STRING", [(create_statement(table, secret_keys(table)),)])


def _drop(ddl: DropTable, scope: StatementScope) -> None:
    """Forget a table. With the word TEMPORARY, that of Spark's own too: Spark has no such statement."""
    if scope.catalog.find(ddl.name) is not None:
        scope.catalog.drop(ddl.name)
    elif not scope.spark.catalog.dropTempView(ddl.name) and not ddl.if_exists:
        raise scope.catalog.no_table(ddl.name)


def _show_tables(ddl: ShowTables, scope: StatementScope) -> DataFrame:
    """Spark's tables and ours, which show like temporary views."""
    pattern = "*" if ddl.like is None else ddl.like
    like = "" if ddl.like is None else f" LIKE {string_literal(ddl.like)}"
    ours = [("", table.name, True) for table in scope.catalog.tables() if _like(table.name, pattern)]
    spark_tables = scope.sql(f"SHOW TABLES{like}")
    if not ours:
        return spark_tables
    return spark_tables.unionAll(scope.rows("namespace STRING, tableName STRING, isTemporary BOOLEAN", ours))


def nothing(scope: StatementScope) -> DataFrame:
    """The result of a statement that has none."""
    return scope.spark.range(0).select()


def _described(table: LookupTable, extended: bool) -> list[tuple[str, str, str | None]]:
    rows: list[tuple[str, str, str | None]] = [
        (column.name, type_name(column.type), "key" if column.name in table.primary_key else None)
        for column in table.schema
    ]
    if extended:
        hidden = secret_keys(table)
        rows += [("", "", ""), ("# Lookup table", "", "")]
        rows += [
            (key, "***" if key in hidden else masked_text(text), "") for key, text in table.options.items()
        ]
    return rows


def _like(name: str, pattern: str) -> bool:
    """SHOW TABLES LIKE: ``*`` any characters, ``|`` between alternatives, ignoring case."""
    alternatives = (re.escape(part.strip()).replace(r"\*", ".*") for part in pattern.split("|"))
    return any(re.fullmatch(part, name, re.IGNORECASE) for part in alternatives)
