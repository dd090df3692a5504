"""The engine on httpx: proxies, and all that runs without the extra `http-fast`."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.cookiejar import DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_connectors.http.answer import HttpFailure, Response
from lookup_connectors.http.engine import (
    Connecting,
    ConnectionSlots,
    DesyncGuard,
    Peek,
    announced,
    check_size,
    decoded,
    kept_connection_lost,
)
from lookup_connectors.http.request import STANDING_HEADERS, Request
from lookup_hints.spi import reporting

_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[^\n]*chunked", re.IGNORECASE)
_LONGEST_HEAD = 1024 * 1024


# --- where an answer ends -------------------------------------------------------------------------


class AnswerEnd:
    """Finds where an answer ends among the bytes of a connection; others say whether it is valid."""

    def __init__(self) -> None:
        self.is_over = False
        self._head = b""
        self._left = 0
        self._part: Callable[[bytes], int] = self._in_head

    def take(self, data: bytes) -> int:
        """How many bytes of ``data`` belong to the answer, or may; the rest comes after its end."""
        taken = 0
        while taken < len(data) and not self.is_over:
            taken += self._part(data[taken:])
        return taken

    def _in_head(self, data: bytes) -> int:
        before = len(self._head)
        self._head += data
        end = _EMPTY_LINE.search(self._head, max(0, before - 3))
        if end is None:
            if len(self._head) > _LONGEST_HEAD:
                self._part = len  # others refuse it
            return len(data)
        head, self._head = self._head[: end.end()], b""
        self._begin_body(head)
        return end.end() - before

    def _begin_body(self, head: bytes) -> None:
        status = _STATUS.match(head)
        length = _LENGTH.search(head)
        code = int(status[1]) if status else 0
        if 100 <= code < 200 and code != 101:
            return  # only news: another head follows
        if code in (204, 304):
            self.is_over = True
        elif _CHUNKED.search(head):
            self._part = self._in_size
        elif length is not None:
            self._left = int(length[1])
            self._part = self._in_body
            self.is_over = not self._left
        else:
            self._part = len  # to the end of the connection

    def _in_body(self, data: bytes) -> int:
        taken = min(self._left, len(data))
        self._left -= taken
        self.is_over = not self._left
        return taken

    def _line(self, data: bytes) -> tuple[bytes | None, int]:
        """The line that began in ``_head``, once it is whole, and what it takes of ``data``."""
        end = data.find(b"\n") + 1
        self._head += data[: end or None]
        if not end:
            if len(self._head) > _LONGEST_HEAD:
                self._part = len
            return None, len(data)
        line, self._head = self._head, b""
        return line.strip(), end

    def _in_size(self, data: bytes) -> int:
        line, taken = self._line(data)
        if line is not None:
            size = re.match(rb"[0-9a-fA-F]{1,15}(?=$|[ \t;])", line)
            if size is None:
                self._part = len
            elif int(size[0], 16):
                self._left = int(size[0], 16)
                self._part = self._in_chunk
            else:
                self._part = self._in_trailer
        return taken

    def _in_chunk(self, data: bytes) -> int:
        taken = min(self._left, len(data))
        self._left -= taken
        if not self._left:
            self._part = self._after_chunk
        return taken

    def _after_chunk(self, data: bytes) -> int:
        line, taken = self._line(data)
        if line is not None:
            self._part = self._in_size
        return taken

    def _in_trailer(self, data: bytes) -> int:
        line, taken = self._line(data)
        self.is_over = line == b""
        return taken


# --- the streams of httpx -------------------------------------------------------------------------


class CheckedStream(httpcore.AsyncNetworkStream):
    """A connection of httpx that takes no second question where anything came unasked.

    Args:
        stream: the connection itself.
        desync: hears of each unexpected byte.
    """

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
        """Note the last answer; see whether anything came after it, or before the first question.

        Raises:
            RemoteProtocolError: it did.
        """
        if self._answer is not None and not self._answer.is_over:
            return  # what comes is wanted
        if self._answer is not None:
            self._desync.answered(self._origin, self._questions)
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

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """The same connection with TLS."""
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return CheckedStream(stream, self._origin, self._desync)

    def get_extra_info(self, info: str) -> Any:
        """What the connection itself says."""
        return self._stream.get_extra_info(info)


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Makes connections that are checked."""

    def __init__(self, network: httpcore.AsyncNetworkBackend, desync: DesyncGuard) -> None:
        self._network = network
        self._desync = desync

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return CheckedStream(stream, f"{host}:{port}", self._desync)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._network.connect_unix_socket(path, timeout, socket_options)
        return CheckedStream(stream, path, self._desync)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


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
