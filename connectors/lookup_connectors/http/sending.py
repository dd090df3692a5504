"""Sending requests, whichever client carries them: bytes, traces, content codings, and how many at once."""

from __future__ import annotations

import asyncio
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from lookup_connectors.bytes_in_flight import ByteLease, BytesInFlight, Usual
from lookup_connectors.http.content import ACCEPTED, BodyTooLarge, decoded
from lookup_connectors.http.network import Connecting
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import Response
from lookup_hints.spi import reporting

STANDING_HEADERS = {
    "User-Agent": "lookup-hints",
    "Accept": "application/json",
    "Accept-Encoding": ACCEPTED,
    "Connection": "keep-alive",
}
"""Sent with every request that does not say otherwise."""


class Sender(ABC):
    """Carries many requests at once; ``budget`` counts the bytes of all answers."""

    keeps_connections: ClassVar[bool]
    """Whether requests go over connections that are open, and many can be started at once."""

    def __init__(self, connecting: Connecting, budget: BytesInFlight) -> None:
        self.budget = budget
        self.usual = Usual()
        self._connecting = connecting
        self._slots = ConnectionSlots(connecting.connections)

    async def send(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool = False
    ) -> Response:
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
        await lease.expect(self.usual.size)
        try:
            with reporting().http(request.method, request.url) as told:
                traced = request.with_headers(told.headers)
                response = await self.answer(traced, timeout, lease, fresh=fresh)
                told.answered(response.status)
        finally:
            lease.settle()
        self.usual.saw(len(response.body))
        return response

    @abstractmethod
    async def answer(self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool) -> Response:
        """What ``send`` gives, which sees to everything around it."""

    @abstractmethod
    async def close(self) -> None:
        pass

    def read(self, request: Request, response: Response) -> Response:
        """``response`` as it is to be read.

        Raises:
            HttpFailure: its encoding is not what it says, or it is too large.
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

    def release(self, count: int = 1) -> None:
        """Hand so many on to those who have waited longest."""
        while count and self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                count -= 1
        self.free += count
