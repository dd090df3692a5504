"""One segment as a file: an index, its directory and rows as Arrow streams, and a checksum at the end."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.cache.store.content import Content, expanded, is_one_value, one_value
from lookup_hints.cache.store.hashing import Hashes, Numbers, Positions, equal

MAGIC = 0x3570756B6F6F4C
_TAIL = struct.Struct("<QQQQ")  # lengths of the index and of the directory, checksum, magic
_BLOCK = 512
_NUMBERS: dict[str, npt.DTypeLike] = {"starts": np.int32, "counts": np.int32, "loaded": np.float64}
_KEYED_BY = "keyed_by"
_SLOTS = 2
"""So many for each entry, or up to twice as many: mostly the first entry of a slot is the one."""


Directory = npt.NDArray[np.int32]


class NotASegment(ValueError):
    """The file is not what was written."""


@dataclass(frozen=True)
class Matches:
    """Keys that a segment has, each with its entry there.

    Args:
        asked: their positions among those that were asked.
        entries: the numbers of their entries.
        is_same: whether the entry's key is theirs; else only its hash is.
    """

    asked: Positions
    entries: Positions
    is_same: npt.NDArray[np.bool_]


class Segment:
    """A segment that is mapped into memory; it outlives its file."""

    def __init__(self, content: Content, directory: Directory) -> None:
        self.content, self._directory = content, directory
        self._shift = _shift(len(content))
        self._has_one_row_each = bool((content.counts == 1).all())
        self.latest: float = content.loaded.max(initial=-np.inf)
        """When its newest entry was asked for."""
        self.earliest: float = content.loaded.min(initial=np.inf)
        """The same of its oldest one."""

    def find(self, hashes: Hashes, asked: Positions, keys: pa.RecordBatch | None) -> Matches:
        """Those ``asked`` keys that are here; ``keys`` are compared, where hashes alone do not tell."""
        wanted, own = hashes[asked], self.content.hashes
        entries: Positions = self._directory[(wanted >> self._shift).astype(np.int64)].astype(np.int64)
        found = own.take(entries, mode="clip")
        behind = np.flatnonzero(found < wanted)
        while len(behind):
            entries[behind] += 1
            found[behind] = now = own.take(entries[behind], mode="clip")
            behind = behind[(now < wanted[behind]) & (entries[behind] < len(own))]
        matching = np.flatnonzero(found == wanted)
        asked, entries = asked[matching], entries[matching]
        if keys is None:
            return Matches(asked, entries, np.ones(len(asked), np.bool_))
        here = self.content.keys_of(entries)
        return Matches(asked, entries, equal(here, keys.take(pa.array(asked))))

    def rows_of(
        self, asked: Positions, entries: Positions, columns: Sequence[str]
    ) -> tuple[pa.Table, Positions]:
        """The rows of ``entries``, and for each the position that was ``asked``."""
        starts = self.content.starts[entries]
        if not self._has_one_row_each:
            counts = self.content.counts[entries]
            starts, asked = expanded(starts, counts), np.repeat(asked, counts)
        rows = self.content.rows.select(list(columns)).take(pa.array(starts))
        return pa.Table.from_batches([rows]), asked

    def note_use(self, entries: Positions, now: float) -> None:
        self.content.used[entries] = max(0, int(now)) + 1


def _shift(entries: int) -> np.uint64:
    shift: np.uint64 = np.uint64(64 - (_SLOTS * entries - 1).bit_length())
    return shift


def _directory(hashes: Hashes) -> Directory:
    """For each number that hashes begin with, the first entry that has it or a larger one."""
    shift = _shift(len(hashes))
    begins = np.bincount((hashes >> shift).astype(np.int64), minlength=1 << (64 - int(shift)))
    firsts = np.zeros(len(begins), np.int32)
    np.cumsum(begins[:-1], dtype=np.int32, out=firsts[1:])
    return firsts


class Encoded:
    """A ``content`` as the bytes of a segment, on their way into a file.

    They are not put together in memory first: on many virtual machines, new pages of memory cost more than
    all else that remembering takes. The checksum is that of what the file holds once it is written.
    """

    def __init__(self, content: Content) -> None:
        directory = pa.RecordBatch.from_arrays([pa.array(_directory(content.hashes))], names=["entry"])
        self._streams = (_index(content), directory, content.rows)
        self._lengths = [_size(each) for each in self._streams]
        self._body = sum(self._lengths) + -sum(self._lengths) % 8
        self.size = self._body + _TAIL.size
        """How many bytes they are."""

    def write(self, file: int) -> None:
        """Write them to an empty ``file``, open for reading and writing."""
        with os.fdopen(os.dup(file), "wb") as sink:
            for each in self._streams:
                _write(sink, each)
            sink.write(bytes(self._body - sink.tell()))
            sink.flush()
            sink.write(_TAIL.pack(*self._lengths[:2], self._sum_of(file), MAGIC))

    def _sum_of(self, file: int) -> int:
        # Closed with its last reference: an error would hold one, and closing would hide it.
        return _checksum(pa.py_buffer(mmap(file, self._body, access=ACCESS_READ)))


def _index(content: Content) -> pa.RecordBatch:
    """What tells of each entry; where all numbers are one value, that stands in the metadata."""
    columns, values = {"hashes": pa.array(content.hashes)}, {_KEYED_BY: json.dumps(content.keyed_by)}
    for name, kind in _NUMBERS.items():
        numbers: Numbers = getattr(content, name)
        if is_one_value(numbers):
            values[name] = str(numbers[0])
        else:
            columns[name] = pa.array(numbers.astype(kind, copy=False))
    if content.keys is not None:
        columns |= zip(content.keys.schema.names, content.keys.columns, strict=True)
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns], metadata=values)


def _size(batch: pa.RecordBatch) -> int:
    sink = pa.MockOutputStream()
    _write(sink, batch)
    return int(sink.size())


def _write(sink: pa.NativeFile | BinaryIO, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _checksum(body: pa.Buffer) -> int:
    """Sums of blocks, each with a weight of its own, so that it counts where something stands."""
    words = np.frombuffer(body, np.uint64)
    full = len(words) // _BLOCK * _BLOCK
    sums = words[:full].reshape(-1, _BLOCK).sum(axis=1, dtype=np.uint64)
    sums = np.append(sums, words[full:].sum(dtype=np.uint64))
    weights = np.arange(1, 2 * len(sums), 2, dtype=np.uint64)
    return int((sums * weights).sum(dtype=np.uint64)) ^ len(body)


def opened(path: Path, used: Path | None) -> Segment:
    """The segment under ``path``; what is noted of its use is shared with all who open it.

    Raises:
        NotASegment: the file is damaged.
        OSError: it cannot be read.
    """
    with pa.memory_map(str(path)) as file:
        return _decoded(file.read_buffer(), used)


def _decoded(file: pa.Buffer, used: Path | None) -> Segment:
    size = file.size - _TAIL.size
    if size < 0 or size % 8:
        raise NotASegment("it is cut off")
    length, behind, checksum, magic = _TAIL.unpack(file.slice(size).to_pybytes())
    body, behind = file.slice(0, size), length + behind
    if magic != MAGIC or behind > size or checksum != _checksum(body):
        raise NotASegment("its bytes are not those that were written")
    index, directory = _read(body.slice(0, length)), _read(body.slice(length, behind - length))
    columns = dict(zip(index.schema.names, index.columns, strict=True))
    hashes = columns.pop("hashes").to_numpy()
    values = index.schema.metadata
    numbers = {
        name: columns.pop(name).to_numpy()
        if name in columns
        else one_value(float(values[name.encode()]), kind, len(hashes))
        for name, kind in _NUMBERS.items()
    }
    keys = pa.RecordBatch.from_arrays([*columns.values()], names=[*columns]) if columns else None
    notes = np.zeros(0, np.uint32) if used is None else _opened_used(used, len(hashes))
    keyed_by = tuple(json.loads(values[_KEYED_BY.encode()]))
    content = Content(
        hashes, **numbers, used=notes, keys=keys, rows=_read(body.slice(behind)), keyed_by=keyed_by
    )
    return Segment(content, directory.column(0).to_numpy())


def _read(stream: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


def _opened_used(path: Path, entries: int) -> npt.NDArray[np.uint32]:
    if path.stat().st_size != 4 * entries:
        raise NotASegment("what is noted of its use is cut off")
    return np.memmap(path, np.uint32, "r+", shape=(entries,))


try:
    import resource
except ImportError:  # on Windows
    _can_ask = False
else:
    _can_ask = True

_SPARE = 0.5
"""This part of what is left stays free for the lookup itself."""


def has_room_for(nbytes: int) -> bool:
    """Whether so much may be mapped: ``spark.executor.pyspark.memory`` bounds what mapped files count for."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0] if _can_ask else -1
    if most < 0:
        return True
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return False
    return nbytes <= (most - taken) * _SPARE
