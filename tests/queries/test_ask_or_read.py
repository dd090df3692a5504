"""Ask or read on Spark: the same rows in every form of join, and requests counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.driver.table_sizes import TableSizes
from lookup_hints.errors import UnsupportedLookup
from tests.spark.oracle import Twins
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [(1, 1, 10.0), (2, 2, 20.0), (3, None, 30.0), (4, 9, 40.0), (5, 1, 50.0)]
CUSTOMERS = [(1, "ada", "DE"), (2, "bob", None), (3, "eve", "FR")]


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    found = Twins(spark.newSession, tmp_path_factory.mktemp("ask_or_read"))
    found.table("orders", "id BIGINT, k BIGINT, total DOUBLE", ORDERS)
    found.dimension("c", "id BIGINT, name STRING, country STRING", CUSTOMERS, key="id")
    found.dimension("d", "id BIGINT, name STRING, country STRING", CUSTOMERS, key="id")
    found.table("r", "id BIGINT, k BIGINT", [(number, number % 4) for number in range(50)])
    return found


@pytest.fixture(autouse=True)
def _nothing_asked(twins: Twins) -> None:
    twins.forget()


FORMS = (
    "SELECT o.id, c.name FROM orders o JOIN c ON o.k = c.id",
    "SELECT * FROM orders o LEFT JOIN c ON o.k = c.id AND c.country = 'DE'",
    "SELECT * FROM orders o LEFT SEMI JOIN c ON o.k = c.id",
    "SELECT * FROM orders o LEFT ANTI JOIN c ON o.k = c.id AND c.country IS NULL",
    "SELECT * FROM (SELECT id AS order_id, k AS id, total FROM orders) o JOIN c USING (id)",
    "SELECT * FROM (SELECT k AS id, total FROM orders) o NATURAL LEFT JOIN c",
    "SELECT o.id, c.name FROM c JOIN orders o ON o.k = c.id",
    "SELECT * FROM c RIGHT JOIN orders o ON o.k = c.id",
    "SELECT o.id, c.name FROM orders o, c WHERE o.k = c.id AND o.total > 10",
    "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM c WHERE c.id = o.k)",
    "SELECT id FROM orders o WHERE k NOT IN (SELECT id FROM c WHERE id IS NOT NULL) AND k IS NOT NULL",
    "SELECT id, (SELECT max(name) FROM c WHERE c.id = o.k) AS name FROM orders o",
    "SELECT o.id, c.name, r.k FROM orders o JOIN c ON o.k = c.id JOIN r ON r.id = o.id",
    "SELECT o.id, x.name FROM orders o FULL JOIN (SELECT * FROM c WHERE country = 'DE') x ON o.k = x.id",
    "SELECT o.id, c.name FROM orders o JOIN c FOR SYSTEM_TIME AS OF current_timestamp() ON o.k = c.id",
    "SELECT name FROM c WHERE id = 1",
)


PIPES = (
    "FROM orders o |> JOIN c ON o.k = c.id |> SELECT o.id, c.name",
    "FROM orders o |> AS o |> LEFT JOIN c ON o.k = c.id |> WHERE c.name IS NULL |> SELECT o.id",
)


def test_a_join_that_is_read_gives_sparks_rows_and_asks_nothing(twins: Twins) -> None:
    with set_in(twins, "lookup.access", "scan"):
        twins.check_all(FORMS if SPARK < (4, 0) else [*FORMS, *PIPES])
        assert twins.calls("c").requests == []


class set_in:  # noqa: N801  (a context manager)
    """A session option while a block runs."""

    def __init__(self, twins: Twins, key: str, value: str) -> None:
        self._conf, self._key, self._value = twins.session.spark.conf, key, value

    def __enter__(self) -> None:
        self._conf.set(self._key, self._value)

    def __exit__(self, *_: object) -> None:
        self._conf.unset(self._key)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT /*+ LOOKUP('table'='c', 'access'='scan') */ o.id, c.name, d.country FROM orders o"
        " LEFT JOIN c ON o.k = c.id JOIN d ON d.id = o.k",
        "SELECT /*+ LOOKUP('table'='c', 'access'='scan') */ o.id, c.name, d.country FROM orders o"
        " JOIN d ON d.id = o.k LEFT JOIN c ON c.id = d.id",
        "SELECT /*+ LOOKUP('table'='c', 'access'='scan') */ o.id, c.name, d.country FROM orders o, c, d"
        " WHERE o.k = c.id AND d.id = c.id",
    ],
)
def test_one_table_is_read_and_its_neighbour_is_asked(twins: Twins, text: str) -> None:
    twins.check(text)
    assert twins.calls("c").requests == []
    assert twins.calls("d").requests


def test_many_rows_on_the_left_of_a_small_table_are_joined_by_spark(twins: Twins) -> None:
    text = "SELECT count(*), count(c.name) FROM range(0, 20000) o LEFT JOIN c ON o.id % 5 = c.id"
    twins.check(text)
    assert twins.calls("c").requests == []
    shown = twins.session.explain(text)
    assert "Whole table c is read" in shown
    assert (
        "there are 19,900 rows or more on the left (EXPLAIN COST), more than 0.9 for each of 3 rows" in shown
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*), count(c.name) FROM range(0, 9000) o LEFT JOIN c ON o.id % 5 = c.id",
        "SELECT count(*), count(c.name) FROM range(0, 20000) o LEFT JOIN c ON o.id % 5 = c.id WHERE o.id < 9",
        "SELECT /*+ LOOKUP('table'='c') */ count(c.name) FROM range(0, 20000) o LEFT JOIN c ON o.id % 5 = c.id",
    ],
)
def test_all_else_asks(twins: Twins, text: str) -> None:
    twins.check(text)
    assert twins.calls("c").requests
    assert "asked: " in twins.session.explain(text)


def test_a_joined_frame_asks_unless_it_is_told_to_read(twins: Twins) -> None:
    frame = twins.session.spark.range(0, 20_000).selectExpr("id % 5 AS k")
    wanted = {(1, "ada"): 4000, (2, "bob"): 4000, (3, "eve"): 4000}
    asked: list[bool] = []
    for access in (None, "lookup", "scan", "auto"):
        twins.forget()
        joined = twins.session.lookup_join(frame, "c", {"k": "id"}, access=access)
        counts = joined.groupBy("k", "name").count().collect()
        assert {(row["k"], row["name"]): row["count"] for row in counts} == wanted
        asked.append(bool(twins.calls("c").requests))
    assert asked == [True, True, False, False]


def test_a_stream_asks_whatever_is_wished(twins: Twins, tmp_path: Path) -> None:
    spark = twins.session.spark
    spark.range(0, 10).selectExpr("id AS k").write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("k BIGINT").parquet(str(tmp_path / "in"))
    joined = twins.session.lookup_join(frame, "c", {"k": "id"}, access="scan")
    query = joined.writeStream.format("memory").queryName("asked").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("asked").count() == 3
    assert twins.calls("c").requests


def test_a_read_that_a_guard_warns_of_is_logged(twins: Twins, caplog: pytest.LogCaptureFixture) -> None:
    with set_in(twins, "lookup.on-scan", "warn"), caplog.at_level(logging.WARNING, "lookup_hints"):
        twins.session.sql("SELECT * FROM c").collect()
    (line,) = [message for message in caplog.messages if "read whole" in message]
    assert line.startswith("Table c is read whole because")
    assert "the table has 3 rows" in line


def test_a_guard_forbids_a_read_before_anything_runs(twins: Twins) -> None:
    with (
        set_in(twins, "lookup.scan.max-rows", "2"),
        pytest.raises(UnsupportedLookup, match=r"The lookup table c would be read whole.*It has 3 rows"),
    ):
        twins.session.sql("SELECT * FROM orders o RIGHT JOIN c ON o.k = c.id")


def test_planning_without_a_lookup_table_asks_nobody(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Callable[..., object]:
        raise AssertionError("asked for a figure")

    monkeypatch.setattr(TableSizes, "of", refuse)
    monkeypatch.setattr(StatementScope, "explained", refuse)
    assert twins.session.sql("SELECT o.id FROM orders o JOIN r ON o.k = r.id").count() > 0
