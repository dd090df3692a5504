"""Processes of an executor that want the same keys at the same time do not all ask for them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from lookup_hints.runtime.arrow import Keys, Known, Placed
from lookup_hints.runtime.remembering import Remembering
from lookup_hints.runtime.spec import LookupSettings, LookupSpec, PartialCache
from lookup_hints.spark.cached import _StoreCache
from lookup_hints.store.asking import FIRST_PATIENCE, LEAST_PATIENCE, Asking
from tests.processes.askers import KEYS, Slow
from tests.unit.store.support import Clock, store


def asked(folder: Path, processes: int, *how: str) -> tuple[list[int], int, int]:
    """How so many processes ended, and how many requests, for how many keys, they have sent."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.processes.askers", str(folder), str(processes), *how]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)
    *ends, requests, keys = map(int, ended.stdout.split())
    return ends, requests, keys


@pytest.mark.parametrize("how", ["sync", "async"])
def test_four_tasks_with_the_same_keys_send_the_requests_of_one(tmp_path: Path, how: str) -> None:
    ends, requests, keys = asked(tmp_path / "one", 1, how, "same", "lives")
    assert (ends, keys) == ([0], KEYS)
    ends, together, keys = asked(tmp_path / "four", 4, how, "same", "lives")
    assert ends == [0, 0, 0, 0]
    assert together <= 1.1 * requests
    assert keys <= 1.1 * KEYS


def test_four_tasks_that_ask_by_row_send_far_fewer_requests_than_four(tmp_path: Path) -> None:
    """Each request takes a processor's time: where four tasks share a busy one, patience may end."""
    ends, _, keys = asked(tmp_path / "four", 4, "row", "same", "lives")
    assert ends == [0, 0, 0, 0]
    assert keys <= 2 * KEYS


def test_one_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    ends, _, keys = asked(tmp_path / "dies", 3, "sync", "same", "dies")
    assert ends == [-signal.SIGALRM, 0, 0]
    assert keys <= 2 * KEYS


def no_sleep(seconds: float) -> None:
    """Nobody is waited for."""
    raise AssertionError(seconds)


def hashes(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, np.uint64)


EVERYTHING = np.ones(4, np.bool_)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_comes_second_waits_as_long_as_answers_come(tmp_path: Path, clock: Clock) -> None:
    one, other = Asking(tmp_path, clock), Asking(tmp_path, clock)
    assert not one.turn(hashes(1, 2, 3, 4)).waits(EVERYTHING)
    turn = other.turn(hashes(4, 3, 2, 1))
    assert turn.waits(EVERYTHING)
    clock.now += FIRST_PATIENCE
    assert turn.waits(EVERYTHING)
    clock.now += 0.01
    assert turn.waits(np.array([True, True, True, False])), "one has been answered"
    clock.now += FIRST_PATIENCE + 0.01
    assert not turn.waits(np.array([True, True, True, False]))
    assert (one.keys, other.keys) == (4, 3)
    assert not turn.waits(np.zeros(4, np.bool_))


def test_what_is_written_just_after_a_look_is_not_asked_for(tmp_path: Path, clock: Clock) -> None:
    """Who asked for it has left then, so that nobody is seen to ask."""
    one, other = (_StoreCache(store(tmp_path, clock), print) for _ in range(2))
    looks: list[Known] = []

    def probe(keys: pa.Table, columns: Sequence[str]) -> Known:
        looks.append(_StoreCache.probe(other, keys, columns))
        if len(looks) == 1:
            one.learn([(keys, Placed(rows, pa.array([0], pa.int32())), pa.array([1], pa.int32()), clock.now)])
            one.end()
        return looks[-1]

    rows, keys = pa.table({"id": [1], "name": ["a"]}), pa.table({"id": [1, 2]})
    assert one.turn(keys)(one.probe(keys, ["name"])) is False
    spec = LookupSpec(Slow(tmp_path), ("id",), ("name",), LookupSettings(True, cache=PartialCache(600.0)))
    memory = Remembering(spec, other)
    asked = Keys(keys, pa.array([0, 1], pa.int32()))
    with patch.object(other, "probe", probe):
        recalled = [memory.recall(asked, sleep=no_sleep).known for _ in range(2)]
    for each in recalled:
        assert each is not None
        assert [placed.rows.to_pylist() for placed in each.found] == [[{"name": "a"}]]
        assert each.missing.to_pylist() == [1]
    assert other.asked == 0, "others need not wait for what is not asked for"
    assert len(looks) == 3, "a second look is taken where there is something new"


def test_nobody_waits_for_few_of_the_keys(tmp_path: Path, clock: Clock) -> None:
    one, other = Asking(tmp_path, clock), Asking(tmp_path, clock)
    one.turn(hashes(1)).waits(EVERYTHING[:1])
    assert not other.turn(hashes(1, 2, 3, 4)).waits(EVERYTHING)


def test_what_has_ended_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    one, other = Asking(tmp_path, clock), Asking(tmp_path, clock)
    one.turn(hashes(1, 2, 3, 4)).waits(EVERYTHING)
    clock.now += LEAST_PATIENCE
    one.answered(4)
    one.end()
    assert not other.turn(hashes(1, 2, 3, 4)).waits(EVERYTHING)
    other.end()
    one.turn(hashes(1, 2, 3, 4)).waits(EVERYTHING)
    turn = other.turn(hashes(1, 2, 3, 4))
    assert turn.waits(EVERYTHING)
    clock.now += 2.9 * LEAST_PATIENCE
    assert turn.waits(EVERYTHING), "answers are known to take that long"
    clock.now += 0.2 * LEAST_PATIENCE
    assert not turn.waits(EVERYTHING)
    for each in (one, other):
        each.end()
    assert not list(tmp_path.glob("*.asking"))
