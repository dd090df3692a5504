"""Processes of one executor that look up at the same time: ``python -m tests.processes.askers <folder> ...``.

The words behind the folder are how many processes there are, how they ask (``sync``, ``async`` or ``row``), in which
order they have their keys (``same`` or ``mixed``), and what becomes of the first (``lives`` or ``dies``). Prints what
each found, and how often the source was asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lookup_hints.runtime.spec import LookupSettings, LookupSpec, PartialCache
from lookup_hints.spark.arrow_worker import look_up
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, SyncLookup
from lookup_hints.spi.model import LookupRequest, LookupTable, RowRequest, Rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYS = 10_000
SECONDS = 0.1


def write_down(folder: Path, number: int) -> None:
    """Add a line for a request of so many keys."""
    with (folder / "requests").open("a") as log:
        log.write(f"{number}\n")


class Slow(SyncLookup, AsyncLookup):
    """Even ids have names, and that takes its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LookupTable("slow", SCHEMA, options={"connector": "slow"}))
        self.folder = folder

    def lookup(self, request: LookupRequest) -> pa.Table:
        write_down(self.folder, request.keys.num_rows)
        time.sleep(SECONDS)
        return _found(request)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        write_down(self.folder, request.keys.num_rows)
        await asyncio.sleep(SECONDS)
        return _found(request)


class SlowRows(AsyncRowLookup):
    """The same for one key at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LookupTable("slow", SCHEMA, options={"connector": "slow_rows"}))
        self.folder = folder

    async def alookup_row(self, request: RowRequest) -> Rows:
        write_down(self.folder, 1)
        await asyncio.sleep(SECONDS / 10)
        return [{"name": name(request.key["id"])}] if request.key["id"] % 2 == 0 else []


def _found(request: LookupRequest) -> pa.Table:
    ids = [each for each in request.keys.column("id").to_pylist() if each % 2 == 0]
    return pa.table([ids, [name(each) for each in ids]], schema=SCHEMA).select(request.columns)


def name(each: int) -> str:
    """That of an id."""
    return f"n{each}"


def main() -> None:
    """Look up, and print what came of it."""
    folder, processes, how, order, first = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    children = [_begin(folder, each, how, order, first) for each in range(processes)]
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sizes = [int(line) for line in (folder / "requests").read_text().split()]
    print(*ends, len(sizes), sum(sizes))


def _begin(folder: Path, number: int, how: str, order: str, first: str) -> int:
    child = os.fork()
    if child:
        return child
    if number:
        time.sleep(0.02)
    elif first == "dies":
        signal.setitimer(signal.ITIMER_REAL, SECONDS / 2)
    ids = list(range(KEYS))
    if order == "mixed":
        Random(number).shuffle(ids)
    os._exit(
        0 if _look_up(folder, ids, how) == [name(each) if each % 2 == 0 else None for each in ids] else 1
    )


def _look_up(folder: Path, ids: list[int], how: str) -> list[str | None]:
    connector: Any = SlowRows(folder) if how == "row" else Slow(folder)
    settings = LookupSettings(how != "sync", cache=PartialCache(600.0, missing_ttl=60.0))
    spec = LookupSpec(connector, ("id",), ("name",), settings)
    found: list[str | None] = []
    for lists in look_up(spec, how, iter([(pa.array(ids, pa.int64()),)]), None):
        found += [rows[0]["name"] if rows else None for rows in lists.to_pylist()]
    return found


if __name__ == "__main__":
    main()
