"""How large windows of input and requests should be, by what was seen so far, and when a LIMIT gets a pause.

Pure: times are given. Equal keys of one window are asked once, and neighbours in a source's index together,
so windows should be large; a query that is content with a few rows should ask for few keys, so they start
small. Spark's batch size is not ours to choose.

A request costs something however few keys it holds: a round trip, a plan, a wake-up on both sides. So
requests should be large; but a slow source should be asked many small things at once, and one answer
should not hold a task for long.

Spark takes rows when a batch of its own is full, and PySpark sends them when its buffer is. A worker as fast
as its source would ask for the whole input meanwhile, where a LIMIT may be content with the first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

FIRST_KEYS = 1024  # as a first window: no request of a few keys is left over
FEWEST_KEYS = 100
QUICK_SECONDS = 0.1
SLOW_SECONDS = 1.0
REQUEST_BYTES = 1024 * 1024
"""Keys of one request take no more than about this; long texts make it hold fewer."""

ANSWER_BYTES = 16 * 1024 * 1024
"""Rows of one answer should take no more than about this; wide rows make a request hold fewer keys."""

WINDOW_BYTES = 64 * 1024 * 1024
"""Rows found for one window should take no more than about this; wide rows make it hold fewer."""


class RequestSize:
    """Doubles while requests more than half full are answered quickly; halves when one is answered slowly."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._fewest = min(FEWEST_KEYS, largest)
        self._wanted = min(FIRST_KEYS, largest)
        self._fitting = largest
        self._key_bytes = 0.0  # of the rows that were found for a key, lately
        self._answerable = largest

    @property
    def keys(self) -> int:
        return min(self._wanted, self._fitting, self._answerable)

    @property
    def rows(self) -> int | None:
        """How many rows the next window may hold for what is found for them; None where that is little."""
        return max(1, int(WINDOW_BYTES / self._key_bytes)) if self._key_bytes >= 1 else None

    def bytes_of(self, keys: int) -> float:
        return keys * self._key_bytes

    def fitting(self, nbytes: float) -> int:
        """For how many keys rows of this many bytes will come; one at least."""
        return max(1, int(nbytes / max(1.0, self._key_bytes)))

    def saw(self, keys: pa.Table) -> None:
        """Such keys will be asked next: see how long they are."""
        width = max(1, keys.nbytes // max(1, keys.num_rows))
        self._fitting = max(1, min(self._largest, REQUEST_BYTES // width))

    def found(self, keys: int, nbytes: int) -> None:
        """Record an answer's size in bytes and keys. Wider rows count at once, narrower ones gradually."""
        seen = nbytes / keys
        self._key_bytes = max(seen, (self._key_bytes + seen) / 2)
        self._answerable = max(1, min(self._largest, int(ANSWER_BYTES / max(1.0, self._key_bytes))))

    def too_large(self, keys: int) -> None:
        self._answerable = max(1, min(self._answerable, keys))
        self._key_bytes = max(self._key_bytes, ANSWER_BYTES / self._answerable)

    def answered(self, keys: int, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self._wanted = max(self._fewest, self._wanted // 2)
        elif seconds < QUICK_SECONDS and 2 * keys > self.keys:
            self._wanted = min(self._largest, self._wanted * 2)


FIRST_ROWS = 1024
GROWTH = 8
CAREFUL_GROWTH = 2
"""Where few rows may do, and where each key is a request."""

LARGEST_ROWS = 128 * 1024


def key_batches(batches: Iterator[Sequence[pa.Array]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of key columns, typed as ``schema``: Spark labels timestamps with the session's zone."""
    for columns in batches:
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(typed, schema=schema)


# Small windows first: Spark ends the generator when it has enough rows (LIMIT), and keys that were asked for
# later rows would be in vain. The second window is read only when the first answer is there.
# (docs/decisions/0009)
def window_sizes(growth: int, most: Callable[[], int | None] = lambda: None) -> Iterator[int]:
    """How many rows the first, second, ... window should have: ever ``growth`` times as many, to a limit.

    ``most`` is asked before each: what is found for more rows would take too much memory.
    """
    rows = FIRST_ROWS
    while True:
        yield min(rows, most() or rows)
        rows = min(rows * growth, LARGEST_ROWS)


def ending_at(rows: int, sizes: Iterator[int]) -> Iterator[int]:
    """``sizes``, made smaller so that a window ends at this many ``rows``."""
    for size in sizes:
        fitting = min(size, rows) if rows else size
        yield fitting
        rows = max(0, rows - fitting)


def windows(batches: Iterator[pa.RecordBatch], sizes: Iterator[int]) -> Iterator[pa.Table]:
    """The rows of ``batches`` in their order, cut into tables of the wanted ``sizes``; the last may be short.

    Reads no batch before its rows are needed; a window is never empty. Takes a size when it begins a window.
    """
    held: list[pa.RecordBatch] = []
    missing = 0
    for batch in batches:
        while batch.num_rows:
            missing = missing or next(sizes)
            held.append(batch.slice(0, missing))
            missing -= held[-1].num_rows
            batch = batch.slice(held[-1].num_rows)
            if not missing:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)


PAUSE_ROWS = 10_000
"""Spark's batches have this many rows (`spark.sql.execution.arrow.maxRecordsPerBatch`)."""

PAUSE_SECONDS = 1.5
"""Twice what a busy machine takes (docs/decisions/0060); lost only where the first rows were not enough."""

SHORTER = 0.5
"""A look takes this part of the time of the statement's last one: all together take 2 * PAUSE_SECONDS."""

STATEMENTS = 16
"""How many statements a worker remembers."""

OUTPUT_BUFFER = 64 * 1024
"""PySpark sends what it was given when it fills this many bytes."""

_T = TypeVar("_T")


class LimitPauses:
    """How long a worker pauses so that Spark can stop it; halved for each further task of a statement.

    A worker that Spark stopped at its first rows has no further task.
    """

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def next_seconds(self, statement: str | None) -> float:
        """How long the next look takes; all of it where the ``statement`` is not known."""
        if statement is None:
            return PAUSE_SECONDS
        seconds = self._next.pop(statement, PAUSE_SECONDS)
        self._next[statement] = seconds * SHORTER
        if len(self._next) > STATEMENTS:
            del self._next[next(iter(self._next))]
        return seconds


# Spark notices late that a LIMIT is met: its own batches, the pipe and the JVM's prefetching lie between.
# Without the pause, LIMIT 20 over a million rows asked for 376 thousand keys. (docs/decisions/0060)
class LimitPause:
    """When Spark should be given time to look at rows: once, when the first ``rows`` were handed out.

    ``seconds`` is asked then for how long.
    """

    def __init__(self, rows: int, seconds: Callable[[], float]) -> None:
        self._missing = rows
        self._seconds = seconds
        self._until = 0.0

    def is_due_after(self, rows: int, now: float) -> bool:
        """Whether the pause is due after ``rows`` more, handed out at ``now``; True only once."""
        was_missing, self._missing = self._missing, self._missing - rows
        is_due = self._missing <= 0 < was_missing
        if is_due:
            self._until = now + self._seconds()
        return is_due

    def wait(self, now: float) -> float:
        """For how many seconds, at ``now``, nothing should be read."""
        return max(0.0, self._until - now)


def filling(kind: pa.DataType) -> Iterator[pa.Array]:
    """Arrays of ``kind`` without rows, as many as fill PySpark's buffer: what was in it is sent."""
    nothing = pa.array([], kind)
    each = pa.ipc.get_record_batch_size(pa.RecordBatch.from_arrays([nothing], ["_0"]))
    for _ in range(OUTPUT_BUFFER // each + 1):
        yield nothing


def after_pause(
    windows: Iterator[_T], look: LimitPause, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[_T]:
    while True:
        seconds = look.wait(clock())
        if seconds > 0:
            sleep(seconds)
        try:
            window = next(windows)
        except StopIteration:
            return
        yield window
