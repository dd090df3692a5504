"""An origin that bears so much and no more, and tasks that ask it, all on a clock that tests move."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import LimitStore, Rules, in_memory
from lookup_hints.spi.request_context import Ending
from tests.unit.engine.support import VirtualLoop


class Server:
    """Serves up to ``most`` requests at once, each for about ``seconds``; refuses more at once, and asks for a pause.

    It does not answer between the two times of ``dead``.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        most: int,
        seconds: float = 0.02,
        pause: float | None = None,
        dead: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._loop, self.most, self._seconds, self._pause, self._dead = loop, most, seconds, pause, dead
        self._random = Random(7)
        self.at_once = 0
        self.most_at_once = 0
        self.sent: list[float] = []
        self.answers: list[tuple[float, Ending]] = []

    async def ask(self) -> tuple[Ending, float | None]:
        self.sent.append(self._loop.time())
        ending = await self._answer()
        self.answers.append((self._loop.time(), ending))
        return ending, self._pause if ending == "refused" else None

    async def _answer(self) -> Ending:
        if self._dead[0] <= self._loop.time() < self._dead[1]:
            return "lost"
        if self.at_once >= self.most:
            await asyncio.sleep(0.001)
            return "refused"
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self._seconds * self._random.uniform(0.7, 1.3))
        self.at_once -= 1
        return "served"

    def count(self, ending: Ending, begin: float = 0.0, end: float = float("inf")) -> int:
        return sum(begin <= time < end and each == ending for time, each in self.answers)


class Executor:
    """Tasks that share the limits of one executor."""

    def __init__(
        self, loop: VirtualLoop, server: Server, rules: Rules, store: LimitStore | None = None
    ) -> None:
        self._loop, self._server, self._rules = loop, server, rules
        self.store = store or in_memory()

    def limiter(self, **changes: Any) -> OriginLimiter:
        return OriginLimiter(self.store, self._rules, process=os.getpid(), clock=self._loop.time, **changes)

    async def task(self, requests: int) -> int:
        """Ask so many requests, ``capacity`` of them at once; how many were served."""
        limiter = self.limiter()
        left, served = iter(range(requests)), 0

        async def worker() -> None:
            nonlocal served
            permits = limiter.permits()
            for _ in left:
                served += await self._ask(permits)

        await asyncio.gather(*(worker() for _ in range(min(requests, self._rules.capacity))))
        limiter.close()
        return served

    async def _ask(self, permits: Any) -> bool:
        after: float | None = None
        while True:
            if after is not None or not permits.try_acquire():
                await permits.acquire(None, after)
            started = self._loop.time()
            ending, pause = await self._server.ask()
            after = started + wait if (wait := permits.release(started, ending, pause)) else None
            if ending != "refused":
                return ending == "served"
