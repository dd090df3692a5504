"""A file's streaming queries: each failure that ends one is told once, and gives the exit code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lookup_hints.streaming import streams
from lookup_hints.streaming.restart import NoRestart
from lookup_hints.streaming.supervisor import Supervisor
from lookup_hints.surfaces.stream_run import run_with_streams
from tests.streaming.test_supervisor import SOON, FakeQuery

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
        self.started.append(SimpleNamespace(supervised=supervised, insert=insert, batches=0, started=0.0))
        return query

    def await_all(self) -> None:
        for each in self.started:
            each.supervised.await_termination(SOON)

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


def test_the_log_tells_of_it_again_where_nobody_waits(own: Streams, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lookup_hints"):
        fail(own, "flights", "the source is away")
        with pytest.raises(RuntimeError):
            own.await_all()
    assert caplog.messages == ["query flights failed, and is not started again (none): the source is away"]
