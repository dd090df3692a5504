"""An interrupt of a program ends what Spark computes for it, and nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.driver.interrupts import catch_interrupts
from lookup_hints.session import LookupSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = """
CREATE OR REPLACE TEMPORARY TABLE interrupted (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]')
"""
LONG = """
SELECT /*+ LOOKUP('table'='c', 'max-requests'='100000000') */ count(c.name)
FROM range(0, 200000000000, 1, 8) r LEFT JOIN interrupted c ON r.id = c.id
"""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[LookupSession]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    session = LookupSession(spark)
    catch_interrupts()
    session.sql(TABLE)
    yield session
    session.sql("DROP TEMPORARY TABLE interrupted")
    signal.signal(signal.SIGINT, before)


def interrupt_when(is_time: Callable[[], bool]) -> None:
    def watch() -> None:
        while not is_time():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch).start()


def test_an_interrupt_cancels_the_jobs_of_a_lookup_and_leaves_the_session_usable(
    session: LookupSession, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = session.spark.sparkContext.statusTracker()
    interrupt_when(lambda: bool(tracker.getActiveJobsIds()))
    with pytest.raises(KeyboardInterrupt):
        session.sql(LONG).collect()
    assert session.spark.sql("SELECT 42").collect() == [(42,)]
    assert not tracker.getActiveJobsIds()
    assert not [each for each in caplog.records if each.exc_info], "no stack of py4j's"


def test_an_interrupt_lets_streaming_queries_run(session: LookupSession, tmp_path: Path) -> None:
    tracker = session.spark.sparkContext.statusTracker()
    rows = session.spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        own = partial(tracker.getJobIdsForGroup, str(query.runId))
        while query.lastProgress is None:
            time.sleep(0.05)
        interrupt_when(lambda: bool({*tracker.getActiveJobsIds()} - {*own()}))
        with pytest.raises(KeyboardInterrupt):
            session.sql(LONG).collect()
        seen = query.lastProgress["batchId"]
        while query.lastProgress["batchId"] <= seen and query.isActive:
            time.sleep(0.05)
        assert query.exception() is None
    finally:
        query.stop()


def test_a_handler_of_the_programs_own_stays(session: LookupSession) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    catch_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
