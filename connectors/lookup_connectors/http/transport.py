"""Carries requests with httpx, or with another client, and counts what comes."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Protocol, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from lookup_connectors.bytes_in_flight import ByteLease, BytesInFlight, Usual
from lookup_connectors.http.desync import CheckedNetwork, CheckedStream, DesyncGuard
from lookup_connectors.http.message import (
    STANDING_HEADERS,
    HttpFailure,
    KeptConnectionLost,
    Request,
    Response,
)
from lookup_connectors.http.slots import ConnectionSlots
from lookup_hints.spi import reporting

_T = TypeVar("_T")


@dataclass(frozen=True)
class Connecting:
    """How connections are made.

    Args:
        table: its name, for messages.
        connections: how many at once.
        connect_timeout: seconds for one to be made.
        idle_timeout: seconds after which an unused one is closed.
        most_bytes: the largest body that is read.
        tls: what TLS trusts, and shows.
        proxy: URL of a proxy, or None.
        environment: whether proxies of the environment are used.
    """

    table: str
    connections: int
    connect_timeout: float
    idle_timeout: float
    most_bytes: int
    tls: ssl.SSLContext
    proxy: str | None
    environment: bool


def tls_context(
    table: str, ca: str | None, cert: str | None, key: str | None, password: str | None
) -> ssl.SSLContext:
    """A context that trusts ``ca`` (or what the system and httpx trust), and shows a certificate.

    Raises:
        HttpFailure: a file cannot be read, or is not a certificate.
    """
    try:
        context = ssl.create_default_context(cafile=ca) if ca else httpx.create_ssl_context(trust_env=False)
        if cert:
            context.load_cert_chain(cert, key, password or _no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        files = ", ".join(file for file in (ca, cert, key) if file)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HttpFailure(
            f"table {table}: the TLS files cannot be used: {said}. They are: {files}.", permanent=True
        ) from None
    return context


def _no_password() -> str:
    # Without one, OpenSSL would ask on the terminal.
    raise ValueError("the key is encrypted; give 'tls-key-password'")


# --- clients --------------------------------------------------------------------------------------


class Client(Protocol):
    """Carries many requests at once."""

    async def send(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        """The response, whose bytes ``lease`` counts; the time that they wait for room is not counted.

        Args:
            request: what is sent.
            timeout: seconds.
            lease: counts bytes.
            fresh: whether it needs a fresh connection.

        Raises:
            KeptConnectionLost: it was sent over a kept one, which was lost.
            HttpFailure: there is no response.
        """

    async def close(self) -> None:
        pass


_LOST = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)
_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


class HttpxClient:
    """httpx, on an event loop."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._desync = DesyncGuard(connecting.table)
        transport = _CheckedTransport(connecting, self._desync)
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, headers=STANDING_HEADERS)
        # A lookup must not depend on which ones went before.
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # httpx looks through all that wait for a connection whenever one is free: they wait here.
        self._slots = ConnectionSlots(connecting.connections)

    async def send(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        while True:  # httpx cannot be told to make a connection: the kept ones are used up
            self._desync.check()
            call = _HttpxCall()
            work = self._with_slot(request, timeout, lease, call)
            try:
                response = await _within(timeout, lease, work, call)
            except (*_FAILURES, asyncio.TimeoutError) as error:
                # The server may have closed an idle connection just when we took it.
                if call.connected or not isinstance(error, _LOST):
                    raise _explained(self._connecting, request, error, timeout) from error
                if not fresh:
                    raise kept_connection_lost(self._connecting, request) from error
            else:
                self._desync.check()
                return response

    async def _with_slot(
        self, request: Request, timeout: float, lease: ByteLease, call: _HttpxCall
    ) -> Response:
        if not self._slots.take():
            await self._slots.wait(lease)
        try:
            with call.inside():
                return await self._send(request, timeout, lease, call)
        finally:
            self._slots.release()

    async def _send(self, request: Request, timeout: float, lease: ByteLease, call: _HttpxCall) -> Response:
        arguments = _arguments(self._connecting, request, timeout, call.note)
        async with self._client.stream(**arguments) as response:
            with call.outside():
                await lease.expect(announced(self._connecting, response.headers))
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                check_size(self._connecting, len(body))
                with call.outside():
                    await lease.room(len(chunk))
        await _end_where_desynced(response)
        return decoded(self._connecting, request, _read(response, bytes(body)))

    async def close(self) -> None:
        await self._client.aclose()


async def _within(timeout: float, lease: ByteLease, work: Coroutine[Any, Any, _T], call: _HttpxCall) -> _T:
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
            call.give_up(task)
            await asyncio.wait({task})


class _HttpxCall:
    """One call of httpx, which ends early only where its pool of connections stays whole.

    Where a task is cancelled between two operations on the network, httpcore 1.0 keeps the connection
    in its pool as one in use, for good (its issues 658, 830 and 1093). Once each one is lost so, every
    later request waits for ever. So a cancellation waits for the next operation on the network.
    """

    def __init__(self) -> None:
        self.connected = False
        self._may_end = True
        self._is_given_up = False

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """End ``task``, which makes this call: now, or as soon as it is on the network."""
        self._is_given_up = True
        if self._may_end:
            task.cancel()

    @contextmanager
    def inside(self) -> Iterator[None]:
        self._may_end = False
        try:
            yield
        finally:
            self._may_end = True

    @contextmanager
    def outside(self) -> Iterator[None]:
        """While our own code waits inside a call."""
        self._end_if_given_up()
        before, self._may_end = self._may_end, True
        try:
            yield
        finally:
            self._may_end = before

    async def note(self, name: str, _: Any) -> None:
        """Called by httpx before and after each operation, such as ``http11.send_request_body``."""
        operation, _, step = name.rpartition(".")
        if name == "connection.connect_tcp.started":
            self.connected = True
        self._may_end = step == "started" and not operation.endswith((".response_closed", ".retry"))
        if self._may_end:
            self._end_if_given_up()

    def _end_if_given_up(self) -> None:
        if self._is_given_up:
            raise asyncio.CancelledError


def kept_connection_lost(connecting: Connecting, request: Request) -> KeptConnectionLost:
    """The failure of ``request``, before whose answer a kept connection ended."""
    return KeptConnectionLost(f"table {connecting.table}: {request.origin} closed the connection.")


class _CheckedTransport(httpx.AsyncBaseTransport):
    """The pools of httpcore that httpx uses itself, over connections that take nothing that came unasked."""

    def __init__(self, connecting: Connecting, desync: DesyncGuard) -> None:
        self._connecting = connecting
        self._network = CheckedNetwork(httpcore.AnyIOBackend(), desync)
        self._pools: dict[str | None, httpcore.AsyncConnectionPool] = {}
        self._proxies: dict[tuple[str, str], str | None] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        answer = await self._pool(self._proxy_of(request.url)).handle_async_request(
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

    def _proxy_of(self, url: httpx.URL) -> str | None:
        """The proxy of the origin of ``url``, looked up once: the environment is searched for it."""
        origin = url.scheme, url.netloc.decode("ascii")
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_of(self._connecting, *origin)
        return self._proxies[origin]

    def _pool(self, proxy: str | None) -> httpcore.AsyncConnectionPool:
        pool = self._pools.get(proxy)
        if pool is None:
            connecting = self._connecting
            pool = self._pools[proxy] = httpcore.AsyncConnectionPool(
                ssl_context=connecting.tls,
                proxy=None if proxy is None else _httpcore_proxy(httpx.Proxy(proxy)),
                max_connections=connecting.connections,
                max_keepalive_connections=connecting.connections,
                keepalive_expiry=connecting.idle_timeout,
                network_backend=self._network,
            )
        return pool

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


def _httpcore_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _httpcore_proxy(proxy: httpx.Proxy) -> httpcore.Proxy:
    return httpcore.Proxy(_httpcore_url(proxy.url), auth=proxy.raw_auth, headers=proxy.headers.raw)


def _proxy_of(connecting: Connecting, scheme: str, host_and_port: str) -> str | None:
    """The proxy that asks an origin: that of the options, or that of the environment where it counts."""
    if connecting.proxy is not None or not connecting.environment or proxy_bypass(host_and_port):
        return connecting.proxy
    proxies = getproxies()
    found = proxies.get(scheme) or proxies.get("all")
    return found if not found or "://" in found else f"http://{found}"


async def _end_where_desynced(response: httpx.Response) -> None:
    """Close the connection of ``response`` where something came after it."""
    stream: CheckedStream = response.extensions["network_stream"]
    try:
        stream.refuse_unexpected()
    except httpcore.RemoteProtocolError:
        await stream.aclose()


def _arguments(connecting: Connecting, request: Request, timeout: float, trace: Any) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.url,
        "headers": dict(request.headers),
        "content": request.body,
        "timeout": httpx.Timeout(timeout, connect=min(timeout, connecting.connect_timeout)),
        "extensions": {"trace": trace},
    }


def _read(response: httpx.Response, body: bytes) -> Response:
    return Response(
        response.status_code, {name.lower(): text for name, text in response.headers.items()}, body
    )


def announced(connecting: Connecting, headers: Mapping[str, str]) -> int:
    """How many bytes of body are announced; none where they are too many to be read."""
    length = headers.get("content-length", "")
    size = int(length) if length.isdecimal() and length.isascii() and len(length) <= 18 else 0
    return size if size <= connecting.most_bytes else 0


def check_size(connecting: Connecting, size: int) -> None:
    """Refuse a body that is too large.

    Raises:
        HttpFailure: it is.
    """
    if size > connecting.most_bytes:
        raise HttpFailure(
            f"table {connecting.table}: a response is larger than {connecting.most_bytes} bytes"
            " ('max-response-bytes').",
            permanent=True,
        )


def decoded(connecting: Connecting, request: Request, response: Response) -> Response:
    """``response`` without its content encodings; unknown ones are left, as some servers name charsets.

    Not by httpx, which inflates whatever has come before anyone can see how large it is.

    Raises:
        HttpFailure: it is not what it says, or too large.
    """
    encodings, body = response.headers.get("content-encoding"), response.body
    if not encodings:
        return response
    for encoding in reversed(encodings.lower().replace(" ", "").split(",")):
        if body and encoding in ("gzip", "x-gzip", "deflate"):
            try:
                body = _inflated(body, encoding, connecting)
            except zlib.error as error:
                text = f"the answer of {request.origin} broke off: it is not {encoding} ({error})."
                raise HttpFailure(f"table {connecting.table}: {text}") from None
    return Response(response.status, response.headers, body)


def _inflated(body: bytes, encoding: str, connecting: Connecting) -> bytes:
    # Some servers send "deflate" bare, without a header of zlib.
    is_bare = encoding == "deflate" and body[:1] not in (b"\x78", b"\x1f")
    reader = zlib.decompressobj(-15 if is_bare else 47)  # 47: gzip or zlib, whichever it begins with
    inflated = reader.decompress(body, connecting.most_bytes + 1)
    check_size(connecting, len(inflated))
    if not reader.eof:
        raise zlib.error("it has no end")
    return inflated


def _explained(connecting: Connecting, request: Request, error: Exception, timeout: float) -> HttpFailure:
    """What failed, without the URL (it may hold secrets), and whether it may pass."""
    origin, table = request.origin, connecting.table
    certificate = _cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        text = f"the certificate of {origin} is not trusted: {certificate.verify_message}. Check 'tls-ca'."
        return HttpFailure(f"table {table}: {text}", permanent=True)
    if isinstance(error, httpcore.ConnectTimeout):
        limit = min(timeout, connecting.connect_timeout)
        text = f"{origin} took no connection within {limit:.3g} s ('connect-timeout')."
    elif isinstance(error, httpcore.TimeoutException | asyncio.TimeoutError):
        text = f"no answer from {origin} within {timeout:.3g} s ('request-timeout')."
    elif isinstance(error, httpcore.ConnectError):
        text = f"no connection to {origin}: {error}."
    elif isinstance(error, httpcore.UnsupportedProtocol):
        return HttpFailure(f"table {table}: {origin} cannot be asked: {error}.", permanent=True)
    else:
        text = f"the answer of {origin} broke off: {str(error) or 'the connection was lost'}."
    return HttpFailure(f"table {table}: {text}".replace("..", "."))


_E = TypeVar("_E", bound=BaseException)


def _cause(error: BaseException | None, kind: type[_E]) -> _E | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


# --- sending --------------------------------------------------------------------------------------


SECOND_TRIES = 10
"""This many requests whose kept connection was lost are sent again at once."""


class Sender:
    """Sends the requests of all lookups, and counts what comes.

    Args:
        client: carries the requests; it is closed with the sender.
        budget: counts the bytes of all answers.
    """

    def __init__(self, client: Client, budget: BytesInFlight) -> None:
        self.budget = budget
        self._client = client
        self._usual = Usual()
        self._exclusive = asyncio.Semaphore(1)
        self._retry_slots = asyncio.Semaphore(SECOND_TRIES)

    async def send(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool = False
    ) -> Response:
        """The response; see ``Client.send``."""
        await lease.expect(self._usual.size)
        try:
            with reporting().http(request.method, request.url) as told:
                signed = request.with_headers(told.headers)
                response = await self._client.send(signed, timeout, lease, fresh=fresh)
                told.answered(response.status)
        finally:
            lease.settle()
        self._usual.saw(len(response.body))
        return response

    def exclusive(self, lease: ByteLease) -> AbstractAsyncContextManager[None]:
        """A block in which only one is at a time."""
        return _one_of(self._exclusive, lease)

    def limited_retry(self, lease: ByteLease) -> AbstractAsyncContextManager[None]:
        """A block in which only a few are at a time."""
        return _one_of(self._retry_slots, lease)

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def _one_of(places: asyncio.Semaphore, lease: ByteLease) -> AsyncIterator[None]:
    """A block in one of ``places``, which those may hold who wait for the bytes of ``lease``."""
    if places.locked():
        with lease.idle():
            await places.acquire()
    else:
        await places.acquire()
    try:
        yield
    finally:
        places.release()
