"""One window of input: its keys, and what became of them so far."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.runtime.arrow import (
    Keys,
    Placed,
    count_up_to,
    handed_out,
    lists_per_key,
    with_empty_last,
    with_nulls,
)


class Window:
    """The rows read at one time, whose keys are asked; settled when each key has its final outcome.

    A key that is settled without rows is a miss.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys.table
        self.everything = count_up_to(keys.table.num_rows)
        self.nbytes: int = keys.table.nbytes + keys.codes.nbytes
        self._codes = keys.codes
        self._unsettled: int = keys.table.num_rows
        self._found: list[Placed] = []
        self._skipped: list[pa.Array] = []

    @property
    def rows(self) -> int:
        """How many rows of input it has."""
        return len(self._codes)

    def cut(self, rows: int) -> Iterator[Keys]:
        """Its rows as smaller windows, of so many ``rows``; to take its place before anything was found."""
        for start in range(0, self.rows, rows):
            codes = self._codes.slice(start, rows)
            distinct = pc.unique(codes.drop_null()).sort()
            yield Keys(self.keys.take(distinct), pc.index_in(codes, value_set=distinct))

    @property
    def is_settled(self) -> bool:
        """Whether no key's outcome is open."""
        return self._unsettled == 0

    def settle(self, count: int) -> None:
        """``count`` more keys have their final outcome."""
        self._unsettled -= count

    def add(self, found: Placed) -> None:
        """Keep rows of keys of this window; their positions are those of ``keys``."""
        self._found.append(found)
        self.nbytes += found.rows.nbytes

    def skip(self, positions: pa.Array) -> None:
        """Mark the keys at ``positions`` as skipped; no rows are kept for them."""
        self._skipped.append(positions)

    def results(self, row_type: pa.StructType) -> Iterator[pa.ListArray]:
        """For each input row, in order, the list of its rows; cut as memory wants.

        A miss and a key with a NULL give an empty list; a skipped key gives NULL.
        """
        lists = with_empty_last(self._lists(row_type))
        nowhere = pa.scalar(len(lists) - 1, pa.int32())
        yield from handed_out(lists, pc.fill_null(self._codes.cast(pa.int32()), nowhere))

    def _lists(self, row_type: pa.StructType) -> pa.ListArray:
        count = self.keys.num_rows
        lists = lists_per_key(self._all_found(row_type), count, row_type)
        return with_nulls(lists, pa.concat_arrays(self._skipped)) if self._skipped else lists

    def _all_found(self, row_type: pa.StructType) -> Placed:
        if not self._found:
            return Placed(pa.schema(list(row_type)).empty_table(), pa.array([], pa.int32()))
        # Answers come in any order; by their first position they are mostly in the order of the keys.
        found = sorted(self._found, key=lambda each: each.positions[0].as_py())
        rows = pa.concat_tables([each.rows for each in found])
        return Placed(rows, pa.concat_arrays([each.positions for each in found]))
