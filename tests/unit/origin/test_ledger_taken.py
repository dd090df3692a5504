"""Another process has the ledger, perhaps for good: nothing waits for it, and nothing is forgotten."""

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
from lookup_hints.origin.ledger import Ledger, in_folder
from lookup_hints.origin.turnstile import POLL_SECONDS, Rules, Turnstile
from tests.unit.runtime.support import VirtualLoop

SOON = 0.1
"""So long after the ledger has come back, everything is as it should be."""


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
def ledger(tmp_path: Path) -> Ledger:
    return in_folder(tmp_path, "api")


def turnstile(loop: VirtualLoop, ledger: Ledger, rules: Rules = Rules(), **options: Any) -> Turnstile:  # noqa: B008
    return Turnstile(ledger, rules, process=os.getpid(), clock=loop.time, **options)


STOPPED = """
import fcntl, os, signal, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_is_stopped_with_the_lock_does_not_stop_the_event_loop(
    tmp_path: Path, ledger: Ledger
) -> None:
    [path] = tmp_path.iterdir()
    command = [sys.executable, "-c", STOPPED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        last_resort = Timer(60.0, process.kill)
        last_resort.start()

        async def run() -> None:
            asker = Turnstile(ledger, Rules(), process=os.getpid()).asker()
            assert not asker.take_at_once()
            waiting = asyncio.create_task(asker.take())
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
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    asker = Turnstile(ledger, Rules(), clock=lambda: now, sleep=sleep).asker()
    with taken(tmp_path), pytest.raises(NoTurn):
        asker.wait_for_turn(3.0)
    assert 3.0 <= now <= 3.0 + 2 * POLL_SECONDS
    asker.wait_for_turn(4.0)


def test_what_a_source_asked_for_meanwhile_is_kept_to_and_told_later(
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger
) -> None:
    async def run() -> None:
        asker = turnstile(loop, ledger).asker()
        await asker.take()
        await asker.take()
        with taken(tmp_path):
            assert asker.over(loop.time(), "refused", 5.0) == 5.0
            assert not asker.take_at_once()
            assert not ledger.books.pause.opens
        refused_at = loop.time()
        await asyncio.sleep(SOON)
        assert ledger.books.pause.opens >= refused_at + 5.0
        assert not asker.take_at_once()

    loop.run_until_complete(run())


@pytest.mark.parametrize("ending", ["served", "refused"])
def test_a_task_that_ends_meanwhile_gives_everything_back(
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger, ending: Any
) -> None:
    async def run() -> None:
        own = turnstile(loop, ledger)
        asker = own.asker()
        await asker.take()
        with taken(tmp_path):
            asker.over(loop.time(), ending)
            own.close()
            await asyncio.sleep(10.0)
            assert ledger.books.leases.held > 0
        await asyncio.sleep(SOON)
        assert ledger.books.leases.held == 0

    loop.run_until_complete(run())


def test_permits_that_nobody_could_take_back_are_idle_no_longer(
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger
) -> None:
    async def run() -> None:
        asker = turnstile(loop, ledger).asker()
        await asker.take()
        with taken(tmp_path):
            asker.over(loop.time(), "served")
            await asyncio.sleep(10.0)
        await asyncio.sleep(SOON)
        assert ledger.books.leases.held == 0

    loop.run_until_complete(run())


def test_retries_are_taken_out_of_their_budget_later(
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger
) -> None:
    async def run() -> None:
        own = turnstile(loop, ledger)
        await own.asker().take()
        assert own.retry_delay(100) == pytest.approx(0.0, abs=0.1)
        with taken(tmp_path):
            assert own.retry_delay(20) == pytest.approx(2.0, abs=0.1)
            assert own.retry_delay(20) == pytest.approx(4.0, abs=0.1)
        await asyncio.sleep(SOON)
        own.asker().over(loop.time(), "served")
        assert own.retry_delay(10) == pytest.approx(5.0, abs=0.2)
        own.close()

    loop.run_until_complete(run())


def test_no_request_of_a_statement_is_counted_twice_or_not_at_all(
    loop: VirtualLoop, tmp_path: Path, ledger: Ledger
) -> None:
    (tmp_path / "statements").mkdir()
    statements = in_folder(tmp_path / "statements", "api")

    async def run() -> None:
        own = turnstile(loop, ledger, Rules(max_requests=2, statement=1), spent=statements)
        asker = own.asker()
        await asker.take()
        with taken(tmp_path / "statements"):
            waiting = asyncio.create_task(asker.take())
            await asyncio.sleep(1.0)
            assert not waiting.done()
        await asyncio.wait_for(waiting, SOON)
        with pytest.raises(TooManyRequests):
            await asker.take()
        own.close()

    loop.run_until_complete(run())
