"""A client for many small requests at once: HTTP/1.1 over asyncio, parsed by httptools.

It does only what an exchange needs: no redirects, no cookies. That makes each request many times cheaper than
with other clients.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

from lookup_connectors.http.client import STANDING_HEADERS, HeldBack, HttpClient, MaySend
from lookup_connectors.http.connection import BrokenOff, DesyncGuard, Head, HttpConnection
from lookup_connectors.http.network import Connecting, HttpOrigin, connected
from lookup_connectors.http.request import AUTHORITY, Request
from lookup_connectors.http.response import KeptConnectionLost, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight
from lookup_hints.spi import reporting

if TYPE_CHECKING:
    from lookup_connectors.http.started_keys import StartedKey

_PLAIN = re.compile(r"[!-~]*")
_ALLOWED = "%/:=&?~+!$,;'@()*[]\"<>{}|^`\\-._"
_SHORTEST_WATCH = 0.05


# httpx does not bear 100 requests in flight: 130 to 150 requests a second where plain aiohttp carried 4,700.
# (docs/decisions/0022, docs/decisions/0199)
class HttptoolsClient(HttpClient):
    """Carries requests over kept connections."""

    keeps_connections = True

    def __init__(self, connecting: Connecting, budget: BytesInFlight) -> None:
        super().__init__(connecting, budget)
        self._origins: dict[str, HttpOrigin] = {}
        self._idle: dict[str, deque[HttpConnection]] = {}
        self._busy: set[HttpConnection] = set()
        self._unsent: list[HttpConnection] = []
        self._watch: asyncio.TimerHandle | None = None
        self._watched_until = math.inf
        self._desync = DesyncGuard(connecting.table)
        self._heads: dict[bytes, Head] = {}

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        self._desync.check()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        if not self._slots.take():
            await self._slots.wait(lease)
        is_kept = False
        try:
            origin, path = self._origin_and_path(request.url)
            data = _request_bytes(request, path, origin)
            connection = None if fresh else self._take_idle(origin)
            is_kept = connection is not None
            connection = connection or await self._open_connection(origin, end)
            answer: asyncio.Future[Response] = loop.create_future()
            connection.ask(data, end - lease.waited(loop.time()), lease, answer, may_send)
            self._send_soon([connection], end)
            try:
                response = await answer
                self.over(connection, is_kept=not _closes_connection(request.headers))
            except HeldBack:
                self.over(connection, is_kept=True)
                raise
            finally:
                reporting().sent(connection.sent)
                reporting().received(connection.came)
                if connection.answer is not None:
                    self.over(connection, is_kept=False)  # nobody waits for its response any more
            return self.read(request, response)
        except Exception as error:
            raise self.failure(request, error, timeout, is_kept=is_kept) from None
        finally:
            self._slots.release()

    def _origin_and_path(self, url: str) -> tuple[HttpOrigin, str]:
        """The origin of ``url``, and the path with the query."""
        start, path = _split_url(url)
        origin = self._origins.get(start)
        if origin is None:
            origin = self._origins[start] = HttpOrigin(self._connecting, start)
            self._idle.setdefault(origin.url, deque())
        return origin, path

    def read(self, request: Request, response: Response) -> Response:
        """As every client reads it.

        Raises:
            AnswerError: it may be the answer to another request.
        """
        self._desync.check()
        return super().read(request, response)

    def failure(self, request: Request, error: Exception, timeout: float, *, is_kept: bool) -> Exception:
        """The exception to raise for ``error``; it depends on whether the connection was a kept one."""
        if isinstance(error, asyncio.TimeoutError):
            return self._connecting.unanswered(request.origin, timeout)
        if not isinstance(error, BrokenOff):
            return error
        if is_kept and error.untouched:
            # The server closed an idle connection just when we took it, or had left something on it.
            text = f"table {self._connecting.table}: {request.origin} closed the connection."
            return KeptConnectionLost(text)
        return self._connecting.failure(f"the answer of {request.origin} broke off: {error}.")

    # Without waiting.

    def room(self, url: str) -> int:
        """How many requests to ``url`` could be sent at once, over connections that are kept."""
        return min(len(self._idle[self._origin_and_path(url)[0].url]), self._slots.free)

    def start(
        self,
        keys: Sequence[StartedKey],
        requests: Sequence[Request],
        end: float,
        lease: ByteLease,
        may_send: MaySend,
    ) -> int:
        """Send the first of ``requests``, all to one origin, for ``keys`` over kept connections; how many."""
        self._desync.check()
        asked: list[HttpConnection] = []
        if requests:
            origin, path = self._origin_and_path(requests[0].url)
            start = len(requests[0].url.removesuffix(path))
        for key, request in zip(keys, requests, strict=False):
            connection = self._take_idle(origin)
            if connection is None:
                break
            data = _request_bytes(request, request.url[start:], origin)
            key.connection = connection
            connection.ask(data, end, lease, key, may_send)
            asked.append(connection)
        if asked:
            self._send_soon(asked, end)
        self._slots.take(len(asked))
        return len(asked)

    def end_started(self, count: int) -> None:
        """Release the slots of ``count`` started requests that have ended."""
        self._slots.release(count)

    def over(self, connection: HttpConnection, *, is_kept: bool) -> None:
        """End a request: keep the connection if it can be reused."""
        origin, desync = connection.origin, self._desync
        if is_kept and connection.questions > 1:
            desync.answered_again(origin.url)
        connection.forget()
        self._busy.discard(connection)
        if is_kept and connection.is_reusable and desync.may_keep(origin.url):
            self._keep_idle(origin, connection)
        else:
            connection.abort()

    # Inside.

    def _send_soon(self, asked: Sequence[HttpConnection], end: float) -> None:
        """Send the requests of connections, due by ``end``, together with others of this turn of the loop.

        Sending them one by one between other work is slower for us, and for a server on the same machine.
        """
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._unsent += asked
        self._busy.update(asked)
        self._watch_until(end)

    def _send_all(self) -> None:
        connections, self._unsent = self._unsent, []
        for connection in connections:
            connection.send()

    def _watch_until(self, end: float) -> None:
        """Make sure that requests due by ``end`` time out then. (A timer for each would cost more.)"""
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

    def _take_idle(self, origin: HttpOrigin) -> HttpConnection | None:
        """The idle connection that was used last, if any may be fit for use."""
        now, idle = time.monotonic(), self._idle[origin.url]
        while idle:
            connection = idle.pop()
            is_young = now - connection.used_at < self._connecting.idle_timeout
            if connection.is_reusable and is_young and self._desync.may_keep(origin.url):
                return connection
            connection.abort()
        return None

    def _keep_idle(self, origin: HttpOrigin, connection: HttpConnection) -> None:
        idle = self._idle[origin.url]
        idle.append(connection)
        now = connection.used_at = time.monotonic()
        while now - idle[0].used_at >= self._connecting.idle_timeout:
            idle.popleft().abort()

    async def _open_connection(self, origin: HttpOrigin, end: float) -> HttpConnection:
        connecting = self._connecting
        limit = min(connecting.connect_timeout, end - asyncio.get_running_loop().time())
        connection = await connected(
            connecting, origin, lambda: HttpConnection(connecting, origin, self._desync, self._heads), limit
        )
        if not connection.is_silent():
            connection.abort()
            raise BrokenOff("the server sent data before the request", untouched=False)
        return connection

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch, self._watched_until = None, math.inf
        for connection in [*self._busy, *chain.from_iterable(self._idle.values())]:
            connection.abort()
        self._idle.clear()
        self._origins.clear()
        await asyncio.sleep(0)  # so that the sockets close before the loop may


# --- requests as bytes ----------------------------------------------------------------------------


def _split_url(url: str) -> tuple[str, str]:
    """Split a URL into everything before the path, and the rest."""
    match = AUTHORITY.match(url)
    assert match is not None, "the address was checked before"
    path = url[match.end() :]
    return match[0], path if path.startswith("/") else f"/{path}"


def _closes_connection(headers: Mapping[str, str]) -> bool:
    """Whether the author of the table wants a connection for each request."""
    return any(name.lower() == "connection" and text.lower() == "close" for name, text in headers.items())


def _request_bytes(request: Request, path: str, origin: HttpOrigin) -> bytes:
    """The request as bytes."""
    if not _PLAIN.fullmatch(path):
        path = quote(path, safe=_ALLOWED)
    headers = _written_headers(origin, tuple(request.headers.items()))
    if origin.proxy is not None and not origin.is_secure:
        path = f"http://{origin.authority}{path}"
    head = f"{request.method} {path} HTTP/1.1\r\n".encode("ascii")
    if request.body is None:
        return b"%s%s\r\n" % (head, headers)
    return b"%s%sContent-Length: %d\r\n\r\n%s" % (head, headers, len(request.body), request.body)


@lru_cache(256)  # they are the same for most requests
def _written_headers(origin: HttpOrigin, headers: tuple[tuple[str, str], ...]) -> bytes:
    given = {name.lower() for name, _ in headers}
    lines = [f"Host: {origin.authority}"]
    lines += [f"{name}: {text}" for name, text in STANDING_HEADERS.items() if name.lower() not in given]
    if origin.proxy is not None and not origin.is_secure:
        lines += [f"{name}: {text}" for name, text in origin.proxy.headers.items()]
    lines += [f"{name}: {_one_line(text)}" for name, text in headers]
    return "".join([f"{line}\r\n" for line in lines]).encode("latin-1", "replace")


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("a header may not hold a line break")
    return text
