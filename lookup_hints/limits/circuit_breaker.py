"""When an origin is asked nothing: a circuit breaker for one that is down, pauses for one that refuses. Pure.

The breaker opens when half of the last hundred requests had no answer, for reasons of transport, and at least
twenty of them were sent within seconds. Misses and refusals are answers.
"""

from __future__ import annotations

from lookup_hints.limits.shared_memory_record import Cell, Latest, Record, SharedNumbers

REMEMBERED = 100
_FEWEST, _WITHIN_SECONDS = 20, 10.0
_OPEN_SECONDS, _LONGEST_OPEN_SECONDS = 5.0, 60.0

PROBES = 3
"""Requests that go out when it has been open for long enough; the first answer closes it."""

# After so long without news of its probes others are sent: their worker may have died.
_PROBE_SECONDS = 5.0


# Requests to a source that is down cost their whole timeout each; a few probes find out whether it is back.
# (docs/decisions/0141)
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
        return cls.SIZE + Latest.cells_for(REMEMBERED)

    @property
    def is_sound(self) -> bool:
        return self._ends.is_sound

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

    # A lost probe is no attempt of its key: an outage would use up `max-attempts`. (docs/decisions/0141)
    def probes(self, now: float) -> None:
        """A request goes out although it is open."""
        if now >= self._probed_at + _PROBE_SECONDS:
            self._probes = 0.0
        self._probes += 1
        self._probed_at = now

    def answered(self, requests: int, started: float, now: float) -> None:
        """Record ``requests`` answered requests, the last of which was sent at ``started``."""
        if not self.opened_at:
            self._ends.add(now, min(requests, REMEMBERED))
        elif started >= self.until:
            self._ends.clear()
            self.opened_at = self._seconds = self._probes = self._probed_at = 0.0

    def lost(self, started: float, now: float) -> bool:
        """A request that was sent at ``started`` had no answer; whether the breaker opened by that."""
        if self.opened_at:
            if started >= self.until:
                self._open_for(now, min(2 * self._seconds, _LONGEST_OPEN_SECONDS))
            return False
        self._ends.add(-now)
        recent = [end for end in self._ends if abs(end) > now - _WITHIN_SECONDS]
        ends = list(self._ends)
        if len(recent) < _FEWEST or 2 * sum(end < 0 for end in ends) < len(ends):
            return False
        self.opened_at = now
        self._open_for(now, _OPEN_SECONDS)
        return True

    def _open_for(self, now: float, seconds: float) -> None:
        self.until, self._seconds = now + seconds, seconds
        self._probes = self._probed_at = 0.0


LONGEST_GUESS = 60.0
LONGEST_WHILE_SERVED = 2.0
# An origin that served a request within this many seconds is paused for LONGEST_WHILE_SERVED at most.
_IS_SERVED_SECONDS = 60.0

LONGEST_TOLD = 7 * 86400.0
"""A longer pause is a mistake of the server, which should not close an origin for good."""

# A pause of fewer rounds is waited for: to try whether others are served would not gain much.
_SHORTEST_TRIED = 4.0

# An origin that refused a try as well refuses all: for so long its pauses are not tried.
_NOT_TRIED_SECONDS = 60.0


# After a pause all waiting requests would go out at once and be refused at once. They keep the pace from
# before it. (docs/decisions/0082)
class Pause(Record):
    opens = Cell()
    told_at = Cell()
    """When all could know of it: a request that has its permit since before then must not leave."""
    _refusals = Cell()
    _served_at = Cell()
    # When one request may try whether others than the refused ones are served; 0 for never.
    _tries_at = Cell()
    # When it was sent; 0 where none was.
    _tried_at = Cell()
    # Before, no pause is tried.
    _tries_again_at = Cell()

    def served(self, started: float, now: float) -> bool:
        """A request that was sent at ``started`` was served; whether that ends a pause.

        Those that were refused wait for as long as they were told, all the same.
        """
        self._served_at = now
        self._refusals = 0.0
        if not 0 < self._tried_at <= started or now >= self.opens:
            return False
        self.opens = now
        return True

    def asked(self, seconds: float, started: float, now: float, try_after: float | None = None) -> None:
        """The origin asks for a pause of this many seconds, in its answer to a request sent at ``started``.

        Where that was refused, one may try ``try_after`` seconds later whether the origin serves others, as
        what was under way has ended then. One that bounds what it does at once will, one that bounds a rate
        will not. An origin that served the request has said that no other is served.
        """
        if now >= self.opens:
            is_tried = try_after is not None and seconds >= _SHORTEST_TRIED * try_after
            is_tried = is_tried and now >= self._tries_again_at
            self._tries_at, self._tried_at = now + (try_after or 0.0) if is_tried else 0.0, 0.0
        elif 0 < self._tried_at <= started:
            self._tries_again_at = now + _NOT_TRIED_SECONDS
        if try_after is None:
            self._tries_at = 0.0
        self.opens = max(self.opens, now + min(seconds, LONGEST_TOLD))

    # Whether a pause holds for all requests depends on what the origin bounds: one that bounds requests at
    # once serves others meanwhile, one that bounds a rate refuses all. So it is tried once.
    # (docs/decisions/0141)
    def may_try(self, now: float) -> bool:
        return 0 < self._tries_at <= now

    def tries(self, now: float) -> None:
        self._tries_at, self._tried_at = 0.0, now

    def worth_asking(self, now: float, poll: float) -> float:
        """Seconds after which it may have ended, or one may try; ``poll`` at least.

        While one tries, others look again after a tenth of the time that this has taken so far, as its answer
        may never come.
        """
        left = self.opens - now
        if self._tries_at:
            left = min(left, self._tries_at - now)
        elif self._tried_at and now >= self._tries_again_at:
            left = min(left, (now - self._tried_at) / 10)
        return max(poll, left)

    # A pause of our own is the last resort, used only where one request at a time is refused.
    # (docs/decisions/0141)
    def refused(self, started: float, guess: float, now: float) -> None:
        """A request was refused without a word on how long to wait, and no less can be asked at once.

        The first pause lasts for ``guess``, and each one for twice the one before until a request is served.
        Requests that were sent before a pause say nothing new.
        """
        if self._refusals and started < self.opens:
            return
        longest = LONGEST_WHILE_SERVED if now - self._served_at < _IS_SERVED_SECONDS else LONGEST_GUESS
        self.opens = now + min(guess * 2.0 ** min(self._refusals, 20.0), longest)
        self._refusals += 1
