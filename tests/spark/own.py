"""Connectors of one's own, one for each door; each can be used only where it was opened, and writes down its use.

Their module is all that a worker imports of them.
"""

from __future__ import annotations

import json
import os
from abc import ABC
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from lookup_hints.spi import (
    BOOLEAN,
    TEXT,
    Answer,
    AsyncLookup,
    AsyncRowLookup,
    Connector,
    ConnectorError,
    LookupRequest,
    LookupTable,
    Option,
    Outcome,
    Outcomes,
    ReportsOutcomes,
    RowRequest,
    Rows,
    SyncLookup,
    SyncRowLookup,
)

FOUND = {1: "n1", 2: "n2", 3: "n3"}
FAILING = 7
LATE, PASSING = 8, 9
"""One is missing and the other fails, until each is asked for a second time."""


def nothing_found(rows: Sequence[Mapping[str, Any]]) -> bool:
    """A predicate of retries."""
    return not rows


@dataclass(frozen=True)
class Use:
    """What connectors did so far: in which process, for which table, and for which keys (none: opened)."""

    lines: Sequence[tuple[int, str, tuple[int, ...]]]

    @classmethod
    def read(cls, log: Path) -> Use:
        """As written to ``log``."""
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        return cls([(pid, table, tuple(keys)) for pid, table, keys in map(json.loads, text.splitlines())])

    @property
    def processes(self) -> set[int]:
        """All that opened or asked any."""
        return {pid for pid, _, _ in self.lines}

    @property
    def opened(self) -> Counter[tuple[int, str]]:
        """How often each process opened each table."""
        return Counter((pid, table) for pid, table, keys in self.lines if not keys)

    @property
    def asked(self) -> Counter[tuple[str, int]]:
        """How often each key of each table was asked for."""
        return Counter((table, key) for _, table, keys in self.lines for key in keys)


class _Own(Connector, ReportsOutcomes, ABC):
    """What all of them are: without ``_begin`` they know nothing, and a copy has to begin by itself."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("log", TEXT, "File that takes a line for each opening and each request.", required=True),
        Option("tells", BOOLEAN, "Whether lookups without rows are told in rows.", default=False),
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._known: dict[int, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table | None:
        """Their kind and text; they, too, can be told by an open connector only."""
        if not self.table.read(self.OPTIONS)[0]["tells"]:
            return None
        self._names()
        told = {"outcome": "error" if outcome.error else "miss", "error": str(outcome.error or "") or None}
        return pa.Table.from_pylist([{**key, **told} for key in keys.to_pylist()], schema=schema)

    def _begin(self) -> None:
        self._write_down(())
        self._known = dict(FOUND)

    def _end(self) -> None:
        self._known = None

    def _names(self) -> dict[int, str]:
        if self._known is None:
            raise AssertionError("this connector was never opened: it is a task's own copy")
        return self._known

    def _rows(self, keys: Sequence[int], attempt: int) -> tuple[dict[int, str], dict[int, Exception]]:
        """The names of ``keys`` that are there, and why others fail."""
        known = self._names()
        self._write_down(keys)
        now_known = known if attempt == 1 else {**known, LATE: "late", PASSING: "passing"}
        failing = {FAILING, PASSING} - now_known.keys()
        return (
            {key: now_known[key] for key in keys if key in now_known},
            {key: ConnectorError(f"no luck with {key}") for key in keys if key in failing},
        )

    def _write_down(self, keys: Sequence[int]) -> None:
        line = json.dumps([os.getpid(), self.table.name, keys])
        file = self.table.options["log"]
        # One write of one line in append mode stays whole between processes.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as log:
            log.write(line + "\n")

    def _answer(self, request: LookupRequest) -> Answer:
        keys: list[int] = request.keys.column("id").to_pylist()
        names, failures = self._rows(keys, request.attempt)
        rows = [{"id": key, "name": name, "outcome": "hit"} for key, name in names.items()]
        return Outcomes(
            pa.Table.from_pylist(rows, schema=request.schema),
            pa.array([keys.index(key) for key in names], pa.int32()),
            {keys.index(key): error for key, error in failures.items()},
        )

    def _row(self, request: RowRequest) -> Rows:
        names, failures = self._rows([request.key["id"]], request.attempt)
        for error in failures.values():
            raise error
        outcome = {"outcome": "hit"} if "outcome" in self.table.schema.names else {}
        return [{"name": name, **outcome} for name in names.values()]


class _OpenedSync(_Own, ABC):
    def open(self) -> None:
        self._begin()

    def close(self) -> None:
        self._end()


class _OpenedAsync(_Own, ABC):
    async def aopen(self) -> None:
        self._begin()

    async def aclose(self) -> None:
        self._end()


class OwnSync(_OpenedSync, SyncLookup):
    """Many keys at once, sync."""

    def lookup(self, request: LookupRequest) -> Answer:
        return self._answer(request)


class OwnAsync(_OpenedAsync, AsyncLookup):
    """Many keys at once, async."""

    async def alookup(self, request: LookupRequest) -> Answer:
        return self._answer(request)


class OwnSyncRow(_OpenedSync, SyncRowLookup):
    """One key after the other, sync."""

    def lookup_row(self, request: RowRequest) -> Rows:
        return self._row(request)


class OwnAsyncRow(_OpenedAsync, AsyncRowLookup):
    """One key at a time, async."""

    async def alookup_row(self, request: RowRequest) -> Rows:
        return self._row(request)
