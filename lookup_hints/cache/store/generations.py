"""The generations of one table on an executor's disk: one is read while the last one answers.

A generation is a folder of segments. It is made under another name and renamed: it is there as a whole or it
is not. Whoever makes one has the lock ``loading`` for that time; if it is killed, the lock is free, and
whoever has it next finds what was left. Times are seconds on a clock that all processes share.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lookup_hints.cache.store.content import ProbeResult
from lookup_hints.cache.store.folder import StoreLimits, locked, make_private
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.segment import NotASegment
from lookup_hints.cache.store.whole import Whole, write

_TEMPORARY = ".tmp"
_GENERATION = re.compile(r"(\d+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)\.generation")
_NOTE = "note"


@dataclass(frozen=True, order=True)
class Generation:
    """The rows of a table as they were once.

    Args:
        number: from 1 on.
        began: milliseconds on the clock when reading began.
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
        at: milliseconds on the clock.
        kind: ``source`` where the source could not be read; ``cache`` where its rows could not be kept.
        text: for a reader, without secrets.
    """

    at: int
    kind: str
    text: str


class Generations:
    """The generations in one folder. Asked by one thread, loaded by any.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(self, path: Path, limits: StoreLimits, clock: Callable[[], float]) -> None:
        make_private(path)
        self.path, self._limits, self._clock = path, limits, clock
        self._opened: tuple[Generation, Whole] | None = None
        self.damaged = 0
        """How many generations could not be read."""

    @property
    def now(self) -> int:
        return int(self._clock() * 1000)

    # Asking.

    def newest(self) -> Generation | None:
        """The newest generation that is there as a whole; one of the future is not used: clocks may jump.

        Raises:
            OSError: the folder is not there any more.
        """
        return max((each for each in self._there() if each.ended <= self.now), default=None)

    def opened(self) -> Generation | None:
        """Map the newest generation; what is damaged is removed.

        Raises:
            OSError: it cannot be read.
        """
        while (newest := self.newest()) is not None:
            if self._opened is not None and self._opened[0] == newest:
                return newest
            try:
                self._opened = newest, Whole.opened(self.path / newest.name, newest.parts)
            except FileNotFoundError:  # a newer one has replaced it
                continue
            except (NotASegment, pa.ArrowException):
                self.damaged += 1
                self._remove(newest)
        self._opened = None
        return None

    def probe(
        self, keys: pa.Table, columns: Sequence[str], invalidations: Invalidations | None = None
    ) -> ProbeResult:
        """What the generation that is ``opened`` has of ``keys``, but for what was invalidated since."""
        assert self._opened is not None
        generation, whole = self._opened
        if invalidations is None:
            return whole.probe(keys, columns)
        began = generation.began / 1000
        return whole.probe(
            keys, columns, lambda hashes: invalidations.allow(hashes, np.full(len(hashes), began))
        )

    @property
    def held(self) -> tuple[int, int]:
        """Rows and bytes of the generation that is ``opened``."""
        return (0, 0) if self._opened is None else (self._opened[0].rows, self._opened[1].nbytes)

    # Loading.

    @contextmanager
    def loading(self, *, wait: bool) -> Iterator[bool]:
        """A block in which nobody else loads the table; tells whether it is so."""
        with locked(self.path / "loading", wait=wait) as is_alone:
            if is_alone:
                self._sweep()
            yield is_alone

    def load(self, batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Generation:
        """Make a new generation of all rows; only ``loading``.

        Raises:
            TooLarge: they do not fit into the limits.
            OSError: they cannot be written.
        """
        began, last = self.now, max(self._there(), default=None)
        folder = self.path / f"{uuid4().hex}{_TEMPORARY}"
        folder.mkdir(mode=0o700)
        try:
            rows = write(folder, batches, keys, self._limits)
            number = 1 + (last.number if last is not None else 0)
            new = Generation(number, began, self.now, sum(rows), len(rows))
            folder.rename(self.path / new.name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            pa.default_memory_pool().release_unused()  # it keeps what was needed once
        (self.path / _NOTE).unlink(missing_ok=True)
        self._sweep()
        return new

    def _sweep(self) -> None:
        """Remove what killed processes have left, and all generations but the newest."""
        newest = self.newest()
        for each in self._there():
            if each != newest:
                self._remove(each)
        for left in self.path.glob(f"*{_TEMPORARY}"):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)

    def _remove(self, generation: Generation) -> None:
        """At once, for whoever looks: a generation that is half there would hide rows."""
        gone = self.path / f"{uuid4().hex}{_TEMPORARY}"
        with suppress(FileNotFoundError):
            (self.path / generation.name).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _there(self) -> Iterator[Generation]:
        found = filter(None, (_GENERATION.fullmatch(each.name) for each in os.scandir(self.path)))
        return (Generation(*map(int, each.groups())) for each in found)

    # Notes.

    def note(self, kind: str, text: str) -> Note:
        """Tell all processes why the table could not be loaded; only ``loading``."""
        note = Note(self.now, kind, text)
        file = self.path / f"{uuid4().hex}{_TEMPORARY}"
        with suppress(OSError):  # a full disk, maybe: then each process finds out by itself
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as written:
                json.dump(vars(note), written)
            file.rename(self.path / _NOTE)
        return note

    def noted(self) -> Note | None:
        """Why the last attempt failed; None where it did not. A note of the future counts for nothing."""
        with suppress(OSError, ValueError, TypeError):
            note = Note(**json.loads((self.path / _NOTE).read_text(encoding="utf-8")))
            return note if note.at <= self.now else None
        return None
