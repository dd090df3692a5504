"""Segments: immutable files of answers, mapped into memory; the folder that holds them, and its limits.

A segment is called ``<number>.<merges>.<rows>.<unique>.segment``, and beside it lies ``<...>.used``. Larger
numbers are newer; of one number, the segment of most merges holds what the others do. Whoever adds or
removes files holds ``write.lock`` for that moment; whoever compacts holds ``compact.lock`` for as long as
that takes. The limits hold at any time.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.cache.store.hashing import Hashes, Numbers, Positions, equal
from lookup_hints.cache.store.segment_entries import Content, expanded, is_one_value, one_value

MAGIC = 0x3570756B6F6F4C
_TAIL = struct.Struct("<QQQQ")  # lengths of the index and of the directory, checksum, magic
_BLOCK = 512
_NUMBERS: dict[str, npt.DTypeLike] = {"starts": np.int32, "counts": np.int32, "loaded": np.float64}
_KEYED_BY = "keyed_by"
# So many for each entry, or up to twice as many: mostly the first entry of a slot is the one.
_SLOTS = 2


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
        self._shift = _hash_shift(len(content))
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


def _hash_shift(entries: int) -> np.uint64:
    shift: np.uint64 = np.uint64(64 - (_SLOTS * entries - 1).bit_length())
    return shift


def _build_directory(hashes: Hashes) -> Directory:
    """For each number that hashes begin with, the first entry that has it or a larger one."""
    shift = _hash_shift(len(hashes))
    begins = np.bincount((hashes >> shift).astype(np.int64), minlength=1 << (64 - int(shift)))
    firsts = np.zeros(len(begins), np.int32)
    np.cumsum(begins[:-1], dtype=np.int32, out=firsts[1:])
    return firsts


# Straight into its file, column by column: memory pages that a virtual machine has not used before are the
# largest cost of a merge. (docs/decisions/0158)
class Encoded:
    """A ``content`` as the bytes of a segment; the checksum is that of what the file holds in the end."""

    def __init__(self, content: Content) -> None:
        directory = pa.RecordBatch.from_arrays([pa.array(_build_directory(content.hashes))], names=["entry"])
        self._streams = (_index_batch(content), directory, content.rows)
        self._lengths = [_stream_size(each) for each in self._streams]
        self._body = sum(self._lengths) + -sum(self._lengths) % 8
        self.size = self._body + _TAIL.size
        """How many bytes they are."""

    def write(self, file: int) -> None:
        """Write them to an empty ``file``, open for reading and writing."""
        with os.fdopen(os.dup(file), "wb") as sink:
            for each in self._streams:
                _write_stream(sink, each)
            sink.write(bytes(self._body - sink.tell()))
            sink.flush()
            sink.write(_TAIL.pack(*self._lengths[:2], self._sum_of(file), MAGIC))

    def _sum_of(self, file: int) -> int:
        # Closed with its last reference: an error would hold one, and closing would hide it.
        return _weighted_checksum(pa.py_buffer(mmap(file, self._body, access=ACCESS_READ)))


def _index_batch(content: Content) -> pa.RecordBatch:
    """The index columns of the entries; a column of one repeated value is stored in the metadata."""
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


def _stream_size(batch: pa.RecordBatch) -> int:
    sink = pa.MockOutputStream()
    _write_stream(sink, batch)
    return int(sink.size())


def _write_stream(sink: pa.NativeFile | BinaryIO, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _weighted_checksum(body: pa.Buffer) -> int:
    """Sums of blocks with different weights, so that the order of blocks matters."""
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
        return _decode_segment(file.read_buffer(), used)


def _decode_segment(file: pa.Buffer, used: Path | None) -> Segment:
    size = file.size - _TAIL.size
    if size < 0 or size % 8:
        raise NotASegment("it is cut off")
    length, behind, checksum, magic = _TAIL.unpack(file.slice(size).to_pybytes())
    body, behind = file.slice(0, size), length + behind
    if magic != MAGIC or behind > size or checksum != _weighted_checksum(body):
        raise NotASegment("its bytes are not those that were written")
    try:
        return _decode_body(body, length, behind, used)
    except NotASegment:
        raise
    except (pa.ArrowException, LookupError, ValueError) as error:  # other bytes may have the same sum
        raise NotASegment(f"it does not have the columns of a segment: {error}") from error


def _decode_body(body: pa.Buffer, length: int, behind: int, used: Path | None) -> Segment:
    """What its three streams hold: an index until ``length``, a directory until ``behind``, then rows."""
    index, directory = _read_stream(body.slice(0, length)), _read_stream(body.slice(length, behind - length))
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
    notes = np.zeros(0, np.uint32) if used is None else _map_used_counts(used, len(hashes))
    keyed_by = tuple(json.loads(values[_KEYED_BY.encode()]))
    content = Content(
        hashes, **numbers, used=notes, keys=keys, rows=_read_stream(body.slice(behind)), keyed_by=keyed_by
    )
    return Segment(content, directory.column(0).to_numpy())


def _read_stream(stream: pa.Buffer) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(stream) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        # Its bytes are in memory: an OSError of Arrow is of a place that the tail of the file gives wrongly.
        raise NotASegment(f"a part of it cannot be read: {error}") from error


# The one thing that is written in place. If it is lost, an answer goes sooner. (docs/decisions/0158)
def _map_used_counts(path: Path, entries: int) -> npt.NDArray[np.uint32]:
    if path.stat().st_size != 4 * entries:
        raise NotASegment("what is noted of its use is cut off")
    return np.memmap(path, np.uint32, "r+", shape=(entries,))


try:
    import resource
except ImportError:  # on Windows
    _can_ask = False
else:
    _can_ask = True

# This part of what is left stays free for the lookup itself.
_SPARE = 0.5


# Room is checked before mapping: a mapped file without room on the disk ends the process.
# (docs/decisions/0158)
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


TEMPORARY = ".tmp"
_SEGMENT = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\w+)\.segment")


@dataclass(frozen=True)
class StoreLimits:
    """The limits of a store; None is no limit.

    Args:
        max_bytes: of all its files.
        max_rows: of all segments; a key that is known to have none counts as one.
    """

    max_bytes: int | None = None
    max_rows: int | None = None

    def allow(self, rows: int, nbytes: int) -> bool:
        return (self.max_rows is None or rows <= self.max_rows) and (
            self.max_bytes is None or nbytes <= self.max_bytes
        )

    def part(self, share: float) -> StoreLimits:
        most_bytes, most_rows = (
            None if most is None else int(most * share) for most in (self.max_bytes, self.max_rows)
        )
        return StoreLimits(most_bytes, most_rows)


@dataclass(frozen=True, order=True)
class Filed:
    """A segment that is there; the older one is the lesser."""

    number: int
    merges: int
    rows: int
    unique: str
    nbytes: int

    @classmethod
    def named(cls, name: str, nbytes: int) -> Filed | None:
        """The segment whose file has this ``name``; None where that is another file."""
        parts = _SEGMENT.fullmatch(name)
        return parts and cls(int(parts[1]), int(parts[2]), int(parts[3]), parts[4], nbytes)

    @property
    def name(self) -> str:
        return f"{self._file_stem}.segment"

    @property
    def used(self) -> str:
        return f"{self._file_stem}.used"

    @property
    def _file_stem(self) -> str:
        return f"{self.number:012d}.{self.merges}.{self.rows}.{self.unique}"


# Written as a temporary file, then renamed under a lock: other processes map files at any moment.
# (docs/decisions/0158)
class Folder:
    def __init__(self, path: Path, limits: StoreLimits) -> None:
        make_private(path)
        self.path, self.limits = path, limits

    def names(self) -> list[str]:
        with os.scandir(self.path) as files:
            return [each.name for each in files]

    def filed(self) -> list[Filed]:
        """All segments, from the oldest to the newest."""
        with os.scandir(self.path) as files:
            sizes = {each.name: _file_size(each) for each in files}
        filed = filter(None, (Filed.named(name, nbytes) for name, nbytes in sizes.items()))
        last = {each.number: each for each in sorted(filed)}
        return [replace(each, nbytes=each.nbytes + sizes.get(each.used, 0)) for each in last.values()]

    def add(
        self, segment: Encoded, rows: int, used: bytes, instead_of: Sequence[Filed] = ()
    ) -> Sequence[Filed] | None:
        """File a new segment ``instead_of`` others, as new as the newest of these; else the newest of all.

        ``used`` is what is noted of its use. The oldest ones go to make room, and are returned; None is
        returned where it would not fit alone.
        """
        with (
            self._temporary_file(segment.write) as file,
            self._temporary_file(_writer_of_bytes(used)) as notes,
            locked(self.path / "write.lock"),
        ):
            filed = self.filed()
            if instead_of:
                number, merges = max((each.number, each.merges + 1) for each in instead_of)
            else:
                number, merges = 1 + max((each.number for each in filed), default=0), 0
            new = Filed(number, merges, rows, uuid4().hex[:12], segment.size + len(used))
            leaving = self._files_to_evict(filed, instead_of, new)
            if leaving is not None:
                self._remove_files(leaving)
                notes.rename(self.path / new.used)
                file.rename(self.path / new.name)
                # Last: without them and without the new one, older answers that they hide would come back.
                self._remove_files(instead_of)
            return leaving

    def _files_to_evict(
        self, filed: list[Filed], instead_of: Sequence[Filed], new: Filed
    ) -> list[Filed] | None:
        if not self.limits.allow(new.rows, new.nbytes):
            return None
        staying = [each for each in filed if each not in instead_of]
        rows, nbytes = (sum(getattr(each, of) for each in (*staying, new)) for of in ("rows", "nbytes"))
        leaving: list[Filed] = []
        while not self.limits.allow(rows, nbytes):
            leaving.append(staying[len(leaving)])
            rows, nbytes = rows - leaving[-1].rows, nbytes - leaving[-1].nbytes
        return leaving

    def put(self, name: str, data: bytes, instead_of: Iterable[str]) -> None:
        """Write a file that is no segment, in the place of others."""
        with self._temporary_file(_writer_of_bytes(data)) as file, locked(self.path / "write.lock"):
            file.rename(self.path / name)
            for each in instead_of:
                (self.path / each).unlink(missing_ok=True)

    def remove(self, filed: Iterable[Filed]) -> None:
        with locked(self.path / "write.lock"):
            self._remove_files(filed)

    def _remove_files(self, filed: Iterable[Filed]) -> None:
        for each in filed:
            for name in (each.name, each.used):
                (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def tidying(self) -> Iterator[bool]:
        """Hold the compaction lock; yields whether it was acquired."""
        with locked(self.path / "compact.lock", wait=False) as is_alone:
            yield is_alone

    def sweep(self) -> None:
        """Remove what writers have left: files that no process has open, and parts of merged segments."""
        with locked(self.path / "write.lock"):
            kept = {name for each in self.filed() for name in (each.name, each.used)}
            for name in self.names():
                is_part = name not in kept and (_SEGMENT.fullmatch(name) or name.endswith(".used"))
                if is_part or (name.endswith(TEMPORARY) and is_abandoned(self.path / name)):
                    (self.path / name).unlink(missing_ok=True)

    # A killed writer leaves a file without a lock, by which others know that it may be removed.
    # (docs/decisions/0158)
    @contextmanager
    def _temporary_file(self, write: Callable[[int], None]) -> Iterator[Path]:
        """A temporary file that ``write`` fills: locked while its writer lives, and removed at the end."""
        path = self.path / f"{uuid4().hex}{TEMPORARY}"
        with ExitStack() as stack:
            with locked(self.path / "write.lock"):  # otherwise a sweep could take it for abandoned
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, file)
                stack.callback(_remove_if_possible, path)
                fcntl.flock(file, fcntl.LOCK_EX)
            write(file)
            yield path


def _remove_if_possible(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _writer_of_bytes(data: bytes) -> Callable[[int], None]:
    def write(file: int) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]

    return write


def make_private(path: Path) -> None:
    """Make a folder that other users cannot read, and its parents."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not S_ISDIR(found.st_mode):
        raise PermissionError("the folder of the cache is open to others")


def is_abandoned(path: Path) -> bool:
    """Whether the writer of a file, which holds a lock on it, is gone."""
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(file)
    return False


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock ``path``; yields whether it was acquired."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def _file_size(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
