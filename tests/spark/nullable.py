"""Sources that write down every request, NULLs included, and fail for NULL while a file says so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.spi import TEXT, Answer, AsyncLookup, ConnectorError, Option
from lookup_hints.spi.request_and_answer import LookupRequest


class NullableSqlite(SqliteConnector):
    """SQLite with a log; its rows without a zip cannot be read while the file ``ill`` exists."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *SqliteConnector.OPTIONS,
        Option("log", TEXT, "File that takes a line for each request."),
        Option("ill", TEXT, "A file; while it exists, NULL is not answered."),
    )

    def lookup(self, request: LookupRequest) -> Answer:
        options = self.table.options
        keys = [
            [*map(repr, row.values()), *("NULL" for _ in request.nulls)] for row in request.keys.to_pylist()
        ]
        line = json.dumps({"keys": keys or [["NULL"]], "columns": list(request.columns)})
        # One write of one line in append mode stays whole between processes.
        with os.fdopen(os.open(options["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as log:
            log.write(line + "\n")
        if request.nulls and Path(options["ill"]).exists():
            raise ConnectorError("rows without a zip are locked", permanent=True)
        return super().lookup(request)


class AsyncNullableSqlite(NullableSqlite, AsyncLookup):
    """The same, asked on an event loop."""

    async def aopen(self) -> None:
        self.open()

    async def aclose(self) -> None:
        self.close()

    async def alookup(self, request: LookupRequest) -> Answer:
        return self.lookup(request)
