"""The way from one page of an answer to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from lookup_connectors.http.message import Request, Response
from lookup_connectors.http.paths import Path, PathFailure

KINDS = ("none", "link", "next_url", "cursor", "page", "offset")

Follow = Callable[[Request, str], Request]
"""A request and a link -> the request for what the link leads to."""


@dataclass(frozen=True)
class Paging:
    """How an API pages.

    Args:
        kind: one of ``KINDS``.
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
    def may_miss(self) -> bool:
        """Whether the page after the last is asked for, too: the API may have nothing to say but that."""
        return self.kind in ("page", "offset")

    def begin(self, request: Request) -> Request:
        """The request for the first page."""
        if self.kind == "page":
            return self._with_parameter(request, self.first)
        return self._with_parameter(request, 0) if self.kind == "offset" else request

    def following(
        self,
        request: Request,
        response: Response,
        document: Any,
        page: int,
        rows: tuple[int, int],
        follow: Follow,
    ) -> Request | None:
        """The request for the page after this one, or None where it is the last.

        Args:
            request: the one that brought this page.
            response: the response to it.
            document: what its body holds.
            page: how many pages were read so far, with this one.
            rows: how many rows this page has, and how many all pages so far have.
            follow: makes a request of a link.

        Raises:
            PathFailure: the path leads to something that is not a URL, or no cursor.
        """
        here, so_far = rows
        if self.kind == "link":
            link = _next_link(response.headers.get("link", ""))
            return follow(request, link) if link else None
        if self.kind in ("next_url", "cursor"):
            assert self.path is not None
            found = self.path.find(document)
            if found is None or found is False or found == "":
                return None
            if self.kind == "next_url":
                return follow(request, _checked(found, str))
            return self._with_parameter(request, _checked(found, str, int, float, Decimal))
        if self.kind == "none" or here == 0 or (self.size is not None and here < self.size):
            return None
        value = self.first + page if self.kind == "page" else so_far
        return self._with_parameter(request, value)

    def _with_parameter(self, request: Request, value: str | float | Decimal) -> Request:
        """``request`` with the parameter set: in its query, its form, or its JSON body."""
        if request.body is None:
            parts = urlsplit(request.url)
            query = _in_query(parts.query, self.parameter, value)
            return replace(request, url=urlunsplit(parts._replace(query=query)))
        if self.in_form:
            return replace(request, body=_in_query(request.body.decode(), self.parameter, value).encode())
        return replace(request, body=_in_body(request.body, self.parameter.split("."), value))


def _checked(found: Any, *expected: type) -> Any:
    if type(found) not in expected:
        raise PathFailure(f"{json.dumps(found, default=str)[:60]} came, which leads to no page")
    return found


def _next_link(header: str) -> str | None:
    """The URL with ``rel="next"`` in a Link header (RFC 8288)."""
    for match in re.finditer(r"<([^>]*)>((?:\s*;[^,;]*)*)", header):
        if re.search(
            r";\s*rel\s*=\s*\"?(?:[^\"]*\s)?next(?:\s[^\"]*)?\"?\s*(?:;|$)", match[2], re.IGNORECASE
        ):
            return match[1]
    return None


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
