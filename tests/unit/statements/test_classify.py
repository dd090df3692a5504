"""What a statement is, its parameters, and words that begin none."""

from __future__ import annotations

import pytest

from lookup_hints.errors import QueryError
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import (
    Explain,
    Setting,
    SparkStatement,
    check_first_word,
    gives_text,
    parameters,
    read_statement,
)
from lookup_hints.streaming.insert import StreamInsert
from lookup_hints.tables.catalog import LookupCatalog
from lookup_hints.tables.ddl import CreateLookupTable, DropTable


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SET lookup.transport = arrow", Setting),
        ("SET spark.sql.ansi.enabled = true", SparkStatement),
        ("EXPLAIN SELECT 1", Explain),
        ("/* c */ DROP TABLE t", DropTable),
        ("CREATE TEMPORARY TABLE t (a INT) WITH ('connector' = 'memory')", CreateLookupTable),
        ("CREATE TABLE t (a INT) USING parquet", SparkStatement),
        ("INSERT INTO noop SELECT * FROM STREAM s", StreamInsert),
        ("INSERT INTO t SELECT * FROM s", SparkStatement),
        ("SELEC 1", SparkStatement),
    ],
)
def test_what_a_statement_is(text: str, kind: type) -> None:
    assert isinstance(read_statement(SqlText(text)), kind)


def test_ddl_about_a_table_that_is_not_ours_is_sparks() -> None:
    assert read_statement(SqlText("DROP TABLE t"), lambda _: False) == SparkStatement(("DROP", "TABLE", "T"))
    assert LookupCatalog().concerns(DropTable("t", is_temporary=True))
    assert not LookupCatalog().concerns(DropTable("t"))


@pytest.mark.parametrize(
    ("text", "is_text"),
    [
        ("EXPLAIN SELECT 1", True),
        ("SHOW CREATE TABLE t", True),
        ("show create table a.t", True),
        ("SHOW TABLES", False),
        ("SELECT 1", False),
    ],
)
def test_which_statements_give_a_text(text: str, is_text: bool) -> None:
    assert gives_text(read_statement(SqlText(text))) is is_text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT :a, f(:b) FROM t WHERE x = :c AND y IN (:d,:e) LIMIT :f", list("abcdef")),
        ("SELECT * FROM IDENTIFIER(:t) WHERE d BETWEEN :a AND :b", ["t", "a", "b"]),
        ("SELECT v:a.b, v['x']:y, f(v):z, `v`:w, x::int FROM t", []),
        ("SELECT ':a' -- :b\n/* :c */", []),
        ("outer: BEGIN SELECT :a; END", ["a"]),
        ("SELECT CASE WHEN :`a b` THEN 1 END", ["a b"]),
        ("SELECT :a, x::INT, v:b.c, m['k']:d, ':e', -- :f\n :g + :a", ["a", "g", "a"]),
    ],
)
def test_parameters_are_found(text: str, names: list[str]) -> None:
    assert [name for name, _ in parameters(SqlText(text))] == names


@pytest.mark.parametrize(
    ("text", "near"), [("SELEC 1", "SELECT"), ("inser INTO t SELECT 1", "INSERT"), ("CREAT VIEW v", "CREATE")]
)
def test_a_misspelt_first_word_is_told_from_a_statement(text: str, near: str) -> None:
    with pytest.raises(QueryError, match=f"No statement begins with .* Did you mean {near}\\?"):
        check_first_word(SqlText(text))


@pytest.mark.parametrize(
    "text", ["SELECT 1", "(SELECT 1)", "with a AS (SELECT 1) FROM a", "VACUUM t", "lbl: BEGIN END", ""]
)
def test_statements_of_spark_and_of_table_formats_are_known(text: str) -> None:
    assert check_first_word(SqlText(text)) is None


def test_a_word_of_an_extension_is_noted() -> None:
    note = check_first_word(SqlText("SUMMON TABLE t"))
    assert note == "not checked: no statement of Spark's own begins with SUMMON"
