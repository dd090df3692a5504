"""A whole table in one file, mapped into memory and asked for the rows that answer values.

Rows are kept by the starts of their ranges, or as they come, for others to search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.cache.store.hashing import Positions
from lookup_hints.cache.store.segment_entries import ProbeResult
from lookup_hints.cache.store.segment_files import NotASegment, StoreLimits, has_room_for

_FILE = "ranges.arrow"
_INT64_DIGITS = 18
_SIGN = np.int64(2**63 - 1)

Ordered = npt.NDArray[Any]
"""Values that sort as Spark sorts them: int64 mostly, bytes for texts, int for long decimals."""


class TooLarge(Exception):
    """The table does not fit into the limits."""


@dataclass(frozen=True)
class Bounds:
    """The columns of the rows, which of them are the ends of a range, and whether these belong to it."""

    schema: pa.Schema
    start: str
    end: str
    holds_start: bool = True
    holds_end: bool = True

    @property
    def holds_both(self) -> bool:
        """Whether a range from a value to itself holds that value."""
        return self.holds_start and self.holds_end


# Spark compares each row with each range, which does not end for millions of both. Here the starts are sorted
# and mapped. (docs/decisions/0208)
class Ranges:
    """The rows of one table, mapped into memory; they outlive their file.

    Args:
        rows: by ascending start; no range is empty, or has a NULL.
        bounds: their ranges.
        nbytes: of the file.
    """

    def __init__(self, rows: pa.Table, bounds: Bounds, nbytes: int) -> None:
        self.nbytes, self._rows, self._bounds = nbytes, rows, bounds
        self._starts, self._ends = (_to_sortable(rows.column(name)) for name in (bounds.start, bounds.end))
        before, after = self._ends[:-1], self._starts[1:]
        self._is_disjoint = bool(np.all(before < after if bounds.holds_both else before <= after))

    @classmethod
    def opened(cls, folder: Path, rows: int, bounds: Bounds) -> Ranges:
        """The table in ``folder``, which has this many rows.

        Raises:
            NotASegment: it is damaged.
            OSError: it is not there, or there is no room to map it.
        """
        table, nbytes = _map_rows(folder, rows)
        return cls(table, bounds, nbytes)

    @cached_property
    def most(self) -> int:
        """No value is held by more ranges."""
        if self._is_disjoint:
            return min(1, len(self._starts))
        begun = np.searchsorted(self._starts, self._starts, side="right")
        return int((begun - np.searchsorted(np.sort(self._ends), self._starts, side="left")).max())

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> ProbeResult:
        """The rows that hold each of ``keys``, values in one column; the others are held by none."""
        values = _to_sortable(keys.column(0))
        side = "right" if self._bounds.holds_start else "left"
        begun = np.searchsorted(self._starts, values, side=side)  # type: ignore[call-overload]
        asked, at = (self._match_last_begun if self._is_disjoint else self._match_all)(values, begun)
        return _result_of(self._rows.select(list(columns)), len(values), asked, at)

    # 0.2 us for each value, against 3.5 us down the tree. (docs/decisions/0208)
    def _match_last_begun(self, values: Ordered, begun: Positions) -> tuple[Positions, Positions]:
        """Where ranges do not overlap, only the last that has begun can hold a value."""
        asked = np.flatnonzero(begun)
        at = begun[asked] - 1
        holds = self._ends_after(self._ends[at], values[asked])
        return asked[holds], at[holds]

    def _match_all(self, values: Ordered, begun: Positions) -> tuple[Positions, Positions]:
        """Down the tree of the latest ends: a branch is left where all of it ends before the value.

        Each branch that is kept holds a match, but for one at most: this costs what it finds.
        """
        asked = np.flatnonzero(begun)
        node = np.zeros(len(asked), np.int64)
        for height in range(len(self._latest_ends) - 1, -1, -1):
            if height < len(self._latest_ends) - 1:
                asked, node = np.repeat(asked, 2), np.repeat(node * 2, 2)
                node[1::2] += 1
            has_begun = node << height < begun[asked]
            asked, node = asked[has_begun], node[has_begun]
            holds = self._ends_after(self._latest_ends[height][node], values[asked])
            asked, node = asked[holds], node[holds]
        return asked, node

    @cached_property
    def _latest_ends(self) -> list[Ordered]:
        """The ends, the latest of each two, of each four, and so on to one."""
        levels = [self._ends]
        while len(levels[-1]) > 1:
            below = levels[-1]
            pairs = np.maximum(below[:-1:2], below[1::2])
            levels.append(pairs if len(below) % 2 == 0 else np.append(pairs, below[-1:]))
        return levels

    def _ends_after(self, ends: Ordered, values: Ordered) -> npt.NDArray[np.bool_]:
        lasts: npt.NDArray[np.bool_] = ends >= values if self._bounds.holds_end else ends > values
        return lasts.astype(np.bool_)


@dataclass(frozen=True)
class RowSearch:
    """How rows are searched that are kept as they come.

    Args:
        schema: their columns.
        prepare: makes of all rows what finds some of them: of values the positions of those that are
            answered, and for each that of a row.
        most: about so many rows answer a value at most.
    """

    schema: pa.Schema
    prepare: Callable[[pa.Table], Callable[[pa.Array], tuple[Positions, Positions]]]
    most: int


class SearchedRows:
    """The rows of one table, mapped into memory; they outlive their file."""

    def __init__(self, rows: pa.Table, search: RowSearch, nbytes: int) -> None:
        self.nbytes, self.most, self._rows = nbytes, search.most, rows
        self._find = search.prepare(rows)

    @classmethod
    def opened(cls, folder: Path, rows: int, search: RowSearch) -> SearchedRows:
        """The table in ``folder``, which has this many rows; raises as that of ``Ranges``."""
        table, nbytes = _map_rows(folder, rows)
        return cls(table, search, nbytes)

    def probe(self, keys: pa.Table, columns: Sequence[str]) -> ProbeResult:
        """The rows that answer each of ``keys``, values in one column; the others are answered by none."""
        asked, at = self._find(keys.column(0).combine_chunks())
        return _result_of(self._rows.select(list(columns)), keys.num_rows, asked, at)


def _map_rows(folder: Path, rows: int) -> tuple[pa.Table, int]:
    path = folder / _FILE
    nbytes = path.stat().st_size
    if not has_room_for(nbytes):
        raise OSError(0, "there is no room to map the table")
    with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as stream:
        table = stream.read_all()
    if table.num_rows != rows:
        raise NotASegment("some of its rows are missing")
    return table, nbytes


def _result_of(rows: pa.Table, count: int, asked: Positions, at: Positions) -> ProbeResult:
    """The answer for ``count`` values, of which those at ``asked`` have the rows ``at``."""
    missing = np.ones(count, np.bool_)
    missing[asked] = False
    found = (rows.take(pa.array(at)), pa.array(asked, pa.int32()))
    return ProbeResult((found,) if len(at) else (), pa.array(np.flatnonzero(missing), pa.int32()))


def write_rows(
    folder: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, limits: StoreLimits
) -> int:
    """Write the rows of ``batches`` into ``folder`` as they come; raises as ``write_ranges``."""
    return _write_file(folder, _collect_rows(batches, schema, limits).combine_chunks())


def write_ranges(folder: Path, batches: Iterable[pa.RecordBatch], bounds: Bounds, limits: StoreLimits) -> int:
    """Write the rows of ``batches`` into ``folder``, but for those that hold nothing; tells how many.

    They are sorted in memory.

    Raises:
        TooLarge: they do not fit.
        OSError: they cannot be written.
    """
    table = _collect_rows(batches, bounds.schema, limits)
    start, end = table.column(bounds.start), table.column(bounds.end)
    table = table.filter(pc.and_(start.is_valid(), end.is_valid())).combine_chunks()
    starts, ends = _to_sortable(table.column(bounds.start)), _to_sortable(table.column(bounds.end))
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    holds_some = (starts <= ends if bounds.holds_both else starts < ends).astype(np.bool_)
    return _write_file(folder, table.take(pa.array(order[holds_some])))


def _collect_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, limits: StoreLimits) -> pa.Table:
    held, rows, nbytes = [], 0, 0
    for batch in batches:
        held.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if not limits.allow(rows, nbytes):
            raise TooLarge("the table takes more room than the limits of its cache give it")
    return pa.Table.from_batches(held, schema)


def _write_file(folder: Path, table: pa.Table) -> int:
    with pa.OSFile(str(folder / _FILE), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return int(table.num_rows)


def _to_sortable(column: pa.ChunkedArray) -> Ordered:
    """The values of ``column``, none of which is NULL, as numbers or bytes that sort as Spark sorts them."""
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    if types.is_floating(kind):
        # The bits of floating point numbers so that NaN is above all others, and -0.0 is 0.0.
        floats = column.cast(pa.float64()).to_numpy()
        floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
        bits = floats.view(np.int64)
        ordered: Ordered = np.where(bits < 0, bits ^ _SIGN, bits)
        return ordered
    if types.is_decimal(kind):
        return _unscaled_decimals(column, kind)
    values: Ordered = column.to_numpy()
    if values.dtype == object:
        return values
    return (values.view(np.int64) if values.dtype.kind == "M" else values).astype(np.int64, copy=False)


def _unscaled_decimals(column: pa.ChunkedArray, kind: pa.Decimal128Type) -> Ordered:
    """Decimals without their point."""
    parts = [np.zeros((0, 2), np.int64)]
    for chunk in column.cast(pa.decimal128(kind.precision, kind.scale)).chunks:
        halves = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
        parts.append(halves[chunk.offset : chunk.offset + len(chunk)])
    low, high = np.concatenate(parts).T
    if kind.precision <= _INT64_DIGITS:
        return np.ascontiguousarray(low)
    whole: Ordered = high.astype(object) * 2**64 + low.view(np.uint64).astype(object)
    return whole
