"""How long a server asks not to be asked, in its headers or its body. Pure: times are given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache

from lookup_connectors.http.fields import Member, members

_EPOCH = 1e9
"""A number above it is a moment, below it a time from now."""
_FINER_THAN_SECONDS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Above the first a moment is told in so many parts of a second."""
_LONGEST_TOLD = 7 * 86400.0
"""A longer pause is a mistake of the server, which should not close an origin for good."""
_MOST_DIGITS = 30

_RETRY_AFTER = {"retry-after-ms": 1e-3, "x-ms-retry-after-ms": 1e-3, "retry-after": 1.0, "x-retry-after": 1.0}
"""The headers that say when to come back, with the seconds of their unit; the finest comes first."""
_ABOUT_LIMITS = re.compile(r"rate-?limit")
_REMAINS = re.compile(r"remaining|reset-?after|reset(?:-?time)?")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?", re.IGNORECASE
)


def reported_pause(status: int, headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds that a response asks to wait before the next request, or None.

    ``Retry-After`` counts on 403, 429 and 503; the rate-limit headers count where nothing remains, or where
    they leave open what remains and the code says that it is nothing.
    """
    told = retry_after(headers, wall_clock) if status in (403, 429, 503) else None
    if told is not None or "limit" not in "\n".join(headers):
        return told  # nearly all answers, and each of them is looked at
    told = _until_reset(headers, wall_clock)
    return _until_any_reset(headers, wall_clock) if told is None and status in (429, 503) else told


def retry_after(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until a response is worth asking for again, as ``Retry-After`` or a like header says."""
    for name, unit in _RETRY_AFTER.items():
        if name in headers:
            told = seconds(headers[name], wall_clock)
            told = told if told is None else _sensible(told * unit)
            if told is not None:
                return told
    return None


def seconds(text: str, wall_clock: float) -> float | None:
    """The seconds that ``text`` is from now: a number, a duration such as ``6m0s``, a date; None for others.

    A header that came twice is both its values with a comma between; the longer one counts.
    """
    text = text.strip()
    if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text):
        return _from_number(float(text), wall_clock)
    duration = _DURATION.fullmatch(text.replace(" ", ""))
    if duration is not None and duration[0]:
        hours, minutes, whole, thousandths = (float(part or 0) for part in duration.groups())
        return hours * 3600 + minutes * 60 + whole + thousandths / 1000
    moment = _moment(text)
    if moment is not None:
        return max(0.0, moment - wall_clock)
    parts = text.split(",")
    each = [seconds(part, wall_clock) for part in parts] if len(parts) > 1 else []
    told = [part for part in each if part is not None]
    return max(told) if len(told) == len(parts) else None


def _from_number(number: float, wall_clock: float) -> float | None:
    if number < 0:
        return None
    parts = next((parts for least, parts in _FINER_THAN_SECONDS if number > least), 1)
    return max(0.0, number / parts - wall_clock) if number > _EPOCH else number


def _moment(text: str) -> float | None:
    """The moment that a date of HTTP or ISO 8601 tells, in seconds since 1970; without a zone, of UTC."""
    told: datetime | None = None
    iso = _ISO.fullmatch(text)
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        if iso:
            zone = (iso[3] or "").upper().replace("UTC", "").replace("GMT", "").replace("Z", "")
            zone = f"{zone[:3]}:{zone[-2:]}" if zone else "+00:00"
            told = datetime.fromisoformat(f"{iso[1]}T{iso[2]}{zone}")
        else:
            told = parsedate_to_datetime(text)
        return (told if told.tzinfo else told.replace(tzinfo=timezone.utc)).timestamp()
    return None


def _sensible(told: float) -> float | None:
    return told if told <= _LONGEST_TOLD else None


# --- rate limits ----------------------------------------------------------------------------------


def asks_to_wait(headers: Mapping[str, str]) -> bool:
    """Whether a header says when to come back."""
    return any(name in headers for name in _RETRY_AFTER)


def nothing_remains(headers: Mapping[str, str]) -> bool:
    """Whether a rate-limit header says that no request is left."""
    return any(True for _ in _exhausted(headers))


def _until_reset(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until the last of the limits of which nothing remains is reset, where that is said."""
    resets = (seconds(reset, wall_clock) for reset in _exhausted(headers) if reset)
    told = [each for each in map(_checked, resets) if each is not None]
    return max(told, default=None)


def _until_any_reset(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until the first of the limits is reset, where no header says what remains of any."""
    limits = _limits(headers)
    if any("remaining" in each for each in limits):
        return None
    resets = (seconds(_reset_of(each), wall_clock) for each in limits)
    return min((each for each in map(_checked, resets) if each is not None), default=None)


def _checked(told: float | None) -> float | None:
    return told if told is None else _sensible(told)


def _exhausted(headers: Mapping[str, str]) -> Iterator[str]:
    """When each limit of which nothing remains is reset, as its header says it; empty where none does."""
    yield from _exhausted_policies(headers)
    limits = _limits(headers)
    resets = [_reset_of(each) for each in limits if _reset_of(each)]
    for each in limits:
        left = [_NUMBER.match(part.strip()) for part in each.get("remaining", "").split(",")]
        spent = [at for at, number in enumerate(left) if number and float(number[0]) <= 0]
        if spent:
            reset = _reset_of(each) or (resets[0] if resets else "")
            parts = reset.split(",")
            # Several limits in one header, each with its reset; a date has a comma, too.
            yield ",".join(parts[at] for at in spent) if len(left) == len(parts) > 1 else reset


def _limits(headers: Mapping[str, str]) -> Collection[Mapping[str, str]]:
    """What headers tell of each limit: what remains of it, its reset."""
    told: dict[str, dict[str, str]] = {}
    for name in headers:
        if _ABOUT_LIMITS.search(name):
            limit, what = _about(name)
            if what:
                told.setdefault(limit, {}).setdefault(what, headers[name])
    return told.values()


def _reset_of(told: Mapping[str, str]) -> str:
    return told.get("after") or told.get("reset") or ""


@lru_cache(256)
def _about(name: str) -> tuple[str, str]:
    """Which limit the header ``name`` tells of, and what of it: what remains, its reset, the time until it.

    >>> _about("x-ratelimit-reset-tokens"), _about("ratelimit-reset-after"), _about("ratelimit-policy")
    (('ratelimit--tokens', 'reset'), ('ratelimit-', 'after'), ('ratelimit-policy', ''))
    """
    plain = name.removeprefix("x-").replace("rate-limit", "ratelimit")
    found = _REMAINS.search(plain)
    if found is None:
        return plain, ""
    what = "remaining" if found[0] == "remaining" else "after" if found[0].endswith("after") else "reset"
    return plain[: found.start()] + plain[found.end() :], what


def _exhausted_policies(headers: Mapping[str, str]) -> Iterator[str]:
    """The same of the IETF's field: ``"default";r=0;t=30``, or ``limit=10, remaining=0, reset=5`` before."""
    quotas = _quotas(headers.get("ratelimit", ""))
    policies = _quotas(headers.get("ratelimit-policy", ""))
    windows = {each.value: each.parameters.get("w", "") for each in policies}
    for name, told in quotas:
        left = _NUMBER.fullmatch(told.get("r", ""))
        if left and float(left[0]) <= 0:
            yield told.get("t") or windows.get(name, "")


def _quotas(text: str) -> list[Member]:
    try:
        found = members(text)
    except ValueError:
        return []
    old = dict(each.value.lower().split("=", 1) for each in found if "=" in each.value)
    if "remaining" in old:
        return [Member("", {"r": old["remaining"], "t": old.get("reset", "")})]
    return found
