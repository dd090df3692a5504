"""Errors in few lines."""

from __future__ import annotations

import logging
from logging.handlers import QueueHandler
from queue import Queue
from threading import Thread

import pytest
from pyspark.errors import PySparkException

from lookup_hints.errors import ConnectorError, HintError, Problem, Span
from lookup_hints.pyspark_internals import errors_unlogged
from lookup_hints.runs.statement_run import brief

FROM_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/lookup_hints/worker/arrow_worker.py", line 95, in look_up
    report(spec.name, task.metrics)
lookup_hints.errors.ConnectorError: The lookup of 3 keys in table f failed after 1 attempt: no answer
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectorError("no answer"), "no answer"),
        (KeyError("a"), "KeyError: 'a'"),
        (ValueError(), "ValueError"),
        (
            PySparkException(FROM_A_WORKER),
            "ConnectorError: The lookup of 3 keys in table f failed after 1 attempt: no answer",
        ),
        (
            PySparkException(
                "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
                "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: lookup_hints.errors."
                "LookupTimeout: The lookup of 1 key (id = 7) in table f (connector http) failed: late\n SQLSTATE: 38000"
            ),
            "LookupTimeout: The lookup of 1 key (id = 7) in table f (connector http) failed: late",
        ),
        (
            PySparkException(
                "[STREAM_FAILED] Query [id = a] terminated with exception: Job aborted: [PYTHON_EXCEPTION] An exception"
                " was thrown from the Python worker: RuntimeError: The Spark worker on a does not have pyarrow\n SQLSTATE"
            ),
            "RuntimeError: The Spark worker on a does not have pyarrow",
        ),
        (
            PySparkException(
                "[UNBOUND_SQL_PARAMETER] Found the unbound parameter: day. Please, fix `args` and provide a mapping of"
                " the parameter to either a SQL literal or functions such as `map()`. SQLSTATE: 42P02"
            ),
            "[UNBOUND_SQL_PARAMETER] Found the unbound parameter: day. Give it: --param day=VALUE. SQLSTATE: 42P02",
        ),
        (
            PySparkException(
                "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nSELECT 1/0\n"
                "       ^^^\n\n\tat org.apache.spark.sql.Thing.run(Thing.scala:1)"
            ),
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\nline 1, column 8:\nSELECT 1/0\n       ^^^",
        ),
        (
            PySparkException(
                "[TABLE_OR_VIEW_NOT_FOUND] No t. SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n+- x"
            ),
            "[TABLE_OR_VIEW_NOT_FOUND] No t. SQLSTATE: 42P01",
        ),
        (
            PySparkException(
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 8)\n\n"
                "== SQL ==\nSELECT 1/0\n^^^\n"
            ),
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601\n"
            "line 1, column 1:\nSELECT 1/0\n^^^",
        ),
        (
            PySparkException("[INTERNAL] Oh.\n\nJVM stacktrace:\norg.apache.spark.Oh\n\tat x"),
            "[INTERNAL] Oh.",
        ),
    ],
)
def test_the_shortened_text_of_an_error(error: Exception, said: str) -> None:
    assert brief(error, "SELECT 1/0") == said


def test_places_are_those_of_the_file() -> None:
    spark_says = PySparkException(
        "[X] Oh.\n== SQL (line 1, position 8) ==\nSELECT 1/0\n       ^^^\n\n\tat org.apache.spark.sql.Thing.run(T.scala:1)"
    )
    assert brief(spark_says, "SELECT 1/0", line=4, column=3) == (
        "[X] Oh.\nline 4, column 10:\n  SELECT 1/0\n         ^^^"
    )
    second = HintError(Problem("Wrong.", Span("SELECT\n  x", 9, 10), "Mend it."))
    assert brief(second, "SELECT\n  x", line=4, column=3) == "line 5, column 3: Wrong. Mend it.\n  x\n  ^"
    assert brief(HintError(Problem("Nowhere.")), "SELECT", line=4) == "Nowhere."


def test_pyspark_does_not_log_what_somebody_tells() -> None:
    from pyspark.logger import PySparkLogger

    log: logging.Logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logged = Queue[logging.LogRecord]()
    handler = QueueHandler(logged)  # its own one writes to what was the standard error when it was made
    log.addHandler(handler)
    try:
        with errors_unlogged():
            with errors_unlogged():
                log.error("a wall")
            log.error("a wall")
            other = Thread(target=log.error, args=("of another thread",))
            other.start()
            other.join()
        log.error("outside")
    finally:
        log.removeHandler(handler)
    of_another, outside = (record.getMessage() for record in logged.queue)
    assert "of another thread" in of_another
    assert "outside" in outside
    assert not log.filters
