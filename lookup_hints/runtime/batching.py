"""Cutting the input into windows of our own size: Spark's batch size is not ours to choose.

Equal keys of one window are asked once, so windows should be large; a ``LIMIT 20`` should ask for few
keys, so they start small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

FIRST_ROWS = 1024
GROWTH = 4
LARGEST_ROWS = 128 * 1024


def key_batches(batches: Iterator[Sequence[pa.Array]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of key columns, typed as ``schema``: Spark labels timestamps with the session's zone."""
    for columns in batches:
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)


def window_sizes() -> Iterator[int]:
    """How many rows the first, second, ... window should have."""
    rows = FIRST_ROWS
    while True:
        yield rows
        rows = min(rows * GROWTH, LARGEST_ROWS)


def windows(batches: Iterator[pa.RecordBatch], sizes: Iterator[int]) -> Iterator[pa.Table]:
    """The rows of ``batches`` in their order, cut into tables of the wanted ``sizes``; the last may be short.

    Reads no batch before its rows are needed; a window is never empty.
    """
    held: list[pa.RecordBatch] = []
    missing = next(sizes)
    for batch in batches:
        while batch.num_rows >= missing:
            held.append(batch.slice(0, missing))
            yield pa.Table.from_batches(held)
            batch = batch.slice(missing)
            held, missing = [], next(sizes)
        if batch.num_rows:
            held.append(batch)
            missing -= batch.num_rows
    if held:
        yield pa.Table.from_batches(held)
