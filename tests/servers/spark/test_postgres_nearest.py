"""NEAREST BY through Spark and a real PostgreSQL, with Spark's own NEAREST BY over the same rows as the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession, Nearest
from lookup_hints.driver.spark_versions import spark_version
from tests.servers.postgres import PostgresServer, running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 600
SOURCE = f"""
CREATE EXTENSION vector;
CREATE EXTENSION pg_trgm;
CREATE EXTENSION cube;
CREATE EXTENSION earthdistance;
CREATE TABLE docs (
  id bigint PRIMARY KEY, g int, e vector(3), n float8, lat float8, lon float8, name text
);
INSERT INTO docs SELECT i, i % 5,
  CASE WHEN i % 11 > 0 THEN format('[%s,%s,%s]', sin(i), cos(i * 1.7), sin(i * 0.3))::vector END,
  sin(i * 7) * 100, asin(sin(i * 3)) * 50, sin(i * 5) * 179, 'name ' || i * i
FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX ON docs USING hnsw (e vector_l2_ops);
CREATE INDEX ON docs (g, n);
ANALYZE docs;
"""
QUERIES = (
    "CREATE TEMPORARY VIEW q AS SELECT id, CAST(id % 6 AS INT) AS g, sin(id * 2) * 100 AS n,"
    " asin(sin(id)) * 50 AS lat, cos(id) * 170 AS lon, concat('nam ', id * 7) AS name,"
    " IF(id % 7 = 0, NULL, array(CAST(cos(id) AS FLOAT), CAST(sin(id) AS FLOAT), CAST(0.1 AS FLOAT))) AS e"
    " FROM range(1, 41)"
)
KM = (
    "12742.0176D * asin(sqrt(pow(sin(radians(d.lat - q.lat) / 2), 2)"
    " + cos(radians(q.lat)) * cos(radians(d.lat)) * pow(sin(radians(d.lon - q.lon) / 2), 2)))"
)
DISTANCES = {
    "l2": "vector_l2_distance(q.e, d.e)",
    "cosine": "1 - vector_cosine_similarity(q.e, d.e)",
    "difference": "abs(q.n - d.n)",
    "great-circle": KM,
    "levenshtein": "levenshtein(q.name, d.name)",
}
KEY = "CASE WHEN d.g = q.g THEN {} END"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    for running in running_server():
        running.execute(SOURCE)
        yield running


@pytest.fixture(scope="module")
def session(spark: SparkSession, server: PostgresServer) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.spark.conf.set("my.dsn", server.url())
    own.spark.conf.set("spark.sql.shuffle.partitions", "2")
    own.sql(
        "CREATE TEMPORARY TABLE docs (id BIGINT, g INT, e ARRAY<FLOAT>, n DOUBLE, lat DOUBLE, lon DOUBLE,"
        " name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres',"
        " 'url' = '${conf:my.dsn}', 'table-name' = 'docs', 'nearest.ef-search' = '200')"
    )
    own.sql("SELECT * FROM docs").cache().createOrReplaceTempView("plain")
    own.spark.sql(QUERIES)
    return own


def _query(table: str, by: str, exactly: str = "EXACT") -> str:
    return (
        f"SELECT q.id, d.id AS found FROM q LEFT JOIN {table} AS d {exactly} NEAREST 3 BY DISTANCE {by}"
        " ORDER BY 1, 2"
    )


@pytest.mark.parametrize("metric", DISTANCES)
@pytest.mark.parametrize("is_keyed", [True, False], ids=["by key", "of all"])
def test_the_rows_are_sparks(session: LookupSession, metric: str, is_keyed: bool) -> None:
    if spark_version(session.spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    by = KEY.format(DISTANCES[metric]) if is_keyed else DISTANCES[metric]
    ties = f"if(({by}) IS NULL, NULL, struct(({by}), d.id))"
    ours = session.sql(_query("docs", by))
    assert ours.collect() == session.spark.sql(_query("plain", ties)).collect()
    told = session.explain(_query("docs", by))
    by_extension = metric in ("great-circle", "levenshtein")  # which the server may lack
    if is_keyed and not by_extension:
        assert "exactly, found by the source: asked of PostgreSQL" in told
    else:
        assert "exactly, found by the worker" in told
    assert f"3 nearest rows by {metric} of " in told
    assert is_keyed or "kept whole: no equality gives a key" in told


def test_what_is_too_large_to_be_kept_is_asked(session: LookupSession, server: PostgresServer) -> None:
    if spark_version(session.spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE large (id BIGINT, n DOUBLE, PRIMARY KEY (id) NOT ENFORCED) WITH"
        " ('connector' = 'postgres', 'url' = '${conf:my.dsn}', 'table-name' = 'docs',"
        " 'lookup.full-cache.max-bytes' = '1 kb')"
    )
    by = "abs(q.n - d.n)"
    assert "exactly, found by the source: asked of PostgreSQL" in session.explain(_query("large", by))
    ties = f"if(({by}) IS NULL, NULL, struct(({by}), d.id))"
    ours = session.sql(_query("large", by)).collect()
    assert ours == session.spark.sql(_query("plain", ties)).collect()


def test_about_the_nearest_rows_are_found_by_an_index_of_pgvector(session: LookupSession) -> None:
    if spark_version(session.spark) < (4, 3):
        pytest.skip("NEAREST BY is tested with Spark 4.3")
    text = _query("docs", DISTANCES["l2"], "APPROX")
    assert "3 nearest rows by l2 of e, about, found by the source: asked of pgvector;" in session.explain(
        text
    )
    exact = {tuple(row) for row in session.spark.sql(_query("plain", DISTANCES["l2"])).collect()}
    about = {tuple(row) for row in session.sql(text).collect()}
    assert len(about & exact) >= 0.9 * len(exact)


@pytest.mark.parametrize("metric", ["trigram", "l2", "great-circle", "difference"])
def test_a_frame_is_given_the_nearest_rows_on_each_spark(session: LookupSession, metric: str) -> None:
    left = {"trigram": "name", "l2": "e", "great-circle": ["lat", "lon"], "difference": "n"}[metric]
    wanted = Nearest(left, metric=metric, k=2, distance="far")
    frame = session.lookup_join(
        session.spark.table("q"), "docs", "g", columns={"id": "found"}, nearest=wanted
    )
    rows = frame.orderBy("id", "far", "found").collect()
    assert len(rows) == 2 * len([n for n in range(1, 41) if n % 6 < 5 and (metric != "l2" or n % 7)])
    assert all(row.far is not None for row in rows)
