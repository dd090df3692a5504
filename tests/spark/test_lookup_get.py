"""``lookup_get`` end to end: what is asked for, in each kind of statement, and what errors show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import UnsupportedOperationException

from lookup_hints.errors import QueryError
from tests.queries.worlds import Data, World, Worlds
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "o": Data(pa.table({"no": [1, 2, 3, 4, 5], "k": [1, 2, 9, None, 1]})),
    "c": Data(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"], "x": [None, 5, 6]}), ("id",)),
}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("lookup_get"), TABLES)


@pytest.fixture
def world(worlds: Worlds) -> World:
    found = worlds.world(frozenset({"c"}))
    found.forget()
    return found


def test_columns_of_one_key_are_asked_for_in_one_request(worlds: Worlds, world: World) -> None:
    text = (
        "SELECT no, lookup_get('c', 'name', k) AS n, lookup_get('c', 'x', o.k, -1) AS x FROM o"
        " WHERE lookup_get('C', 'NAME', K) = 'a' OR no > 1"
    )
    worlds.check(text, frozenset({"c"}))
    (request,) = world.calls("c").requests
    assert sorted(request["keys"]) == [["1"], ["2"], ["9"]]
    assert request["columns"] == ["id", "name", "x"]


def test_rows_that_other_conditions_drop_are_not_asked_for(worlds: Worlds, world: World) -> None:
    worlds.check(
        "SELECT no FROM o WHERE no < 3 AND lookup_get('c', 'x', k, 0) > 1 AND k > 1", frozenset({"c"})
    )
    assert list(world.calls("c").keys) == [("2",)]


def test_a_value_of_a_group_may_be_the_key_of_another(worlds: Worlds, world: World) -> None:
    worlds.check(
        "SELECT k, lookup_get('c', 'x', k + lookup_get('c', 'id', k, lookup_get('c', 'id', 1)), -1) AS x,"
        " count(*) AS n FROM o GROUP BY k",
        frozenset({"c"}),
    )


def test_a_hint_of_the_block_gives_the_options(world: World) -> None:
    hint = "/*+ LOOKUP('table'='c', 'batch-size'='1', 'async'='false') */"
    text = f"SELECT {hint} no, lookup_get('c', 'name', k) AS n FROM o"
    assert world.session.sql(text).count() == 5
    assert [len(request["keys"]) for request in world.calls("c").requests] == [1, 1, 1]
    assert "at most 1 key in one request (hint)" in world.session.explain(text)


def test_what_is_written_has_the_value(worlds: Worlds, world: World, tmp_path: Path) -> None:
    query = "SELECT no, lookup_get('c', 'name', k, '-') AS n FROM o"
    world.session.sql(f"CREATE TABLE values_made USING parquet LOCATION '{tmp_path / 'made'}' AS {query}")
    world.session.sql(f"INSERT INTO values_made {query.replace('no,', 'no + 10,')}")
    rows = sorted((row["no"], row["n"]) for row in world.session.spark.table("values_made").collect())
    named = [(1, "a"), (2, None), (3, "-"), (4, "-"), (5, "a")]
    assert rows == [*named, *((no + 10, name) for no, name in named)]
    world.session.spark.sql("DROP TABLE values_made")


def test_a_stream_has_the_value(world: World, tmp_path: Path) -> None:
    pq.write_table(TABLES["o"].rows, tmp_path / "o.parquet")
    spark = world.session.spark
    spark.readStream.schema("no BIGINT, k BIGINT").parquet(str(tmp_path)).createOrReplaceTempView("events")
    frame = world.session.sql(
        "SELECT no, lookup_get('c', 'name', k, '-') AS n FROM events WHERE lookup_get('c', 'x', k, 1) > 0"
    )
    stream = frame.writeStream.format("memory").queryName("values_seen").trigger(availableNow=True).start()
    assert stream.awaitTermination(120)
    assert sorted((row["no"], row["n"]) for row in spark.table("values_seen").collect()) == [
        (2, None),
        (3, "-"),
        (4, "-"),
    ]


def test_spark_takes_the_source_of_a_merge(world: World) -> None:
    """Its own tables cannot take the rows: it says so once it has understood all of the statement."""
    source = "SELECT no, lookup_get('c', 'name', k) AS n FROM o"
    world.session.sql("CREATE TABLE values_merged (no BIGINT, n STRING) USING parquet")
    try:
        with pytest.raises(UnsupportedOperationException, match="does not support MERGE INTO TABLE"):
            world.session.sql(
                f"MERGE INTO values_merged t USING ({source}) s ON t.no = s.no WHEN NOT MATCHED THEN INSERT *"
            )
    finally:
        world.session.spark.sql("DROP TABLE values_merged")


def test_values_in_actions_of_a_merge_come_from_its_source(worlds: Worlds, world: World) -> None:
    """Spark's own tables cannot take them: so what the source gives is held against the values themselves."""
    named, numbered = "lookup_get('c', 'name', s.k, '-')", "lookup_get('c', 'x', s.k)"
    text = (
        f"MERGE INTO values_merged t USING o s ON t.no = s.no AND {named} <> 'c' WHEN MATCHED THEN UPDATE SET"
        f" n = {named} WHEN NOT MATCHED THEN INSERT (no, n) VALUES (s.no, (SELECT {numbered}))"
    )
    world.session.sql("CREATE TABLE values_merged (no BIGINT, n STRING) USING parquet")
    try:
        with pytest.raises(UnsupportedOperationException, match="does not support MERGE INTO TABLE"):
            world.session.sql(text)
    finally:
        world.session.spark.sql("DROP TABLE values_merged")
    plan = world.session.prepare(text).plan
    assert plan is not None
    source, rest = plan.sql.partition(" USING (")[2].split(") AS s ON ")
    assert rest == (
        "t.no = s.no AND s.`__lookup_value_1` <> 'c' WHEN MATCHED THEN UPDATE SET n = s.`__lookup_value_2`"
        " WHEN NOT MATCHED THEN INSERT (no, n) VALUES (s.no, s.`__lookup_value_3`)"
    )
    select = f"SELECT s.*, {named} AS a, {named} AS b, {numbered} AS c FROM o s"
    wanted = worlds.plain.sql(worlds.plain_text(select)).collect()
    assert sorted(map(tuple, world.session.spark.sql(source).collect()), key=str) == sorted(
        map(tuple, wanted), key=str
    )
    assert sorted(world.calls("c").keys) == [("1",), ("2",), ("9",)]


def test_a_function_of_the_users_own_is_left_alone(world: World) -> None:
    spark = world.session.spark
    spark.udf.register("lookup_get", lambda table, column, key: f"{table}.{column} {key}")
    try:
        rows = world.session.sql("SELECT lookup_get('c', 'name', 2) AS n").collect()
    finally:
        spark.sql("DROP TEMPORARY FUNCTION lookup_get")
    assert rows[0]["n"] == "c.name 2"
    assert not world.calls("c").requests
    assert world.session.sql("SELECT lookup_get('c', 'x', 2) AS n").collect()[0]["n"] == 5


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("kk", ["UNRESOLVED_COLUMN", "`kk`", "[`o`.`k`, `o`.`no`]", "line 1 pos 35"]),
        ("array(k)", ["DATATYPE_MISMATCH", "(array(k) = c.id)"]),
    ],
)
def test_sparks_error_is_about_the_users_text(world: World, key: str, shown: list[str]) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as caught:
        world.session.sql(f"SELECT no, lookup_get('c', 'name', {key}) FROM o")
    told = str(caught.value)
    assert [each for each in shown if each not in told] == []
    assert "__lookup" not in told.partition("\n")[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "MERGE INTO placed t USING (\n SELECT no, lookup_get('c', 'name', kk) AS n FROM o) s ON t.no = s.no"
            " WHEN MATCHED THEN DELETE",
            ["`kk`", "[`o`.`k`, `o`.`no`]", "line 2 pos 36"],
        ),
        (
            "MERGE INTO placed t USING (SELECT no, lookup_get('c', 'name', k) AS n FROM o) s\n ON t.no = s.nn"
            " WHEN MATCHED THEN DELETE",
            ["`s`.`nn`", "line 2 pos 11"],
        ),
        (
            "DELETE FROM placed WHERE no IN (SELECT no FROM o\n WHERE lookup_get('c', 'name', o.kk) = 'a')",
            ["`o`.`kk`", "[`o`.`k`, `o`.`no`]", "line 2 pos 31"],
        ),
        (
            "DELETE FROM placed WHERE no IN (SELECT o.no FROM o JOIN c ON c.id = o.k\n WHERE o.kk = 'a')",
            ["`o`.`kk`", "line 2 pos 7"],
        ),
        (
            "MERGE INTO placed t USING o s ON t.no = s.no WHEN MATCHED THEN\n UPDATE SET"
            " n = lookup_get('c', 'name', s.kk)",
            ["`s`.`kk`", "[`s`.`k`, `s`.`no`]", "line 2 pos 40"],
        ),
        ("SELECT lookup_get('c', 'name', kk)", ["`kk` cannot be resolved. SQLSTATE", "line 1 pos 31"]),
    ],
)
def test_sparks_error_about_a_whole_statement_is_about_the_users_text(
    world: World, text: str, shown: list[str]
) -> None:
    from pyspark.errors import AnalysisException

    world.session.sql("CREATE TABLE IF NOT EXISTS placed (no BIGINT, n STRING) USING parquet")
    try:
        with pytest.raises(AnalysisException) as caught:
            world.session.sql(text)
    finally:
        world.session.spark.sql("DROP TABLE placed")
    told = str(caught.value)
    assert [each for each in ("UNRESOLVED_COLUMN", *shown) if each not in told] == []
    assert "__lookup" not in told.partition("\n")[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "EXPLAIN MERGE INTO placed t USING (SELECT o.no, c.name AS n FROM o JOIN c ON c.id = o.k) s\n"
            " ON t.no = s.nn WHEN MATCHED THEN DELETE",
            ["line 2, column 12: [UNRESOLVED_COLUMN", "`s`.`nn`", f"\n{' ' * 11}^^^^"],
        ),
        (
            "EXPLAIN MERGE INTO placed t USING (SELECT o.kk FROM o JOIN c ON c.id = o.k) s ON t.no = s.kk"
            " WHEN MATCHED THEN DELETE",
            ["line 1, column 43: [UNRESOLVED_COLUMN", "`o`.`kk`", f"\n{' ' * 42}^^^^"],
        ),
        (
            "EXPLAIN EXTENDED MERGE INTO placed t USING o s ON t.no = s.no WHEN MATCHED THEN\n UPDATE SET"
            " n = lookup_get('c', 'name', s.kk)",
            ["line 2, column 41: [UNRESOLVED_COLUMN", "`s`.`kk`", f"\n{' ' * 40}^^^^"],
        ),
    ],
)
def test_explain_shows_the_place_of_what_spark_cannot_resolve(
    world: World, text: str, shown: list[str]
) -> None:
    world.session.sql("CREATE TABLE IF NOT EXISTS placed (no BIGINT, n STRING) USING parquet")
    try:
        with pytest.raises(QueryError) as caught:
            world.session.sql(text)
        good = text.replace("s.nn", "s.no").replace("o.kk", "o.no").replace("s.kk", "s.k")
        plan = world.session.sql(good.replace("ON t.no = s.k ", "ON t.no = s.no ")).collect()[0][0]
    finally:
        world.session.spark.sql("DROP TABLE placed")
    told = str(caught.value)
    assert [each for each in shown if each not in told] == []
    assert "__lookup" not in told
    assert "does not support MERGE INTO TABLE" in plan, "what has no place is shown"


@pytest.mark.skipif(SPARK < (4, 0), reason="a statement of Spark 4.0")
@pytest.mark.parametrize(
    "merge",
    [
        "USING (SELECT o.no, c.name AS n FROM o JOIN c ON c.id = o.k) s ON t.no = s.no WHEN NOT MATCHED THEN INSERT *",
        "USING (SELECT no, lookup_get('c', 'name', k) AS n FROM o) s ON t.no = s.no WHEN NOT MATCHED THEN INSERT *",
        "USING o s ON t.no = s.no WHEN MATCHED THEN UPDATE SET n = lookup_get('c', 'name', s.k)",
    ],
)
def test_spark_takes_a_merge_of_a_script(world: World, merge: str) -> None:
    world.session.sql("CREATE TABLE values_merged (no BIGINT, n STRING) USING parquet")
    try:
        with pytest.raises(UnsupportedOperationException, match="does not support MERGE INTO TABLE"):
            world.session.sql(
                f"BEGIN IF 1 = 1 THEN MERGE INTO values_merged t {merge}; END IF; SELECT 1 AS a; END"
            )
    finally:
        world.session.spark.sql("DROP TABLE values_merged")


def test_a_value_of_a_key_that_is_not_grouped_by_is_sparks_error(world: World) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="MISSING_AGGREGATION"):
        world.session.sql("SELECT lookup_get('c', 'name', k) FROM o GROUP BY no")


def test_an_unknown_table_is_told_with_the_nearest(world: World) -> None:
    with pytest.raises(QueryError, match=r"There is no lookup table 'cc'\. Did you mean 'c'\?"):
        world.session.sql("SELECT lookup_get('cc', 'name', k) FROM o")


def test_a_lasting_view_is_refused(world: World) -> None:
    with pytest.raises(QueryError, match="Write CREATE TEMPORARY VIEW"):
        world.session.sql("CREATE VIEW named AS SELECT lookup_get('c', 'name', k) AS n FROM o")
