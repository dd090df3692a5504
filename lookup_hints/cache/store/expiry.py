"""Which answers are too old: by their age, and not at all where a version of a row has ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.store.hashing import Positions
from lookup_hints.cache.store.segment_entries import Chosen, Content, expanded
from lookup_hints.cache.store.segment_files import Segment

_JITTER = 0.1

_WESTERNMOST = 12 * 3600.0
"""So many seconds later than in Greenwich a local time comes everywhere."""


@dataclass(frozen=True)
class Ages:
    """How old an answer may be that is used, in seconds.

    Each key takes up to a tenth less, by its hash, so that not all are asked again at once.

    Args:
        rows: of a key that has rows.
        missing: of a key that has none.
        unused: since it was last used, too; None for no such limit.
        refreshing: for so long after ``rows``, rows may be used while they are asked for again.
        fallback: the same where asking fails.
        keeps_versions: rows are kept however old they are, as they may answer for the past.
    """

    rows: float
    missing: float
    unused: float | None = None
    refreshing: float = 0.0
    fallback: float = 0.0
    keeps_versions: bool = False

    @property
    def longest(self) -> float:
        """Nothing that is older is of any use."""
        if self.keeps_versions:
            return math.inf
        return max(self.rows + max(self.refreshing, self.fallback), self.missing)

    def of_use(self, content: Content, entries: Positions, now: float) -> Chosen:
        """Which of the ``entries`` of ``content`` are valid, or may be used all the same."""
        if self.keeps_versions:
            return self.valid(content, entries, now) | (content.counts[entries] > 0)
        return self.valid(content, entries, now) | self.within(
            max(self.refreshing, self.fallback), content, entries, now
        )

    def within(self, more: float, content: Content, entries: Positions, now: float) -> Chosen:
        """Which of the ``entries`` of ``content`` have rows that are too old by less than ``more``."""
        if not more:
            return np.zeros(len(entries), np.bool_)
        age = now - content.loaded[entries]
        within: Chosen = (content.counts[entries] > 0) & (age >= 0) & (age < self.rows + more)
        return within

    def allow_all(self, segment: Segment, now: float) -> bool:
        """Whether all entries of ``segment`` may be used, whatever their hashes."""
        longest = min(self.rows, self.missing) * (1 - _JITTER)
        return self.unused is None and segment.latest <= now and now - segment.earliest < longest

    def valid(self, content: Content, entries: Positions, now: float) -> Chosen:
        loaded, counts = content.loaded[entries], content.counts[entries]
        spread = (content.hashes[entries] & np.uint64(0xFF)).astype(np.float64) / 0xFF
        longest = np.where(counts > 0, self.rows, self.missing) * (1 - _JITTER * spread)
        age = now - loaded
        valid: Chosen = (age >= 0) & (age < longest)
        if self.unused is not None:
            valid &= now - np.maximum(loaded, content.used[entries]) < self.unused
        return valid


@dataclass(frozen=True)
class Past:
    """The moments for which versions of some keys are wanted.

    Args:
        since: the column that says when a version begins.
        until: the one that says when it ends, if there is one.
        codes: for each moment the position of its key, or NULL.
        moments: of the type of these columns.
        keys: how many keys there are.
        offset: what makes a time of the store one in seconds since 1970.
    """

    since: str
    until: str | None
    codes: pa.Array
    moments: pa.Array
    keys: int
    offset: float

    def holds(self, content: Content, entries: Positions, positions: Positions) -> Chosen:
        """Which ``entries`` answer all moments of the keys at ``positions``, whatever the source says now.

        When it was asked, a version had begun or ended after the last of these moments, and all that were
        valid at that moment have ended. What is planned for the future may still change.
        """
        counts = content.counts[entries].astype(np.int64)
        owners = np.repeat(np.arange(len(entries)), counts)
        rows = content.rows.select([each for each in (self.since, self.until) if each])
        rows = rows.take(pa.array(expanded(content.starts[entries], counts)))
        since, wanted = rows.column(self.since), self._latest.take(pa.array(positions[owners]))
        present = self._present(since, owners, content.loaded[entries])
        is_followed, is_open = (np.zeros(len(entries), np.bool_) for _ in range(2))
        is_followed[owners[_is(pc.and_(pc.greater(since, wanted), pc.less_equal(since, present)))]] = True
        if self.until is not None:
            until = rows.column(self.until)
            has_ended = pc.fill_null(pc.less_equal(until, present), False)
            is_followed[owners[_is(pc.and_(pc.greater(until, wanted), has_ended))]] = True
            is_open[owners[_is(pc.and_not(pc.less_equal(since, wanted), has_ended))]] = True
        return is_followed & ~is_open

    @cached_property
    def _latest(self) -> pa.Array:
        """The last moment of each key, NULL where it has none."""
        return _last(pc.fill_null(self.codes, -1).to_numpy(zero_copy_only=False), self.moments, self.keys)

    def _present(self, since: pa.Array, owners: Positions, asked: npt.NDArray[np.float64]) -> pa.Array:
        """For each version the time at which its source was asked.

        Numbers have no clock: theirs is where the last version of the key begins.
        """
        is_local = types.is_date(since.type) or (types.is_timestamp(since.type) and since.type.tz is None)
        if not is_local and not types.is_timestamp(since.type):
            return _last(owners, since, len(asked)).take(pa.array(owners))
        seconds = asked[owners] + self.offset - _WESTERNMOST * is_local
        times = pa.array((seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
        return times.cast(since.type, safe=False)


def _last(owners: Positions, values: pa.Array, count: int) -> pa.Array:
    """The greatest of the ``values`` of each owner; NULL where it has none, and NaN is above all others."""
    order = pc.array_sort_indices(values).to_numpy()[: len(values) - values.null_count]
    order = order[owners[order] >= 0]
    at = np.full(count, -1, np.int64)
    at[owners[order]] = order  # of several, numpy leaves the last
    return values.take(pa.array(at, mask=at < 0))


def _is(known: pa.BooleanArray) -> Chosen:
    chosen: Chosen = pc.fill_null(known, False).to_numpy(zero_copy_only=False)
    return chosen
