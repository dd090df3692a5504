"""The shell runs statements in Spark until the user leaves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lookup_hints.cli.completion import SessionNames
from lookup_hints.cli.job import Showing
from lookup_hints.cli.shell import Shell
from lookup_hints.session import LookupSession
from lookup_hints.statements import split_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PEOPLE = """
CREATE OR REPLACE TEMPORARY TABLE shell_people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]');
"""


JOIN = "SELECT r.id, p.name FROM range(3) r LEFT JOIN shell_people p ON r.id = p.id ORDER BY r.id;"


LONG = "SELECT count(*) FROM range(0, 300000000000, 1, 8) WHERE id % 7 = 3;"


def asking(*given: str | BaseException | Callable[[], str]) -> Callable[[], str]:
    left = iter((*given, EOFError()))

    def ask() -> str:
        each = next(left)
        if isinstance(each, BaseException):
            raise each
        return each if isinstance(each, str) else each()

    return ask


def interrupt_when_a_job_runs(spark: SparkSession) -> str:
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        while not tracker.getActiveJobsIds():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch).start()
    return LONG


def test_statements_run_until_the_user_leaves(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session = LookupSession(spark)
    names = SessionNames(session)
    assert "shell_people" not in names.tables()
    shell = Shell(session, {"most": 2}, Showing(20, bar=False), names.forget)
    before = signal.getsignal(signal.SIGINT)
    ask = asking(
        *("", "help", KeyboardInterrupt(), JOIN, "SELECT nope;\nSELECT 'unreached';", "SELEC 1;"),
        lambda: interrupt_when_a_job_runs(spark),
        *("SHOW TABLES;", "EXPLAIN SELECT 1;", "SET table.exec.async-lookup.timeout = 5 s;"),
        *("SELECT :most + 1 AS three;", "SELECT 'never closed", "exit", "SELECT 'unreached';"),
    )
    assert shell.run(split_statements(PEOPLE), ask) == 0
    printed = capsys.readouterr()
    for part in (
        "A statement ends with ;",
        "[1/1] line 2: CREATE OR REPLACE TEMPORARY TABLE shell_people",
        "|  1| Ann|",
        "|  2|NULL|",
        "shell_people|",
        "Physical Plan",
        "|    3|",
    ):
        assert part in printed.out
    assert "unreached" not in printed.out
    told = [line for line in printed.err.splitlines() if line.startswith(("cancelled", "error"))]
    for line, part in zip(
        told, ("UNRESOLVED_COLUMN", "'SELEC'", "cancelled", "This quote is never closed"), strict=True
    ):
        assert part in line
    assert signal.getsignal(signal.SIGINT) is before
    assert "shell_people" in names.tables()
    assert names.columns("SHELL_PEOPLE") == ["id", "name"]
    assert names.columns("no such table") == []
    spark.sql("SELECT 1 AS x, 2 AS y").createOrReplaceTempView("shell_view")
    assert names.columns("shell_view") == ["x", "y"]
    session.sql("SET table.exec.async-lookup.timeout = 3 min")
    session.sql("DROP TEMPORARY TABLE shell_people")
    spark.catalog.dropTempView("shell_view")
