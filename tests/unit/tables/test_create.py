"""CREATE TEMPORARY TABLE ... WITH ('connector' = ...): what it says, and every way to get it wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lookup_hints.errors import DdlError
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl, shown_statement


def created(text: str) -> CreateLookupTable:
    statement = parse_ddl(SqlText(text))
    assert isinstance(statement, CreateLookupTable)
    return statement


def refused(text: str) -> DdlError:
    with pytest.raises(DdlError) as caught:
        parse_ddl(SqlText(text))
    return caught.value


def messages(text: str) -> list[str]:
    return [f"{problem.message} {problem.tip}".rstrip() for problem in refused(text).problems]


def test_a_whole_statement() -> None:
    statement = created(
        "-- who orders\n"
        "create temporary table customers (\n"
        "  id BIGINT NOT NULL COMMENT 'the customer''s number',\n"
        "  `full name` STRING, -- first and last\n"
        "  größe DECIMAL(10, 2),\n"
        "  PRIMARY KEY (ID) NOT ENFORCED\n"
        ") COMMENT 'who orders' WITH (\n"
        "  'connector' = 'postgres', 'url' = '${env:CUSTOMERS_DSN}',\n"
        "  'lookup.async' = true, 'capacity' = 10\n"
        ");\n"
    )
    assert statement.name == "customers"
    assert statement.columns == pa.schema(
        [("id", pa.int64()), ("full name", pa.string()), ("größe", pa.decimal128(10, 2))]
    )
    assert statement.columns.metadata == {b"comment": b"who orders"}
    assert statement.columns.field("id").metadata == {b"comment": b"the customer's number"}
    assert statement.primary_key == ("id",)
    assert list(statement.options.items()) == [
        ("connector", "postgres"),
        ("url", "${env:CUSTOMERS_DSN}"),
        ("lookup.async", "true"),
        ("capacity", "10"),
    ]
    assert (statement.or_replace, statement.if_not_exists) == (False, False)


def test_without_columns_the_connector_tells_them() -> None:
    statement = created("CREATE TEMP TABLE `my table` WITH ('connector'='postgres')")
    assert (statement.name, statement.columns, statement.primary_key) == ("my table", None, ())


@pytest.mark.parametrize("word", ["TEMPORARY", "TEMP", "temporary"])
def test_or_replace_and_if_not_exists(word: str) -> None:
    assert created(f"CREATE OR REPLACE {word} TABLE t WITH ('connector'='x')").or_replace
    assert created(f"CREATE {word} TABLE IF NOT EXISTS t WITH ('connector'='x')").if_not_exists


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT, B INT, PRIMARY KEY (b, A) NOT ENFORCED", ("B", "a")),
        ("a INT PRIMARY KEY NOT ENFORCED, b INT", ("a",)),
        ("a INT NOT NULL COMMENT 'x' PRIMARY KEY NOT ENFORCED", ("a",)),
        ("a INT, CONSTRAINT pk PRIMARY KEY (a) NOT ENFORCED", ("a",)),
        ("a INT", ()),
    ],
)
def test_the_primary_key_is_spelled_as_its_columns_are(columns: str, key: tuple[str, ...]) -> None:
    assert created(f"CREATE TEMPORARY TABLE t ({columns}) WITH ('connector'='x')").primary_key == key


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMPORARY TABLE t USING parquet OPTIONS (path 'x')",
        "CREATE TEMPORARY TABLE t (id INT) USING parquet",
        "CREATE TEMPORARY TABLE t AS SELECT 1",
        "CREATE TABLE t (id INT)",
        "CREATE TABLE t USING parquet AS SELECT 1 AS connector",
        "CREATE TABLE t AS WITH q AS (SELECT 'connector' = 'x') SELECT * FROM q",
        "CREATE TABLE t USING parquet AS SELECT * FROM s WITH ('connector'='x')",
        "CREATE TABLE t USING x OPTIONS ('connector'='y')",
        "CREATE DATABASE d WITH DBPROPERTIES ('connector'='x')",
        "SELECT 'connector' = 'x'",
        "SELECT * FROM t WITH ('connector'='x')",
        "SELECT * FROM (SELECT * FROM s JOIN t WITH ('connector'='x') ON 1 = 1)",
        "WITH q AS (SELECT * FROM t WITH ('connector'='x')) SELECT 'WITH (''connector'')' FROM q",
        "INSERT INTO t WITH ('connector'='x') SELECT 1",
        "EXPLAIN SELECT a, count(*) FROM t GROUP BY a WITH CUBE HAVING 'connector' = a",
        "CREATE TEMPORARY VIEW t AS SELECT 1",
        "CREATE OR REPLACE TABLE t AS SELECT 1",
        "CREATE FUNCTION f AS 'x'",
        "SELECT 1",
        "",
        "-- nothing",
    ],
)
def test_what_is_not_ours_is_left_to_spark(text: str) -> None:
    assert parse_ddl(SqlText(text)) is None


_WITH = "WITH ('connector'='x')"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"CREATE TABLE t (id INT) {_WITH}",
            "A table WITH ('connector' = ...) must be temporary."
            " Write CREATE TEMPORARY TABLE: a lookup table lives in the session.",
        ),
        (
            "CREATE TEMPORARY TABLE t (id INT)",
            "WITH is missing. Write WITH ('connector' = '<name>', ...).",
        ),
        (
            "CREATE TEMPORARY TABLE t LIKE u",
            "WITH is missing before LIKE. Write WITH ('connector' = '<name>', ...).",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH",
            "'(' after WITH is missing. Write WITH ('connector' = '<name>', ...).",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH ('url'='x')",
            "WITH names no 'connector'. Write WITH ('connector' = '<name>', ...).",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH ('conector'='x')",
            "WITH names no 'connector', but 'conector'. Did you mean 'connector'?",
        ),
        ("CREATE TEMPORARY TABLE", "The name of the table is missing."),
        (
            f"CREATE TEMPORARY TABLE db.t {_WITH}",
            "A lookup table is temporary and belongs to no database. Write t.",
        ),
        (
            f"CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS t {_WITH}",
            "OR REPLACE and IF NOT EXISTS exclude each other. Write one of them.",
        ),
        (
            f"CREATE TEMPORARY TABLE t () {_WITH}",
            "The column list is empty. Without it, the connector tells the columns.",
        ),
        (f"CREATE TEMPORARY TABLE t (id INT {_WITH}", "This parenthesis is never closed."),
        (f"CREATE TEMPORARY TABLE t (id INT,) {_WITH}", "A column is missing here."),
        (
            f"CREATE TEMPORARY TABLE t (id INT, ID INT) {_WITH}",
            "There are two columns called 'ID'. Names ignore case.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (customer INT, PRIMARY KEY (custmer) NOT ENFORCED) {_WITH}",
            "PRIMARY KEY names 'custmer', which is not a column. Did you mean 'customer'?",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a INT, PRIMARY KEY (a, A) NOT ENFORCED) {_WITH}",
            "PRIMARY KEY names 'A' twice. Names ignore case.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a INT, PRIMARY KEY (a)) {_WITH}",
            "NOT ENFORCED after the primary key is missing. The key is not checked, and SQL wants that said.",
        ),
        (
            "CREATE TEMPORARY TABLE t (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)"
            f" {_WITH}",
            "There is another PRIMARY KEY already. Write PRIMARY KEY (a, b) once.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a INT, b AS a + 1) {_WITH}",
            "Column 'b': A computed column is not for lookup tables. Compute it in the query.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a INT DEFAULT 1) {_WITH}",
            "Column 'a': A default is not for lookup tables. Write COALESCE in the query.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL 1 SECOND) {_WITH}",
            "WATERMARK is not for lookup tables. Leave it out.",
        ),
        (
            f"CREATE TEMPORARY TABLE t (a INT b STRING) {_WITH}",
            "Column 'a': This is not understood after the type. Is a comma missing?",
        ),
        (f"CREATE TEMPORARY TABLE t (a) {_WITH}", "Column 'a': The type is missing."),
        (
            f"CREATE TEMPORARY TABLE t (a INT) PARTITIONED BY (a) {_WITH}",
            "PARTITIONED BY is not for lookup tables. Leave it out.",
        ),
        (f"CREATE TEMPORARY TABLE t {_WITH} AS SELECT 1", "Nothing can follow WITH (...) of a lookup table."),
        (
            "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'connector'='y')",
            "The option 'connector' is given twice.",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH (connector='x')",
            "The key connector is not in quotes. Write 'connector'.",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH ('connector'='x' 'path'='y')",
            "A comma is missing after the value of 'connector'.",
        ),
        ("CREATE TEMPORARY TABLE t WITH ('connector'='x)", "This quote or comment is never closed."),
        (
            f"CREATE TEMPORARY TABLE t (id INT) USING jdbc {_WITH}",
            "WITH is missing before USING. Write WITH ('connector' = '<name>', ...).",
        ),
    ],
)
def test_a_mistake_says_what_and_what_to_try(text: str, sentence: str) -> None:
    assert messages(text) == [sentence]


_WHOLE = "Write CREATE TEMPORARY TABLE <name> (...) WITH ('connector' = '<name>', ...)."


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"CREATE TEMPORARY TABL t (id INT) {_WITH}", "TABL"),
        (f"CRAETE TEMPORARY TABLE t (id INT) {_WITH}", "CRAETE"),
        (f"CREATE TEMPORARY VIEW t {_WITH}", "VIEW"),
        (f"CREATE TABEL t (from INT) {_WITH}", "TABEL"),
        (f"CREATE t {_WITH}", "t"),
        (f"TABLE t {_WITH}", "TABLE"),
        ("TABLE t WITH (connector='x')", "TABLE"),
        (f"SELECT * FROM s; CREATE TEMPORARY TABLE t {_WITH}", "SELECT"),
    ],
)
def test_a_connector_in_no_statement_of_ours_is_not_passed_on_to_spark(text: str, word: str) -> None:
    sentence = (
        f"A table WITH ('connector' = ...) is not created like this: {word} is not understood. {_WHOLE}"
    )
    assert messages(text) == [sentence]


def test_a_statement_that_is_not_understood_is_shown_without_its_options() -> None:
    text = "CREATE TEMPORARY TABL t (id INT) WITH ('connector'='x', 'url'='a://u:hunter2@h')"
    assert str(refused(text)) == (
        "line 1, column 18: A table WITH ('connector' = ...) is not created like this: TABL is not understood."
        f" {_WHOLE}\n"
        "CREATE TEMPORARY TABL t (id INT) WITH ('connector'='x', 'url'=*****************)\n"
        "                 ^^^^"
    )


def test_a_lookup_table_is_not_explained() -> None:
    assert str(refused(f"EXPLAIN CREATE TEMPORARY TABLE t (id INT) {_WITH}")) == (
        "line 1, column 1: EXPLAIN is for queries, not for a table WITH ('connector' = ...)."
        " Leave EXPLAIN out: a source is asked for its columns at most.\n"
        "EXPLAIN CREATE TEMPORARY TABLE t (id INT) WITH ('connector'='x')\n"
        "^^^^^^^"
    )


def test_all_mistakes_are_shown_at_once_each_with_its_place() -> None:
    text = (
        "CREATE TEMPORARY TABLE db.t (\n"
        "  id BIGNT, at TIME,\n"
        "  PRIMARY KEY (ids) NOT ENFORCED\n"
        ") WITH ('url'='x' 'user'='y')"
    )
    assert str(refused(text)) == (
        "line 1, column 24: A lookup table is temporary and belongs to no database. Write t.\n"
        "CREATE TEMPORARY TABLE db.t (\n"
        "                       ^^^^\n"
        "line 2, column 6: Column 'id': The type is missing before BIGNT. Did you mean 'BIGINT'?\n"
        "  id BIGNT, at TIME,\n"
        "     ^^^^^\n"
        "line 2, column 16: Column 'at': TIME cannot be the type of a lookup column.\n"
        "  id BIGNT, at TIME,\n"
        "               ^^^^\n"
        "line 3, column 16: PRIMARY KEY names 'ids', which is not a column. Did you mean 'id'?\n"
        "  PRIMARY KEY (ids) NOT ENFORCED\n"
        "               ^^^\n"
        "line 4, column 19: A comma is missing after the value of 'url'.\n"
        ") WITH ('url'=*** ******=***)\n"
        "                  ^^^^^^"
    )


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t WITH ('connector'='x', 'password'='hunter2')",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password' 'hunter2')",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'=hunter2)",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'='hunter2'",
        "CREATE TEMPORARY TABLE t WITH ('connector='x', 'password'='hunter2')",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'='hunter2)",
        "CREATE TEMPORARY TABLE t WITH ('password'='hunter2') -- hunter2",
        "CREATE TEMPORARY TABLE t ('connector'='x', 'password'='hunter2')",
        "CREATE TEMPORARY TABLE t ('connector'='x', 'password'='hunter2)",
        "CREATE TEMPORARY TABLE t COMMENT 'oops WITH ('connector'='x', 'password'='hunter2')",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'='hunter2') AS SELECT 'hunter2'",
        "CREATE TEMPORARY TABLE t WITH ('connector'='x', 'connector'='y' /* hunter2 */)",
        "CREATE TEMPORARY TABL t WITH ('connector'='x', 'password'='hunter2')",
        "CRAETE TEMPORARY TABLE t WITH ('connector='x', 'password'='hunter2')",
        "CREATE TABEL t WITH ('connector'='x', 'password'='hunter2)",
        "EXPLAIN EXTENDED CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'='hunter2')",
        "CREATE TEMPORARY TABLE t USING jdbc WITH ('connector'='x', 'password'='hunter2')",
    ],
)
def test_values_of_options_are_never_shown(text: str) -> None:
    error = refused(text)
    assert "hunter2" not in str(error)
    assert "hunter2" not in repr(error)
    assert "hunter2" not in shown_statement(SqlText(text))


def test_options_are_not_part_of_the_repr() -> None:
    assert "hunter2" not in repr(
        created("CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password'='hunter2')")
    )


def test_a_statement_is_shown_without_the_values_of_its_options() -> None:
    assert (
        shown_statement(
            SqlText("CREATE TEMPORARY TABLE t (id INT) WITH ('connector'='x', 'password'='hunter2')")
        )
        == "CREATE TEMPORARY TABLE t (id INT) WITH ('connector'='x', 'password'=*********)"
    )


@pytest.mark.parametrize(
    "text", ["SELECT 'it''s' -- plain", "CREATE TEMPORARY VIEW v AS SELECT 'x' = 'y'", "DROP TABLE t"]
)
def test_a_statement_without_options_is_shown_as_it_is(text: str) -> None:
    assert shown_statement(SqlText(text)) == text
