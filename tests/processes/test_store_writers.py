"""Processes that write a store and are killed, that write at once, or may not write much."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from lookup_hints.cache.store.answer_store import MOST_SEGMENTS
from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.support import UNLIMITED, Clock, asked, learned, store
from tests.unit.cache.writer import BATCH, BATCHES, LIMITS

ROOT = Path(__file__).resolve().parent.parent.parent


KEYS = list(range(BATCHES * BATCH))


def writers(folder: Path, *how: object) -> list[int]:
    """How processes that write ended."""
    command = [sys.executable, "-m", "tests.unit.cache.writer", str(folder), *map(str, how)]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(int, run.stdout.split()))


def check(folder: Path, keys: list[int], limits: StoreLimits = LIMITS) -> dict[int, list[str]]:
    """What is known is right; the next writer sweeps up, and its answers are known. What is known in the end."""
    one = store(folder, Clock(), limits)
    known = asked(one, keys)
    assert all(names == [f"n{each}"] for each, names in known.items())
    one.learn([learned({-1: ["after"]})])
    assert asked(one, [-1]) == {-1: ["after"]}
    left = [each.name for each in (folder / "lookup_hints" / "store").iterdir()]
    assert not [name for name in left if name.endswith(".tmp")]
    segments = {name.removesuffix(".segment") for name in left if name.endswith(".segment")}
    assert {name.removesuffix(".used") for name in left if name.endswith(".used")} == segments
    assert limits.max_rows is None or one.rows <= limits.max_rows
    return asked(one, keys)


MERGING = range(312, 350)


STEPS = (*range(1, 27), *range(150, 155), *MERGING)


def test_a_writer_that_is_killed_at_any_step_leaves_right_rows(tmp_path: Path) -> None:
    assert writers(tmp_path, *STEPS) == [-signal.SIGKILL] * len(STEPS)
    there = [len([*(tmp_path / str(step)).rglob("*.segment")]) for step in MERGING]
    expected = {*range(MOST_SEGMENTS - 2, MOST_SEGMENTS + 3)}
    assert expected <= {*there}, "one is added, then four are removed, one after the other"
    for step in STEPS:
        check(tmp_path / str(step), KEYS)


FIRSTS = [number * len(KEYS) for number in range(4)]
ALL = list(range(len(FIRSTS) * len(KEYS)))


def test_several_writers_at_once_keep_what_all_have_learned(tmp_path: Path) -> None:
    assert writers(tmp_path, "unlimited", *FIRSTS) == [0] * 4
    assert sorted(check(tmp_path, ALL, UNLIMITED)) == ALL


# Above 350 of its 400 rows a store drops its oldest ones, up to 100, that nobody has asked for.
def test_several_writers_at_once_use_the_room_that_they_have(tmp_path: Path) -> None:
    assert writers(tmp_path, "limited", *FIRSTS) == [0] * 4
    assert len(check(tmp_path, ALL)) >= 250


def test_files_that_may_not_be_large_are_an_error_of_the_writer_alone(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path; from tests.unit.cache.support import *\n"
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
