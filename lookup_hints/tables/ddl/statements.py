"""The statements that may concern lookup tables, as values.

Only ``CreateLookupTable`` and ``ShowLookupTables`` are surely ours. Of the others the text alone does not
tell: whoever holds the catalog looks the name up, and leaves the statement to Spark when it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


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
