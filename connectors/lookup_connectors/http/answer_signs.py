"""What an answer says of itself beside its rows: that it failed, why, when to come back, that there is more.

All of it is pure. Names and words of JSON are compared by their letters and digits: ``rate_limited`` and
``RateLimited`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import urljoin

_BLANKS = re.compile(r"[ \t]*")
_URL = re.compile(r"<([^>]*)>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_IN_ONE_QUOTE = re.compile(r"'([^']*)'(?=[ \t]*(?:[;,]|$))")
"""Not of the grammar, but sent: ``rel='next'``."""
_TOKEN = re.compile(r"[^;,\"]*")
_NAME = re.compile(r"[^=;,\"]*")


class Member(NamedTuple):
    """One member of a list.

    Args:
        value: what it is; a URL stands in ``<`` and ``>``.
        parameters: by name in lower case; of a name that comes twice the first one counts (RFC 8288).
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
    while (at := _after_blanks(text, at)) < len(text):
        if text[at] == ",":
            at += 1
            continue
        url = _URL.match(text, at)
        value, at = (url[0], url.end()) if url else _value(text, at)
        parameters: dict[str, str] = {}
        while (at := _after_blanks(text, at)) < len(text) and text[at] == ";":
            name, given, at = _parameter(text, _after_blanks(text, at + 1))
            parameters.setdefault(name, given)
        if at < len(text) and text[at] != ",":
            raise ValueError(f"{text[at : at + 20]!r} is where a comma or semicolon should be")
        found.append(Member(value, parameters))
    return found


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _parameter(text: str, at: int) -> tuple[str, str, int]:
    match = _NAME.match(text, at)
    assert match is not None
    name, at = match[0].strip().lower(), match.end()
    if at < len(text) and text[at] == "=":
        return name, *_value(text, _after_blanks(text, at + 1))
    return name, "", at


def _value(text: str, at: int) -> tuple[str, int]:
    quoted = _QUOTED.match(text, at)
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1]), quoted.end()
    match = _IN_ONE_QUOTE.match(text, at)
    if match:
        return match[1], match.end()
    match = _TOKEN.match(text, at)
    assert match is not None
    return match[0].strip(), match.end()


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
            if told is not None and told * unit <= _LONGEST_TOLD:
                return told * unit
    return None


def seconds(text: str, wall_clock: float) -> float | None:
    """The seconds that ``text`` is from now: a number, a duration such as ``6m0s``, a date; None for others.

    A header that came twice is both its values with a comma between; the longer one counts.
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
    moment = _moment(text)
    if moment is not None:
        return max(0.0, moment - wall_clock)
    parts = text.split(",")
    each = [seconds(part, wall_clock) for part in parts] if len(parts) > 1 else []
    told = [part for part in each if part is not None]
    return max(told) if len(told) == len(parts) else None


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


# --- rate limits ----------------------------------------------------------------------------------


def asks_to_wait(headers: Mapping[str, str]) -> bool:
    """Whether a header says when to come back."""
    return any(name in headers for name in _RETRY_AFTER)


def nothing_remains(headers: Mapping[str, str]) -> bool:
    """Whether a rate-limit header says that no request is left."""
    return any(True for _ in _exhausted(headers))


def _until_reset(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until the last of the limits of which nothing remains is reset, where that is said."""
    return max(_sensible(_exhausted(headers), wall_clock), default=None)


def _until_any_reset(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds until the first of the limits is reset, where no header says what remains of any."""
    limits = _limits(headers)
    if any("remaining" in each for each in limits):
        return None
    return min(_sensible(map(_reset_of, limits), wall_clock), default=None)


def _sensible(resets: Iterable[str], wall_clock: float) -> list[float]:
    told = (seconds(reset, wall_clock) for reset in resets)
    return [each for each in told if each is not None and each <= _LONGEST_TOLD]


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


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DEPTH = 5
_MOST = 50
"""This many members of a list are looked at."""

# Codes that mean too many requests, that a quota is used up, and that asking again may help.
THROTTLED = _set(
    """
    ratelimit ratelimited ratelimiterror ratelimitexceeded ratelimitexceedederror ratelimitreached
    userratelimitexceeded overquerylimit overratelimit toomanyrequests toomanyrequestsexception
    toomanyrequestserror throttled throttling throttlingerror throttlederror throttlingexception
    throttledexception requestthrottled requestthrottledexception applicationthrottled
    ec2throttledexception requestlimitexceeded limitexceededexception resourceexhausted slowdown
    provisionedthroughputexceededexception bandwidthlimitexceeded activitylimitreached
    priorrequestnotcomplete secondaryratelimit
    """
)
USED_UP = _set(
    """
    quotaexceeded dailylimitexceeded dailylimitexceededunreg overdailylimit quotaexceedederror
    insufficientquota quotaexhausted monthlylimitexceeded
    """
)
PASSING = _set(
    """
    internalservererror internalerror servererror serviceunavailable temporarilyunavailable unknownerror
    backenderror timeout timedout gatewaytimeout badgateway unavailable deadlineexceeded maxlag
    """
)
_NOT_FOUND = frozenset({"notfound", "notfounderror", "resourcenotfound", "objectnotfound"})
_ABOUT_RATES = re.compile(
    r"rate.?limit|too many (?:requests|calls)|throttl|(?:request|call)s? limit|(?:requests|calls) per \w"
    r"|abuse detection|secondary limit",
    re.IGNORECASE,
)

_CODES = _set(
    """
    code status reason type error errors errortype errorcode errcode errorstatus subcode category title
    name
    """
)
_INSIDE = _set(
    """
    error errors extensions details detail fault exception parameters
    """
)
_TEXTS = _set(
    """
    message error errormessage errormsg errmsg msg errordescription description detail title note
    information
    """
)
_PAUSES = {"retryafter": 1.0, "retryafterseconds": 1.0, "retrydelay": 1.0, "retryafterms": 1e-3}

_ERRORS = _set(
    """
    error errors err errs errorcode errcode errno errormessage errormessages errormsg errmsg
    errordescription errordetail errordetails errorinfo errortype haserror haserrors iserror odataerror
    fault faultcode faultstring exception exceptions
    """
)
_WELL = frozenset({"ok", "success", "succeeded", "successful", "issuccess", "response"})
_STATES = _set("status state code result outcome response resultcode returncode resultstatus")
_FAILED = (
    THROTTLED
    | USED_UP
    | PASSING
    | _set(
        """
        error fail failed failure ko nok notok requestdenied invalidrequest invalidargument unauthorized
        unauthenticated forbidden accessdenied permissiondenied failedprecondition
        """
    )
)
_UNFINISHED = _set("pending queued processing inprogress running computing notready")
_FINISHED = _set("done complete completed iscomplete jobcomplete finished isfinished ready isready")
_HOLDERS = _set("meta metadata status header head responsestatus responseheader")
"""Objects that hold what an answer says of itself."""
_STATUS = frozenset({"status", "code", "statuscode", "cod", "httpstatus", "httpcode", "errorcode"})
_NOTHING = frozenset({"", "0", "false", "none", "null", "ok", "success", "noerror", "no"})

_COUNTS = {
    "from": ("startat", "offset", "skip", "start", "startindex", "from"),
    "all": ("total", "totalcount", "totalresults", "totalitems", "totalsize"),
    "page": ("page", "currentpage", "pagenumber", "pageindex"),
    "pages": ("totalpages", "pagecount", "lastpage", "pages", "nbpages", "numpages", "pagestotal"),
}
"""A start and a total, or a page and the number of pages, tell together whether there is more."""

_MESSAGES = _set("message messages msg detail details info information note reason description")
_NUMBERED = _set("code cod statuscode resultcode retcode returncode ret infocode respcode responsecode")
_SAYS_WELL = re.compile(r"\b(?:ok|okay|success\w*|succeeded|completed?|done)\b|成功", re.IGNORECASE)
_GENERAL = _set("data result results items rows content payload body response records list value")
"""Members that hold rows of any kind: a number beside one is no column."""
_OF_ENVELOPES = (
    _set(
        """
        id requestid traceid correlationid timestamp time date took path instance documentationurl docs url
        help helpurl version apiversion pagesize count size limit
        """
    )
    | (_MESSAGES | _NUMBERED | _CODES | _TEXTS | _STATES | _STATUS | _WELL | _ERRORS | _HOLDERS)
    | {name for names in _COUNTS.values() for name in names}
)
"""Members that say something of an answer, and are seldom what was asked for."""

_FOLLOWING = _set(
    """
    next nextpage nextpagetoken nexttoken nextlink nextcursor nexturl nexturi nexthref nextpageurl
    nextpageuri nextpagelink nextmarker nextcontinuationtoken nextrecordsurl nextoffset nextstart nextkey
    nextpagecursor continue continuation continuationtoken lastevaluatedkey odatanextlink hasmore hasnext
    hasnextpage hasmoreresults hasmoreitems moreresults morepages morerecords moreitems more
    moreresultsavailable istruncated truncated incompleteresults exceededtransferlimit
    """
)
_LAST = frozenset({"islast", "islastpage", "last", "lastpage"})
_PAGES = _set(
    """
    pagination paging page pageinfo pages links meta metadata cursor cursors responsemetadata paginginfo
    paginationinfo pageinformation resultinfo info
    """
)


@lru_cache(4096)
def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def word(text: str) -> str:
    """``text`` as it is compared: AWS writes ``com.amazon#Throttling``, and ``Throttling:http://...``."""
    return _plain(text[:200].rpartition("#")[2].partition(":")[0])


# --- failures -------------------------------------------------------------------------------------


def words(document: Any) -> frozenset[str]:
    """The codes that ``document`` tells of its failure; a member that is true is one."""
    codes = {word(text) for name, text in _told(document, _DEPTH) if name in _CODES}
    members = document.items() if isinstance(document, dict) else ()
    return frozenset(codes | {_plain(name) for name, value in members if value is True})


def speaks_of_rates(document: Any) -> bool:
    """Whether a message in ``document`` speaks of too many requests."""
    return any(name in _TEXTS and _ABOUT_RATES.search(text) for name, text in _told(document, _DEPTH))


def pause_told(document: Any, wall_clock: float) -> float | None:
    """Seconds that ``document`` asks to wait, or None."""
    for name, text in _told(document, _DEPTH):
        if name in _PAUSES:
            pause = seconds(text, wall_clock)
            if pause is not None:
                return pause * _PAUSES[name]
    return None


def _told(value: Any, depth: int, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts and numbers of an error, each with its plain name; what lies deep, or far, is left out."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        yield name, str(value)
    elif isinstance(value, list) and depth:
        for each in value[:_MOST]:
            yield from _told(each, depth - 1, name)
    elif isinstance(value, dict) and depth:
        for key, each in value.items():
            plain = _plain(key)
            if plain in _INSIDE or not isinstance(each, dict | list):
                yield from _told(each, depth - 1, plain)


def graphql_errors(document: Any, way: Sequence[str]) -> list[Any] | None:
    """The errors of a GraphQL response that concern what ``way`` leads to.

    Those that only say that something is not there are left out, and those of another field of the query.
    None where it is no such response, or one without errors.
    """
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list) or not {"data", "errors", "extensions"}.issuperset(document):
        return None
    data, field = document.get("data"), way[1] if way[:1] == ("data",) and len(way) > 1 else None
    is_there = isinstance(data, dict) and field in data

    def is_of_another(error: Any) -> bool:
        path = error.get("path") if isinstance(error, dict) else None
        return isinstance(path, list) and bool(path) and path[0] != field

    return [
        error for error in errors if not _says_not_found(error) and not (is_there and is_of_another(error))
    ]


def _says_not_found(error: Any) -> bool:
    """Whether ``error`` is, or has, a code that says that what was asked for is not there."""
    if isinstance(error, list):
        return bool(error) and all(map(_says_not_found, error))
    if isinstance(error, dict):
        extensions = error.get("extensions")
        codes = [error.get("type"), error.get("code"), error.get("status")]
        codes.append(extensions.get("code") if isinstance(extensions, dict) else None)
        return any(
            code in (404, "404") or (isinstance(code, str) and _says_not_found(code)) for code in codes
        )
    return isinstance(error, str) and word(error.rpartition("/")[2]) in _NOT_FOUND


def envelopes(document: Mapping[str, Any], way: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """What is beside ``way`` in ``document``, from the outside to the inside, and what holders there hold."""
    level: Any = document
    for name in way or ("",):
        if not isinstance(level, dict):
            return
        beside = {each: value for each, value in level.items() if each != name}
        yield beside
        yield from (
            value for each, value in beside.items() if _plain(each) in _HOLDERS and isinstance(value, dict)
        )
        level = level.get(name)


def failure_told(envelope: Mapping[str, Any]) -> list[str]:
    """The members of ``envelope``, in which no row is, that say that the request failed."""
    return [
        name
        for name, value in envelope.items()
        if _says_failed(_plain(name), value) or _status_at(envelope, name) is not None
    ]


def _says_failed(name: str, value: Any) -> bool:
    if name in _STATES and (value is False or (isinstance(value, str) and word(value) in _FAILED)):
        return True
    if name in _WELL and (value is False or (isinstance(value, str) and word(value) == "false")):
        return True
    return (name in _FAILED and value is True) or (name in _ERRORS and _is_something(value))


def nothing_told(envelope: Mapping[str, Any]) -> bool:
    """Whether an error in ``envelope`` says that what was asked for is not there."""
    return any(_plain(name) in _ERRORS and _says_not_found(value) for name, value in envelope.items())


def told_instead(document: Any, way: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
    """What is in ``document`` where ``way`` ends at nothing, and what of it speaks in place of rows.

    A message does where the place for rows is absent, or where a code beside it is none of success. A code
    does alone where it is a number that no API writes for success. Neither does beside a word of success, or
    beside members that may be what was asked for. A text or a list with something in it, where ``way`` goes
    on, is something else in any case.
    """
    level, before = document, "@"
    for name in way:
        if not isinstance(level, dict):
            is_other = isinstance(level, str | list) and _is_something(level) and not _says_not_found(level)
            return ({before: level}, [before]) if is_other else ({}, [])
        if level.get(name) is None:
            beside = {each: value for each, value in level.items() if each != name and value is not None}
            is_null, is_general = name in level, _plain(name) in _GENERAL
            return beside, _spoken(beside, needs_code=is_null, code_is_enough=is_general)
        level, before = level[name], name
    return {}, []


def _spoken(beside: Mapping[str, Any], *, needs_code: bool, code_is_enough: bool) -> list[str]:
    plain = {_plain(name): name for name in beside}
    if any(name in _MESSAGES and _says_not_found(beside[plain[name]]) for name in plain):
        return []
    if not _OF_ENVELOPES.issuperset(plain) or any(_says_well(each, beside[plain[each]]) for each in plain):
        return []
    messages = [
        name
        for each, name in plain.items()
        if each in _MESSAGES and isinstance(beside[name], str) and _is_something(beside[name])
    ]
    codes = [name for each, name in plain.items() if each in _NUMBERED or each == "status"]
    odd = [name for name in codes if _is_odd(beside[name])]
    failed = [
        name for each, name in plain.items() if each in ("ok", "success") and _number(beside[name]) == 0
    ]
    if failed:
        return failed + messages
    if messages and (codes or not needs_code):
        return codes + messages
    return odd if code_is_enough else []


def _says_well(name: str, value: Any) -> bool:
    """Whether a member says that all is well; of numbers 0 does, but for a status, where it may be no."""
    number = _number(value)
    if name in _NUMBERED or name == "status":
        if number is not None:
            return 200 <= number < 300 or number == (1 if name == "status" else 0)
        return isinstance(value, str) and bool(_SAYS_WELL.search(value))
    if name in _WELL:
        return value is True or number == 1 or (isinstance(value, str) and word(value) == "true")
    return name in _MESSAGES and isinstance(value, str) and bool(_SAYS_WELL.search(value))


def _number(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_odd(value: Any) -> bool:
    """Whether a code is a number that is none of success: many write 1, 1000 or 20000 for that."""
    number = _number(value)
    return number is not None and (number < 0 or (number > 9 and len(str(number).rstrip("0")) > 1))


def not_yet_told(envelope: Mapping[str, Any]) -> list[str]:
    """The members of ``envelope`` that say that the answer is still on its way."""
    return [
        name
        for name, value in envelope.items()
        if (_plain(name) in _STATES and isinstance(value, str) and word(value) in _UNFINISHED)
        or (_plain(name) in _FINISHED and value is False)
    ]


def told_of(envelope: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The members ``names`` of ``envelope``, and those that say more in words."""
    return {
        name: value
        for name, value in envelope.items()
        if name in names or (_plain(name) in _TEXTS and isinstance(value, str) and value)
    }


def status_told(envelope: Mapping[str, Any]) -> int | None:
    """The status code that ``envelope`` tells, 400 to 599, as some APIs send all with status 200."""
    error, errors = envelope.get("error"), envelope.get("errors")
    inside = [error, *(errors[:1] if isinstance(errors, list) else ())]
    for each in (envelope, *(each for each in inside if isinstance(each, dict))):
        for name in each:
            status = _status_at(each, name)
            if status is not None:
                return status
    return None


def _status_at(envelope: Mapping[str, Any], name: str) -> int | None:
    value = envelope[name]
    if _plain(name) not in _STATUS or isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def _is_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_something, value.values()))
    if isinstance(value, list):
        return any(map(_is_something, value))
    if isinstance(value, str):
        plain = _plain(value)
        return (plain not in _NOTHING and bool(plain.strip("0"))) or (bool(value.strip()) and not plain)
    return bool(value)


# --- more of it -----------------------------------------------------------------------------------


def more_told(document: Any, way: Sequence[str]) -> str:
    """Where ``document`` says that there is more than what ``way`` leads to; empty for nowhere."""
    listed, place = document, ""
    for name in way:
        listed = listed.get(name) if isinstance(listed, dict) else None
    rows = len(listed) if isinstance(listed, list) else 0
    for at in range(len(way)):
        if not isinstance(document, dict):
            break
        beside = {name: value for name, value in document.items() if name != way[at]}
        found = _more_at(beside, rows, depth=2)
        if found:
            return place + found
        document, place = document.get(way[at]), f"{place}{_spelled(way[at])}."
    return ""


def _more_at(members: Mapping[str, Any], rows: int, depth: int) -> str:
    for name, value in members.items():
        plain = _plain(name)
        if plain in _FOLLOWING and _leads_on(value):
            return _spelled(name)
        if plain in ("link", "links") and isinstance(value, list) and (found := _link_among(value)):
            return f"{_spelled(name)}{found}"
        if plain in _LAST and value is False:
            return _spelled(name)
        if plain == "offset" and isinstance(value, str) and value and not value.isdecimal():  # Airtable
            return _spelled(name)
        if depth and plain in _PAGES and isinstance(value, dict):
            found = _more_at(value, rows, depth - 1)
            if found:
                return f"{_spelled(name)}.{found}"
    return _more_counted(members, rows)


def _link_among(links: Sequence[Any]) -> str:
    """The way to the link to the next page, as HAL's relatives and FHIR list links; empty for none."""
    for link in links:
        for rel, href in product(("rel", "relation"), ("href", "url")):
            if isinstance(link, dict) and link.get(rel) == "next" and link.get(href):
                return f"[?{rel}=='next'] | [0].{href}"
    return ""


def _leads_on(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_leads_on, value.values()))
    return _is_something(value)


def _more_counted(members: Mapping[str, Any], rows: int) -> str:
    counts = {_plain(name): (name, value) for name, value in members.items() if type(value) is int}

    def first(kind: str) -> tuple[str, int] | None:
        return next((counts[name] for name in _COUNTS[kind] if name in counts), None)

    start, every = first("from"), first("all")
    if start and every and rows and start[1] >= 0:
        before = max(0, start[1] - 1) if _plain(start[0]) == "startindex" else start[1]  # SCIM counts from 1
        if before + rows < every[1]:
            return _spelled(every[0])
    page, pages = first("page"), first("pages")
    if page and pages and rows and max(1, page[1]) < pages[1]:
        return _spelled(pages[0])
    hits = next((value for name, value in members.items() if _plain(name) == "total"), None)
    if rows and isinstance(hits, dict) and hits.get("relation") in ("eq", "gte"):  # Elasticsearch
        return "total.value" if (_number(hits.get("value")) or 0) > rows else ""
    if rows and {"number", "totalpages"} <= counts.keys():  # Spring counts from 0
        name, last = counts["totalpages"]
        return _spelled(name) if 0 <= counts["number"][1] < last - 1 else ""
    return ""


def _spelled(name: str) -> str:
    """``name`` as JMESPath spells it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'
