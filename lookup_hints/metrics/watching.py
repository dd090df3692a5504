"""Shows what is counted while a task runs. Pure: times are given, and who drives the flow asks in time."""

from __future__ import annotations

import math
from collections.abc import Callable

from lookup_hints.metrics.counts import LookupMetrics

WATCH_SECONDS = 0.5
"""Counts are shown no more often."""

Watch = Callable[[LookupMetrics, int], None]
"""Takes what was counted so far, and how many keys wait to be asked again; quick, and raises nothing."""


class WatchCalls:
    """When ``watch`` should be called next; never, where there is none."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self.due = math.inf if watch is None else -math.inf
        """When it should be, at the earliest."""

    def show(self, counts: LookupMetrics, waiting: int, now: float) -> None:
        """Show what is counted ``now``."""
        assert self._watch is not None, "it is never due"
        self.due = now + WATCH_SECONDS
        self._watch(counts, waiting)
