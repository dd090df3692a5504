"""Cutting the input into windows of our own size: Spark's batch size is not ours to choose.

Equal keys of one window are asked once, and neighbours in a source's index together, so windows should be
large; a query that is content with a few rows should ask for few keys, so they start small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

FIRST_ROWS = 1024
GROWTH = 8
CAREFUL_GROWTH = 2
"""Where few rows may do, and where each key is a request."""

LARGEST_ROWS = 128 * 1024


def key_batches(batches: Iterator[Sequence[pa.Array]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of key columns, typed as ``schema``: Spark labels timestamps with the session's zone."""
    for columns in batches:
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)


def window_sizes(growth: int, most: Callable[[], int | None] = lambda: None) -> Iterator[int]:
    """How many rows the first, second, ... window should have: ever ``growth`` times as many, to a limit.

    ``most`` is asked before each: what is found for more rows would take too much memory.
    """
    rows = FIRST_ROWS
    while True:
        yield min(rows, most() or rows)
        rows = min(rows * growth, LARGEST_ROWS)


def ending_at(rows: int, sizes: Iterator[int]) -> Iterator[int]:
    """``sizes``, made smaller so that a window ends at this many ``rows``."""
    for size in sizes:
        fitting = min(size, rows) if rows else size
        yield fitting
        rows = max(0, rows - fitting)


def windows(batches: Iterator[pa.RecordBatch], sizes: Iterator[int]) -> Iterator[pa.Table]:
    """The rows of ``batches`` in their order, cut into tables of the wanted ``sizes``; the last may be short.

    Reads no batch before its rows are needed; a window is never empty. Takes a size when it begins a window.
    """
    held: list[pa.RecordBatch] = []
    missing = 0
    for batch in batches:
        while batch.num_rows:
            missing = missing or next(sizes)
            held.append(batch.slice(0, missing))
            missing -= held[-1].num_rows
            batch = batch.slice(held[-1].num_rows)
            if not missing:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)
