"""When the next request of a join may go out, where a rate is set for it. Pure: times are given."""

from __future__ import annotations

BUNCH_SECONDS = 0.05
"""Requests of so many seconds may go out together: a timer for each would cost more than the request."""


class Pace:
    """Lets requests pass at ``rate`` per second; in any T seconds at most ``rate * (T + BUNCH_SECONDS) + 1``.

    It begins with none, so T seconds after its first question at most ``rate * T`` have passed: a task that
    began with one would let a row of short tasks run away.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * BUNCH_SECONDS)
        self._left = 0.0
        self._counted_at: float | None = None

    def allowed(self, now: float) -> int:
        """How many requests may go out at ``now``."""
        if self._counted_at is not None and now > self._counted_at:
            self._left = min(self._most, self._left + (now - self._counted_at) * self._rate)
        self._counted_at = now if self._counted_at is None else max(now, self._counted_at)
        return int(self._left + 1e-9)

    def opens(self, now: float) -> float:
        """When the next request may go out: ``now``, or later."""
        return now if self.allowed(now) else now + (1.0 - self._left) / self._rate

    def take(self, requests: int) -> None:
        """So many requests go out."""
        self._left -= requests
