"""A process that writes to a store until it is killed: ``python -m tests.store.writer <folder> <step> <first>``.

It kills itself before its ``step``-th call that changes files; with step 0 it writes to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from lookup_hints.store.folder import Limits
from tests.store.support import Clock, learned, store

LIMITS = Limits(max_rows=400)
BATCHES, BATCH = 30, 10
CHANGES = ((os, "open"), (os, "write"), (os, "close"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir"))


def main() -> None:
    """Write ``BATCHES``."""
    folder, step, first = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if step:
        _kill_before(step)
    one = store(folder, Clock(), LIMITS)
    for number in range(BATCHES):
        start = first + number * BATCH
        one.learn([learned({each: [f"n{each}"] for each in range(start, start + BATCH)})])


def _kill_before(step: int) -> None:
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
