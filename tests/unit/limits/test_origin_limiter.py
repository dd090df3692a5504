"""Many tasks and one origin: whole runs on a clock that waits in no time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from lookup_hints.errors import SourceDown
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.spi.request_context import Ending
from tests.unit.engine.support import VirtualLoop
from tests.unit.limits.simulated import Executor, Server


@pytest.mark.work(38)
@pytest.mark.parametrize(
    ("executors", "most", "seconds", "pause"),
    [
        *((1, 30, 0.02, pause) for pause in (None, 1.0)),
        *((2, 50, 0.1, pause) for pause in (None, 1.0)),
        *((1, 3, 0.05, pause) for pause in (None, 1.0)),
        (1, 200, 0.1, None),
    ],
)
def test_the_limit_finds_what_a_source_bears(
    loop: VirtualLoop, executors: int, most: int, seconds: float, pause: float | None
) -> None:
    server = Server(loop, most, seconds, pause)
    tasks = [Executor(loop, server, Rules()) for _ in range(executors)]
    requests = int(12 * most / seconds) // 4 // executors  # for a little longer than is looked at

    async def run() -> None:
        await asyncio.gather(*(executor.task(requests) for executor in tasks for _ in range(4)))

    begin = loop.time()
    loop.run_until_complete(run())
    between = begin + 5.0, begin + 10.0
    refused, served = server.count("refused", *between), server.count("served", *between)
    assert server.count("served") == requests * 4 * executors
    assert refused <= 0.02 * (refused + served)
    assert served >= 0.9 * 5.0 * most / seconds


@pytest.mark.work(29)
def test_a_source_that_asks_for_pauses_is_refused_by_few(loop: VirtualLoop) -> None:
    """What the first refusals told is kept to: else the next pause would follow the first one."""
    server = Server(loop, 50, 0.1, 1.0)
    tasks = [Executor(loop, server, Rules()) for _ in range(2)]

    async def run() -> None:
        await asyncio.gather(*(executor.task(1000) for executor in tasks for _ in range(4)))

    begin = loop.time()
    loop.run_until_complete(run())
    assert server.count("refused", begin + 2.0, begin + 15.0) <= 0.003 * 13.0 * 50 / 0.1
    assert server.count("served", begin, begin + 15.0) >= 0.9 * 15.0 * 50 / 0.1


@pytest.mark.work(13)
def test_a_source_that_bounds_a_rate_is_asked_when_it_says(loop: VirtualLoop) -> None:
    """It serves 200 requests in each second, and refuses all others until the next one begins."""

    class Windows(Server):
        async def ask(self) -> tuple[Ending, float | None]:
            self._pause = 1.0 - (loop.time() - begin) % 1.0
            return await super().ask()

        async def _answer(self) -> Ending:
            window = int(loop.time() - begin)
            if windows[window] >= 200:
                await asyncio.sleep(0.001)
                return "refused"
            windows[window] += 1
            return await super()._answer()

    begin, windows = loop.time(), Counter[int]()
    server = Windows(loop, 1000, 0.02)
    executor = Executor(loop, server, Rules())

    async def run() -> None:
        await asyncio.gather(*(executor.task(1500) for _ in range(4)))

    loop.run_until_complete(run())
    assert all(windows[second] == 200 for second in range(26)), windows
    assert server.count("refused", begin + 5.0) <= 0.015 * server.count("served", begin + 5.0)


@pytest.mark.work(4)
@pytest.mark.parametrize("tasks", [8, 1])
def test_a_rate_is_used_up_and_kept_to_however_many_tasks_there_are(loop: VirtualLoop, tasks: int) -> None:
    server = Server(loop, 1000, 0.05)
    executor = Executor(loop, server, Rules(rate=200.0))

    async def run() -> None:
        await asyncio.gather(*(executor.task(2000 // tasks) for _ in range(tasks)))

    begin = loop.time()
    loop.run_until_complete(run())
    by_second = Counter(int(time - begin) for time in server.sent)
    assert all(190 <= by_second[second] <= 201 for second in range(9)), by_second


@pytest.mark.work(5)
def test_a_budget_is_exact_over_tasks_and_none_of_it_is_wasted(loop: VirtualLoop) -> None:
    server = Server(loop, 1000, 0.1)
    executor = Executor(loop, server, Rules(concurrency=6))

    async def run() -> None:
        await asyncio.gather(executor.task(600), executor.task(30), executor.task(30), executor.task(30))

    begin = loop.time()
    loop.run_until_complete(run())
    assert server.most_at_once == 6
    assert loop.time() - begin <= 1.1 * 690 / 6 * 0.1


@pytest.mark.work(6)
def test_a_budget_smaller_than_the_number_of_tasks_goes_round(loop: VirtualLoop) -> None:
    server = Server(loop, 1000, 0.1)
    executor = Executor(loop, server, Rules(concurrency=1))
    ends: list[float] = []

    async def task() -> None:
        await executor.task(20)
        ends.append(loop.time())

    async def run() -> None:
        await asyncio.gather(*(task() for _ in range(4)))

    begin = loop.time()
    loop.run_until_complete(run())
    assert server.most_at_once == 1
    assert loop.time() - begin <= 1.1 * 80 * 0.1
    assert min(ends) - begin > 0.5 * (max(ends) - begin), "none was served before all others"


def test_what_is_waited_for_between_pages_makes_a_lookup_no_younger(loop: VirtualLoop) -> None:
    rules = Rules("pages", concurrency=None, rate=0.5, adapts=False, timeout=60.0)
    permits = OriginLimiter(in_memory(), rules, clock=loop.time).permits()
    assert permits.try_acquire() == 1
    loop.call(permits.acquire())
    assert (permits.waited_first, permits.waited) == (0.0, 2.0)
    permits.begin_lookup()
    for _ in range(2):
        loop.call(permits.acquire())
    assert (permits.waited_first, permits.waited) == (2.0, 6.0)


@pytest.mark.work(12)
def test_an_outage_is_waited_out_with_a_few_probes(loop: VirtualLoop) -> None:
    begin = loop.time()
    server = Server(loop, 100, 0.02, dead=(begin + 2.0, begin + 32.0))
    executor = Executor(loop, server, Rules(timeout=120.0))

    async def run() -> list[int]:
        return await asyncio.gather(*(executor.task(10_000) for _ in range(2)))

    loop.run_until_complete(run())
    back = next(time for time, ending in server.answers if ending == "served" and time > begin + 32)
    assert back - begin - 32 <= 10
    assert server.count("lost") <= 150
    assert server.count("lost", begin + 3.0) <= 12


def test_an_outage_longer_than_the_timeout_fails_requests_at_once_until_it_is_over(loop: VirtualLoop) -> None:
    begin = loop.time()
    server = Server(loop, 100, 0.02, dead=(begin, begin + 1000.0))
    executor = Executor(loop, server, Rules(timeout=20.0, capacity=50, source="table t"))

    async def run() -> None:
        with pytest.raises(
            SourceDown, match=r"table t has not answered for \d+ s, which is longer than 'timeout'"
        ):
            await executor.task(100_000)
        waited = loop.time() - begin
        assert 20 <= waited <= 30
        with pytest.raises(SourceDown):
            await executor.task(100_000)

    loop.run_until_complete(run())
