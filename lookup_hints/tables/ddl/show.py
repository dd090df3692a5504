"""A lookup table -> the statement that creates it, for SHOW CREATE TABLE."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.secrets import MASK, masked_text
from lookup_hints.spi.types import sql_type
from lookup_hints.sql.lexer import quoted, string_literal
from lookup_hints.tables.ddl.columns import COMMENT


def create_statement(table: LookupTable, secret_keys: Collection[str]) -> str:
    """The CREATE TEMPORARY TABLE of ``table``; values of ``secret_keys`` and passwords are masked."""
    columns = [_column(column) for column in table.schema]
    if table.primary_key:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, table.primary_key))}) NOT ENFORCED")
    options = [
        f"{string_literal(key)} = {string_literal(MASK if key in secret_keys else masked_text(value))}"
        for key, value in table.options.items()
    ]
    return (
        f"CREATE TEMPORARY TABLE {quoted(table.name)} {_listed(columns)}"
        f"{_comment(table.schema.metadata)} WITH {_listed(options)}"
    )


def _column(column: pa.Field) -> str:
    return f"{quoted(column.name)} {sql_type(column.type)}{_comment(column.metadata)}"


def _comment(metadata: Mapping[bytes, bytes] | None) -> str:
    text = (metadata or {}).get(COMMENT)
    return "" if text is None else f" COMMENT {string_literal(text.decode())}"


def _listed(items: list[str]) -> str:
    return "(\n  " + ",\n  ".join(items) + "\n)"
