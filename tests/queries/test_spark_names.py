"""Lookup tables under Spark's own names: what they answer is what a table of Spark answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.people import answer, calls, create, enabled_session, plain_people


@pytest.fixture
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """A Spark session of its own, enabled."""
    yield from enabled_session(spark)


@pytest.fixture
def people(own: SparkSession, tmp_path: Path) -> Path:
    """The lookup table ``people``, and the file that has a line for each of its requests and reads."""
    create(own, tmp_path)
    return tmp_path / "log"


def test_all_of_sparks_own_ways_read_the_table(own: SparkSession, people: Path) -> None:
    whole, frame = plain_people(own), own.range(4)
    assert answer(own.table("people")) == answer(whole)
    assert answer(own.table("`PEOPLE`")) == answer(whole)
    assert answer(own.read.table("people")) == answer(whole)
    for people_by_spark in (own.table("people"), own.read.table("people")):
        for how in ("inner", "left", "full", "left_anti"):
            assert answer(frame.join(people_by_spark, "id", how)) == answer(frame.join(whole, "id", how))
    assert answer(frame.where("id IN (SELECT id FROM people)")) == answer(frame.where("id IN (1, 2)"))
    assert answer(frame.selectExpr("(SELECT max(name) FROM people p WHERE p.id < 2) AS n").distinct())[1] == [
        "('Ann',)"
    ]
    assert all(list(call) == ["scanned"] for call in calls(people))


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_a_hint_looks_up_keys(own: SparkSession, people: Path, how: str) -> None:
    frame = own.range(1, 4, 1, 1)
    joined = frame.join(own.table("people").hint("lookup", "async=false", "capacity=20"), "id", how)
    assert answer(joined) == answer(frame.join(plain_people(own), ["id"], how))
    assert [sorted(call["keys"]) for call in calls(people)] == [[["1"], ["2"], ["3"]]]
    assert answer(frame.join(own.table("people").hint("LOOKUP"), on=["id"], how=how)) == answer(joined)


def test_a_stream_joins_the_table(own: SparkSession, people: Path, tmp_path: Path) -> None:
    own.range(4).write.parquet(str(tmp_path / "arriving"))
    arriving = own.readStream.schema("id BIGINT").parquet(str(tmp_path / "arriving"))
    for number, table in enumerate((own.table("people"), own.table("people").hint("lookup"))):
        joined = arriving.join(table, "id")
        query = (
            joined.writeStream.format("memory")
            .queryName(f"joined_{number}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert (
            answer(own.table(f"joined_{number}"))[1] == answer(own.range(4).join(plain_people(own), "id"))[1]
        )
    kinds = [next(iter(call)) for call in calls(people)]
    assert kinds[0] == "scanned"
    assert {*kinds[1:]} == {"keys"}
