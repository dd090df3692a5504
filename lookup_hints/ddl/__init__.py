"""Statements about lookup tables: CREATE, DROP, DESCRIBE and SHOW, read and written."""

from lookup_hints.ddl.parse import parse_ddl, shown_statement
from lookup_hints.ddl.show import create_statement
from lookup_hints.ddl.statements import (
    CreateLookupTable,
    Ddl,
    DescribeTable,
    DropTable,
    ShowColumns,
    ShowCreateTable,
    ShowLookupTables,
    ShowTables,
)

__all__ = [
    "CreateLookupTable",
    "Ddl",
    "DescribeTable",
    "DropTable",
    "ShowColumns",
    "ShowCreateTable",
    "ShowLookupTables",
    "ShowTables",
    "create_statement",
    "parse_ddl",
    "shown_statement",
]
