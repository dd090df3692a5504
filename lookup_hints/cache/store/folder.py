"""The files of a store: their names, who may change what, and the limits, which hold at any time.

A segment is called ``<number>.<rows>.<unique>.segment``, and beside it lies ``<...>.used``. Larger numbers
are newer. Whoever adds or removes files holds ``write.lock`` for that moment; whoever compacts holds
``compact.lock`` for as long as that takes.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR
from uuid import uuid4

from lookup_hints.cache.store.segment import Encoded

_TEMPORARY = ".tmp"
_SEGMENT = re.compile(r"(\d+)\.(\d+)\.(\w+)\.segment")


@dataclass(frozen=True)
class StoreLimits:
    """What a store may hold; None is no limit.

    Args:
        max_bytes: of all its files.
        max_rows: of all segments; a key that is known to have none counts as one.
    """

    max_bytes: int | None = None
    max_rows: int | None = None

    def allow(self, rows: int, nbytes: int) -> bool:
        """Whether so much may be held."""
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
    rows: int
    unique: str
    nbytes: int

    @property
    def name(self) -> str:
        return f"{self.number:012d}.{self.rows}.{self.unique}.segment"

    @property
    def used(self) -> str:
        return f"{self.number:012d}.{self.rows}.{self.unique}.used"


class Folder:
    """The folder of one store."""

    def __init__(self, path: Path, limits: StoreLimits) -> None:
        make_private(path)
        self.path, self.limits = path, limits

    def names(self) -> list[str]:
        return [each.name for each in os.scandir(self.path)]

    def filed(self) -> list[Filed]:
        """All segments, from the oldest to the newest."""
        sizes = {each.name: _size(each) for each in os.scandir(self.path)}
        segments = filter(None, map(_SEGMENT.fullmatch, sizes))
        filed = (Filed(int(each[1]), int(each[2]), each[3], sizes[each[0]]) for each in segments)
        return sorted(replace(each, nbytes=each.nbytes + sizes.get(each.used, 0)) for each in filed)

    def add(
        self, segment: Encoded, rows: int, used: bytes, instead_of: Sequence[Filed] = ()
    ) -> Sequence[Filed] | None:
        """File a new segment ``instead_of`` others, as new as the newest of these; else the newest of all.

        ``used`` is what is noted of its use. The oldest ones go to make room, and are returned; None is
        returned where it would not fit alone.
        """
        with (
            self._written(segment.write) as file,
            self._written(_all_of(used)) as notes,
            locked(self.path / "write.lock"),
        ):
            filed = self.filed()
            number = max((each.number for each in instead_of), default=0)
            number = number or 1 + max((each.number for each in filed), default=0)
            new = Filed(number, rows, uuid4().hex[:12], segment.size + len(used))
            leaving = self._leaving(filed, instead_of, new)
            if leaving is not None:
                self._remove((*leaving, *instead_of))
                notes.rename(self.path / new.used)
                file.rename(self.path / new.name)
            return leaving

    def _leaving(self, filed: list[Filed], instead_of: Sequence[Filed], new: Filed) -> list[Filed] | None:
        """The oldest of ``filed`` that go for ``new``."""
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
        with self._written(_all_of(data)) as file, locked(self.path / "write.lock"):
            file.rename(self.path / name)
            for each in instead_of:
                (self.path / each).unlink(missing_ok=True)

    def remove(self, filed: Iterable[Filed]) -> None:
        with locked(self.path / "write.lock"):
            self._remove(filed)

    def _remove(self, filed: Iterable[Filed]) -> None:
        for each in filed:
            for name in (each.name, each.used):
                (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def tidying(self) -> Iterator[bool]:
        """A block in which nobody else tidies up; tells whether it is so."""
        with locked(self.path / "compact.lock", wait=False) as is_alone:
            yield is_alone

    def sweep(self) -> None:
        """Remove what killed writers have left: files that nobody has open, and notes without a segment."""
        with locked(self.path / "write.lock"):
            names = set(self.names())
            for name in names:
                is_left = name.endswith(_TEMPORARY) and is_abandoned(self.path / name)
                if is_left or (name.endswith(".used") and name[: -len("used")] + "segment" not in names):
                    (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def _written(self, write: Callable[[int], None]) -> Iterator[Path]:
        """A temporary file that ``write`` fills: locked while its writer lives, and removed at the end."""
        path = self.path / f"{uuid4().hex}{_TEMPORARY}"
        with locked(self.path / "write.lock"):  # else one who sweeps up could take it for abandoned
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            write(file)
            yield path
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(file)


def _all_of(data: bytes) -> Callable[[int], None]:
    def write(file: int) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]

    return write


def make_private(path: Path) -> None:
    """Make a folder that nobody else can read, and those above it."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not S_ISDIR(found.st_mode):
        raise PermissionError("the folder of the cache is open to others")


def is_abandoned(path: Path) -> bool:
    """Whether the writer of a file, who has it locked, is gone."""
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
    """A block in which nobody else has the lock ``path``; tells whether it is so."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(file)


def _size(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
