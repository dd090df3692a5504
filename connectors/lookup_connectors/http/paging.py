"""The way from one page of an answer to the next, and where an answer says that there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_connectors.http.error_bodies import COUNTS, is_something, number_in, plain_name, word_set
from lookup_connectors.http.exchange import Answered, Begun, Exchange
from lookup_connectors.http.headers import next_link
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure, PageRows, Response, ResponseReader
from lookup_connectors.json_paths import Path, PathFailure, parse_path

KINDS = ("none", "link", "next_url", "cursor", "page", "offset")

_PART = re.compile(r"(\d{1,18})-(\d{1,18})/(\d{1,18})")
_ASKED_FOR = "'page' or 'offset' may ask for the rest, or 'cursor' where there is a cursor, too"
_BEYOND = (400, 404, 410, 416, 422)
"""What APIs answer that are asked for a page behind the last one."""


@dataclass(frozen=True)
class Paging:
    """How an API pages.

    Args:
        kind: one of ``KINDS``; empty where none is given: then an answer that is not all is refused.
        path: where the next URL or the cursor stands in the document.
        parameter: the parameter that takes the cursor, the page's number or the offset.
        first: number of the first page.
        size: rows of a full page, where it is known: a shorter one is the last.
        most: pages that are read, at most.
        in_form: whether a body is a form, and no JSON.
    """

    kind: str
    path: Path | None
    parameter: str
    first: int
    size: int | None
    most: int
    in_form: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether the page after the last is asked for, too: the API may have nothing to say but that."""
        return self.kind in ("page", "offset")

    async def pages(
        self,
        request: Request,
        exchange: Exchange,
        reader: ResponseReader,
        deadline: float | None,
        lease: ByteLease,
        begun: Begun | None = None,
    ) -> tuple[Response, PageRows]:
        """The last response to ``request``, and the rows of all pages; ``begun``: the first was sent already.

        Raises:
            HttpFailure: a page cannot be read, or the pages have no end.
        """
        current: Request | None = request
        if self.is_counted:
            current = self._with_parameter(request, self.first if self.kind == "page" else 0)
        rows: PageRows | None = None
        asked: set[tuple[str, bytes | None]] = set()
        while current is not None:
            if (current.url, current.body) in asked:
                raise reader.refused("the next page is one that was read already.")
            if len(asked) == self.most:
                raise reader.refused(
                    f"there are more than {self.most} pages ('max-pages'). Nothing is cut off: ask for less."
                )
            asked.add((current.url, current.body))
            try:
                answered = await exchange.ask(current, deadline, lease, begun)
            except HttpFailure as failure:
                told = self._explained(failure, len(asked))
                if told is failure:
                    raise
                raise told from None
            begun = None
            if answered.classified.kind == "miss":
                if rows is not None and not self.is_counted:
                    raise reader.refused(f"the next page is not there ({answered.response.status}).")
                rows = rows or answered.classified.rows
                break
            if rows is None:
                rows = answered.classified.rows
            else:
                rows.add(answered.classified.rows)
            try:
                current = self._following(current, answered, len(asked), len(rows.rows), exchange, reader)
            except PathFailure as error:
                assert self.path is not None, "no other way follows one"
                raise reader.not_followed(self.path, "'paging-path'", error) from None
            except ValueError as error:
                raise reader.refused(f"{error}.") from None
        assert rows is not None, "the first page was asked for"
        return answered.response, rows

    def is_whole(self, answered: Answered, exchange: Exchange, reader: ResponseReader) -> bool:
        """Whether the first page is all: nothing leads on, or has to be said of that."""
        if answered.classified.kind == "miss":
            return True
        rows = answered.classified.rows.rows
        try:
            return self._following(answered.request, answered, 1, len(rows), exchange, reader) is None
        except (PathFailure, ValueError, HttpFailure):
            return False

    def _following(
        self,
        request: Request,
        answered: Answered,
        page: int,
        so_far: int,
        exchange: Exchange,
        reader: ResponseReader,
    ) -> Request | None:
        """The request for the page after ``page``, with which there are ``so_far`` rows; None for the last.

        Raises:
            PathFailure: the path leads to something that is not a URL, or no cursor.
            ValueError: the answer says that there is more, and not how to get it; or a header cannot be read.
        """
        if self.kind == "none":
            return None
        rows = answered.classified.rows
        if self.is_counted:
            if not rows.rows or (self.size is not None and len(rows.rows) < self.size):
                return None
            return self._with_parameter(request, self.first + page if self.kind == "page" else so_far)
        following = self._said_to_follow(request, answered, exchange) if self.kind else None
        if following is None and (rows.is_listed or not rows.rows):
            self._refuse_more(answered, reader.rows.way)
        return following

    def _said_to_follow(self, request: Request, answered: Answered, exchange: Exchange) -> Request | None:
        """The request for the page that this one names as its next."""
        if self.kind == "link":
            link = _link(answered)
            return None if link is None else exchange.page(answered.request, link)
        if self.path is None:
            return None
        found = self.path.find(answered.classified.document)
        if found is None or found is False or found == "":
            return None
        if self.kind == "next_url":
            return exchange.page(answered.request, _checked(found, str))
        return self._with_parameter(request, _checked(found, str, int, float, Decimal))

    def _refuse_more(self, answered: Answered, way: Sequence[str]) -> None:
        """Refuse an answer that is not all, where nothing says that a part is wanted.

        Raises:
            ValueError: the answer says that there is more than its rows.
        """
        where, how = _more_in(answered, way)
        if not where:
            return
        if self.kind:
            which = "'paging-path' finds no next page" if self.path else "no header Link leads to it"
            raise ValueError(f"the answer says in {where} that there is more, and {which}. {how}")
        raise ValueError(
            f"the answer says in {where} that there is more, and 'paging' is not set. {how}."
            " 'paging' = 'none' takes the first page alone"
        )

    def _explained(self, failure: HttpFailure, page: int) -> HttpFailure:
        """``failure``, which came of asking for ``page`` (from 1), and what that may have to do with it."""
        status = failure.response.status if failure.response else None
        if page == 1 or not self.is_counted or status not in _BEYOND:
            return failure
        size = " Then" if self.size else " Set 'page-size', so that a page with fewer rows is the last; or"
        return HttpFailure(
            f"{failure.message} It was asked for page {page}, as 'paging' = {self.kind!r} says; the pages"
            f" before it were read. Some APIs answer so behind their last page.{size} add {status} to"
            " 'miss-codes'.",
            permanent=failure.permanent,
            retry_after=failure.retry_after,
            response=failure.response,
        )

    def _with_parameter(self, request: Request, value: str | float | Decimal) -> Request:
        """``request`` with the parameter set: in its query, its form, or its JSON body."""
        if request.body is None:
            parts = urlsplit(request.url)
            query = _in_query(parts.query, self.parameter, value)
            return request._replace(url=urlunsplit(parts._replace(query=query)))
        if self.in_form:
            return request._replace(body=_in_query(request.body.decode(), self.parameter, value).encode())
        return request._replace(body=_in_body(request.body, self.parameter.split("."), value))


def _checked(found: Any, *expected: type) -> Any:
    if type(found) not in expected:
        raise PathFailure(f"{json.dumps(found, default=str)[:60]} came, which leads to no page")
    return found


def _link(answered: Answered) -> str | None:
    """The URL of the next page in the header Link."""
    header = answered.response.headers.get("link", "")
    try:
        return next_link(header, answered.request.url) if header else None
    except ValueError as error:
        raise ValueError(f"the header Link cannot be read: {error} ({header[:120]})") from None


def _more_in(answered: Answered, way: Sequence[str]) -> tuple[str, str]:
    """Where an answer says that there is more than its rows, and how that is read; empty for nowhere."""
    with suppress(ValueError):  # whatever it may say beside
        if _link(answered) is not None:
            return "the header Link", "'paging' = 'link' follows it"
    part = _PART.search(answered.response.headers.get("content-range", ""))
    if part and (int(part[1]) > 0 or int(part[2]) + 1 < int(part[3])):
        return "the header Content-Range", "'paging' = 'offset' may ask for the rest"
    member = more_told(answered.classified.document, way)
    if member:
        quoted = member.replace("'", "''")
        leads = isinstance(parse_path(member).find(answered.classified.document), str | dict)
        ways = f"'next_url' or 'cursor' with 'paging-path' = '{quoted}' may follow it"
        return (f"its member {member}", f"'paging' = {ways if leads else _ASKED_FOR}")
    return "", ""


def _in_query(query: str, name: str, value: str | float | Decimal) -> str:
    kept = [each for each in query.split("&") if each and dict(parse_qsl(each, True)).keys() != {name}]
    return "&".join([*kept, f"{quote(name, safe='')}={quote(str(value), safe='')}"])


def has_room(body: Any, parameter: str) -> bool:
    """Whether the JSON document ``body`` can take ``parameter`` as a member: dots lead into objects."""
    for name in parameter.split(".")[:-1]:
        body = body.get(name, {}) if isinstance(body, dict) else None
    return isinstance(body, dict)


def _in_body(body: bytes, names: list[str], value: str | float | Decimal) -> bytes:
    document = json.loads(body)
    place = document
    for name in names[:-1]:
        place = place.setdefault(name, {})
    place[names[-1]] = float(value) if isinstance(value, Decimal) else value
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# --- where an answer says that there is more ------------------------------------------------------

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
