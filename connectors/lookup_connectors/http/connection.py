"""One HTTP/1.1 connection with one request at a time, and the guard against unrequested responses."""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, Protocol, cast

import httptools

from lookup_connectors.http.client import HeldBack, MaySend, send_always
from lookup_connectors.http.network import Connecting, HttpOrigin
from lookup_connectors.http.response import Response
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_hints.errors import AnswerError

_HEAD = re.compile(rb"HTTP/\d\.\d \d{3}")
_MOST_HEAD_BYTES = 1024 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_MOST_HEADS = 64
_LENGTHS = frozenset({"content-length", "transfer-encoding"})


class BrokenOff(Exception):
    """The connection ended, or sent something other than HTTP, before the response was complete."""

    def __init__(self, text: str, *, untouched: bool) -> None:
        super().__init__(text)
        self.untouched = untouched
        """Whether no answer had begun: not even its head was whole."""


class ResponseSink(Protocol):
    """Takes a response: a future is one."""

    def done(self) -> bool:
        """Whether it is there, or not wanted any more."""

    def set_result(self, response: Response, /) -> None:
        """It came."""

    def set_exception(self, error: Exception, /) -> None:
        """It will not come."""


class Head(NamedTuple):
    """The fields of a response's head that determine its length."""

    status: int
    headers: dict[str, str]
    size: int
    is_reusable: bool


class HttpConnection(asyncio.Protocol):
    """One connection with one request at a time; also the callbacks of the parser."""

    def __init__(
        self, connecting: Connecting, origin: HttpOrigin, desync: DesyncGuard, heads: dict[bytes, Head]
    ) -> None:
        self._connecting = connecting
        self.origin = origin
        self._desync = desync
        self._heads = heads
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._peek: Peek | None = None
        self._is_secure = False
        self.is_reusable = True
        """Whether it can take another request."""
        self.questions = 0
        self.used_at = 0.0
        self._is_answered = True  # no request yet
        self._is_answered_twice = False
        # Of the question:
        self.answer: ResponseSink | None = None
        self.came = self.sent = 0
        """Bytes that came since it, and that went out for it."""
        self._may_send = send_always
        self._unsent: bytes | None = None
        self._lease: ByteLease | None = None
        self._granted: asyncio.Future[None] | None = None
        self._end = 0.0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = self._announced = self._counted = self._head_size = 0
        self._has_head = self._reads_to_end = False

    # Before a request goes out nothing may wait to be read: not in TLS, not in the socket.
    # (docs/decisions/0081)
    def is_silent(self) -> bool:
        """Whether it can take a request, and no unrequested data waits to be read."""
        assert self._transport is not None
        assert self._peek is not None
        if not self.is_reusable or self._transport.is_closing():
            return False
        if self._is_secure and not self.questions:
            return True  # the waiting data belongs to TLS
        came = self._peek.waiting()
        if came and not self._is_secure:
            self._desync.came(self.origin.url, came, self.questions)
        return came is None

    def end(self, now: float) -> float:
        """When the response must be there, as known ``now``: its wait for room is not counted."""
        return self._end + (0.0 if self._lease is None else self._lease.waited(now))

    def ask(
        self,
        data: bytes,
        end: float,
        lease: ByteLease,
        sink: ResponseSink,
        may_send: MaySend = send_always,
    ) -> None:
        """Queue the request ``data``; ``sink`` gets the response, or a failure, by ``end``.

        If it may no longer be sent when its turn comes, the failure is ``HeldBack``.

        The client is responsible for calling ``send`` and for the timeout. All waiting of ``lease`` is added
        to ``end``.
        """
        self._body = []
        self._size = self._announced = self._counted = self._head_size = 0
        self._has_head = self._reads_to_end = False
        self._lease = lease
        self._end = end
        self.answer = sink
        self.came = self.sent = 0
        self._may_send = may_send
        self._unsent = data

    def send(self) -> None:
        """Send the request, if it is still wanted, and no unrequested data came."""
        data, self._unsent = self._unsent, None
        if data is None or self.answer is None or self.answer.done():
            return
        if not self._may_send():
            self.answer.set_exception(HeldBack())
            return
        if not self.is_silent():
            self.fail(BrokenOff("the server sent data that was not requested", untouched=True))
            return
        assert self._transport is not None
        self.questions += 1
        self._is_answered = False
        self.sent = len(data)
        self._transport.write(data)

    def forget(self) -> None:
        """Release the state of a request that has ended."""
        self.answer = self._lease = self._unsent = None
        self._body = []
        if self._granted is not None:
            self._granted.cancel()

    def abort(self) -> None:
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every loop's transports are subclasses: those of uvloop are not.
        self._transport = cast("asyncio.Transport", transport)
        self._peek = Peek(transport.get_extra_info("socket"))
        self._is_secure = transport.get_extra_info("sslcontext") is not None

    def data_received(self, data: bytes) -> None:
        self.came += len(data)
        if self.answer is None or self.answer.done() or self._unsent is not None:
            self._handle_unexpected(data)
            return
        if not self._head_size:
            end = data.find(_END_OF_HEAD) + 4
            head = self._heads.get(data[:end])
            if head is not None and len(data) == end + head.size:
                self._finish_known_head(head, data[end:])
                return
        self._head_size += 0 if self._has_head else len(data)
        if self._head_size > _MOST_HEAD_BYTES:
            self.fail(BrokenOff("its head has no end", untouched=False))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.fail(BrokenOff("it changes to another protocol", untouched=False))
        except httptools.HttpParserError as error:
            self.fail(BrokenOff(f"it is not HTTP ({error})", untouched=not self._has_head))
        else:
            self._count_body()
            if self._is_answered and self._head_size == len(data) and not self._is_answered_twice:
                self._remember_head(data)
        if self._is_answered_twice:
            self._handle_unexpected(_second_answer_in(data))

    def _handle_unexpected(self, data: bytes) -> None:
        self.is_reusable = False
        if self._is_answered:  # else it is the response of an abandoned request
            self._desync.came(self.origin.url, data, self.questions)

    # Many answers have one and the same head, which need not be parsed again.

    # Many answers have the same head, byte for byte; one that came before is not parsed again.
    # (docs/decisions/0196)
    def _remember_head(self, data: bytes) -> None:
        """Remember the head of ``data``, which is one whole answer, where it says itself how long it is."""
        end = data.find(_END_OF_HEAD) + 4
        length = self._headers.get("content-length")
        if length != str(len(data) - end) or "transfer-encoding" in self._headers:
            return
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        status = self._parser.get_status_code()
        self._heads[data[:end]] = Head(status, self._headers, len(data) - end, self.is_reusable)

    def _finish_known_head(self, head: Head, body: bytes) -> None:
        assert self.answer is not None
        self._is_answered = True
        self.is_reusable = head.is_reusable
        if self._lease is not None:
            self._lease.take(head.size)
        self.answer.set_result(Response(head.status, head.headers, body))

    def _count_body(self) -> None:
        """Count the body by its announced length, or as it arrives; pause reading while there is no room."""
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
            granted.add_done_callback(self._resume_reading)

    def _resume_reading(self, _: asyncio.Future[None]) -> None:
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
            self._finish_answer()
        else:
            text = "the connection was closed" if error is None else str(error) or type(error).__name__
            self.fail(BrokenOff(text, untouched=not self._has_head))

    # Callbacks of the parser.

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
            self.fail(self._connecting.too_large())

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_reusable = self._parser.should_keep_alive()
            self._finish_answer()

    def _finish_answer(self) -> None:
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


def _second_answer_in(data: bytes) -> bytes:
    """``data`` from its second answer on, as far as that can be seen."""
    match = _HEAD.search(data, 1)
    return b"" if match is None else data[match.start() :]


@lru_cache(256)  # servers say the same ones again and again
def _header_name(name: bytes) -> str:
    return name.decode("latin-1").lower()


# --- unrequested answers --------------------------------------------------------------------------

_ANSWER = re.compile(rb"\s*HTTP/\d(?:\.\d)? (\d{3})")


# Over HTTP/1.1 only the order says whose an answer is. A second answer to one question would become the next
# key's. (docs/decisions/0081, docs/decisions/0065)
class DesyncGuard:
    """Tracks unrequested responses over all connections of one client.

    An origin that sent one response too many gets a new connection for each request. If any of its
    connections served a second request, before or since, a response may have been taken for that of the next
    request. Then all further requests fail, so that no wrong row goes unnoticed.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._origins: set[str] = set()
        self._asked_again: set[str] = set()
        self._is_in_doubt = False

    def came(self, origin: str, data: bytes, questions: int) -> None:
        """Record unrequested ``data`` from ``origin`` on a connection after this many requests."""
        answer = _ANSWER.match(data)
        if answer is None or not _is_row_or_miss(int(answer[1])):
            return
        self._origins.add(origin)
        self._is_in_doubt |= questions > 1 or origin in self._asked_again

    def answered_again(self, origin: str) -> None:
        """Record a response to the latest of several requests on a connection to ``origin``.

        It may be a second response to the request before. Only that connection could show this later, and it
        may be closed by then.
        """
        self._asked_again.add(origin)
        self._is_in_doubt |= origin in self._origins

    # A server that was caught once is not trusted again: its connections serve one request each.
    # (docs/decisions/0081)
    def may_keep(self, origin: str) -> bool:
        """Whether a connection to ``origin`` may be used again."""
        return origin not in self._origins

    def check(self) -> None:
        """Refuse to go on where rows may be wrong.

        Raises:
            AnswerError: an answer too many came from an origin whose connections served several questions.
        """
        if self._is_in_doubt:
            raise AnswerError(
                f"table {self._table}: {', '.join(sorted(self._origins))} sent more responses than requests."
                " Rows that were read may belong to other keys. Set 'header.Connection' ="
                " 'close', so that each request uses a new connection."
            )


# Servers and balancers say 408, 400 or 503 on an idle connection and close it: a farewell, and no answer.
# (docs/decisions/0081)
def _is_row_or_miss(status: int) -> bool:
    """Whether it can be taken for a row or a miss; many servers say goodbye with 408, 400 or 503."""
    return 200 <= status < 400 or status in (404, 410)


class Peek:
    """Checks for unread data on an open ``connection`` without consuming it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_readable = _readable_check(connection.fileno())

    def waiting(self) -> bytes | None:
        """The first bytes that wait; empty at the end of the connection, None where there are none."""
        if not self._is_readable():
            return None
        # Asyncio's sockets cannot be read; this one is for the same descriptor.
        own = socket.socket(fileno=self._connection.fileno())
        try:
            return own.recv(64, socket.MSG_PEEK)
        except OSError:
            return b""
        finally:
            own.detach()


def _readable_check(descriptor: int) -> Callable[[], object]:
    """Says whether something waits to be read."""
    if descriptor < 0:
        return lambda: False
    if not hasattr(select, "poll"):
        return lambda: select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return partial(poll.poll, 0)
