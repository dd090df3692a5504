"""What nobody asked for: bytes beyond an answer, or before a question; they end their connection."""

from __future__ import annotations

import re
import select
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import httpcore

from lookup_hints.errors import AnswerError
from lookup_hints.spi import reporting

_ANSWER = re.compile(rb"\s*HTTP/\d(?:\.\d)? (\d{3})")
_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})")
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[^\n]*chunked", re.IGNORECASE)
_LONGEST_HEAD = 1024 * 1024


class DesyncGuard:
    """What came unasked over all connections of one client.

    An origin that has sent one answer too many is asked over a new connection each time. Where any of its
    connections has served a second question, before or since, an answer may have been taken for that of the
    next one: whatever is asked from then on fails, so that no wrong row stays unnoticed.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._origins: set[str] = set()
        self._asked_again: set[str] = set()
        self._is_in_doubt = False

    def came(self, origin: str, data: bytes, questions: int) -> None:
        """``data`` came from ``origin`` on a connection that had been asked this many ``questions``."""
        answer = _ANSWER.match(data)
        if answer is None or not _tells_something(int(answer[1])):
            return
        self._origins.add(origin)
        self._is_in_doubt |= questions > 1 or origin in self._asked_again

    def answered(self, origin: str, questions: int) -> None:
        """A connection to ``origin`` that had been asked this many ``questions`` got an answer to the last.

        It may be the second answer to the question before. Whether it is, only that connection would show
        later, and it may be closed by then.
        """
        if questions > 1:
            self._asked_again.add(origin)
            self._is_in_doubt |= origin in self._origins

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


def _tells_something(status: int) -> bool:
    """Whether it can be taken for a row or a miss; many servers say goodbye with 408, 400 or 503."""
    return 200 <= status < 400 or status in (404, 410)


class Peek:
    """Looks at what waits to be read on an open ``connection``, and takes nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._is_readable = _readable(connection.fileno())

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


def _readable(descriptor: int) -> Callable[[], object]:
    """Says whether something waits to be read."""
    if descriptor < 0:
        return lambda: False
    if not hasattr(select, "poll"):
        return lambda: select.select([descriptor], [], [], 0)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return partial(poll.poll, 0)


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
