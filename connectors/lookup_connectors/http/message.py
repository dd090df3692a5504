"""Requests and responses as plain values, whatever client carries them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from lookup_hints.errors import ConnectorError

STANDING_HEADERS = {
    "User-Agent": "lookup-hints",
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
}
"""Sent with every request that does not say otherwise."""


@dataclass(frozen=True)
class Private:
    """What of a request may go to one origin only.

    Args:
        headers: names of headers, in lower case.
        body: whether the body is.
    """

    headers: frozenset[str] = frozenset()
    body: bool = False


class Request(NamedTuple):
    """One HTTP request: a named tuple, as a frozen dataclass takes four times as long to make.

    Args:
        method: GET or POST.
        url: absolute, with its query, all of it encoded.
        headers: by name; credentials are not among them, they are added for each attempt.
        body: what is sent, if anything.
        private: what of it no other origin may see.
    """

    method: str
    url: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    private: Private = Private()

    def __repr__(self) -> str:
        return f"Request({self.method} to {self.origin})"  # the rest may hold secrets

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return origin_of(self.url)

    def with_headers(self, more: Mapping[str, str]) -> Request:
        """The same request with ``more`` headers, those apart that it has itself."""
        if not more:
            return self
        own = {name.lower() for name in self.headers}
        added = {name: value for name, value in more.items() if name.lower() not in own}
        return self._replace(headers={**self.headers, **added})


class Response(NamedTuple):
    """One HTTP response, read whole.

    Args:
        status: the status code.
        headers: by name in lower case; values of a name that came twice are joined with commas.
        body: as it was before any content encoding.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def excerpt(self) -> str:
        """The beginning of the body as text, for an error message."""
        text = " ".join(self.body[:400].decode("utf-8", "replace").split())
        return text if len(text) <= 120 else f"{text[:117]}..."


class HttpFailure(ConnectorError):
    """A lookup over HTTP failed; it remembers the response, where there was one, and the time it took."""

    elapsed: float | None = None
    _response: Response | None = None

    @property
    def response(self) -> Response | None:
        """The response, without its body: failures may be kept for long."""
        return self._response

    @response.setter
    def response(self, response: Response) -> None:
        self._response = response._replace(body=b"")


class KeptConnectionLost(HttpFailure):
    """A kept connection ended before any answer: perhaps the server closed it just when it was taken."""


_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"[a-zA-Z]+://[^/?#]*")


def origin_of(url: str) -> str:
    """Scheme, host and port of ``url``, in one spelling.

    Raises:
        ValueError: it is not an absolute HTTP URL.
    """
    authority = _AUTHORITY.match(url)
    return _origin(url if authority is None else authority[0])


@lru_cache(256)  # asked for every request, and they go to few
def _origin(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("write an absolute URL: https://host/path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or _PORTS[parts.scheme]}"


def host_and_port(url: str) -> tuple[str, int | None]:
    """Whom ``url`` leads to: an API, a proxy.

    Raises:
        ValueError: its port is none.
    """
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def joined_url(base: str, link: str) -> str:
    """``link`` as seen from ``base``, without a fragment."""
    return urljoin(base, link).partition("#")[0]
