"""Where an answer says that there is more than its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from lookup_connectors.http.envelope import COUNTS, is_something, number_in, plain_name, word_set

_FOLLOWING = word_set(
    """
    next nextpage nextpagetoken nexttoken nextlink nextcursor nexturl nexturi nexthref nextpageurl
    nextpageuri nextpagelink nextmarker nextcontinuationtoken nextrecordsurl nextoffset nextstart nextkey
    nextpagecursor continue continuation continuationtoken lastevaluatedkey odatanextlink hasmore hasnext
    hasnextpage hasmoreresults hasmoreitems moreresults morepages morerecords moreitems more
    moreresultsavailable istruncated truncated incompleteresults exceededtransferlimit
    """
)
_LAST = frozenset({"islast", "islastpage", "last", "lastpage"})
_PAGES = word_set(
    """
    pagination paging page pageinfo pages links meta metadata cursor cursors responsemetadata paginginfo
    paginationinfo pageinformation resultinfo info
    """
)


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
        plain = plain_name(name)
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
    return is_something(value)


def _more_counted(members: Mapping[str, Any], rows: int) -> str:
    counts = {plain_name(name): (name, value) for name, value in members.items() if type(value) is int}

    def first(kind: str) -> tuple[str, int] | None:
        return next((counts[name] for name in COUNTS[kind] if name in counts), None)

    start, every = first("from"), first("all")
    if start and every and rows and start[1] >= 0:
        before = (
            max(0, start[1] - 1) if plain_name(start[0]) == "startindex" else start[1]
        )  # SCIM counts from 1
        if before + rows < every[1]:
            return _spelled(every[0])
    page, pages = first("page"), first("pages")
    if page and pages and rows and max(1, page[1]) < pages[1]:
        return _spelled(pages[0])
    hits = next((value for name, value in members.items() if plain_name(name) == "total"), None)
    if rows and isinstance(hits, dict) and hits.get("relation") in ("eq", "gte"):  # Elasticsearch
        return "total.value" if (number_in(hits.get("value")) or 0) > rows else ""
    if rows and {"number", "totalpages"} <= counts.keys():  # Spring counts from 0
        name, last = counts["totalpages"]
        return _spelled(name) if 0 <= counts["number"][1] < last - 1 else ""
    return ""


def _spelled(name: str) -> str:
    """``name`` as JMESPath spells it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'
