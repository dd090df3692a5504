"""When an origin that refused a request may be asked again. Pure: times are given."""

from __future__ import annotations

from lookup_hints.origin.cells import Cell, Record

LONGEST_GUESS = 60.0
LONGEST_WHILE_SERVED = 2.0
_IS_SERVED_SECONDS = 60.0
"""An origin that served a request within so many seconds is not given up for longer than the former."""

LONGEST_TOLD = 7 * 86400.0
"""A longer pause is a mistake of the server, which should not close an origin for good."""


class Pause(Record):
    """A pause that holds for all requests to an origin."""

    opens = Cell()
    _refusals = Cell()
    _served_at = Cell()

    def served(self, now: float) -> None:
        """A request was served."""
        self._served_at = now
        self._refusals = 0.0

    def asked(self, seconds: float, now: float) -> None:
        """The origin asks for a pause of so many seconds."""
        self.opens = max(self.opens, now + min(seconds, LONGEST_TOLD))

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
