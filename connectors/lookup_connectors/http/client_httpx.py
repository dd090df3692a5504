"""The client without the extra ``http-fast``, on httpx. Each request has a connection of its own.

A kept connection may hold an unrequested response, and httpx would take it for that of the next request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar

import httpx

from lookup_connectors.http.client import STANDING_HEADERS, HeldBack, HttpClient, MaySend
from lookup_connectors.http.network import Connecting, HttpOrigin, Proxy
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight
from lookup_hints.spi import reporting

_T = TypeVar("_T")


# A connection for each request: making kept ones of httpx safe took a transport, a network and a parser
# around its private parts. (docs/decisions/0199)
class HttpxClient(HttpClient):
    """Carries requests by httpx."""

    keeps_connections = False

    def __init__(self, connecting: Connecting, budget: BytesInFlight) -> None:
        super().__init__(connecting, budget)
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        if not self._slots.take():
            await self._slots.wait(lease)
        try:
            response = await _run_within(
                timeout, lease, self._stream_response(request, timeout, lease, may_send)
            )
        except (httpx.TransportError, asyncio.TimeoutError) as error:
            raise _explain_failure(self._connecting, request, error, timeout) from None
        finally:
            self._slots.release()
        return self.read(request, response)

    def _client_for(self, request: Request) -> httpx.AsyncClient:
        """The client of the origin, which may have a proxy of its own."""
        client = self._clients.get(request.origin)
        if client is None:
            tls = self._connecting.tls
            client = self._clients[request.origin] = httpx.AsyncClient(
                verify=tls,
                proxy=_httpx_proxy(HttpOrigin(self._connecting, request.url).proxy, tls),
                trust_env=False,
                headers={**STANDING_HEADERS, "Connection": "close"},
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
            # A lookup must not depend on which ones went before.
            client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        return client

    async def _stream_response(
        self, request: Request, timeout: float, lease: ByteLease, may_send: MaySend
    ) -> Response:
        async def hold_back(event: str, _: object) -> None:
            if event.endswith("send_request_headers.started") and not may_send():
                raise HeldBack

        body = bytearray()
        async with self._client_for(request).stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx.Timeout(timeout, connect=min(timeout, self._connecting.connect_timeout)),
            extensions={"trace": hold_back},
        ) as response:
            asked = response.request
            line = f"{asked.method} {asked.url.raw_path.decode('ascii')} HTTP/1.1"
            reporting().sent(_head_bytes(line, asked.headers) + len(request.body or b""))
            line = f"{response.http_version} {response.status_code} {response.reason_phrase}"
            reporting().received(_head_bytes(line, response.headers))
            await lease.expect(self._connecting.announced(response.headers))
            async for chunk in response.aiter_raw():
                reporting().received(len(chunk))
                body += chunk
                if len(body) > self._connecting.most_bytes:
                    raise self._connecting.too_large()
                await lease.room(len(chunk))
        headers = {name.lower(): text for name, text in response.headers.items()}
        return Response(response.status_code, headers, bytes(body))

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _httpx_proxy(proxy: Proxy | None, tls: ssl.SSLContext) -> httpx.Proxy | None:
    if proxy is None:
        return None
    url = httpx.URL(scheme="https" if proxy.is_secure else "http", host=proxy.host, port=proxy.port)
    return httpx.Proxy(url, headers=dict(proxy.headers), ssl_context=tls if proxy.is_secure else None)


def _head_bytes(line: str, headers: httpx.Headers) -> int:
    """How many bytes a head takes on the way."""
    return (
        len(line) + sum(len(name) + len(text) + len(": \r\n") for name, text in headers.raw) + len("\r\n" * 2)
    )


async def _run_within(timeout: float, lease: ByteLease, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of ``work`` within ``timeout`` seconds, not counting waits of ``lease`` for room."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout - lease.waited(loop.time())
    task = loop.create_task(work)
    try:
        while not task.done():
            left = end + lease.waited(loop.time()) - loop.time()
            if left <= 0:
                raise asyncio.TimeoutError
            await asyncio.wait({task}, timeout=left)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _explain_failure(
    connecting: Connecting, request: Request, error: Exception, timeout: float
) -> HttpFailure:
    """A text for the failure without the URL (it may hold secrets), and whether it is transient."""
    origin = request.origin
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return connecting.untrusted(origin, cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectTimeout):
        return connecting.not_connected(origin, min(timeout, connecting.connect_timeout))
    if isinstance(error, httpx.TimeoutException | asyncio.TimeoutError):
        return connecting.unanswered(origin, timeout)
    if isinstance(error, httpx.ProxyError):  # its text is the status and the words of the proxy
        said = str(error)
        status = int(said[:3]) if said[:3].isdecimal() else 0
        return connecting.proxy_failed(origin, f"its proxy answered {said}", status)
    if isinstance(error, httpx.ConnectError):
        return connecting.failure(f"no connection to {origin}: {error}.")
    return connecting.failure(f"the answer of {origin} broke off: {str(error) or 'the connection was lost'}.")
