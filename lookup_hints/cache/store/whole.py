"""A whole table as segments, each of a range of hashes: written with little memory, asked as one.

Rows go to files by the first bits of the hashes of their keys. Then neighbours among these files become one
segment each, sorted. A key that is in none has no row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.cache.store.content import Chosen, Content, ProbeResult, one_value, ones_as_one_value
from lookup_hints.cache.store.folder import StoreLimits
from lookup_hints.cache.store.hashing import (
    Hashes,
    Positions,
    comparable,
    equal,
    hash_is_exact,
    hashes_of,
    in_order,
)
from lookup_hints.cache.store.segment import Encoded, NotASegment, Segment, has_room_for, opened

_RANGES = 128
"""Ranges of hashes; a power of two."""

_SHIFT = np.uint64(64 - _RANGES.bit_length() + 1)
_AT_ONCE = 4 * 1024 * 1024
"""Bytes of rows that are held in memory, and that a segment has unless one range has more."""


class TooLarge(Exception):
    """The table does not fit into the limits."""


class Whole:
    """The segments of one table, mapped into memory; they outlive their files.

    Args:
        segments: by the first of their ranges.
        nbytes: of their files.
    """

    def __init__(self, segments: dict[int, Segment], nbytes: int) -> None:
        self.nbytes = nbytes
        self._segments = [segments[each] for each in sorted(segments)]
        self._firsts = np.array(sorted(segments), np.uint64) << _SHIFT

    @classmethod
    def opened(cls, folder: Path, parts: int) -> Whole:
        """The table in ``folder``, in this many segments.

        Raises:
            NotASegment: it is damaged.
            OSError: it is not there, or there is no room to map it.
        """
        files = [each for each in os.scandir(folder) if each.name.endswith(".segment")]
        nbytes = sum(each.stat().st_size for each in files)
        if not has_room_for(nbytes):
            raise OSError(0, "there is no room to map the table")
        if len(files) != parts:
            raise NotASegment("some of its files are missing")
        segments = {int(each.name.split(".")[0]): opened(Path(each.path), None) for each in files}
        return cls(segments, nbytes)

    def probe(
        self, keys: pa.Table, columns: Sequence[str], allow: Callable[[Hashes], Chosen] | None = None
    ) -> ProbeResult:
        """The rows of ``keys``, which are distinct and hold no NULL; the others have none.

        What is neither must be asked: ``allow`` forbids its hash, or several keys of the table have it.
        """
        compared = comparable(keys)
        hashes = hashes_of(compared)
        to_compare = None if hash_is_exact(keys.schema) else compared
        is_missing = np.ones(len(hashes), np.bool_) if allow is None else allow(hashes)
        order, found = in_order(hashes)[0], []
        order = order[is_missing[order]]
        for segment, asked in zip(self._segments, self._by_segment(hashes, order), strict=True):
            matches = segment.find(hashes, asked, to_compare)
            counts = segment.content.counts[matches.entries]
            is_missing[matches.asked[matches.is_same | (counts == 0)]] = False
            has_rows = matches.is_same & (counts > 0)
            if has_rows.any():
                found.append(segment.rows_of(matches.asked[has_rows], matches.entries[has_rows], columns))
        return ProbeResult(
            tuple((rows, pa.array(at, pa.int32())) for rows, at in found),
            pa.array(np.flatnonzero(is_missing), pa.int32()),
        )

    def _by_segment(self, hashes: Hashes, order: Positions) -> Sequence[Positions]:
        """``order`` in the part of each segment; it is that of the hashes."""
        if not self._segments:
            return []
        return np.split(order, np.searchsorted(hashes[order], self._firsts[1:]))


def write(
    folder: Path, batches: Iterable[pa.RecordBatch], keys: Sequence[str], limits: StoreLimits
) -> list[int]:
    """Write the rows of ``batches`` as segments into ``folder``, and return how many each has.

    Args:
        folder: an empty one.
        batches: all rows. Those with a NULL in their key are left out, as they equal nothing.
        keys: the columns that the table is asked by.
        limits: of the segments.

    Raises:
        TooLarge: they do not fit.
        OSError: they cannot be written.
    """
    written, nbytes = [], 0
    for first, rows in _in_ranges(folder, _with_keys(batches, keys), keys, limits):
        segment = Encoded(content_of_rows(rows, keys))
        nbytes += segment.size
        written.append(rows.num_rows)
        _check(limits, sum(written), nbytes)
        with _created(folder / f"{first:03d}.segment") as file:
            segment.write(file.fileno())
    return written


def _check(limits: StoreLimits, rows: int, nbytes: int) -> None:
    if not limits.allow(rows, nbytes):
        raise TooLarge("the table takes more room than the limits of its cache give it")


def _with_keys(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.Table]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for name in keys:
            if rows.column(name).null_count:
                rows = rows.filter(pc.is_valid(rows.column(name)))
        if rows.num_rows:
            yield rows


def _in_ranges(
    folder: Path, tables: Iterable[pa.Table], keys: Sequence[str], limits: StoreLimits
) -> Iterator[tuple[int, pa.Table]]:
    """The rows by neighbouring ranges of their hashes, each with the first of its ranges."""
    held: list[pa.Table] = []
    with ExitStack() as stack:
        spilled = _Spilled(folder, keys, stack)
        nbytes = rows = 0
        for table in tables:
            held.append(table)
            rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
            _check(limits, rows, nbytes)
            if sum(each.nbytes for each in held) >= _AT_ONCE:
                spilled.add(pa.concat_tables(held))
                held.clear()
        if held and spilled.sizes.any():
            spilled.add(pa.concat_tables(held))
            held.clear()
    if held:
        yield 0, pa.concat_tables(held)
    yield from spilled.groups()


class _Spilled:
    """Rows in a file for each range, until ``stack`` is closed; then they can be read, once."""

    def __init__(self, folder: Path, keys: Sequence[str], stack: ExitStack) -> None:
        self._folder, self._keys, self._stack = folder, keys, stack
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self.sizes = np.zeros(_RANGES, np.int64)

    def add(self, rows: pa.Table) -> None:
        ranges = (hashes_of(comparable(rows.select(self._keys))) >> _SHIFT).astype(np.int64)
        rows = rows.combine_chunks().take(pa.array(np.argsort(ranges, kind="stable")))
        ends = np.bincount(ranges, minlength=_RANGES).cumsum()
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > start:
                part = rows.slice(start, end - start)
                self.sizes[number] += part.nbytes
                self._writer(number, rows.schema).write_table(part)

    def _writer(self, number: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        if number not in self._writers:
            file = self._stack.enter_context(_created(self._path(number)))
            self._writers[number] = self._stack.enter_context(pa.ipc.new_stream(file, schema))
        return self._writers[number]

    def groups(self) -> Iterator[tuple[int, pa.Table]]:
        """Neighbours that are not too large together. The first one begins with range 0."""
        group: list[int] = []
        first = size = 0
        for number in np.flatnonzero(self.sizes):
            if group and size + self.sizes[number] > _AT_ONCE:
                yield first, self._taken(group)
                group, first, size = [], int(number), 0
            group.append(int(number))
            size += self.sizes[number]
        if group:
            yield first, self._taken(group)

    def _taken(self, numbers: Sequence[int]) -> pa.Table:
        tables = []
        for number in numbers:
            with pa.memory_map(str(self._path(number))) as file, pa.ipc.open_stream(file) as stream:
                tables.append(stream.read_all())
            self._path(number).unlink()
        return pa.concat_tables(tables)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:03d}.rows"


def _created(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b")


def content_of_rows(rows: pa.Table, keys: Sequence[str]) -> Content:
    """An entry for each key of ``rows``; of several keys with one hash it has no row: they must be asked."""
    rows = rows.combine_chunks()
    compared = comparable(rows.select(keys))
    hashes = hashes_of(compared)
    order, hashes = in_order(hashes)
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    counts = np.diff(np.append(starts, len(hashes)))
    is_exact = hash_is_exact(rows.select(keys).schema)
    if not is_exact:
        compared = compared.take(pa.array(order))
        firsts = compared.take(pa.array(starts))
        entry = np.repeat(np.arange(len(starts)), counts)
        counts[entry[~equal(compared, firsts.take(pa.array(entry)))]] = 0
    (batch,) = rows.take(pa.array(order)).combine_chunks().to_batches()
    return Content(
        hashes[starts],
        starts,
        ones_as_one_value(counts),
        loaded=one_value(0.0, np.float64, len(starts)),
        used=np.zeros(0, np.uint32),
        keys=None,
        rows=batch,
        keyed_by=() if is_exact else tuple(keys),
    )
