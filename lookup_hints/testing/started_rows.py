"""Keys that are started together, against keys that are looked up one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lookup_hints.spi import AsyncRowLookup, LookupRequest, RowRequest, Rows, StartedRow, StartedRows
from lookup_hints.spi.connector import outcomes_of, rows_of

_SECONDS = 60.0
_ROUNDS = 3


def check_started_rows(connector: AsyncRowLookup, request: LookupRequest) -> int:
    """Compare what comes of the keys of ``request`` in both ways; how many keys were started, 0 for none.

    Raises:
        AssertionError: they differ, a key comes twice or never, or one that was cancelled comes at all.
    """
    return asyncio.run(_compared(connector, request))


async def _compared(connector: AsyncRowLookup, request: LookupRequest) -> int:
    rows, started = rows_of(request), 0
    await connector.aopen()
    try:
        alone = [await _outcome(connector, row) for row in rows]
        # All at once, so that there are connections over which many can be started.
        await asyncio.gather(*(_outcome(connector, row) for row in rows))
        for _ in range(_ROUNDS):
            together = _Together(connector)
            outcomes = await together.outcomes(rows)
            started += together.count
            assert _told(connector, rows, outcomes, request) == _told(connector, rows, alone, request)
            await together.cancelled(rows)
            assert not together.strays, "a key came that was not started, or twice, or after it was cancelled"
        return started
    finally:
        await connector.aclose()


async def _outcome(connector: AsyncRowLookup, row: RowRequest) -> Rows | Exception:
    try:
        return await connector.alookup_row(row)
    except Exception as error:
        return error


class _Together:
    """Starts keys as the engine does, and looks up the others."""

    def __init__(self, connector: AsyncRowLookup) -> None:
        self.count = 0
        """How many keys were started."""
        self.strays = 0
        """How many came that nobody waited for."""
        self._connector = connector
        self._starter = connector.row_starter(self._take)
        self._waiting: dict[StartedRow, asyncio.Future[Any]] = {}

    def _take(self, came: StartedRows) -> None:
        for row, outcome in came:
            future = self._waiting.pop(row, None)
            if future is not None:
                future.set_result(outcome)
                continue
            self.strays += 1
            if asyncio.iscoroutine(outcome):
                outcome.close()

    def _start(self, rows: Sequence[RowRequest]) -> list[StartedRow]:
        """What was started: the first of ``rows``."""
        if self._starter is None:
            return []
        started = list(self._starter.start(rows))
        assert len(started) <= len(rows)
        loop = asyncio.get_running_loop()
        self._waiting |= {row: loop.create_future() for row in started}
        self.count += len(started)
        return started

    async def outcomes(self, rows: Sequence[RowRequest]) -> list[Rows | Exception]:
        """What comes of each of ``rows``."""
        futures = [self._waiting[row] for row in self._start(rows)]
        others = [_outcome(self._connector, row) for row in rows[len(futures) :]]
        each = [*(self._finished(future) for future in futures), *others]
        return list(await asyncio.wait_for(asyncio.gather(*each), _SECONDS))

    async def _finished(self, future: asyncio.Future[Any]) -> Rows | Exception:
        outcome = await future
        try:
            found: Rows | Exception = await outcome if asyncio.iscoroutine(outcome) else outcome
        except Exception as error:
            return error
        return found

    async def cancelled(self, rows: Sequence[RowRequest]) -> None:
        """Start ``rows`` and cancel them, each a little later in its life: nothing may be told of them."""
        for turns in range(_ROUNDS):
            started = {row: self._waiting[row] for row in self._start(rows)}
            for _ in range(turns):
                await asyncio.sleep(0)
            for row, future in started.items():
                if self._waiting.pop(row, None) is not None:
                    row.cancel()
                elif asyncio.iscoroutine(outcome := future.result()):
                    outcome.close()
            await asyncio.sleep(0.01)


def _told(
    connector: AsyncRowLookup,
    rows: Sequence[RowRequest],
    outcomes: Sequence[Rows | Exception],
    request: LookupRequest,
) -> tuple[list[dict[str, Any]], list[int], dict[int, str]]:
    """The rows in their order, the keys that they are of, and the errors."""
    answer = outcomes_of(connector, list(zip(rows, outcomes, strict=True)), request.schema)
    assert answer.positions is not None
    errors = {key: f"{type(error).__name__}: {error}" for key, error in answer.failures.items()}
    return answer.rows.to_pylist(), answer.positions.to_pylist(), errors
