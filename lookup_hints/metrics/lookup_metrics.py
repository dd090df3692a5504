"""Counts of a lookup function.

A count is one field of `LookupMetrics`. Its type says how it merges, `About` its unit and meaning. A new
count is a new field and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import add, sub
from sys import intern
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_origin, get_type_hints

_N = TypeVar("_N", int, float)
_Self = TypeVar("_Self", bound="CountsByKey[Any]")

Cause = Literal["source", "slot", "budget", "throttle", "outage", "retry", "reading", "writing"]
"""Why a task could only wait; `LookupMetrics.waited` says what each one means."""

BY_SPARK: tuple[Cause, ...] = ("reading", "writing")
"""The causes for which Spark, and no source, is waited for."""


@dataclass(frozen=True)
class CountsByKey(Generic[_N]):
    """Numbers, or amounts, under keys of any kind; they add up key by key."""

    counts: Mapping[Any, _N] = field(default_factory=dict)

    def __add__(self: _Self, other: CountsByKey[_N]) -> _Self:
        return self._merge_counts(other, add)

    def __sub__(self: _Self, other: CountsByKey[_N]) -> _Self:
        return self._merge_counts(other, sub)

    def _merge_counts(self: _Self, other: CountsByKey[_N], operation: Callable[[_N, _N], _N]) -> _Self:
        if not other.counts:
            return self
        keys = [*self.counts, *(key for key in other.counts if key not in self.counts)]
        merged = {key: operation(self.counts.get(key, 0), other.counts.get(key, 0)) for key in keys}
        return type(self)({key: count for key, count in merged.items() if count})

    def without(self: _Self, *keys: Any) -> _Self:
        return type(self)({key: count for key, count in self.counts.items() if key not in keys})

    @property
    def total(self) -> _N:
        return sum(self.counts.values())


# Histograms with growing buckets add up over tasks, which quantiles do not.
@dataclass(frozen=True)
class Latencies(CountsByKey[int]):
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


class MaxGauge(int):
    """A maximum: `+` gives the larger one, `-` keeps this one."""

    def __add__(self, other: int) -> MaxGauge:
        return MaxGauge(max(self, other))

    def __sub__(self, other: int) -> MaxGauge:
        return self


@dataclass(frozen=True)
class Events:
    """Logged events by kind and text; equal ones are merged, and the last ``MOST`` are kept."""

    MOST: ClassVar[int] = 20

    told: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: Events) -> Events:
        return Events(tuple(dict.fromkeys((*self.told, *other.told)))[-self.MOST :])

    def __sub__(self, other: Events) -> Events:
        return Events(tuple(event for event in self.told if event not in other.told))


@dataclass(frozen=True)
class About:
    """The unit and meaning of a count."""

    unit: str
    meaning: str


_NO_COUNTS: CountsByKey[int] = CountsByKey()
_NO_SECONDS: CountsByKey[float] = CountsByKey()
_NO_LATENCIES = Latencies()
_NONE_IN_FLIGHT = MaxGauge(0)
_NO_EVENTS = Events()


@dataclass(frozen=True)
class LookupMetrics:
    """Counts of one lookup function in one task; ``+`` adds them up, ``-`` gives what was added since.

    `about_counts` gives the unit and the meaning of each field that is a count.
    """

    tasks: Annotated[int, About("tasks", "tasks whose counts these are")] = 0
    repeated_tasks: Annotated[int, About("tasks", "runs of tasks that Spark repeated: not counted")] = 0
    seconds: Annotated[float, About("seconds", "how long tasks ran in the lookup, with all waits")] = 0.0
    rows_in: Annotated[int, About("rows", "input rows read")] = 0
    rows_out: Annotated[int, About("rows", "rows of the join, before a residual condition")] = 0
    rows_found: Annotated[int, About("rows", "rows of the source that input rows found")] = 0
    null_key_rows: Annotated[int, About("rows", "input rows with a NULL in their key: never looked up")] = 0
    keys: Annotated[int, About("keys", "keys asked, each counted once per window of input")] = 0
    requests: Annotated[int, About("requests", "questions sent to the connector")] = 0
    bytes_out: Annotated[int, About("bytes", "sent, as the connector says; else the Arrow keys")] = 0
    bytes_in: Annotated[int, About("bytes", "received, as it says; else the Arrow rows")] = 0
    retried_keys: Annotated[int, About("keys", "keys asked again, counted each time")] = 0
    retried_misses: Annotated[int, About("keys", "keys that wait for their next attempt after a miss")] = 0
    retried_failures: Annotated[int, About("keys", "keys that wait for it after a failure")] = 0
    throttled: Annotated[int, About("requests", "refused by the source for a while, as HTTP does by 429")] = 0
    limit: Annotated[
        MaxGauge, About("requests", "that an executor may have in flight: the adaptive limit")
    ] = _NONE_IN_FLIGHT
    outages: Annotated[int, About("times", "the circuit breaker of the source opened")] = 0
    hits: Annotated[int, About("keys", "keys whose final outcome is at least one row")] = 0
    misses: Annotated[int, About("keys", "keys that found no row in the end")] = 0
    unasked_rows: Annotated[
        int, About("rows", "that came for a key that was not asked, `DE` for `de`, and are dropped")
    ] = 0
    cache_hits: Annotated[int, About("keys", "keys whose rows came from the cache of the executor")] = 0
    cache_missing: Annotated[int, About("keys", "keys that the cache knows to have no row")] = 0
    cache_misses: Annotated[int, About("keys", "keys that the cache did not know: they were asked")] = 0
    cache_stale: Annotated[
        int, About("keys", "keys whose rows from the cache were older than they may be")
    ] = 0
    cache_evicted_by_reason: Annotated[
        CountsByKey[int], About("rows", "that left the cache: for its size, or as they expired")
    ] = _NO_COUNTS
    cache_checks: Annotated[
        int, About("times", "the source was asked which remembered rows have changed")
    ] = 0
    cache_rows: Annotated[MaxGauge, About("rows", "in the cache of an executor, at most")] = _NONE_IN_FLIGHT
    cache_bytes: Annotated[MaxGauge, About("bytes", "that its files take, at most")] = _NONE_IN_FLIGHT
    cache_loads: Annotated[int, About("times", "a whole table was read into the cache of an executor")] = 0
    cache_load_failures: Annotated[int, About("times", "it could not be read, or kept")] = 0
    cache_load_millis: Annotated[
        MaxGauge, About("milliseconds", "the last load took; the longest one of several")
    ] = _NONE_IN_FLIGHT
    cache_age: Annotated[MaxGauge, About("seconds", "the oldest whole table in use was old")] = (
        _NONE_IN_FLIGHT
    )
    switched_after: Annotated[
        MaxGauge, About("keys", "an executor had asked for when it read the table instead")
    ] = _NONE_IN_FLIGHT
    skipped: Annotated[int, About("keys", "keys whose rows are dropped because of `on-error=skip`")] = 0
    dead_letters: Annotated[int, About("keys", "keys that failed and are kept as dead letters")] = 0
    errors: Annotated[int, About("requests", "requests that failed, in all or for some of their keys")] = 0
    errors_by_class: Annotated[CountsByKey[int], About("requests", "the same by class of the error")] = (
        _NO_COUNTS
    )
    buffer_full: Annotated[int, About("times", "reading of input stopped because too much was held")] = 0
    most_in_flight: Annotated[MaxGauge, About("requests", "in flight at once in one task, at most")] = (
        _NONE_IN_FLIGHT
    )
    waited: Annotated[CountsByKey[float], About("seconds", "tasks could only wait, by cause: see below")] = (
        _NO_SECONDS
    )
    latency: Annotated[Latencies, About("seconds", "how long each request took, a histogram")] = _NO_LATENCIES
    events: Events = _NO_EVENTS
    """What else happened; not a count."""

    def __add__(self, other: LookupMetrics) -> LookupMetrics:
        return self._merge_fields(other, add)

    def __sub__(self, other: LookupMetrics) -> LookupMetrics:
        return self._merge_fields(other, sub)

    def _merge_fields(self, other: LookupMetrics, operation: Callable[[Any, Any], Any]) -> LookupMetrics:
        return LookupMetrics(*map(operation, vars(self).values(), vars(other).values()))


def about_counts() -> dict[str, About]:
    """Unit and meaning of each count of `LookupMetrics`, in order; tables and pages are made from it."""
    hints = get_type_hints(LookupMetrics, include_extras=True)
    kinds = {each.name: hints[each.name] for each in fields(LookupMetrics)}
    return {name: kind.__metadata__[0] for name, kind in kinds.items() if get_origin(kind) is Annotated}


Report = Callable[[str, LookupMetrics], None]
"""Takes the name of a lookup function and what it counted; called once at the end of each task."""


def division(field: str) -> str:
    """By what a count of several keys is divided.

    >>> division("errors_by_class"), division("waited")
    ('class', 'cause')
    """
    _, by, rest = field.rpartition("_by_")
    return rest if by else "cause"


Plain = dict[str, Any]
"""Dictionaries, lists, texts and numbers alone: it travels to the driver in ways that carry nothing else."""


@dataclass(frozen=True)
class TaskRun:
    """One run of a task, so that repeated runs are distinguished.

    Args:
        stage: the stage.
        partition: which part of the stage's work it does.
        attempt: how often that was tried before in this run of the stage.
        number: tells all runs of all tasks apart.
        batch: the streaming query and the micro-batch that it belongs to, where it belongs to one.
        query_run: the run of that query: one that starts again runs its last batch once more.
    """

    stage: int
    partition: int
    attempt: int
    number: int
    batch: tuple[str, int] | None = None
    query_run: str = ""


# Accumulators bring counts to the driver without a port of our own, which a firewall might block. A task that
# is computed again is told apart by its run. (docs/decisions/0003, docs/decisions/0139)
@dataclass(frozen=True)
class TaskRecord:
    """What one lookup counted in one run of a task."""

    function: str
    run: TaskRun
    counts: LookupMetrics

    def plain(self) -> Plain:
        return {
            "function": self.function,
            "run": {**vars(self.run), "batch": self.run.batch and list(self.run.batch)},
            "counts": {
                name: _to_json(value) for name, value in vars(self.counts).items() if value != _ZERO[name]
            },
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> TaskRecord:
        batch = plain["run"]["batch"]
        run = TaskRun(**{**plain["run"], "batch": batch and (str(batch[0]), int(batch[1]))})
        counts = {name: _from_json(name, value) for name, value in plain["counts"].items()}
        return cls(intern(str(plain["function"])), run, LookupMetrics(**counts))


_ZERO: dict[str, Any] = {each.name: each.default for each in fields(LookupMetrics)}


def _from_json(name: str, value: Any) -> Any:
    if isinstance(_ZERO[name], Events):
        return Events(tuple((str(kind), str(text)) for kind, text in value))
    return type(_ZERO[name])(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, CountsByKey):
        return dict(value.counts)
    if isinstance(value, Events):
        return [list(event) for event in value.told]
    return int(value) if isinstance(value, int) else value
