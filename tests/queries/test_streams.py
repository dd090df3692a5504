"""Lookup joins over a stream of flights: what arrives is what Spark's own joins of the stream give."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from tests.queries.flights_data import tables
from tests.queries.worlds import Worlds
from tests.spark.answers import collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"planes", "airlines"})
CONF = {"spark.sql.shuffle.partitions": "1"}
_numbers = itertools.count()

STATEMENTS = {
    "last": "SELECT f.flight, p.seats FROM STREAM arriving f LEFT JOIN planes p ON p.tailnum = f.tailnum",
    "in the middle": "SELECT f.flight, p.seats, a.name FROM STREAM arriving f JOIN planes p ON p.tailnum = f.tailnum"
    " JOIN airports a ON a.faa = f.dest",
    "two, one in the middle": "SELECT * FROM STREAM arriving f LEFT JOIN planes p ON p.tailnum = f.tailnum"
    " JOIN airports a ON a.faa = f.dest JOIN airlines l ON l.carrier = f.carrier",
    "semi": "SELECT f.flight FROM STREAM arriving f LEFT SEMI JOIN planes p ON p.tailnum = f.tailnum AND p.seats > 100",
    "anti, then a join": "SELECT f.flight, a.name FROM STREAM arriving f LEFT ANTI JOIN planes p"
    " ON p.tailnum = f.tailnum JOIN airports a ON a.faa = f.dest",
    "EXISTS": "SELECT f.flight FROM STREAM arriving f WHERE EXISTS"
    " (SELECT 1 FROM planes p WHERE p.tailnum = f.tailnum)",
    "comma": "SELECT f.flight, p.seats FROM STREAM arriving f, planes p WHERE p.tailnum = f.tailnum",
    "USING": "SELECT carrier, l.name, f.flight FROM STREAM arriving f LEFT JOIN airlines l USING (carrier)",
    "over a view of the stream": "SELECT f.flight, p.seats FROM arriving f JOIN planes p ON p.tailnum = f.tailnum",
    "in a pipe": "FROM STREAM arriving f |> JOIN planes p ON p.tailnum = f.tailnum |> SELECT f.flight, p.seats",
}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    made = Worlds(spark, tmp_path_factory.mktemp("streams"), tables(tmp_path_factory.mktemp("csv")), CONF)
    files = str(made.folder / "arriving")
    made.plain.table("first_day").repartition(2).write.parquet(files)
    for session in (made.plain, made.world(LOOKUPS).session.spark):
        arriving = session.readStream.schema(session.table("first_day").schema).parquet(files)
        arriving.createOrReplaceTempView("arriving")
    return made


def arrived(
    session: LookupSession | SparkSession, spark: SparkSession, text: str, folder: Path
) -> list[tuple[object, ...]]:
    """The rows of a stream, run over all that there is; their order is not fixed."""
    name = f"arrived_{next(_numbers)}"
    writing = session.sql(text).writeStream.format("memory").queryName(name)
    query = writing.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return sorted(collected(spark.table(name)))


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_arrives_is_what_sparks_own_join_gives(worlds: Worlds, name: str, tmp_path: Path) -> None:
    text, session = STATEMENTS[name], worlds.world(LOOKUPS).session
    expected = arrived(worlds.plain, worlds.plain, text, tmp_path)
    assert len(expected) > 100
    assert arrived(session, session.spark, text, tmp_path) == expected
