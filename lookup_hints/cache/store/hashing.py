"""A number of 64 bits for each key, and the form in which keys are compared. No Python code runs per key."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Hashes: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[Any]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_ODD_TOO = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
# Where runs that ascend are as long as this, to merge them is faster than to sort all.
_LONG_RUN = 256

_WORD = 8
# Masks for the first 0 to 8 bytes of a word.
_FIRST_BYTES = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], np.uint64)

_NUMBERS = (types.is_integer, types.is_floating, types.is_date, types.is_timestamp, types.is_duration)
_TEXTS = (types.is_string, types.is_binary)


def can_hash(schema: pa.Schema) -> bool:
    return all(
        _is_any_of(kind, *_NUMBERS, *_TEXTS, types.is_boolean, types.is_decimal128) for kind in schema.types
    )


# One integer is mixed reversibly: equal hashes are equal keys, and the key itself need not be kept.
# (docs/decisions/0158)
def hash_is_exact(schema: pa.Schema) -> bool:
    """Whether different keys of ``schema`` have different hashes: one number, which is mixed reversibly."""
    is_number = len(schema) == 1 and _is_any_of(schema.types[0], *_NUMBERS, types.is_boolean)
    return is_number and not is_null_key(schema.field(0))


# As the workers mark it, whose constant is out of reach here.
_NULL_IS_KEY = {b"lookup_hints": b"NULL is a key"}


def is_null_key(field: pa.Field) -> bool:
    """Whether NULL is a key like others in that column."""
    return field.metadata is not None and _NULL_IS_KEY.items() <= field.metadata.items()


_IS_NULL = "is_null"


# A second column tells NULL from each value, as no bits of a number are left to do so. (docs/decisions/0269)
def comparable(keys: pa.Table) -> pa.RecordBatch:
    """``keys`` so that equal values are equal bits, as SQL's join has it: -0.0 is 0.0 and NaN equals NaN.

    A column in which NULL is a key becomes two: its values, and whether they are NULL.
    """
    columns = {}
    for number, (field, column) in enumerate(zip(keys.schema, keys.columns, strict=True)):
        values = _one_zero_and_nan(column.combine_chunks())
        if is_null_key(field):
            columns[f"{_IS_NULL}{number}"] = values.is_null()
            values = pc.if_else(values.is_null(), _zero_of_type(values.type), values)
        columns[f"key{number}"] = values
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def _zero_of_type(kind: pa.DataType) -> pa.Scalar:
    """The value of that type whose bits are zeros, or that has none."""
    buffers = [None, pa.py_buffer(bytes(2 * _WORD)), pa.py_buffer(b"")]
    return pa.Array.from_buffers(kind, 1, buffers[: kind.num_buffers])[0]


# Spark compares 0.0 with -0.0, and NaN with NaN, as equal; their bits differ.
def _one_zero_and_nan(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):  # of no chunks, in older versions
        column = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    if not types.is_floating(column.type):
        return column
    one_zero = pc.add(column, pa.scalar(0.0, column.type))
    one_nan = pc.if_else(pc.is_nan(one_zero), pa.scalar(float("nan"), column.type), one_zero)
    return one_nan.view(pa.int32() if types.is_float32(column.type) else pa.int64())


def equal(one: pa.RecordBatch, other: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each row whether both have the same key; both are ``comparable``."""
    columns = (pc.equal(left, right) for left, right in zip(one.columns, other.columns, strict=True))
    both: npt.NDArray[np.bool_] = reduce(pc.and_, columns).to_numpy(zero_copy_only=False)
    return both


def hashes_of(keys: pa.RecordBatch) -> Hashes:
    """The hashes of ``comparable`` keys; all bits of each are equally good.

    A key without a NULL has the same hash whether NULL is a key or not.
    """
    columns = [*zip(keys.schema.names, keys.columns, strict=True)]
    values = [_hash_column(column) for name, column in columns if not name.startswith(_IS_NULL)]
    hashes = reduce(lambda one, other: _mix_bits(one * _ODD_TOO + other), values)
    for number, (name, column) in enumerate(columns, 1):
        if name.startswith(_IS_NULL) and column.true_count:
            is_null = column.to_numpy(zero_copy_only=False)
            hashes = np.where(is_null, _mix_bits((hashes ^ _ODD) + np.uint64(number)), hashes)
    return hashes


def in_order(hashes: Hashes) -> tuple[Positions, Hashes]:
    """The positions of ``hashes`` in ascending order, equal ones as they stood, and the hashes in that order.

    Each number that is sorted holds the first bits of a hash and its position: that takes half as long as to
    sort positions by hashes. Hashes whose first bits are equal are rare, and then all are sorted whole.
    So are long runs that ascend, as those of segments: a stable sort merges them, in a seventh of the time.

    >>> in_order(np.array([7 << 60, 5 << 60, 7 << 60], np.uint64))[0].tolist()
    [1, 0, 2]
    """
    descents = np.count_nonzero(hashes[1:] < hashes[:-1])
    if not descents:
        return np.arange(len(hashes)), hashes
    if descents < len(hashes) // _LONG_RUN:
        return _sort_hashes(hashes)
    position_bits = np.uint64((1 << len(hashes).bit_length()) - 1)
    numbers = (hashes & ~position_bits) | np.arange(len(hashes), dtype=np.uint64)
    numbers.sort()
    order = (numbers & position_bits).astype(np.int64)
    ordered = hashes[order]
    return (order, ordered) if (ordered[1:] >= ordered[:-1]).all() else _sort_hashes(hashes)


def _sort_hashes(hashes: Hashes) -> tuple[Positions, Hashes]:
    order = np.argsort(hashes, kind="stable")
    return order, hashes[order]


def distinct(hashes: Hashes) -> tuple[Positions, npt.NDArray[np.int32]]:
    """The first position of each different hash, by their hashes; and for each hash its number in that order.

    >>> [each.tolist() for each in distinct(np.array([7, 5, 7], np.uint64))]
    [[1, 0], [1, 0, 1]]
    """
    order, ordered = in_order(hashes)
    is_new = np.ones(len(order), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
    return order[is_new], numbers


def _hash_column(column: pa.Array) -> Hashes:
    if _is_any_of(column.type, *_TEXTS):
        return _hashes_of_texts(column)
    return reduce(
        lambda hashes, word: _mix_bits(hashes ^ word), _words_of(column), np.zeros(len(column), np.uint64)
    )


def _mix_bits(words: Hashes) -> Hashes:
    """A reversible mixture: what differs before differs afterwards."""
    words = words * _ODD
    words ^= words >> _HALF
    words *= _ODD_TOO
    words ^= words >> _HALF
    return words


def _words_of(column: pa.Array) -> Iterable[Hashes]:
    if types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    start, data = column.offset * width, column.buffers()[1]
    if width == 2 * _WORD:
        halves = np.frombuffer(data, np.uint64, 2 * len(column), start)
        return halves[::2], halves[1::2]
    return (np.frombuffer(data, f"<u{width}", len(column), start).astype(np.uint64),)


def _hashes_of_texts(column: pa.Array) -> Hashes:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    hashes = _mix_bits(lengths.astype(np.uint64))
    words = _words_at_each_byte(data, int(starts[0]) if len(starts) else 0, int(ends[-1]))
    starts = starts - (starts[0] if len(starts) else 0)
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    among: slice | Positions = slice(None)
    for place in range(0, longest, _WORD):
        if place >= shortest:
            among = _texts_beyond(lengths, among, place)
        word = words[starts[among] + place]
        if place + _WORD > shortest:
            word &= _FIRST_BYTES[np.minimum(lengths[among] - place, _WORD)]
        hashes[among] = _mix_bits(hashes[among] ^ word)
    return hashes


def _texts_beyond(lengths: Positions, among: slice | Positions, place: int) -> Positions:
    """Those ``among`` all texts that do not end at ``place``."""
    return np.flatnonzero(lengths > place) if isinstance(among, slice) else among[lengths[among] > place]


def _words_at_each_byte(data: pa.Buffer | None, start: int, end: int) -> Hashes:
    """For each byte of ``data`` the eight that begin there; behind the end are zeros."""
    padded = np.zeros(end - start + _WORD, np.uint8)
    if data is not None and end > start:
        padded[: end - start] = np.frombuffer(data, np.uint8, end - start, start)
    words: Hashes = np.ndarray((end - start + 1,), np.dtype("<u8"), padded.data, strides=(1,))
    return words


def _is_any_of(kind: pa.DataType, *questions: Any) -> bool:
    return any(question(kind) for question in questions)
