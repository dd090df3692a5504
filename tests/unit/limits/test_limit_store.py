"""What the processes of an executor share, with real files and real processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lookup_hints.limits.circuit_breaker import Breaker
from lookup_hints.limits.shared_limits import LimitStores, in_folder, in_memory, is_alive


def count(folder: Path, times: int) -> None:
    store = in_folder(folder, "api")
    for _ in range(times):
        while (limits := store.acquire()) is None:
            time.sleep(1e-4)
        limits.limit.value += 1
        store.release()


def test_no_change_of_any_process_is_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count, args=(tmp_path, 2000)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert in_folder(tmp_path, "api").limits.limit.value == 6000


def test_origins_have_books_of_their_own_whatever_their_names(tmp_path: Path) -> None:
    in_folder(tmp_path, "api:443 user ../../x").limits.limit.value = 7
    assert in_folder(tmp_path, "api:443").limits.limit.value == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "an executor's" / "new"
    in_folder(folder, "api")
    [file] = folder.iterdir()
    assert (file.stat().st_mode & 0o77, folder.stat().st_mode & 0o77) == (0, 0)


def _write_number(folder: Path, place: int, number: float) -> None:
    (file,) = folder.iterdir()
    with file.open("r+b") as opened:
        opened.seek(8 * place)
        opened.write(struct.pack("d", number))


@pytest.mark.parametrize(
    ("record", "cell", "number"),
    [
        ("limit", 0, math.nan),
        ("rate", 0, math.inf),
        ("leases", 0, 1e6),  # more than there are
        ("leases", 4, 1e300),  # whose process no system has
        ("breaker", Breaker.SIZE, 1e5),
    ],
)
def test_a_damaged_file_begins_anew(tmp_path: Path, record: str, cell: int, number: float) -> None:
    limits = in_folder(tmp_path, "api").limits
    limits.limit.value = 7
    limits.leases.begin(os.getpid(), 0.0)
    _write_number(tmp_path, getattr(limits, record).start + cell, number)
    assert set(in_folder(tmp_path, "api").limits.cells) == {0.0}
    assert limits.limit.value == 0, "who had it open begins anew, too"


def test_where_no_file_can_be_written_a_process_keeps_its_own(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("no folder")
    stores = LimitStores()
    store = stores.of(taken, "api")
    assert not store.is_shared
    assert stores.of(taken, "api") is store
    assert stores.of(tmp_path, "api").is_shared
    assert not in_memory().is_shared


@pytest.mark.skipif(not Path("/proc").exists(), reason="the state of a process is read there")
def test_a_process_that_was_killed_is_not_alive_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert is_alive(process.pid)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(process.pid)
    assert not is_alive(process.pid)
