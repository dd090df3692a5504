"""The end of a task waits for sending, but never for a collector that does not take what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from time import monotonic

import pytest

from lookup_hints.metrics.otel_export import Flusher

LONG = 30.0


class Collector:
    """What a flush meets: it says how it goes, and when."""

    def __init__(self) -> None:
        self.takes = True
        self.lets_go = Event()
        self.lets_go.set()
        self.begun = Event()
        self.ended = Event()
        self.flushes = 0
        self.warnings = 0
        self.seconds = 0.0

    def flush(self) -> bool:
        self.flushes += 1
        self.begun.set()
        assert self.lets_go.wait(LONG)
        self.now += self.seconds
        self.ended.set()
        return self.takes

    now = 0.0

    def clock(self) -> float:
        return self.now

    def warn(self) -> None:
        self.warnings += 1


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.lets_go.set()


def waited(flusher: Flusher) -> float:
    started = monotonic()
    flusher.end_of_task()
    return monotonic() - started


def test_a_task_waits_until_all_is_sent(collector: Collector) -> None:
    flusher = Flusher(collector.flush, collector.warn, LONG, collector.clock)
    for tasks in (1, 2, 3):
        flusher.end_of_task()
        assert collector.flushes == tasks
    assert collector.warnings == 0


def test_a_collector_that_hangs_costs_one_wait_and_one_warning(
    collector: Collector, waits: list[bool]
) -> None:
    collector.lets_go.clear()
    flusher = Flusher(collector.flush, collector.warn, 0.2, collector.clock)
    assert waited(flusher) >= 0.2
    assert collector.warnings == 1
    for _ in range(100):
        flusher.end_of_task()
    assert waits == [False]
    assert (collector.flushes, collector.warnings) == (1, 1)


def test_a_collector_that_refuses_is_not_waited_for(collector: Collector, waits: list[bool]) -> None:
    collector.takes = False
    flusher = Flusher(collector.flush, collector.warn, LONG, collector.clock)
    flusher.end_of_task()
    assert collector.warnings == 1
    collector.lets_go.clear()
    for _ in range(100):
        flusher.end_of_task()
    assert waits == [True]
    assert collector.warnings == 1


def test_sending_goes_on_behind_tasks_and_is_waited_for_again_once_it_goes_well(collector: Collector) -> None:
    collector.takes = False
    flusher = Flusher(collector.flush, collector.warn, 0.2, collector.clock)
    flusher.end_of_task()
    collector.takes = True
    collector.ended.clear()
    flusher.end_of_task()
    assert collector.ended.wait(LONG)
    flusher.end_of_task()
    with flusher._changed:
        assert flusher._changed.wait_for(lambda: flusher._goes_well, LONG)
    collector.lets_go.clear()
    assert waited(flusher) >= 0.2
    assert collector.warnings == 1


def test_one_that_is_slow_is_not_waited_for_at_each_task(collector: Collector, waits: list[bool]) -> None:
    collector.seconds = 3.0
    flusher = Flusher(collector.flush, collector.warn, 2.0, collector.clock)
    flusher.end_of_task()  # it takes three seconds of the collector's clock, and none of ours
    collector.lets_go.clear()
    flusher.end_of_task()
    assert waits == [True]
    assert collector.warnings == 0
