"""Every n-th call to Spark's JVM fails: an error that says so, nothing left of ours, and the next call right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.java_gateway import JavaMember  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from lookup_hints.driver.metrics_collector import Counts, listening
from tests.nth_call import PROCESSES, SOCKETS, Interception, Target, traces
from tests.spark.failing_calls import check_disabling, check_enabling, check_planning, failing_runs, fails

JVM = Target(JavaMember, "__call__", lambda: Py4JError("the JVM does not answer (injected)"))


@pytest.mark.parametrize("check", [check_enabling, check_disabling, check_planning])
def test_a_session_is_as_before_or_as_it_should(spark: SparkSession, check: Callable[..., None]) -> None:
    check(spark.newSession, [JVM])


def test_live_counts_leave_no_thread_and_no_socket(spark: SparkSession, tmp_path: Path) -> None:
    def listen() -> None:
        with listening(spark, Counts()):
            assert spark.sparkContext.getLocalProperty("spark.app.name") is None

    listen()
    before = traces(tmp_path)
    targets = [each for each in (*PROCESSES, *SOCKETS) if each.name in ("start", "bind", "getaddrinfo")]
    with Interception([JVM, *targets]) as calls:
        for run in failing_runs():
            fails(calls, run, listen)
            listen()
            left = [each for each in traces(tmp_path).beyond(before) if "lookup" in each or "socket" in each]
            assert not left, run.fired
