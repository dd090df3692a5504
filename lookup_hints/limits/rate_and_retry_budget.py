"""How many requests may still go out: per second, as retries, per statement. Pure: times are given."""

from __future__ import annotations

import math
from typing import ClassVar

from lookup_hints.limits.shared_memory_record import Cell, Record

BUNCH_SECONDS = 0.09
"""Requests of this many seconds may go out together, to make up for timers that are late."""


class Rate(Record):
    """Gives each request its time, ``1 / rate`` seconds after the one before.

    In any T seconds at most ``rate * (T + BUNCH_SECONDS) + 1`` requests are due. It begins with none to
    spare: else a row of short tasks would run away.
    """

    _next = Cell()

    def reserve(self, rate: float, now: float) -> float:
        """Reserve the next slot of the rate; returns when it is due, in the past if slots were unused."""
        due = max(self._next, now - BUNCH_SECONDS) if self._next else now
        self._next = due + 1.0 / rate
        return due


PART_OF_FIRST_TRIES = 0.2
PER_SECOND = 10.0
_SAVED_SECONDS = 10.0


# Retries of all tasks together are bounded by a part of first attempts, so that an outage does not multiply
# the load. (docs/decisions/0141)
class Retries(Record):
    """The number of retries that one executor may send, so that retries do not overload a struggling source.

    A bucket as Finagle's ``RetryBudget``: a fifth of the first tries of the last ten seconds, and ten a
    second. Misses are not counted. Where Finagle gives up, a retry waits here: a batch job would rather be
    late than fail.
    """

    _left = Cell()
    _counted_at = Cell()

    def tried(self, requests: int, now: float) -> None:
        self._refill_to(now)
        self._left += PART_OF_FIRST_TRIES * requests

    def reserve(self, requests: int, now: float) -> float:
        """Take this many retries: the seconds after which they may be sent."""
        self._refill_to(now)
        self._left -= requests
        return max(0.0, -self._left / PER_SECOND)

    def estimate(self, requests: int, now: float) -> float:
        """The seconds that ``reserve`` would give now, about; nothing is written."""
        if not self._counted_at:
            return 0.0
        left = self._left + PER_SECOND * max(0.0, now - self._counted_at)
        return max(0.0, (requests - left) / PER_SECOND)

    def _refill_to(self, now: float) -> None:
        most = PER_SECOND * _SAVED_SECONDS
        if not self._counted_at:
            self._left, self._counted_at = most, now
        seconds = max(0.0, now - self._counted_at)
        spare = max(0.0, self._left - most) * math.exp(-seconds / _SAVED_SECONDS)
        self._left = min(most, self._left + PER_SECOND * seconds) + spare
        self._counted_at += seconds


_STATEMENTS = 64


class Spent(Record):
    """Requests by statement, where that is bounded; of the lowest numbers, the oldest, none are kept."""

    SIZE: ClassVar[int] = 2 * _STATEMENTS

    def send(self, statement: int, most: int) -> bool:
        """Count one more request of ``statement``; False, and no count, where that is over ``most``."""
        # From 1, as an empty place holds 0.
        number = statement + 1.0
        places = range(self.start, self.start + self.SIZE, 2)
        place = next((place for place in places if self.cells[place] == number), None)
        if place is None:
            place = min(places, key=self.cells.__getitem__)
            self.cells[place], self.cells[place + 1] = number, 0.0
        if self.cells[place + 1] >= most:
            return False
        self.cells[place + 1] += 1
        return True
