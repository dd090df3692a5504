"""Every n-th call to Spark's JVM fails: an error that says so, nothing left of ours, and the next call right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaMember  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lookup_hints.driver.metrics_collector import Counts, listening
from lookup_hints.session import LookupSession, disable, enable
from tests.nth_call import PROCESSES, SOCKETS, Interception, NthCall, Target, names_cause, traces

JVM = Target(JavaMember, "__call__", lambda: Py4JError("the JVM does not answer (injected)"))


def _fails(calls: Interception, run: NthCall, step: Callable[[], Any]) -> bool:
    """Whether ``step`` failed because a call did, and says so."""
    calls.run = run
    try:
        step()
    except Exception as raised:
        error = raised
    else:
        return False
    finally:
        calls.run = None
    assert names_cause(error), f"{run.fired}: {error!r}"
    return True


def _failing_runs() -> Iterator[NthCall]:
    """Runs in which the first call of ours to the JVM fails, then the second, until none does."""
    for number in count(1):
        run = NthCall(number, through=("pyspark", "py4j"), most_of_a_place=1)
        yield run
        if not run.fired:
            assert number > 1, "no call was made to fail"
            return


def _table(spark: SparkSession) -> SparkSession:
    """A session with a lookup table, whose names are not Spark's yet."""
    own = spark.newSession()
    LookupSession(own).sql(
        "CREATE TEMPORARY TABLE early (id INT) WITH ('connector' = 'memory', 'rows' = '[[1]]')"
    )
    return own


def tables_of(own: SparkSession) -> list[str]:
    """What Spark's own SHOW TABLES lists, which makes no objects of the JVM of it, as ``catalog.listTables`` does."""
    return [row.tableName for row in SparkSession.sql(own, "SHOW TABLES").collect()]


def _state(own: SparkSession) -> Any:
    kind, catalog = type(own.range(1)), own.catalog
    ours = {"sql", "table"} & set(vars(own))
    return kind.join, kind.hint, ours, set(vars(catalog)), tables_of(own)


def test_a_session_is_enabled_or_as_before(spark: SparkSession) -> None:
    with Interception([JVM]) as calls:
        for run in _failing_runs():
            own = _table(spark)
            before = _state(own)
            if _fails(calls, run, partial(enable, own)):
                assert _state(own) == before, run.fired
            enable(own)
            assert own.table("early").count() == 1, run.fired
            disable(own)
            assert _state(own) == before, run.fired


def test_what_is_disabled_halfway_can_be_disabled_again(spark: SparkSession) -> None:
    with Interception([JVM]) as calls:
        for run in _failing_runs():
            own = _table(spark)
            before = _state(own)
            enable(own)
            if _fails(calls, run, partial(disable, own)):
                assert _state(own)[:4] == before[:4], run.fired
                disable(own)
            assert _state(own) == before, run.fired


def test_a_statement_is_planned_or_leaves_nothing(spark: SparkSession) -> None:
    own = _table(spark)
    session = LookupSession(own)
    text = "SELECT /*+ LOOKUP('table' = 'e') */ r.id, e.id AS found FROM range(2) r LEFT JOIN early e ON r.id = e.id"
    assert sorted(session.sql(text).collect()) == [(0, None), (1, 1)]
    before = _state(own)
    with Interception([JVM]) as calls:
        for run in _failing_runs():
            _fails(calls, run, lambda: session.sql(text))
            assert _state(own) == before, run.fired
    assert sorted(session.sql(text).collect()) == [(0, None), (1, 1)]


def test_live_counts_leave_no_thread_and_no_socket(spark: SparkSession, tmp_path: Path) -> None:
    def listen() -> None:
        with listening(spark, Counts()):
            assert spark.sparkContext.getLocalProperty("spark.app.name") is None

    listen()
    before = traces(tmp_path)
    targets = [each for each in (*PROCESSES, *SOCKETS) if each.name in ("start", "bind", "getaddrinfo")]
    with Interception([JVM, *targets]) as calls:
        for run in _failing_runs():
            _fails(calls, run, listen)
            listen()
            left = [each for each in traces(tmp_path).beyond(before) if "lookup" in each or "socket" in each]
            assert not left, run.fired
