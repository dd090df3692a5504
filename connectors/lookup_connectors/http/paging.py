"""The way from one page of an answer to the next, and where an answer says that there is one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from lookup_connectors.http.completeness import Seen, listed_at, more_in_headers, more_told
from lookup_connectors.http.error_bodies import number_in
from lookup_connectors.http.exchange import Answered, Begun, Exchange
from lookup_connectors.http.headers import next_link
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure, PageRows, Response, ResponseReader
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_connectors.shared.json_paths import Path, PathFailure, parse_path

KINDS = ("none", "link", "next_url", "cursor", "page", "offset")

_PART = re.compile(r"(\d{1,18})-(\d{1,18})/(\d{1,18})")
_ASKED_FOR = "'page' or 'offset' may ask for the rest, or 'cursor' where there is a cursor, too"
# Status codes of APIs for a page beyond the last.
_BEYOND = (400, 404, 410, 416, 422)


# Part of an answer is no answer: a sign of further pages is followed, or the answer is refused.
# (docs/decisions/0176)
@dataclass(frozen=True)
class Paging:
    """The paging of an API.

    Args:
        kind: one of ``KINDS``; empty if not configured: then an incomplete answer is refused.
        path: path to the next URL or the cursor in the document.
        parameter: the parameter that takes the cursor, the page's number or the offset.
        first: number of the first page.
        size: rows of a full page, if known: a shorter one is the last.
        most: pages to read at most.
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
        """Whether pages are counted, so that only a request beyond the last page may show the end."""
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
        so_far, before = 0, b""
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
                told = self._explain_failure(failure, len(asked))
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
            count = _count_rows(answered, reader) if self.is_counted else 0
            so_far += count
            if self.is_counted and count and answered.response.body == before:
                raise reader.refused(
                    f"page {len(asked)} is the one before again: the API does not page by"
                    f" 'paging-parameter' = {self.parameter!r}."
                )
            before = answered.response.body if isinstance(answered.classified.document, dict) else b""
            try:
                current = self._next_request(current, answered, len(asked), count, so_far, exchange, reader)
            except PathFailure as error:
                assert self.path is not None, "no other way follows one"
                raise reader.not_followed(self.path, "'paging-path'", error) from None
            except ValueError as error:
                raise reader.refused(f"{error}.") from None
        assert rows is not None, "the first page was asked for"
        if not rows.rows and answered.classified.no_place:
            raise reader.refused(answered.classified.no_place, answered.response)
        return answered.response, rows

    def is_whole(self, answered: Answered, exchange: Exchange, reader: ResponseReader) -> bool:
        """Whether the first page is the whole answer, without any sign of further pages."""
        if answered.classified.kind == "miss":
            return True
        if answered.classified.no_place:
            return False
        try:
            return self._next_request(answered.request, answered, 1, 0, 0, exchange, reader) is None
        except (PathFailure, ValueError, HttpFailure):
            return False

    def _next_request(
        self,
        request: Request,
        answered: Answered,
        page: int,
        count: int,
        so_far: int,
        exchange: Exchange,
        reader: ResponseReader,
    ) -> Request | None:
        """The request for the page after ``page``, which has ``count`` of ``so_far`` rows; None for the last.

        Raises:
            PathFailure: the path leads to something that is not a URL, or no cursor.
            ValueError: the answer says that there is more, and not how to get it; or a header cannot be read.
        """
        if self.kind == "none":
            return None
        rows = answered.classified.rows
        if self.is_counted:
            if (not count or (self.size or 0) > count) and not self._page_ended_early(
                answered, page, count, so_far, reader
            ):
                return None
            return self._with_parameter(request, self.first + page if self.kind == "page" else so_far)
        following = self._request_named_next(request, answered, exchange) if self.kind else None
        if following is None and not reader.takes_part and (rows.is_listed or not rows.rows):
            self._refuse_incomplete(answered, reader.rows.way)
        return following

    def _page_ended_early(
        self, answered: Answered, page: int, count: int, so_far: int, reader: ResponseReader
    ) -> bool:
        """Whether a page that looks like the last is none, as a total says: servers have a most of their own.

        Raises:
            ValueError: there should be more, and nothing came.
        """
        where, _ = _more_in(answered, reader.rows.way, Seen(so_far, page, is_total=True))
        if where and not count and not reader.takes_part:
            raise ValueError(
                f"the answer says in {where} that there is more, and page {page} is empty after {so_far}"
                " rows. 'partial' = 'accept' takes those"
            )
        return bool(where) and count > 0

    def _request_named_next(self, request: Request, answered: Answered, exchange: Exchange) -> Request | None:
        """The request for the page that this one names as its next."""
        if self.kind == "link":
            link = _next_link(answered)
            return None if link is None else exchange.page(answered.request, link)
        if self.path is None:
            return None
        found = self.path.find(answered.classified.document)
        if found is None or found is False or found == "":
            return None
        if self.kind == "next_url":
            return exchange.page(answered.request, _check_type(found, str))
        return self._with_parameter(request, _check_type(found, str, int, float, Decimal))

    # A warning in a worker's log would leave the rows wrong; `'paging' = 'none'` is the way to want the first
    # page alone. (docs/decisions/0176)
    def _refuse_incomplete(self, answered: Answered, way: Sequence[str]) -> None:
        """Refuse an answer that is not all, where nothing says that a part is wanted.

        Raises:
            ValueError: the answer says that there is more than its rows.
        """
        where, how = _more_in(
            answered, way, Seen(0 if self.kind else listed_at(answered.classified.document, way))
        )
        if not where:
            return
        if self.kind:
            which = "'paging-path' finds no next page" if self.path else "no header Link leads to it"
            raise ValueError(f"the answer says in {where} that there is more, and {which}. {how}")
        raise ValueError(
            f"the answer says in {where} that there is more, and 'paging' is not set. {how}."
            " 'paging' = 'none' takes the first page alone"
        )

    def _explain_failure(self, failure: HttpFailure, page: int) -> HttpFailure:
        """``failure`` of the request for ``page`` (from 1), with a note if paging may be the cause."""
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
            query = _set_in_query(parts.query, self.parameter, value)
            return request._replace(url=urlunsplit(parts._replace(query=query)))
        if self.in_form:
            return request._replace(body=_set_in_query(request.body.decode(), self.parameter, value).encode())
        return request._replace(body=_set_in_body(request.body, self.parameter.split("."), value))


def _check_type(found: Any, *expected: type) -> Any:
    if type(found) not in expected:
        raise PathFailure(f"{json.dumps(found, default=str)[:60]} came, which leads to no page")
    return found


def _next_link(answered: Answered) -> str | None:
    """The URL of the next page in the header Link."""
    header = answered.response.headers.get("link", "")
    try:
        return next_link(header, answered.request.url) if header else None
    except ValueError as error:
        raise ValueError(f"the header Link cannot be read: {error} ({header[:120]})") from None


_NEXT = re.compile(r"\brel\s*=\s*[\"']?[^\"';,]*\bnext\b", re.IGNORECASE)


def _count_rows(answered: Answered, reader: ResponseReader) -> int:
    """How many rows an answer has, with those that `rows` leaves out: pages are counted by all."""
    found = len(answered.classified.rows.rows)
    return max(found, listed_at(answered.classified.document, reader.rows.way))


def _more_in(answered: Answered, way: Sequence[str], seen: Seen) -> tuple[str, str]:
    """Where an answer says that there is more than its rows, and how that is read; empty for nowhere."""
    headers, document = answered.response.headers, answered.classified.document
    try:
        leads_on = _next_link(answered) is not None
    except ValueError:  # an unreadable link is still a sign of a further page
        leads_on = _NEXT.search(headers["link"]) is not None
    if leads_on:
        return "the header Link", "'paging' = 'link' follows it"
    part = _PART.search(headers.get("content-range", ""))
    if part and (int(part[1]) > 0 or int(part[2]) + 1 < int(part[3])):
        return "the header Content-Range", "'paging' = 'offset' may ask for the rest"
    if header := more_in_headers(headers, seen):
        return f"the header {header}", "'paging' = 'page' or 'offset' may ask for the rest"
    if member := more_told(document, way, seen):
        quoted = member.replace("'", "''")
        found = parse_path(member).find(document)
        leads = isinstance(found, str | dict) and number_in(found) is None
        ways = f"'next_url' or 'cursor' with 'paging-path' = '{quoted}' may follow it"
        return (f"its member {member}", f"'paging' = {ways if leads else _ASKED_FOR}")
    return "", ""


def _set_in_query(query: str, name: str, value: str | float | Decimal) -> str:
    kept = [each for each in query.split("&") if each and dict(parse_qsl(each, True)).keys() != {name}]
    return "&".join([*kept, f"{quote(name, safe='')}={quote(str(value), safe='')}"])


def has_room(body: Any, parameter: str) -> bool:
    """Whether the JSON document ``body`` can take ``parameter`` as a member: dots lead into objects."""
    for name in parameter.split(".")[:-1]:
        body = body.get(name, {}) if isinstance(body, dict) else None
    return isinstance(body, dict)


def _set_in_body(body: bytes, names: list[str], value: str | float | Decimal) -> bytes:
    document = json.loads(body)
    place = document
    for name in names[:-1]:
        place = place.setdefault(name, {})
    place[names[-1]] = float(value) if isinstance(value, Decimal) else value
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
