"""Which answers hold however old they are: rows of a key are versions, and those that have ended stay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.store.content import Chosen, Content, expanded
from lookup_hints.cache.store.hashing import Positions

_WESTERNMOST = 12 * 3600.0
"""So many seconds later than in Greenwich a local time comes everywhere."""


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
