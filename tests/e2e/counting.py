"""A connector over rows in memory that writes down every request, from whatever process it is asked in."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from lookup_connectors.memory import MemoryConnector

from lookup_hints.model import LookupRequest
from lookup_hints.spi import DURATION, TEXT, Option


class CountingConnector(MemoryConnector):
    """Memory, with a log."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *MemoryConnector.OPTIONS,
        Option("log", TEXT, "File that takes a line for each request."),
        Option("latency", DURATION, "Time that an async answer takes.", default=0.0),
    )

    def lookup(self, request: LookupRequest) -> pa.Table:
        line = json.dumps(
            {
                "keys": [list(map(repr, row.values())) for row in request.keys.to_pylist()],
                "columns": list(request.columns),
            }
        )
        # One write of one line in append mode stays whole between processes.
        with os.fdopen(
            os.open(self.table.options["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w"
        ) as log:
            log.write(line + "\n")
        return super().lookup(request)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        latency = self.table.read(self.OPTIONS)[0]["latency"]
        if latency:
            await asyncio.sleep(latency)
        return await super().alookup(request)


@dataclass(frozen=True)
class Calls:
    """What was asked."""

    requests: list[dict[str, Any]]

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
        return cls([json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()])
