"""Which columns of a source a table can be created with."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lookup_hints.errors import DdlError
from lookup_hints.spi import LookupRequest, ReportsSchema, SyncLookup
from lookup_hints.spi.request_and_answer import Answer
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.catalog import LookupCatalog
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl


class Discovering(SyncLookup, ReportsSchema):
    """Its source has these columns."""

    names: tuple[str, ...] = ()

    def lookup(self, request: LookupRequest) -> Answer:
        raise AssertionError("nothing is asked")

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        return pa.schema([(name, pa.int64()) for name in self.names]), ()


class Twice(Discovering):
    names = ("id", "name", "ID")


def _refused(connector: str, columns: str = "") -> str:
    text = f"CREATE TEMPORARY TABLE t {columns} WITH ('connector' = '{__name__}:{connector}')"
    ddl = parse_ddl(SqlText(text))
    assert isinstance(ddl, CreateLookupTable)
    with pytest.raises(DdlError) as caught:
        LookupCatalog().create(ddl, lambda _: None)
    return str(caught.value)


def test_columns_that_differ_in_capitals_alone_are_refused_with_the_cure() -> None:
    told = _refused("Twice")
    assert "table t: its columns 'id' and 'ID' differ in capitals alone at its source." in told
    assert "Give a column list: CREATE TEMPORARY TABLE t (id BIGINT, ...) WITH (...)." in told


def test_a_table_without_columns_is_refused() -> None:
    assert "table t: it has no columns at its source." in _refused("Discovering")
