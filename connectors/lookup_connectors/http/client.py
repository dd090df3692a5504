"""Shared parts of the HTTP clients: byte counts, traces, content codings, and connection limits."""

from __future__ import annotations

import asyncio
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import ClassVar, TypeAlias

import pyarrow as pa

from lookup_connectors.http.network import Connecting
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import Response
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight, Usual
from lookup_hints.spi import reporting

# --- content codings ------------------------------------------------------------------------------

_PIECE = 64 * 1024
_SMALL_PIECE = 4 * 1024


class BodyTooLarge(Exception):
    """A body is larger than it may be."""


# Content codings are decoded here, as httpx checks the size only after inflating. (docs/decisions/0065)
def decoded(body: bytes, codings: str, most_bytes: int) -> bytes:
    """``body`` without its ``codings``, of ``most_bytes`` at most.

    Unknown codings are ignored, as some servers put charsets there.

    Raises:
        BodyTooLarge: it is larger.
        zlib.error, OSError: it is not encoded as declared.
    """
    for coding in reversed(codings.lower().replace(" ", "").split(",")):
        inflate = _INFLATE.get(coding)
        if body and inflate is not None:
            body = inflate(body, most_bytes)
    return body


def _by_zlib(body: bytes, most_bytes: int, *, may_be_bare: bool = False) -> bytes:
    # Some servers send "deflate" bare, without a header of zlib.
    is_bare = may_be_bare and body[:1] not in (b"\x78", b"\x1f")
    window = -15 if is_bare else 47  # 47: gzip or zlib, whichever it begins with
    inflated, reader, at = bytearray(), zlib.decompressobj(window), 0
    while True:
        # In small pieces: each member copies what follows it, and gzip may have many members.
        piece = body[at : at + _SMALL_PIECE]
        inflated += reader.decompress(piece, most_bytes - len(inflated) + 1)
        at += len(piece) - len(reader.unused_data)
        if len(inflated) > most_bytes:
            raise BodyTooLarge
        if reader.eof:
            if body[at : at + 2] != b"\x1f\x8b":
                return bytes(inflated)
            reader = zlib.decompressobj(window)
        elif not piece:
            raise zlib.error("it has no end")


def _by_arrow(codec: str, body: bytes, most_bytes: int) -> bytes:
    inflated = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        # Not read(): what it has made for a piece stays for ever where the piece cannot be decoded.
        while piece := stream.read_buffer(_PIECE):
            inflated += piece
            if len(inflated) > most_bytes:
                raise BodyTooLarge
    return bytes(inflated)


_INFLATE: Mapping[str, Callable[[bytes, int], bytes]] = {
    "gzip": _by_zlib,
    "x-gzip": _by_zlib,
    "deflate": partial(_by_zlib, may_be_bare=True),
    **{
        name: partial(_by_arrow, codec)
        for name, codec in {"br": "brotli", "zstd": "zstd"}.items()
        if pa.Codec.is_available(codec)
    },
}

ACCEPTED = ", ".join(name for name in _INFLATE if name != "x-gzip")
"""The codings that we ask for."""


# --- sending requests -----------------------------------------------------------------------------


class HeldBack(Exception):
    """The request did not leave, as the source asks for a pause."""


MaySend: TypeAlias = Callable[[], bool]
"""Whether a request may still be sent; called just before sending."""


def send_always() -> bool:
    return True


STANDING_HEADERS = {
    "User-Agent": "lookup-hints",
    "Accept": "application/json",
    "Accept-Encoding": ACCEPTED,
    "Connection": "keep-alive",
}
"""Sent with every request that does not say otherwise."""


class HttpClient(ABC):
    """Carries many requests at once; ``budget`` counts the bytes of all answers."""

    keeps_connections: ClassVar[bool]
    """Whether requests go over connections that are open, and many can be started at once."""

    def __init__(self, connecting: Connecting, budget: BytesInFlight) -> None:
        self.budget = budget
        self.usual = Usual()
        self._connecting = connecting
        self._slots = ConnectionSlots(connecting.connections)

    async def send(
        self,
        request: Request,
        timeout: float,
        lease: ByteLease,
        *,
        fresh: bool = False,
        may_send: MaySend = send_always,
    ) -> Response:
        """Send and return the response; ``lease`` counts its bytes, and waiting for room is not timed.

        Args:
            request: the request.
            timeout: seconds.
            lease: counts bytes.
            fresh: whether it needs a fresh connection.
            may_send: whether it may still be sent.

        Raises:
            HeldBack: ``may_send`` returned False.
            KeptConnectionLost: it was sent over a kept connection, which was lost.
            HttpFailure: there is no response.
        """
        await lease.expect(self.usual.size)
        try:
            with reporting().http(request.method, request.url) as told:
                traced = request.with_headers(told.headers)
                response = await self.answer(traced, timeout, lease, fresh=fresh, may_send=may_send)
                told.answered(response.status)
        finally:
            lease.settle()
        self.usual.saw(len(response.body))
        return response

    @abstractmethod
    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        """The bare exchange of ``send``, which adds traces, limits and decoding."""

    @abstractmethod
    async def close(self) -> None:
        pass

    def read(self, request: Request, response: Response) -> Response:
        """``response`` with its body decoded.

        Raises:
            HttpFailure: it is not encoded as declared, or too large.
        """
        codings = response.headers.get("content-encoding")
        if not codings:
            return response
        try:
            return response._replace(body=decoded(response.body, codings, self._connecting.most_bytes))
        except BodyTooLarge:
            raise self._connecting.too_large() from None
        except (zlib.error, OSError) as error:
            text = f"the answer of {request.origin} broke off: it is not {codings} ({error})."
            raise self._connecting.failure(text) from None


# --- connections that there may be -------------------------------------------------------------


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
    """A semaphore for ``size`` connections; waiters are served in order.

    Like ``asyncio.Semaphore``, without a coroutine and a generator for each request that need not wait.
    """

    def __init__(self, size: int) -> None:
        self.free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self, count: int = 1) -> bool:
        """Take ``count`` slots, if they are free."""
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
                self.release()  # granted just as the waiter was cancelled
            raise

    def release(self, count: int = 1) -> None:
        """Return ``count`` slots; those who have waited longest get them."""
        while count and self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                count -= 1
        self.free += count
