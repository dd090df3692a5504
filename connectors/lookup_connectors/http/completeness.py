"""Where an answer says of itself that it is not whole: parts failed, pages follow, lists are cut. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyarrow import types

from lookup_connectors.http.error_bodies import (
    COUNTS,
    ERRORS,
    HOLDERS,
    PAGES,
    envelopes,
    errors_told,
    is_something,
    number_in,
    plain_name,
    word_set,
)
from lookup_connectors.shared.conversion import shown_as_json
from lookup_connectors.shared.json_paths import Path

# --- parts that failed ----------------------------------------------------------------------------


class _Sign(NamedTuple):
    """The meaning of a member beside the rows, if its value is not empty, or matches a text."""

    kind: Literal["transient", "permanent"] = "transient"
    text: re.Pattern[str] | None = None


# Names by which APIs report incomplete answers. They are compared by letters and digits only.
_SIGNS: Mapping[str, _Sign] = {
    "_shards.failed": _Sign(),  # Elasticsearch, OpenSearch
    "_clusters.failed": _Sign(),
    "_clusters.partial": _Sign(),
    "_clusters.skipped": _Sign(),
    "timed_out": _Sign(),
    "terminated_early": _Sign("permanent"),
    "partialResults": _Sign(),  # Solr
    "partial": _Sign(),  # InfluxDB
    "incomplete_results": _Sign(),  # GitHub
    "unreachable": _Sign(),  # Google Cloud
    "UnprocessedKeys": _Sign(),  # DynamoDB
    "remark": _Sign(text=re.compile(r"error|timed? ?out|out of memory", re.IGNORECASE)),  # Overpass
    "warnings": _Sign(text=re.compile(r"partial|unavailable|timed? ?out|incomplete|fail")),  # Thanos
    "userError": _Sign(text=re.compile(r"^(?!(?:IN)?VALID$)")),  # VIES
}

_BY_PLAIN_NAME = {tuple(map(plain_name, path.split("."))): sign for path, sign in _SIGNS.items()}
_TELLING = frozenset(path[0] for path in _BY_PLAIN_NAME) | ERRORS | HOLDERS
SIGNS = frozenset(path.partition(".")[0] for path in _SIGNS)
"""The members whose presence alone asks for a closer look."""


class FailedPart(NamedTuple):
    """Members of an envelope that say that a part of the answer failed, and whether that may pass."""

    names: list[str]
    envelope: Mapping[str, Any]
    kind: Literal["transient", "permanent"]


def failed_part(
    document: Any, path: Path, read: frozenset[str], *, has_rows: bool, heeds_errors: bool
) -> FailedPart | None:
    """Where ``document`` reports that part of the result at ``path`` failed.

    Args:
        document: the answer.
        path: to the rows.
        read: members of the document that are columns, and therefore no reports.
        has_rows: whether rows were found: without rows an error means that all failed.
        heeds_errors: whether errors count here.
    """
    if not (path.leads_into_elements or _may_tell(document, path.way)):
        return None  # nearly all answers
    elements = _value_at(document, path.way) if path.leads_into_elements else None
    inside = [each for each in elements if isinstance(each, dict)] if isinstance(elements, list) else []
    beside = [(each, has_rows and path.text != "@") for each in envelopes(document, path.way)]
    for envelope, may_have_errors in (*beside, *((each, True) for each in inside)):
        for name, value in envelope.items():
            if name not in read and (sign := _sign_in(plain_name(name), value)):
                return FailedPart([name], envelope, sign.kind)
        # Servers that stream have begun with a 200 when they fail.
        if may_have_errors and heeds_errors and (names := errors_told(envelope)):
            return FailedPart(names, envelope, "transient")
    return None


def _may_tell(document: Any, way: Sequence[str]) -> bool:
    """Whether a member beside ``way`` has a name that may say that a part failed."""
    for name in way or ("",):
        if type(document) is not dict:
            return False
        for other in _keep_telling(tuple(document)):
            value = document[other]
            if other != name and value and plain_name(other) not in HOLDERS:
                return True
            if other != name and type(value) is dict and _keep_telling(tuple(value)):
                return True
        document = document.get(name)
    return False


@lru_cache(1024)
def _keep_telling(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if plain_name(name) in _TELLING)


def _sign_in(plain: str, value: Any) -> _Sign | None:
    inside = value.items() if isinstance(value, dict) else ()
    for path, each in (((plain,), value), *(((plain, plain_name(name)), each) for name, each in inside)):
        sign = _BY_PLAIN_NAME.get(path)
        if sign is None or not is_something(each):
            continue
        if sign.text is None or sign.text.search(each if isinstance(each, str) else shown_as_json(each)):
            return sign
    return None


def _value_at(document: Any, way: Sequence[str]) -> Any:
    for name in way:
        document = document.get(name) if isinstance(document, dict) else None
    return document


# --- pages that follow ----------------------------------------------------------------------------

_FOLLOWING = word_set(
    """
    next nextpage nextpagetoken nexttoken nextlink nextcursor nexturl nexturi nexthref nextpageurl
    nextpageuri nextpagelink nextmarker nextcontinuationtoken nextrecordsurl nextoffset nextstart nextkey
    nextpagecursor continue continuation continuationtoken lastevaluatedkey odatanextlink hasmore hasnext
    hasnextpage pagetoken hasmoreresults hasmoreitems moreresults morepages morerecords moreitems more
    moreresultsavailable istruncated truncated resulttruncated exceededtransferlimit resumptiontoken
    """
)
_LAST = frozenset({"islast", "islastpage", "last", "lastpage"})
# Unambiguous names for a number of pages; `pages` alone may be those of a book.
_PAGES_ALONE = frozenset(COUNTS["pages"]) - {"pages"}
_ALL_ALONE = frozenset(COUNTS["all"]) - {"total"}
_COUNTING = {name for names in COUNTS.values() for name in names} | {"count", "number"}
_OF_HEADERS = re.compile(r"total|next|page|pagination|more|continu|cursor|resumption")
_PREFIX = re.compile(r"x-(?:wp-|ms-)?")


class Seen(NamedTuple):
    """Progress through the pages.

    Args:
        rows: rows read; 0 if a total means nothing alone, as other signs mark the last page.
        page: number of the page from 1, if we count pages; else 0.
        is_total: whether any "total" counts rows, and cannot be a sum of money, for example.
    """

    rows: int
    page: int = 0
    is_total: bool = False


def more_told(document: Any, way: Sequence[str], seen: Seen) -> str:
    """Where ``document`` reports more rows than those at ``way``; empty if nowhere."""
    rows = listed_at(document, way)
    found = (
        (place, _more_among(beside, rows, seen, depth=2)) for place, beside in _members_beside(document, way)
    )
    return next((place + member for place, member in found if member), "")


def more_in_headers(headers: Mapping[str, str], seen: Seen) -> str:
    """The header that says that there is more than ``seen``; empty for none."""
    if not seen.rows or not _tell_of_pages(tuple(headers)):
        return ""
    members: dict[str, Any] = dict(headers)
    for name, text in headers.items():
        with suppress(ValueError):
            members[name] = json.loads(text) if text.startswith("{") else text
    found = _more_among(members, seen.rows, seen._replace(is_total=True), depth=1)
    return found.split('"')[1] if found.startswith('"') else found.partition(".")[0]


@lru_cache(1024)
def _tell_of_pages(headers: tuple[str, ...]) -> bool:
    return _OF_HEADERS.search("\n".join(headers)) is not None


def listed_at(document: Any, way: Sequence[str]) -> int:
    """How many elements the list has that ``way`` leads to, 0 for none: an expression may leave some out."""
    listed = _value_at(document, way)
    return len(listed) if isinstance(listed, list) else 0


def _members_beside(document: Any, way: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The members beside ``way`` at each level, with their path."""
    place = ""
    if not way and isinstance(document, list) and list(map(type, document)) == [dict, list]:
        yield "[0].", document[0]  # the World Bank
    for name in way:
        if not isinstance(document, dict):
            return
        yield place, {other: value for other, value in document.items() if other != name}
        document, place = document.get(name), f"{place}{_jmespath_name(name)}."


@lru_cache(1024)
def _normalise_name(name: str) -> str:
    """``name`` normalised for comparison; common prefixes of headers are removed."""
    return plain_name(_PREFIX.sub("", name, count=1) if name.startswith("x-") else name)


def _more_among(
    members: Mapping[str, Any], rows: int, seen: Seen, depth: int, *, is_inside: bool = False
) -> str:
    """The member that reports more rows; with ``is_inside`` every object is about pages."""
    for name, value in members.items():
        plain = _normalise_name(name)
        if plain in _FOLLOWING and _is_followed(value):
            return _jmespath_name(name)
        if plain in ("link", "links") and isinstance(value, list) and (found := _link_among(value)):
            return f"{_jmespath_name(name)}{found}"
        if plain in _LAST and value is False:
            return _jmespath_name(name)
        if plain == "offset" and isinstance(value, str) and value and not value.isdecimal():  # Airtable
            return _jmespath_name(name)
        if depth and isinstance(value, dict) and (plain in PAGES or is_inside):
            found = _more_among(value, rows, seen, depth - 1, is_inside=True)
            if found:
                return f"{_jmespath_name(name)}.{found}"
    return _more_counted(members, rows, seen) if rows or seen.page else ""


def _link_among(links: Sequence[Any]) -> str:
    """The way to the link to the next page, as HAL's relatives and FHIR list links; empty for none."""
    for link in links:
        for rel, href in product(("rel", "relation"), ("href", "url")):
            if isinstance(link, dict) and link.get(rel) == "next" and link.get(href):
                return f"[?{rel}=='next'] | [0].{href}"
    return ""


def _is_followed(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_followed, value.values()))
    return is_something(value)


def _counts_by_name(members: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The whole numbers among ``members``, also those in texts, by plain name: each as it is spelled."""
    numbers = [
        (name, number_in(value)) for name, value in members.items() if _normalise_name(name) in _COUNTING
    ]
    return {_normalise_name(name): (name, number) for name, number in numbers if number is not None}


def _find_total(counts: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """How many there are in all; a count is that beside the size of a page."""
    names = (*COUNTS["all"], *(("count",) if not counts.keys().isdisjoint(COUNTS["size"]) else ()))
    return next((counts[name] for name in names if name in counts), ("", 0))


def _more_counted(members: Mapping[str, Any], rows: int, seen: Seen) -> str:
    """The count that says that there are more than ``rows`` here, or than were ``seen``."""
    counts = _counts_by_name(members)
    every = _find_total(counts)
    if (
        every[1] <= rows
        and counts.keys().isdisjoint(COUNTS["pages"])
        and type(members.get("total")) is not dict
    ):
        return ""

    def first(names: Iterable[str]) -> tuple[str, int] | None:
        return next((counts[name] for name in names if name in counts), None)

    start, size = first(COUNTS["from"]), first(COUNTS["size"])
    page, pages = first(COUNTS["page"]), first(COUNTS["pages"])
    if start and every[0] and start[1] >= 0:
        # SCIM counts from 1.
        before = max(0, start[1] - 1) if _normalise_name(start[0]) == "startindex" else start[1]
        return _jmespath_name(every[0]) if before + rows < every[1] else ""
    if pages and (page or seen.page):
        return _jmespath_name(pages[0]) if (seen.page or max(1, page[1] if page else 1)) < pages[1] else ""
    hits = next((value for name, value in members.items() if _normalise_name(name) == "total"), None)
    if isinstance(hits, dict) and hits.get("relation") in ("eq", "gte"):  # Elasticsearch
        return "total.value" if (number_in(hits.get("value")) or 0) > max(rows, seen.rows) else ""
    if {"number", "totalpages"} <= counts.keys():  # Spring counts from 0
        name, last = counts["totalpages"]
        return _jmespath_name(name) if 0 <= counts["number"][1] < last - 1 else ""
    if not seen.rows or (page and page[1] > 1 and not seen.page):
        return ""
    many = first(_PAGES_ALONE)
    if many and many[1] > 1:
        return _jmespath_name(many[0])
    is_total = seen.is_total or _normalise_name(every[0]) in _ALL_ALONE or page or (pages and pages[1] > 1)
    is_cut = size and rows >= size[1] > 0
    return _jmespath_name(every[0]) if (is_total or is_cut) and seen.rows < every[1] else ""


def _jmespath_name(name: str) -> str:
    """``name`` as JMESPath spells it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'


# --- lists in rows that are cut -------------------------------------------------------------------


@lru_cache(256)
def has_list(kind: pa.DataType) -> bool:
    """Whether values of ``kind`` are or hold lists."""
    if types.is_struct(kind):
        return any(has_list(kind.field(position).type) for position in range(kind.num_fields))
    return bool(types.is_list(kind))


def cut_list(row: Any, path: Path, kind: pa.DataType) -> str:
    """Where ``row`` says that a list is cut which ``path`` leads to, as a column of ``kind``; or empty."""
    listed = _value_at(row, path.way)
    if isinstance(listed, list):
        for at, (place, beside) in enumerate(_members_beside(row, path.way)):
            # Members beside the list in the row are ordinary columns, unless they bear the list's name.
            found = _member_after_list(path.way[at], beside)
            if at and not found:
                found = _more_among(beside, len(listed), Seen(len(listed)), depth=1)
            if found:
                return place + found
    return _find_cut_list(path.find(row), kind)


def _member_after_list(name: str, beside: Mapping[str, Any]) -> str:
    """The member that says that the list ``name`` beside it goes on: ``Items@odata.nextLink``."""
    plain = plain_name(name)
    for other, value in beside.items():
        rest = plain_name(other).removeprefix(plain)
        if len(rest) < len(plain_name(other)) and rest in _FOLLOWING and _is_followed(value):
            return _jmespath_name(other)
    return ""


def _find_cut_list(value: Any, kind: pa.DataType) -> str:
    if types.is_list(kind) and isinstance(value, list) and has_list(kind.value_type):
        return next(filter(None, (_find_cut_list(each, kind.value_type) for each in value)), "")
    if not types.is_struct(kind) or not isinstance(value, dict):
        return ""
    fields = [kind.field(position) for position in range(kind.num_fields)]
    beside = {name: each for name, each in value.items() if all(name != field.name for field in fields)}
    for field in fields:
        inside = value.get(field.name)
        if isinstance(inside, list):
            found = _member_after_list(field.name, beside)
            # A struct with nothing but a list holds a page.
            if len(fields) == 1 and not found:
                found = _more_among(beside, len(inside), Seen(len(inside)), depth=1)
            if found:
                return found
        if has_list(field.type) and (found := _find_cut_list(inside, field.type)):
            return f"{_jmespath_name(field.name)}.{found}"
    return ""
