"""One window of input: its keys, what became of them so far, and the rows that can be handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lookup_hints.engine.adaptive_batch_size import WINDOW_BYTES
from lookup_hints.engine.arrow import (
    Keys,
    Placed,
    bytes_by_position,
    count_up_to,
    handed_out,
    holds,
    lists_per_key,
    rows_in_lists,
    with_empty_last,
    with_nulls,
)
from lookup_hints.engine.asof_and_ranges import answering
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.task_recorder import TaskRecorder
from lookup_hints.spi.request_and_answer import NearestCondition, OrderCondition

HAND_OUT_BYTES = 32 * 1024 * 1024
"""Where much was found for a window, its rows are handed out in portions of about this."""


class Settled:
    """Rows of input, one after the other, whose outcome is final.

    Args:
        codes: for each row the position of its key, NULL where a key column is NULL.
        keys: positions are below this.
        found: the rows of these keys.
        skipped: positions of keys whose rows are dropped.
        values: for each row what it compares with the ordered column, where there is one.
    """

    def __init__(
        self,
        codes: pa.Array,
        keys: int,
        found: list[Placed],
        skipped: list[pa.Array],
        values: pa.Array | None = None,
    ) -> None:
        self._codes, self._keys, self._found, self._skipped = codes, keys, found, skipped
        self._values = values

    @property
    def nbytes(self) -> int:
        return sum(each.rows.nbytes for each in self._found)

    def results(self, spec: LookupSpec) -> Iterator[pa.ListArray]:
        """For each input row, in order, the list of its rows; cut as memory wants.

        A miss and a key with a NULL give an empty list; a skipped key gives NULL.
        """
        if spec.chosen_order is not None:
            yield from self._lists_by_order(spec, spec.chosen_order)
            return
        per_key = lists_per_key(self._merge_found(spec), self._keys, spec.row_type)
        if self._skipped:
            per_key = with_nulls(per_key, pa.concat_arrays(self._skipped))
        lists = with_empty_last(per_key)
        nowhere = pa.scalar(len(lists) - 1, pa.int32())
        yield from handed_out(lists, pc.fill_null(self._codes, nowhere))

    def _lists_by_order(
        self, spec: LookupSpec, order: OrderCondition | NearestCondition
    ) -> Iterator[pa.ListArray]:
        """The same, of the rows of its key those that answer the value of the input row."""
        assert self._values is not None, "the value comes with the keys"
        found = self._merge_found(spec)
        skipped = pa.concat_arrays([self._codes[:0], *self._skipped])
        is_skipped = pc.is_in(self._codes, value_set=skipped)
        if isinstance(order, OrderCondition):
            answers = answering(found, self._codes, self._values, order)
        else:
            # Few lookups need it, and each worker process would load it.
            from lookup_hints.engine.nearest_rows import NearestRows

            rows = NearestRows(found.rows, found.positions.to_numpy(), order, spec.table.name)
            answers = rows.answering(pc.fill_null(self._codes, -1).to_numpy(), self._values)
        yield from rows_in_lists(found.rows, answers.rows, answers.ends, is_skipped, spec.row_type)

    def _merge_found(self, spec: LookupSpec) -> Placed:
        if not self._found:
            schema = pa.schema([spec.table.schema.field(name) for name in spec.held_columns])
            return Placed(schema.empty_table(), count_up_to(0))
        # Answers come in any order; by their first position they are mostly in the order of the keys.
        found = sorted(self._found, key=lambda each: each.positions[0].as_py())
        rows = pa.concat_tables([each.rows for each in found])
        return Placed(rows, pa.concat_arrays([each.positions for each in found]))


class Window:
    """The rows read at one time, whose keys are asked.

    A key is settled when it has its final outcome; one that is settled without rows is a miss. A row is
    settled with its key. Where little is found, all rows are handed out at the end; where much is found,
    those before the first unsettled one are handed out before.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys.table
        self.everything = count_up_to(keys.table.num_rows)
        self.found_bytes = 0
        """Bytes held for rows that are not handed out yet."""
        self.is_asked_by_row = False
        """Whether its keys are asked in the order of the rows that need them."""
        values_bytes = 0 if keys.values is None else keys.values.nbytes
        self._key_bytes: int = keys.table.nbytes + keys.codes.nbytes + values_bytes
        self._codes = keys.codes.cast(pa.int32())
        self._values = keys.values
        self._is_compared = keys.values is not None  # few of the rows found are then handed out
        self._unsettled: int = keys.table.num_rows
        self._settled: list[pa.Array] = []
        self._found: list[Placed] = []
        self._skipped: list[pa.Array] = []
        self.fallback: tuple[Placed, ...] = () if keys.known is None else keys.known.fallback
        """Rows that are too old, of keys that are asked."""
        self._ready = 0  # rows before the first one that is known to be unsettled
        self._head: int | None = None  # the key of that one, as far as was looked

    @property
    def nbytes(self) -> int:
        return self._key_bytes + self.found_bytes

    @property
    def rows(self) -> int:
        return len(self._codes)

    @property
    def is_over(self) -> bool:
        return not self._unsettled and not len(self._codes)

    @property
    def head(self) -> int | None:
        """The key that the first unsettled row waits for; None where all are settled."""
        if self._head is None and self._unsettled:
            self._find_head()
        return self._head

    @property
    def has_settled_rows(self) -> bool:
        return self._ready > 0 or not self._unsettled

    def in_order_of_rows(self, positions: pa.Array) -> pa.Array:
        """The keys at ``positions``, those first that the first rows need."""
        needed = pc.unique(self._codes.drop_null())
        return needed.filter(pc.is_in(needed, value_set=positions))

    def settle(self, positions: pa.Array) -> None:
        self._unsettled -= len(positions)
        self._settled.append(positions)
        if self._head is not None and holds(positions, self._head):
            self._head = None

    def add(self, found: Placed) -> None:
        self._found += [found] if self._is_compared else _in_portions(found)
        self.found_bytes += found.rows.nbytes

    def skip(self, positions: pa.Array) -> None:
        self._skipped.append(positions)

    def take_settled(self) -> Settled | None:
        """The next rows to hand out; None where it is not worth it yet.

        What was found for them is let go, but for keys that later rows need, too.
        """
        rows = self._count_settled_rows()
        if not rows:
            return None
        if self.found_bytes > WINDOW_BYTES and not self._is_compared:
            rows = self._rows_that_fit(rows)
        if rows == self.rows:
            settled = Settled(self._codes, self.keys.num_rows, self._found, self._skipped, self._values)
            self._codes, self._found, self.found_bytes, self._ready = self._codes[:0], [], 0, 0
            return settled
        return self._take_first(rows)

    def _count_settled_rows(self) -> int:
        if not self._unsettled:
            return self.rows
        if self.found_bytes >= WINDOW_BYTES and self._head is None:
            self._find_head()
        return self._ready

    def _find_head(self) -> None:
        self._settled = [pa.concat_arrays([count_up_to(0), *self._settled])]
        codes = self._codes[self._ready :]
        is_settled = pc.or_(codes.is_null(), pc.is_in(codes, value_set=self._settled[0]))
        self._ready += pc.index(is_settled, pa.scalar(False)).as_py()
        self._head = self._codes[self._ready].as_py()

    def _rows_that_fit(self, rows: int) -> int:
        """How many of the first ``rows`` hold not much more than ``HAND_OUT_BYTES``; one at least."""
        keys = pc.unique(self._codes[:rows].drop_null())
        before = pc.cumulative_sum(bytes_by_position(self._found, self.keys.num_rows).take(keys))
        fitting = max(1, pc.sum(pc.less_equal(before, HAND_OUT_BYTES)).as_py() or 0)
        return rows if fitting >= len(keys) else pc.index(self._codes, keys[fitting]).as_py()

    # What later rows need stays behind: equal keys are still asked once. (docs/decisions/0115)
    def _take_first(self, rows: int) -> Settled:
        codes, self._codes = self._codes[:rows], self._codes[rows:]
        values = self._values
        if values is not None:
            values, self._values = values[:rows], values[rows:]
        self._ready = max(0, self._ready - rows)
        settled = Settled(
            codes, self.keys.num_rows, _only_found_for(self._found, codes), self._skipped, values
        )
        self._found = _only_found_for(self._found, self._codes)
        self.found_bytes = sum(each.rows.nbytes for each in self._found)
        return settled


def _in_portions(found: Placed) -> list[Placed]:
    """``found``, cut between keys where it holds much: one portion is then let go without copying others."""
    portions = int(found.rows.nbytes / HAND_OUT_BYTES) + 1
    if portions == 1:
        return [found]
    positions = found.positions
    if not pc.all(pc.greater_equal(positions[1:], positions[:-1])).as_py():
        order = pc.sort_indices(positions)
        found = Placed(found.rows.take(order), positions := positions.take(order))
    begins = [at * len(positions) // portions for at in range(portions)]
    begins = sorted({pc.index(positions, positions[begin]).as_py() for begin in begins})
    ends = [*begins[1:], len(positions)]
    return [
        Placed(found.rows[begin:end], positions[begin:end]) for begin, end in zip(begins, ends, strict=True)
    ]


def _only_found_for(found: list[Placed], codes: pa.Array) -> list[Placed]:
    """The rows found for the keys at ``codes``; tables without other rows are not copied."""
    among = [pc.is_in(each.positions, value_set=codes) for each in found]
    return [
        each if pc.all(mask).as_py() else each.filter(mask)
        for each, mask in zip(found, among, strict=True)
        if pc.any(mask).as_py()
    ]


BUFFER_BYTES = 64 * 1024 * 1024
"""Reading of input stops while windows that are not handed out hold this much."""

ROWS_BYTES = 128 * 1024 * 1024
"""Rows that are held, and those that are expected for keys in flight, take about this together at most."""


# Rows are handed out before their window ends once it holds much: a hundred answers of 15 MB held until the
# last key took a worker 5.1 GB. (docs/decisions/0115)
class HeldWindows:
    """Windows in the order of the input."""

    def __init__(self, recorder: TaskRecorder) -> None:
        self._recorder = recorder
        self._windows: deque[Window] = deque()
        self._bytes = 0
        self.found_bytes = 0
        """Bytes of the rows found."""

    def __bool__(self) -> bool:
        return bool(self._windows)

    def __iter__(self) -> Iterator[Window]:
        return iter(self._windows)

    @property
    def first(self) -> Window:
        return self._windows[0]

    @property
    def is_full(self) -> bool:
        return self._bytes >= BUFFER_BYTES

    def bytes_left(self, expected: float) -> float:
        """Bytes left for rows, beside those that are held and those that are ``expected``."""
        return ROWS_BYTES - (self.found_bytes + expected)

    def add(self, keys: Keys) -> Window:
        window = Window(keys)
        self._windows.append(window)
        self._hold_bytes(window.nbytes)
        return window

    def keep(self, window: Window, found: Placed) -> None:
        window.add(found)
        self.found_bytes += found.rows.nbytes
        self._hold_bytes(found.rows.nbytes)

    def finished(self) -> Iterator[Settled]:
        """Hand back settled rows before which no unsettled one is, in the order of the input."""
        while self._windows:
            window = self._windows[0]
            held, found = window.nbytes, window.found_bytes
            settled = window.take_settled()
            self.found_bytes -= found - window.found_bytes
            self._bytes -= held - window.nbytes
            if window.is_over:
                self._bytes -= self._windows.popleft().nbytes
            elif settled is None:
                return
            if settled is not None:
                yield settled

    def _hold_bytes(self, nbytes: int) -> None:
        if self._bytes < BUFFER_BYTES <= self._bytes + nbytes:
            self._recorder.count(buffer_full=1)
        self._bytes += nbytes
