"""Another process holds the lock, perhaps for good: nothing waits for it, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from lookup_hints.errors import NoTurn, TooManyRequests
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import POLL_SECONDS, LimitStore, Rules, in_folder
from tests.unit.engine.support import VirtualLoop

SOON = 0.1
"""So long after the lock has come back, everything is as it should be."""


@contextmanager
def taken(folder: Path) -> Iterator[None]:
    """As another process has it: a lock belongs to the opened file."""
    other = in_folder(folder, "api")
    assert other.acquire() is not None
    try:
        yield
    finally:
        other.release()


@pytest.fixture
def store(tmp_path: Path) -> LimitStore:
    return in_folder(tmp_path, "api")


def limiter(loop: VirtualLoop, store: LimitStore, rules: Rules = Rules(), **options: Any) -> OriginLimiter:  # noqa: B008
    return OriginLimiter(store, rules, process=os.getpid(), clock=loop.time, **options)


STOPPED = """
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_is_stopped_with_the_lock_does_not_stop_the_event_loop(
    tmp_path: Path, store: LimitStore
) -> None:
    [path] = tmp_path.iterdir()
    command = [sys.executable, "-c", STOPPED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        last_resort = Timer(60.0, process.kill)
        last_resort.start()

        async def run() -> None:
            permits = OriginLimiter(store, Rules(), process=os.getpid()).permits()
            assert not permits.try_acquire()
            waiting = asyncio.create_task(permits.acquire())
            for _ in range(5):
                await asyncio.sleep(POLL_SECONDS)
            assert process.poll() is None, "the loop waited until the other process had ended"
            assert not waiting.done()
            process.send_signal(signal.SIGKILL)
            await asyncio.wait_for(waiting, 60.0)

        try:
            asyncio.run(run())
        finally:
            last_resort.cancel()
            process.kill()


def test_a_lookup_on_a_thread_of_its_own_has_no_turn_when_its_time_is_up(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    permits = OriginLimiter(store, Rules(), clock=lambda: now, sleep=sleep).permits()
    with taken(tmp_path), pytest.raises(NoTurn):
        permits.acquire_blocking(3.0)
    assert 3.0 <= now <= 3.0 + 2 * POLL_SECONDS
    permits.acquire_blocking(4.0)


def test_a_pause_learned_while_the_lock_is_taken_holds_and_is_published_later(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore
) -> None:
    async def run() -> None:
        permits = limiter(loop, store).permits()
        await permits.acquire()
        await permits.acquire()
        with taken(tmp_path):
            assert permits.release(loop.time(), "refused", 5.0) == 5.0
            assert not permits.try_acquire()
            assert not store.limits.pause.opens
        refused_at = loop.time()
        await asyncio.sleep(SOON)
        assert store.limits.pause.opens >= refused_at + 5.0
        assert not permits.try_acquire()

    loop.run_until_complete(run())


@pytest.mark.parametrize("ending", ["served", "refused"])
def test_a_task_that_ends_meanwhile_gives_everything_back(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore, ending: Any
) -> None:
    async def run() -> None:
        own = limiter(loop, store)
        permits = own.permits()
        await permits.acquire()
        with taken(tmp_path):
            permits.release(loop.time(), ending)
            own.close()
            await asyncio.sleep(10.0)
            assert store.limits.leases.held > 0
        await asyncio.sleep(SOON)
        assert store.limits.leases.held == 0

    loop.run_until_complete(run())


def test_permits_that_could_not_be_returned_are_returned_later(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore
) -> None:
    async def run() -> None:
        permits = limiter(loop, store).permits()
        await permits.acquire()
        with taken(tmp_path):
            permits.release(loop.time(), "served")
            await asyncio.sleep(10.0)
        await asyncio.sleep(SOON)
        assert store.limits.leases.held == 0

    loop.run_until_complete(run())


def test_retries_are_taken_out_of_their_budget_later(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore
) -> None:
    async def run() -> None:
        own = limiter(loop, store)
        await own.permits().acquire()
        assert own.retry_delay(100) == pytest.approx(0.0, abs=0.1)
        with taken(tmp_path):
            assert own.retry_delay(20) == pytest.approx(2.0, abs=0.1)
            assert own.retry_delay(20) == pytest.approx(4.0, abs=0.1)
        await asyncio.sleep(SOON)
        own.permits().release(loop.time(), "served")
        assert own.retry_delay(10) == pytest.approx(5.0, abs=0.2)
        own.close()

    loop.run_until_complete(run())


def test_no_request_of_a_statement_is_counted_twice_or_not_at_all(
    loop: VirtualLoop, tmp_path: Path, store: LimitStore
) -> None:
    (tmp_path / "statements").mkdir()
    statements = in_folder(tmp_path / "statements", "api")

    async def run() -> None:
        own = limiter(loop, store, Rules(max_requests=2, statement=1), spent=statements)
        permits = own.permits()
        await permits.acquire()
        with taken(tmp_path / "statements"):
            waiting = asyncio.create_task(permits.acquire())
            await asyncio.sleep(1.0)
            assert not waiting.done()
        await asyncio.wait_for(waiting, SOON)
        with pytest.raises(TooManyRequests):
            await permits.acquire()
        own.close()

    loop.run_until_complete(run())
