"""How many requests may be in flight at an origin, found by trying. Pure: times are given.

Additive increase, multiplicative decrease, as Netflix's ``AIMDLimit``. Like TCP it doubles until the origin
refuses for the first time. It remembers at how many that was, stays one below, and seldom tries for more.
"""

from __future__ import annotations

from lookup_hints.limits.shared_memory_record import Cell, Record

START = 10
"""Requests in flight before anything is known."""

# The first refusal comes after doubling: the origin bears more than half.
_FIRST_CUT = 0.5
_CUT = 0.9
# An executor stays below what was refused. Others find the room it leaves, so their shares converge.
_REST = 0.95
# Where it is far below what the origin bore, it comes so much nearer in each round.
_APPROACH = 0.25
_SMOOTHING = 0.2
_FIRST_ROUND_SECONDS, _LONGEST_ROUND_SECONDS = 0.1, 1.0

_TRIES_AFTER_SECONDS = 1.0
# The same where a refusal stops all requests, be it for a moment: they take rounds to be as many again.
_TRIES_AFTER_STOP_SECONDS = 3.0
_TRIES_AFTER_REQUESTS = 100
# To try for more costs a refusal, and the pause that comes with it: a twentieth of the time at most.
_TRIES_AFTER_PAUSES = 20


# A source tells how much it bears only by refusing or by silence. One limit per origin and executor: when
# each task searched alone, four tasks needed three minutes for 24,000 keys. (docs/decisions/0141)
class AdaptiveLimit(Record):
    """The limit of one executor; it grows with requests that are served, and shrinks with refused ones."""

    value = Cell()
    refused_at = Cell()
    """The smallest number of requests in flight at which one was refused, by the last cut; 0 before any."""
    # Requests in flight at the last cut.
    _reached = Cell()
    # What the last cut left: no fewer are taken for too many.
    _borne = Cell()
    cut_at = Cell()
    tries_at = Cell()
    # Seconds for which the last refusal stopped all requests.
    _pause = Cell()
    tries_after = Cell()
    """Requests that must be served before it tries for more."""
    # How many of the requests that were under way at the last cut were refused.
    _refusals = Cell()
    round = Cell()
    """Seconds that a request takes which is served, smoothed."""

    def allowed(self, most: float) -> int:
        """Requests that may be in flight, ``most`` at most, and never less than one."""
        return int(max(1, min(self.value or START, most)))

    @property
    def settling(self) -> float:
        """Seconds until a lower limit shows: what is under way has to end first."""
        return min(self.round or _FIRST_ROUND_SECONDS, _LONGEST_ROUND_SECONDS)

    # Doubles until the first refusal; what was refused is remembered, and the limit rests 5 % below it.
    # (docs/decisions/0141)
    def served(self, requests: int, in_flight: float, seconds: float, now: float) -> None:
        """This many requests were served, the last one in ``seconds``; it grows where half of it is used."""
        value = self.value or START
        self.round += (seconds - self.round) * (_SMOOTHING if self.round else 1.0)
        self.tries_after = max(0.0, self.tries_after - requests)
        if 2 * in_flight < value:
            return
        if not self.refused_at:
            self.value = min(value + requests, 2 * value)
            return
        rounds = requests / value
        bearable = max(1.0, min(self.refused_at - 1, _REST * self.refused_at))
        if now >= self.tries_at and not self.tries_after:
            # One more in the time that a refusal costs: meanwhile another executor may be silent.
            self.value = value + rounds * min(1.0, self.round / self._pause if self._pause else 1.0)
        elif value < bearable:
            step = max(1.0, _APPROACH * (bearable - value))
            self.value = min(bearable, value + rounds * step)

    def refused(self, started: float, in_flight: float, pause: float, now: float) -> bool:
        """A request that was sent at ``started`` was refused; whether the limit was cut.

        A round cuts once: a request that was sent before the last cut tells that there was one too many, and
        one that was sent while those were under way tells nothing. ``pause`` is what the origin asks for.
        """
        self.tries_at = max(self.tries_at, now + _seconds_before_probe(pause))
        self.tries_after = _TRIES_AFTER_REQUESTS
        self._pause = pause
        if started <= self.cut_at + self.settling:
            # By one for each refused request that was in flight at the last cut: an origin that bounds a rate
            # refuses all of them, which says nothing of how many it bears at once.
            if started <= self.cut_at:
                self._refusals += 1
                self.value = max(1.0, min(self.value, self._reached - self._refusals))
                self.refused_at = max(self._reached - self._refusals + 1, self._borne + 1)
            return False
        self._reached = max(2.0, min(self.value or START, max(1.0, in_flight)))
        self._borne = self._reached * (_CUT if self.refused_at else _FIRST_CUT)
        self.value = max(1.0, self._borne)
        self.refused_at, self.cut_at = self._reached, now
        self._refusals = 1.0
        return True

    def unpaused(self, now: float) -> None:
        """The origin serves others than those it refused: all were stopped only until that was seen."""
        self._pause = now - self.cut_at
        self.tries_at = min(
            self.tries_at, now + max(_TRIES_AFTER_STOP_SECONDS, _seconds_before_probe(self._pause))
        )

    def lost(self, started: float, now: float) -> None:
        """A request that was sent at ``started`` had no answer: less is asked, and nothing was learned."""
        if started > self.cut_at + self.settling:
            self.value = max(1.0, (self.value or START) * _CUT)
            self.cut_at = now


def _seconds_before_probe(pause: float) -> float:
    """Seconds after a refusal and its pause until a higher limit is tried again."""
    return max(_TRIES_AFTER_SECONDS, _TRIES_AFTER_PAUSES * pause)
