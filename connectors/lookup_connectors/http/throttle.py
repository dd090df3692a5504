"""When the next request to an origin may go out: its rate, and the pauses that the server asks for.

Pure: times are given, nobody waits here. One gate stands before the origin for all requests of a process.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from lookup_hints.spi import Wait

_LONGEST_GUESS = 60.0
_EPOCH, _EPOCH_IN_MILLISECONDS = 1e9, 1e11
"""A reset above the first is a moment, above the second one in milliseconds; below, it is a time from now."""
_LONGEST_TOLD = 7 * 86400.0
"""A longer pause is a mistake of the server, which should not close an origin for good."""

_REMEMBERED = 100
_LONGEST_STEP = 1.0
"""The pace is that of so many last requests, and no slower than one in so many seconds."""

_RESET = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")
_REMAINING = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
_ABOUT_LIMITS = frozenset({"ratelimit", *_RESET, *_REMAINING})


class Gate:
    """Lets requests pass at a rate, and stops them all while the origin wants a pause."""

    def __init__(self, rate: float | None, guess: float) -> None:
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._guess = guess
        self._next = 0.0
        self._opens = 0.0
        self._refusals = 0
        self._sent: deque[float] = deque(maxlen=_REMEMBERED)
        self._step = 0.0

    def paused(self, now: float) -> float:
        """Seconds until the origin may be asked again; 0 while there is no pause."""
        return max(0.0, self._opens - now)

    def reserve(self, now: float) -> float:
        """Take the next place in the row; seconds until it is due.

        After a pause those who waited go out one after the other, at the pace that was there before it.
        """
        due = max(self._next, self._opens, now)
        if due <= now:
            self._step = 0.0  # nobody waits any more
        waits_in_row = self._opens > 0 and due > now
        self._next = due + (max(self._interval, self._step) if waits_in_row else self._interval)
        self._sent.append(due)
        return due - now

    def why(self, now: float) -> Wait:
        """What who has a place in the row waits for: the end of a pause, or the rate."""
        return "budget" if self._interval and now >= self._opens else "throttle"

    def _pause_until(self, now: float, opens: float) -> None:
        if now >= self._opens:
            gone = [due for due in self._sent if due <= now]
            self._step = min((now - gone[0]) / len(gone), _LONGEST_STEP) if gone else 0.0
            self._sent.clear()
        if opens > self._opens:
            self._opens = opens
            self._next = max(self._next, opens)

    def refused(self, now: float, told: float | None) -> float:
        """The server refused a request, and told how long to wait, or did not: seconds of the pause.

        Without a word the pause is guessed: twice as long after each refusal, once the last pause is over.
        "Now" (``Retry-After: 0``, or a moment that is gone) is no word either: nobody would ever pause.
        """
        if not told and now >= self._opens:
            self._refusals += 1
        guessed = min(self._guess * 2.0 ** min(max(self._refusals - 1, 0), 20), _LONGEST_GUESS)
        pause = told or guessed
        self._pause_until(now, now + pause)
        return pause

    def served(self, now: float, told: float | None) -> None:
        """The server answered, and may have told that the next request must wait."""
        if now >= self._opens:
            self._refusals = 0
        if told is not None:
            self._pause_until(now, now + told)


def reported_pause(status: int, headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds that a response asks to wait before the next request, or None.

    ``Retry-After`` counts on 429 and 503; the rate-limit headers count where nothing remains.
    """
    if status not in (429, 503) and _ABOUT_LIMITS.isdisjoint(headers):
        return None  # nearly all of them
    told = _retry_after(headers.get("retry-after", ""), wall_clock) if status in (429, 503) else None
    if told is None:
        told = _until_reset(headers, wall_clock)
    return told if told is None or told <= _LONGEST_TOLD else None


def _retry_after(text: str, wall_clock: float) -> float | None:
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall_clock)
    except (ValueError, TypeError, IndexError):
        return None


def _until_reset(headers: Mapping[str, str], wall_clock: float) -> float | None:
    combined = headers.get("ratelimit", "")  # the IETF draft: "default";r=0;t=30
    remaining = re.search(r"\b(?:r|remaining)=(\d+)", combined)
    reset = re.search(r"\b(?:t|reset)=(\d+)", combined)
    left = remaining[1] if remaining else _first(headers, _REMAINING)
    until = reset[1] if reset else _first(headers, _RESET)
    if left.strip() != "0" or not re.fullmatch(r"\d+(\.\d+)?", until.strip()):
        return None
    seconds = float(until) / (1000 if float(until) > _EPOCH_IN_MILLISECONDS else 1)
    return max(0.0, seconds - wall_clock) if seconds > _EPOCH else seconds


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if name in headers), "")
