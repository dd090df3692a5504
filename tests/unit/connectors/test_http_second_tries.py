"""Requests whose kept connection was lost: sent again over fresh ones, few at once, each in its turn."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from lookup_connectors.http.auth_interface import Auth
from lookup_connectors.http.classification import Classification
from lookup_connectors.http.client import MaySend
from lookup_connectors.http.client_httptools import HttptoolsClient
from lookup_connectors.http.exchange import SECOND_TRIES, Answered, Exchange
from lookup_connectors.http.network import Connecting
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import HttpFailure, KeptConnectionLost, PageRows, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight

from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.spi import Ending, Permits
from lookup_hints.spi.request_context import NOBODY, reporting_to
from lookup_hints.testing.fake import FakeLoop

HOME = "http://api:80"


@pytest.fixture
def loop() -> Iterator[FakeLoop]:
    loop = FakeLoop()
    yield loop
    loop.close()


class Lossy(HttptoolsClient):
    """A client all of whose kept connections are lost; ``is_down``: fresh ones are refused as well."""

    def __init__(self, *, is_down: bool) -> None:
        connecting = Connecting("t", 1, 1.0, 1.0, 10**6, ssl.create_default_context(), None, False)
        super().__init__(connecting, BytesInFlight(10**9))
        self._is_down = is_down
        self.sent: Counter[bool] = Counter()
        self.fresh_at_once = self.most_at_once = 0

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        self.sent[fresh] += 1
        if not fresh:
            await asyncio.sleep(0.01)
            raise KeptConnectionLost("lost")
        self.fresh_at_once += 1
        self.most_at_once = max(self.most_at_once, self.fresh_at_once)
        await asyncio.sleep(0.1)
        self.fresh_at_once -= 1
        if self._is_down:
            raise HttpFailure("refused")
        return Response(200, {}, b"{}")


class Watched:
    """Permits that remember how each of them ended."""

    def __init__(self, own: Permits) -> None:
        self.try_acquire, self.acquire, self.acquire_blocking = (
            own.try_acquire,
            own.acquire,
            own.acquire_blocking,
        )
        self.may_send = own.may_send
        self._own = own
        self.endings: Counter[Ending] = Counter()

    def release(self, started: float, ending: Ending, pause: float | None = None, count: int = 1) -> float:
        self.endings[ending] += count
        return self._own.release(started, ending, pause, count)


def ask_all(loop: FakeLoop, client: Lossy, requests: int, seconds: float) -> tuple[Watched, list[Any]]:
    """What became of so many requests that were asked at once, each for ``seconds`` at most."""
    clock = loop.time
    limiter = OriginLimiter(in_memory(), Rules(capacity=requests), clock=clock)
    turns = Watched(limiter.permits())
    exchange = Exchange(
        "people",
        client=client,
        home=HOME,
        auth=Auth({}),
        request_timeout=10.0,
        max_redirects=3,
        classify=lambda _: Classification("answer", PageRows()),
        clock=clock,
        wall_clock=clock,
    )

    async def one() -> Answered:
        with client.budget.lease() as lease:
            return await exchange.ask(Request("GET", f"{HOME}/x"), None, lease)

    async def all_of_them() -> list[Any]:
        tasks = [asyncio.ensure_future(asyncio.wait_for(one(), seconds)) for _ in range(requests)]
        answers: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        return answers

    with reporting_to(NOBODY, turns):
        answers = _run(loop, all_of_them())
    limiter.close()
    return turns, answers


def _run(loop: FakeLoop, coroutine: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    with suppress(asyncio.CancelledError):
        return loop.run_until_complete(coroutine)
    raise AssertionError("cancelled")


def test_all_are_answered_and_no_loss_of_a_kept_connection_counts(loop: FakeLoop) -> None:
    client = Lossy(is_down=False)
    turns, answers = ask_all(loop, client, 100, 30.0)
    assert all(isinstance(answer, Answered) for answer in answers)
    assert client.sent == {False: 100, True: 100}
    assert client.most_at_once <= SECOND_TRIES
    assert turns.endings == {"unknown": 100, "served": 100}


def test_where_the_server_is_down_few_find_out_and_the_others_wait(loop: FakeLoop) -> None:
    client = Lossy(is_down=True)
    turns, answers = ask_all(loop, client, 400, 4.0)
    assert not any(isinstance(answer, Answered) for answer in answers)
    assert client.sent[True] <= 60, "the breaker opens, and the rest waits for it"
    assert turns.endings["lost"] == client.sent[True]
