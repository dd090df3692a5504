"""Late rows, failures and their policies, through Spark, against sources that really change and fail."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lookup_connectors.memory import MemoryConnector

from lookup_hints import LookupSession, register_connector
from lookup_hints.spi import ConnectorError, LookupRequest
from tests.spark.warm import Row, thrice

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RETRY = "'retry-strategy'='fixed_delay', 'fixed-delay'='300 ms', 'max-attempts'='100'"


class Picky(MemoryConnector):
    """Fails for any request that holds the key 3, with a secret in its message."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        if 3 in request.keys.column(0).to_pylist():
            raise ConnectorError("cannot answer 3 at postgresql://app:hunter2@db/shop", permanent=True)
        return super().lookup(request)


register_connector("picky", Picky)


@pytest.fixture
def session(spark: SparkSession) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.spark.range(1, 6, 1, 1).createOrReplaceTempView("orders")
    own.sql(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ('connector' = 'picky',"
        " 'rows' = '[[1, \"Ann\"], [2, \"Bob\"], [3, \"Cy\"]]', 'batch-size' = '1')"
    )
    return own


def joined(session: LookupSession, kind: str, options: str, where: str = "true") -> list[Row]:
    hint = f"/*+ LOOKUP('table'='p', {options}) */"
    return thrice(
        session, f"SELECT {hint} o.id, p.name FROM orders o {kind} JOIN people p ON o.id = p.id WHERE {where}"
    )


@pytest.mark.parametrize("runner", ["true", "false"])
def test_on_error(session: LookupSession, runner: str) -> None:
    wish = f"'async'='{runner}'"
    null = [(1, "Ann"), (2, "Bob"), (3, None), (4, None), (5, None)]
    assert joined(session, "LEFT", f"'on-error'='null', {wish}") == null
    assert joined(session, "INNER", f"'on-error'='null', {wish}") == [(1, "Ann"), (2, "Bob")]
    assert joined(session, "LEFT", f"'on-error'='skip', {wish}") == [row for row in null if row[0] != 3]
    assert joined(session, "INNER", f"'on-error'='skip', {wish}") == [(1, "Ann"), (2, "Bob")]


@pytest.mark.parametrize("runner", ["true", "false"])
def test_a_failed_lookup_fails_the_query_with_its_cause_and_no_secret(
    session: LookupSession, runner: str
) -> None:
    with pytest.raises(Exception, match="cannot answer 3") as caught:
        joined(session, "LEFT", f"'async'='{runner}'")
    assert "hunter2" not in str(caught.value)
    assert "people" in str(caught.value)


@pytest.fixture
def late(tmp_path: Path) -> Iterator[str]:
    """Options of a table into which customer 2 comes once it has been asked for a second time."""
    path, log = tmp_path / "late.sqlite", tmp_path / "log"
    with closing(sqlite3.connect(path)) as source, source:
        source.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        source.execute("INSERT INTO customers VALUES (1, 'Ann')")
    is_over = threading.Event()

    def come() -> None:
        # A request is written down before it is answered: the second one says that the first was.
        while not log.exists() or log.read_text(encoding="utf-8").count("\n") < 2:
            if is_over.wait(0.02):
                return
        with closing(sqlite3.connect(path)) as later, later:
            later.execute("INSERT INTO customers VALUES (2, 'Bob')")

    writer = threading.Thread(target=come)
    writer.start()
    yield f"'connector'='tests.spark.counting:LoggedSqlite', 'path'='{path}', 'log'='{log}'"
    is_over.set()
    writer.join(5)


def test_a_late_row_is_waited_for(spark: SparkSession, late: str) -> None:
    session = LookupSession(spark.newSession())
    session.spark.range(1, 3, 1, 1).createOrReplaceTempView("orders")
    session.sql(f"CREATE TEMPORARY TABLE customers (id BIGINT, name STRING) WITH ({late})")
    hint = f"/*+ LOOKUP('table'='c', 'retry-predicate'='lookup_miss', {RETRY}) */"
    before = session.metrics()
    frame = session.sql(f"SELECT {hint} o.id, c.name FROM orders o LEFT JOIN customers c ON o.id = c.id")
    assert sorted((row.id, row.name) for row in frame.collect()) == [(1, "Ann"), (2, "Bob")]
    ((_, counts),) = [(name, counts) for name, counts in session.metrics().items() if name not in before]
    assert counts.retried_keys >= 1
    assert (counts.hits, counts.misses) == (2, 0)


def test_a_timeout_fails_the_query_and_says_what_to_try(session: LookupSession) -> None:
    started = time.monotonic()
    with pytest.raises(Exception, match="timeout") as caught:
        joined(
            session,
            "LEFT",
            "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='1 h',"
            " 'max-attempts'='1', 'timeout'='2 s', 'on-error'='fail'",
            where="o.id > 3",
        )
    assert "LookupTimeout" in str(caught.value)
    assert time.monotonic() - started < 60
