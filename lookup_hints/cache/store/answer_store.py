"""Answers of one lookup, shared by the processes of an executor; read and written in batches of keys.

Segments are asked from the newest to the oldest, and the first that has a key decides. Times are seconds on a
clock that all processes share. An answer of the future has no age, and is not used: clocks may jump back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.store.hashing import Positions, comparable, hash_is_exact, hashes_of, in_order
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.segment_entries import (
    Answers,
    Chosen,
    Content,
    ProbeResult,
    content_of,
    expanded,
    merged,
)
from lookup_hints.cache.store.segment_files import (
    Encoded,
    Filed,
    Folder,
    Matches,
    NotASegment,
    Segment,
    StoreLimits,
    has_room_for,
    opened,
)

MERGED_AT_ONCE = 8
MOST_SEGMENTS = 2 * MERGED_AT_ONCE
"""When there are more, some are merged. With fewer, a merge takes mostly rows that were merged before."""

_FULL = 7 / 8
_FEWER = 1 / 2
# No merged segment is larger than this part of the limits: the oldest one is not much of the whole.
_SHARE = 1 / 8


RowsAt = tuple[pa.Table, Positions]


def _with_positions(found: Sequence[RowsAt]) -> tuple[tuple[pa.Table, pa.Array], ...]:
    return tuple((rows, pa.array(at, pa.int32())) for rows, at in found)


# Immutable mapped files on the executor's disk. A cache of Python objects per worker costs more per hit than
# asking PostgreSQL, is lost when Spark ends an idle worker, and exists once per worker. (docs/decisions/0158)
class Store:
    """The answers in one folder. Not thread-safe.

    Raises:
        OSError: there can be no such folder.
    """

    def __init__(
        self,
        path: Path,
        limits: StoreLimits,
        ages: Ages,
        clock: Callable[[], float],
        invalidations: Invalidations | None = None,
    ) -> None:
        self._folder = Folder(path, limits)
        self._ages, self._clock, self._invalidations = ages, clock, invalidations
        self._segments: dict[Filed, Segment] = {}
        self._unreadable: set[Filed] = set()
        self.evicted: Counter[str] = Counter()
        """How many rows went, by reason: ``size`` or ``expired``."""
        self.damaged = 0
        """How many segments could not be read."""

    @property
    def rows(self) -> int:
        """How many rows were there when it was last looked at."""
        return sum(each.rows for each in self._segments)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self._segments)

    # Asking.

    # The newest segment that has a key decides, even if its answer is too old: an older one must not come
    # back. (docs/decisions/0158)
    def probe(self, keys: pa.Table, columns: Sequence[str], past: Past | None = None) -> ProbeResult:
        """The cached answers to ``keys``, which are distinct and hold no NULL.

        With ``past``, rows that are too old are used where they answer all of its moments.

        Raises:
            OSError: the folder is not there any more.
        """
        self._refresh_segments()
        now, compared = self._clock(), comparable(keys)
        hashes = hashes_of(compared)
        to_compare = None if hash_is_exact(keys.schema) else compared
        # In the order of the hashes, so that what is asked of a segment lies side by side.
        asked, is_open = in_order(hashes)[0], np.ones(len(hashes), np.bool_)
        missing = [np.zeros(0, np.int64)]
        found: list[RowsAt] = []
        refreshing: list[RowsAt] = []
        fallback: list[RowsAt] = []
        for segment in reversed(self._segments.values()):
            if not len(asked):
                break
            matches = segment.find(hashes, asked, to_compare)
            if len(matches.asked):
                is_open[matches.asked] = False
                asked = asked[is_open[asked]]
                positions, entries = self._drop_invalidated(segment, matches)
                valid: Chosen = np.ones(len(entries), np.bool_)
                if not self._ages.allow_all(segment, now):
                    valid = self._ages.valid(segment.content, entries, now)
                    if past is not None:
                        self._mark_past_versions(valid, past, segment.content, entries, positions, now)
                is_refreshing = ~valid & self._ages.within(
                    self._ages.refreshing, segment.content, entries, now
                )
                is_fallback = ~(valid | is_refreshing)
                is_fallback &= self._ages.within(self._ages.fallback, segment.content, entries, now)
                has_rows = segment.content.counts[entries] > 0
                segment.note_use(entries[valid | is_refreshing], now)
                missing.append(positions[valid & ~has_rows])
                for rows, chosen in (
                    (found, valid & has_rows),
                    (refreshing, is_refreshing),
                    (fallback, is_fallback),
                ):
                    if chosen.any():
                        rows.append(segment.rows_of(positions[chosen], entries[chosen], columns))
        nowhere = pa.array(np.sort(np.concatenate(missing)), pa.int32())
        return ProbeResult(
            _with_positions(found), nowhere, _with_positions(refreshing), _with_positions(fallback)
        )

    def _mark_past_versions(
        self,
        valid: Chosen,
        past: Past,
        content: Content,
        entries: Positions,
        positions: Positions,
        now: float,
    ) -> None:
        old = np.flatnonzero(~valid & (content.counts[entries] > 0) & (content.loaded[entries] <= now))
        if len(old):
            valid[old] = past.holds(content, entries[old], positions[old])

    # Answers carry the time of their request: one may have left the source before a change, and be written
    # after it. (docs/decisions/0160)
    def _drop_invalidated(self, segment: Segment, matches: Matches) -> tuple[Positions, Positions]:
        """Keys that a segment has, and their entries, but for what was invalidated."""
        is_same, entries = matches.is_same, matches.entries
        if self._invalidations is not None:
            content = segment.content
            is_same = is_same & self._invalidations.allow(content.hashes[entries], content.loaded[entries])
        return (matches.asked, entries) if is_same.all() else (matches.asked[is_same], entries[is_same])

    # Other processes add and merge segments at any time, and readers take no lock. (docs/decisions/0158)
    def _refresh_segments(self) -> None:
        """Map what is new, and let go of what is gone."""
        if self._invalidations is not None:
            self._invalidations.look(self._clock)
        while True:
            there = self._folder.filed()
            self._unreadable &= set(there)
            with suppress(FileNotFoundError):  # one was merged meanwhile
                self._segments = dict(reversed([*self._newest_segments(there)]))
                return

    def _newest_segments(self, there: Sequence[Filed]) -> Iterator[tuple[Filed, Segment]]:
        """From the newest on to one that cannot be used: its answers may hide those of older ones."""
        for filed in reversed(there):
            segment = self._segments.get(filed) or self._open_segment(filed)
            if segment is None:
                return
            yield filed, segment

    def _open_segment(self, filed: Filed) -> Segment | None:
        """Map a segment; None where it cannot be read.

        Raises:
            FileNotFoundError: it is gone.
        """
        if filed in self._unreadable or not has_room_for(filed.nbytes):
            return None
        path = self._folder.path
        try:
            return opened(path / filed.name, path / filed.used)
        except (NotASegment, OSError, pa.ArrowException) as error:
            if isinstance(error, FileNotFoundError) and filed not in self._folder.filed():
                raise
            self._unreadable.add(filed)
            self.damaged += 1
            return None

    # Telling.

    def learn(self, learned: Sequence[Answers]) -> None:
        """Store answers, and compact the store unless another process is doing it."""
        if learned:
            content = content_of(learned)
            if len(content):
                self._add_segment(content)
        self.tidy()

    def _add_segment(self, content: Content, instead_of: Sequence[Filed] = ()) -> None:
        evicted = self._folder.add(Encoded(content), content.held, content.used.tobytes(), instead_of)
        self.evicted["size"] += sum(each.rows for each in evicted or ())

    def tidy(self) -> None:
        """Drop what is too old, keep what was used of what is to go, merge what is small, sweep up."""
        with self._folder.tidying() as is_alone:
            if not is_alone:
                return
            self._folder.sweep()
            self._refresh_segments()
            self._drop_expired()
            self._rescue_used_entries()
            self._merge_segments()

    def _drop_expired(self) -> None:
        now, longest = self._clock(), self._ages.longest
        old = [filed for filed, each in self._segments.items() if now - each.latest >= longest]
        gone = [*old, *self._unreadable]
        if self._unreadable:
            gone += [each for each in self._folder.filed() if each < max(self._unreadable)]
        if gone:
            self._folder.remove(gone)
            self.evicted["expired"] += sum(each.rows for each in old)
            self._unreadable.clear()
            self._refresh_segments()

    # The limit is exact and the oldest segment goes first; before that, its used entries move to a newer one.
    # (docs/decisions/0158)
    def _rescue_used_entries(self) -> None:
        """Where the limits are near, keep of the oldest answers those that were used, if they are fewer."""
        if self._folder.limits.part(_FULL).allow(self.rows, self.nbytes):
            return
        share, filed = self._folder.limits.part(_SHARE), list(self._segments)
        rows = accumulate(each.rows for each in filed)
        nbytes = accumulate(each.nbytes for each in filed)
        oldest = filed[: 1 + sum(map(share.allow, rows, nbytes))]
        contents = [self._segments[each].content for each in oldest]
        used = sum(int(np.count_nonzero(each.used)) for each in contents)
        if used <= _FEWER * sum(map(len, contents)):
            content = merged(contents)
            kept = content.only(content.used > 0)
            self._replace_segments(oldest, replace(kept, used=np.zeros(len(kept), np.uint32)))
            self.evicted["size"] += sum(each.rows for each in oldest) - kept.held

    # Of more than 16 segments 8 are merged. With a limit of 12, most rows of a merge had been through one
    # before. (docs/decisions/0158)
    def _merge_segments(self) -> None:
        """Drop expired entries, unless they hide an older entry: a miss hides a row that was there before."""
        filed = self._cheapest_to_merge() if len(self._segments) > MOST_SEGMENTS else ()
        if filed:
            content, now = merged([self._segments[each].content for each in filed]), self._clock()
            fresh = now - content.loaded < self._ages.longest
            if filed[0] == next(iter(self._segments)):
                fresh = self._ages.of_use(content, np.arange(len(content)), now)
            kept = content.only(fresh)
            self._replace_segments(filed, kept)
            self.evicted["expired"] += content.held - kept.held

    def _cheapest_to_merge(self) -> Sequence[Filed]:
        """Neighbours whose merging costs least, and gives no segment that is too large."""
        limits, filed = self._folder.limits.part(_SHARE), list(self._segments)
        for size in (MERGED_AT_ONCE, MERGED_AT_ONCE // 2, 2):
            groups = [filed[start : start + size] for start in range(len(filed) - size + 1)]
            fitting = [
                (sum(each.nbytes for each in group), group)
                for group in groups
                if limits.allow(sum(each.rows for each in group), sum(each.nbytes for each in group))
            ]
            if fitting:
                return min(fitting)[1]
        return ()

    def _replace_segments(self, filed: Sequence[Filed], content: Content) -> None:
        if len(content):
            self._add_segment(content, filed)
        else:
            self._folder.remove(filed)
        self._refresh_segments()


# --- which answers are too old ----------------------------------------------------------------------


_JITTER = 0.1

# A moment without a zone is over when it is over twelve hours west of Greenwich; that asks for a key once too
# often, never too seldom. (docs/decisions/0195)
# The largest offset west of Greenwich, in seconds: by then a local time is over everywhere.
_WESTERNMOST = 12 * 3600.0


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


# Versions that have ended cannot change any more, so they do not expire: replays of old events asked the
# source again for each key. (docs/decisions/0195)
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
        since, wanted = rows.column(self.since), self._latest_moments.take(pa.array(positions[owners]))
        present = self._asked_at(since, owners, content.loaded[entries])
        is_followed, is_open = (np.zeros(len(entries), np.bool_) for _ in range(2))
        is_followed[owners[_to_mask(pc.and_(pc.greater(since, wanted), pc.less_equal(since, present)))]] = (
            True
        )
        if self.until is not None:
            until = rows.column(self.until)
            has_ended = pc.fill_null(pc.less_equal(until, present), False)
            is_followed[owners[_to_mask(pc.and_(pc.greater(until, wanted), has_ended))]] = True
            is_open[owners[_to_mask(pc.and_not(pc.less_equal(since, wanted), has_ended))]] = True
        return is_followed & ~is_open

    @cached_property
    def _latest_moments(self) -> pa.Array:
        """The last moment of each key, NULL where it has none."""
        return _greatest_by_owner(
            pc.fill_null(self.codes, -1).to_numpy(zero_copy_only=False), self.moments, self.keys
        )

    # The present is when the source was asked: `9999-12-31` and next month's prices are plans, which may
    # change. (docs/decisions/0195)
    def _asked_at(self, since: pa.Array, owners: Positions, asked: npt.NDArray[np.float64]) -> pa.Array:
        """For each version the time at which its source was asked.

        Numbers have no clock: theirs is where the last version of the key begins.
        """
        is_local = types.is_date(since.type) or (types.is_timestamp(since.type) and since.type.tz is None)
        if not is_local and not types.is_timestamp(since.type):
            return _greatest_by_owner(owners, since, len(asked)).take(pa.array(owners))
        seconds = asked[owners] + self.offset - _WESTERNMOST * is_local
        times = pa.array((seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
        return times.cast(since.type, safe=False)


def _greatest_by_owner(owners: Positions, values: pa.Array, count: int) -> pa.Array:
    """The greatest of the ``values`` of each owner; NULL where it has none, and NaN is above all others."""
    order = pc.array_sort_indices(values).to_numpy()[: len(values) - values.null_count]
    order = order[owners[order] >= 0]
    at = np.full(count, -1, np.int64)
    at[owners[order]] = order  # of several, numpy leaves the last
    return values.take(pa.array(at, mask=at < 0))


def _to_mask(known: pa.BooleanArray) -> Chosen:
    chosen: Chosen = pc.fill_null(known, False).to_numpy(zero_copy_only=False)
    return chosen
