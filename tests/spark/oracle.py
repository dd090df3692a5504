"""The oracle: the same statement over the same rows, once with lookups and once with Spark's own join."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from lookup_connectors.memory import put_rows

from lookup_hints import LookupSession
from lookup_hints.sql.lexer import quoted, string_literal
from lookup_hints.tables.ddl import columns_of
from lookup_hints.tables.registry import register_connector
from tests.spark.answers import Answer, require_equal
from tests.spark.counting import Calls, CountingConnector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

register_connector("counting", CountingConnector)
_numbers = itertools.count()
OUR_WORDS = re.compile(r"/\*\+\s*LOOKUP\(.*?\)\s*\*/|FOR SYSTEM_TIME AS OF [\w.]+(\(\))?", re.DOTALL)


class Twins:
    """Two Spark sessions with the same tables; in one of them some are lookup tables."""

    def __init__(self, new_session: Callable[[], SparkSession], folder: Path) -> None:
        self.plain = new_session()
        self.session = LookupSession(new_session())
        self._folder = folder
        self._logs: dict[str, Path] = {}

    @property
    def sessions(self) -> list[SparkSession]:
        """Both Spark sessions."""
        return [self.plain, self.session.spark]

    def conf(self, key: str, value: str) -> None:
        """Set Spark's configuration in both."""
        for spark in self.sessions:
            spark.conf.set(key, value)

    def table(self, name: str, columns: str, rows: list[tuple[Any, ...]], partitions: int = 2) -> None:
        """An ordinary table in both sessions: its rows come from files, so that they can be split."""
        path = self._write(f"{name}_{next(_numbers)}", _arrow(columns, rows), partitions)
        for spark in self.sessions:
            spark.read.schema(columns).parquet(path).createOrReplaceTempView(name)

    def dimension(
        self, name: str, columns: str, rows: list[tuple[Any, ...]], key: str = "", **options: str
    ) -> None:
        """A table that is ordinary in one session and a lookup table in the other."""
        data, table = f"{name}_{next(_numbers)}", _arrow(columns, rows)
        self.plain.read.schema(columns).parquet(self._write(data, table, 1)).createOrReplaceTempView(name)
        put_rows(data, table)
        log = self._folder / f"{data}.log"
        self._logs[name] = log
        primary_key = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
        given = {"connector": "counting", "data": data, "log": str(log), **options}
        listed = ", ".join(
            f"{string_literal(option.replace('_', '-'))} = {string_literal(value)}"
            for option, value in given.items()
        )
        self.session.sql(
            f"CREATE OR REPLACE TEMPORARY TABLE {quoted(name)} ({columns}{primary_key}) WITH ({listed})"
        )

    def _write(self, name: str, rows: pa.Table, partitions: int) -> str:
        """Write files without a job of Spark; the folder."""
        folder = self._folder / name
        folder.mkdir()
        for number in range(partitions):
            at = range(number, rows.num_rows, partitions)
            pq.write_table(rows.take(pa.array(at, pa.int64())), folder / f"{number}.parquet")
        return str(folder)

    def calls(self, name: str) -> Calls:
        """What the dimension was asked since ``forget``."""
        return Calls.read(self._logs[name])

    def forget(self) -> None:
        """Empty the logs."""
        for log in self._logs.values():
            log.unlink(missing_ok=True)

    def check(self, sql: str, args: Any = None) -> list[tuple[Any, ...]]:
        """Run ``sql`` both ways; columns, types and rows must be the same. Returns the rows."""
        expected = self.plain.sql(OUR_WORDS.sub("", sql), args)
        actual = Answer.of(self.session.sql(sql, args))
        actual.require(Answer.of(expected), sql, ordered=False)
        return actual.rows

    def check_all(self, statements: Iterable[str]) -> list[Answer]:
        """Run several statements both ways in one job; values are compared as texts."""
        return require_equal(
            (text, self.plain.sql(OUR_WORDS.sub("", text)), self.session.sql(text)) for text in statements
        )


def _arrow(columns: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = columns_of(columns)
    values = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.table(
        [pa.array(each, column.type) for each, column in zip(values, schema, strict=True)], schema
    )
