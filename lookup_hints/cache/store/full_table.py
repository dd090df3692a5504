"""A whole table as segments, each of a range of hashes: written with little memory, asked as one.

Rows go to files by the first bits of the hashes of their keys. Then neighbours among these files become one
segment each, sorted. A key that is in none has no row.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.cache.store.hashing import (
    Hashes,
    comparable,
    equal,
    hash_is_exact,
    hashes_of,
    in_order,
    is_null_key,
)
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.ranges import (
    Bounds,
    Ranges,
    RowSearch,
    SearchedRows,
    TooLarge,
    write_ranges,
    write_rows,
)
from lookup_hints.cache.store.segment_entries import (
    Chosen,
    Content,
    ProbeResult,
    one_value,
    ones_as_one_value,
)
from lookup_hints.cache.store.segment_files import (
    TEMPORARY,
    Encoded,
    NotASegment,
    Segment,
    StoreLimits,
    has_room_for,
    locked,
    make_private,
    opened,
)

# Ranges of hashes; a power of two.
_RANGES = 128

_SHIFT = np.uint64(64 - _RANGES.bit_length() + 1)
# Bytes of rows that are held in memory, and that a segment has unless one range has more.
_AT_ONCE = 4 * 1024 * 1024


class FullTable:
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
    def opened(cls, folder: Path, parts: int) -> FullTable:
        """The table in ``folder``, in this many segments.

        Raises:
            NotASegment: it is damaged.
            OSError: it is not there, or there is no room to map it.
        """
        with os.scandir(folder) as entries:
            files = [each for each in entries if each.name.endswith(".segment")]
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
        places = np.searchsorted(hashes[order], self._firsts[1:])  # of the segments, in the same order
        parts = np.split(order, places) if self._segments else []
        for segment, asked in zip(self._segments, parts, strict=True):
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


def write(
    folder: Path, batches: Iterable[pa.RecordBatch], keys: Sequence[str], limits: StoreLimits
) -> list[int]:
    """Write the rows of ``batches`` as segments into ``folder``, and return how many each has.

    Args:
        folder: an empty one.
        batches: all rows. Those with a NULL in their key are left out, as they equal nothing, but where the
            column is marked so that NULL is a key.
        keys: the columns that the table is asked by.
        limits: of the segments.

    Raises:
        TooLarge: they do not fit.
        OSError: they cannot be written.
    """
    written, nbytes = [], 0
    for first, rows in _split_by_hash(folder, _drop_null_keys(batches, keys), keys, limits):
        segment = Encoded(content_of_rows(rows, keys))
        nbytes += segment.size
        written.append(rows.num_rows)
        _check_size(limits, sum(written), nbytes)
        with _create_file(folder / f"{first:03d}.segment") as file:
            segment.write(file.fileno())
    return written


def _check_size(limits: StoreLimits, rows: int, nbytes: int) -> None:
    if not limits.allow(rows, nbytes):
        raise TooLarge("the table takes more room than the limits of its cache give it")


def _drop_null_keys(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[pa.Table]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for name in keys:
            if rows.column(name).null_count and not is_null_key(rows.schema.field(name)):
                rows = rows.filter(pc.is_valid(rows.column(name)))
        if rows.num_rows:
            yield rows


def _split_by_hash(
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
            _check_size(limits, rows, nbytes)
            if sum(each.nbytes for each in held) >= _AT_ONCE:
                spilled.add(pa.concat_tables(held))
                held.clear()
        if held and spilled.sizes.any():
            spilled.add(pa.concat_tables(held))
            held.clear()
    if held:
        yield 0, pa.concat_tables(held)
    yield from spilled.groups()


# Sorted in memory, a table of a gigabyte would take several, in a worker to which Spark gives little.
# (docs/decisions/0162)
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
                if number not in self._writers:
                    file = self._stack.enter_context(_create_file(self._spill_path(number)))
                    self._writers[number] = self._stack.enter_context(pa.ipc.new_stream(file, rows.schema))
                self._writers[number].write_table(part)

    def groups(self) -> Iterator[tuple[int, pa.Table]]:
        """Neighbours that are not too large together. The first one begins with range 0."""
        group: list[int] = []
        first = size = 0
        for number in np.flatnonzero(self.sizes):
            if group and size + self.sizes[number] > _AT_ONCE:
                yield first, self._take_spilled(group)
                group, first, size = [], int(number), 0
            group.append(int(number))
            size += self.sizes[number]
        if group:
            yield first, self._take_spilled(group)

    def _take_spilled(self, numbers: Sequence[int]) -> pa.Table:
        tables = []
        for number in numbers:
            with pa.memory_map(str(self._spill_path(number))) as file, pa.ipc.open_stream(file) as stream:
                tables.append(stream.read_all())
            self._spill_path(number).unlink()
        return pa.concat_tables(tables)

    def _spill_path(self, number: int) -> Path:
        return self._folder / f"{number:03d}.rows"


def _create_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w+b")


# An absent key is an answer here, so keys of equal hashes are told apart when the table is written.
# (docs/decisions/0162)
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


_GENERATION = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)\.generation")
_NOTE = "note"

TICKS = 1_000_000
"""Moments are whole microseconds: in milliseconds, what is read just after an invalidation would look old."""


@dataclass(frozen=True, order=True)
class Generation:
    """The rows of a table as they were once.

    Args:
        number: from 1 on.
        began: ``TICKS`` on the clock when reading began.
        ended: the same when it ended.
        rows: how many there are.
        parts: in how many segments.
    """

    number: int
    began: int
    ended: int
    rows: int
    parts: int

    @property
    def name(self) -> str:
        return f"{self.number:08d}.{self.began}.{self.ended}.{self.rows}.{self.parts}.generation"


@dataclass(frozen=True)
class Note:
    """Why the last attempt to load the table failed.

    Args:
        at: ``TICKS`` on the clock.
        kind: ``source`` where the source could not be read; ``cache`` where its rows could not be kept.
        text: for a reader, without secrets.
    """

    at: int
    kind: str
    text: str


# A generation becomes visible by one rename, so that readers see the old table or the new one, never a half.
# (docs/decisions/0162)
class Generations:
    """The generations of one table: one is read while the last one answers. One thread asks, any loads.

    A generation is a folder of segments. It is made under another name and renamed: it is there as a whole,
    or it is not. Whoever makes one has the lock ``loading`` for that time; if it is killed, the lock is free,
    and whoever has it next finds what was left. With ``by``
    rows are asked for by values in their ranges, or searched.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(
        self,
        path: Path,
        limits: StoreLimits,
        clock: Callable[[], float],
        by: Bounds | RowSearch | None = None,
    ) -> None:
        make_private(path)
        self.path, self._limits, self._clock, self._by = path, limits, clock, by
        self._opened: tuple[Generation, FullTable | Ranges | SearchedRows] | None = None
        self.damaged = 0
        """How many generations could not be read."""

    @property
    def now(self) -> int:
        return int(self._clock() * TICKS)

    # Asking.

    def newest(self) -> Generation | None:
        """The newest generation that is there as a whole; one of the future is not used: clocks may jump.

        Raises:
            OSError: the folder is not there any more.
        """
        return max((each for each in self._list_generations() if each.ended <= self.now), default=None)

    def opened(self) -> Generation | None:
        """Map the newest generation; what is damaged is removed.

        Raises:
            OSError: it cannot be read.
        """
        while (newest := self.newest()) is not None:
            if self._opened is not None and self._opened[0] == newest:
                return newest
            try:
                folder = self.path / newest.name
                if self._by is None:
                    self._opened = newest, FullTable.opened(folder, newest.parts)
                elif isinstance(self._by, Bounds):
                    self._opened = newest, Ranges.opened(folder, newest.rows, self._by)
                else:
                    self._opened = newest, SearchedRows.opened(folder, newest.rows, self._by)
            except FileNotFoundError:  # a newer one has replaced it
                continue
            except (NotASegment, NotADirectoryError, pa.ArrowException):
                self.damaged += 1
                self._remove_generation(newest)
        self._opened = None
        return None

    @property
    def most(self) -> int:
        """The most rows that the generation that is ``opened`` has for a value."""
        assert self._opened is not None
        return 1 if isinstance(self._opened[1], FullTable) else self._opened[1].most

    def probe(
        self, keys: pa.Table, columns: Sequence[str], invalidations: Invalidations | None = None
    ) -> ProbeResult:
        """The rows of ``keys`` in the opened generation, without those invalidated since."""
        assert self._opened is not None
        generation, whole = self._opened
        if not isinstance(whole, FullTable) or invalidations is None:
            return whole.probe(keys, columns)
        began = generation.began / TICKS
        return whole.probe(
            keys, columns, lambda hashes: invalidations.allow(hashes, np.full(len(hashes), began))
        )

    @property
    def held(self) -> tuple[int, int]:
        return (0, 0) if self._opened is None else (self._opened[0].rows, self._opened[1].nbytes)

    # Loading.

    @contextmanager
    def loading(self, *, wait: bool) -> Iterator[bool]:
        """Hold the load lock; yields whether it was acquired."""
        with locked(self.path / "loading", wait=wait) as is_alone:
            if is_alone:
                self._sweep_leftovers()
            yield is_alone

    def load(self, batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Generation:
        """Make a new generation of all rows; only ``loading``.

        Raises:
            TooLarge: they do not fit into the limits.
            OSError: they cannot be written.
        """
        began, last = self.now, max(self._list_generations(), default=None)
        folder = self.path / f"{uuid4().hex}{TEMPORARY}"
        folder.mkdir(mode=0o700)
        try:
            if self._by is None:
                rows = write(folder, batches, keys, self._limits)
            elif isinstance(self._by, Bounds):
                rows = [write_ranges(folder, batches, self._by, self._limits)]
            else:
                rows = [write_rows(folder, batches, self._by.schema, self._limits)]
            number = 1 + (last.number if last is not None else 0)
            new = Generation(number, began, self.now, sum(rows), len(rows))
            folder.rename(self.path / new.name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            pa.default_memory_pool().release_unused()  # it keeps what was needed once
        with suppress(OSError):  # the table is there, whatever cannot be cleared away
            (self.path / _NOTE).unlink(missing_ok=True)
            self._sweep_leftovers()
        return new

    def _sweep_leftovers(self) -> None:
        """Remove what killed processes have left, and all generations but the newest."""
        newest = self.newest()
        for each in self._list_generations():
            if each != newest:
                self._remove_generation(each)
        for left in self.path.glob(f"*{TEMPORARY}"):
            _remove_left(left)

    def _remove_generation(self, generation: Generation) -> None:
        """Remove it by one rename: readers of a half-removed generation would miss rows."""
        gone = self.path / f"{uuid4().hex}{TEMPORARY}"
        with suppress(FileNotFoundError):
            (self.path / generation.name).rename(gone)
            _remove_left(gone)

    def _list_generations(self) -> Iterator[Generation]:
        with os.scandir(self.path) as entries:
            found = [match for each in entries if (match := _GENERATION.fullmatch(each.name))]
        return (Generation(*map(int, each.groups())) for each in found)

    # Notes.

    # One process tries, and the others read here what came of it. (docs/decisions/0162)
    def note(self, kind: str, text: str) -> Note:
        """Tell all processes why the table could not be loaded; only ``loading``."""
        note = Note(self.now, kind, text)
        file = self.path / f"{uuid4().hex}{TEMPORARY}"
        with suppress(OSError):  # a full disk, maybe: then each process finds out by itself
            try:
                with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as written:
                    json.dump(vars(note), written)
                file.rename(self.path / _NOTE)
            finally:
                file.unlink(missing_ok=True)
        return note

    def noted(self) -> Note | None:
        """Why the last attempt failed; None where it did not. A note of the future counts for nothing."""
        with suppress(OSError, LookupError, ValueError, TypeError, OverflowError, RecursionError):
            told = json.loads((self.path / _NOTE).read_text(encoding="utf-8"))
            note = Note(int(told["at"]), str(told["kind"]), str(told["text"]))
            return note if note.at <= self.now else None
        return None


def _remove_left(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
