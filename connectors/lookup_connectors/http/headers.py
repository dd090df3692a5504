"""Read response headers: lists such as ``Link``, pauses and rate limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urljoin

# --- lists ----------------------------------------------------------------------------------------

# One quote is not of the grammar, but sent: rel='next'.
_VALUE = r"""[ \t]*(<[^>]*>|"(?:[^"\\]|\\.)*"|'[^']*'(?=[ \t]*(?:[;,]|$))|[^;,"]*)[ \t]*"""
_MEMBER = re.compile(_VALUE)
_PARAMETER = re.compile(rf';[ \t]*([^=;,"]*)(?:={_VALUE})?')


class Member(NamedTuple):
    """One member of a list.

    Args:
        value: its value; a URL is in ``<`` and ``>``.
        parameters: by name in lower case; the first of duplicate names counts (RFC 8288).
    """

    value: str
    parameters: Mapping[str, str]


def members(text: str) -> list[Member]:
    """The members that the value ``text`` of a header lists.

    >>> members('<a,b>; title="x, y"; REL=next, <c>')
    [Member(value='<a,b>', parameters={'title': 'x, y', 'rel': 'next'}), Member(value='<c>', parameters={})]
    """
    found: list[Member] = []
    at = 0
    while at < len(text):
        match = _MEMBER.match(text, at)
        assert match is not None
        at = match.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            parameters.setdefault(parameter[1].strip().lower(), _unquote_text(parameter[2] or ""))
        if at < len(text) and text[at] != ",":
            raise ValueError(f"{text[at : at + 20]!r} is where a comma or semicolon should be")
        at += 1
        if match[1] or parameters:
            found.append(Member(_unquote_text(match[1]), parameters))
    return found


def _unquote_text(text: str) -> str:
    if text[:1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text.strip()


# By the grammar: a quoted comma ends no link. (docs/decisions/0176)
def next_link(header: str, base: str) -> str | None:
    """The first URL of a next page in the header ``Link`` of an answer from ``base`` (RFC 8288)."""
    for value, parameters in members(header):
        if not (value.startswith("<") and value.endswith(">")):
            raise ValueError(f"{value[:20]!r} is no URL in < and >")
        is_next = "next" in parameters.get("rel", "").lower().split()
        # A link with an anchor begins at another document, or at a part of this one.
        if is_next and urljoin(base, parameters.get("anchor", "")) == base:
            return value[1:-1].strip()
    return None


# --- pauses and rate limits -----------------------------------------------------------------------

# A number above it is a moment, below it a time from now.
_EPOCH = 1e9
# Moments above the first number are in units of a second divided by the second one.
_FINER_THAN_SECONDS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
# A longer pause is a mistake of the server, and should not close an origin forever.
_LONGEST_TOLD = 7 * 86400.0
_MOST_DIGITS = 30

# The headers that say when to come back, with the seconds of their unit; the finest comes first.
_RETRY_AFTER = {"retry-after-ms": 1e-3, "x-ms-retry-after-ms": 1e-3, "retry-after": 1.0, "x-retry-after": 1.0}
_ABOUT_LIMITS = re.compile(r"rate-?limit")
_REMAINS = re.compile(r"remaining|reset-?after|reset(?:-?time)?")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?", re.IGNORECASE
)


class Limit(NamedTuple):
    """A rate limit from headers: the remaining requests (None if not given), and the time of its reset."""

    remaining: float | None
    reset: str

    @property
    def is_spent(self) -> bool:
        return self.remaining is not None and self.remaining <= 0


def reported_pause(status: int, headers: Mapping[str, str], wall_clock: float) -> float | None:
    """The pause in seconds that a response requests before the next request, or None.

    ``Retry-After`` counts on 403, 429 and 503; rate-limit headers count if nothing remains, or if they leave
    that open and the status code means it.
    """
    told = retry_after(headers, wall_clock) if status in (403, 429, 503) else None
    if told is not None or "limit" not in "\n".join(headers):
        return told  # nearly all answers, and each of them is looked at
    limits = _read_limits(headers)
    spent = _seconds_until_resets((each for each in limits if each.is_spent), wall_clock)
    if spent or status not in (429, 503) or any(each.remaining is not None for each in limits):
        return max(spent, default=None)
    return min(_seconds_until_resets(limits, wall_clock), default=None)


def retry_after(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until a response is worth asking for again, as ``Retry-After`` or a like header says."""
    for name, unit in _RETRY_AFTER.items():
        if name in headers:
            told = seconds(headers[name], wall_clock)
            if told is not None and told * unit <= _LONGEST_TOLD:
                return told * unit
    return None


def seconds(text: str, wall_clock: float) -> float | None:
    """Seconds from now until ``text``: a number, a duration such as ``6m0s``, or a date; else None.

    A repeated header arrives as values with commas between; the longest counts.
    """
    text = text.strip()
    if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text):
        number = float(text)
        if number > _EPOCH:
            unit = next((unit for least, unit in _FINER_THAN_SECONDS if number > least), 1)
            return max(0.0, number / unit - wall_clock)
        return number if number >= 0 else None
    duration = _DURATION.fullmatch(text.replace(" ", ""))
    if duration is not None and duration[0]:
        hours, minutes, whole, thousandths = (float(part or 0) for part in duration.groups())
        return hours * 3600 + minutes * 60 + whole + thousandths / 1000
    moment = _parse_date(text)
    if moment is not None:
        return max(0.0, moment - wall_clock)
    parts = text.split(",")
    each = [seconds(part, wall_clock) for part in parts] if len(parts) > 1 else []
    told = [part for part in each if part is not None]
    return max(told) if len(told) == len(parts) else None


def _parse_date(text: str) -> float | None:
    """An HTTP or ISO 8601 date in seconds since 1970; UTC if it has no zone."""
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


def asks_to_wait(headers: Mapping[str, str]) -> bool:
    """Whether a header says when to come back."""
    return any(name in headers for name in _RETRY_AFTER)


def nothing_remains(headers: Mapping[str, str]) -> bool:
    """Whether a rate-limit header says that no request is left."""
    return any(each.is_spent for each in _read_limits(headers))


def _seconds_until_resets(limits: Iterable[Limit], wall_clock: float) -> list[float]:
    """Seconds until each of ``limits`` is reset that says so."""
    told = (seconds(each.reset, wall_clock) for each in limits)
    return [each for each in told if each is not None and each <= _LONGEST_TOLD]


def _read_limits(headers: Mapping[str, str]) -> list[Limit]:
    """The rate limits in headers."""
    told: dict[str, dict[str, str]] = {}
    for name in headers:
        if _ABOUT_LIMITS.search(name):
            limit, what = _limit_and_field(name)
            if what:
                told.setdefault(limit, {}).setdefault(what, headers[name])
    limits = [
        *(limit for each in told.values() for limit in _limits_of_header(each)),
        *_limits_of_policies(headers),
    ]
    known = next((each.reset for each in limits if each.reset), "")
    return [each._replace(reset=each.reset or known) for each in limits]


@lru_cache(256)
def _limit_and_field(name: str) -> tuple[str, str]:
    """The limit and the field that the header ``name`` is about: remaining, reset, or time until reset.

    >>> _about("x-ratelimit-reset-tokens"), _about("ratelimit-reset-after"), _about("ratelimit-policy")
    (('ratelimit--tokens', 'reset'), ('ratelimit-', 'after'), ('ratelimit-policy', ''))
    """
    plain = name.removeprefix("x-").replace("rate-limit", "ratelimit")
    found = _REMAINS.search(plain)
    if found is None:
        return plain, ""
    what = "remaining" if found[0] == "remaining" else "after" if found[0].endswith("after") else "reset"
    return plain[: found.start()] + plain[found.end() :], what


def _limits_of_header(told: Mapping[str, str]) -> Iterator[Limit]:
    """The limits in one header of each kind: one, or several with commas between."""
    reset = told.get("after") or told.get("reset") or ""
    left = told["remaining"].split(",") if "remaining" in told else []
    resets = reset.split(",")
    if len(left) != len(resets):  # a date has a comma, too
        resets = [reset] * len(left)
    for remaining, until in zip(left, resets, strict=True):
        number = _NUMBER.match(remaining.strip())
        yield Limit(float(number[0]) if number else math.inf, until)
    if not left:
        yield Limit(None, reset)


def _limits_of_policies(headers: Mapping[str, str]) -> Iterator[Limit]:
    """The same of the IETF's field: ``"default";r=0;t=30``, or ``limit=10, remaining=0, reset=5`` before."""
    windows = {name: told.get("w", "") for name, told in _read_quotas(headers.get("ratelimit-policy", ""))}
    for name, told in _read_quotas(headers.get("ratelimit", "")):
        left = _NUMBER.fullmatch(told.get("r", ""))
        if left:
            yield Limit(float(left[0]), told.get("t") or windows.get(name, ""))


def _read_quotas(text: str) -> list[Member]:
    try:
        found = members(text)
    except ValueError:
        return []
    old = dict(each.value.lower().split("=", 1) for each in found if "=" in each.value)
    if "remaining" in old:
        return [Member("", {"r": old["remaining"], "t": old.get("reset", "")})]
    return found
