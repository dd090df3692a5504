"""What carries requests: the part that both engines share, and the guard against answers nobody asked for."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import httpx
import pyarrow as pa

from lookup_connectors.bytes_in_flight import ByteLease, BytesInFlight, Usual
from lookup_connectors.http.answer import HttpFailure, KeptConnectionLost, Response
from lookup_connectors.http.request import Request
from lookup_hints.errors import AnswerError
from lookup_hints.spi import reporting

_PIECE = 64 * 1024


@dataclass(frozen=True)
class Connecting:
    """How connections are made, and what is read from them.

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

    def failure(self, text: str, *, permanent: bool = False) -> HttpFailure:
        return HttpFailure(f"table {self.table}: {text}".replace("..", "."), permanent=permanent)

    def kept_connection_lost(self, request: Request) -> KeptConnectionLost:
        return KeptConnectionLost(f"table {self.table}: {request.origin} closed the connection.")

    def announced(self, headers: Mapping[str, str]) -> int:
        """How many bytes of body are announced; none where they are too many to be read."""
        length = headers.get("content-length", "")
        size = int(length) if length.isdecimal() and length.isascii() and len(length) <= 18 else 0
        return size if size <= self.most_bytes else 0

    def check_size(self, size: int) -> None:
        """Refuse a body that is too large."""
        if size > self.most_bytes:
            raise self.failure(
                f"a response is larger than {self.most_bytes} bytes ('max-response-bytes').", permanent=True
            )

    def decoded(self, request: Request, response: Response) -> Response:
        """``response`` without its content encodings; unknown ones are left, as some servers name charsets.

        Not by httpx, which inflates whatever has come before anyone can see how large it is.

        Raises:
            HttpFailure: it is not what it says, or too large.
        """
        body = response.body
        encodings = response.headers.get("content-encoding", "").lower().replace(" ", "")
        for encoding in reversed(encodings.split(",")):
            inflate = _INFLATE.get(encoding)
            if body and inflate is not None:
                try:
                    body = inflate(self, body)
                except (zlib.error, OSError) as error:
                    text = f"the answer of {request.origin} broke off: it is not {encoding} ({error})."
                    raise self.failure(text) from None
        return response._replace(body=body)


def _by_zlib(connecting: Connecting, body: bytes, *, may_be_bare: bool = False) -> bytes:
    # Some servers send "deflate" bare, without a header of zlib.
    is_bare = may_be_bare and body[:1] not in (b"\x78", b"\x1f")
    reader = zlib.decompressobj(-15 if is_bare else 47)  # 47: gzip or zlib, whichever it begins with
    inflated = reader.decompress(body, connecting.most_bytes + 1)
    connecting.check_size(len(inflated))
    if not reader.eof:
        raise zlib.error("it has no end")
    return inflated


def _by_arrow(codec: str, connecting: Connecting, body: bytes) -> bytes:
    inflated = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while piece := stream.read(_PIECE):
            inflated += piece
            connecting.check_size(len(inflated))
    return bytes(inflated)


_INFLATE: Mapping[str, Callable[[Connecting, bytes], bytes]] = {
    "gzip": _by_zlib,
    "x-gzip": _by_zlib,
    "deflate": partial(_by_zlib, may_be_bare=True),
    **{
        name: partial(_by_arrow, codec)
        for name, codec in {"br": "brotli", "zstd": "zstd"}.items()
        if pa.Codec.is_available(codec)
    },
}

STANDING_HEADERS = {
    "User-Agent": "lookup-hints",
    "Accept": "application/json",
    "Accept-Encoding": ", ".join(name for name in _INFLATE if name != "x-gzip"),
    "Connection": "keep-alive",
}
"""Sent with every request that does not say otherwise."""


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


# --- sending --------------------------------------------------------------------------------------


class Client(Protocol):
    """An engine: carries many requests at once."""

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


class Sender:
    """Sends the requests of all lookups by ``client``, and counts the bytes of all answers."""

    def __init__(self, client: Client, budget: BytesInFlight) -> None:
        self.budget = budget
        self.close = client.close
        self.client = client
        self.usual = Usual()

    async def send(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool = False
    ) -> Response:
        """The response; see ``Client.send``."""
        await lease.expect(self.usual.size)
        try:
            with reporting().http(request.method, request.url) as told:
                signed = request.with_headers(told.headers)
                response = await self.client.send(signed, timeout, lease, fresh=fresh)
                told.answered(response.status)
        finally:
            lease.settle()
        self.usual.saw(len(response.body))
        return response


@asynccontextmanager
async def one_of(places: asyncio.Semaphore, lease: ByteLease) -> AsyncIterator[None]:
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


class ConnectionSlots:
    """The right to use one of ``size`` connections; who finds none free waits in a row.

    What ``asyncio.Semaphore`` does, without a coroutine and a generator for each request that need not wait.
    """

    def __init__(self, size: int) -> None:
        self.free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self, count: int = 1) -> bool:
        """Take so many, if they are free."""
        if self.free < count:
            return False
        self.free -= count
        return True

    async def wait(self, lease: ByteLease) -> None:
        """Wait for one, which those may hold who wait for the bytes of ``lease``."""
        given = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        try:
            with reporting().waiting("slot"), lease.idle():
                await given
        except BaseException:
            if given.done() and not given.cancelled():
                self.release()  # it came just when nobody wanted it any more
            raise

    def release(self) -> None:
        """Hand it on to who has waited longest."""
        while self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                return
        self.free += 1


_ANSWER = re.compile(rb"\s*HTTP/\d(?:\.\d)? (\d{3})")


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

    def answered_again(self, origin: str) -> None:
        """A connection to ``origin`` that was asked several times got an answer to the last question.

        It may be the second answer to the question before. Whether it is, only that connection would show
        later, and it may be closed by then.
        """
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
