"""The windows of input that are not handed out, and the memory that they and their rows take."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from lookup_hints.engine.arrow import Keys, Placed
from lookup_hints.engine.window import Settled, Window
from lookup_hints.metrics.tally import Tally

BUFFER_BYTES = 64 * 1024 * 1024
"""Reading of input stops while windows that are not handed out hold this much."""

ROWS_BYTES = 128 * 1024 * 1024
"""Rows that are held, and those that are expected for keys in flight, take about this together at most."""


class HeldWindows:
    """Windows in the order of the input."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._windows: deque[Window] = deque()
        self._bytes = 0
        self.found_bytes = 0
        """What the rows take that were found."""

    def __bool__(self) -> bool:
        return bool(self._windows)

    def __iter__(self) -> Iterator[Window]:
        return iter(self._windows)

    @property
    def first(self) -> Window:
        return self._windows[0]

    @property
    def is_full(self) -> bool:
        """Whether no more input should be read."""
        return self._bytes >= BUFFER_BYTES

    def bytes_left(self, expected: float) -> float:
        """What more rows may take, beside those that are held and those that are ``expected``."""
        return ROWS_BYTES - (self.found_bytes + expected)

    def add(self, keys: Keys) -> Window:
        """Take the keys of a new window."""
        window = Window(keys)
        self._windows.append(window)
        self._hold(window.nbytes)
        return window

    def keep(self, window: Window, found: Placed) -> None:
        """Keep rows that were found for keys of ``window``."""
        window.add(found)
        self.found_bytes += found.rows.nbytes
        self._hold(found.rows.nbytes)

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

    def _hold(self, nbytes: int) -> None:
        if self._bytes < BUFFER_BYTES <= self._bytes + nbytes:
            self._tally.count(buffer_full=1)
        self._bytes += nbytes
