"""Which keys are being asked for by whom, so that the processes of an executor do not all ask for the same.

Who asks says so in a file, ``<unique>.<milliseconds>.asking``: hashes of keys, in ascending order, and how
long others should wait for the next answers. It is locked as long as its process lives. To see what others
ask and to say what one asks oneself is one step, which has a lock, too.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np

from lookup_hints.store.content import Chosen
from lookup_hints.store.folder import is_abandoned, locked
from lookup_hints.store.hashing import Hashes

LEAST_PATIENCE, MOST_PATIENCE = 1.0, 10.0
"""Seconds to wait for the next answers. A busy machine often holds up a process for tenths of a second."""

FIRST_PATIENCE = 3.0
"""The same for the first answers of a task: its process may be new, and has to load and to connect."""

_AS_LONG_AS = 3.0
"""So many times what the last answers took, or would have taken for so many keys."""

WORTH_IT = 1 / 2
"""Others are waited for where they ask for this part of the keys: one's own keys wait as long."""

MOST_CLAIMS = 4
"""A task asks for no more windows at once, or their keys may be asked for twice."""

_FILE = re.compile(r"(\w+)\.(\d+)\.asking")


@dataclass(frozen=True)
class _Claim:
    """Keys that are asked for here, and since when."""

    path: Path
    file: int
    keys: int
    since: float

    def end(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.file)


class Asking:
    """What one task asks for, and what others do."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._claims: deque[_Claim] = deque()
        self._took: tuple[float, int] | None = None  # seconds, and for how many keys
        self._answered = 0

    def turn(self, hashes: Hashes) -> Turn:
        """Begin to find out who asks for the keys with these ``hashes``."""
        return Turn(self, hashes, self._clock)

    @property
    def keys(self) -> int:
        """How many keys are asked for here."""
        return sum(each.keys for each in self._claims)

    def answered(self, keys: int) -> None:
        """So many keys more have been answered here."""
        if self._claims:
            self._answered += keys
            self._took = self._clock() - self._claims[0].since, max(1, self._answered)

    def end(self) -> None:
        """All has been answered and written, or will not be."""
        self._answered = 0
        while self._claims:
            self._claims.popleft().end()

    @property
    def lock(self) -> Path:
        """What is locked by one who looks and claims."""
        return self._path / "asking"

    def others(self) -> list[tuple[Hashes, float]]:
        """What others ask for, and how long to wait for each."""
        own = {each.path.name for each in self._claims}
        return [self._read(each) for each in self._files() if each[0] not in own and self._lives(each[0])]

    def _files(self) -> list[re.Match[str]]:
        return [match for each in os.scandir(self._path) if (match := _FILE.fullmatch(each.name))]

    def _lives(self, name: str) -> bool:
        if is_abandoned(self._path / name):
            (self._path / name).unlink(missing_ok=True)
            return False
        return True

    def _read(self, file: re.Match[str]) -> tuple[Hashes, float]:
        try:
            data = (self._path / file[0]).read_bytes()
        except FileNotFoundError:
            data = b""
        return np.frombuffer(data, np.uint64, len(data) // 8), int(file[2]) / 1000

    def _patience(self, keys: int) -> float:
        if self._took is None:
            return FIRST_PATIENCE
        seconds, before = self._took
        return min(MOST_PATIENCE, max(LEAST_PATIENCE, _AS_LONG_AS * seconds * max(1.0, keys / before)))

    def claim(self, hashes: Hashes) -> None:
        """Say that the keys with these ``hashes``, which ascend, are asked for here."""
        if len(self._claims) >= MOST_CLAIMS:
            self._claims.popleft().end()
        path = self._path / f"{uuid4().hex}.{self._patience(len(hashes)) * 1000:.0f}.asking"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._claims.append(_Claim(path, file, len(hashes), self._clock()))
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(file, hashes.tobytes())


class Turn:
    """Who asks for the keys of one window."""

    def __init__(self, asking: Asking, hashes: Hashes, clock: Callable[[], float]) -> None:
        self._asking, self._hashes, self._clock = asking, hashes, clock
        self._open, self._since = len(hashes) + 1, clock()

    def waits(self, is_open: Chosen) -> bool:
        """Whether to look again in a moment: others ask for most of the keys that are still ``is_open``.

        Else they are one's own to ask for.

        Raises:
            OSError: the folder is not there any more.
        """
        wanted = np.sort(self._hashes[is_open])
        if not len(wanted):
            return False
        with locked(self._asking.lock):
            awaited, patience = _awaited(wanted, self._asking.others())
            if len(wanted) < self._open:
                self._open, self._since = len(wanted), self._clock()
            is_worth_it = awaited.sum() >= WORTH_IT * len(wanted)
            if is_worth_it and self._clock() - self._since <= patience:
                return True
            self._asking.claim(wanted)
            return False


def _awaited(wanted: Hashes, others: list[tuple[Hashes, float]]) -> tuple[Chosen, float]:
    """Which of the ``wanted`` are asked for by others, and how long to wait for these; all hashes ascend."""
    awaited: Chosen = np.zeros(len(wanted), np.bool_)
    longest = 0.0
    for hashes, patience in others:
        if not len(hashes):
            continue
        # Both ascend, and so this takes a tenth of the time of ``isin``.
        among = hashes.take(np.searchsorted(hashes, wanted), mode="clip") == wanted
        awaited |= among
        longest = max(longest, patience if among.any() else 0.0)
    return awaited, longest
