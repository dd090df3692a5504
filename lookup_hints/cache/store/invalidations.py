"""What was invalidated of a table: no store of it gives answers that were asked for before that moment.

Each one who invalidates has one file, ``<who>.<number>.taken``, in the folder above the stores: the moment
before which nothing counts, and hashes of keys, each with its own moment. A larger number came later and says
what the smaller ones said; so what has been written once is not written again.

What the source says has changed is invalidated likewise, by keys of one kind: those who ask by other keys
have asked the source for themselves, and do not look at it.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.cache.store.content import Chosen
from lookup_hints.cache.store.folder import Folder, StoreLimits, locked
from lookup_hints.cache.store.hashing import Hashes, comparable, hashes_of

_FILE = re.compile(r"(\w+)\.(\d+)\.taken")
_HEAD = struct.Struct("<dQ")  # the moment, and what tells keys
_NEVER = -np.inf
_SOURCE = "source"  # no session is called so: those have hexadecimal names
_LASTING = "lasting"


@dataclass(frozen=True)
class _Notes:
    """What one has invalidated.

    Args:
        before: no answer counts that was asked for until then.
        told_by: a hash of the columns of the keys.
        hashes: those of keys, ascending.
        moments: the same for each of them.
    """

    before: float
    columns_hash: int
    hashes: Hashes
    moments: npt.NDArray[np.float64]

    def allow(self, columns_hash: int, hashes: Hashes, asked: npt.NDArray[np.float64]) -> Chosen:
        """Which answers may be used, where each was ``asked`` for then."""
        allowed: Chosen = asked > self.before
        if len(self.hashes) and columns_hash != self.columns_hash:
            # Of other columns: any row may be one of theirs.
            allowed &= asked > self.moments.max()
        elif len(self.hashes):
            places = np.searchsorted(self.hashes, hashes)
            is_same = self.hashes.take(places, mode="clip") == hashes
            allowed &= ~is_same | (asked > self.moments.take(places, mode="clip"))
        return allowed

    def encoded(self) -> bytes:
        return _HEAD.pack(self.before, self.columns_hash) + self.hashes.tobytes() + self.moments.tobytes()


def _decoded(data: bytes, now: float) -> _Notes:
    """What a file says; one that is damaged takes everything back."""
    count, rest = divmod(len(data) - _HEAD.size, 16)
    if count < 0 or rest:
        return _Notes(now, 0, np.zeros(0, np.uint64), np.zeros(0))
    hashes = np.frombuffer(data, np.uint64, count, _HEAD.size)
    moments = np.frombuffer(data, np.float64, count, _HEAD.size + 8 * count)
    before, columns_hash = _HEAD.unpack_from(data)
    return _Notes(before, columns_hash, hashes, moments)


class Invalidations:
    """What is invalidated of one table, for a store of it.

    Args:
        path: the folder above its stores.
        schema: what the keys of the store are.
        lasting: its answers do not expire, as those of a whole table. Its notes have files of their own, as
            stores whose answers expire drop old notes from theirs.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, lasting: bool = False) -> None:
        self._folder = Folder(path, StoreLimits())
        self._columns_hash = _columns_hash(schema)
        self._suffix = _LASTING if lasting else ""
        self.source = self.name_of(f"{_SOURCE}{self._columns_hash:016x}")
        """Who invalidates what the source says of keys of this kind."""
        self._notes: dict[str, _Notes] = {}

    def name_of(self, who: str) -> str:
        """What ``who`` is called in the files of such a store."""
        return f"{who}{self._suffix}"

    def number(self, who: str) -> int:
        """The largest number that is written down for ``who``; 0 for none."""
        numbers = (int(each[2]) for each in self._files() if each[1] == who)
        return max(numbers, default=0)

    def invalidate(
        self,
        who: str,
        number: int,
        keys: pa.Table | None,
        now: float,
        longest: float,
        most: float = math.inf,
    ) -> None:
        """From ``now`` on no answer counts that was asked for before: of ``keys``, or of any.

        Args:
            who: whose ``number`` it is.
            number: nothing is done where this one is written down, or a larger one.
            keys: what keys; None for all.
            now: the time.
            longest: no answer is used that is older than this many seconds; so old notes are of no use.
            most: this many keys are noted; where there are more, everything is invalidated.

        Raises:
            OSError: it cannot be written down.
        """
        with locked(self._folder.path / "taken"):
            if number <= self.number(who):
                return
            self._folder.sweep()
            old = [each for each in self._files() if each[1] == who]
            notes = [_decoded((self._folder.path / each[0]).read_bytes(), now) for each in old]
            new = _together([*notes, self._new(keys, now)], since=now - longest)
            new = new if len(new.hashes) <= most else self._new(None, now)
            self._folder.put(f"{who}.{number}.taken", new.encoded(), [each[0] for each in old])

    def _new(self, keys: pa.Table | None, now: float) -> _Notes:
        none = _Notes(_NEVER, 0, np.zeros(0, np.uint64), np.zeros(0))
        if keys is None:
            return replace(none, before=now)
        hashes = np.unique(hashes_of(comparable(keys)))
        return _Notes(_NEVER, _columns_hash(keys.schema), hashes, np.full(len(hashes), now))

    def look(self, now: float) -> None:
        """See what is new.

        Raises:
            OSError: the folder is not there any more.
        """
        names = [each[0] for each in self._files()]
        self._notes = {name: self._notes.get(name) or self._read(name, now) for name in names}

    def _read(self, name: str, now: float) -> _Notes:
        try:
            return _decoded((self._folder.path / name).read_bytes(), now)
        except FileNotFoundError:  # a newer one has come in its place
            return _decoded(b"", now)

    @property
    def before(self) -> float:
        """No answer to any key counts that was asked for until then."""
        return max((each.before for each in self._notes.values()), default=_NEVER)

    def allow(self, hashes: Hashes, asked: npt.NDArray[np.float64]) -> Chosen:
        """Which answers to keys with these ``hashes`` may be used, where each was ``asked`` for then."""
        allowed: Chosen = np.ones(len(hashes), np.bool_)
        for notes in self._notes.values():
            allowed &= notes.allow(self._columns_hash, hashes, asked)
        return allowed

    def _files(self) -> list[re.Match[str]]:
        found = (match for name in self._folder.names() if (match := _FILE.fullmatch(name)))
        return [each for each in found if each[1] == self.source or not each[1].startswith(_SOURCE)]


def _together(notes: list[_Notes], since: float) -> _Notes:
    """What all ``notes`` say, the newest last, but for what is older than ``since``."""
    before = max(each.before for each in notes)
    kept = [_after(each, max(before, since)) for each in notes if len(each.hashes)]
    last = kept[-1] if kept else replace(notes[-1], columns_hash=0)
    if any(each.columns_hash != last.columns_hash for each in kept):  # the primary key has changed
        moment = max(each.moments.max(initial=_NEVER) for each in kept)
        return _Notes(max(before, moment), 0, np.zeros(0, np.uint64), np.zeros(0))
    hashes = np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in reversed(kept))])
    moments = np.concatenate([np.zeros(0), *(each.moments for each in reversed(kept))])
    unique, first = np.unique(hashes, return_index=True)  # the first is the newest
    return _Notes(before, last.columns_hash, unique, moments[first])


def _after(notes: _Notes, moment: float) -> _Notes:
    chosen = notes.moments > moment
    return replace(notes, hashes=notes.hashes[chosen], moments=notes.moments[chosen])


def _columns_hash(schema: pa.Schema) -> int:
    """A number that differs for other columns or types, in whatever order they are asked by."""
    text = repr([(field.name, str(field.type)) for field in schema])
    (number,) = hashes_of(pa.RecordBatch.from_arrays([pa.array([text])], names=["key"])).tolist()
    return int(number)
