"""Invalidations of a table: its stores give no answers that were requested before that moment.

Each one who invalidates has one file, ``<who>.<number>.taken``, in the folder above the stores: the moment
before which nothing counts, and hashes of keys, each with its own moment. A larger number came later and says
what the smaller ones said; so what has been written once is not written again.

What the source says has changed is invalidated likewise, by keys of one kind: those who ask by other keys
have asked the source for themselves, and do not look at it.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_hints.cache.store.hashing import Hashes, comparable, hashes_of
from lookup_hints.cache.store.segment_entries import Chosen
from lookup_hints.cache.store.segment_files import Folder, StoreLimits, locked

_FILE = re.compile(r"(\w+)\.(\d+)\.taken")
_CHECKSUM = 8  # bytes before the head
_HEAD = struct.Struct("<dQ")  # the moment, and what tells keys
_NEVER = -np.inf
_SOURCE = "source"  # no session is called so: those have hexadecimal names
_LASTING = "lasting"


# Notes, not segments: a segment hides older ones by its place, and an answer that comes late would be the
# newest. (docs/decisions/0160)
@dataclass(frozen=True)
class _Notes:
    """The invalidations of one session or source.

    Args:
        before: no answer counts that was asked for until then.
        columns_hash: a hash of the columns of the keys.
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
        head = _HEAD.pack(self.before, self.columns_hash)
        body = head + self.hashes.tobytes() + self.moments.tobytes()
        return _checksum_of(body) + body


def _checksum_of(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM).digest()


def _decode_notes(data: bytes) -> _Notes | None:
    """Decode a file; None where it is damaged."""
    body = data[_CHECKSUM:]
    count, rest = divmod(len(body) - _HEAD.size, 16)
    if count < 0 or rest or data[:_CHECKSUM] != _checksum_of(body):
        return None
    hashes = np.frombuffer(body, np.uint64, count, _HEAD.size)
    moments = np.frombuffer(body, np.float64, count, _HEAD.size + 8 * count)
    before, columns_hash = _HEAD.unpack_from(body)
    return _Notes(before, columns_hash, hashes, moments)


def _notes_of_all(now: float) -> _Notes:
    """Notes that invalidate everything."""
    return _Notes(now, 0, np.zeros(0, np.uint64), np.zeros(0))


# The driver reaches no worker: it knows neither hosts nor folders. So every plan that is made later carries
# what was invalidated. (docs/decisions/0160)
class Invalidations:
    """The invalidations of one table, as a store of it needs them.

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
        """The name under which changes that the source reports are invalidated, for keys of this kind."""
        self._notes: dict[str, _Notes] = {}

    def name_of(self, who: str) -> str:
        """The name of ``who`` in the files of such a store."""
        return f"{who}{self._suffix}"

    def number(self, who: str) -> int:
        """The largest number stored for ``who``; 0 for none."""
        numbers = (int(each[2]) for each in self._list_files() if each[1] == who)
        return max(numbers, default=0)

    # No moment travels, as clocks of two hosts differ. An executor invalidates all that it asked for before
    # it heard of it: more than was meant, never less. (docs/decisions/0160)
    def invalidate(
        self, who: str, number: int, keys: pa.Table | None, now: float, longest: float, most: float = math.inf
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
            old = [each for each in self._list_files() if each[1] == who]
            read = [_decode_notes((self._folder.path / each[0]).read_bytes()) for each in old]
            notes = [_notes_of_all(now) if each is None else each for each in read]
            new = _merge_notes([*notes, self._new_notes(keys, now)], since=now - longest)
            new = new if len(new.hashes) <= most else self._new_notes(None, now)
            self._folder.put(f"{who}.{number}.taken", new.encoded(), [each[0] for each in old])

    def _new_notes(self, keys: pa.Table | None, now: float) -> _Notes:
        if keys is None:
            return _notes_of_all(now)
        hashes = np.unique(hashes_of(comparable(keys)))
        return _Notes(_NEVER, _columns_hash(keys.schema), hashes, np.full(len(hashes), now))

    def look(self, clock: Callable[[], float]) -> None:
        """See what is new. A damaged file invalidates everything until now.

        Raises:
            OSError: the folder is not there any more.
        """
        while True:
            names = [each[0] for each in self._list_files()]
            with suppress(FileNotFoundError):  # a newer one has come in the place of one of them
                self._notes = {name: self._notes.get(name) or self._read_notes(name, clock) for name in names}
                return

    def _read_notes(self, name: str, clock: Callable[[], float]) -> _Notes:
        return _decode_notes((self._folder.path / name).read_bytes()) or self._replace_notes(name, clock)

    # One moment for all processes: one that found the damage later would drop answers that others have
    # asked for since. (docs/decisions/0160)
    def _replace_notes(self, name: str, clock: Callable[[], float]) -> _Notes:
        """Put notes that invalidate everything in the place of damaged ones, unless another process has."""
        notes = _notes_of_all(clock())
        with suppress(OSError), locked(self._folder.path / "taken"):
            there = _decode_notes((self._folder.path / name).read_bytes())
            if there is None:
                self._folder.put(name, notes.encoded(), ())
            return there or notes
        return notes  # nothing can be written: each process has a moment of its own

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

    def _list_files(self) -> list[re.Match[str]]:
        found = (match for name in self._folder.names() if (match := _FILE.fullmatch(name)))
        return [each for each in found if each[1] == self.source or not each[1].startswith(_SOURCE)]


def _merge_notes(notes: list[_Notes], since: float) -> _Notes:
    """Merge ``notes``, of which the newest is last, without entries older than ``since``."""
    before = max(each.before for each in notes)
    kept = [_notes_after(each, max(before, since)) for each in notes if len(each.hashes)]
    last = kept[-1] if kept else replace(notes[-1], columns_hash=0)
    if any(each.columns_hash != last.columns_hash for each in kept):  # the primary key has changed
        moment = max(each.moments.max(initial=_NEVER) for each in kept)
        return _Notes(max(before, moment), 0, np.zeros(0, np.uint64), np.zeros(0))
    hashes = np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in reversed(kept))])
    moments = np.concatenate([np.zeros(0), *(each.moments for each in reversed(kept))])
    unique, first = np.unique(hashes, return_index=True)  # the first is the newest
    return _Notes(before, last.columns_hash, unique, moments[first])


def _notes_after(notes: _Notes, moment: float) -> _Notes:
    chosen = notes.moments > moment
    return replace(notes, hashes=notes.hashes[chosen], moments=notes.moments[chosen])


def _columns_hash(schema: pa.Schema) -> int:
    """A number that differs for other columns or types, in whatever order they are asked by."""
    return _text_hash(repr([(field.name, str(field.type)) for field in schema]))


@lru_cache  # each task asks for the same few
def _text_hash(text: str) -> int:
    (number,) = hashes_of(pa.RecordBatch.from_arrays([pa.array([text])], names=["key"])).tolist()
    return int(number)


MOST_CHANGED = 100_000
"""This many keys are invalidated one by one; where there are more, everything is."""

_LOOK_BACK = 2

ReadChanges = Callable[[int | None], tuple[int | None, pa.Table | None]]
"""Asks the source: what is above a value of the column, or only how far it has grown.

Returns the greatest value, None where there is none; and the keys of the rows that are above, None where they
are too many, or were not asked for.
"""


class Unanswered(Exception):
    """The source did not say what has changed; the text says why, without secrets."""


@dataclass(frozen=True)
class _State:
    """The state of the change checks of one table, shared by the processes of an executor.

    Args:
        tried: when the last check began, or failed.
        failure: why it failed; empty where it did not.
        began: when the last one began that did not fail; None where there was none.
        seen: when greatest values of the column had been seen, and these, from the oldest on; the last one
            is that of the last check that did not fail. Empty where the column had no value then.
    """

    tried: float
    failure: str = ""
    began: float | None = None
    seen: tuple[tuple[float, int], ...] = ()


# Looks back further than the last value that was seen: a writer takes a time or number first and commits
# later, so a row may appear below it. (docs/decisions/0169)
class Checks:
    """The checks of one table by one kind of keys, as one process sees them. Not thread-safe.

    A column grows with each change of a row. A check must find all rows that have become visible since the
    last one. Their values may be smaller than the greatest one that was seen: who writes takes a time or a
    number, and commits later. So a check looks back. The interval of checks is also the time within which a
    change must become visible. How far that is back is known in two ways, and the nearer one counts:

    - The greatest value that was seen two intervals before the last check. What became visible after that
      check took its value later, whatever the column counts.
    - Of a time, the greatest value at the last check less two intervals.

    One interval is for the delay, the other for columns whose steps are coarse: two changes in one step have
    one value. Where there is neither bound yet, everything is invalidated.

    Args:
        path: the folder above the stores of the table.
        invalidations: invalidates what has changed.
        interval: seconds between two checks.
        step: how many seconds a unit of the column is; None where it counts.
        longest: no answer is used that is older than this many seconds.
        clock: seconds, the same for all processes.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(
        self,
        path: Path,
        invalidations: Invalidations,
        interval: float,
        step: float | None,
        longest: float,
        clock: Callable[[], float],
    ) -> None:
        self._folder, self._invalidations = Folder(path, StoreLimits()), invalidations
        self._interval, self._step, self._longest, self._clock = interval, step, longest, clock
        self._known = _State(-math.inf)

    def failure(self, ask: ReadChanges) -> str:
        """Why answers may not be used, as changes are not known; empty where all of them are invalidated.

        Asks the source if that is due; whoever comes meanwhile waits.
        """
        if not self._is_fresh(self._known):
            with locked(self._folder.path / f"{self._invalidations.source}.checking"):
                self._known = self._read_state()
                if not self._is_fresh(self._known):
                    self._known = self._invalidate_changes(self._known, ask)
                    self._folder.put(self._file_name, json.dumps(asdict(self._known)).encode(), ())
        return self._known.failure

    def _is_fresh(self, state: _State) -> bool:
        """Whether no check is due; one of the future counts for nothing, as clocks may jump."""
        return 0 <= self._clock() - state.tried < self._interval

    # The greatest value is read before the keys: read after them it may be that of a row not among them, and
    # the next check would look back too little. (docs/decisions/0169)
    def _invalidate_changes(self, state: _State, ask: ReadChanges) -> _State:
        """Invalidate what has changed since ``state``."""
        began, since = self._clock(), self._changed_since(state)
        try:
            latest, keys = ask(since)
        except Unanswered as error:
            return replace(state, tried=self._clock(), failure=str(error))
        ended = self._clock()
        is_empty = state.began is not None and not state.seen and latest is None
        has_fallen = bool(state.seen) and (latest is None or latest < state.seen[-1][1])
        if not is_empty:
            # A value that falls drops everything: the newest row was deleted, or the table loaded anew, and
            # nobody can tell which. (docs/decisions/0169)
            keys = None if since is None or has_fallen else keys
            if keys is None or keys.num_rows:
                # Up to now, not to when the check began: a row may have been asked for, and then have
                # changed, before the source has said so. What it has not said yet, it says the next time.
                who = self._invalidations.source
                number = self._invalidations.number(who) + 1
                self._invalidations.invalidate(who, number, keys, ended, self._longest, MOST_CHANGED)
        seen = () if has_fallen else state.seen
        if latest is not None:
            # The next check may look back to the last of these, and to all later ones.
            settled = [each for each in seen if each[0] <= began - _LOOK_BACK * self._interval]
            seen = (*settled[-1:], *seen[len(settled) :], (ended, latest))
        return _State(began, began=began, seen=seen)

    # What became visible after a check took its value less than two intervals before it. Our monotonic clock
    # measures that; no clock of the source is compared. (docs/decisions/0169)
    def _changed_since(self, state: _State) -> int | None:
        """Above this value are all rows that became visible after the last check; None: that is not known."""
        if state.began is None or not state.seen:
            return None
        settled = state.began - _LOOK_BACK * self._interval
        bounds: list[int] = []
        if self._step is None or self._step <= self._interval:
            bounds += [latest for ended, latest in state.seen if ended <= settled]
        if self._step is not None:
            bounds.append(state.seen[-1][1] - math.ceil(_LOOK_BACK * self._interval / self._step) - 1)
        return max(bounds, default=None)

    # --- shared by the processes ------------------------------------------------------------------------

    @property
    def _file_name(self) -> str:
        return f"{self._invalidations.source}.checks"

    def _read_state(self) -> _State:
        # Damaged: as if nothing was known.
        with suppress(FileNotFoundError, LookupError, ValueError, TypeError, OverflowError, RecursionError):
            told = json.loads((self._folder.path / self._file_name).read_text(encoding="utf-8"))
            state = _State(
                float(told["tried"]),
                str(told["failure"]),
                None if told["began"] is None else float(told["began"]),
                tuple((float(at), int(latest)) for at, latest in told["seen"]),
            )
            if state.tried <= self._clock():
                return state
        return _State(-math.inf)
