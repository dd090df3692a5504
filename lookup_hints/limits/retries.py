"""How many failures may be asked again, so that retries do not bring down who struggles. Pure.

A bucket as Finagle's ``RetryBudget``: a fifth of the first tries of the last ten seconds, and ten a second.
Where Finagle gives up, a retry waits here: a batch job would rather be late than fail.
"""

from __future__ import annotations

import math

from lookup_hints.limits.shared_numbers import Cell, Record

PART_OF_FIRST_TRIES = 0.2
PER_SECOND = 10.0
_REMEMBERED_SECONDS = 10.0


class Retries(Record):
    """The retries of failures that one executor has left; misses are not counted."""

    _left = Cell()
    _counted_at = Cell()

    def tried(self, requests: int, now: float) -> None:
        """This many requests were sent for the first time."""
        self._count(now)
        self._left += PART_OF_FIRST_TRIES * requests

    def reserve(self, requests: int, now: float) -> float:
        """Take this many retries: the seconds after which they may be sent."""
        self._count(now)
        self._left -= requests
        return max(0.0, -self._left / PER_SECOND)

    def estimate(self, requests: int, now: float) -> float:
        """The seconds that ``reserve`` would give now, about; nothing is written."""
        if not self._counted_at:
            return 0.0
        left = self._left + PER_SECOND * max(0.0, now - self._counted_at)
        return max(0.0, (requests - left) / PER_SECOND)

    def _count(self, now: float) -> None:
        most = PER_SECOND * _REMEMBERED_SECONDS
        if not self._counted_at:
            self._left, self._counted_at = most, now
        seconds = max(0.0, now - self._counted_at)
        spare = max(0.0, self._left - most) * math.exp(-seconds / _REMEMBERED_SECONDS)
        self._left = min(most, self._left + PER_SECOND * seconds) + spare
        self._counted_at += seconds
