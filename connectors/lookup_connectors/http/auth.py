"""Who we are: headers that prove it. Some stay the same, and a token is fetched and renewed."""

from __future__ import annotations

import asyncio
import json
import math
import netrc
import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus, urlencode, urlsplit

from lookup_connectors.http.auth_interface import Auth
from lookup_connectors.http.aws_signature import AwsSignature
from lookup_connectors.http.client import HttpClient, one_of
from lookup_connectors.http.network import basic
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure, KeptConnectionLost, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_connectors.shared.logins import connect_by_login
from lookup_hints.spi import LookupTable, Option
from lookup_hints.spi.secrets import calls

# A token is renewed this long before it ends, or in the last tenth of its life where that is shorter.
_EARLY_SECONDS = 30.0


class CalledAuth(Auth):
    """Headers with what functions of ``${call:}`` give: called again when that has ended, or is refused."""

    renews = True

    def __init__(self, table: LookupTable, declared: tuple[Option, ...]) -> None:
        super().__init__({})
        self._table, self._declared = table, declared
        self._used: set[str] = set()
        self._calling = asyncio.Semaphore(1)

    @property
    def known(self) -> dict[str, str] | None:
        return self._headers if self._headers and self._table.keeps_called() else None

    async def fetched(self, client: HttpClient, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The headers with values of the moment; concurrent callers share one call."""
        async with one_of(self._calling, lease):
            if self.known is None:
                reading = asyncio.to_thread(self._table.read, self._declared)
                try:
                    options, self._used = await asyncio.wait_for(reading, timeout)
                except asyncio.TimeoutError:
                    late = f"a function of ${{call:}} has not returned within {timeout:g} s"
                    raise HttpFailure(f"table {self._table.name}: {late}.") from None
                self._headers = {**self._called_headers(options), **_static_headers(options)}
            return self._headers

    def forget(self, refused: dict[str, str]) -> None:
        if self._headers == refused:
            self._table.forget_called(self._used)
            self._headers = {}

    def _called_headers(self, options: Mapping[str, Any]) -> dict[str, str]:
        written = self._table.options
        return {name: text for name, text in options["header."].items() if calls(written[f"header.{name}"])}


class ClientCredentials(Auth):
    """OAuth2 client credentials: one token for all, fetched when first wanted and renewed before it ends.

    Args:
        table: the table.
        declared: the options of the connector.
        url: where tokens are fetched.
        client: the client's name.
        in_body: whether the secret goes into the form.
        extra: more of the form.
        secrets: takes each token, which may not be shown.
    """

    renews = True

    def __init__(
        self,
        table: LookupTable,
        declared: tuple[Option, ...],
        *,
        url: str,
        client: str,
        in_body: bool,
        extra: dict[str, str],
        secrets: set[str],
    ) -> None:
        super().__init__({})
        self._lookup_table, self._declared = table, declared
        self._table = table.name
        self._url = url
        self._client = client
        self._in_body = in_body
        self._extra = extra
        self._secrets = secrets
        self._renew_at = -math.inf
        self._fetches = 0
        self._failure: HttpFailure | None = None
        self._fetching = asyncio.Semaphore(1)

    @property
    def known(self) -> dict[str, str] | None:
        return self._headers if time.monotonic() < self._renew_at else None

    async def fetched(self, client: HttpClient, lease: ByteLease, timeout: float) -> dict[str, str]:
        """The header with a new token; concurrent callers share one fetch and its result."""
        fetches = self._fetches
        async with one_of(self._fetching, lease):
            if self._fetches == fetches:
                await self._renew_token(client, lease, timeout)
            elif self._failure is not None:
                raise self._failure
        return self._headers

    def forget(self, refused: dict[str, str]) -> None:
        if self._headers == refused:
            self._renew_at = -math.inf  # those who wait for it still take it: they are refused, too

    async def _renew_token(self, client: HttpClient, lease: ByteLease, timeout: float) -> None:
        failure: HttpFailure | None = None

        async def fetch(secret: str) -> None:
            request = self._token_request(secret)
            try:
                response = await client.send(request, timeout, lease)
            except KeptConnectionLost:
                response = await client.send(request, timeout, lease, fresh=True)
            self._read_token(response)

        try:
            await connect_by_login(self._lookup_table, self._read_secret, fetch, _is_refused_client)
        except HttpFailure as error:
            failure = error
        # Not where this task is cancelled: the next one fetches.
        self._fetches += 1
        self._failure = failure
        if failure is not None:
            raise failure

    def _read_secret(self) -> tuple[str, set[str]]:
        options, used = self._lookup_table.read(self._declared)
        return options["oauth2-client-secret"], used

    def _token_request(self, secret: str) -> Request:
        form = {"grant_type": "client_credentials", **self._extra}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._in_body:
            form |= {"client_id": self._client, "client_secret": secret}
        else:
            headers["Authorization"] = basic(
                quote(self._client, safe=""), quote(secret, safe="")
            )  # RFC 6749, 2.3.1
        return Request("POST", self._url, headers, urlencode(form, quote_via=quote_plus).encode())

    def _read_token(self, response: Response) -> None:
        try:
            answer = json.loads(response.body)
        except (ValueError, RecursionError):
            answer = {}
        answer = answer if isinstance(answer, dict) else {}
        if not 200 <= response.status < 300:
            raise self._token_refusal(response, answer)
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            text = f"table {self._table}: the answer of 'oauth2-token-url' has no access_token."
            raise HttpFailure(text, permanent=True)
        self._secrets.add(token)
        seconds = _token_lifetime(answer.get("expires_in"))
        # A token of half a minute must be of use, too.
        self._renew_at = time.monotonic() + seconds - min(_EARLY_SECONDS, seconds / 10)
        self._headers = {"Authorization": f"Bearer {token}"}

    def _token_refusal(self, response: Response, answer: dict[str, Any]) -> HttpFailure:
        named = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
        said = f": {', '.join(named)}" if named else ""
        may_pass = response.status == 429 or response.status >= 500
        tip = "" if may_pass else " Check 'oauth2-client-id' and 'oauth2-client-secret'."
        return HttpFailure(
            f"table {self._table}: no token from 'oauth2-token-url': it answered"
            f" {response.status}{said}.{tip}",
            permanent=not may_pass,
            response=response,
        )


def _is_refused_client(error: Exception) -> bool:
    return (
        isinstance(error, HttpFailure) and error.response is not None and error.response.status in (400, 401)
    )


def _token_lifetime(told: Any) -> float:
    """The seconds that a token lives, as its answer says it; an hour where it does not."""
    try:
        seconds = float(told)
    except (TypeError, ValueError):
        return 3600.0
    return seconds if seconds > 0 else 3600.0


# Options that are sent in headers as they are.
_IN_HEADERS = ("password", "token", "api-key", "header.")


# --- from options ---------------------------------------------------------------------------------


def auth_of(
    table: LookupTable,
    declared: tuple[Option, ...],
    options: Mapping[str, Any],
    headers: Mapping[str, Any],
    home: str,
    secrets: set[str],
) -> Auth:
    """The credentials from the options of ``table``, else from .netrc if that is enabled.

    Args:
        table: the table.
        declared: the options of the connector.
        options: their values, with references resolved but for functions.
        headers: the headers of each request: with credentials among them .netrc is not read.
        home: the origin of the API.
        secrets: receives the texts that must not be shown.

    Raises:
        HttpFailure: .netrc cannot be read.
    """
    if options["aws-service"] is not None:
        return AwsSignature(table.name, options, secrets)
    if any(calls(text) for key, text in table.options.items() if key.startswith(_IN_HEADERS)):
        return CalledAuth(table, declared)
    if static := _static_headers(options):
        return Auth(static)
    if options["oauth2-token-url"] is not None:
        extra = {name: options[f"oauth2-{name}"] for name in ("scope", "audience")}
        return ClientCredentials(
            table,
            declared,
            url=options["oauth2-token-url"],
            client=options["oauth2-client-id"],
            in_body=options["oauth2-client-auth"] == "body",
            extra={name: text for name, text in extra.items() if text},
            secrets=secrets,
        )
    if not options["use-environment"] or any(name.lower() == "authorization" for name in headers):
        return Auth({})
    path = netrc_path()
    if table.restricts_files:
        table.check_file(path, option="use-environment")
    return Auth(_from_netrc(table.name, path, urlsplit(home).hostname or "", secrets))


def _static_headers(options: Mapping[str, Any]) -> dict[str, str]:
    """The header of basic authentication, of a token, or of an API key; none where none is given."""
    if options["username"] is not None:
        return {"Authorization": basic(options["username"], options["password"] or "")}
    if options["token"] is not None:
        return {"Authorization": f"Bearer {options['token']}"}
    if options["api-key"] is not None:
        return {options["api-key-header"]: options["api-key"]}
    return {}


def netrc_path() -> str:
    """The file of ``NETRC``, or ``~/.netrc``."""
    return os.environ.get("NETRC") or os.path.expanduser("~/.netrc")  # noqa: PTH111 (no home is no error)


def _from_netrc(table: str, path: str, host: str, secrets: set[str]) -> dict[str, str]:
    """The header from the .netrc file at ``path`` for ``host``; empty if there is no such file."""
    try:
        found = netrc.netrc(path).authenticators(host)
    except FileNotFoundError:
        return {}
    except (netrc.NetrcParseError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, netrc.NetrcParseError):  # its message may hold a password
            problem = f"line {error.lineno} is not understood"
        else:
            problem = getattr(error, "strerror", None) or "it is not UTF-8"
        raise HttpFailure(f"table {table}: {path} cannot be read: {problem}.", permanent=True) from None
    if found is None:
        return {}
    user, _, password = found
    if password:
        secrets.add(password)
    return {"Authorization": basic(user, password or "")}
