"""DROP, DESCRIBE and SHOW; and the statement that creates a table, written back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_hints.errors import DdlError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.ddl import (
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
    parse_ddl,
)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("DROP TABLE t", DropTable("t")),
        ("drop temporary table if exists `my t`;", DropTable("my t", if_exists=True)),
        ("DROP TEMP TABLE t", DropTable("t")),
        ("DESC t", DescribeTable("t")),
        ("DESCRIBE TABLE t", DescribeTable("t")),
        ("DESCRIBE TABLE EXTENDED t", DescribeTable("t", extended=True)),
        ("DESC FORMATTED t -- all of it", DescribeTable("t", extended=True)),
        ("DESC extended", DescribeTable("extended")),
        ("SHOW CREATE TABLE t", ShowCreateTable("t")),
        ("SHOW COLUMNS IN t", ShowColumns("t")),
        ("SHOW COLUMNS FROM t", ShowColumns("t")),
        ("SHOW TABLES", ShowTables()),
        ("SHOW TABLES LIKE 'c*'", ShowTables(like="c*")),
        ("SHOW TABLES 'c*'", ShowTables(like="c*")),
        ("SHOW TABLES IN db LIKE 'c*'", ShowTables(like="c*", namespace="db")),
        ("SHOW LOOKUP TABLES;", ShowLookupTables()),
        ("REFRESH TABLE t", RefreshTable("t")),
        ("refresh `my t`;", RefreshTable("my t")),
        ("REFRESH table", RefreshTable("table")),
    ],
)
def test_statements_that_may_concern_lookup_tables(text: str, statement: Ddl) -> None:
    assert parse_ddl(SqlText(text)) == statement


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE db.t",
        "DROP TABLE t PURGE",
        "DROP TABLE",
        "DROP VIEW t",
        "DESCRIBE FUNCTION f",
        "DESCRIBE QUERY SELECT 1",
        "DESC db.t",
        "DESC t AS JSON",
        "DESC",
        "SHOW CREATE TABLE t AS SERDE",
        "SHOW COLUMNS IN t IN db",
        "SHOW COLUMNS t",
        "SHOW TABLES IN",
        "SHOW TABLES IN a.b",
        "SHOW TABLE EXTENDED LIKE 'x'",
        "SHOW LOOKUP",
        "SHOW FUNCTIONS",
        "REFRESH TABLE db.t",
        "REFRESH FUNCTION f",
        "REFRESH '/a/path'",
        "REFRESH",
    ],
)
def test_what_is_not_exactly_one_of_them_is_left_to_spark(text: str) -> None:
    assert parse_ddl(SqlText(text)) is None


def test_show_create_table_masks_secrets() -> None:
    table = LookupTable(
        "customers",
        pa.schema(
            [
                pa.field("id", pa.int64(), metadata={"comment": "the customer's"}),
                ("tags", pa.list_(pa.string())),
            ],
            metadata={"comment": "who orders"},
        ),
        ("id",),
        {
            "connector": "postgres",
            "url": "postgres://app:hunter2@db/shop",
            "token": "hunter2",
            "dsn": "${env:CUSTOMERS_DSN}",
            "password": "${env:PASSWORD}",
            "proxy": "https://u:hunter2@proxy:8080",
        },
    )
    assert create_statement(table, {"token", "password", "proxy"}) == (
        "CREATE TEMPORARY TABLE `customers` (\n"
        "  `id` BIGINT COMMENT 'the customer\\'s',\n"
        "  `tags` ARRAY<STRING>,\n"
        "  PRIMARY KEY (`id`) NOT ENFORCED\n"
        ") COMMENT 'who orders' WITH (\n"
        "  'connector' = 'postgres',\n"
        "  'url' = 'postgres://app:***@db/shop',\n"
        "  'token' = '***',\n"
        "  'dsn' = '${env:CUSTOMERS_DSN}',\n"
        "  'password' = '${env:PASSWORD}',\n"
        "  'proxy' = 'https://u:***@proxy:8080'\n"
        ")"
    )


_TEXT = st.text(min_size=1)
_TYPES = st.recursive(
    st.sampled_from(
        [pa.int64(), pa.string(), pa.decimal128(7, 2), pa.timestamp("us", tz="UTC"), pa.date32()]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(_TEXT, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn) -> LookupTable:
    names = draw(st.lists(_TEXT, min_size=1, max_size=4, unique_by=str.lower))
    schema = pa.schema([(name, draw(_TYPES)) for name in names])
    key = tuple(draw(st.lists(st.sampled_from(names), unique=True)))
    options = draw(st.dictionaries(_TEXT, st.text(), max_size=3))
    return LookupTable(draw(_TEXT), schema, key, {**options, "connector": draw(_TEXT)})


@pytest.mark.work(3)
@settings(deadline=None)
@given(tables())
def test_the_written_statement_reads_back_as_the_table(table: LookupTable) -> None:
    statement = parse_ddl(SqlText(create_statement(table, secret_keys=set())))
    assert isinstance(statement, CreateLookupTable)
    assert statement.name == table.name
    assert statement.columns == table.schema
    assert statement.primary_key == table.primary_key
    assert statement.options.keys() == table.options.keys()


@pytest.mark.parametrize("rest", ["db.t", "t PURGE", ""])
def test_a_temporary_table_is_dropped_by_its_name_alone(rest: str) -> None:
    with pytest.raises(DdlError, match=r"names no table\. Write DROP TEMPORARY TABLE \[IF EXISTS\] <name>"):
        parse_ddl(SqlText(f"DROP TEMPORARY TABLE IF EXISTS {rest}"))
