"""What a lookup function counts while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub
from typing import Any


@dataclass(frozen=True)
class LookupMetrics:
    """Counts of one lookup function in one task; ``+`` adds those of several, ``-`` tells what came since.

    Args:
        rows_in: input rows read.
        rows_out: rows handed back for them, before residual conditions and padding.
        null_key_rows: input rows with a NULL in their key, which are never looked up.
        keys: keys asked, each counted once per window of input.
        requests: questions sent to the connector.
        retried_keys: keys asked again, counted each time.
        hits: keys whose final outcome is at least one row.
        misses: keys that found no row in the end.
        skipped: keys whose rows are dropped because of `on-error=skip`.
        errors: requests that failed.
        buffer_full: how often reading of input stopped because too much was held.
        seconds_waiting: time in which the task could do nothing but wait for answers and retries.
    """

    rows_in: int = 0
    rows_out: int = 0
    null_key_rows: int = 0
    keys: int = 0
    requests: int = 0
    retried_keys: int = 0
    hits: int = 0
    misses: int = 0
    skipped: int = 0
    errors: int = 0
    buffer_full: int = 0
    seconds_waiting: float = 0.0

    def __add__(self, other: LookupMetrics) -> LookupMetrics:
        return self._with(other, add)

    def __sub__(self, other: LookupMetrics) -> LookupMetrics:
        return self._with(other, sub)

    def _with(self, other: LookupMetrics, operation: Callable[[Any, Any], Any]) -> LookupMetrics:
        return LookupMetrics(*map(operation, vars(self).values(), vars(other).values()))


class Tally:
    """Adds up what one lookup function counts in one task."""

    def __init__(self) -> None:
        self.total = LookupMetrics()

    def add(self, counts: LookupMetrics) -> None:
        """Count ``counts``, too."""
        self.total += counts


Report = Callable[[str, LookupMetrics], None]
"""Takes the name of a lookup function and what it counted; called once at the end of each task."""
