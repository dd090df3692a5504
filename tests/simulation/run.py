"""Runs seeds beside each other, and prints what fails: ``make simulate RUNS=1000``."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import chain, count, islice
from math import inf
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.files import new_folder
from tests.simulation.jobs import BRIEF_FROM, SMALL_FROM, Job
from tests.simulation.seams import simulated
from tests.simulation.world import World

FAILED_ONCE = Path(__file__).with_name("failed_once.txt")
"""Seeds that have found something, one in a line, with what it was."""

_AT_ONCE = 50
_TOLD_AFTER = 50_000
_SHOWN = 5
_TRACED = 60
_MOST_BYTES = 4 * 1024**3
"""A process that takes more runs a loop without end."""
_LONGEST_RUN = 120.0
"""Real seconds, of which a run takes a part of one: longer ones wait for something real."""


def run_seed(seed: int) -> World:
    """One whole run; an error that it raises has the world as an attribute.

    Raises:
        Broken: something does not hold.
    """
    gc.collect(0)  # what is left of a run has files open, and may not end in the midst of this one
    world = World(seed)
    try:
        with new_folder() as folder:
            world.run(Job(world, folder).run)
    except Exception as error:
        error.world = world  # type: ignore[attr-defined]
        raise
    return world


def story_of(seed: int) -> str | None:
    """What does not hold with this seed, with its last events; None where all holds."""
    try:
        run_seed(seed)
    except Exception as error:
        world: World = error.world  # type: ignore[attr-defined]
        events = "\n".join(world.trace[-_TRACED:])
        told = f"{world.setting}\n\n{events}\n\nseed {seed}: {type(error).__name__}: {error}"
        return f"{told}\nmake simulate SEED={seed} RUNS=1"
    return None


def traces_of(seeds: Iterable[int]) -> dict[str, list[str]]:
    """All that happens in the run of each seed, whether it fails or not."""
    traces = {}
    for seed in seeds:
        try:
            world = run_seed(seed)
        except Exception as error:
            world = error.world  # type: ignore[attr-defined]
        traces[str(seed)] = [*world.setting.replace(world.folder, "FOLDER").splitlines(), *world.trace]
    return traces


def seeds_that_failed_once() -> list[int]:
    lines = FAILED_ONCE.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def run_seeds(seeds: list[int]) -> list[str]:
    """The stories of those ``seeds`` that fail; one that hangs ends the process, which prints where."""
    stories = []
    for seed in seeds:
        with ending_in_time():
            story = story_of(seed)
        if story is not None:
            stories.append(story)
    return stories


@contextmanager
def ending_in_time() -> Iterator[None]:
    """A block with one run; the process ends in it, and prints where, if it takes too long."""
    faulthandler.dump_traceback_later(_LONGEST_RUN, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def begin_process() -> None:
    """Let a process of a pool live in the simulated world from now on, with bounded memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    _kept.enter_context(simulated())


_kept = ExitStack()
"""What a process of the pool keeps to its end."""


def run_beside(seeds: Iterator[int], seconds: float, processes: int) -> tuple[int, list[str]]:
    """Run ``seeds`` until there are none, the time is up, or some fail: how many ran, and the stories of those."""
    until, runs = time.monotonic() + seconds, 0
    stories: list[str] = []
    waiting: deque[tuple[list[int], Future[list[str]]]] = deque()
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, begin_process) as pool:
        while True:
            is_over = time.monotonic() >= until or len(stories) >= _SHOWN
            while len(waiting) < 2 * processes and not is_over and (chunk := list(islice(seeds, _AT_ONCE))):
                waiting.append((chunk, pool.submit(run_seeds, chunk)))
            if not waiting:
                return runs, stories
            chunk, answer = waiting.popleft()
            try:
                stories += answer.result()
            except BrokenProcessPool:
                stories.append(
                    f"the process of seeds {chunk[0]} to {chunk[-1]} has died, or that of the next"
                )
                return runs, stories
            runs += len(chunk)
            if runs % _TOLD_AFTER == 0:
                print(f"{runs:,} runs, {len(stories)} failed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed")
    parser.add_argument("--runs", type=int, help="how many seeds, one after the other")
    parser.add_argument("--seconds", type=float, default=60.0, help="where there is no number of runs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", help="the name of a bug to plant, or all: which seed finds it?")
    options = parser.parse_args()
    if options.planted is not None:
        from tests.simulation.planted import MOST_RUNS, bugs_named, search_all

        first, bugs = options.seed or SMALL_FROM, bugs_named(options.planted)
        some = range(first, first + (options.runs or MOST_RUNS))
        sys.exit(search_all(bugs, some, min(options.processes, len(bugs))) < len(bugs))
    first = options.seed if options.seed is not None else BRIEF_FROM + time.time_ns() // 1000 % 10**9
    print(f"seed {first}", flush=True)
    seeds: Iterable[int] = count(first) if options.runs is None else range(first, first + options.runs)
    if options.seed is None:
        seeds = chain(seeds_that_failed_once(), seeds)
    began = time.monotonic()
    seconds = options.seconds if options.runs is None else inf
    runs, stories = run_beside(
        iter(seeds), seconds, min(options.processes, options.runs or options.processes)
    )
    for story in stories:
        print(f"\n{story}")
    rate = runs / (time.monotonic() - began) * 60
    print(f"{runs:,} runs, {rate:,.0f} a minute, {len(stories)} failed")
    sys.exit(bool(stories))


if __name__ == "__main__":
    main()
