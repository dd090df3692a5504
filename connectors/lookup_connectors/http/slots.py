"""This many connections and no more: who finds none free waits in a row.

What ``asyncio.Semaphore`` does, without a coroutine and a generator for each request that need not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque

from lookup_connectors.bytes_in_flight import ByteLease
from lookup_hints.spi import reporting


class ConnectionSlots:
    """The right to use one of ``size`` connections."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take one, if one is free."""
        if not self._free:
            return False
        self._free -= 1
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
        self._free += 1
