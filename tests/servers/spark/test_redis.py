"""Redis through Spark: the planes of real flights out of a real server, with Spark's own join as the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from tests.queries.flights_data import tables
from tests.queries.worlds import Data
from tests.servers.redis import PASSWORD, USER, RedisServer, running_redis
from tests.spark.warm import thrice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH = pytest.mark.parametrize("runner", ["true", "false"], ids=["async", "sync"])
QUERY = """
SELECT {hint}
       f.carrier, f.flight, f.dep_time, f.tailnum, p.year, p.manufacturer, p.seats
FROM flights f LEFT JOIN {planes} p ON f.tailnum = p.tailnum AND p.seats > 100
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Data]:
    return tables(tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="module")
def server(data: dict[str, Data]) -> Iterator[RedisServer]:
    with running_redis() as server, server.client() as client:
        pipeline = client.pipeline(transaction=False)
        for row in data["planes"].rows.to_pylist():
            known = {name: value for name, value in row.items() if value is not None}
            pipeline.hset(f"plane:{row['tailnum']}", mapping=known)
        pipeline.execute()
        client.rpush("plane:BROKEN", "a list")
        yield server


@pytest.fixture
def session(spark: SparkSession, server: RedisServer, data: dict[str, Data]) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.spark.conf.set("my.password", PASSWORD)
    for name in ("flights", "planes"):
        own.spark.createDataFrame(data[name].rows).createOrReplaceTempView(f"{name}_here")
    own.sql("CREATE TEMPORARY VIEW flights AS SELECT * FROM flights_here")
    own.sql(
        "CREATE TEMPORARY TABLE planes (tailnum STRING, year BIGINT, manufacturer STRING, seats BIGINT,"
        " PRIMARY KEY (tailnum) NOT ENFORCED) WITH ('connector' = 'redis', 'key' = 'plane:{tailnum}',"
        f" 'host' = '127.0.0.1', 'port' = '{server.port}', 'username' = '{USER}',"
        " 'password' = '${conf:my.password}')"
    )
    return own


@BOTH
def test_the_planes_of_two_days_equal_sparks_own_join(session: LookupSession, runner: str) -> None:
    hint = f"/*+ LOOKUP('table'='p', 'async'='{runner}') */"
    looked_up = thrice(session, QUERY.format(planes="planes", hint=hint))
    joined = session.spark.sql(QUERY.format(planes="planes_here", hint="")).collect()
    assert looked_up == sorted(map(tuple, joined), key=repr)
    assert len(looked_up) > 1700
    assert sum("BOEING" in row for row in looked_up) > 100


@BOTH
def test_a_key_that_cannot_be_read_fails_alone_and_without_the_password(
    session: LookupSession, runner: str
) -> None:
    query = (
        f"SELECT /*+ LOOKUP('table'='p', 'async'='{runner}'{{more}}) */ v.t, p.year"
        " FROM VALUES ('N14228'), ('BROKEN') AS v (t) LEFT JOIN planes p ON v.t = p.tailnum"
    )
    with pytest.raises(Exception, match="the value at 'plane:BROKEN' is not a hash") as caught:
        session.sql(query.format(more="")).collect()
    shown = [str(caught.value), session.explain(query.format(more=""))]
    assert PASSWORD not in " ".join([*shown, str(session.sql("SHOW CREATE TABLE planes").collect())])
    rows = thrice(session, query.format(more=", 'on-error'='null'"))
    assert rows == [("BROKEN", None), ("N14228", 1999)]
