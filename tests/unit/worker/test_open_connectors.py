"""Sync connectors are called on a thread of their own: one that hangs does not keep its task from failing."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import nullcontext
from functools import partial
from itertools import count
from math import inf
from threading import Event, get_ident
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from lookup_hints.engine.permits import BlockingRequests
from lookup_hints.errors import LookupTimeout
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.process import open_connectors
from lookup_hints.process.open_connectors import CallThread, CallTimeout, LoopThread, OpenedSync, Process
from lookup_hints.spi import SyncLookup
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable
from lookup_hints.spi.request_context import NOBODY, reporting_to
from tests.unit.engine.support import SCHEMA, Asked, names_of, never_late


def requested(key: int, timeout: float | None = None) -> LookupRequest:
    return LookupRequest(pa.table({"id": pa.array([key], pa.int64())}), SCHEMA, timeout)


class Hangs(SyncLookup):
    """Waits for ``goes_on`` in each of its lookups for key 1."""

    def __init__(self) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "hangs"}))
        self.goes_on = Event()
        self.called: list[str] = []
        self.threads: set[int] = set()

    def open(self) -> None:
        self._note("open")

    def lookup(self, request: LookupRequest) -> Answer:
        self._note("lookup")
        if request.keys.column("id").to_pylist() == [1]:
            self.goes_on.wait(60.0)
        return names_of()(request)

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.called.append(what)
        self.threads.add(get_ident())


@pytest.fixture
def connector() -> Iterator[Hangs]:
    hangs = Hangs()
    yield hangs
    hangs.goes_on.set()


def ask(opened: OpenedSync, request: LookupRequest) -> Answer:
    return opened.call(partial(opened.lookup, request), request.timeout, no_longer)


def no_longer() -> float:
    """A call got its permit at once: it may take no more than its timeout."""
    return -inf


def test_a_lookup_that_hangs_is_out_of_time(connector: Hangs) -> None:
    with Process().opened("people", lambda: connector, asynchronous=False) as opened:
        assert isinstance(opened, OpenedSync)
        with pytest.raises(LookupTimeout, match=r"Hangs\.lookup has not returned within 0\.01 s"):
            ask(opened, requested(1, timeout=0.01))
        with pytest.raises(LookupTimeout):  # it is not called a second time meanwhile
            ask(opened, requested(2, timeout=0.01))
        assert connector.called == ["open", "lookup"]
        connector.goes_on.set()
        assert ask(opened, requested(2, timeout=60.0)) == names_of()(requested(2))
        opened.close()
    assert connector.called == ["open", "lookup", "lookup", "close"]
    assert len(connector.threads) == 1, "a connection may belong to the thread that opened it"
    assert get_ident() not in connector.threads


def test_a_call_keeps_its_permit_until_it_returns(connector: Hangs) -> None:
    store, rules, clock = in_memory(), Rules(concurrency=1, adapts=False, capacity=1), lambda: 0.0
    own, other = (OriginLimiter(store, rules, process=os.getpid(), clock=clock) for _ in range(2))
    requests = BlockingRequests(connector.lookup, connector, own, clock)
    opened = OpenedSync(connector)
    with reporting_to(NOBODY, own.permits()), pytest.raises(LookupTimeout):
        opened.call(partial(requests.send, requested(1), never_late), 0.01, no_longer)
    requests.give_up()
    assert not other.try_acquire(), "the source still works on the call"
    requests.close()
    assert not other.try_acquire(), "its task is over, and the call is not"
    connector.goes_on.set()
    opened.call(lambda: None, 60.0, no_longer)
    assert other.try_acquire()
    opened.close()


def test_a_call_that_hangs_is_lost_once_whoever_waits_for_it(connector: Hangs) -> None:
    store = in_memory()
    limiter = OriginLimiter(store, Rules(capacity=1), process=os.getpid(), clock=lambda: 1.0)
    requests = BlockingRequests(connector.lookup, connector, limiter, partial(next, count()))
    opened = OpenedSync(connector)
    for key in (1, 2, 3):
        with reporting_to(NOBODY, limiter.permits()), pytest.raises(LookupTimeout):
            opened.call(partial(requests.send, requested(key, timeout=0.01), never_late), 0.01, no_longer)
        requests.give_up()
    assert list(store.limits.breaker._ends) == [-1.0]
    connector.goes_on.set()
    opened.close()


def test_a_call_that_waits_for_the_one_before_takes_no_permit(connector: Hangs) -> None:
    limiter = OriginLimiter(in_memory(), Rules(concurrency=2, rate=1.0), clock=lambda: 0.0)
    opened = OpenedSync(connector)
    for key in (1, 2):
        requests = BlockingRequests(connector.lookup, connector, limiter, lambda: 0.0)
        with reporting_to(NOBODY, limiter.permits()), pytest.raises(LookupTimeout):
            opened.call(partial(requests.send, requested(key), never_late), 0.01, no_longer)
    assert limiter._permits.in_use == 1
    connector.goes_on.set()
    opened.close()


def test_a_call_that_has_waited_for_its_permit_may_take_longer(connector: Hangs) -> None:
    opened, left = OpenedSync(connector), iter([0.01, 0.01, 60.0])

    def more() -> float:
        seconds = next(left)
        if seconds > 1.0:
            connector.goes_on.set()
        return seconds

    assert opened.call(partial(opened.lookup, requested(1)), 0.01, more) == names_of()(requested(1))
    opened.close()


def test_a_call_sees_the_context_of_its_caller_and_its_errors_come_back() -> None:
    thread, variable = CallThread("test"), contextvars.ContextVar[int]("variable")
    variable.set(7)
    assert thread.call(variable.get, None) == 7

    def fail() -> None:
        raise NotInTime("its own")

    with pytest.raises(NotInTime, match="its own"):
        thread.call(fail, 60.0)
    thread.end()


def test_an_answer_that_comes_in_the_moment_of_the_timeout_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class InThatMoment(Future[int]):
        def result(self, timeout: float | None = None) -> int:
            answer = super().result(60.0)
            if timeout is None:
                return answer
            raise NotInTime

    monkeypatch.setattr(open_connectors, "Future", InThatMoment)
    thread = CallThread("test")
    assert thread.call(lambda: 7, 0.01) == 7
    thread.end()


def test_a_call_that_has_not_begun_in_time_is_not_made() -> None:
    thread, goes_on, made = CallThread("test"), Event(), []
    with pytest.raises(CallTimeout):
        thread.call(lambda: goes_on.wait(60.0), 0.01)
    with pytest.raises(CallTimeout):
        thread.call(lambda: made.append("late"), 0.01)
    goes_on.set()
    thread.call(lambda: made.append("in time"), 60.0)
    assert made == ["in time"]
    thread.end()


def test_an_answer_is_not_kept_for_the_next_call() -> None:
    class Large:
        pass

    thread = CallThread("test")
    answer = weakref.ref(thread.call(Large, 60.0))
    thread.call(int, 60.0)  # behind it the first call has been left
    gc.collect()
    assert answer() is None
    thread.end()


def test_a_thread_ends_with_its_connector(connector: Hangs) -> None:
    before = set(threading.enumerate())
    with Process().opened("people", lambda: connector, asynchronous=False) as opened:
        assert isinstance(opened, OpenedSync)
        ask(opened, requested(2))
        [own] = set(threading.enumerate()) - before
        opened.close()
    own.join(60.0)
    assert not own.is_alive()


class Turn:
    """A permit that comes after 2 seconds, and how it ends."""

    def __init__(self) -> None:
        self.now = self.waited = 0.0
        self.endings: list[str] = []

    def try_acquire(self) -> bool:
        return False

    def acquire_blocking(self, deadline: float | None = None, after: float | None = None) -> None:
        self.now += 2.0
        self.waited += 2.0

    def release(self, started: float, ending: str, pause: float | None = None, count: int = 1) -> float:
        self.endings.append(ending)
        return 0.0

    def requests(self, lookup: Callable[[LookupRequest], pa.Table]) -> BlockingRequests:
        limiter: Any = object()
        return BlockingRequests(lookup, Asked(names_of()), limiter, lambda: self.now)

    def send(self, requests: BlockingRequests, late_at: float, timeout: float | None = 3.0) -> Answer:
        turn: Any = self
        with reporting_to(NOBODY, turn):
            return requests.send(requested(1, timeout=timeout), lambda: late_at + self.waited)


@pytest.mark.parametrize(
    ("timeout", "late_at", "left"), [(3.0, 3.0, 3.0), (None, inf, None), (3.0, 1.0, 1.0)]
)
def test_what_a_permit_takes_does_not_count_and_what_the_call_before_takes_does(
    timeout: float | None, late_at: float, left: float | None
) -> None:
    seen: list[float | None] = []

    def lookup(request: LookupRequest) -> pa.Table:
        seen.append(request.timeout)
        return names_of()(request)

    turn = Turn()
    turn.send(turn.requests(lookup), late_at, timeout)
    assert (seen, turn.endings) == ([left], ["served"])


def test_a_request_for_which_the_call_before_leaves_no_time_is_not_sent() -> None:
    turn, lookup = Turn(), Mock()
    with pytest.raises(LookupTimeout, match="no time was left to send the request"):
        turn.send(turn.requests(lookup), late_at=0.0)
    assert turn.endings == ["unsent"]
    lookup.assert_not_called()


@pytest.mark.parametrize(("late_at", "ending"), [(3.0, "lost"), (1.0, "unknown")])
def test_only_a_request_that_had_its_time_is_lost(late_at: float, ending: str) -> None:
    """What the call before it has left says nothing about the source."""

    def lookup(request: LookupRequest) -> pa.Table:
        assert request.timeout is not None
        turn.now += request.timeout
        if gives_up:
            requests.give_up()
            return names_of()(request)
        raise LookupTimeout("SQLite had no answer in the time given")

    for gives_up in (False, True):
        turn = Turn()
        requests = turn.requests(lookup)
        with nullcontext() if gives_up else pytest.raises(LookupTimeout):
            turn.send(requests, late_at)
        assert turn.endings[0] == ending


def test_a_connector_with_less_patience_than_it_is_given_loses_its_request() -> None:
    def lookup(request: LookupRequest) -> pa.Table:
        turn.now += 0.5
        raise LookupTimeout("no answer within the request-timeout of 0.5 s")

    turn = Turn()
    with pytest.raises(LookupTimeout):
        turn.send(turn.requests(lookup), late_at=1.0)
    assert turn.endings == ["lost"]


def test_a_loop_whose_thread_cannot_start_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        LoopThread()
    assert loop.is_closed()
