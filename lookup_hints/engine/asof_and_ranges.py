"""Which rows of a key answer a value: the nearest on one side, or all whose range holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import Placed, one_zero, whole
from lookup_hints.spi.request_and_answer import OrderCondition

Integers = npt.NDArray[np.int64]

# Rows of ranges come once for each value, so the number of values at once is bounded by the most ranges that
# hold one. (docs/decisions/0208)
MOST_PAIRS = 4_000_000
"""Where ranges overlap, each value is compared with each row of its key: so many pairs at once."""


# So each connector and each cache works without a change, and one cached answer serves every moment.
# (docs/decisions/0191)
@dataclass(frozen=True)
class Answering:
    """The rows that answer some values.

    Args:
        rows: positions of rows, those of the first value first.
        ends: for each value where in ``rows`` its own end.
    """

    rows: pa.Array
    ends: pa.Array

    @classmethod
    def of(cls, rows: Integers, counts: Integers) -> Answering:
        return cls(pa.array(rows), pa.array(np.cumsum(counts, dtype=np.int64)))


def compared_values(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """The values of ``answering``, as they come behind keys; NULL where one of two is NULL."""
    values, *others = map(whole, columns)
    for known_by in others:
        is_null = pc.or_(values.is_null(), known_by.is_null())
        values = pa.StructArray.from_arrays([values, known_by], ["value", "known_by"], mask=is_null)
    return values


# The worker chooses the nearest row itself unless the connector can: sources differ in how they order text,
# NaN and NULL. (docs/decisions/0191)
def answering(found: Placed, codes: pa.Array, values: pa.Array, condition: OrderCondition) -> Answering:
    """The rows of ``found`` that answer ``values``, each with the key at its place in ``codes``.

    A NULL answers nothing and is answered by nothing. Of equal rows that are nearest, one answers.

    Args:
        found: rows of keys, with the columns of ``condition``.
        codes: for each value the position of its key, or NULL.
        values: of the type of the column that they are compared with; structs of two such values where the
            condition is ``known_apart``.
        condition: which rows answer.
    """
    column = whole(found.rows.column(condition.column))
    until, learned = (
        None if name is None else whole(found.rows.column(name))
        for name in (condition.until, condition.known_from)
    )
    moments = values.flatten() if condition.known_apart else [values]
    compared = [column, *moments, *(each for each in (until, learned) if each is not None)]
    ranks, null = _rank_values(compared)
    starts, asked, *_ = parts = np.split(ranks, np.cumsum([len(each) for each in compared])[:-1])
    keys = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    owners = found.positions.to_numpy(zero_copy_only=False).astype(np.int64)
    asked = np.where(keys < 0, null, asked)
    if learned is not None:
        since, known_by = parts[-1], parts[len(moments)]
        known = np.flatnonzero((starts != null) & (since != null))
        ordered = known[np.lexsort((since[known], starts[known], owners[known]))]
        index = _OrderedRows(owners[ordered], starts[ordered], ordered, null + 1)
        at = index.last_known(keys, asked, known_by, since[ordered])
        is_found = (at >= 0) & (asked != null)
        if until is not None:
            is_found &= index.is_before(asked, parts[-2][ordered], at, null)
        return Answering.of(ordered[at[is_found]], is_found.astype(np.int64))
    known = np.flatnonzero(starts != null)
    ordered = known[np.lexsort((starts[known], owners[known]))]
    index = _OrderedRows(owners[ordered], starts[ordered], ordered, null + 1)
    if until is None:
        at = index.nearest(keys, asked, condition.operator)
        at = np.where(asked == null, -1, at)
        return Answering.of(ordered[at[at >= 0]], (at >= 0).astype(np.int64))
    ends = parts[-1]
    # A range without an end holds whatever comes after its start; no rank is larger than that of NULL.
    return index.holding(keys, asked, ends[ordered], null)


def _rank_values(columns: list[pa.Array]) -> tuple[Integers, int]:
    """A number for each value of all ``columns``, in their order; and the largest, which is for NULL.

    They sort as Spark does: NaN is above all other numbers, and -0.0 is 0.0.
    """
    every = one_zero(pa.concat_arrays(columns))
    order = pc.array_sort_indices(every)
    ascending = every.take(order).drop_null()
    changes = pc.fill_null(pc.not_equal(ascending[1:], ascending[:-1]), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(every.type):
        nan = pc.is_nan(ascending).to_numpy(zero_copy_only=False)
        changes = changes & ~(nan[1:] & nan[:-1])
    dense = np.concatenate([np.zeros(min(1, len(ascending)), np.int64), np.cumsum(changes, dtype=np.int64)])
    null = int(dense[-1]) + 1 if len(dense) else 0
    ranks = np.full(len(every), null, np.int64)
    ranks[order.to_numpy()[: len(ascending)]] = dense
    return ranks, null


@dataclass(frozen=True)
class _OrderedRows:
    """Rows in the order of their keys, and of each key in the order of the column.

    Args:
        owners: for each row the position of its key.
        starts: for each row the rank of its value.
        rows: for each row where it is.
        width: above all ranks.
    """

    owners: Integers
    starts: Integers
    rows: Integers
    width: int

    def nearest(self, keys: Integers, asked: Integers, operator: str) -> Integers:
        """For each key and rank the place of the nearest row on the side that ``operator`` names, or -1."""
        at = self._search_rank(keys, asked, right=operator in (">=", "<"))
        if operator in (">=", ">"):
            at = at - 1
        at = np.where(at < len(self.owners), at, -1)
        if not len(self.owners):
            return at
        return self._of_key(at, keys)

    def _of_key(self, at: Integers, keys: Integers) -> Integers:
        return np.where((at >= 0) & (self.owners[at] == keys), at, -1)

    # Each value passes over the rows that were learned after it, by powers of two: a key with thousands of
    # corrections takes a dozen steps.
    def last_known(self, keys: Integers, asked: Integers, known_by: Integers, learned: Integers) -> Integers:
        """For each key and rank the place of the last row that begins by then, or -1.

        Args:
            known_by: for each rank that by which the row is learned.
            learned: for each row the rank from which it is known.
        """
        at = self.nearest(keys, asked, ">=")
        if not len(self.owners):
            return at
        most = int(np.bincount(self.owners).max(initial=0))
        # Of each row the least rank among it and those before it: of 1 row, of 2, of 4, ...
        least = [learned]
        while 2 ** len(least) <= most:
            width = 2 ** (len(least) - 1)
            before = np.concatenate([least[-1][:width], least[-1][:-width]])
            least.append(np.minimum(least[-1], before))
        for step in reversed(range(len(least))):
            passes = (at >= 0) & (least[step][at] > known_by)
            at = np.where(passes, np.maximum(at - 2**step, -1), at)
        return self._of_key(at, keys)

    def holding(self, keys: Integers, asked: Integers, ends: Integers, null: int) -> Answering:
        """The rows whose range holds the rank: it starts at or before it, and ends after it or never.

        Args:
            keys: the key of each value.
            asked: the rank of each value.
            ends: for each row of this index the rank at which it ends.
            null: the rank of NULL.
        """
        is_known = asked != null
        if not _ranges_overlap(self.owners, self.starts, ends, null):
            at = np.where(is_known, self.nearest(keys, asked, ">="), -1)
            holds = (at >= 0) & self.is_before(asked, ends, at, null)
            return Answering.of(self.rows[at[holds]], holds.astype(np.int64))
        first = self._search_rank(keys, np.zeros_like(asked), right=False)
        last = np.where(is_known, self._search_rank(keys, asked, right=True), first)
        counts, rows = np.zeros(len(keys), np.int64), list[Integers]()
        pairs = np.cumsum(last - first)
        begin = 0
        while begin < len(keys):
            before = pairs[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(pairs, before + MOST_PAIRS, side="right")))
            lengths = (last - first)[begin:end]
            value = np.repeat(np.arange(begin, end), lengths)
            offset = np.arange(len(value)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            at = first[value] + offset
            holds = self.is_before(asked[value], ends, at, null)
            counts += np.bincount(value[holds], minlength=len(keys))
            rows.append(self.rows[at[holds]])
            begin = end
        return Answering.of(np.concatenate([np.zeros(0, np.int64), *rows]), counts)

    def _search_rank(self, keys: Integers, ranks: Integers, *, right: bool) -> Integers:
        """Where rows of the key and rank would go: behind equal ones, or before them."""
        ascending = self.owners * self.width + self.starts
        return np.searchsorted(ascending, keys * self.width + ranks, side="right" if right else "left")

    @staticmethod
    def is_before(asked: Integers, ends: Integers, at: Integers, null: int) -> npt.NDArray[np.bool_]:
        """Whether each rank is before the end of the row at its place, or that row has none."""
        if not len(ends):
            return np.zeros(len(asked), np.bool_)
        own = ends[at]
        is_before: npt.NDArray[np.bool_] = (own == null) | (asked < own)
        return is_before


def _ranges_overlap(owners: Integers, starts: Integers, ends: Integers, null: int) -> bool:
    """Whether a row of a key starts before the one before it has ended."""
    same = owners[1:] == owners[:-1]
    before = ends[:-1]
    return bool(np.any(same & ((before == null) | (before > starts[1:]))))
