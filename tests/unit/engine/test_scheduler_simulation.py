"""The scheduler against a world of random latencies, late rows and failures, on a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine import adaptive_batch_size as pacing_module
from lookup_hints.engine import input_window as window_module
from lookup_hints.engine import request_scheduler as next_request
from lookup_hints.engine.backlog import ScheduledRequest, WaitUntil
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.errors import AnswerTooLarge, LookupTimeout
from lookup_hints.retry import ExponentialDelay, FixedDelay
from tests.unit.engine.support import handed_back, ids, keys, rows, scheduler

FINAL: dict[str, list[object] | None] = {"null": [], "skip": None}


@dataclass
class World:
    """A dimension table whose rows appear with time, behind a network that fails and dawdles.

    Args:
        appears: from when each key's row is there; a key that is not named never gets one.
        failures: how many times in a row the first requests with each key fail.
        fitting: for how many keys an answer is not too large.
    """

    appears: dict[int, float]
    failures: dict[int, int]
    random: Random
    fitting: int = 1000
    asked: dict[int, list[float]] = field(default_factory=dict)

    def latency(self) -> float:
        return self.random.choice([0.0, 0.01, 0.5, 3.0])

    def fails(self, found: list[int]) -> bool:
        return any(len(self.asked[key]) <= self.failures.get(key, 0) for key in found)


@dataclass
class Simulation:
    """Drives a scheduler through a world, watching what must hold at all times."""

    scheduler: RequestScheduler
    world: World
    capacity: int
    is_late: bool = False
    """Whether rows are taken from the scheduler only where nothing else can be done."""

    now: float = 0.0
    in_flight: list[tuple[float, int, ScheduledRequest]] = field(default_factory=list)
    results: list[list[tuple[int, str]] | None] = field(default_factory=list)
    tie: count[int] = field(default_factory=count)

    def run(self, windows: list[list[int | None]]) -> None:
        waiting = iter(windows)
        while not self.scheduler.is_done:
            step = self.scheduler.next(self.now)
            settled = self.take()  # by giving up keys that are out of time
            if isinstance(step, ScheduledRequest):
                self.send(step)
            elif self.scheduler.wants_input:
                self.read(next(waiting, None))
            elif not settled and not (self.is_late and self.take(at_last=True)):
                self.pass_time(step.time if isinstance(step, WaitUntil) else None)
            self.take()

    def take(self, *, at_last: bool = False) -> bool:
        if self.is_late and not at_last:
            return False
        taken = handed_back(self.scheduler.finished())
        self.results += taken
        return bool(taken)

    def read(self, window: list[int | None] | None) -> None:
        if window is None:
            self.scheduler.add(None)
        else:
            self.scheduler.add(keys(*window))

    def send(self, ask: ScheduledRequest) -> None:
        found = ids(ask)
        assert len(found) == len(set(found)) > 0
        assert None not in found
        for key in found:
            self.world.asked.setdefault(key, []).append(self.now)
        heappush(self.in_flight, (self.now + self.world.latency(), next(self.tie), ask))
        assert len(self.in_flight) <= self.capacity

    def pass_time(self, until: float | None) -> None:
        """To the next answer or the time when keys fall due; nothing else can happen before."""
        if until is not None and (not self.in_flight or until < self.in_flight[0][0]):
            self.now = until
            return
        self.now, _, ask = heappop(self.in_flight)
        if self.now >= ask.deadline:
            self.now = ask.deadline
            self.scheduler.failed(ask, LookupTimeout("no answer"), self.now)
        elif len(ids(ask)) > self.world.fitting:
            self.scheduler.failed(ask, AnswerTooLarge("too large", keys=self.world.fitting), self.now)
        elif self.world.fails(ids(ask)):
            self.scheduler.failed(ask, OSError("reset"), self.now)
        else:
            there = [key for key in ids(ask) if self.world.appears.get(key, 1e9) <= self.now]
            self.scheduler.answered(ask, rows(*((key, f"n{key}") for key in there)), self.now)


KEYS = st.one_of(st.none(), st.integers(0, 15))
WINDOWS = st.lists(st.lists(KEYS, min_size=1, max_size=12), max_size=6)
STRATEGIES = st.one_of(
    st.builds(FixedDelay, st.integers(1, 4), st.just(10.0)),
    st.builds(ExponentialDelay, st.integers(1, 4), st.just(1.0), maximum=st.just(20.0), jitter=st.just(0.2)),
)


@pytest.mark.work(5)
@given(
    windows=WINDOWS,
    appears=st.dictionaries(st.integers(0, 15), st.sampled_from([0.0, 0.0, 5.0, 25.0])),
    failures=st.dictionaries(st.integers(0, 15), st.integers(1, 3), max_size=4),
    strategy=STRATEGIES,
    on_error=st.sampled_from(["null", "skip"]),
    capacity=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    ordered=st.booleans(),
    timeout=st.sampled_from([4.0, 45.0, 1000.0]),
    fitting=st.sampled_from([1, 2, 1000]),
    buffer=st.sampled_from([1, 400, 10**6]),
    most=st.sampled_from([1, 60, 200, 10**6]),
    wide=st.sampled_from([1, 50, 10**6]),
    is_late=st.booleans(),
    seed=st.integers(0, 3),
)
def test_every_key_gets_one_right_outcome(
    windows: list[list[int | None]],
    appears: dict[int, float],
    failures: dict[int, int],
    strategy: FixedDelay | ExponentialDelay,
    on_error: str,
    capacity: int,
    batch_size: int,
    ordered: bool,
    timeout: float,
    fitting: int,
    buffer: int,
    most: int,
    wide: int,
    is_late: bool,
    seed: int,
) -> None:
    retry = strategy.if_miss().if_exception()
    world = World(appears, failures, Random(seed), fitting)
    lookup = scheduler(
        retry=retry,
        on_error=on_error,
        capacity=capacity,
        batch_size=batch_size,
        ordered=ordered,
        timeout=timeout,
    )
    simulation = Simulation(lookup, world, capacity, is_late)
    with (
        patch.object(window_module, "BUFFER_BYTES", buffer),
        patch.object(window_module, "ROWS_BYTES", most),
        patch.object(next_request, "ANSWER_BYTES", most),
        patch.object(pacing_module, "WINDOW_BYTES", wide),
        patch.object(window_module, "WINDOW_BYTES", wide),
        patch.object(window_module, "HAND_OUT_BYTES", wide // 2),
    ):
        simulation.run(windows)

    inputs = [key for window in windows for key in window]
    assert len(simulation.results) == len(inputs)
    undisturbed = not failures and timeout == 1000.0
    longest = strategy.max_attempts * (10.0 if isinstance(strategy, FixedDelay) else 0.8)
    for key, found in zip(inputs, simulation.results, strict=True):
        if key is None or (undisturbed and key not in appears):
            assert found == []
        elif undisturbed and appears[key] <= longest:
            assert found == [(key, f"n{key}")]
        elif key not in appears:
            assert found in ([], FINAL[on_error])
        else:
            assert found in ([], [(key, f"n{key}")], FINAL[on_error])
    counted = lookup.metrics
    assert counted.keys == counted.hits + counted.misses + counted.skipped


@pytest.mark.work(4)
@given(
    windows=WINDOWS,
    max_attempts=st.integers(1, 4),
    capacity=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    ordered=st.booleans(),
)
def test_a_key_is_asked_once_and_max_attempts_times_again(
    windows: list[list[int | None]], max_attempts: int, capacity: int, batch_size: int, ordered: bool
) -> None:
    retry = FixedDelay(max_attempts, 10.0).if_miss()
    world = World({}, {}, Random(1))
    lookup = scheduler(retry=retry, capacity=capacity, batch_size=batch_size, ordered=ordered, timeout=1e6)
    Simulation(lookup, world, capacity).run(windows)
    for key, times in world.asked.items():
        holding = sum(key in window for window in windows)
        assert 1 + max_attempts <= len(times) <= holding * (1 + max_attempts)
