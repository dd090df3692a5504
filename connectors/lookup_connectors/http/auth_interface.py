"""What proves who we are: headers that are added to each request, or a signature of it."""

from __future__ import annotations

from lookup_connectors.http.client import HttpClient
from lookup_connectors.http.request import Request
from lookup_connectors.shared.bytes_in_flight import ByteLease


class Auth:
    """Headers that stay the same: basic, a bearer token, an API key, or none."""

    renews = False

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    @property
    def known(self) -> dict[str, str] | None:
        """The headers for the next request; None where they must be fetched first."""
        return self._headers

    async def fetched(self, client: HttpClient, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The headers for the next request."""
        return self._headers

    def forget(self, refused: dict[str, str]) -> None:
        """The server refused these: others must be fetched."""

    def applied(self, request: Request, credentials: dict[str, str]) -> Request:
        """``request`` with ``credentials``, just before it is sent."""
        return request._replace(headers={**request.headers, **credentials})
