"""A lookup with a cache through Spark: how often the source is asked."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints import LookupSession, disable
from lookup_hints.driver.invalidation import keys_of
from lookup_hints.errors import OptionError, QueryError
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.spi.request_and_answer import LookupTable
from sql_examples import invalidate
from tests.spark.counting import Calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = ", ".join(f'[{number}, "n{number}"]' for number in range(0, 200, 2))
JOIN = "SELECT v.id, p.name FROM visits v LEFT JOIN people p ON v.id = p.id"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    own = LookupSession(spark.newSession())
    own.sql("CREATE OR REPLACE TEMPORARY VIEW visits AS SELECT id FROM range(0, 200, 1, 2)")
    yield own
    disable(own.spark)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def people(session: LookupSession, log: Path, name: str = "people", **options: str) -> None:
    """A table with a cache of its own, as each test logs to a file of its own."""
    given = {
        "connector": "tests.spark.counting:CountingConnector",
        "rows": f"[{ROWS}]",
        "log": str(log),
        "lookup.cache": "PARTIAL",
        **{f"lookup.{key}": text for key, text in options.items()},
    }
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    session.sql(
        f"CREATE OR REPLACE TEMPORARY TABLE {name} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({text})"
    )


def rows(session: LookupSession, sql: str = JOIN) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in session.sql(sql).collect())


EXPECTED = [(number, f"n{number}" if number % 2 == 0 else None) for number in range(200)]


def test_a_second_run_asks_nothing(session: LookupSession, log: Path) -> None:
    people(session, log)
    assert rows(session) == EXPECTED
    first = len(Calls.read(log).requests)
    assert rows(session) == EXPECTED
    assert rows(session, f"{JOIN} AND length(p.name) > 2") != EXPECTED, "residual conditions hold after it"
    assert len(Calls.read(log).requests) == first
    assert set(Calls.read(log).keys.values()) == {1}


def test_the_counts_say_what_came_from_it(session: LookupSession, log: Path) -> None:
    people(session, log)
    rows(session)
    before = dict(session.metrics())
    rows(session)
    (new,) = (counts - before.get(name, LookupMetrics()) for name, counts in session.metrics().items())
    assert (new.cache_hits, new.cache_missing, new.cache_misses, new.requests) == (100, 100, 0, 0)
    assert new.cache_rows == 200


def test_a_hint_goes_without_it(session: LookupSession, log: Path) -> None:
    people(session, log)
    rows(session)
    first = len(Calls.read(log).requests)
    hinted = JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table' = 'p', 'cache' = 'none') */")
    assert rows(session, hinted) == EXPECTED
    assert len(Calls.read(log).requests) == 2 * first


def test_a_hint_brings_it(session: LookupSession, log: Path) -> None:
    people(session, log, cache="none")
    hinted = JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table' = 'p', 'cache' = 'partial') */")
    for _ in range(2):
        assert rows(session, hinted) == EXPECTED
    assert set(Calls.read(log).keys.values()) == {1}


def test_a_frame_goes_without_it(session: LookupSession, log: Path) -> None:
    people(session, log)
    visits = session.spark.table("visits")
    for cache in (None, None, "none"):
        joined = session.lookup_join(visits, "people", on="id", how="left", cache=cache)
        assert joined.count() == 200
    assert set(Calls.read(log).keys.values()) == {2}, "by the first and the last"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_outlive_the_workers(session: LookupSession, log: Path) -> None:
    """Spark ends idle workers after a minute; here they are killed."""
    people(session, log, **{"partial-cache.missing-ttl": "1 h"})
    rows(session)
    first = len(Calls.read(log).requests)
    session.sql(
        "CREATE TEMPORARY TABLE worker (pid BIGINT) WITH ('connector' = 'tests.spark.counting:WorkerNumber',"
        " 'rows' = '[]')"
    )
    killed: set[int] = set()
    for _ in range(4):
        ((pid,),) = rows(session, "SELECT pid FROM worker")
        assert isinstance(pid, int)
        assert pid not in killed, "it is dead"
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
        while is_running(pid):  # as long as it may be given a task
            time.sleep(0.01)
    assert rows(session) == EXPECTED
    assert len(Calls.read(log).requests) == first


def test_rows_are_asked_again_when_they_are_too_old(session: LookupSession, log: Path) -> None:
    people(session, log, **{"partial-cache.expire-after-write": "1 ms"})
    rows(session)
    first = len(Calls.read(log).requests)
    assert rows(session) == EXPECTED
    assert len(Calls.read(log).requests) == 2 * first


def test_an_invalidated_key_is_looked_up_again(session: LookupSession, log: Path) -> None:
    people(session, log)
    rows(session)
    running = session.sql(JOIN)  # is planned, and does not know
    session.sql("REFRESH TABLE people")
    assert sorted(tuple(row) for row in running.collect()) == EXPECTED
    assert set(Calls.read(log).keys.values()) == {2}, "on one machine it is told at once"
    session.invalidate("people", [4, 5])
    assert rows(session) == EXPECTED
    assert {key for key, count in Calls.read(log).keys.items() if count == 3} == {("4",), ("5",)}
    session.invalidate("people", session.spark.sql("SELECT id FROM visits WHERE id < 2"))
    assert rows(session) == rows(session) == EXPECTED
    assert Counter(Calls.read(log).keys.values()) == {2: 196, 3: 4}
    with pytest.raises(QueryError, match=r"Invalid keys for table people: .*values of \(id int64\)"):
        session.invalidate("people", ["x"])
    with pytest.raises(QueryError, match="No lookup table is called 'peeple'"):
        session.invalidate("peeple")


def test_a_frame_of_keys_gives_them_by_name_and_as_moments(session: LookupSession) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    pair, at = (LookupTable("t", schema, primary_key=key) for key in (("a", "b"), ("at",)))
    assert keys_of(pair, session.spark.sql("SELECT 2L AS b, 1L AS A")) == ((1, 2),)
    assert keys_of(pair, session.spark.sql("SELECT 1L AS x, 2L AS y")) == ((1, 2),)
    moment = session.spark.sql("SELECT TIMESTAMP '2025-07-01 12:00:00 UTC' AS at")
    assert keys_of(at, moment) == ((datetime(2025, 7, 1, 12, tzinfo=timezone.utc),),)


def test_a_stream_of_changes_takes_back(spark: SparkSession) -> None:
    assert invalidate.main(spark.newSession()) == [["Bern", "Oslo"], ["Bern", "Oslo"], ["Rome", "Oslo"]]


def test_explain_says_how_old_an_answer_may_be(session: LookupSession, log: Path) -> None:
    people(session, log)
    plan = session.explain(JOIN)
    assert "partial: a row may be 600 s old, a miss 30 s; at most 256 MB in each executor (table)" in plan


def test_a_whole_table_is_read_once_and_no_key_is_asked(session: LookupSession, log: Path) -> None:
    reload = {"full-cache.periodic-reload.interval": "1 h"}
    people(session, log, cache="FULL", **reload)
    before = dict(session.metrics())
    for _ in range(2):
        assert rows(session) == EXPECTED
    assert rows(session, f"{JOIN} AND length(p.name) > 2") != EXPECTED, "residual conditions hold after it"
    (new,) = (counts - before.get(name, LookupMetrics()) for name, counts in session.metrics().items())
    assert (new.cache_loads, new.requests, new.cache_rows) == (1, 0, 100)
    assert Calls.read(log).scans == 1
    assert not Calls.read(log).keys
    assert "full: each executor reads the table, and again 3600 s after the end" in session.explain(JOIN)
    hinted = JOIN.replace("SELECT", "SELECT /*+ LOOKUP('table' = 'p', 'cache' = 'none') */")
    assert rows(session, hinted) == EXPECTED
    assert Calls.read(log).keys
    people(session, log, cache="FULL")
    with pytest.raises(OptionError, match=r"needs 'lookup\.full-cache\.periodic-reload\.interval'"):
        session.sql(JOIN)


def test_a_lookup_that_asks_for_much_reads_its_table_instead(session: LookupSession, log: Path) -> None:
    people(session, log, cache="NONE")
    session.sql("CREATE OR REPLACE TEMPORARY VIEW many AS SELECT id FROM range(0, 100000, 1, 1)")
    text = "SELECT count(p.name) AS names FROM (SELECT id FROM many WHERE id >= 0) v LEFT JOIN people p USING (id)"
    assert rows(session, text) == [(100,)]
    assert Calls.read(log).scans == 0, "a cache was refused"
    asked = len(Calls.read(log).keys)
    session.sql("DROP TABLE people")
    given = f"'connector' = 'tests.spark.counting:CountingConnector', 'rows' = '[{ROWS}]', 'log' = '{log}'"
    session.sql(f"CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ({given})")
    before = dict(session.metrics())
    log.unlink()
    assert "may read" in session.explain(text)
    assert rows(session, text) == [(100,)]
    (new,) = (
        counts - before.get(name, LookupMetrics())
        for name, counts in session.metrics().items()
        if name not in before
    )
    assert Calls.read(log).scans == new.cache_loads == 1
    assert 10_000 <= new.switched_after < 100_000 == asked
    assert len(Calls.read(log).keys) < new.switched_after
    for _ in range(2):
        log.unlink()
        assert rows(session, text) == [(100,)]
        assert Calls.read(log).scans == 1, "each run reads anew"
