"""A file's streaming queries: each failure that ends one is told once, and gives the exit code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lookup_hints.cli.job import batch_line, run_with_streams
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import Latencies, LookupMetrics
from lookup_hints.streaming import streams
from lookup_hints.streaming.restart_strategy import NoRestart
from lookup_hints.streaming.streams import MicroBatch
from lookup_hints.streaming.supervisor import Supervisor
from tests.unit.streaming.test_supervisor import SOON, FakeQuery

pytestmark = pytest.mark.timeout(30)


@dataclass
class Streams:
    """The streaming queries of a session, in place of Spark's."""

    supervisor: Supervisor
    started: list[Any] = field(default_factory=list)

    @property
    def running(self) -> list[Any]:
        return [each for each in self.started if not each.supervised.status.is_end]

    def start(self, name: str) -> FakeQuery:
        query = FakeQuery(name)
        supervised = self.supervisor.start(lambda: query, NoRestart(), name=name)
        insert = SimpleNamespace(shown_sink="s")
        self.started.append(
            SimpleNamespace(supervised=supervised, insert=insert, batches=0, started=0.0, history=[])
        )
        return query

    def await_all(self, timeout: float | None = None) -> bool:
        return all(each.supervised.await_termination(timeout or SOON) for each in self.started)

    def stop(self) -> None:
        self.supervisor.stop_all()


@pytest.fixture
def own() -> Iterator[Streams]:
    supervisor = Supervisor()
    yield Streams(supervisor)
    supervisor.stop_all()


def fail(own: Streams, name: str, cause: str) -> None:
    """Start a query after the file has begun, and let it fail for good."""
    own.start(name).end(RuntimeError(cause))


def test_a_failure_for_good_is_reported_once(own: Streams, caplog: pytest.LogCaptureFixture) -> None:
    errors: list[str] = []

    def statements() -> int:
        fail(own, "flights", "the source is away")
        return 0

    with caplog.at_level(logging.INFO, "lookup_hints"):
        code = run_with_streams(cast(streams.Streams, own), statements, lambda _: None, errors.append)
    assert code == 1
    assert errors == [
        "\nerror in the streaming query flights, which is not started again (none): the source is away"
    ]
    assert caplog.messages == []


def test_so_is_one_while_a_statement_fails(own: Streams) -> None:
    errors: list[str] = []

    def statements() -> int:
        fail(own, "flights", "the source is away")
        with pytest.raises(RuntimeError):
            own.await_all()
        return 1

    assert run_with_streams(cast(streams.Streams, own), statements, lambda _: None, errors.append) == 1
    assert [error.count("the source is away") for error in errors] == [1]


def test_one_that_failed_before_it_was_waited_for_gives_the_exit_code(own: Streams) -> None:
    def statements() -> int:
        fail(own, "flights", "the source is away")
        with pytest.raises(RuntimeError):
            own.await_all()
        return 0

    assert run_with_streams(cast(streams.Streams, own), statements, lambda _: None, lambda _: None) == 1


def test_a_failure_is_logged_again_if_nothing_waits_for_the_stream(
    own: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "lookup_hints"):
        fail(own, "flights", "the source is away")
        with pytest.raises(RuntimeError):
            own.await_all()
    assert caplog.messages == ["query flights failed, and is not started again (none): the source is away"]


# --- a line for each micro-batch -------------------------------------------------------------------


def batch(number: int, *lookups: LookupMetrics, rows: int = 100, lag: str = "") -> MicroBatch:
    began = datetime(2026, 1, 1, 0, 0, number, tzinfo=timezone.utc)
    named = {LookupName(f"t{position}"): each for position, each in enumerate(lookups)}
    return MicroBatch(number, began, 0.8, rows, lag, named)


def test_each_batch_is_reported_once_after_its_end(own: Streams) -> None:
    told: list[str] = []

    def statements() -> int:
        query = own.start("enriched")
        own.started[0].history += [batch(1), batch(2)]
        own.started[0].history.append(batch(3))
        query.end(None)
        return 0

    tell_error: list[str] = []
    assert run_with_streams(cast("Any", own), statements, told.append, tell_error.append) == 0
    lines = [line for line in told if " batch " in line]
    assert lines == [f"enriched batch {number}: 100 rows, 800 ms" for number in (1, 2, 3)]


def test_quiet_tells_of_no_batch(own: Streams) -> None:
    told: list[str] = []

    def statements() -> int:
        query = own.start("enriched")
        own.started[0].history.append(batch(1))
        query.end(None)
        return 0

    assert run_with_streams(cast("Any", own), statements, told.append, told.append, quiet=True) == 0
    assert [line for line in told if " batch " in line] == []


def test_the_line_of_a_batch_sums_up_its_lookups() -> None:
    latency = Latencies({Latencies.bucket_of(0.031): 4})
    one = LookupMetrics(
        tasks=2, keys=60, hits=57, misses=3, requests=3, retried_keys=4, errors=1, latency=latency
    )
    other = LookupMetrics(tasks=2, keys=40, hits=39, misses=1, requests=1)
    assert batch_line("enriched", batch(7, one, other, rows=1000, lag="2.0 s behind")) == (
        "enriched batch 7: 1,000 rows, 100 keys, 4 requests, 96 % found, p99 30 ms, 4 retried, 1 failed,"
        " 800 ms, 2.0 s behind"
    )
