"""Which rows of a key answer a value: those nearest to it.

Spark ranks the rows of an answer again, by the user's own expression. So an answer holds each row that Spark
may count among the nearest, and some more where rounding leaves that open. Of rows that are equally near for
sure, as many answer as are wanted: by the primary key, and without one whichever come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.arrow import whole
from lookup_hints.engine.asof_and_ranges import Answering, Integers
from lookup_hints.engine.distances import (
    BLOCK_BYTES,
    Compared,
    Difference,
    Metric,
    NumberArray,
    Pairs,
    RowIndex,
    Vectors,
    codes_of_equals,
    expanded,
    metric_of,
    starts_of_runs,
    within_reach,
)
from lookup_hints.errors import ConnectorError
from lookup_hints.spi.request_and_answer import METRICS, NearestCondition

MANY_ROWS = 64
"""A key with more rows is searched by itself; the rows of all others are compared together."""


class NearestRows:
    """Rows of keys, prepared to be searched for those that are nearest to values.

    Args:
        rows: with the columns of ``condition``, and those of its ties.
        owners: for each row the position of its key.
        condition: which rows answer.
        table: the name of the table, for errors.
    """

    def __init__(self, rows: pa.Table, owners: Integers, condition: NearestCondition, table: str) -> None:
        self._condition, self._table, self._every_row = condition, table, rows
        self._metric = metric_of(condition, rows.schema)
        columns = [whole(rows.column(name)) for name in condition.columns]
        self._rows = self._metric.read(columns)
        known = np.flatnonzero(self._rows.is_known)
        if (np.diff(owners[known]) < 0).any():
            known = known[np.argsort(owners[known], kind="stable")]
        known = self._without_late_equals(known, owners, codes_of_equals(columns, self._rows))
        is_other = self._rows.is_nan[known] | self._rows.is_odd[known]
        self._order, self._others = known[~is_other], known[is_other]
        self._owners, self._owners_of_others = owners[self._order], owners[self._others]
        self._indexes: dict[int, RowIndex] = {}

    def answering(self, keys: Integers, values: pa.Array) -> Answering:
        """The rows that answer ``values``, each with the key at its place in ``keys``; -1 stands for none.

        Raises:
            ConnectorError: a vector has other dimensions than rows that it is compared with.
        """
        is_struct = METRICS[self._condition.metric] != 1
        compared = self._metric.read(values.flatten() if is_struct else [values])
        keys = np.where(compared.is_known, keys, -1)
        first, last = (np.searchsorted(self._owners, keys, side) for side in ("left", "right"))
        if isinstance(self._metric, Vectors):
            compared = self._fit_dimensions(compared, first, last)
            if self._metric.name == "cosine":  # the others alone may be at a distance from zeros
                last = np.where(compared.norms == 0, first, last)
        at, of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for pairs in self._with_others(keys, first, last, self._find_candidates(compared, keys, first, last)):
            near = self._choose_nearest(compared, pairs)
            at.append(pairs[0][near])
            of.append(pairs[1][near])
        values_of_rows = np.concatenate(at)
        order = np.argsort(values_of_rows, kind="stable")
        counts = np.bincount(values_of_rows, minlength=len(keys))
        return Answering.of(np.concatenate(of)[order], counts)

    def _choose_nearest(self, values: Compared, pairs: Pairs) -> Integers:
        """The places in ``pairs`` of those that answer; all pairs of a value are there."""
        at, of = pairs
        if not len(at):
            return at
        most = self._condition.most
        low, high = self._metric.bounds(values, self._rows, pairs)
        is_near, bound = within_reach(at, low, high, most)
        is_tie = is_near & (low == high) & (low == bound)
        is_nearer = is_near & ~is_tie & (high < bound)
        if len(ties := np.flatnonzero(is_tie)):
            left = most - np.bincount(at[is_nearer], minlength=int(at.max()) + 1)
            is_near[ties[~self._are_first(at[ties], of[ties], left[at[ties]])]] = False
        return np.flatnonzero(is_near)

    # Equal rows are equally far from everything: more of them than are wanted would only be compared.
    def _without_late_equals(self, known: Integers, owners: Integers, codes: Integers) -> Integers:
        """``known`` without rows before which, in the order of ties, as many equal ones of their key come."""
        codes = np.where(self._rows.is_nan, -1, codes)[known]
        order = np.lexsort((codes, owners[known]))
        is_new = (np.diff(codes[order]) != 0) | (np.diff(owners[known[order]]) != 0)
        groups = np.empty(len(known), np.int64)
        groups[order] = np.cumsum(np.append(0, is_new))[: len(known)]
        many = np.flatnonzero(np.bincount(groups)[groups] > self._condition.most)
        if not len(many):
            return known
        return np.delete(known, many[~self._are_first(groups[many], known[many], self._condition.most)])

    def _are_first(self, owners: Integers, rows: Integers, most: int | Integers) -> NumberArray:
        """Whether each of ``rows`` is among the first ``most`` of its owner, in the order of ties."""
        order = np.lexsort((self._ranks_of_ties[rows], owners))
        starts = starts_of_runs(owners[order])
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
        return place < most

    @cached_property
    def _ranks_of_ties(self) -> Integers:
        ranks = np.arange(self._every_row.num_rows)
        if self._condition.ties:
            by = [(name, "ascending") for name in self._condition.ties]
            ranks[pc.sort_indices(self._every_row, sort_keys=by).to_numpy()] = ranks.copy()
        return ranks

    @cached_property
    def _sorted_numbers(self) -> _SortedNumbers:
        return _SortedNumbers(self._metric, self._rows, self._order, self._owners)

    # --- candidates ------------------------------------------------------------------------------------

    def _find_candidates(
        self, values: Compared, keys: Integers, first: Integers, last: Integers
    ) -> Iterator[Pairs]:
        """Pairs of the values with all rows that may be the nearest; all pairs of a value come together."""
        if isinstance(self._metric, Difference):
            yield from self._sorted_numbers.candidates(values, keys, first, last, self._condition.most)
            return
        is_searched = (last - first > MANY_ROWS) & ~values.is_nan & ~values.is_odd
        yield from self._every_pair(np.flatnonzero(~is_searched & (last > first)), first, last)
        searched = np.flatnonzero(is_searched)
        searched = searched[np.argsort(first[searched], kind="stable")]
        for own in np.split(searched, starts_of_runs(first[searched])[1:]):
            if len(own):
                yield from self._search_key(values, own, first, last)

    def _every_pair(self, own: Integers, first: Integers, last: Integers) -> Iterator[Pairs]:
        most = max(1, BLOCK_BYTES // self._metric.bytes_of_pair(self._rows))
        for which, place in expanded(first[own], last[own], most):
            yield own[which], self._order[place]

    def _search_key(
        self, values: Compared, own: Integers, first: Integers, last: Integers
    ) -> Iterator[Pairs]:
        """The candidates of the values ``own``, which are all of one key."""
        begin = int(first[own[0]])
        if begin not in self._indexes:
            self._indexes[begin] = self._metric.index(self._rows, self._order[begin : last[own[0]]])
        yield from self._indexes[begin].candidates(values, own, self._condition.most)

    # Where they belong is not known, so they are never counted, and always come along.
    def _with_others(
        self, keys: Integers, first: Integers, last: Integers, found: Iterator[Pairs]
    ) -> Iterator[Pairs]:
        """The pairs of ``found``, and pairs of the same values with the rows that are NaN or odd."""
        if not len(self._others):
            yield from found
            return
        none = np.zeros(0, np.int64)
        bare = np.flatnonzero((first == last) & (keys >= 0))
        for at, of, own in chain(((at, of, np.unique(at)) for at, of in found), ((none, none, bare),)):
            sides = (np.searchsorted(self._owners_of_others, keys[own], side) for side in ("left", "right"))
            begin, end = sides
            for which, place in expanded(begin, end, int((end - begin).sum())):
                at, of = np.append(at, own[which]), np.append(of, self._others[place])
            yield at, of

    def _fit_dimensions(self, values: Compared, first: Integers, last: Integers) -> Compared:
        """``values`` as wide as the rows; those that are wider have no rows."""
        starts, sizes = starts_of_runs(self._owners), self._rows.sizes[self._order]
        asking = np.flatnonzero(last > first)
        for each in (np.minimum, np.maximum) if len(asking) else ():
            found = each.reduceat(sizes, starts)[np.searchsorted(starts, first[asking])]
            wrong = np.flatnonzero(found != values.sizes[asking])
            if len(wrong):
                own, other = values.sizes[asking[wrong[0]]], found[wrong[0]]
                raise ConnectorError(
                    f"table {self._table}: {self._condition.columns[0]} has a vector of {other:,} numbers,"
                    f" and is compared with one of {own:,}. Compare vectors of one length only.",
                    permanent=True,
                )
        data = np.zeros((len(values.sizes), self._rows.data.shape[1]), np.float32)
        width = min(data.shape[1], values.data.shape[1])
        data[:, :width] = values.data[:, :width]
        return replace(values, data=data)


class _SortedNumbers:
    """Rows of all keys by their numbers, for those on both sides of a value.

    Args:
        metric: compares numbers.
        rows: the numbers.
        order: the rows by their key.
        owners: their keys.
    """

    def __init__(self, metric: Metric, rows: Compared, order: Integers, owners: Integers) -> None:
        self._metric, self._rows = metric, rows
        self._distinct = np.unique(rows.data[order])
        ranks = np.searchsorted(self._distinct, rows.data[order])
        by = np.lexsort((ranks, owners))
        self._order, self._places = order[by], (owners * (len(self._distinct) + 1) + ranks)[by]

    def candidates(
        self, values: Compared, keys: Integers, first: Integers, last: Integers, most: int
    ) -> Iterator[Pairs]:
        """Pairs of values with rows that may be the nearest.

        Args:
            values: the numbers to compare with.
            keys: the keys of the values.
            first: where the rows of each begin.
            last: where they end.
            most: how many rows answer.
        """
        ranks = np.searchsorted(self._distinct, values.data)
        place = np.searchsorted(self._places, keys * (len(self._distinct) + 1) + ranks)
        step = max(1, BLOCK_BYTES // (256 * most))
        asking = np.flatnonzero(last > first)
        for begin in range(0, len(asking), step):
            own = asking[begin : begin + step]
            left = np.maximum(place[own] - most, first[own])
            right = np.minimum(place[own] + most, last[own])
            bounds = np.zeros(len(own), self._bounds_of(values, own[:1], left[:1])[1].dtype)
            for which, at in expanded(left, right, BLOCK_BYTES // 128):
                high = self._bounds_of(values, own[which], at)[1]
                bounds[which] = within_reach(which, high, high, most)[1]
            left = self._pass_equals(values, own, left, bounds, first[own], -1)
            right = self._pass_equals(values, own, right, bounds, last[own], 1)
            for which, at in expanded(left, right, BLOCK_BYTES // 128):
                yield own[which], self._order[at]

    def _bounds_of(self, values: Compared, own: Integers, place: Integers) -> tuple[NumberArray, NumberArray]:
        return self._metric.bounds(values, self._rows, (own, self._order[place]))

    # By powers of two, as there may be as many as rows.
    def _pass_equals(
        self, values: Compared, own: Integers, edge: Integers, bounds: NumberArray, end: Integers, side: int
    ) -> Integers:
        """``edge`` moved to one side, up to ``end``, as long as the next row is within the bound."""
        edge, width = edge.copy(), 1
        moving = np.flatnonzero(edge != end)
        while len(moving):
            low, _ = self._bounds_of(values, own[moving], edge[moving] - (side < 0))
            moving = moving[low <= bounds[moving]]
            beyond = edge[moving] + side * width
            edge[moving] = np.maximum(beyond, end[moving]) if side < 0 else np.minimum(beyond, end[moving])
            moving = moving[edge[moving] != end[moving]]
            width *= 2
        return edge
