"""The statements that may concern lookup tables, as values.

Only ``CreateLookupTable`` and ``ShowLookupTables`` are surely ours. Of the others the text alone does not
tell: whoever holds the catalog looks the name up, and leaves the statement to Spark when it is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.secrets import MASK, masked_text
from lookup_hints.spi.types import sql_type
from lookup_hints.sql.lexer import quoted, string_literal
from lookup_hints.tables.ddl.columns import COMMENT


@dataclass(frozen=True)
class CreateLookupTable:
    """``CREATE [OR REPLACE] TEMPORARY TABLE [IF NOT EXISTS] name [(...)] WITH (...)``.

    Args:
        name: the table's name.
        columns: the declared columns, None when the connector is to tell them. Comments of columns and of
            the table are kept as Arrow metadata under ``comment``.
        primary_key: columns of the key, spelled as they are declared.
        options: the ``WITH`` clause, in order; may hold secrets, so it is not shown.
        or_replace: an older table of the name gives way.
        if_not_exists: an older table of the name stays.
    """

    name: str
    columns: pa.Schema | None = None
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    """``DROP [TEMPORARY] TABLE [IF EXISTS] name``.

    Args:
        name: the table's name.
        if_exists: that there is none is no error.
        is_temporary: it says TEMPORARY, as Flink does and Spark does not; what is dropped is the same.
    """

    name: str
    if_exists: bool = False
    is_temporary: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class DescribeTable:
    """``DESC[RIBE] [TABLE] [EXTENDED] name``."""

    name: str
    extended: bool = False


@dataclass(frozen=True)
class ShowCreateTable:
    """``SHOW CREATE TABLE name``."""

    name: str


@dataclass(frozen=True)
class ShowColumns:
    """``SHOW COLUMNS {IN | FROM} name``."""

    name: str


@dataclass(frozen=True)
class ShowTables:
    """``SHOW TABLES [{IN | FROM} database] [[LIKE] 'pattern']``; Spark's answer wants our tables added.

    Args:
        like: the pattern that names must match, as Spark's SHOW TABLES reads it; None takes all.
        namespace: the database asked about; None is the current one.
    """

    like: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class ShowLookupTables:
    """``SHOW LOOKUP TABLES``."""


@dataclass(frozen=True)
class RefreshTable:
    """``REFRESH [TABLE] name``."""

    name: str


Ddl = (
    CreateLookupTable
    | DropTable
    | DescribeTable
    | ShowCreateTable
    | ShowColumns
    | ShowTables
    | ShowLookupTables
    | RefreshTable
)


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
