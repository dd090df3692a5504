"""No request leaves before the time that an answer has said, whatever was granted or queued: on a made-up clock."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lookup_connectors.http.auth_interface import Auth
from lookup_connectors.http.classification import Classification
from lookup_connectors.http.client import HeldBack, HttpClient, MaySend
from lookup_connectors.http.exchange import Exchange
from lookup_connectors.http.network import Connecting
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import PageRows, Response
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight

from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import LimitStore, Rules, in_folder, in_memory
from lookup_hints.spi.request_context import NOBODY, reporting_to
from tests.unit.engine.support import VirtualLoop

HOME = "http://127.0.0.1:9"
LATENCY, CONNECTING = 0.05, 0.01
PAUSE = 2.0
SPELLINGS: list[dict[str, str]] = [
    {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2"},
    {"x-rate-limit-remaining": "0", "x-rate-limit-reset": "2"},
    {"ratelimit-remaining": "0", "ratelimit-reset": "2"},
    {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s"},
    {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2"},
    {"x-ratelimit-remaining": "0.0", "x-ratelimit-reset-after": "2.0"},
    {"ratelimit": "limit=10, remaining=0, reset=2"},
    {"ratelimit": '"default";r=0;t=2'},
    {"ratelimit": '"default";r=0', "ratelimit-policy": '"default";q=10;w=2'},
]


class Client(HttpClient):
    """Sends over so many connections, each of which is opened for its request; the first answer has ``headers``."""

    keeps_connections = False

    def __init__(self, loop: VirtualLoop, sent: list[float], answer: Response, connections: int) -> None:
        tls = ssl.create_default_context()
        connecting = Connecting("t", connections, 1.0, 1.0, 10**6, tls, None, False)
        super().__init__(connecting, BytesInFlight(10**9))
        self._loop, self._sent, self._first = loop, sent, answer

    async def answer(
        self, request: Request, timeout: float, lease: ByteLease, *, fresh: bool, may_send: MaySend
    ) -> Response:
        if not self._slots.take():
            await self._slots.wait(lease)
        try:
            await asyncio.sleep(CONNECTING)
            if not may_send():
                raise HeldBack
            self._sent.append(self._loop.time())
            is_first = len(self._sent) == 1
            await asyncio.sleep(LATENCY)
            return self._first if is_first else Response(200, {}, b"{}")
        finally:
            self._slots.release()

    async def close(self) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def _sent_times(
    loop: VirtualLoop,
    stores: Sequence[LimitStore],
    first: Response,
    connections: int = 1,
    rules: Rules = Rules(),  # noqa: B008
) -> list[float]:
    """When each of forty requests of a task for each of ``stores`` left; ``first`` is the first answer."""
    sent: list[float] = []

    async def ask(exchange: Exchange) -> None:
        with exchange.client.budget.lease() as lease:
            await exchange.ask(Request("GET", f"{HOME}/x"), None, lease)

    async def task(store: LimitStore) -> None:
        exchange = Exchange(
            "people",
            client=Client(loop, sent, first, connections),
            home=HOME,
            auth=Auth({}),
            request_timeout=10.0,
            max_redirects=3,
            classify=lambda response: Classification(
                "answer" if response.status == 200 else "throttled", PageRows()
            ),
            clock=loop.time,
            wall_clock=loop.time,
        )
        spent = None if rules.max_requests is None else in_memory()
        limiter = OriginLimiter(store, rules, spent=spent, process=os.getpid(), clock=loop.time)
        with reporting_to(NOBODY, limiter.permits()):
            await asyncio.gather(*(ask(exchange) for _ in range(40)))
        limiter.close()

    async def tasks() -> None:
        await asyncio.gather(*map(task, stores))

    loop.run_until_complete(tasks())
    return sent


def _check_pause(sent: Sequence[float], requests: int) -> None:
    """Nothing left from the answer that told of the pause until its end, and then all did."""
    told = sent[0] + LATENCY
    assert len(sent) == requests
    assert [each for each in sent if told <= each < told + PAUSE] == []
    assert sent[-1] >= told + PAUSE


@pytest.mark.parametrize("connections", [1, 4, 100])
@pytest.mark.parametrize("headers", SPELLINGS, ids=lambda headers: next(iter(headers)))
def test_what_was_granted_waits_for_the_pause(
    loop: VirtualLoop, headers: dict[str, str], connections: int
) -> None:
    sent = _sent_times(loop, [in_memory()], Response(200, headers, b"{}"), connections)
    _check_pause(sent, 40)
    assert sum(each < sent[0] + LATENCY for each in sent) <= connections


@pytest.mark.parametrize("shares", ["two tasks of a process", "two processes"])
def test_a_pause_holds_for_all_who_share_the_limit(loop: VirtualLoop, shares: str, tmp_path: Path) -> None:
    one = in_memory()
    stores = [one, one] if shares == "two tasks of a process" else [in_folder(tmp_path, "api") for _ in "12"]
    sent = _sent_times(loop, stores, Response(200, SPELLINGS[0], b"{}"))
    _check_pause(sent, 80)


def test_a_refusal_that_says_when_to_come_back_holds_what_was_granted(loop: VirtualLoop) -> None:
    sent = _sent_times(loop, [in_memory()], Response(429, {"retry-after": "2"}, b"{}"))
    told = sent[0] + LATENCY
    tried = sent[1] + LATENCY + CONNECTING
    assert told + LATENCY < sent[1], "one tries whether others are served, a moment later"
    assert tried <= sent[2]
    assert len(sent) == 41


def test_a_request_that_was_held_counts_once_for_its_statement(loop: VirtualLoop) -> None:
    rules = Rules(max_requests=40)
    sent = _sent_times(loop, [in_memory()], Response(200, SPELLINGS[0], b"{}"), 4, rules)
    _check_pause(sent, 40)
