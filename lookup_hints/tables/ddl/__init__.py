"""Statements about lookup tables: CREATE, DROP, DESCRIBE, SHOW and REFRESH, read and written."""

from lookup_hints.tables.ddl.columns import plain_timestamp
from lookup_hints.tables.ddl.parse import columns_of, parse_ddl, shown_statement
from lookup_hints.tables.ddl.statements import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    RefreshTable,
    ShowColumns,
    ShowCreateTable,
    ShowLookupTables,
    ShowTables,
    create_statement,
)

__all__ = [
    "CreateLookupTable",
    "Ddl",
    "DescribeTable",
    "DropTable",
    "RefreshTable",
    "ShowColumns",
    "ShowCreateTable",
    "ShowLookupTables",
    "ShowTables",
    "columns_of",
    "create_statement",
    "parse_ddl",
    "plain_timestamp",
    "shown_statement",
]
