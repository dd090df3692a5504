"""A place for streaming INSERTs: a session with tables of its own, and what runs there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_hints import LookupSession
from lookup_hints.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
PEOPLE = '[[0, "Ann", "US"], [1, "Bob", "DE"], [1, "Bea", "FR"], [3, "Cem", null]]'
JOIN = "FROM STREAM visits v LEFT JOIN people p ON v.person = p.id"


def _visits(ids: range) -> pa.Table:
    columns = {"id": ids, "person": [each % 5 for each in ids], "at": [each * 1_000_000 for each in ids]}
    kinds = (pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
    return pa.table(
        {name: pa.array(values, kind) for (name, values), kind in zip(columns.items(), kinds, strict=True)}
    )


class Place:
    """A session with a database, a folder, a stream of visits and a lookup table of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark.newSession(), folder
        self.session = LookupSession(self.spark)
        self.database = f"streams_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {self.database} LOCATION '{folder}/tables'")
        self.sql(f"USE {self.database}")
        self.sql("CREATE TABLE visits (id BIGINT, person BIGINT, at TIMESTAMP) USING parquet")
        for part in range(2):  # written by hand, as a job for each test would take longer than many of them
            pq.write_table(_visits(range(part, 40, 2)), folder / "tables" / "visits" / f"part-{part}.parquet")
        self.sql(
            "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, country STRING) WITH ("
            f"'connector' = 'tests.spark.counting:CountingConnector', 'rows' = '{PEOPLE}', 'log' = '{folder}/log')"
        )
        self.sql(
            "CREATE TEMPORARY TABLE names (id BIGINT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)"
            """ WITH ('connector' = 'memory', 'rows' = '[[0, "Ann", "US"], [1, null, "DE"], [3, "Cem", null]]')"""
        )
        self.checkpoint("first")
        self.sql("SET lookup.stream.trigger = available-now")

    def visit(self, first: int, end: int) -> None:
        """Let more visits arrive, in two files."""
        rows = f"SELECT /*+ REPARTITION(2) */ id, id % 5, timestamp_seconds(id) FROM range({first}, {end})"
        self.sql(f"INSERT INTO visits {rows}")

    def sql(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a statement."""
        return [tuple(row) for row in self.session.sql(text).collect()]

    def checkpoint(self, name: str) -> None:
        """Set the checkpoint of the next query."""
        self.sql(f"SET lookup.stream.checkpoint = '{self.folder}/checkpoints/{name}'")

    def stream(self, text: str) -> None:
        """Run a streaming INSERT to its end."""
        self.sql(text)
        assert self.session.streams.await_all(150)

    def refusal(self, text: str) -> str:
        """Why a statement is refused; nothing runs after it."""
        with pytest.raises(QueryError) as caught:
            self.session.sql(text)
        assert not self.session.streams.running
        return str(caught.value)


def new_place(spark: SparkSession, folder: Path) -> Iterator[Place]:
    """A place, until its tests are over."""
    made = Place(spark, folder)
    yield made
    made.session.streams.stop()
    made.sql("USE default")
    made.sql(f"DROP DATABASE {made.database} CASCADE")
