"""Keys and rows as Arrow columns. Pure functions; no Python code runs per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.errors import AnswerError, counted
from lookup_hints.lookup_spec import NULL_IS_KEY
from lookup_hints.spi.arrow_types import cast
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, PlacedRows

OUTPUT_BYTES = 32 * 1024 * 1024
"""An output array is cut where it would hold more: one hot key with long rows could fill the memory."""

SAMPLE = 4096
FEW_REPEATED = 0.75
"""Of so many first values more than this part must differ, for sorting all to be faster than hashing all."""


# --- keys ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """The distinct keys of some rows.

    Args:
        table: the keys, in the order of their first row; NULL is in columns alone that are marked so.
        codes: for each row the position of its key in ``table``, NULL where another key column is NULL.
        known: what a cache has of them.
        values: for each row what it compares with the ordered column, where there is one.
    """

    table: pa.Table
    codes: pa.Array
    known: KnownAnswers | None = None
    values: pa.Array | None = None


@dataclass(frozen=True)
class KnownAnswers:
    """Answers known without a request: keys that are neither found nor missing must be asked for.

    Args:
        found: their rows.
        missing: the positions of those that have none.
        refreshing: which of those that are found have rows that are too old.
        fallback: rows of others that are too old, for the case that asking fails.
    """

    found: tuple[Placed, ...]
    missing: pa.Array
    refreshing: pa.Array | None = None
    fallback: tuple[Placed, ...] = ()


def distinct_keys(rows: pa.Table) -> Keys:
    """The distinct keys among ``rows``, equal as SQL's join has it: -0.0 is 0.0 and NaN equals NaN."""
    return reduce(_pair_codes, (_column_keys(rows, name) for name in rows.column_names))


def ordered_keys(rows: pa.Table) -> Keys:
    """``distinct_keys``, ascending: what a source's index has side by side is then asked together.

    Vectors and points are not sorted.
    """
    if any(types.is_nested(kind) for kind in rows.schema.types):
        return distinct_keys(rows)
    if rows.num_columns == 1 and _has_few_repeats(column := whole(rows.column(0))):
        return _keys_by_sorting(column, rows.schema)
    keys = distinct_keys(rows)
    if rows.num_columns == 1:
        order = _sort_column(whole(keys.table.column(0)))
    else:
        by = [(name, "ascending") for name in rows.column_names]
        order = pc.sort_indices(keys.table, sort_keys=by).cast(pa.int32())
    return Keys(keys.table.take(order), _inverse_permutation(order).take(keys.codes))


def without_keys(rows: pa.Table, where: pa.Array) -> pa.Table:
    """``rows``, of which those are asked for nothing that ``where`` says: a NULL is in their key.

    Where NULL is a key in each column, there is no such key.
    """
    plain = [number for number, field in enumerate(rows.schema) if not is_null_key(field)]
    if not plain or not pc.any(where).as_py():
        return rows
    field = rows.schema.field(plain[0])
    nothing = pa.scalar(None, field.type)
    return rows.set_column(plain[0], field, pc.if_else(where, nothing, rows.column(plain[0])))


def is_null_key(field: pa.Field) -> bool:
    """Whether NULL is a key like others in that column of keys."""
    return field.metadata is not None and NULL_IS_KEY.items() <= field.metadata.items()


def _has_few_repeats(column: pa.Array) -> bool:
    """Whether few values of a sample repeat: then sorting, to come anyway, beats a hash table before it."""
    if column.null_count or not (types.is_integer(column.type) or types.is_string(column.type)):
        return False
    sample = column[:SAMPLE]
    return len(sample.unique()) > FEW_REPEATED * len(sample)


def _keys_by_sorting(column: pa.Array, schema: pa.Schema) -> Keys:
    order = _sort_column(column)
    ascending = column.take(order)
    is_new = pc.not_equal(ascending[1:], ascending[:-1])
    keys = ascending.filter(pa.concat_arrays([pa.array([True]), is_new]))
    codes = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), is_new.cast(pa.int32())]))
    return Keys(pa.table([keys], schema=schema), codes.take(_inverse_permutation(order)))


_DIGIT_BITS = 12
"""Arrow counts values of so narrow a range, and compares others."""


# Digit by digit, the last one first, integers are sorted in a fifth of the time. (docs/decisions/0236)
def _sort_column(column: pa.Array) -> pa.Array:
    """The positions of the values in ascending order; no value is NULL."""
    if not types.is_integer(column.type) or len(column) < SAMPLE:
        return pc.array_sort_indices(column).cast(pa.int32())
    low, high = pc.min_max(column).as_py().values()
    above = pc.subtract(column.cast(pa.int64()), low)  # where it wraps, the digits are right still
    order = count_up_to(len(column))
    for shift in range(0, max((high - low).bit_length(), 1), _DIGIT_BITS):
        digits = pc.bit_wise_and(pc.shift_right(above.take(order), shift), (1 << _DIGIT_BITS) - 1)
        order = order.take(pc.array_sort_indices(digits))
    return order


def _inverse_permutation(order: pa.Array) -> pa.Array:
    if hasattr(pc, "inverse_permutation"):  # since pyarrow 20, and ten times as fast
        return pc.inverse_permutation(order)
    return pc.index_in(count_up_to(len(order)), value_set=order)


def _column_keys(rows: pa.Table, name: str) -> Keys:
    field = rows.schema.field(name)
    nulls = "encode" if is_null_key(field) else "mask"
    column = whole(rows.column(name))
    encoded = one_zero(_flat_column(column)).dictionary_encode(null_encoding=nulls)
    keys = encoded.dictionary
    if types.is_nested(field.type):
        keys = column.take(pc.index_in(count_up_to(len(keys)), value_set=encoded.indices))
    return Keys(pa.table([keys], schema=pa.schema([field])), encoded.indices)


def with_flat_keys(schema: pa.Schema) -> pa.Schema:
    """The schema of ``flat_keys`` of a table with ``schema``."""
    return pa.schema([each.with_type(pa.binary()) if types.is_nested(each.type) else each for each in schema])


# A vector or a point is a key by its bytes. Some are asked twice so: those that differ in the sign of a zero.
def flat_keys(keys: pa.Table) -> pa.Table:
    """``keys``, whose vectors and points are bytes."""
    columns = [_flat_column(whole(column)) for column in keys.columns]
    return pa.Table.from_arrays(columns, schema=with_flat_keys(keys.schema))


def without_null_parts(column: pa.Array) -> pa.Array:
    """``column`` with NULL for vectors and points in which there is one."""
    if types.is_struct(column.type):
        is_whole = reduce(pc.and_, (part.is_valid() for part in column.flatten()))
    elif types.is_list(column.type) and column.flatten().null_count:
        parents = pc.list_parent_indices(column).filter(column.flatten().is_null())
        is_whole = pc.invert(are_among(pc.unique(parents.cast(pa.int32())), len(column)))
    else:
        return column
    return pc.if_else(is_whole, column, pa.scalar(None, column.type))


def _flat_column(column: pa.Array) -> pa.Array:
    if types.is_struct(column.type):
        parts = [_bytes_of_items(part, np.arange(len(part) + 1)) for part in column.flatten()]
        joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace")
        return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.binary()))
    if types.is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        joined = _bytes_of_items(column.flatten(), np.append(0, np.cumsum(lengths)))
        return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.binary()))
    return column


def _bytes_of_items(items: pa.Array, ends: npt.NDArray[np.int64]) -> pa.Array:
    """The bytes of numbers; those between each two ``ends`` together."""
    width = items.type.bit_width // 8
    data = pa.concat_arrays([items[:0], items])  # from the start of its buffer on
    offsets = pa.py_buffer((ends * width).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, data.buffers()[1]])


def one_zero(column: pa.Array) -> pa.Array:
    """``column`` with one zero and one NaN: Arrow's hash tables tell their bits apart."""
    if not types.is_floating(column.type):
        return column
    positive = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(positive), pa.scalar(float("nan"), column.type), positive)


# One number for each pair of codes, so that any number of key columns ends as one dictionary.
def _pair_codes(left: Keys, right: Keys) -> Keys:
    width = pa.scalar(max(right.table.num_rows, 1), pa.int64())
    pairs = pc.add(pc.multiply(left.codes.cast(pa.int64()), width), right.codes)
    encoded = pairs.dictionary_encode()
    left_code = pc.divide(encoded.dictionary, width)
    right_code = pc.subtract(encoded.dictionary, pc.multiply(left_code, width))
    table = left.table.take(left_code)
    for name in right.table.column_names:
        table = table.append_column(right.table.schema.field(name), right.table.column(name).take(right_code))
    return Keys(table, encoded.indices)


def whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    # concat_arrays needs one array at least, and a chunked array may have none.
    return pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def count_up_to(length: int) -> pa.Array:
    return _count_to_power(1 << length.bit_length())[:length]


@cache  # as many as there are powers of two
def _count_to_power(length: int) -> pa.Array:
    ones = pa.repeat(pa.scalar(1, pa.int32()), length)
    return pc.subtract(pc.cumulative_sum(ones), pa.scalar(1, pa.int32()))


def _is_count(positions: pa.Array, length: int) -> bool:
    """Whether ``positions`` are ``count_up_to(length)``, as where each key has its one row: cheap to see."""
    return len(positions) == length and bool(positions.equals(count_up_to(length)))


def holds(positions: pa.Array, position: int) -> bool:
    return bool(pc.index(positions, pa.scalar(position, positions.type)).as_py() >= 0)


def absent(positions: pa.Array, length: int) -> pa.Array:
    """The numbers below ``length`` that are not among ``positions``."""
    everything = count_up_to(length)
    if _is_count(positions, length):
        return everything[:0]
    return everything.filter(pc.invert(are_among(positions, length)))


def present(positions: pa.Array, length: int) -> pa.Array:
    """The numbers below ``length`` that are among ``positions``, each once and ascending."""
    return count_up_to(length).filter(are_among(positions, length))


def are_among(positions: pa.Array, length: int) -> pa.Array:
    """A mask of ``length`` that is true at ``positions``, all of which are below ``length``."""
    if hasattr(pc, "inverse_permutation"):  # since pyarrow 20, and ten times as fast
        return pc.inverse_permutation(positions, max_index=length - 1).is_valid()
    return pc.is_in(count_up_to(length), value_set=positions)


# --- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """Rows of an answer, typed as asked, and for each the position of its key among those asked."""

    rows: pa.Table
    positions: pa.Array

    def filter(self, mask: pa.Array) -> Placed:
        return Placed(self.rows.filter(mask), self.positions.filter(mask))


def place(
    answer: Answer,
    request: LookupRequest,
    connector: str,
    unasked: Callable[[pa.Table], None] = lambda _: None,
) -> Placed:
    """The rows of ``answer``, checked against ``request``.

    Rows whose key was not asked are dropped, and ``unasked`` is told their keys.

    Raises:
        AnswerError: the answer breaks the contract; names ``connector`` and the column.
    """
    if isinstance(answer, PlacedRows):
        if answer.positions is not None:
            rows = conform(answer.rows, request.schema, connector)
            return Placed(
                rows, _checked_positions(answer.positions, len(rows), request.keys.num_rows, connector)
            )
        answer = answer.rows
    if not isinstance(answer, pa.Table):
        tip = (
            "\nWrite pa.Table.from_pylist(rows, request.schema)." if isinstance(answer, list | tuple) else ""
        )
        raise AnswerError(f"{connector} answered a {type(answer).__name__}; expected a pyarrow.Table.{tip}")
    if request.order is not None or request.nearest is not None:
        raise AnswerError(
            f"{connector} answered rows without positions; where it is asked in order, it must answer"
            " PlacedRows with the position of the key of each row."
        )
    rows = conform(answer, request.schema, connector)
    placed = Placed(rows, positions_of(rows, request.keys))
    if placed.positions.null_count == 0:
        return placed
    unasked(rows.select(request.keys.column_names).filter(placed.positions.is_null()))
    return placed.filter(placed.positions.is_valid())


def positions_of(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """For each of ``rows`` the position of its key in ``keys``, NULL where it is not among them."""
    if rows.num_rows == keys.num_rows and rows.select(keys.column_names).equals(keys):
        return count_up_to(keys.num_rows)  # the usual answer to keys that all exist
    if keys.num_columns == 1:
        own = one_zero(whole(rows.column(keys.column_names[0])))
        return pc.index_in(own, value_set=whole(keys.column(0)))
    # The keys are distinct and come first, so their codes are their positions; strangers get higher ones.
    count = keys.num_rows
    codes = distinct_keys(pa.concat_tables([keys, rows.select(keys.column_names)])).codes[count:]
    return pc.if_else(pc.less(codes, count), codes, pa.scalar(None, codes.type))


def _checked_positions(positions: pa.Array, rows: int, count: int, connector: str) -> pa.Array:
    if isinstance(positions, pa.ChunkedArray):
        positions = whole(positions)
    if len(positions) != rows:
        raise AnswerError(
            f"{connector} answered {counted(rows, 'row')} with {counted(len(positions), 'position')};"
            " there must be one for each row."
        )
    if not types.is_integer(positions.type) or positions.null_count:
        raise AnswerError(
            f"{connector} answered positions of type {positions.type}; expected integers, no NULL."
        )
    low, high = pc.min_max(positions).as_py().values()
    if len(positions) and (low < 0 or high >= count):
        raise AnswerError(
            f"{connector} answered positions from {low} to {high}; it was asked {counted(count, 'key')},"
            f" so they must be from 0 to {count - 1}."
        )
    return positions.cast(pa.int32())


def conform(rows: pa.Table, schema: pa.Schema, connector: str) -> pa.Table:
    """``rows`` with exactly the columns of ``schema``; others are dropped.

    A column of the same kind in another form (a large string, a wider integer whose values fit, another
    zone label) is converted; one of another kind is an error, as its conversion would be a guess.

    Raises:
        AnswerError: a column is missing, there twice, or of another type.
    """
    if rows.schema.equals(schema):
        return rows
    columns = [_cast_column(rows, column, connector) for column in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_column(rows: pa.Table, wanted: pa.Field, connector: str) -> pa.ChunkedArray:
    found = rows.schema.get_all_field_indices(wanted.name)
    if len(found) != 1:
        how = "has no column" if not found else "has more than one column"
        raise AnswerError(f"The answer of {connector} {how} {wanted.name!r}; it has {rows.column_names}.")
    column = rows.column(found[0])
    if column.type == wanted.type:
        return column
    problem = f"{connector} answered column {wanted.name!r} as {column.type}; expected {wanted.type}"
    if not _same_kind(column.type, wanted.type):
        raise AnswerError(f"{problem}.")
    try:
        return pa.chunked_array([cast(chunk, wanted.type) for chunk in column.chunks], wanted.type)
    except (pa.ArrowException, ValueError) as error:
        raise AnswerError(f"{problem}, and not all values fit: {error}") from error


# By name, as the oldest pyarrow that we support has no view types to ask for.
_TEXTS = frozenset({"string", "large_string", "string_view"})
_BYTES = frozenset({"binary", "large_binary", "binary_view"})


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in _TEXTS


def _is_bytes(kind: pa.DataType) -> bool:
    return str(kind) in _BYTES


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_text,
    _is_bytes,
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_date,
    types.is_duration,
)


def _same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found == wanted or types.is_null(found):
        return True
    if types.is_dictionary(found):
        return _same_kind(found.value_type, wanted)
    if types.is_timestamp(found) and types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if _is_list(found) and _is_list(wanted):
        return _same_kind(found.value_type, wanted.value_type)
    if types.is_map(found) and types.is_map(wanted):
        return _same_kind(found.key_type, wanted.key_type) and _same_kind(found.item_type, wanted.item_type)
    if types.is_struct(found) and types.is_struct(wanted):
        return [field.name for field in found] == [field.name for field in wanted] and all(
            _same_kind(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    return any(is_kind(found) and is_kind(wanted) for is_kind in _KINDS)


# --- results ---------------------------------------------------------------------------------------


def lists_per_key(placed: Placed, count: int, row_type: pa.StructType) -> pa.ListArray:
    """For each of ``count`` keys the list of its rows as structs, in the order of the answer."""
    grouped = _sort_by_position(placed)
    structs = _to_structs(grouped.rows, row_type)
    return pa.ListArray.from_arrays(
        _offsets_by_position(grouped.positions, count), structs, type=pa.list_(row_type)
    )


def _sort_by_position(placed: Placed) -> Placed:
    """The same rows by ascending position; the sort is stable."""
    earlier, later = placed.positions[:-1], placed.positions[1:]
    if pc.all(pc.less_equal(earlier, later)).as_py():
        return placed
    order = pc.array_sort_indices(placed.positions)
    return Placed(placed.rows.take(order), placed.positions.take(order))


def _offsets_by_position(positions: pa.Array, count: int) -> pa.Array:
    if _is_count(positions, count):
        return count_up_to(count + 1)
    counts = pc.cumulative_sum(_count_positions(positions, count))
    return pa.concat_arrays([pa.array([0], counts.type), counts]).cast(pa.int32())


def _count_positions(positions: pa.Array, count: int) -> pa.Array:
    if pc.all(pc.less(positions[:-1], positions[1:])).as_py():
        return are_among(positions, count).cast(pa.int32())
    # Arrow has no bincount. One more of each position gives them all, in order, to value_counts.
    each_once_more = pa.concat_arrays([count_up_to(count), positions])
    return pc.subtract(pc.value_counts(each_once_more).field("counts"), 1)


def _to_structs(rows: pa.Table, row_type: pa.StructType) -> pa.StructArray:
    # From buffers, as StructArray.from_arrays loses the length when there is no column.
    columns = [whole(rows.column(field.name)) for field in row_type]
    return pa.Array.from_buffers(row_type, rows.num_rows, [None], children=columns)


def with_nulls(lists: pa.ListArray, positions: pa.Array) -> pa.ListArray:
    """``lists`` with NULL at ``positions``, which hold no rows so far."""
    mask = are_among(positions, len(lists))
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=mask)


def with_empty_last(lists: pa.ListArray) -> pa.ListArray:
    """``lists`` and one more, which is empty; their values are not copied."""
    offsets = pa.concat_arrays([lists.offsets, lists.offsets[-1:]])
    mask = pa.concat_arrays([lists.is_null(), pa.array([False])]) if lists.null_count else None
    return pa.ListArray.from_arrays(offsets, lists.values, type=lists.type, mask=mask)


def handed_out(lists: pa.ListArray, codes: pa.Array) -> Iterator[pa.ListArray]:
    """``lists.take(codes)`` in arrays of at most ``OUTPUT_BYTES``, or of one row where that is more."""
    if len(codes) and _most_bytes(lists) * len(codes) <= OUTPUT_BYTES:
        yield _take_lists(lists, codes)
        return
    before = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(_row_bytes(lists.values))])
    edges = before.take(lists.offsets)
    nbytes = pc.add(pc.subtract(edges[1:], edges[:-1]), 1)
    for start, end in _split_by_bytes(pc.cumulative_sum(nbytes.take(codes))):
        yield _take_lists(lists, codes[start:end])


def rows_in_lists(
    rows: pa.Table, taken: pa.Array, ends: pa.Array, is_null: pa.Array, row_type: pa.StructType
) -> Iterator[pa.ListArray]:
    """Lists of ``rows``, in arrays of at most ``OUTPUT_BYTES``, or of one list where that is more.

    Args:
        rows: the rows.
        taken: positions of rows, those of the first list first.
        ends: for each list where in ``taken`` it ends.
        is_null: which lists are NULL; they are empty.
        row_type: the type of the structs.
    """
    rows = rows.select([field.name for field in row_type])
    before = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(_row_bytes(rows).take(taken))])
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    for start, end in _split_by_bytes(before.take(ends)):
        first, last = offsets[start].as_py(), offsets[end].as_py()
        structs = _to_structs(rows.take(taken[first:last]), row_type)
        own = pc.subtract(offsets[start : end + 1], first).cast(pa.int32())
        mask = is_null[start:end]
        # Of an array that begins elsewhere, pyarrow takes no mask.
        mask = pa.concat_arrays([mask, mask[:0]]) if start else mask
        yield pa.ListArray.from_arrays(own, structs, type=pa.list_(row_type), mask=mask)


# Wide rows leave in portions, so that Spark can take the first ones while the next are put together.
# (docs/decisions/0115)
def _split_by_bytes(bytes_before: pa.Array) -> Iterator[tuple[int, int]]:
    """Where portions of at most ``OUTPUT_BYTES`` begin and end; up to each place it is ``bytes_before``."""
    start = 0
    while start < len(bytes_before):
        given = bytes_before[start - 1].as_py() if start else 0
        fits = pc.sum(pc.less_equal(bytes_before, given + OUTPUT_BYTES)).as_py()
        end = max(fits, start + 1)
        yield start, end
        start = end


def _take_lists(lists: pa.ListArray, codes: pa.Array) -> pa.ListArray:
    """``lists.take(codes)``; in half of its time where no list is NULL or has two rows."""
    lengths = pc.list_value_length(lists)
    if lists.null_count or pc.max(lengths).as_py() > 1:
        return lists.take(codes)
    counts = lengths.take(codes)
    rows = lists.offsets.take(codes).filter(counts.cast(pa.bool_()))
    row_type = lists.type.value_type
    columns = [column.take(rows) for column in lists.values.flatten()]
    structs = pa.Array.from_buffers(row_type, len(rows), [None], children=columns)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return pa.ListArray.from_arrays(offsets, structs, type=lists.type)


def _most_bytes(lists: pa.ListArray) -> int:
    """No list takes more bytes."""
    rows: int = pc.max(pc.list_value_length(lists)).as_py() or 0
    texts, others = _texts_and_bytes_of_others(lists.values.flatten())
    return rows * (others + sum(pc.max(pc.binary_length(text)).as_py() or 0 for text in texts)) + 1


def bytes_by_position(found: Sequence[Placed], count: int) -> pa.Array:
    """For each of ``count`` keys the bytes of its rows in all of ``found``."""
    sums = np.zeros(count, np.int64)
    for each in found:
        np.add.at(sums, each.positions.to_numpy(), _row_bytes(each.rows).to_numpy())
    return pa.array(sums)


def _row_bytes(rows: pa.StructArray | pa.Table) -> pa.Array:
    """The bytes of each row: of texts their own, of all other columns the average."""
    columns = rows.flatten() if isinstance(rows, pa.StructArray) else rows.columns
    texts, others = _texts_and_bytes_of_others(columns)
    lengths = (pc.fill_null(pc.binary_length(text), 0).cast(pa.int64()) for text in texts)
    # Chunks are put together when they are lengths: what they hold may be large.
    arrays = (each if isinstance(each, pa.Array) else whole(each) for each in lengths)
    return reduce(pc.add, arrays, pa.repeat(pa.scalar(others, pa.int64()), len(rows)))


def _texts_and_bytes_of_others(
    columns: Sequence[pa.Array | pa.ChunkedArray],
) -> tuple[list[pa.Array | pa.ChunkedArray], int]:
    """Those of ``columns`` that are texts or bytes, and the average bytes of a row in all others."""
    texts = [column for column in columns if _is_text(column.type) or _is_bytes(column.type)]
    others = sum(column.nbytes for column in columns if not (_is_text(column.type) or _is_bytes(column.type)))
    return texts, others // max(len(columns[0]) if columns else 0, 1) + 1
