"""Python workers whose wall clock is stepped from outside: the module of Spark's ``spark.python.daemon.module``.

``time.time`` is stepped, for all that looks at it through the module ``time``; ``datetime.now`` and the monotonic
clock are not.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from pyspark import daemon

FILE = "SOAK_CLOCK"
"""The variable that names a file of one number: the seconds to add."""


def step_wall_clock(file: Path) -> None:
    """Let ``time.time`` be later by the number in ``file``, also in the processes that are forked from this one."""
    with file.open("rb") as opened:
        seconds = memoryview(mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)).cast("d")
    wall = time.time
    time.time = lambda: wall() + seconds[0]


if __name__ == "__main__":
    step_wall_clock(Path(os.environ[FILE]))
    daemon.manager()
