"""How a copy of PostgreSQL is read: as fast as its rows are taken, and to its end where it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lookup_connectors.postgres.copy_and_sizes import CHUNK_BYTES, copied


class Endless:
    """A connection to a server that never runs out of rows."""

    sent = 0
    is_ended = False

    async def copy_from_query(
        self, query: str, *, output: Callable[[bytes], Awaitable[None]], **options: str
    ) -> None:
        while True:
            await output(bytes(CHUNK_BYTES))
            self.sent += 1
            await asyncio.sleep(0)

    def terminate(self) -> None:
        self.is_ended = True


def test_no_more_is_read_than_is_taken_and_a_copy_that_is_left_ends() -> None:
    async def left_after(taken: int) -> tuple[int, bool]:
        connection: Any = Endless()
        chunks = copied(connection, "SELECT 1")
        for _ in range(taken):
            await anext(chunks)
            for _ in range(20):
                await asyncio.sleep(0)
        await chunks.aclose()
        return connection.sent, connection.is_ended

    for taken in (1, 3):
        sent, is_ended = asyncio.run(left_after(taken))
        assert sent <= taken + 1
        assert is_ended
