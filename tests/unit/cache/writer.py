"""Processes that write to stores until they are killed: ``python -m tests.unit.cache.writer <folder> <step> ...``.

Each has a folder of its own, called like its step, and kills itself before its ``step``-th call that changes
files. With ``limited`` or ``unlimited`` before the steps, which are then keys to begin with, all write to one
folder, to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.support import UNLIMITED, Clock, learned, store

LIMITS = StoreLimits(max_rows=400)
TOGETHER = {"limited": LIMITS, "unlimited": UNLIMITED}
BATCHES, BATCH = 30, 10
P = ParamSpec("P")
CHANGES = ((os, "open"), (os, "write"), (os, "close"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir"))


def main() -> None:
    """Write, and print how each process ended."""
    folder, *steps = sys.argv[1:]
    if steps[0] in TOGETHER:
        limits = TOGETHER[steps[0]]
        children = [_begin(write, Path(folder), limits, int(first)) for first in steps[1:]]
    else:
        children = [_begin(_write_until, Path(folder, step), int(step)) for step in steps]
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def _begin(work: Callable[P, None], *of: P.args, **named: P.kwargs) -> int:
    """The number of a process that does ``work``. It is a fork: to import all anew takes longer."""
    child = os.fork()
    if not child:
        work(*of, **named)
        os._exit(0)
    return child


def _write_until(folder: Path, step: int) -> None:
    kill_before(step)
    write(folder, LIMITS, 0)


def write(folder: Path, limits: StoreLimits, first: int) -> None:
    """Write ``BATCHES`` of keys from ``first`` on."""
    one = store(folder, Clock(), limits)
    for number in range(BATCHES):
        start = first + number * BATCH
        one.learn([learned({each: [f"n{each}"] for each in range(start, start + BATCH)})])


def kill_before(step: int) -> None:
    """Let this process kill itself before its ``step``-th call that changes files."""
    calls = 0

    def counted(function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)

        return call

    for owner, name in CHANGES:
        setattr(owner, name, counted(getattr(owner, name)))


if __name__ == "__main__":
    main()
