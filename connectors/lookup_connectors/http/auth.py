"""Ways to say who we are; each gives the headers that prove it, and some can renew them."""

from __future__ import annotations

import asyncio
import json
import netrc
import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, quote_plus, urlencode

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_connectors.http.answer import HttpFailure, KeptConnectionLost, Response
from lookup_connectors.http.engine import Sender, one_of
from lookup_connectors.http.request import Request

_EARLY_SECONDS = 30.0
"""A token is renewed this long before it ends, or in the last tenth of its life where that is shorter."""


class Auth(Protocol):
    """Who we are."""

    renews: bool

    @property
    def known(self) -> dict[str, str] | None:
        """The headers for the next request; None where they must be fetched first."""

    async def fetched(self, sender: Sender, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The headers for the next request."""

    async def renew(self, refused: dict[str, str], sender: Sender, lease: ByteLease, timeout: float) -> None:
        """Get new ones, as the server refused these."""


@dataclass(frozen=True)
class Fixed:
    """Headers that stay the same: basic, a bearer token, an API key, or none."""

    known: dict[str, str]
    renews = False

    async def fetched(self, sender: Sender, lease: ByteLease, timeout: float) -> dict[str, str]:
        return self.known

    async def renew(self, refused: dict[str, str], sender: Sender, lease: ByteLease, timeout: float) -> None:
        """Nothing can be renewed."""
        raise AssertionError("fixed credentials are not renewed")


def basic(user: str, password: str) -> dict[str, str]:
    """The header of basic authentication."""
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def netrc_path() -> str:
    """The file of ``NETRC``, or ``~/.netrc``."""
    return os.environ.get("NETRC") or os.path.expanduser("~/.netrc")  # noqa: PTH111 (no home is no error)


def from_netrc(table: str, path: str, host: str, known: set[str]) -> dict[str, str]:
    """What the file at ``path`` says of ``host``; nothing where there is no such file.

    Its password is added to ``known``, the texts that may not be shown.

    Raises:
        HttpFailure: the file cannot be read.
    """
    try:
        found = netrc.netrc(path).authenticators(host)
    except FileNotFoundError:
        return {}
    except netrc.NetrcParseError as error:  # its message may hold a password
        problem = f"line {error.lineno} is not understood"
        raise HttpFailure(f"table {table}: {path} cannot be read: {problem}.", permanent=True) from None
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not UTF-8"
        raise HttpFailure(f"table {table}: {path} cannot be read: {problem}.", permanent=True) from None
    if found is None:
        return {}
    user, _, password = found
    if password:
        known.add(password)
    return basic(user, password or "")


@dataclass
class _Token:
    headers: dict[str, str]
    renew_at: float


class ClientCredentials:
    """OAuth2 client credentials: one token for all, fetched when first wanted and renewed before it ends."""

    renews = True

    def __init__(
        self,
        table: str,
        *,
        url: str,
        client: tuple[str, str],
        in_body: bool,
        extra: dict[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._url = url
        self._client = client
        self._in_body = in_body
        self._extra = extra
        self._clock = clock
        self._token: _Token | None = None
        self._fetches = 0
        self._fetching = asyncio.Semaphore(1)
        self._failure: HttpFailure | None = None
        self.secrets: set[str] = set()

    @property
    def known(self) -> dict[str, str] | None:
        """The header with a token that lives on for a while, where there is one."""
        token = self._token
        return None if token is None or self._clock() >= token.renew_at else token.headers

    async def fetched(self, sender: Sender, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The header with a new token, which another request may have fetched meanwhile.

        Whoever waited while another fetched shares what came of it.
        """
        old, fetches = self._token, self._fetches
        async with one_of(self._fetching, lease):
            if self._fetches != fetches and self._failure is not None:
                raise self._failure
            if self._token is None or self._token is old:
                await self._fetch(sender, lease, timeout)
        assert self._token is not None
        return self._token.headers

    async def renew(self, refused: dict[str, str], sender: Sender, lease: ByteLease, timeout: float) -> None:
        """A new token, unless another request has fetched one meanwhile."""
        if self._token is not None and self._token.headers == refused:
            await self.fetched(sender, lease, timeout)

    async def _fetch(self, sender: Sender, lease: ByteLease, timeout: float) -> None:
        request = self._request()
        try:
            try:
                response = await sender.send(request, timeout, lease)
            except KeptConnectionLost:
                response = await sender.send(request, timeout, lease, fresh=True)
            self._token, self._failure = self._read(response), None
        except HttpFailure as failure:
            self._token, self._failure = None, failure
            raise
        finally:
            self._fetches += 1

    def _request(self) -> Request:
        form = {"grant_type": "client_credentials", **self._extra}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._in_body:
            form |= dict(zip(("client_id", "client_secret"), self._client, strict=True))
        else:
            headers |= basic(*(quote(part, safe="") for part in self._client))  # RFC 6749, 2.3.1
        return Request("POST", self._url, headers, urlencode(form, quote_via=quote_plus).encode())

    def _read(self, response: Response) -> _Token:
        answer = _json_object(response)
        if not 200 <= response.status < 300:
            raise self._refusal(response, answer)
        token, life = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not token:
            text = f"table {self._table}: the answer of 'oauth2-token-url' has no access_token."
            raise HttpFailure(text, permanent=True)
        self.secrets.add(token)
        seconds = float(life) if isinstance(life, int | float | str) and _is_number(life) else 3600.0
        # A token of half a minute must be of use, too.
        renew_at = self._clock() + seconds - min(_EARLY_SECONDS, seconds / 10)
        return _Token({"Authorization": f"Bearer {token}"}, renew_at)

    def _refusal(self, response: Response, answer: dict[str, Any]) -> HttpFailure:
        named = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
        said = f": {', '.join(named)}" if named else ""
        may_pass = response.status == 429 or response.status >= 500
        tip = "" if may_pass else " Check 'oauth2-client-id' and 'oauth2-client-secret'."
        failure = HttpFailure(
            f"table {self._table}: no token from 'oauth2-token-url': it answered"
            f" {response.status}{said}.{tip}",
            permanent=not may_pass,
        )
        failure.response = response
        return failure


def _json_object(response: Response) -> dict[str, Any]:
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _is_number(life: Any) -> bool:
    try:
        return float(life) > 0
    except ValueError:
        return False
