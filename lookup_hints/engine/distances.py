"""The metrics of nearest rows: rows and values as arrays, and the bounds of a distance that Spark computes.

A smaller score is nearer, so similarities are negative here. Spark adds in another order than NumPy, hence
two bounds; where they are equal, they are Spark's own distance.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.engine.asof_and_ranges import Integers
from lookup_hints.spi.request_and_answer import NearestCondition

NumberArray: TypeAlias = npt.NDArray[Any]
Flags: TypeAlias = npt.NDArray[np.bool_]
Pairs: TypeAlias = "tuple[Integers, Integers]"
"""Positions of values, and for each that of a row to compare it with."""

BLOCK_BYTES = 64 * 1024 * 1024
"""So much memory do the scores of a block take."""

# The relative error of one operation of FLOAT and of DOUBLE.
_FLOAT, _DOUBLE = 2.0**-24, 2.0**-53
# Above the square of the smallest normal float.
_SMALL_SQUARE = 2.0**-250


@dataclass(frozen=True)
class Compared:
    """One side of a comparison: the rows, or the values.

    Args:
        data: a number, a vector, a point or a text each.
        is_known: which are at a distance at all: no NULL is in them.
        is_nan: which are at the distance NaN from everything, which is the farthest, or the nearest where
            Spark is asked for the greatest similarity.
        is_odd: which are so large or so small that no bounds are known: their bounds are infinite.
        sizes: the dimensions of vectors, and the lengths of texts.
        norms: the lengths of vectors, and how far points are from zero.
    """

    data: NumberArray
    is_known: Flags
    is_nan: Flags
    is_odd: Flags
    sizes: Integers
    norms: NumberArray


def _compared_side(
    data: NumberArray,
    is_known: Flags,
    is_nan: Flags | None = None,
    is_odd: Flags | None = None,
    sizes: Integers | None = None,
    norms: NumberArray | None = None,
) -> Compared:
    none = np.zeros(len(is_known), np.bool_)
    return Compared(
        data,
        is_known,
        none if is_nan is None else is_nan,
        none if is_odd is None else is_odd,
        np.ones(len(is_known), np.int64) if sizes is None else sizes,
        np.zeros(0) if norms is None else norms,
    )


class Metric(ABC):
    """One way to compare rows with values."""

    @abstractmethod
    def read(self, columns: Sequence[pa.Array]) -> Compared:
        """Rows or values, from the columns of the condition."""

    @abstractmethod
    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        """The least and the greatest score that Spark may find for each pair; none is NaN."""

    def index(self, rows: Compared, among: Integers) -> RowIndex:
        """Finds candidates among many rows, of which none is NaN or odd."""
        raise NotImplementedError

    def bytes_of_pair(self, rows: Compared) -> int:
        """About how much memory ``bounds`` takes for each pair."""
        return 128

    def _spread_error(
        self, scores: NumberArray, error: NumberArray, values: Compared, rows: Compared, pairs: Pairs
    ) -> tuple[NumberArray, NumberArray]:
        """``scores`` with their ``error`` on both sides, of NaN and of what is odd without bounds.

        All rows are equally far from a value that is NaN itself.
        """
        at, of = pairs
        is_odd, is_nan = values.is_odd[at] | rows.is_odd[of] | rows.is_nan[of], values.is_nan[at]
        with np.errstate(invalid="ignore"):
            low, high = np.where(is_odd, -np.inf, scores - error), np.where(is_odd, np.inf, scores + error)
        return np.where(is_nan, 0.0, low), np.where(is_nan, 0.0, high)


class RowIndex(ABC):
    """Rows that are prepared to be searched."""

    @abstractmethod
    def candidates(self, values: Compared, at: Integers, most: int) -> Iterator[Pairs]:
        """Pairs of the values ``at``, none of which is NaN or odd, with all rows that may be the nearest.

        All pairs of a value come together.
        """


def metric_of(condition: NearestCondition, schema: pa.Schema) -> Metric:
    """The metric of ``condition``, over columns of ``schema``."""
    kinds = [schema.field(name).type for name in condition.columns]
    if condition.metric == "difference":
        return Decimals(kinds[0]) if types.is_decimal(kinds[0]) else Difference()
    if condition.metric in ("euclidean", "great-circle"):
        return Points(kinds, condition.metric == "great-circle")
    if condition.metric in ("levenshtein", "trigram"):
        return Levenshtein() if condition.metric == "levenshtein" else Trigrams()
    return Vectors(condition.metric)


def within_reach(
    owners: Integers, low: NumberArray, high: NumberArray, most: int
) -> tuple[Flags, NumberArray]:
    """Which pairs may be among the ``most`` nearest of their value, and for each the bound of that.

    So many have their ``high`` within the bound, so those whose ``low`` is beyond it are not among them.
    """
    order = np.lexsort((high, owners))
    starts = starts_of_runs(owners[order])
    ends = np.append(starts[1:], len(owners))
    limits = high[order[np.minimum(starts + most, ends) - 1]]
    bound = np.empty_like(high)
    bound[order] = np.repeat(limits, ends - starts)
    is_near: Flags = low <= bound
    return is_near, bound


def starts_of_runs(ascending: Integers) -> Integers:
    """Where another number begins than the one before."""
    return np.flatnonzero(np.append(np.ones(min(len(ascending), 1), np.bool_), np.diff(ascending) != 0))


def expanded(first: Integers, last: Integers, most: int) -> Iterator[Pairs]:
    """Each number of each range with the position of the range, ``most`` together, or one range.

    >>> [[each.tolist() for each in pairs] for pairs in expanded(np.array([3, 7]), np.array([5, 8]), 9)]
    [[[0, 0, 1], [3, 4, 7]]]
    """
    before = np.append(0, np.cumsum(last - first))
    begin = 0
    while begin < len(first):
        end = max(begin + 1, int(np.searchsorted(before, before[begin] + most, side="right")) - 1)
        lengths = last[begin:end] - first[begin:end]
        offsets = np.arange(before[begin], before[end]) - np.repeat(before[begin:end], lengths)
        which = np.repeat(np.arange(begin, end), lengths)
        yield which, first[which] + offsets
        begin = end


def codes_of_equals(columns: Sequence[pa.Array], compared: Compared) -> Integers:
    """A number for each row; rows that share one have equal values, as far from everything.

    Args:
        columns: what is compared.
        compared: the same, as a metric has read it.
    """
    codes = np.zeros(len(compared.is_known), np.int64)
    for column in columns:
        if types.is_list(column.type):
            return _codes_of_vectors(compared)
        own = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return codes


# Vectors are not sorted themselves, which would take a copy of all.
def _codes_of_vectors(vectors: Compared) -> Integers:
    """By a hash. Where those of different vectors are equal, equal vectors may have several codes."""
    bits, sizes = vectors.data.view(np.uint32), vectors.sizes
    factors = np.random.default_rng(0).integers(2**63, size=bits.shape[1], dtype=np.uint64) * 2 + 1
    hashes, step = sizes.astype(np.uint64), max(1, BLOCK_BYTES // (16 * max(1, bits.shape[1])))
    for begin in range(0, len(bits), step):
        block = slice(begin, begin + step)
        hashes[block] += (bits[block] * factors).sum(axis=1, dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    is_new = np.append(1, np.diff(hashes[order]) != 0)[: len(bits)]
    alike = np.flatnonzero(is_new == 0)
    for begin in range(0, len(alike), step):
        place = alike[begin : begin + step]
        one, other = order[place - 1], order[place]
        is_new[place] = (bits[one] != bits[other]).any(axis=1) | (sizes[one] != sizes[other])
    codes = np.empty(len(bits), np.int64)
    codes[order] = np.cumsum(is_new)
    return codes


def _read_mask(valid: pa.Array) -> Flags:
    mask: Flags = valid.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


# --- numbers ---------------------------------------------------------------------------------------


class Difference(Metric):
    """The absolute difference of numbers, subtracted in the type of the column as Spark does."""

    def read(self, columns: Sequence[pa.Array]) -> Compared:
        (column,) = columns
        kind = column.type
        if types.is_date32(kind) or types.is_timestamp(kind):
            column = column.cast(pa.int32() if types.is_date32(kind) else pa.int64())
        elif types.is_decimal(kind):
            column = pc.cast(column, pa.float64())
        data = pc.fill_null(column, pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
        is_known = _read_mask(column.is_valid())
        if data.dtype.kind == "f":
            return _compared_side(data, is_known, np.isnan(data), np.isinf(data))
        is_odd = None
        if types.is_integer(kind):  # without ANSI, Spark's difference of two such may begin again at zero
            quarter = 2 ** (kind.bit_width - 2)
            is_odd = (data >= quarter) | (data < -quarter)
        return _compared_side(data.astype(np.int64), is_known, is_odd=is_odd)

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        one, other = values.data[pairs[0]], rows.data[pairs[1]]
        if one.dtype.kind == "i":  # the difference of two of 64 bits has up to 64 itself
            apart = np.maximum(one, other).view(np.uint64) - np.minimum(one, other).view(np.uint64)
            is_odd, farthest = values.is_odd[pairs[0]] | rows.is_odd[pairs[1]], np.uint64(2**64 - 1)
            return np.where(is_odd, np.uint64(0), apart), np.where(is_odd, farthest, apart)
        with np.errstate(invalid="ignore", over="ignore"):
            scores = np.abs(one - other).astype(np.float64)
        # From an infinite value all numbers are equally far.
        values = replace(values, is_odd=np.zeros_like(values.is_odd))
        return self._spread_error(scores, np.zeros_like(scores), values, rows, pairs)


class Decimals(Difference):
    """Differences of decimals: exact in Spark, and rounded here."""

    def __init__(self, kind: pa.Decimal128Type) -> None:
        self._last_digit = 10.0 ** (1 - kind.scale) if kind.precision >= 38 else 0.0  # Spark has no 39th

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        one, other = values.data[pairs[0]], rows.data[pairs[1]]
        error = 8 * _DOUBLE * (np.abs(one) + np.abs(other)) + self._last_digit
        return np.abs(one - other) - error, np.abs(one - other) + error


# --- vectors ---------------------------------------------------------------------------------------


class Vectors(Metric):
    """Vectors of FLOAT, by ``l2``, ``cosine`` or ``inner-product``.

    The bounds hold for sums of FLOAT in any order.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def bytes_of_pair(self, rows: Compared) -> int:
        return 128 + 24 * int(rows.data.shape[1])

    def read(self, columns: Sequence[pa.Array]) -> Compared:
        (column,) = columns
        items = column.flatten()
        is_known = _read_mask(column.is_valid())
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        if items.null_count:
            is_known[pc.list_parent_indices(column).filter(items.is_null()).to_numpy()] = False
            items = pc.fill_null(items, pa.scalar(0.0, pa.float32()))
        data, width = items.to_numpy(), int(sizes.max(initial=0))
        if data.size == len(sizes) * width:
            data = data.reshape(len(sizes), width)
        else:
            data, flat = np.zeros((len(sizes), width), np.float32), data
            data[np.arange(width) < sizes[:, None]] = flat
        norms = _norms_of(data)
        is_nan = np.isnan(norms)
        with np.errstate(invalid="ignore"):
            is_odd = ~((norms == 0) | ((norms > 2.0**-50) & (norms < 2.0**50))) & ~is_nan
        if self.name == "cosine":  # Spark finds NaN for zeros and infinity, and NULL for zeros and others
            is_odd |= norms == 0
        return _compared_side(data, is_known, is_nan, is_odd, sizes, norms)

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        at, of = pairs
        error = (rows.data.shape[1] + 8) * _FLOAT * (2 if self.name == "cosine" else 1)
        scores, step = np.zeros(len(at)), max(1, BLOCK_BYTES // self.bytes_of_pair(rows))
        with np.errstate(invalid="ignore", over="ignore"):
            for begin in range(0, len(at), step):
                block = slice(begin, begin + step)
                one, other = (
                    values.data[at[block]].astype(np.float64),
                    rows.data[of[block]].astype(np.float64),
                )
                if self.name == "l2":
                    one = other = one - other
                scores[block] = np.einsum("ij,ij->i", one, other)
            if self.name == "l2":  # a distance itself is rounded, which matters where it is no normal float
                return self._spread_error(scores, scores * error + _SMALL_SQUARE, values, rows, pairs)
            sizes = values.norms[at] * rows.norms[of]
            if self.name == "cosine":
                scores, sizes = scores / sizes, np.ones_like(sizes)
            return self._spread_error(-scores, sizes * error, values, rows, pairs)

    def index(self, rows: Compared, among: Integers) -> RowIndex:
        return Products(self.name, rows, among, 3 * (rows.data.shape[1] + 12) * _FLOAT)


def _norms_of(vectors: NumberArray) -> NumberArray:
    norms, step = np.zeros(len(vectors)), max(1, BLOCK_BYTES // (8 * max(1, vectors.shape[1])))
    for begin in range(0, len(vectors), step):
        block = vectors[begin : begin + step].astype(np.float64)
        with np.errstate(invalid="ignore"):
            norms[begin : begin + step] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


FIRST_ROWS, MOST_ROWS, VALUES_AT_ONCE = 2048, 16 * 1024, 1024


# Of the first rows the bound is known, and few of the next ones are within it: what a matrix product gives is
# compared once, and hardly anything is sorted.
class Products(RowIndex):
    """Vectors or points, compared by products of matrices.

    Args:
        name: ``l2``, ``cosine`` or ``inner-product``.
        rows: all rows.
        among: those to search.
        error: how wrong a score is, that of Spark and that of a product, where the lengths are 1.
    """

    def __init__(self, name: str, rows: Compared, among: Integers, error: float) -> None:
        self._name, self._among, self._error = name, among, error
        is_range = len(among) and among[-1] - among[0] == len(among) - 1 and (np.diff(among) == 1).all()
        place = slice(among[0], among[-1] + 1) if is_range else among
        self._vectors, self._norms = rows.data[place], rows.norms[place].astype(rows.data.dtype)

    def candidates(self, values: Compared, at: Integers, most: int) -> Iterator[Pairs]:
        step = max(1, VALUES_AT_ONCE * MOST_ROWS // max(MOST_ROWS, most))
        waiting = [at[begin : begin + step] for begin in range(0, len(at), step)]
        while waiting:
            own = waiting.pop()
            found = self._search_block(values, own, most)
            if found is None:
                waiting += [own[: len(own) // 2], own[len(own) // 2 :]]
            else:
                yield own[found[0]], self._among[found[1]]

    def _search_block(self, values: Compared, own: Integers, most: int) -> Pairs | None:
        """The candidates of the values ``own`` by their positions there; None where they are too many."""
        norms, kind = values.norms[own], self._vectors.dtype
        factors = {"l2": -2.0, "inner-product": -1.0}
        factor = factors[self._name] if self._name in factors else -1 / norms[:, None]
        asked = (values.data[own] * factor).astype(kind)
        at, of = np.zeros(0, np.int64), np.zeros(0, np.int64)
        low, high = np.zeros(0), np.zeros(0)
        limits, begin = np.full(len(own), np.inf), 0
        while begin < len(self._vectors):
            end = begin + (max(FIRST_ROWS, most) if begin == 0 else MOST_ROWS)
            scores, error = self._scores_of(asked, norms, slice(begin, end))
            if begin == 0:
                nth = min(most, scores.shape[1]) - 1
                limits = np.partition(scores, nth, axis=1)[:, nth] + error
            # Rounded up, so that the comparison is one of numbers of one type.
            reach = np.nextafter((limits + error).astype(kind), kind.type(np.inf))
            value, row = np.nonzero(scores <= reach[:, None])
            if len(at) + len(value) > BLOCK_BYTES // 64 and len(own) > 1:
                return None
            near = scores[value, row].astype(np.float64)
            at, of = np.append(at, value), np.append(of, row + begin)
            low, high = np.append(low, near - error[value]), np.append(high, near + error[value])
            is_near, bound = within_reach(at, low, high, most)
            at, of, low, high = at[is_near], of[is_near], low[is_near], high[is_near]
            limits[at] = bound[is_near]
            begin = end
        return at, of

    def _scores_of(
        self, asked: NumberArray, norms: NumberArray, block: slice
    ) -> tuple[NumberArray, NumberArray]:
        """The scores of each of ``asked`` with each row of ``block``, and the error for each of ``asked``."""
        vectors, sizes = self._vectors[block], self._norms[block]
        scores = asked @ vectors.T
        largest = float(sizes.max())
        if self._name == "l2":  # all are smaller by the square of the value
            scores += sizes * sizes
            reach = (norms + largest) ** 2
        elif self._name == "cosine":
            scores /= sizes
            reach = np.ones(len(norms))
        else:
            reach = norms * largest
        return scores, reach * self._error + _SMALL_SQUARE


# --- points ----------------------------------------------------------------------------------------


class Points(Metric):
    """Points by their coordinates, or by a latitude and a longitude in degrees.

    The score is the square of the distance, on the globe of the chord: it grows with the way over ground.
    """

    def __init__(self, kinds: Sequence[pa.DataType], is_on_globe: bool) -> None:
        self._is_on_globe = is_on_globe
        self._relative = 2.0**-20 if any(types.is_float32(kind) for kind in kinds) else 2.0**-40

    def read(self, columns: Sequence[pa.Array]) -> Compared:
        is_known = np.logical_and.reduce([_read_mask(column.is_valid()) for column in columns])
        filled = [pc.fill_null(pc.cast(column, pa.float64(), safe=False), 0.0) for column in columns]
        data = np.column_stack([column.to_numpy(zero_copy_only=False) for column in filled])
        is_nan = np.isnan(data).any(axis=1)
        is_odd = (np.abs(data) > (1080 if self._is_on_globe else 1e100)).any(axis=1)
        data = np.where((is_nan | is_odd)[:, None], 0.0, data)
        if self._is_on_globe:
            north, east = np.radians(data.T)
            flat = np.cos(north)
            data = np.column_stack([flat * np.cos(east), flat * np.sin(east), np.sin(north)])
        norms = np.sqrt(np.einsum("ij,ij->i", data, data))
        return _compared_side(data, is_known, is_nan, is_odd, norms=norms)

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        at, of = pairs
        scores = np.zeros(len(at))
        for one, other in zip(values.data.T, rows.data.T, strict=True):
            scores += (one[at] - other[of]) ** 2
        # Decimals and large integers are rounded before they are subtracted, and cosines after that.
        rounded = 8 * _DOUBLE * (values.norms[at] + rows.norms[of])
        error = self._relative * scores + 2 * np.sqrt(scores) * rounded + rounded**2
        error += 2.0**-42 if self._is_on_globe else 1e-300
        return self._spread_error(scores, error, values, rows, pairs)

    # A k-d tree would be one more dependency, or a loop in Python.
    def index(self, rows: Compared, among: Integers) -> RowIndex:
        return Products("l2", rows, among, 4 * self._relative)


# --- texts -----------------------------------------------------------------------------------------


def _read_texts(column: pa.Array) -> tuple[list[str], Flags]:
    return pc.fill_null(column, "").to_pylist(), _read_mask(column.is_valid())


def _code_points(texts: Sequence[str]) -> NumberArray:
    return np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)


class Levenshtein(Metric):
    """The number of characters to insert, delete or replace. ``data`` has all characters of all texts."""

    def bytes_of_pair(self, rows: Compared) -> int:
        return 128 + 16 * int(rows.sizes.mean() if len(rows.sizes) else 0)

    def read(self, columns: Sequence[pa.Array]) -> Compared:
        texts, is_known = _read_texts(columns[0])
        return _compared_side(_code_points(texts), is_known, sizes=np.array([*map(len, texts)], np.int64))

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        edits, lengths = np.zeros(len(pairs[0]), np.int64), values.sizes[pairs[0]] + rows.sizes[pairs[1]]
        order, begin = np.argsort(lengths, kind="stable"), 0
        while begin < len(order):  # texts of about one length together, as the longest decides about memory
            end = min(len(order), begin + max(1, BLOCK_BYTES // (16 * int(lengths[order[begin]] + 1))))
            while end > begin + 1 and lengths[order[end - 1]] > 2 * lengths[order[begin]] + 8:
                end = begin + (end - begin) // 2
            block = order[begin:end]
            edits[block] = self._count_edits(values, rows, (pairs[0][block], pairs[1][block]))
            begin = end
        return edits, edits

    def _count_edits(self, values: Compared, rows: Compared, pairs: Pairs) -> Integers:
        """The usual matrix for all pairs at once, one row of it for each character of the values."""
        one, other = _padded_texts(values, pairs[0], -1), _padded_texts(rows, pairs[1], -2)
        columns = np.arange(other.shape[1] + 1, dtype=np.int32)
        edits = np.tile(columns, (len(other), 1))
        sizes = values.sizes[pairs[0]]
        for number in range(one.shape[1]):
            replaced = edits[:, :-1] + (other != one[:, number, None])
            next_edits = np.empty_like(edits)
            next_edits[:, 0] = number + 1
            np.minimum(edits[:, 1:] + 1, replaced, out=next_edits[:, 1:])
            # To insert costs 1 for each column, which is added after the least one so far is found.
            next_edits -= columns
            np.minimum.accumulate(next_edits, axis=1, out=next_edits)
            next_edits += columns
            edits = np.where((sizes > number)[:, None], next_edits, edits)
        found: Integers = edits[np.arange(len(other)), rows.sizes[pairs[1]]].astype(np.int64)
        return found

    def index(self, rows: Compared, among: Integers) -> RowIndex:
        return _LettersOfRows(self, rows, among)


def _padded_texts(texts: Compared, at: Integers, padding: int) -> NumberArray:
    sizes = texts.sizes[at]
    starts = (np.cumsum(texts.sizes) - texts.sizes)[at]
    place = np.arange(sizes.max(initial=0))
    is_there = place < sizes[:, None]
    padded = np.full(is_there.shape, padding, np.int32)
    padded[is_there] = texts.data[(starts[:, None] + place)[is_there]]
    return padded


class _LettersOfRows(RowIndex):
    """Texts with how often characters are in them: one edit changes at most two of these numbers."""

    def __init__(self, metric: Levenshtein, rows: Compared, among: Integers) -> None:
        self._metric, self._rows, self._among = metric, rows, among
        self._letters = _count_letters(rows)[:, among]

    def candidates(self, values: Compared, at: Integers, most: int) -> Iterator[Pairs]:
        letters = _count_letters(values)
        for value in at:
            own = letters[:, value, None]
            more = np.maximum(own - self._letters, 0).sum(axis=0, dtype=np.int32)
            sizes = self._rows.sizes[self._among]
            # What the value has more and what the row has more are replaced by each other, or edits too many.
            least = np.maximum(more, more + sizes - values.sizes[value])
            some = min(most, len(least)) - 1
            first = np.argpartition(least, some)[: some + 1]
            pairs = np.full(len(first), value), self._among[first]
            near = np.flatnonzero(least <= self._metric.bounds(values, self._rows, pairs)[1].max())
            yield np.full(len(near), value), self._among[near]


def _count_letters(texts: Compared) -> NumberArray:
    """For each of 16 classes of characters how many are in each text, up to what a byte holds."""
    counts = np.zeros((16, len(texts.sizes)), np.int16)
    owners = np.repeat(np.arange(len(texts.sizes)), texts.sizes)
    for number in range(16):
        mine = owners[texts.data % 16 == number]
        counts[number] = np.minimum(np.bincount(mine, minlength=len(texts.sizes)), 2**14)
    return counts


_WORD = re.compile(r"[^\W_]+")


class Trigrams(Metric):
    """The similarity of texts by their different trigrams, as ``pg_trgm`` has it.

    ``data`` has those of all texts, each text's ascending.
    """

    def read(self, columns: Sequence[pa.Array]) -> Compared:
        texts, is_known = _read_texts(columns[0])
        words = [_WORD.findall(text.lower()) for text in texts]
        padded = [f"  {word} " for own in words for word in own]
        letters = _code_points(padded).astype(np.int64)
        lengths = np.array([*map(len, padded)], np.int64)
        if not len(letters):
            return _compared_side(np.zeros(0, np.int64), is_known, sizes=np.zeros(len(texts), np.int64))
        starts = np.ones(len(letters), np.bool_)  # of trigrams: not the last two letters of a word
        ends = np.cumsum(lengths)
        starts[ends - 1] = starts[ends - 2] = False
        first = np.flatnonzero(starts)
        data = letters[first] << 42 | letters[first + 1] << 21 | letters[first + 2]
        owners = np.repeat(np.repeat(np.arange(len(texts)), [*map(len, words)]), lengths - 2)
        order = np.lexsort((data, owners))
        data, owners = data[order], owners[order]
        is_new = np.append(True, (np.diff(data) != 0) | (np.diff(owners) != 0))
        return _compared_side(data[is_new], is_known, sizes=np.bincount(owners[is_new], minlength=len(texts)))

    def bounds(self, values: Compared, rows: Compared, pairs: Pairs) -> tuple[NumberArray, NumberArray]:
        at, of = pairs
        known, numbers = np.unique(values.data, return_inverse=True)
        # Ascending, as trigrams are in each text.
        of_values = np.repeat(np.arange(len(values.sizes)), values.sizes) * (len(known) + 1) + numbers
        starts = np.cumsum(rows.sizes) - rows.sizes
        common = np.zeros(len(at), np.int64)
        for which, place in expanded(starts[of], starts[of] + rows.sizes[of], BLOCK_BYTES // 64):
            number = np.searchsorted(known, own := rows.data[place])
            is_same = known[np.minimum(number, len(known) - 1)] == own if len(known) else number > 0
            wanted = (at[which] * (len(known) + 1) + number)[is_same]
            found = np.searchsorted(of_values, wanted)
            is_common = of_values[np.minimum(found, len(of_values) - 1)] == wanted
            common += np.bincount(which[is_same][is_common], minlength=len(at))
        scores = -common / np.maximum(values.sizes[at] + rows.sizes[of] - common, 1)
        return scores, scores

    def index(self, rows: Compared, among: Integers) -> RowIndex:
        return _RowsOfTrigrams(self, rows, among)


class _RowsOfTrigrams(RowIndex):
    """For each trigram the texts that have it."""

    def __init__(self, metric: Trigrams, rows: Compared, among: Integers) -> None:
        self._among, self._sizes = among, rows.sizes[among]
        starts = np.cumsum(rows.sizes) - rows.sizes
        parts = [*expanded(starts[among], starts[among] + self._sizes, max(1, int(self._sizes.sum())))]
        which = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
        trigrams = rows.data[np.concatenate([np.zeros(0, np.int64), *(place for _, place in parts)])]
        order = np.argsort(trigrams, kind="stable")
        self._trigrams, self._having = trigrams[order], which[order]

    def candidates(self, values: Compared, at: Integers, most: int) -> Iterator[Pairs]:
        ends = np.cumsum(values.sizes)
        for value in at:
            own = values.data[ends[value] - values.sizes[value] : ends[value]]
            first, last = (np.searchsorted(self._trigrams, own, side) for side in ("left", "right"))
            having = [self._having[begin:end] for begin, end in zip(first, last, strict=True)]
            common = np.bincount(np.concatenate([self._having[:0], *having]), minlength=len(self._among))
            scores = common / np.maximum(len(own) + self._sizes - common, 1)
            limit = np.partition(scores, max(len(scores) - most, 0))[max(len(scores) - most, 0)]
            near = np.flatnonzero(scores >= limit)
            yield np.full(len(near), value), self._among[near]
