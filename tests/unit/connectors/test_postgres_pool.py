"""Connections of the postgres connector come back to their pool, whenever a lookup is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from lookup_connectors.postgres.connections import PostgresPool

from lookup_hints.errors import ConnectorError


class _SlowToRollBack:
    """A connection and its pool: a rollback begins, and ends when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.lent = 0

    async def execute(self, sql: str) -> None:
        if sql == "ROLLBACK":
            self.begun.set()
            await self.may_end.wait()

    def get_size(self) -> int:
        return 1

    get_max_size = get_idle_size = get_size

    async def acquire(self) -> _SlowToRollBack:
        self.lent += 1
        return self

    async def release(self, connection: Any, timeout: float | None = None) -> None:
        assert connection is self
        self.lent -= 1

    async def close(self) -> None:
        assert not self.lent


class _Failures:
    def explained(self, error: Exception) -> ConnectorError:
        return ConnectorError(str(error))


@pytest.mark.parametrize("failure", [asyncpg.DataError("no number"), LookupError("no such column")])
def test_a_lookup_that_is_cancelled_while_it_rolls_back_keeps_no_connection(failure: Exception) -> None:
    async def fail_and_cancel() -> int:
        driver = _SlowToRollBack()
        pool = PostgresPool(driver, _Failures(), 0, read_only_session=False)  # type: ignore[arg-type]

        async def fail() -> None:
            async with pool.borrowed():
                raise failure

        task = asyncio.ensure_future(asyncio.wait_for(fail(), 60))
        await driver.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)
        driver.may_end.set()
        await pool.close()
        return driver.lent

    assert asyncio.run(fail_and_cancel()) == 0
