"""What befalls a store: killed writers, several at once, full disks. Right rows or none, and no error later."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lookup_hints.store import memory
from lookup_hints.store.store import MOST_SEGMENTS, Store
from tests.store.support import Clock, asked, learned, store
from tests.store.writer import BATCH, BATCHES, LIMITS

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = list(range(BATCHES * BATCH))


def writers(folder: Path, *how: object) -> list[int]:
    """How processes that write ended."""
    command = [sys.executable, "-m", "tests.store.writer", str(folder), *map(str, how)]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(int, run.stdout.split()))


def check(folder: Path, keys: list[Any]) -> Store:
    """What is known is right; the next writer sweeps up, and its answers are known."""
    one = store(folder, Clock(), LIMITS)
    known = asked(one, keys)
    assert all(names == [f"n{each}"] for each, names in known.items())
    one.learn([learned({-1: ["after"]})])
    assert asked(one, [-1]) == {-1: ["after"]}
    left = [each.name for each in (folder / "lookup_hints" / "store").iterdir()]
    assert not [name for name in left if name.endswith(".tmp")]
    segments = {name.removesuffix(".segment") for name in left if name.endswith(".segment")}
    assert {name.removesuffix(".used") for name in left if name.endswith(".used")} == segments
    assert one.rows <= (LIMITS.max_rows or 0)
    return one


MERGING = range(312, 350)
"""All steps of the first merge, and some before and after."""

STEPS = (*range(1, 27), *range(150, 155), *MERGING)


@pytest.mark.processes
def test_a_writer_that_is_killed_at_any_step_leaves_right_rows(tmp_path: Path) -> None:
    assert writers(tmp_path, *STEPS) == [-signal.SIGKILL] * len(STEPS)
    there = [len([*(tmp_path / str(step)).rglob("*.segment")]) for step in MERGING]
    assert {*range(MOST_SEGMENTS - 3, MOST_SEGMENTS + 2)} <= {*there}, "four are removed, one after the other"
    for step in STEPS:
        check(tmp_path / str(step), KEYS)


@pytest.mark.processes
def test_several_writers_at_once_keep_what_all_have_learned(tmp_path: Path) -> None:
    assert writers(tmp_path, "together", 0, 100, 200, 300) == [0] * 4
    one = check(tmp_path, list(range(1000)))
    known = asked(one, list(range(1000)))
    assert len(known) > 200, "at most 400 rows are kept of 600"


def test_a_writer_that_lives_keeps_its_file(tmp_path: Path) -> None:
    one, other = (store(tmp_path, Clock()) for _ in range(2))
    one.learn([learned({1: ["a"]})])
    with one._folder._written(lambda _: None) as file:
        other.tidy()
        assert file.exists()
    assert not file.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_of_the_writer_alone(small_disk: Path) -> None:
    one = store(small_disk, Clock())

    def fill() -> None:
        for number in range(1000):
            one.learn([learned({number * 1000 + each: ["x" * 50] for each in range(1000)})])

    with pytest.raises(OSError, match="No space left"):
        fill()
    known = asked(one, list(range(5000)))
    assert known
    assert set(map(tuple, known.values())) == {("x" * 50,)}
    assert not list((small_disk / "lookup_hints" / "store").glob("*.tmp"))


@pytest.mark.processes
def test_files_that_may_not_be_large_are_an_error_of_the_writer_alone(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from tests.store.support import *\n"
        "one = store(Path(sys.argv[1]), Clock()); one.learn([learned({1: ['a']})])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "try: one.learn([learned({each: ['x' * 50] for each in range(1000)})])\n"
        "except OSError as error: print(error.strerror)\n"
        "print(asked(one, [1, 2]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:2] == ["File too large", "{1: ['a']}"]


def test_a_reader_whose_folder_is_removed_says_so(tmp_path: Path) -> None:
    one = store(tmp_path, Clock())
    one.learn([learned({1: ["a"]})])
    asked(one, [1])
    shutil.rmtree(tmp_path / "lookup_hints")
    with pytest.raises(FileNotFoundError):
        asked(one, [1])
    with pytest.raises(FileNotFoundError):
        one.learn([learned({2: ["b"]})])


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    one = store(tmp_path, Clock())
    other = tmp_path / "lookup_hints" / "store" / "what.is.this.segment"
    other.write_text("?")
    one.learn([learned({1: ["a"]})])
    assert asked(one, [1]) == {1: ["a"]}
    assert other.read_text() == "?"


def test_a_store_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, Clock())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="open to others"):
        store(tmp_path, Clock())


def test_nothing_is_mapped_where_addresses_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark bounds the addresses of its workers by spark.executor.pyspark.memory."""
    one = store(tmp_path, Clock())
    one.learn([learned({1: ["a"]})])
    taken = 1 << 40
    monkeypatch.setattr(resource, "getrlimit", lambda _: (taken, taken))
    assert memory.has_room_for(1 << 20)
    assert not memory.has_room_for(1 << 40)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert asked(store(tmp_path, Clock()), [1]) == {}
