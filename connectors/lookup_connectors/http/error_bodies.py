"""Read errors, their reasons and pending results from the members beside the rows. Pure functions.

Names and words are compared by letters and digits only: ``rate_limited`` equals ``RateLimited``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from lookup_connectors.http.headers import seconds


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DEPTH = 5
# This many members of a list are looked at.
_MOST = 50

# Codes that mean too many requests, that a quota is used up, and that asking again may help.
THROTTLED = word_set(
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
USED_UP = word_set(
    """
    quotaexceeded dailylimitexceeded dailylimitexceededunreg overdailylimit quotaexceedederror
    insufficientquota quotaexhausted monthlylimitexceeded
    """
)
PASSING = word_set(
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

_CODES = word_set(
    """
    code status reason type error errors errortype errorcode errcode errorstatus subcode category title
    name
    """
)
_INSIDE = word_set(
    """
    error errors extensions details detail fault exception parameters
    """
)
_TEXTS = word_set(
    """
    message error errormessage errormsg errmsg msg errordescription description detail title note
    info information
    """
)
_PAUSES = {"retryafter": 1.0, "retryafterseconds": 1.0, "retrydelay": 1.0, "retryafterms": 1e-3}

ERRORS = word_set(
    """
    error errors err errs errorcode errcode errno errormessage errormessages errormsg errmsg
    errordescription errordetail errordetails errorinfo errortype haserror haserrors iserror odataerror
    fault faultcode faultstring exception exceptions
    """
)
_WELL = frozenset({"ok", "success", "succeeded", "successful", "issuccess", "response"})
_STATES = word_set("status state code result outcome response resultcode returncode resultstatus")
_FAILED = (
    THROTTLED
    | USED_UP
    | PASSING
    | word_set(
        """
        error fail failed failure ko nok notok requestdenied invalidrequest invalidargument unauthorized
        unauthenticated forbidden accessdenied permissiondenied failedprecondition
        """
    )
)
_UNFINISHED = word_set("pending queued processing inprogress running computing notready")
_FINISHED = word_set("done complete completed iscomplete jobcomplete finished isfinished ready isready")
HOLDERS = word_set("meta metadata status header head responsestatus responseheader")
"""Names of objects with information about the answer itself."""
PAGES = word_set(
    """
    pagination paging page pageinfo pages links meta metadata cursor cursors responsemetadata paginginfo
    paginationinfo pageinformation resultinfo info
    """
)
"""Objects that hold where an answer is among its pages."""
_STATUS = frozenset({"status", "code", "statuscode", "cod", "httpstatus", "httpcode", "errorcode"})
_NOTHING = frozenset({"", "0", "false", "none", "null", "ok", "success", "noerror", "no"})

COUNTS = {
    "from": ("startat", "offset", "skip", "start", "startindex", "from", "retstart"),
    "all": (
        "total", "totalcount", "totalresults", "totalitems", "totalsize", "totalelements", "totalrecords",
        "totalresultscount", "totalhits", "nbhits", "numfound",
    ),
    "size": ("perpage", "pagesize", "limit", "maxresults", "itemsperpage", "retmax"),
    "page": ("page", "currentpage", "pagenumber", "pageindex"),
    "pages": ("totalpages", "pagecount", "lastpage", "pages", "nbpages", "numpages", "pagestotal"),
}  # fmt: skip
"""Pairs that show together whether there is more: a start and a total, or a page and the page count."""

_FINDS_NOTHING = re.compile(r"\b(?:no|not)\b.*\bfound\b|\bno (?:data|records?|results?)\b", re.IGNORECASE)
_COUNTED = {*COUNTS["all"], "totalrows", "count", "resultcount"}
_MESSAGES = word_set("message messages msg detail details info")
_NUMBERED = word_set("code cod statuscode resultcode retcode returncode ret infocode respcode responsecode")
_SAYS_WELL = re.compile(r"\b(?:ok|okay|success\w*|succeeded|completed?|done)\b|成功", re.IGNORECASE)
# Members that hold rows of any kind: a number beside one is no column.
_GENERAL = word_set("data result results items rows content payload body response records list value")


@lru_cache(4096)
def plain_name(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def word(text: str) -> str:
    """``text`` as it is compared: AWS writes ``com.amazon#Throttling``, and ``Throttling:http://...``."""
    return plain_name(text[:200].rpartition("#")[2].partition(":")[0])


# --- failures -------------------------------------------------------------------------------------


def words(document: Any) -> frozenset[str]:
    """The error codes in ``document``; the name of a member that is true counts as one."""
    codes = {word(text) for name, text in _texts_of_error(document, _DEPTH) if name in _CODES}
    members = document.items() if isinstance(document, dict) else ()
    return frozenset(codes | {plain_name(name) for name, value in members if value is True})


def speaks_of_rates(document: Any) -> bool:
    """Whether a message in ``document`` speaks of too many requests."""
    return any(
        name in _TEXTS and _ABOUT_RATES.search(text) for name, text in _texts_of_error(document, _DEPTH)
    )


def pause_told(document: Any, wall_clock: float) -> float | None:
    """Seconds that ``document`` asks to wait, or None."""
    for name, text in _texts_of_error(document, _DEPTH):
        if name in _PAUSES:
            pause = seconds(text, wall_clock)
            if pause is not None:
                return pause * _PAUSES[name]
    return None


def _texts_of_error(value: Any, depth: int, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts and numbers of an error, each with its plain name, limited in depth and number."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        yield name, str(value)
    elif isinstance(value, list) and depth:
        for each in value[:_MOST]:
            yield from _texts_of_error(each, depth - 1, name)
    elif isinstance(value, dict) and depth:
        for key, each in value.items():
            plain = plain_name(key)
            if plain in _INSIDE or not isinstance(each, dict | list):
                yield from _texts_of_error(each, depth - 1, plain)


def graphql_errors(document: Any, way: Sequence[str]) -> list[Any] | None:
    """The errors of a GraphQL response that concern the result at ``way``.

    Errors that only mean "not found", and those of other fields of the query, are left out. None if it is
    not a GraphQL response, or has no errors.
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
    """Whether ``error`` is, or has, a code that means "not found"."""
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
    """The members beside ``way`` at each level, outermost first; after each level the holders among them."""
    level: Any = document
    for name in way or ("",):
        if not isinstance(level, dict):
            return
        beside = {each: value for each, value in level.items() if each != name}
        yield beside
        yield from (
            value for each, value in beside.items() if plain_name(each) in HOLDERS and isinstance(value, dict)
        )
        level = level.get(name)


def failure_told(envelope: Mapping[str, Any]) -> list[str]:
    """The members of ``envelope``, in which no row is, that say that the request failed."""
    return [
        name
        for name, value in envelope.items()
        if _says_failed(plain_name(name), value) or _status_at(envelope, name) is not None
    ]


def _says_failed(name: str, value: Any) -> bool:
    if name in _STATES and (value is False or (isinstance(value, str) and word(value) in _FAILED)):
        return True
    if name in _WELL and (value is False or (isinstance(value, str) and word(value) == "false")):
        return True
    return (name in _FAILED and value is True) or (name in ERRORS and is_something(value))


def is_refused(envelope: Mapping[str, Any]) -> bool:
    """Whether a status of the text 0 says that the request failed, and no text that there is nothing."""
    return envelope.get("status") == "0" and not any(
        isinstance(value, str) and _FINDS_NOTHING.search(value) for value in envelope.values()
    )


# An API may send an error with status 200; taken for rows, it would be a silent miss. (docs/decisions/0176)
def errors_told(envelope: Mapping[str, Any]) -> list[str]:
    """The members of ``envelope`` that are errors though rows came; a message alone may be one of success."""
    return [
        name
        for name, value in envelope.items()
        if (plain := plain_name(name)) in ERRORS
        and (plain == "error" or plain not in _TEXTS)
        and is_something(value)
        and not _says_not_found(value)
    ]


def nothing_told(envelope: Mapping[str, Any]) -> bool:
    """Whether an error in ``envelope`` means "not found"."""
    return any(plain_name(name) in ERRORS and _says_not_found(value) for name, value in envelope.items())


def null_explained(document: Any, way: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
    """The members beside a null at ``way``, and those of them that indicate a failure.

    A message indicates one beside a code, if none of them means success. A code alone does beside a generic
    name for rows, if it is a number that no API uses for success.
    """
    beside: dict[str, Any] = {}
    name = ""
    for name in way:
        if not isinstance(document, dict) or name not in document:
            return {}, []
        beside = {each: value for each, value in document.items() if each != name and value is not None}
        document = document[name]
        if document is None:
            break
    plain = {plain_name(each): each for each in beside}
    if document is not None or any(_says_well(each, beside[plain[each]]) for each in plain):
        return {}, []
    messages = [
        each
        for each, value in beside.items()
        if plain_name(each) in _MESSAGES and isinstance(value, str) and is_something(value)
    ]
    codes = [spelled for each, spelled in plain.items() if each in _NUMBERED or each == "status"]
    failed = [plain[each] for each in ("ok", "success") if number_in(beside.get(plain.get(each, ""))) == 0]
    if failed or (messages and codes):
        return beside, (failed or codes) + messages
    odd = [each for each in codes if _is_odd(beside[each])]
    return beside, odd if plain_name(name) in _GENERAL else []


class Misplaced(NamedTuple):
    """The value found where the path to the rows should continue with ``name``."""

    name: str
    found: Any

    @property
    def may_be_rows(self) -> bool:
        """Whether a member holds objects that are neither errors nor information about the answer."""
        return isinstance(self.found, dict) and any(
            plain_name(name) not in ERRORS | HOLDERS | PAGES
            and (isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)))
            for name, value in self.found.items()
            if value
        )


def misplaced(document: Any, way: Sequence[str]) -> Misplaced | None:
    """The value at which ``way`` breaks off in ``document``; None if there is a place for rows, or nothing.

    An answer that reports only success, no results, or links to pages (as in HAL) has nothing.
    """
    for name in way:
        if not isinstance(document, dict):
            is_other = isinstance(document, str | list) and is_something(document)
            return Misplaced(name, document) if is_other and not _says_not_found(document) else None
        if name not in document:
            return None if _says_nothing(document) else Misplaced(name, document)
        document = document[name]
    return None


def _says_nothing(members: Mapping[str, Any]) -> bool:
    described = [members, *(each for name, each in members.items() if plain_name(name) in HOLDERS | PAGES)]
    inside = [
        (plain_name(name), each)
        for some in described
        if isinstance(some, dict)
        for name, each in some.items()
    ]
    if any(name in _COUNTED and number_in(each) == 0 for name, each in inside):
        return True
    messages = [(name, each) for name, each in inside if name in _MESSAGES and is_something(each)]
    if any(_says_not_found(each) for _, each in messages):
        return True
    return all(_says_well(*each) for each in messages) and all(
        plain_name(name) in HOLDERS | PAGES
        or name.startswith(("@", "$"))
        or not is_something(value)
        or _says_well(plain_name(name), value)
        for name, value in members.items()
    )


def _says_well(name: str, value: Any) -> bool:
    """Whether a member says that all is well; of numbers 0 does, but for a status, where it may be no."""
    number = number_in(value)
    if name in _NUMBERED or name == "status":
        if number is not None:
            return 200 <= number < 300 or number == (1 if name == "status" else 0)
        return isinstance(value, str) and bool(_SAYS_WELL.search(value))
    if name in _WELL:
        return value is True or number == 1 or (isinstance(value, str) and word(value) == "true")
    return name in _MESSAGES and isinstance(value, str) and bool(_SAYS_WELL.search(value))


def number_in(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_odd(value: Any) -> bool:
    """Whether a code is a number that is none of success: many write 1, 1000 or 20000 for that."""
    number = number_in(value)
    return number is not None and (number < 0 or (number > 9 and len(str(number).rstrip("0")) > 1))


def not_yet_told(envelope: Mapping[str, Any]) -> list[str]:
    """The members of ``envelope`` that say that the answer is still on its way."""
    return [
        name
        for name, value in envelope.items()
        if (plain_name(name) in _STATES and isinstance(value, str) and word(value) in _UNFINISHED)
        or (plain_name(name) in _FINISHED and value is False)
    ]


def told_of(envelope: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The members ``names`` of ``envelope``, and those that say more in words."""
    return {
        name: value
        for name, value in envelope.items()
        if name in names or (plain_name(name) in _TEXTS and isinstance(value, str) and value)
    }


def status_told(envelope: Mapping[str, Any]) -> int | None:
    """The status code in ``envelope``, 400 to 599, as some APIs send everything with status 200."""
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
    if plain_name(name) not in _STATUS or isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def is_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(is_something, value.values()))
    if isinstance(value, list):
        return any(map(is_something, value))
    if isinstance(value, str):
        plain = plain_name(value)
        return (plain not in _NOTHING and bool(plain.strip("0"))) or (bool(value.strip()) and not plain)
    return bool(value)
