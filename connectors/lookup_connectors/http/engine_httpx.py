"""The engine on httpx: proxies, and all that runs without the extra `http-fast`."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import h11
import httpcore
import httpx

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_connectors.http.answer import HttpFailure, Response
from lookup_connectors.http.engine import STANDING_HEADERS, Connecting, ConnectionSlots, DesyncGuard, Peek
from lookup_connectors.http.request import Request
from lookup_hints.spi import reporting

_T = TypeVar("_T")

_LOST = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)
_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


class HttpxClient:
    """httpx, on an event loop; each connection is a pool of its own.

    httpcore looks at each connection of a pool with each request, and keeps one whose request is cancelled at
    the wrong moment as one in use (its issues 658, 830 and 1093). A pool of one costs neither: it is closed.
    """

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._desync = DesyncGuard(connecting.table)
        self._network = _CheckedNetwork(self._desync)
        self._client = httpx.AsyncClient(transport=_Transport(), trust_env=False, headers=STANDING_HEADERS)
        # A lookup must not depend on which ones went before.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._slots = ConnectionSlots(connecting.connections)
        self._proxies: dict[str, httpcore.Proxy | None] = {}
        self._open: set[httpcore.AsyncConnectionPool] = set()
        self._idle: dict[str, deque[tuple[float, httpcore.AsyncConnectionPool]]] = {}

    async def send(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        self._desync.check()
        if not self._slots.take():
            await self._slots.wait(lease)
        try:
            response = await self._send(request, timeout, lease, fresh=fresh)
        finally:
            self._slots.release()
        self._desync.check()
        return self._connecting.decoded(request, response)

    async def _send(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        kept = None if fresh else await self._kept(request.origin)
        pool = kept or self._pool(request)
        is_reusable = False
        try:
            response, is_reusable = await _within(timeout, lease, self._asked(pool, request, timeout, lease))
        except (*_FAILURES, asyncio.TimeoutError) as error:
            # The server may have closed an idle connection just when we took it.
            if kept is not None and isinstance(error, _LOST):
                raise self._connecting.kept_connection_lost(request) from error
            raise _explained(self._connecting, request, error, timeout) from error
        finally:
            if is_reusable:
                self._idle.setdefault(request.origin, deque()).append((time.monotonic(), pool))
            else:
                await self._close(pool)
        return response

    async def _kept(self, origin: str) -> httpcore.AsyncConnectionPool | None:
        """The idle connection that was used last, if it is fit for use; those that are too old are closed."""
        idle = self._idle.get(origin, ())
        oldest = time.monotonic() - self._connecting.idle_timeout
        while idle and idle[0][0] <= oldest:
            await self._close(idle.popleft()[1])
        while idle:
            _, pool = idle.pop()
            if not any(connection.has_expired() for connection in pool.connections):
                return pool
            await self._close(pool)  # the server did, or has said something
        return None

    def _pool(self, request: Request) -> httpcore.AsyncConnectionPool:
        connecting, origin = self._connecting, request.origin
        if origin not in self._proxies:  # looked up once: the environment is searched for it
            self._proxies[origin] = _proxy_of(connecting, httpx.URL(request.url))
        pool = httpcore.AsyncConnectionPool(
            ssl_context=connecting.tls,
            proxy=self._proxies[origin],
            max_connections=1,
            keepalive_expiry=connecting.idle_timeout,
            network_backend=self._network,
        )
        self._open.add(pool)
        return pool

    async def _close(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._open.discard(pool)
        await pool.aclose()

    async def _asked(
        self, pool: httpcore.AsyncConnectionPool, request: Request, timeout: float, lease: ByteLease
    ) -> tuple[Response, bool]:
        """The response that comes over ``pool``, and whether its connection may be asked again."""
        connecting = self._connecting
        body = bytearray()
        async with self._client.stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx.Timeout(timeout, connect=min(timeout, connecting.connect_timeout)),
            extensions={"pool": pool},
        ) as response:
            await lease.expect(connecting.announced(response.headers))
            async for chunk in response.aiter_raw():
                body += chunk
                connecting.check_size(len(body))
                await lease.room(len(chunk))
        headers = {name.lower(): text for name, text in response.headers.items()}
        answer = Response(response.status_code, headers, bytes(body))
        stream: _CheckedStream = response.extensions["network_stream"]
        try:
            stream.refuse_unexpected()
        except httpcore.RemoteProtocolError:
            return answer, False
        return answer, bool(pool.connections)  # none is left where the server wants it closed

    async def close(self) -> None:
        self._idle.clear()
        for pool in [*self._open]:
            await self._close(pool)
        await self._client.aclose()


async def _within(timeout: float, lease: ByteLease, work: Coroutine[Any, Any, _T]) -> _T:
    """What comes of ``work`` within ``timeout`` seconds, beside those in which ``lease`` waits for room."""
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


def _explained(connecting: Connecting, request: Request, error: Exception, timeout: float) -> HttpFailure:
    """What failed, without the URL (it may hold secrets), and whether it may pass."""
    origin = request.origin
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = f"the certificate of {origin} is not trusted: {cause.verify_message}. Check 'tls-ca'."
            return connecting.failure(text, permanent=True)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore.ConnectTimeout):
        limit = min(timeout, connecting.connect_timeout)
        text = f"{origin} took no connection within {limit:.3g} s ('connect-timeout')."
    elif isinstance(error, httpcore.TimeoutException | asyncio.TimeoutError):
        text = f"no answer from {origin} within {timeout:.3g} s ('request-timeout')."
    elif isinstance(error, httpcore.ConnectError):
        text = f"no connection to {origin}: {error}."
    elif isinstance(error, httpcore.UnsupportedProtocol):
        return connecting.failure(f"{origin} cannot be asked: {error}.", permanent=True)
    else:
        text = f"the answer of {origin} broke off: {str(error) or 'the connection was lost'}."
    return connecting.failure(text)


# --- connections ----------------------------------------------------------------------------------


class _Transport(httpx.AsyncBaseTransport):
    """Sends each request over the pool that it names."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        pool: httpcore.AsyncConnectionPool = request.extensions["pool"]
        answer = await pool.handle_async_request(
            httpcore.Request(
                request.method,
                _httpcore_url(request.url),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions
        )


class _Body(httpx.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_stream()

    async def aclose(self) -> None:
        await self._answer.aclose()


def _httpcore_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _proxy_of(connecting: Connecting, url: httpx.URL) -> httpcore.Proxy | None:
    """The proxy that asks the origin of ``url``: that of the options, or of the environment if it counts."""
    found = connecting.proxy
    if found is None and connecting.environment and not proxy_bypass(url.netloc.decode("ascii")):
        proxies = getproxies()
        found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None
    proxy = httpx.Proxy(found if "://" in found else f"http://{found}")
    return httpcore.Proxy(_httpcore_url(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)


class AnswerEnd:
    """Finds where an answer ends among the bytes of a connection, by the parser that httpcore has, too."""

    def __init__(self) -> None:
        self.is_over = False
        self._reader: h11.Connection | None = h11.Connection(h11.CLIENT, _LONGEST_HEAD)
        self._reader.send(_ANY_QUESTION)
        self._reader.send(h11.EndOfMessage())

    def take(self, data: bytes) -> int:
        """How many bytes of ``data`` belong to the answer, or may; the rest comes after its end."""
        if self._reader is not None:
            try:
                self._reader.receive_data(data)
                while (event := self._reader.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                    if isinstance(event, h11.EndOfMessage):
                        self.is_over = True
                        return len(data) - len(self._reader.trailing_data[0])
            except h11.RemoteProtocolError:
                self._reader = None  # httpcore refuses it
        return len(data)


_LONGEST_HEAD = 1024 * 1024
_ANY_QUESTION = h11.Request(method="GET", target="/", headers=[("Host", "any")])


class _CheckedStream(httpcore.AsyncNetworkStream):
    """A connection of httpx that takes no second question where anything came unasked."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, origin: str, desync: DesyncGuard) -> None:
        self._stream = stream
        self._origin = origin
        self._desync = desync
        self._questions = 0
        self._answer: AnswerEnd | None = None
        self._beyond = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What comes next, of this answer alone while it is not over."""
        data, self._beyond = self._beyond, b""
        if not data:
            data = await self._stream.read(max_bytes, timeout)
            reporting().received(len(data))
        taken = len(data) if self._answer is None or self._answer.is_over else self._answer.take(data)
        self._beyond = data[taken:]
        return data[:taken]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send what is a new question, where the last one was answered.

        Raises:
            RemoteProtocolError: something came unasked.
        """
        if self._answer is None or self._answer.is_over:
            self.refuse_unexpected()
            self._questions += 1
            self._answer = AnswerEnd()
        await self._stream.write(buffer, timeout)
        reporting().sent(len(buffer))

    def refuse_unexpected(self) -> None:
        """Note the last answer; refuse to go on where bytes came after it, or before the first question."""
        if self._answer is not None and not self._answer.is_over:
            return  # what comes is wanted
        if self._answer is not None and self._questions > 1:
            self._desync.answered_again(self._origin)
        came = self._beyond or self._waiting()
        if came:
            self._desync.came(self._origin, came, self._questions)
        if came is not None and (came or self._questions):
            raise httpcore.RemoteProtocolError("the server sent data that was not requested")
        if self._questions and not self._desync.may_keep(self._origin):
            raise httpcore.RemoteProtocolError("its connections are used once")

    def _waiting(self) -> bytes | None:
        secure: Any = self._stream.get_extra_info("ssl_object")
        if secure is not None:
            try:
                return bytes(secure.read(64))
            except ssl.SSLError:
                pass  # nothing is there that could be read now
            if not self._questions:
                return None  # what waits is TLS's own
        connection = self._stream.get_extra_info("socket")
        return None if connection is None else Peek(connection).waiting()

    async def aclose(self) -> None:
        """Close it; what came unasked until now still counts."""
        with suppress(httpcore.RemoteProtocolError):
            self.refuse_unexpected()
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def start_tls(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        return _CheckedStream(await self._stream.start_tls(*arguments, **named), self._origin, self._desync)


class _CheckedNetwork(httpcore.AnyIOBackend):
    """Makes connections that are checked."""

    def __init__(self, desync: DesyncGuard) -> None:
        self._desync = desync

    async def connect_tcp(
        self, host: str, port: int, *arguments: Any, **named: Any
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, *arguments, **named)
        return _CheckedStream(stream, f"{host}:{port}", self._desync)
