"""A client for many small requests at once: HTTP/1.1 over asyncio, parsed by httptools.

It does what an exchange needs and nothing more: no redirects, cookies or proxies (an exchange decides about
the first, httpx does the last). What it leaves out is what costs httpx many times as much per request.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast
from urllib.parse import quote, urlsplit

import httptools

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_connectors.http.answer import HttpFailure, Response
from lookup_connectors.http.engine import STANDING_HEADERS, Connecting, ConnectionSlots, DesyncGuard, Peek
from lookup_connectors.http.request import Request, origin_of
from lookup_hints.spi import reporting

if TYPE_CHECKING:
    from lookup_connectors.http.starting import StartedKey

_PLAIN = re.compile(r"[!-~]*")
_HEAD = re.compile(rb"HTTP/\d\.\d \d{3}")
_AUTHORITY = re.compile(r"[a-zA-Z]+://[^/?#]*")
_ALLOWED = "%/:=&?~+!$,;'@()*[]\"<>{}|^`\\-._"
_MOST_HEAD_BYTES = 1024 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_MOST_HEADS = 64
_SHORTEST_WATCH = 0.05
_ENCODED = "content-encoding"
_LENGTHS = frozenset({"content-length", "transfer-encoding"})


class _BrokenOff(Exception):
    """The line ended, or what came is not HTTP, before the response was whole."""

    def __init__(self, text: str, *, untouched: bool) -> None:
        super().__init__(text)
        self.untouched = untouched
        """Whether no answer had begun: not even its head was whole."""


class FastClient:
    """Carries many requests at once over kept connections."""

    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._slots = ConnectionSlots(connecting.connections)
        self._origins: dict[str, _Origin] = {}
        self._busy: set[HttpConnection] = set()
        self._unsent: list[HttpConnection] = []
        self._watch: asyncio.TimerHandle | None = None
        self._watched_until = math.inf
        self._desync = DesyncGuard(connecting.table)
        self._heads: dict[bytes, _Head] = {}

    async def send(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        self._desync.check()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        if not self._slots.take():
            await self._slots.wait(lease)
        is_kept = False
        try:
            origin, path = self._origin(request.url)
            data = _written(request, path, origin.authority)
            connection = None if fresh else self._kept(origin)
            is_kept = connection is not None
            connection = connection or await self._connected(request, origin, end)
            answer: asyncio.Future[Response] = loop.create_future()
            self._ask(connection, data, end, lease, answer)
            reporting().sent(len(data))
            try:
                response = await answer
                self._over(connection, is_kept=not _closes(request.headers))
            finally:
                reporting().received(connection.came)
                if connection.answer is not None:
                    self._over(connection, is_kept=False)  # whatever is under way on it, nobody waits for
            return self.read(request, response)
        except Exception as error:
            raise self.failure(request, error, timeout, is_kept=is_kept) from None
        finally:
            self._slots.release()

    def _origin(self, url: str) -> tuple[_Origin, str]:
        """Whom ``url`` leads to, and to what there."""
        start, path = _cut(url)
        origin = self._origins.get(start)
        if origin is None:
            origin = self._origins[start] = _Origin(start)
        return origin, path

    def read(self, request: Request, response: Response) -> Response:
        """``response`` as it is to be read.

        Raises:
            AnswerError: it may be that of another request.
            HttpFailure: its encoding is not what it says.
        """
        self._desync.check()
        return self._connecting.decoded(request, response) if _ENCODED in response.headers else response

    def failure(self, request: Request, error: Exception, timeout: float, *, is_kept: bool) -> Exception:
        """What ``error`` is to who sent ``request``, perhaps over a connection that was kept."""
        if isinstance(error, asyncio.TimeoutError):
            text = f"no answer from {request.origin} within {timeout:.3g} s ('request-timeout')."
            return self._connecting.failure(text)
        if not isinstance(error, _BrokenOff):
            return error
        if is_kept and error.untouched:
            # The server closed an idle connection just when we took it, or had left something on it.
            return self._connecting.kept_connection_lost(request)
        return self._connecting.failure(f"the answer of {request.origin} broke off: {error}.")

    # Without waiting.

    def room(self, url: str) -> int:
        """How many requests to ``url`` could be sent at once, over connections that are kept."""
        return min(len(self._origin(url)[0].idle), self._slots.free)

    def start(
        self, keys: Sequence[StartedKey], requests: Sequence[Request], end: float, lease: ByteLease
    ) -> int:
        """Send the first of ``requests``, all to one origin, for ``keys`` over kept connections; how many."""
        self._desync.check()
        count = nbytes = 0
        if requests:
            origin, path = self._origin(requests[0].url)
            start = len(requests[0].url.removesuffix(path))
        for key, request in zip(keys, requests, strict=False):
            connection = self._kept(origin)
            if connection is None:
                break
            data = _written(request, request.url[start:], origin.authority)
            key.connection = connection
            self._ask(connection, data, end, lease, key)
            nbytes += len(data)
            count += 1
        self._slots.take(count)
        reporting().sent(nbytes)
        return count

    def over(self, connection: HttpConnection, *, is_kept: bool) -> None:
        """What was started over ``connection`` has come, or nobody waits for it any more."""
        self._over(connection, is_kept=is_kept)
        self._slots.release()

    # Inside.

    def _ask(
        self, connection: HttpConnection, data: bytes, end: float, lease: ByteLease, sink: ResponseSink
    ) -> None:
        self._busy.add(connection)
        if end < self._watched_until:
            self._watch_until(end)
        connection.ask(data, end, lease, sink)
        self._send_soon(connection)

    def _over(self, connection: HttpConnection, *, is_kept: bool) -> None:
        """The question is over: keep the connection, where it may be asked again."""
        origin, desync = connection.origin, self._desync
        if is_kept and connection.questions > 1:
            desync.answered_again(origin.url)
        connection.forget()
        self._busy.discard(connection)
        if is_kept and connection.is_reusable and desync.may_keep(origin.url):
            self._keep(origin, connection)
        else:
            connection.abort()

    def _send_soon(self, connection: HttpConnection) -> None:
        """Send what ``connection`` is to ask with all that others ask in this turn of the loop.

        Sent one by one between other work, questions take us and a server on the same machine more time.
        """
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._unsent.append(connection)

    def _send_all(self) -> None:
        connections, self._unsent = self._unsent, []
        for connection in connections:
            connection.send()

    def _watch_until(self, end: float) -> None:
        """See to it that what is out of time at ``end`` is told so. (A timer for each would cost more.)"""
        if end < self._watched_until:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = asyncio.get_running_loop().call_at(end, self._run_out)
            self._watched_until = end

    def _run_out(self) -> None:
        now = self._watched_until  # a timer may come a little early
        self._watch, self._watched_until = None, math.inf
        for connection in self._busy:
            end = connection.end(now)
            if end <= now:
                connection.fail(asyncio.TimeoutError())
            else:
                self._watch_until(max(end, now + _SHORTEST_WATCH))

    def _kept(self, origin: _Origin) -> HttpConnection | None:
        """The idle connection that was used last, if any may be fit for use."""
        now = time.monotonic()
        while origin.idle:
            connection = origin.idle.pop()
            is_young = now - connection.used_at < self._connecting.idle_timeout
            if connection.is_reusable and is_young and self._desync.may_keep(origin.url):
                return connection
            connection.abort()
        return None

    def _keep(self, origin: _Origin, connection: HttpConnection) -> None:
        idle = origin.idle
        idle.append(connection)
        now = connection.used_at = time.monotonic()
        while now - idle[0].used_at >= self._connecting.idle_timeout:
            idle.popleft().abort()

    async def _connected(self, request: Request, origin: _Origin, end: float) -> HttpConnection:
        loop = asyncio.get_running_loop()
        limit = min(self._connecting.connect_timeout, end - loop.time())
        making = loop.create_connection(
            lambda: HttpConnection(self._connecting, origin, self._desync, self._heads),
            origin.host,
            origin.port,
            ssl=self._connecting.tls if origin.is_secure else None,
            server_hostname=origin.host if origin.is_secure else None,
        )
        try:
            _, connection = await asyncio.wait_for(making, limit)
        except asyncio.TimeoutError:
            text = f"{request.origin} took no connection within {limit:.3g} s ('connect-timeout')."
            raise self._connecting.failure(text) from None
        except ssl.SSLCertVerificationError as error:
            told = (
                f"the certificate of {request.origin} is not trusted: {error.verify_message}. Check 'tls-ca'."
            )
            raise self._connecting.failure(told, permanent=True) from None
        except (OSError, UnicodeError) as error:
            raise self._connecting.failure(f"no connection to {request.origin}: {error}.") from None
        if not connection.is_silent():
            connection.abort()
            raise _BrokenOff("the server sent data before the request", untouched=False)
        return connection

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch, self._watched_until = None, math.inf
        for connection in [*self._busy, *(each for origin in self._origins.values() for each in origin.idle)]:
            connection.abort()
        self._origins.clear()
        await asyncio.sleep(0)  # so that the sockets close before the loop may


class ResponseSink(Protocol):
    """Takes a response: a future is one."""

    def done(self) -> bool:
        """Whether it is there, or not wanted any more."""

    def set_result(self, response: Response, /) -> None:
        """It came."""

    def set_exception(self, error: Exception, /) -> None:
        """It will not come."""


class _Head(NamedTuple):
    """What the head of an answer says that tells how long it is."""

    status: int
    headers: dict[str, str]
    size: int
    is_reusable: bool


class HttpConnection(asyncio.Protocol):
    """One connection, asked one thing at a time; also what the parser calls back."""

    def __init__(
        self, connecting: Connecting, origin: _Origin, desync: DesyncGuard, heads: dict[bytes, _Head]
    ) -> None:
        self._connecting = connecting
        self.origin = origin
        self._desync = desync
        self._heads = heads
        self.questions = 0
        self.came = 0
        """Bytes that came since the question."""
        self._transport: asyncio.Transport | None = None
        self._peek: Peek | None = None
        self._is_secure = False
        self._unsent: bytes | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._announced = 0
        self._counted = 0
        self._head_size = 0
        self._has_head = False
        self._reads_to_end = False
        self.is_reusable = True
        """Whether it may be asked once more."""
        self._is_answered = True  # so far nothing is asked
        self._is_answered_twice = False
        self.answer: ResponseSink | None = None
        self._lease: ByteLease | None = None
        self._granted: asyncio.Future[None] | None = None
        self._end = 0.0
        self.used_at = 0.0

    def is_silent(self) -> bool:
        """Whether it may be asked, and nothing waits to be read that was not asked for."""
        assert self._transport is not None
        assert self._peek is not None
        if not self.is_reusable or self._transport.is_closing():
            return False
        if self._is_secure and not self.questions:
            return True  # what waits is TLS's own
        came = self._peek.waiting()
        if came and not self._is_secure:
            self._desync.came(self.origin.url, came, self.questions)
        return came is None

    def end(self, now: float) -> float:
        """When the response must be there, as known ``now``: its wait for room is not counted."""
        return self._end + (0.0 if self._lease is None else self._lease.waited(now))

    def ask(self, data: bytes, end: float, lease: ByteLease, sink: ResponseSink) -> None:
        """Take ``data`` to be sent; ``sink`` is told the response, or a failure, by ``end``.

        The client sees to both: it calls ``send``, and looks at the time.
        """
        self._body = []
        self._size = 0
        self._announced = 0
        self._counted = 0
        self._lease = lease
        self._head_size = 0
        self._has_head = False
        self._reads_to_end = False
        self._end = end - lease.waited(asyncio.get_running_loop().time())
        self.answer = sink
        self.came = 0
        self._unsent = data

    def send(self) -> None:
        """Send what is asked, if it is still wanted, and if nothing came that was not asked for."""
        data, self._unsent = self._unsent, None
        if data is None or self.answer is None or self.answer.done():
            return
        if not self.is_silent():
            self.fail(_BrokenOff("the server sent data that was not requested", untouched=True))
            return
        assert self._transport is not None
        self.questions += 1
        self._is_answered = False
        self._transport.write(data)

    def forget(self) -> None:
        """The question is over: let go what was kept for it."""
        self.answer = self._lease = self._unsent = None
        self._body = []
        if self._granted is not None:
            self._granted.cancel()

    def abort(self) -> None:
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are subclasses: those of uvloop are not.
        self._transport = cast("asyncio.Transport", transport)
        self._peek = Peek(transport.get_extra_info("socket"))
        self._is_secure = transport.get_extra_info("sslcontext") is not None

    def data_received(self, data: bytes) -> None:
        self.came += len(data)
        if self.answer is None or self.answer.done() or self._unsent is not None:
            self._got_unexpected(data)
            return
        if not self._head_size:
            end = data.find(_END_OF_HEAD) + 4
            head = self._heads.get(data[:end])
            if head is not None and len(data) == end + head.size:
                self._finish_at_once(head, data[end:])
                return
        self._head_size += 0 if self._has_head else len(data)
        if self._head_size > _MOST_HEAD_BYTES:
            self.fail(_BrokenOff("its head has no end", untouched=False))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(_BrokenOff("it changes to another protocol", untouched=False))
        except httptools.HttpParserError as error:
            self.fail(_BrokenOff(f"it is not HTTP ({error})", untouched=not self._has_head))
        else:
            self._count()
            if self._is_answered and self._head_size == len(data) and not self._is_answered_twice:
                self._know_head(data)
        if self._is_answered_twice:
            self._got_unexpected(_after_the_first_head(data))

    def _got_unexpected(self, data: bytes) -> None:
        self.is_reusable = False
        if self._is_answered:  # else it is what nobody waits for any more
            self._desync.came(self.origin.url, data, self.questions)

    # Many answers have one and the same head, which need not be parsed again.

    def _know_head(self, data: bytes) -> None:
        """Remember the head of ``data``, which is one whole answer, where it says itself how long it is."""
        end = data.find(_END_OF_HEAD) + 4
        length = self._headers.get("content-length")
        if length != str(len(data) - end) or "transfer-encoding" in self._headers:
            return
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        status = self._parser.get_status_code()
        self._heads[data[:end]] = _Head(status, self._headers, len(data) - end, self.is_reusable)

    def _finish_at_once(self, head: _Head, body: bytes) -> None:
        assert self.answer is not None
        self._is_answered = True
        self.is_reusable = head.is_reusable
        if self._lease is not None:
            self._lease.take(head.size)
        self.answer.set_result(Response(head.status, head.headers, body))

    def _count(self) -> None:
        """Count the body as announced, or as it comes; where there is no room, wait before reading on."""
        lease, transport = self._lease, self._transport
        if lease is None or transport is None:
            return
        is_here = self.answer is None or self.answer.done()
        if not is_here:
            lease = self._lease = lease.own()  # it is larger than most: it may have to wait
        known = max(self._size, self._announced)
        came, self._counted = known - self._counted, known
        if is_here:
            lease.take(came)
        elif came and (granted := lease.request(came)) is not None:
            transport.pause_reading()
            self._granted = granted
            granted.add_done_callback(self._resume)

    def _resume(self, _: asyncio.Future[None]) -> None:
        assert self._transport is not None
        self._granted = None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> None:
        self.is_reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_reusable = False
        if self.answer is None or self.answer.done():
            return
        if self._reads_to_end and error is None:
            self._finish()
        else:
            text = "the connection was closed" if error is None else str(error) or type(error).__name__
            self.fail(_BrokenOff(text, untouched=not self._has_head))

    # What the parser tells.

    def on_message_begin(self) -> None:
        self._headers = {}
        if self.answer is None or self.answer.done():
            self._is_answered_twice = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # of a trailer, which no one reads
        key, text = _header_name(name), value.decode("latin-1")
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200  # 1xx is only news
        self._reads_to_end = self._has_head and _LENGTHS.isdisjoint(self._headers)
        self._announced = self._connecting.announced(self._headers)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._size += len(body)
        if self._size > self._connecting.most_bytes:
            try:
                self._connecting.check_size(self._size)
            except HttpFailure as failure:
                self.fail(failure)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_reusable = self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        assert self.answer is not None
        self._is_answered = True
        if not self.answer.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self.answer.set_result(Response(self._parser.get_status_code(), self._headers, body))

    def fail(self, error: Exception) -> None:
        """End the question with ``error``, and the connection with it."""
        self.is_reusable = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


def _after_the_first_head(data: bytes) -> bytes:
    """``data`` from its second answer on, as far as that can be seen."""
    match = _HEAD.search(data, 1)
    return b"" if match is None else data[match.start() :]


@lru_cache(256)  # servers say the same ones again and again
def _header_name(name: bytes) -> str:
    return name.decode("latin-1").lower()


# --- requests and responses as bytes --------------------------------------------------------------


class _Origin:
    """Whom to connect to, what to call them, and the connections to them that are idle."""

    def __init__(self, url: str) -> None:
        self.url = origin_of(url)
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        self.host = host if host.isascii() else host.encode("idna").decode("ascii")
        self.port = parts.port or 0
        self.is_secure = parts.scheme == "https"
        shown = f"[{self.host}]" if ":" in self.host else self.host
        is_standard = self.port == (443 if self.is_secure else 80)
        self.authority = shown if is_standard else f"{shown}:{self.port}"
        self.idle: deque[HttpConnection] = deque()


def _cut(url: str) -> tuple[str, str]:
    """Everything up to the path, and what comes from there on."""
    match = _AUTHORITY.match(url)
    assert match is not None, "the address was checked before"
    path = url[match.end() :]
    return match[0], path if path.startswith("/") else f"/{path}"


def _closes(headers: Mapping[str, str]) -> bool:
    """Whether the author of the table wants a connection for each request."""
    return any(name.lower() == "connection" and text.lower() == "close" for name, text in headers.items())


def _written(request: Request, path: str, authority: str) -> bytes:
    """The request as bytes."""
    if not _PLAIN.fullmatch(path):
        path = quote(path, safe=_ALLOWED)
    head = f"{request.method} {path} HTTP/1.1\r\n".encode("ascii")
    headers = _written_headers(authority, tuple(request.headers.items()))
    if request.body is None:
        return b"%s%s\r\n" % (head, headers)
    return b"%s%sContent-Length: %d\r\n\r\n%s" % (head, headers, len(request.body), request.body)


@lru_cache(256)  # they are the same for most requests
def _written_headers(authority: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    given = {name.lower() for name, _ in headers}
    lines = [f"Host: {authority}"]
    lines += [f"{name}: {text}" for name, text in STANDING_HEADERS.items() if name.lower() not in given]
    lines += [f"{name}: {_one_line(text)}" for name, text in headers]
    return "".join([f"{line}\r\n" for line in lines]).encode("latin-1", "replace")


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a header may not hold a line break")
    return text
