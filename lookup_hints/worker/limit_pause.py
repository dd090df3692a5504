"""A pause that lets Spark see the first rows, where a LIMIT may be content with them. Times are given.

Spark takes rows when a batch of its own is full, and PySpark sends them when its buffer is. A worker as fast
as its source would ask for the whole input meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

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


class LimitPause:
    """When Spark should be given time to look at rows: once, when the first ``rows`` were handed out.

    ``seconds`` is asked then for how long.
    """

    def __init__(self, rows: int, seconds: Callable[[], float]) -> None:
        self._missing = rows
        self._seconds = seconds
        self._until = 0.0

    def is_due_after(self, rows: int, now: float) -> bool:
        """Whether with ``rows`` more, handed out at ``now``, the time has come; tells it once."""
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
    """``windows``, each read when ``look`` allows it."""
    while True:
        seconds = look.wait(clock())
        if seconds > 0:
            sleep(seconds)
        try:
            window = next(windows)
        except StopIteration:
            return
        yield window
