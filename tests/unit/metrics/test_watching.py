"""Counts are shown while a task runs: at most twice a second, also while it waits."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from lookup_hints.engine.async_runner import AsyncRunner, run_async
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.errors import ConnectorError
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import LookupRequest
from tests.unit.engine.support import Clock, VirtualLoop, keys, names_of, slow, spec

RETRY = FixedDelay(3, 2.0).if_exception()


class Shown:
    """What was shown, and when."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counts: list[LookupMetrics] = []
        self.waiting: list[int] = []
        self.times: list[float] = []

    def __call__(self, counts: LookupMetrics, waiting: int) -> None:
        self.counts.append(counts)
        self.waiting.append(waiting)
        try:
            self.times.append(asyncio.get_running_loop().time())
        except RuntimeError:
            self.times.append(self.clock())


def run(shown: Shown | None, asynchronous: bool, windows: int = 1) -> RequestScheduler:
    lookup = RequestScheduler(spec(retry=RETRY, asynchronous=asynchronous), Random(1), watch=shown)
    inputs = iter([keys(number, number + 100) for number in range(windows)])
    asked: list[int] = []

    def answer(request: LookupRequest) -> pa.Table:
        asked.append(request.keys.num_rows)
        if len(asked) == 1:
            raise ConnectorError("down")
        return names_of()(request)

    if asynchronous:
        loop = VirtualLoop()
        list(run_async(AsyncRunner(lookup, slow(answer, lambda _: 0.1)), inputs, loop.call))
        loop.close()
    else:
        clock = shown.clock if shown else Clock()

        def lookup_slowly(request: LookupRequest) -> pa.Table:
            clock.sleep(0.1)
            return answer(request)

        list(run_sync(lookup, inputs, lookup_slowly, clock=clock, sleep=clock.sleep))
    return lookup


BOTH = pytest.mark.parametrize("asynchronous", [True, False])


@BOTH
def test_counts_are_shown_twice_a_second_also_while_a_retry_is_waited_for(asynchronous: bool) -> None:
    shown = Shown()
    run(shown, asynchronous)
    assert len(shown.times) >= 4
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(shown.times))
    assert all(later - earlier <= 0.75 for earlier, later in pairwise(shown.times))
    assert 2 in shown.waiting, "both keys wait to be asked again"
    waits = [counts.waited.counts.get("retry", 0.0) for counts in shown.counts]
    assert waits == sorted(waits)
    assert waits[-1] > 1.0, "a wait that goes on counts, too"


@BOTH
def test_a_quick_task_shows_its_counts_once(asynchronous: bool) -> None:
    shown = Shown()
    lookup = RequestScheduler(spec(asynchronous=asynchronous), Random(1), watch=shown)
    if asynchronous:
        loop = VirtualLoop()
        list(run_async(AsyncRunner(lookup, slow(names_of(), lambda _: 0.0)), iter([keys(1)]), loop.call))
        loop.close()
    else:
        clock = shown.clock
        list(run_sync(lookup, iter([keys(1)]), names_of(), clock=clock, sleep=clock.sleep))
    assert len(shown.times) == 1


@BOTH
def test_being_watched_changes_nothing(asynchronous: bool) -> None:
    watched, alone = run(Shown(), asynchronous, windows=5), run(None, asynchronous, windows=5)
    assert watched.metrics.latency == alone.metrics.latency
    assert watched.metrics.waited.counts == pytest.approx(alone.metrics.waited.counts)
