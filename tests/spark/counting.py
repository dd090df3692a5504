"""A connector over rows in memory that writes down every request, from whatever process it is asked in."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from lookup_connectors.memory import MemoryConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.spi import DURATION, TEXT, Option
from lookup_hints.spi.request_and_answer import LookupRequest, OrderCondition

if TYPE_CHECKING:
    from lookup_hints import LookupSession


def write_down(request: LookupRequest, file: Path) -> None:
    """Add a line for ``request`` to ``file``."""
    keys = [list(map(repr, row.values())) for row in request.keys.to_pylist()]
    _add({"keys": keys, "columns": list(request.columns)}, file)


def _add(call: dict[str, Any], file: Path) -> None:
    line = json.dumps(call)
    # One write of one line in append mode stays whole between processes.
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as log:
        log.write(line + "\n")


class CountingConnector(MemoryConnector):
    """Memory, with a log."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *MemoryConnector.OPTIONS,
        Option("log", TEXT, "File that takes a line for each request."),
        Option("latency", DURATION, "Time that an async answer takes.", default=0.0),
    )

    def lookup(self, request: LookupRequest) -> pa.Table:
        write_down(request, Path(self.table.options["log"]))
        return super().lookup(request)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        latency = self.table.read(self.OPTIONS)[0]["latency"]
        if latency:
            await asyncio.sleep(latency)
        return await super().alookup(request)

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        _add({"scanned": schema.names}, Path(self.table.options["log"]))
        return super().scan(schema)


class WorkerNumber(MemoryConnector):
    """A table of one row: the number of the process that reads it."""

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()]}, schema=schema)


@dataclass(frozen=True)
class Calls:
    """What was asked, and how often the table was read."""

    requests: list[dict[str, Any]]
    scans: int = 0

    @property
    def keys(self) -> Counter[tuple[str, ...]]:
        """How often each key was asked for."""
        return Counter(tuple(key) for request in self.requests for key in request["keys"])

    @property
    def columns(self) -> set[str]:
        """Every column asked for."""
        return {column for request in self.requests for column in request["columns"]}

    @classmethod
    def read(cls, log: Path) -> Calls:
        """The calls written to ``log`` so far."""
        if not log.exists():
            return cls([])
        calls = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        requests = [each for each in calls if "keys" in each]
        return cls(requests, len(calls) - len(requests))


class LoggedSqlite(SqliteConnector):
    """SQLite, with a log."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *SqliteConnector.OPTIONS,
        Option("log", TEXT, "File that takes a line for each request."),
    )

    def lookup(self, request: LookupRequest) -> pa.Table:
        write_down(request, Path(self.table.options["log"]))
        return super().lookup(request)


class ByKey(CountingConnector):
    """Is asked for keys alone: the worker chooses among their rows."""

    def can_order(self, order: OrderCondition) -> bool:
        return False


@dataclass
class Counting:
    """A session whose lookup tables count what they are asked."""

    session: LookupSession
    folder: Path

    def table(self, name: str, columns: str, **options: str) -> None:
        given = {
            "connector": "tests.spark.counting:CountingConnector",
            "log": str(self.folder / f"{name}.log"),
            "rows": "[]",
            "lookup.access": "lookup",
            **{key.replace("_", "-").replace("lookup-", "lookup."): value for key, value in options.items()},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        self.session.sql(f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({listed})")

    def run(self, query: str, table: str) -> tuple[int, int]:
        """The keys and requests that ``query`` asks of ``table``."""
        log = self.folder / f"{table}.log"
        log.unlink(missing_ok=True)
        self.session.sql(query).write.format("noop").mode("overwrite").save()
        calls = Calls.read(log) if log.exists() else Calls([])
        return sum(calls.keys.values()), len(calls.requests)
