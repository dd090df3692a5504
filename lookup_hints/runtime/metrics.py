"""What a lookup function counts while it runs.

A count is one field of `LookupMetrics`. Its type says how it merges, `About` its unit and meaning. A new
count is a new field and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import add, sub
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

_Self = TypeVar("_Self", bound="CountsByKey")


@dataclass(frozen=True)
class CountsByKey:
    """Counts under keys of any kind; they add up key by key.

    Args:
        counts: how often each key came; keys that never came are left out.
    """

    counts: Mapping[Any, int] = field(default_factory=dict)

    def __add__(self: _Self, other: CountsByKey) -> _Self:
        return self._with(other, add)

    def __sub__(self: _Self, other: CountsByKey) -> _Self:
        return self._with(other, sub)

    def _with(self: _Self, other: CountsByKey, operation: Callable[[int, int], int]) -> _Self:
        if not other.counts:
            return self
        keys = [*self.counts, *(key for key in other.counts if key not in self.counts)]
        merged = {key: operation(self.counts.get(key, 0), other.counts.get(key, 0)) for key in keys}
        return type(self)({key: count for key, count in merged.items() if count})

    @property
    def total(self) -> int:
        """How many there are of all keys together."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Latencies(CountsByKey):
    """A histogram of durations whose buckets grow by a fifth, so that each quantile is exact to 10 %."""

    GROWTH: ClassVar[float] = 1.2

    @classmethod
    def bucket_of(cls, seconds: float) -> int:
        """The bucket of a duration: between ``GROWTH`` to its power and to the next one, in microseconds."""
        return math.floor(math.log(max(seconds * 1e6, 1.0), cls.GROWTH))

    def quantile(self, part: float) -> float:
        """The seconds that ``part`` of the durations (0 to 1) did not exceed; 0 where there are none."""
        wanted = math.ceil(part * self.total)
        for bucket in sorted(self.counts):
            wanted -= self.counts[bucket]
            if wanted <= 0:
                return float(1e-6 * self.GROWTH ** (bucket + 0.5))
        return 0.0


class Most(int):
    """A number of which the largest counts: `+` is the larger one, `-` keeps this one."""

    def __add__(self, other: int) -> Most:
        return Most(max(self, other))

    def __sub__(self, other: int) -> Most:
        return self


@dataclass(frozen=True)
class About:
    """What a count is: the unit in which it counts, and its meaning."""

    unit: str
    meaning: str


_NO_COUNTS = CountsByKey()
_NO_LATENCIES = Latencies()
_NONE_IN_FLIGHT = Most(0)


@dataclass(frozen=True)
class LookupMetrics:
    """Counts of one lookup function in one task; ``+`` adds those of several, ``-`` says what came since.

    `about_counts` gives the unit and the meaning of each field.
    """

    rows_in: Annotated[int, About("rows", "input rows read")] = 0
    rows_out: Annotated[int, About("rows", "rows found, before residual conditions and padding")] = 0
    null_key_rows: Annotated[int, About("rows", "input rows with a NULL in their key: never looked up")] = 0
    keys: Annotated[int, About("keys", "keys asked, each counted once per window of input")] = 0
    requests: Annotated[int, About("requests", "questions sent to the connector")] = 0
    retried_keys: Annotated[int, About("keys", "keys asked again, counted each time")] = 0
    retried_misses: Annotated[int, About("keys", "keys that wait for their next attempt after a miss")] = 0
    retried_failures: Annotated[int, About("keys", "keys that wait for it after a failure")] = 0
    hits: Annotated[int, About("keys", "keys whose final outcome is at least one row")] = 0
    misses: Annotated[int, About("keys", "keys that found no row in the end")] = 0
    skipped: Annotated[int, About("keys", "keys whose rows are dropped because of `on-error=skip`")] = 0
    errors: Annotated[int, About("requests", "requests that failed, in all or for some of their keys")] = 0
    errors_by_class: Annotated[CountsByKey, About("requests", "the same by class of the error")] = _NO_COUNTS
    buffer_full: Annotated[int, About("times", "reading of input stopped because too much was held")] = 0
    most_in_flight: Annotated[Most, About("requests", "in flight at once in one task, at most")] = (
        _NONE_IN_FLIGHT
    )
    seconds_waiting: Annotated[float, About("seconds", "tasks could only wait for answers and retries")] = 0.0
    latency: Annotated[Latencies, About("seconds", "how long each request took, a histogram")] = _NO_LATENCIES
    repeated_tasks: Annotated[int, About("tasks", "runs of tasks that Spark repeated: not counted")] = 0

    def __add__(self, other: LookupMetrics) -> LookupMetrics:
        return self._with(other, add)

    def __sub__(self, other: LookupMetrics) -> LookupMetrics:
        return self._with(other, sub)

    def _with(self, other: LookupMetrics, operation: Callable[[Any, Any], Any]) -> LookupMetrics:
        return LookupMetrics(*map(operation, vars(self).values(), vars(other).values()))


def about_counts() -> dict[str, About]:
    """What each field of `LookupMetrics` is, in their order; tables and pages are made from it."""
    hints = get_type_hints(LookupMetrics, include_extras=True)
    return {each.name: hints[each.name].__metadata__[0] for each in fields(LookupMetrics)}


class Tally:
    """Adds up what one lookup function counts in one task. What comes with each request is cheap to add."""

    def __init__(self) -> None:
        self._counts = LookupMetrics()
        self._latencies: Counter[int] = Counter()
        self._most_in_flight = 0

    def add(self, counts: LookupMetrics) -> None:
        """Count ``counts``, too."""
        self._counts += counts

    def took(self, seconds: float) -> None:
        """A request took so long."""
        self._latencies[Latencies.bucket_of(seconds)] += 1

    def in_flight(self, requests: int) -> None:
        """So many requests are in flight now."""
        self._most_in_flight = max(self._most_in_flight, requests)

    @property
    def total(self) -> LookupMetrics:
        """All that was counted so far."""
        timed = LookupMetrics(
            most_in_flight=Most(self._most_in_flight), latency=Latencies(dict(self._latencies))
        )
        return self._counts + timed


Report = Callable[[str, LookupMetrics], None]
"""Takes the name of a lookup function and what it counted; called once at the end of each task."""
