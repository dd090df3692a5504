"""Whether an origin can be reached at all: a circuit breaker. Pure: times are given.

It opens when half of the last hundred requests had no answer, for reasons of transport, and at least twenty
of them were sent within seconds. Misses and refusals are answers.
"""

from __future__ import annotations

from lookup_hints.limits.shared_numbers import Cell, Latest, Record, SharedNumbers

REMEMBERED = 100
_FEWEST, _WITHIN_SECONDS = 20, 10.0
_OPEN_SECONDS, _LONGEST_OPEN_SECONDS = 5.0, 60.0

PROBES = 3
"""Requests that go out when it has been open for long enough; the first answer closes it."""

_PROBE_SECONDS = 5.0
"""After so long without news of its probes others are sent: their worker may have died."""


class Breaker(Record):
    """Closed while the origin answers; open while it does not, for longer each time."""

    opened_at = Cell()
    """When it opened, and has not been closed since; 0 while it is closed."""
    until = Cell()
    """When it may be probed."""
    _seconds = Cell()
    _probes = Cell()
    _probed_at = Cell()

    def __init__(self, cells: SharedNumbers, start: int = 0) -> None:
        super().__init__(cells, start)
        self._ends = Latest(cells, start + self.SIZE, REMEMBERED)

    @classmethod
    def cells_for(cls) -> int:
        """How many cells it takes."""
        return cls.SIZE + Latest.cells_for(REMEMBERED)

    def waits(self, now: float) -> float:
        """Seconds until a request may go out, or it is worth asking again; 0 where one may now.

        Where it is open, a request that goes out is a probe: tell so by ``probes``.
        """
        if not self.opened_at:
            return 0.0
        if now < self.until:
            return self.until - now
        if self._probes >= PROBES and now < self._probed_at + _PROBE_SECONDS:
            return self._probed_at + _PROBE_SECONDS - now
        return 0.0

    def probes(self, now: float) -> None:
        """A request goes out although it is open."""
        if now >= self._probed_at + _PROBE_SECONDS:
            self._probes = 0.0
        self._probes += 1
        self._probed_at = now

    def answered(self, requests: int, started: float, now: float) -> None:
        """This many requests had an answer, the last of which was sent at ``started``."""
        if not self.opened_at:
            self._ends.add(now, min(requests, REMEMBERED))
        elif started >= self.until:
            self._ends.clear()
            self.opened_at = self._seconds = self._probes = self._probed_at = 0.0

    def lost(self, started: float, now: float) -> bool:
        """A request that was sent at ``started`` had no answer; whether the breaker opened by that."""
        if self.opened_at:
            if started >= self.until:
                self._open(now, min(2 * self._seconds, _LONGEST_OPEN_SECONDS))
            return False
        self._ends.add(-now)
        recent = [end for end in self._ends if abs(end) > now - _WITHIN_SECONDS]
        ends = list(self._ends)
        if len(recent) < _FEWEST or 2 * sum(end < 0 for end in ends) < len(ends):
            return False
        self.opened_at = now
        self._open(now, _OPEN_SECONDS)
        return True

    def _open(self, now: float, seconds: float) -> None:
        self.until, self._seconds = now + seconds, seconds
        self._probes = self._probed_at = 0.0
