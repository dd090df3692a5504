"""The way from one page of an answer to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from lookup_connectors.http.message import Request, Response
from lookup_connectors.http.paths import Path

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
    """

    kind: str
    path: Path | None
    parameter: str
    first: int
    size: int | None
    most: int

    def begin(self, request: Request) -> Request:
        """The request for the first page."""
        if self.kind == "page":
            return with_parameter(request, self.parameter, self.first)
        return with_parameter(request, self.parameter, 0) if self.kind == "offset" else request

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
                return follow(request, str(found))
            return with_parameter(request, self.parameter, found)
        if self.kind == "none" or here == 0 or (self.size is not None and here < self.size):
            return None
        value = self.first + page if self.kind == "page" else so_far
        return with_parameter(request, self.parameter, value)


def _next_link(header: str) -> str | None:
    """The URL with ``rel="next"`` in a Link header (RFC 8288)."""
    for match in re.finditer(r"<([^>]*)>((?:\s*;[^,;]*)*)", header):
        if re.search(
            r";\s*rel\s*=\s*\"?(?:[^\"]*\s)?next(?:\s[^\"]*)?\"?\s*(?:;|$)", match[2], re.IGNORECASE
        ):
            return match[1]
    return None


def with_parameter(request: Request, name: str, value: Any) -> Request:
    """``request`` with a parameter set: in its query, or in a JSON body, where dots lead into objects."""
    if request.body is not None:
        return replace(request, body=_in_body(request.body, name.split("."), value))
    parts = urlsplit(request.url)
    kept = [each for each in parts.query.split("&") if each and dict(parse_qsl(each, True)).keys() != {name}]
    query = "&".join([*kept, f"{quote(name, safe='')}={quote(str(value), safe='')}"])
    return replace(request, url=urlunsplit(parts._replace(query=query)))


def _in_body(body: bytes, names: list[str], value: Any) -> bytes:
    document = json.loads(body)
    place = document
    for name in names[:-1]:
        place = place.setdefault(name, {})
    place[names[-1]] = value
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
