"""Whether there is room for mapped files: Spark may bound the addresses that a worker has."""

from __future__ import annotations

from pathlib import Path

try:
    import resource
except ImportError:  # on Windows
    _can_ask = False
else:
    _can_ask = True

_SPARE = 0.5
"""This part of what is left stays free for the lookup itself."""


def has_room_for(nbytes: int) -> bool:
    """Whether so much may be mapped: ``spark.executor.pyspark.memory`` bounds what mapped files count for."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0] if _can_ask else -1
    if most < 0:
        return True
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return False
    return nbytes <= (most - taken) * _SPARE
