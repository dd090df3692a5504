"""A replay of old events gets the rows of then, byte for byte, while the dimension goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession, disable
from lookup_hints.driver.spark_versions import spark_version
from tests.queries.worlds import QUICK
from tests.spark.counting import Calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS, VERSIONS = 40, 3
BEGIN = datetime(2024, 1, 1)
AS_OF = "SELECT '{way}' AS way, e.no, p.since, p.price FROM events e {kind} JOIN {table} FOR SYSTEM_TIME AS OF e.at AS p ON e.k = p.k"
NEAREST = (
    "SELECT '{way}' AS way, e.no, p.since, p.price FROM events e LEFT ASOF JOIN {table} AS p"
    " MATCH_CONDITION (e.at >= p.since) ON e.k = p.k"
)
TABLES = {
    "asked": "",
    "kept": ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.expire-after-write' = '1 ms'",
    "whole": ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 ms'",
    "read": ", 'lookup.access' = 'scan'",
}


def month(number: float) -> datetime:
    return BEGIN + timedelta(days=30 * number)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A history of prices. As it is written ahead, a new version does not change the file."""
    with closing(sqlite3.connect(tmp_path / "prices.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE prices (k INTEGER, since TEXT, price REAL, PRIMARY KEY (k, since))")
        rows = [(k, str(month(each)), k + each / 10) for k in range(ITEMS) for each in range(VERSIONS)]
        with connection:
            connection.executemany("INSERT INTO prices VALUES (?, ?, ?)", rows)
        yield connection


@pytest.fixture
def session(spark: SparkSession, source: sqlite3.Connection, tmp_path: Path) -> Iterator[LookupSession]:
    own = LookupSession(spark.newSession())
    for key, value in QUICK.items():
        own.spark.conf.set(key, value)
    if spark_version(spark) >= (4, 3):
        own.spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    events = [
        # One of each ten items has an event while its last version is valid; one is older than all versions.
        (k * 10 + each, k, month(moment))
        for k in range(ITEMS + 1)
        for each, moment in enumerate([-1, 0, 0.5, 1.5, 1.99, *([2.5] if k % 10 == 0 else [])])
    ]
    own.spark.createDataFrame(events, "no INT, k BIGINT, at TIMESTAMP").coalesce(1).createOrReplaceTempView(
        "events"
    )
    for name, options in TABLES.items():
        own.sql(
            f"CREATE TEMPORARY TABLE {name} (k BIGINT, since TIMESTAMP, price DOUBLE, PRIMARY KEY (k, since) NOT"
            f" ENFORCED) WITH ('connector' = 'tests.spark.counting:LoggedSqlite', 'path' = '{tmp_path}/prices.db',"
            f" 'table-name' = 'prices', 'log' = '{tmp_path}/{name}', 'lookup.valid-from' = 'since'{options})"
        )
    yield own
    disable(own.spark)


def replay(session: LookupSession) -> bytes:
    """The rows of all ways to find them, in their order."""
    ways = [
        (AS_OF, f"{kind} {table}", kind, table)
        for kind in ("LEFT", "INNER")
        for table in ("asked", "kept", "whole")
    ]
    if spark_version(session.spark) >= (4, 3):
        ways += [(NEAREST, f"nearest {table}", "", table) for table in TABLES]
    text = " UNION ALL ".join(sql.format(way=way, kind=kind, table=table) for sql, way, kind, table in ways)
    rows = session.sql(f"SELECT * FROM ({text}) ORDER BY way, no").collect()
    return json.dumps([tuple(row) for row in rows], default=str).encode()


def test_a_replay_gives_equal_bytes_while_versions_are_added(
    session: LookupSession, source: sqlite3.Connection, tmp_path: Path
) -> None:
    first = replay(session)
    by_way: dict[str, list[list[object]]] = {}
    for way, *row in json.loads(first):
        by_way.setdefault(way, []).append(row)
    inner = [row for row in by_way["LEFT asked"] if row[1] is not None]
    assert len(by_way["LEFT asked"]) == 41 * 5 + 5
    assert len(inner) == 40 * 4 + 4
    for way, rows in by_way.items():
        assert rows == (inner if way.startswith("INNER") else by_way["LEFT asked"]), way
    assert set(Calls.read(tmp_path / "kept").keys.values()) <= {1, 2, 3}
    for again in range(1, 3):
        with source:  # a tenth of the items gets a version
            for k in range(again, ITEMS, 10):
                source.execute("INSERT INTO prices VALUES (?, ?, ?)", (k, str(month(2.6)), 99.0))
        (tmp_path / "kept").unlink()
        assert replay(session) == first
        open_or_missing = {(str(k),) for k in range(0, ITEMS + 1, 10)}
        assert set(Calls.read(tmp_path / "kept").keys) == open_or_missing
    with source:
        source.execute("UPDATE prices SET price = 1000 WHERE k = 1")
    session.invalidate("kept", [(1, month(0))])
    (tmp_path / "kept").unlink()
    corrected = session.sql(AS_OF.format(way="", kind="LEFT", table="kept")).collect()
    assert {row.no for row in corrected if row.price == 1000} == {11, 12, 13, 14}
    assert set(Calls.read(tmp_path / "kept").keys) == {*open_or_missing, ("1",)}


def test_explain_says_what_does_not_expire(session: LookupSession) -> None:
    told = session.explain(AS_OF.format(way="", kind="LEFT", table="kept"))
    assert (
        "partial: a row may be 0.001 s old, a miss 0.0001 s; at most 256 MB in each executor; versions"
        in told
    )
    assert "versions that have ended do not expire (table)" in told
    plain = session.explain("SELECT p.price FROM events e JOIN kept p ON e.k = p.k")
    assert "a row may be 0.001 s old" in plain
    assert "versions that have ended" not in plain
    if spark_version(session.spark) >= (4, 3):
        assert "Whole table read is read" in session.explain(NEAREST.format(way="", table="read"))
