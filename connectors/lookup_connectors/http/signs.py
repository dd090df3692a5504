"""What JSON says of itself beside its rows: that it failed, why, and that there is more.

Names and words are compared by their letters and digits: ``rate_limited`` and ``RateLimited`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from lookup_connectors.http.throttle import seconds


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DEPTH = 5
_MOST = 50
"""So many members of a list are looked at."""

_THROTTLED = _set(
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
_USED_UP = _set(
    """
    quotaexceeded dailylimitexceeded dailylimitexceededunreg overdailylimit quotaexceedederror
    insufficientquota quotaexhausted monthlylimitexceeded
    """
)
_PASSING = _set(
    """
    internalservererror internalerror servererror serviceunavailable temporarilyunavailable unknownerror
    backenderror timeout gatewaytimeout badgateway unavailable deadlineexceeded
    """
)
_NOT_FOUND = frozenset({"notfound", "notfounderror", "resourcenotfound", "objectnotfound"})
_ABOUT_RATES = re.compile(r"rate.?limit|too many (?:requests|calls)|throttl", re.IGNORECASE)

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
    message error errormessage errordescription description detail title
    """
)
_PAUSES = {"retryafter": 1.0, "retryafterseconds": 1.0, "retrydelay": 1.0, "retryafterms": 1e-3}

_ERRORS = _set(
    """
    error errors errorcode errcode errno errormessage errormsg errmsg errordescription errortype fault
    exception
    """
)
_WELL = frozenset({"ok", "success", "succeeded", "successful", "issuccess", "response"})
_STATES = frozenset({"status", "state", "code", "result", "outcome", "response"})
_FAILED = (
    _THROTTLED
    | _USED_UP
    | _PASSING
    | _set("error fail failed failure ko nok notok requestdenied invalidrequest")
)
_STATUS = frozenset({"status", "code", "statuscode", "cod", "httpstatus", "httpcode", "errorcode"})
_NOTHING = frozenset({"", "0", "false", "none", "null", "ok", "success", "noerror", "no"})

_FOLLOWING = _set(
    """
    next nextpage nextpagetoken nexttoken nextlink nextcursor nexturl nexturi nexthref nextpageurl
    nextpageuri nextpagelink nextmarker nextcontinuationtoken nextrecordsurl nextoffset nextstart nextkey
    nextpagecursor continue continuation continuationtoken lastevaluatedkey odatanextlink hasmore hasnext
    hasnextpage hasmoreresults hasmoreitems moreresults morepages morerecords moreitems more
    moreresultsavailable istruncated truncated incompleteresults
    """
)
_LAST = frozenset({"islast", "islastpage", "last", "lastpage"})
_PAGES = _set(
    """
    pagination paging page pageinfo pages links meta metadata cursor cursors responsemetadata paginginfo
    paginationinfo pageinformation resultinfo
    """
)
_COUNTS = {
    "from": ("startat", "offset", "skip", "start", "startindex", "from"),
    "all": ("total", "totalcount", "totalresults", "totalitems", "totalsize"),
    "page": ("page", "currentpage", "pagenumber", "pageindex"),
    "pages": ("totalpages", "pagecount", "lastpage", "pages", "nbpages", "numpages", "pagestotal"),
}
"""A start and a total, or a page and the number of pages, tell together whether there is more."""


@lru_cache(4096)
def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _word(text: str) -> str:
    """``text`` as it is compared: AWS writes ``com.amazon#Throttling``, and ``Throttling:http://...``."""
    return _plain(text[:200].rpartition("#")[2].partition(":")[0])


# --- failures -------------------------------------------------------------------------------------


def words(document: Any) -> frozenset[str]:
    """The codes that ``document`` tells of its failure."""
    return frozenset(_word(text) for name, text in _told(document, _DEPTH) if name in _CODES)


def is_throttled(told: Collection[str]) -> bool:
    """Whether the codes ``told`` say that the source is asked too much."""
    return not _THROTTLED.isdisjoint(told)


def is_used_up(told: Collection[str]) -> bool:
    """Whether the codes ``told`` say that a quota is used up, and that waiting a little is of no use."""
    return not _USED_UP.isdisjoint(told)


def may_pass(told: Collection[str]) -> bool:
    """Whether the codes ``told`` say that asking again may help."""
    return not _PASSING.isdisjoint(told)


def speaks_of_rates(document: Any) -> bool:
    """Whether a message in ``document`` speaks of too many requests."""
    return any(name in _TEXTS and _ABOUT_RATES.search(text) for name, text in _told(document, _DEPTH))


def word_of_header(text: str) -> frozenset[str]:
    """The code that a header tells."""
    return frozenset({_word(text)})


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


def graphql_errors(document: Any) -> list[Any] | None:
    """The errors of a GraphQL response, without those that only say that something is not there.

    None where it is no such response, or one without errors.
    """
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list) or not {"data", "errors", "extensions"}.issuperset(document):
        return None
    return [error for error in errors if not _says_not_found(error)]


def _says_not_found(error: Any) -> bool:
    if not isinstance(error, dict):
        return False
    extensions = error.get("extensions")
    code = extensions.get("code") if isinstance(extensions, dict) else None
    told = [each for each in (error.get("type"), code) if isinstance(each, str)]
    return bool(told) and all(_word(each) in _NOT_FOUND for each in told)


def failure_told(envelope: Mapping[str, Any]) -> str:
    """The member of ``envelope``, in which no row is, that says that the request failed; empty for none."""
    for name, value in envelope.items():
        plain = _plain(name)
        is_state = plain in _STATES and isinstance(value, str) and _word(value) in _FAILED
        says_no = plain in _WELL and (value is False or (isinstance(value, str) and _word(value) == "false"))
        if is_state or says_no or (plain in _ERRORS and _is_something(value)):
            return name
    return next((name for name in envelope if _status_at(envelope, name) is not None), "")


def status_told(envelope: Mapping[str, Any]) -> int | None:
    """The status code that ``envelope`` tells, 400 to 599, as some APIs send all with status 200."""
    error = envelope.get("error")
    for each in (envelope, *([error] if isinstance(error, dict) else ())):
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
        return _plain(value) not in _NOTHING or (bool(value.strip()) and not _plain(value))
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
        if plain in _LAST and value is False:
            return _spelled(name)
        if plain == "offset" and isinstance(value, str) and value and not value.isdecimal():  # Airtable
            return _spelled(name)
        if depth and plain in _PAGES and isinstance(value, dict):
            found = _more_at(value, rows, depth - 1)
            if found:
                return f"{_spelled(name)}.{found}"
    return _more_counted(members, rows)


def _leads_on(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_leads_on, value.values()))
    return _is_something(value)


def _more_counted(members: Mapping[str, Any], rows: int) -> str:
    counts = {_plain(name): (name, value) for name, value in members.items() if type(value) is int}

    def first(kind: str) -> tuple[str, int] | None:
        return next((counts[name] for name in _COUNTS[kind] if name in counts), None)

    start, every = first("from"), first("all")
    if start and every and rows and start[1] >= 0 and start[1] + rows < every[1]:
        return _spelled(every[0])
    page, pages = first("page"), first("pages")
    if page and pages and rows and max(1, page[1]) < pages[1]:
        return _spelled(pages[0])
    return ""


def _spelled(name: str) -> str:
    """``name`` as JMESPath spells it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'
