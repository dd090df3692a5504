"""Lookup tables under Spark's own names: ``spark.table``, lists, DataFrame code, and what keeps both sides together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

from lookup_hints import LookupSession, disable, enable
from lookup_hints.errors import DdlError, HintError, QueryError, UnsupportedLookup
from tests.spark.people import answer, calls, create, enabled_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark session of its own, enabled."""
    yield from enabled_session(spark)


@pytest.fixture
def people(own: SparkSession, tmp_path: Path) -> Path:
    """The lookup table ``people``, and the file that has a line for each of its requests and reads."""
    create(own, tmp_path)
    return tmp_path / "log"


def test_lists_have_the_table_and_nothing_private(own: SparkSession, people: Path) -> None:
    own.sql("SELECT count(*) FROM people").collect()
    own.sql("CREATE TEMPORARY VIEW named AS SELECT name FROM people")
    own.sql("CREATE DATABASE empty")  # other files of tests leave tables in `default`
    own.sql("USE empty")
    names = ["named", "people"]
    assert [table.name for table in own.catalog.listTables()] == names
    assert [table.name for table in own.catalog.listTables("empty")] == names
    for statement in ("SHOW TABLES", "SHOW TABLES IN empty", "SHOW VIEWS", "SHOW TABLE EXTENDED LIKE '*'"):
        assert sorted(row[1] for row in own.sql(statement).collect()) == names, statement
    assert own.catalog.tableExists("people")
    assert own.catalog.getTable("people").isTemporary
    assert [(each.name, each.dataType) for each in own.catalog.listColumns("people")] == [
        ("id", "bigint"),
        ("name", own.catalog.listColumns("people")[1].dataType),
    ]
    own.sql("DROP DATABASE empty")


def test_other_hints_and_joins_stay_sparks(own: SparkSession, people: Path) -> None:
    frame = own.range(3)
    assert frame.join(own.table("people").hint("broadcast"), "id").count() == 3
    assert frame.join(frame.hint("merge"), frame.id == frame.id).count() >= 3
    assert frame.hint("broadcast").join(own.range(2), on="id", how="left_semi").count() == 2


def test_a_hint_that_would_have_no_effect_is_an_error(own: SparkSession, people: Path) -> None:
    hinted = own.table("people").hint("lookup")
    with pytest.raises(
        Exception, match="The hint 'lookup' on the table people has no effect here: it is for the right"
    ):
        hinted.collect()
    with pytest.raises(
        HintError, match="The hint 'lookup' is about a lookup table, and this DataFrame is none, or not"
    ):
        own.table("people").select("id").hint("lookup")
    with pytest.raises(
        HintError, match=r"^line 1, column \d+: No LOOKUP option is called 'capasity'. Did you mean 'cap"
    ):
        own.table("people").hint("lookup", "capasity=20")
    with pytest.raises(
        HintError, match=r"The hint 'lookup' has a parameter 20\. Write 'option=value': 'capacity=20'\."
    ):
        own.table("people").hint("lookup", 20)
    frame = own.range(3)
    with pytest.raises(
        QueryError, match="A join by key with people takes names of columns that both sides have"
    ):
        frame.join(hinted, frame.id == 1)
    with pytest.raises(QueryError, match="A lookup join cannot be 'full'"):
        frame.join(hinted, "id", "full")
    assert calls(people) == []


# --- guards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (", 'scan' = 'false'", "'scan' = 'false' in its WITH forbids it"),
        (", 'lookup.on-scan' = 'error'", r"'lookup.on-scan' = 'error' \(table\) forbids it"),
        (", 'lookup.access' = 'lookup'", "'lookup.access' = 'lookup' in its WITH wants it to be looked up"),
    ],
)
def test_what_may_not_be_read_is_not_read_by_anybody(
    own: SparkSession, tmp_path: Path, options: str, why: str
) -> None:
    create(own, tmp_path, options)
    refusal = f"The lookup table people is not read whole: {why}. Look up its rows by key: join it in SQL, or df.join"
    reads: list[Callable[[], DataFrame]] = [
        lambda: own.table("people"),
        lambda: own.read.table("people"),
        lambda: type(own).sql(own, "SELECT * FROM people"),
        lambda: own.range(3).where("id IN (SELECT id FROM people)"),
    ]
    for read in reads:
        with pytest.raises(Exception, match=refusal):
            read().collect()
    assert own.range(3).join(own.table("people").hint("lookup"), "id").count() == 3
    assert [list(call) for call in calls(tmp_path / "log")] == [["keys", "columns"]] * 2


def test_no_more_rows_are_read_than_the_table_allows(own: SparkSession, tmp_path: Path) -> None:
    create(own, tmp_path, ", 'lookup.scan.max-rows' = '3'")
    with pytest.raises(Exception, match="The lookup table people has more than 3 rows, and 'lookup"):
        own.read.table("people").collect()
    with pytest.raises(Exception, match=r"The lookup table people would be read whole, .* It has 4 rows"):
        own.table("people").collect()
    create(own, tmp_path, ", 'lookup.scan.max-rows' = '4'", replace=True)
    assert own.read.table("people").count() == own.table("people").count() == 4


def test_what_the_session_sets_holds_for_plain_reads(own: SparkSession, people: Path) -> None:
    own.sql("SET lookup.on-scan = error")
    with pytest.raises(Exception, match=r"'lookup.on-scan' = 'error' \(session\) forbids it"):
        own.read.table("people").collect()
    own.sql("SET lookup.on-scan = allow")
    assert own.read.table("people").count() == 4


def test_a_source_of_keys_alone_has_a_name_too(own: SparkSession) -> None:
    own.sql(
        "CREATE TEMPORARY TABLE town (id BIGINT, name STRING) WITH ('connector' = 'http', 'url' = 'http://[::1]:9/{id}')"
    )
    assert own.catalog.tableExists("town")
    with pytest.raises(
        Exception, match="The lookup table town is not read whole: connector 'http' answers keys only"
    ):
        own.table("town").collect()


# --- both sides --------------------------------------------------------------------------------------


def test_tables_from_before_are_there_and_nothing_is_left_after(spark: SparkSession, tmp_path: Path) -> None:
    own = spark.newSession()
    session = LookupSession(own)
    create_by = own.range(1)
    session.sql("CREATE TEMPORARY TABLE early (id INT) WITH ('connector' = 'memory', 'rows' = '[[1]]')")
    assert session.read("early").count() == 1
    assert not own.catalog.tableExists("early")
    kind = type(create_by)
    before = kind.join, kind.hint, set(vars(own)), set(vars(own.catalog))
    enable(own)
    enable(own)
    assert own.read.table("early").count() == 1
    another = spark.newSession()
    enable(another)
    disable(another)
    assert own.range(3).join(own.table("early").hint("lookup"), "id").count() == 1
    disable(own)
    assert (kind.join, kind.hint, set(vars(own)), set(vars(own.catalog))) == before
    assert not own.catalog.tableExists("early")
    assert [table.name for table in session.tables()] == ["early"]
    disable(own)


def test_a_view_of_the_user_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    both = (
        r"There is a temporary view 'people', and spark.table and SHOW TABLES would show the lookup table 'people' in its"
        r" place\. Give one of them another name, or drop the view: DROP VIEW `people`\."
    )
    own = spark.newSession()
    own.range(7).createOrReplaceTempView("people")
    session = LookupSession(own)
    create(session, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(DdlError, match=both):
        enable(own)
    assert own.sql("SELECT * FROM people").count() == 7, "it is not enabled, and the view is there"
    session.sql("DROP TABLE people")
    enable(own)
    with pytest.raises(DdlError, match=both):
        create(own, tmp_path)
    assert session.tables() == ()
    assert own.table("people").count() == 7
    own.sql("DROP VIEW people")
    create(own, tmp_path)
    with pytest.raises(
        UnsupportedLookup, match="people is the name of a lookup table; drop that first, or choose anot"
    ):
        own.sql("CREATE OR REPLACE TEMPORARY VIEW people AS SELECT 1 AS id")
    own.range(7).createOrReplaceTempView("people")
    for conflicting in (lambda: own.table("people"), lambda: create(own, tmp_path, replace=True)):
        with pytest.raises(DdlError, match=both):
            conflicting()
    own.sql("DROP VIEW people;")
    assert own.read.table("people").count() == 4, "the lookup table has its name again"
    own.range(7).createOrReplaceTempView("people")
    own.sql("DROP TABLE people")
    assert own.table("people").count() == 7
    disable(own)
    assert own.table("people").count() == 7


@pytest.mark.parametrize(
    "drop",
    [
        lambda spark: spark.sql("DROP TABLE people"),
        lambda spark: spark.sql("DROP TEMPORARY TABLE IF EXISTS people"),
        lambda spark: spark.sql("DROP VIEW IF EXISTS people"),
        lambda spark: spark.catalog.dropTempView("people"),
    ],
)
def test_both_sides_are_dropped_together(own: SparkSession, people: Path, drop: Any) -> None:
    drop(own)
    assert not own.catalog.tableExists("people")
    assert LookupSession(own).tables() == ()
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        own.sql("SELECT * FROM people")


def test_both_sides_are_replaced_together(own: SparkSession, people: Path, tmp_path: Path) -> None:
    own.catalog.cacheTable("people")
    assert own.read.table("people").count() == 4
    own.sql(
        "CREATE OR REPLACE TEMPORARY TABLE people (id INT, town STRING) WITH ('connector' = 'memory', 'rows' = '[[9, \"Ulm\"]]')"
    )
    assert not own.catalog.isCached("people")
    for frame in (own.table("people"), own.read.table("people"), own.sql("SELECT * FROM people")):
        assert answer(frame) == ([("id", "int"), ("town", "string")], ["(9, 'Ulm')"])


def test_spark_caches_the_table_until_it_is_refreshed(own: SparkSession, people: Path) -> None:
    own.sql("CACHE TABLE people")
    before = len(calls(people))
    assert own.table("people").count() == own.read.table("people").count() == 4
    assert len(calls(people)) == before
    for refresh in (lambda: own.sql("REFRESH TABLE people"), lambda: own.catalog.refreshTable("people")):
        refresh()
        assert own.table("people").count() == 4
        assert len(calls(people)) == (before := before + 1)
    own.sql("UNCACHE TABLE IF EXISTS people")
    assert own.table("people").count() == 4
    assert len(calls(people)) == before + 1


def test_an_unknown_table_is_read_by_nobody(own: SparkSession) -> None:
    with pytest.raises(QueryError, match="No lookup table is called 'nobody'"):
        LookupSession(own).read("nobody")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        own.table("nobody").collect()


def test_sparks_own_word_looks_up_keys_of_ours_and_is_left_alone_on_others(
    own: SparkSession, people: Path
) -> None:
    frame = own.range(3)
    joined = frame.join(own.table("people").hint("external_lookup"), "id", "left")
    assert answer(joined) == answer(frame.join(own.table("people").hint("lookup"), "id", "left"))
    assert all("keys" in call for call in calls(people))
    assert calls(people)
    assert frame.join(own.range(2).hint("external_lookup"), "id").count() == 2
    with pytest.raises(HintError, match=r"The hint 'external_lookup' takes no parameters\. With options: "):
        own.table("people").hint("external_lookup", "capacity=20")
    for hinted, second in (("broadcast", "external_lookup"), ("external_lookup", "shuffle_hash")):
        with pytest.raises(HintError, match=r"both say how people is joined\. .*CONFLICTING_JOIN_STRATEGY"):
            own.table("people").hint(hinted).hint(second)
    own.range(3).createOrReplaceTempView("theirs")
    text = "SELECT /*+ EXTERNAL_LOOKUP(t{}) */ p.name FROM theirs t LEFT JOIN people p ON t.id = p.id"
    assert answer(own.sql(text.format(", p"))) == answer(own.sql(text.format("")))


def test_disable_leaves_nothing_in_the_lists_but_what_the_user_has_made(
    own: SparkSession, people: Path
) -> None:
    own.sql("CREATE DATABASE bare")
    own.sql("USE bare")
    read = own.sql("SELECT count(*) AS n FROM people")
    named = own.table("people").select("name")
    named.createOrReplaceTempView("of_a_frame")
    own.sql("CREATE TEMPORARY VIEW counted AS SELECT count(*) AS n FROM people")
    disable(own)
    names = [row.tableName for row in own.sql("SHOW TABLES").collect()]
    assert {name for name in names if not name.startswith("lookup_scan")} == {"of_a_frame", "counted"}
    assert len(names) == 3, "the view `counted` reads one of ours"
    assert read.first() == own.table("counted").first() == (4,)
    assert named.count() == own.table("of_a_frame").count() == 4
    assert not own.catalog.tableExists("people")
    enable(own)
    assert own.sql("SELECT count(*) AS n FROM people").first() == own.table("counted").first() == (4,)
    own.sql("DROP VIEW counted")
    own.sql("DROP VIEW of_a_frame")
    disable(own)
    assert own.catalog.listTables() == []
    assert own.sql("SHOW TABLES").collect() == own.sql("SHOW VIEWS").collect() == []
    enable(own)
    assert own.sql("SELECT count(*) AS n FROM people").first() == (4,)
    own.sql("DROP DATABASE bare")
