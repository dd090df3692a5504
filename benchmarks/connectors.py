"""Connectors that only benchmarks use: ones that take no time, a fixed time, or their caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from lookup_connectors.http import HttpConnector, connector
from lookup_connectors.http.client_httpx import HttpxClient
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.spi import (
    DURATION,
    TEXT,
    AsyncLookup,
    LookupRequest,
    LookupTable,
    Option,
    Scan,
    SyncLookup,
    integer,
)
from lookup_hints.spi.request_and_answer import Answer


def _echoed(request: LookupRequest) -> pa.Table:
    """One row for each key; every other column holds the key's text, or the key itself."""
    (key,) = request.keys.columns
    columns = [key.cast(field.type) for field in request.schema]
    return pa.table(columns, schema=request.schema)


class Instant(AsyncLookup, SyncLookup):
    """Answers every key at once, from memory."""

    async def alookup(self, request: LookupRequest) -> pa.Table:
        """One row for each key."""
        return _echoed(request)

    def lookup(self, request: LookupRequest) -> pa.Table:
        """One row for each key."""
        return _echoed(request)


class Counted(AsyncLookup):
    """Answers as a near database does, and notes in a file how many keys each request had."""

    OPTIONS = (Option("notes", TEXT, "File that a line is added to for each request.", required=True),)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        """One row for each key."""
        with Path(self.table.options["notes"]).open("a", encoding="ascii") as notes:
            notes.write(f"{request.keys.num_rows}\n")
        await asyncio.sleep(0.002)
        return _echoed(request)


class Stored(SyncLookup, Scan):
    """The rows of a Parquet file, which are held in memory once a key is asked for."""

    OPTIONS = (Option("path", TEXT, "The file.", required=True),)

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows."""
        file = pq.ParquetFile(self.table.options["path"])
        for batch in file.iter_batches(batch_size=16_384, columns=schema.names):
            yield batch.select(schema.names).cast(schema)

    def lookup(self, request: LookupRequest) -> pa.Table:
        """The rows of the keys."""
        (key,) = request.keys.column_names
        rows = _rows_of_file(self.table.options["path"])
        is_asked = pc.is_in(rows.column(key), value_set=request.keys.column(key).combine_chunks())
        return rows.filter(is_asked).select(request.schema.names).cast(request.schema)


@cache
def _rows_of_file(path: str) -> pa.Table:
    return pq.read_table(path)


class OverHttpx(HttpConnector):
    """The connector ``http`` over httpx, as where httptools is missing."""

    async def aopen(self) -> None:
        """As ever, with this client."""
        with mock.patch.object(connector, "client_of", HttpxClient):
            await super().aopen()


class Steady(AsyncLookup):
    """Takes the same time for each request, and works on a few at once in each process."""

    OPTIONS = (
        Option("latency", DURATION, "How long a request takes.", default=0.05),
        Option("at-once", integer(1), "How many requests it works on at once.", default=4),
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._options = table.read(self.OPTIONS)[0]

    def requests_at_once(self) -> int:
        """As many as it works on."""
        at_once: int = self._options["at-once"]
        return at_once

    async def aopen(self) -> None:
        """Make ready to count."""
        self._turns = asyncio.Semaphore(self._options["at-once"])

    async def alookup(self, request: LookupRequest) -> pa.Table:
        """One row for each key, after the latency."""
        async with self._turns:
            await asyncio.sleep(self._options["latency"])
        return _echoed(request)


class Blocking(SyncLookup):
    """PostgreSQL as a sync connector: its caller waits for each answer."""

    OPTIONS = PostgresConnector.OPTIONS

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._inner = PostgresConnector(table)

    def open(self) -> None:
        """Connect."""
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._inner.aopen())

    def lookup(self, request: LookupRequest) -> Answer:
        """The rows of each key."""
        return self._loop.run_until_complete(self._inner.alookup(request))
