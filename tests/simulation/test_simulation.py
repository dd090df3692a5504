"""Seeds hold; those that found something once do, too; and a seed is the same run each time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.jobs import BRIEF_FROM, SMALL_FROM
from tests.simulation.run import seeds_that_failed_once, story_of, traces_of
from tests.simulation.seams import simulated


@pytest.fixture(scope="module", autouse=True)
def _world() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.parametrize("seed", seeds_that_failed_once())
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert story_of(seed) is None


@pytest.mark.parametrize("first", [0, SMALL_FROM, BRIEF_FROM], ids=["deep", "mostly small", "mostly brief"])
def test_the_first_seeds_hold(first: int) -> None:
    stories = [story for seed in range(first, first + 200) if (story := story_of(seed)) is not None]
    assert not stories, "\n\n".join(stories)


_ANOTHER_PROCESS = """
import json
from tests.simulation.run import traces_of
from tests.simulation.seams import simulated

with simulated():
    print(json.dumps(traces_of(reversed({seeds}))))
"""


def test_a_seed_is_the_same_run_in_another_process_in_another_folder_after_other_seeds(
    tmp_path: Path,
) -> None:
    seeds = [first + number for first in (0, SMALL_FROM, BRIEF_FROM) for number in range(1000, 1020)]
    root = Path(__file__).parents[2]
    for part in ("lookup_hints", "tests/simulation"):
        shutil.copytree(root / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "tests" / "__init__.py", tmp_path / "tests")
    there = subprocess.run(
        [sys.executable, "-c", _ANOTHER_PROCESS.format(seeds=seeds)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        stdout=subprocess.PIPE,
        check=True,
    )
    traces = json.loads(there.stdout)
    for seed, trace in traces_of(seeds).items():
        assert trace == traces[seed], f"seed {seed}"
