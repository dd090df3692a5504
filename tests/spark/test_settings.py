"""Settings of the session that change what the text of a statement says: to Spark, and so to us."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from lookup_connectors.memory import put_rows

from lookup_hints import register_connector
from lookup_hints.spi import TEXT, Option, SyncLookup
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Unasked(SyncLookup):
    """A connector whose tables are only created, described and dropped."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (Option("data", TEXT, "Anything."),)

    def lookup(self, request: LookupRequest) -> Answer:
        raise AssertionError("it is not asked")


register_connector("unasked", Unasked)
UTC = timezone.utc
NTZ = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "Asia/Tokyo"}
DOUBLE = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
ESCAPED = {"spark.sql.parser.escapedStringLiterals": "true"}
MIDNIGHT = datetime(2024, 3, 9, 15, tzinfo=UTC)  # in Tokyo


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("settings"))
    day, local = date(2024, 3, 10), datetime(2024, 3, 10)
    made.table(
        "o",
        "n INT, k BIGINT, s STRING, d DATE, t TIMESTAMP_LTZ, u TIMESTAMP_NTZ",
        [(1, 1, "2024-03-10", day, MIDNIGHT, local), (2, 3, r"b\t", None, None, None)],
        partitions=1,
    )
    made.dimension(
        "c",
        "id BIGINT, name STRING, at TIMESTAMP_LTZ, local TIMESTAMP_NTZ",
        [(1, "a", MIDNIGHT, local), (3, r"b\t", None, None)],
        key="id",
    )
    made.dimension("of_time", "at TIMESTAMP_LTZ, word STRING, `my day` STRING", [(MIDNIGHT, "x", "Sunday")])
    return made


@pytest.fixture
def under(twins: Twins) -> Iterator[dict[str, str]]:
    """What a test puts in here is set in both sessions until its end."""
    wanted: dict[str, str] = {}
    before = {key: twins.plain.conf.get(key, None) for key in (*NTZ, *DOUBLE, *ESCAPED)}
    yield wanted
    for spark in twins.sessions:
        for key in (*wanted, *before):
            spark.conf.unset(key)
        for key, value in before.items():
            if value is not None:
                spark.conf.set(key, value)


def test_a_moment_is_found_by_keys_of_any_type_where_a_plain_timestamp_has_no_zone(
    twins: Twins, under: dict[str, str]
) -> None:
    under.update(NTZ)
    for key, value in NTZ.items():
        twins.conf(key, value)
    found = twins.check(
        "SELECT 'day' AS key, f.word, hour(f.at) AS h, f.at FROM o LEFT JOIN of_time f ON o.d = f.at"
        " UNION ALL SELECT 'local', f.word, hour(f.at), f.at FROM o LEFT JOIN of_time f ON o.u = f.at"
        " UNION ALL SELECT 'text', f.word, hour(f.at), f.at FROM o LEFT JOIN of_time f"
        " ON try_to_timestamp(o.s) = f.at"
        " UNION ALL SELECT 'literal', word, hour(at), at FROM of_time WHERE at = TIMESTAMP '2024-03-10 00:00:00'"
        " UNION ALL SELECT typeof(at), name, hour(at), at FROM c WHERE id = 1 AND local = TIMESTAMP '2024-03-10 00:00:00'"
    )
    assert sum("'x'" in row and "0" in row for row in found) == 4
    assert sum("'a'" in row and "'timestamp'" in row for row in found) == 1


def test_timestamp_in_ddl_is_the_type_that_sparks_own_create_table_gives_it(
    twins: Twins, under: dict[str, str]
) -> None:
    session = twins.session
    columns = "(id INT, t TIMESTAMP, l TIMESTAMP_LTZ, n ARRAY<STRUCT<At: TIMESTAMP(3)>>)"
    shown = []
    for setting in ("TIMESTAMP_LTZ", "timestamp_ntz"):
        under["spark.sql.timestampType"] = setting
        session.spark.conf.set("spark.sql.timestampType", setting)
        session.sql(
            f"CREATE OR REPLACE TEMPORARY TABLE made {columns} WITH ('connector' = 'unasked', 'data' = 'm')"
        )
        assert [row.data_type for row in session.sql("DESCRIBE made").collect()] == [
            kind
            for (kind,) in session.spark.sql(
                "SELECT explode(array('int', typeof(CAST(NULL AS TIMESTAMP)), 'timestamp',"
                " replace(typeof(CAST(NULL AS ARRAY<STRUCT<At: TIMESTAMP>>)), 'at:', 'At:')))"
            ).collect()
        ]
        shown.append(session.sql("SHOW CREATE TABLE made").collect()[0][0])
    assert "`t` TIMESTAMP_LTZ,\n  `l` TIMESTAMP_LTZ" in shown[0]
    assert "`t` TIMESTAMP_NTZ,\n  `l` TIMESTAMP_LTZ" in shown[1]
    session.sql(shown[0].replace("CREATE", "CREATE OR REPLACE", 1))
    assert session.sql("SHOW CREATE TABLE made").collect()[0][0] == shown[0]


def test_names_in_double_quotes_are_names_in_queries_ddl_keys_and_hints(
    twins: Twins, under: dict[str, str]
) -> None:
    under.update(DOUBLE)
    for key, value in DOUBLE.items():
        twins.conf(key, value)
    twins.check(
        'SELECT "o"."n", "f"."my day" AS "a b" FROM o AS "o" LEFT JOIN "of_time" AS "f" ON "o"."t" = "f"."at"'
        ' AND "f".word <> \'"q"\' UNION ALL SELECT n, "name" FROM "o" JOIN "c" ON "o"."k" = "id"'
    )
    session = twins.session
    put_rows("quoted", [{"a b": 1, "v": "x"}])
    session.sql(
        'CREATE OR REPLACE TEMPORARY TABLE "my table" ("a b" BIGINT, v STRING, PRIMARY KEY ("a b") NOT ENFORCED)'
        " WITH (\"connector\" = \"memory\", 'data' = 'quoted')"
    )
    sql = 'SELECT /*+ LOOKUP("table"="q", \'async\'=\'false\') */ o.n, q.v FROM o JOIN "my table" "q" ON o.k = q."a b"'
    assert [tuple(row) for row in session.sql(sql).collect()] == [(1, "x")]
    assert "sync" in session.explain(sql)
    assert session.sql('DESCRIBE "my table"').count() == 2
    session.sql('DROP TABLE "my table"')


def test_variables_stand_for_names_and_anything_else(twins: Twins, under: dict[str, str]) -> None:
    under.update(
        {"of": "c", "key": "o.k", "rest": "AND c.name = 'a' OR false", "tick": "`name`", "empty": ""}
    )
    for key, value in under.items():
        twins.conf(key, value)
    rows = twins.check(
        "SELECT n, ${tick} AS `${of}` FROM o ${empty} LEFT JOIN ${hiveconf:of} ON ${spark:key} = c.id ${rest}"
    )
    assert sorted(rows) == [("1", "'a'"), ("2", "None")]
    session = twins.session
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE ${of}2 (id BIGINT, ${tick} STRING, PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ('connector' = 'unasked', 'data' = '${of}')"
    )
    assert "'data' = 'c'" in session.sql("SHOW CREATE TABLE ${of}2").collect()[0][0]
    session.sql("DROP TABLE c2")
    under["spark.sql.variable.substitute"] = "false"
    twins.conf("spark.sql.variable.substitute", "false")
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        session.sql("SELECT ${tick} FROM o JOIN c ON o.k = c.id")


def test_references_to_secrets_are_not_variables(twins: Twins, tmp_path: Path) -> None:
    """Spark's JVM knows HOME; it must not find its name in any text that it reads, ours included."""
    session = twins.session
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE late (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED)"
        f" WITH ('connector' = 'unasked', 'data' = '${{env:HOME}}/${{file:{secret}}}')"
    )
    (table,) = (each for each in session.tables() if each.name == "late")
    assert table.options["data"] == f"${{env:HOME}}/${{file:{secret}}}"
    shown = session.sql("SHOW CREATE TABLE late").collect()[0][0]
    assert "'${env:HOME}/${file:" in shown
    assert "${env:HOME}" in str(session.sql("DESCRIBE EXTENDED late").collect())
    session.sql("DROP TABLE late")


def test_strings_are_read_as_they_stand_where_the_session_says_so(
    twins: Twins, under: dict[str, str]
) -> None:
    under.update(ESCAPED)
    for key, value in ESCAPED.items():
        twins.conf(key, value)
    assert twins.check(
        r"SELECT o.n, c.id FROM o JOIN c ON o.k = c.id WHERE c.name = 'b\t' AND o.s RLIKE '^b\\t$'"
    )
    session = twins.session
    session.sql(
        r"CREATE OR REPLACE TEMPORARY TABLE raw (id INT COMMENT 'it\'s') WITH ('connector' = 'unasked', 'data' = 'C:\temp\\x')"
    )
    (table,) = (each for each in session.tables() if each.name == "raw")
    assert table.options["data"] == r"C:\temp\\x"
    assert r"C:\\temp" in session.sql("SHOW CREATE TABLE raw").collect()[0][0]
    session.sql("DROP TABLE raw")
    assert r"'b\t'" in session.explain(r"SELECT * FROM o JOIN c ON o.k = c.id AND c.name = 'b\t'")
