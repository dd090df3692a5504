"""How long a server asks not to be asked, in the headers of its responses. Pure: times are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_EPOCH, _EPOCH_IN_MILLISECONDS = 1e9, 1e11
"""A reset above the first is a moment, above the second one in milliseconds; below, it is a time from now."""
_LONGEST_TOLD = 7 * 86400.0
"""A longer pause is a mistake of the server, which should not close an origin for good."""

_RESET = ("ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset")
_REMAINING = ("ratelimit-remaining", "x-ratelimit-remaining", "x-rate-limit-remaining")
_ABOUT_LIMITS = frozenset({"ratelimit", *_RESET, *_REMAINING})


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
