"""Processes that load tables until they are killed: ``python -m tests.unit.cache.loader <folder> <step> ...``.

Each has a folder of its own, called like its step, and kills itself before its ``step``-th call that changes
files. It loads one generation, and then another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_hints.cache.store import full_table
from lookup_hints.cache.store.full_table import Generations
from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.support import SCHEMA, Clock, keys, told
from tests.unit.cache.writer import kill_before

PADDING = "x" * 100


def main() -> None:
    """Load, and print how each process ended."""
    folder, *steps = sys.argv[1:]
    pa.array([None])  # it loads pandas, which each child would do for itself
    children = [_begin(Path(folder, step), int(step)) for step in steps]
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def _begin(folder: Path, step: int) -> int:
    child = os.fork()
    if not child:
        folder.mkdir()
        full_table._AT_ONCE = 200
        kill_before(step)
        one = Generations(folder / "whole", StoreLimits(), Clock())
        loaded(one, [(1, "old"), *((each, PADDING) for each in range(100, 103))])
        loaded(one, [(2, "new"), *((each, PADDING) for each in range(100, 103))])
        os._exit(0)
    return child


def loaded(one: Generations, rows: Sequence[tuple[Any, str]], schema: pa.Schema = SCHEMA) -> None:
    """Load a generation of these ids and names."""
    with one.loading(wait=True):
        one.load(table_of(rows, schema), ["id"])


def table_of(rows: Sequence[tuple[Any, str]], schema: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """Ids and names in batches of seven."""
    table = pa.table([[key for key, _ in rows], [name for _, name in rows]], schema=schema)
    return iter(table.to_batches(max_chunksize=7))


def names(one: Generations, ids: Sequence[Any], schema: pa.Schema = SCHEMA) -> dict[Any, list[str]]:
    """What the newest generation has of ``ids``: their names, none where it knows that there is no row."""
    assert one.opened() is not None
    return told(one.probe(keys(ids, schema), ["name"]), ids)


if __name__ == "__main__":
    main()
