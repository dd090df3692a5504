"""Look up many keys at once over open connections, without a task or future for each key.

Responses of one turn of the event loop are classified and passed on together. Any other outcome (a redirect,
a refusal, a lost connection, a further page) continues from there as a coroutine for its key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lookup_connectors.http.client import HeldBack
from lookup_connectors.http.exchange import Answered, Begun, ending_of_failure
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import Response, RowMetadata
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_hints.spi import RowRequest, Rows, TakeRows, permits, reporting

if TYPE_CHECKING:
    from lookup_connectors.http.client_httptools import HttptoolsClient
    from lookup_connectors.http.connection import HttpConnection
    from lookup_connectors.http.connector import OpenHttp


class _Start(NamedTuple):
    """The common state of keys that were started together."""

    credentials: dict[str, str]
    time: float
    deadline: float | None
    timeout: float


class StartedKey:
    """A key in flight. Its connection sets its result, as it would for a future."""

    __slots__ = ("_keys", "came", "connection", "request", "row", "start")

    connection: HttpConnection

    def __init__(self, keys: StartedKeys, row: RowRequest, request: Request, start: _Start) -> None:
        self._keys, self.row, self.request, self.start = keys, row, request, start
        self.came: Response | Exception | None = None

    def done(self) -> bool:
        return self.came is not None

    def set_result(self, response: Response) -> None:
        self.came = response
        self._keys.took(self)

    def set_exception(self, error: Exception) -> None:
        self.came = error
        self._keys.took(self)

    def cancel(self) -> None:
        self._keys.cancel(self)


# Ordinary keys take no coroutine of their own. (docs/decisions/0196)
class StartedKeys:
    """The keys of one task that are under way."""

    def __init__(self, live: OpenHttp, client: HttptoolsClient, take: TakeRows) -> None:
        self._live, self._client, self._take = live, client, take
        self._lease = live.client.budget.lease(shared=True)
        self._permits, self._reports, self._context = permits(), reporting(), copy_context()
        self._under_way = 0
        self._came: list[StartedKey] = []
        self._served = self._size = 0
        self._now = 0.0

    # Where a connection is open, a permit is free and the answer has room; all requests of one turn go out
    # together. (docs/decisions/0196)
    def start(self, rows: Sequence[RowRequest]) -> Sequence[StartedKey]:
        """Start the first of ``rows``: as many as connections, bytes and permits allow without waiting.

        A repeated lookup may have priority over others, and therefore wait for bytes.
        """
        live, client, usual = self._live, self._client, self._client.usual.size
        credentials, rows = live.exchange.auth.known, rows[: client.room(live.exchange.home)]
        if (
            not rows
            or rows[0].attempt > 1
            or credentials is None
            or not self._lease.has_room(len(rows) * usual)
        ):
            return ()
        count = self._permits.try_acquire(len(rows))
        if not count:
            return ()
        requests = live.requests_of(rows[:count])
        now, timeout, longest = time.monotonic(), rows[0].timeout, live.exchange.request_timeout
        deadline = None if timeout is None else now + timeout
        start = _Start(credentials, now, deadline, longest if timeout is None else min(timeout, longest))
        keys = [StartedKey(self, row, request, start) for row, request in zip(rows, requests, strict=False)]
        self._lease.expect_now(count * usual)
        end = asyncio.get_running_loop().time() + start.timeout
        signed, may_send = live.exchange.signed(requests, credentials), partial(self._permits.may_send, now)
        sent = client.start(keys, signed, end, self._lease, may_send)
        for _ in range(sent, count):  # no request, or no connection
            self._permits.release(now, "unknown")
        self._under_way += sent
        return keys[:sent]

    def took(self, key: StartedKey) -> None:
        """Something came for ``key``: it is looked at with all that comes in this turn of the loop."""
        if not self._came:
            asyncio.get_running_loop().call_soon(self._hand_over_outcomes, context=self._context)
        self._came.append(key)

    def cancel(self, key: StartedKey) -> None:
        """Abandon ``key``."""
        if key.done():
            self._came.remove(key)
        is_late = key.start.deadline is not None and time.monotonic() >= key.start.deadline
        self._permits.release(key.start.time, "lost" if is_late else "unknown")
        self._reports.sent(key.connection.sent)
        self._reports.received(key.connection.came)
        self._client.over(key.connection, is_kept=False)
        self._forget_keys(1)

    def _hand_over_outcomes(self) -> None:
        keys, self._came = self._came, []
        self._served = self._size = 0
        self._now = time.monotonic()
        held = self._client.budget.lease()
        self._reports.sent(sum([key.connection.sent for key in keys]))
        self._reports.received(sum([key.connection.came for key in keys]))
        outcomes = [(key, self._outcome_of_key(key, held)) for key in keys]
        if self._served:
            held.take(self._size)
            self._permits.release(keys[-1].start.time, "served", count=self._served)
        self._forget_keys(len(keys))
        if keys:
            self._take(outcomes)

    def _outcome_of_key(self, key: StartedKey, held: ByteLease) -> Rows | Coroutine[Any, Any, Rows]:
        """The rows of an ordinary answer, whose bytes ``held`` counts; else a coroutine that continues."""
        live, start, came = self._live, key.start, key.came
        self._client.over(key.connection, is_kept=type(came) in (Response, HeldBack))
        try:
            assert came is not None
            if isinstance(came, Exception):
                raise came
            response = self._client.read(key.request, came)
        except HeldBack:
            self._permits.release(start.time, "unsent")
            return live.row(key.row)
        except Exception as error:
            failure = self._client.failure(key.request, error, start.timeout, is_kept=True)
            self._permits.release(start.time, ending_of_failure(failure))
            return live.row(key.row, Begun(key.request, start.credentials, start.time, failure))
        classified, ending, pause = live.exchange.assessed(response)
        if classified is not None and ending == "served" and not pause:
            answered = Answered(key.request, response, classified)
            if live.is_whole(answered):
                self._served += 1
                self._size += len(response.body)
                self._client.usual.saw(len(response.body))
                told = RowMetadata.of(classified.rows, response, key.row.attempt, self._now - start.time)
                return live.found(key.row.key, classified.rows, told, held)
        wait = self._permits.release(start.time, ending, pause)
        begun = Begun(key.request, start.credentials, start.time, response, classified, ending, wait)
        return live.row(key.row, begun)

    def _forget_keys(self, keys: int) -> None:
        """Forget ``keys`` ended keys, whose bytes are counted elsewhere by now."""
        self._client.end_started(keys)
        self._under_way -= keys
        self._lease.keep(self._under_way * self._client.usual.size)
