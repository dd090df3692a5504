"""``<=>`` where a source is late, fails, is limited or remembered: NULL is a key as any other."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from lookup_hints import LookupSession
from tests.spark.ailing import letters
from tests.spark.counting import Calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [(1, "10115"), (2, None), (3, "20095"), (4, None), (5, "99999"), (6, None), (7, "10115")]
PLACES = [("10115", "Berlin"), ("20095", "Hamburg"), (None, "no zip")]
CITIES = {None: "no zip", "10115": "Berlin", "20095": "Hamburg"}
FOUND = [(number, CITIES.get(zip_code)) for number, zip_code in ORDERS]
EACH_ONCE = {("'10115'",): 1, ("'20095'",): 1, ("'99999'",): 1, ("NULL",): 1}
RUNNERS = pytest.mark.parametrize("connector", ["NullableSqlite", "AsyncNullableSqlite"])


class Place:
    """A session with orders, some without a zip, and a source of cities with a row that has none."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder, self.session = folder, LookupSession(spark.newSession())
        (folder / "orders").mkdir()
        orders = pa.table({"id": [each[0] for each in ORDERS], "zip": [each[1] for each in ORDERS]})
        pq.write_table(orders, folder / "orders" / "part.parquet")
        self.session.spark.read.parquet(f"{folder}/orders").createOrReplaceTempView("orders")
        with closing(sqlite3.connect(folder / "places.db")) as source, source:
            source.execute("CREATE TABLE places (zip TEXT, city TEXT)")
            source.executemany("INSERT INTO places VALUES (?, ?)", PLACES)

    def create(self, connector: str, more: str = "") -> None:
        """Create the table ``places``."""
        self.session.sql(
            "CREATE TEMPORARY TABLE places (zip STRING, city STRING) WITH ('connector' ="
            f" 'tests.spark.nullable:{connector}', 'path' = '{self.folder}/places.db', 'table-name' = 'places',"
            f" 'log' = '{self.folder}/log', 'ill' = '{self.folder}/ill'{more})"
        )

    def joined(self, options: str = "", kind: str = "LEFT", orders: str = "orders") -> str:
        """A statement that joins by zip."""
        hint = f"/*+ LOOKUP('table'='c'{options}) */"
        return f"SELECT {hint} o.id, c.city FROM {orders} o {kind} JOIN places c ON o.zip <=> c.zip"

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """What a statement gives, in order of ids."""
        return sorted(tuple(row) for row in self.session.sql(text).collect())

    @property
    def asked(self) -> Calls:
        """What the source was asked so far."""
        return Calls.read(self.folder / "log")


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


@RUNNERS
def test_null_is_asked_and_counted_once(place: Place, connector: str) -> None:
    place.create(connector)
    before = place.session.metrics()
    assert place.rows(place.joined()) == FOUND
    assert place.asked.keys == EACH_ONCE
    (new,) = (counts for name, counts in place.session.metrics().items() if name not in before)
    assert (new.rows_in, new.null_key_rows, new.keys, new.hits, new.misses) == (7, 0, 4, 3, 1)
    assert new.requests == len(place.asked.requests) == 2


@RUNNERS
def test_a_row_of_null_that_is_late_is_found_by_a_retry(place: Place, connector: str) -> None:
    def insert(zip_code: str | None, city: str) -> None:
        with closing(sqlite3.connect(place.folder / "places.db", timeout=30)) as source, source:
            source.execute("INSERT INTO places VALUES (?, ?)", (zip_code, city))

    def arrive() -> None:
        """The rows come once they have been asked for."""
        while not {("NULL",), ("'99999'",)} <= place.asked.keys.keys():
            assert not over.wait(0.02)
        insert(None, "late")
        insert("99999", "later")

    with closing(sqlite3.connect(place.folder / "places.db")) as source, source:
        source.execute("DELETE FROM places WHERE zip IS NULL")
    place.create(connector)
    over = threading.Event()
    arriving = threading.Thread(target=arrive)
    arriving.start()
    retry = ", 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='100ms'"
    try:
        found: dict[int, str] = dict(place.rows(place.joined(retry + ", 'max-attempts'='300'", kind="INNER")))
    finally:
        over.set()
        arriving.join()
    assert found == {1: "Berlin", 2: "late", 3: "Hamburg", 4: "late", 5: "later", 6: "late", 7: "Berlin"}
    asked = place.asked.keys
    assert asked[("NULL",)] > 1
    assert asked[("'10115'",)] == asked[("'20095'",)] == 1


@RUNNERS
def test_null_alone_is_kept_as_a_dead_letter_and_asked_again(place: Place, connector: str) -> None:
    place.create(connector)
    (place.folder / "ill").touch()
    folder = place.folder / "letters"
    kept = f", 'on-error'='dead-letter', 'dead-letter.path'='{folder}'"
    assert place.rows(place.joined(kept)) == [(no, None if no in (2, 4, 6) else city) for no, city in FOUND]
    (letter,) = letters(place.session.spark, folder)
    assert letter["key"] == '{"zip": null}'
    assert letter["error"] == "rows without a zip are locked"
    (place.folder / "ill").unlink()
    again = (
        "SELECT l.zip, c.city FROM (SELECT DISTINCT from_json(key, 'zip STRING').zip AS zip"
        f" FROM parquet.`{folder}` WHERE table = 'places') l JOIN places c ON l.zip <=> c.zip"
    )
    assert [tuple(row) for row in place.session.sql(again).collect()] == [(None, "no zip")]


@RUNNERS
def test_a_partial_cache_remembers_null(place: Place, connector: str) -> None:
    ttl = "'lookup.partial-cache.expire-after-write' = '1 h', 'lookup.partial-cache.missing-ttl' = '1 h'"
    place.create(connector, f", 'lookup.cache' = 'PARTIAL', {ttl}")
    for _ in range(2):
        assert place.rows(place.joined()) == FOUND
        assert place.asked.keys == EACH_ONCE


@RUNNERS
def test_the_request_for_null_is_counted_where_requests_are_limited(place: Place, connector: str) -> None:
    place.create(connector)
    assert place.rows(place.joined(", 'max-requests'='2'")) == FOUND
    with pytest.raises(PythonException, match=r"TooManyRequests: .*this statement has sent 1 request"):
        place.rows(place.joined(", 'max-requests'='1', 'on-error'='null'"))
    assert len(place.asked.requests) == 3


@RUNNERS
def test_a_stream_finds_rows_of_null(place: Place, connector: str) -> None:
    place.create(connector)
    spark = place.session.spark
    visits = spark.readStream.schema("id BIGINT, zip STRING").parquet(f"{place.folder}/orders")
    visits.createOrReplaceTempView("visits")
    frame = place.session.sql(place.joined(orders="visits"))
    name = f"null_safe_{connector}"
    stream = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert stream.awaitTermination(120)
    assert sorted(map(tuple, spark.table(name).collect())) == FOUND
    assert place.asked.keys == EACH_ONCE
