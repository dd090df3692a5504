"""When the next request to an origin may go out, where a rate is set. Pure: times are given."""

from __future__ import annotations

from lookup_hints.limits.shared_numbers import Cell, Record

BUNCH_SECONDS = 0.09
"""Requests of this many seconds may go out together, to make up for timers that are late."""


class Rate(Record):
    """Gives each request its time, ``1 / rate`` seconds after the one before.

    In any T seconds at most ``rate * (T + BUNCH_SECONDS) + 1`` requests are due. It begins with none to
    spare: else a row of short tasks would run away.
    """

    _next = Cell()

    def reserve(self, rate: float, now: float) -> float:
        """Take the next place in the row: when it is due; in the past where nobody used the time."""
        due = max(self._next, now - BUNCH_SECONDS) if self._next else now
        self._next = due + 1.0 / rate
        return due
