"""Cutting the input into windows of our own size."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine.adaptive_batch_size import (
    LARGEST_ROWS,
    ending_at,
    key_batches,
    window_sizes,
    windows,
)

SCHEMA = pa.schema([("id", pa.int64())])


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(start, start + rows), pa.int64())], schema=SCHEMA)


def test_windows_start_small_and_grow_to_a_limit() -> None:
    sizes = list(islice(window_sizes(2), 10))
    assert sizes[:4] == [1024, 2048, 4096, 8192]
    assert sizes[-2:] == [LARGEST_ROWS, LARGEST_ROWS]
    assert list(islice(window_sizes(8), 5)) == [1024, 8192, 65536, LARGEST_ROWS, LARGEST_ROWS]


def test_a_window_can_end_at_a_given_row() -> None:
    assert list(islice(ending_at(10_000, window_sizes(2)), 6)) == [1024, 2048, 4096, 2832, 16384, 32768]
    assert list(islice(ending_at(1024, window_sizes(2)), 2)) == [1024, 2048]
    assert list(islice(ending_at(10, window_sizes(2)), 2)) == [10, 2048]


@given(st.lists(st.integers(0, 30), max_size=10), st.lists(st.integers(1, 25), min_size=1, max_size=5))
def test_no_row_is_lost_or_moved_and_all_but_the_last_have_the_wanted_size(
    batches: list[int], sizes: list[int]
) -> None:
    def wanted() -> Iterator[int]:
        yield from sizes
        while True:
            yield sizes[-1]

    starts = [sum(batches[:index]) for index in range(len(batches))]
    cut = list(windows((batch(*one) for one in zip(starts, batches, strict=True)), wanted()))
    rows = [row for window in cut for row in window.column("id").to_pylist()]
    assert rows == list(range(sum(batches)))
    assert [window.num_rows for window in cut[:-1]] == list(islice(wanted(), max(0, len(cut) - 1)))
    assert all(window.num_rows for window in cut)


def test_no_batch_is_read_before_its_rows_are_needed() -> None:
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for index in range(5):
            read.append(index)
            yield batch(index * 10, 10)

    cut = windows(batches(), iter([10, 10, 10]))
    assert next(cut).num_rows == 10
    assert read == [0]


def test_no_input_gives_no_window() -> None:
    assert list(windows(iter([batch(0, 0)]), window_sizes(2))) == []


@pytest.mark.parametrize("zone", ["Etc/UTC", "Europe/Berlin"])
def test_a_timestamp_keeps_its_instant_whatever_zone_spark_labels_it_with(zone: str) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    column = pa.array([0, None], pa.timestamp("us", zone))
    (found,) = key_batches(iter([(column,)]), schema)
    assert found.schema == schema
    assert found.column(0).to_pylist() == [datetime(1970, 1, 1, tzinfo=timezone.utc), None]


def test_large_strings_become_the_tables_strings() -> None:
    schema = pa.schema([("name", pa.string())])
    (found,) = key_batches(iter([(pa.array(["a"], pa.large_string()),)]), schema)
    assert found.schema == schema
