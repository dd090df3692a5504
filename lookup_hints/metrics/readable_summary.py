"""Counts for a reader: the figures of a lookup as text, the most important sentence first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lookup_hints.errors import counted
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import BY_SPARK, LookupMetrics

# Shares of the time from which a wait is worth a sentence: some waiting for Spark is always there.
_MATTERS, _MATTERS_OF_SPARK = 0.1, 0.5

# Causes of waiting as parts of a sentence that names a share of the time.
_WAITS_FOR = {
    "source": "waiting for {table}",
    "slot": "waiting for {table}, with all of `capacity` in flight",
    "budget": "waiting for the budget of {table}",
    "throttle": "waiting, as {table} takes no more requests",
    "outage": "waiting for the end of an outage of {table}",
    "retry": "waiting to ask {table} again",
    "reading": "Spark was the slow side",
    "writing": "Spark was slow to take the rows",
}


@dataclass(frozen=True)
class Measured:
    """The counts of one lookup, and the limits to compare them with.

    Args:
        name: the lookup.
        counts: what it counted.
        capacity: how many requests may be in flight in one task; None for a sync lookup.
    """

    name: LookupName
    counts: LookupMetrics
    capacity: int | None = None


def waited_for_source(counts: LookupMetrics) -> float:
    """Seconds in which tasks waited for anything but Spark."""
    return counts.waited.without(*BY_SPARK).total


def seconds_text(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> [seconds_text(each) for each in (0.00004, 0.0123, 0.31, 4.2, 312.0)]
    ['40 µs', '12 ms', '310 ms', '4.2 s', '312 s']
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1.0:
        return f"{float(f'{seconds * 1e3:.2g}'):g} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def bytes_text(count: float) -> str:
    """A size in the unit that suits it.

    >>> [bytes_text(each) for each in (0, 999, 12_345, 3_400_000)]
    ['0 B', '999 B', '12 kB', '3.4 MB']
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def share_text(part: float, whole: float) -> str:
    """``part`` of ``whole`` as per cent; nothing where there is no whole.

    >>> share_text(1, 3), share_text(1, 0)
    ('33 %', '')
    """
    return f"{part / whole:.0%}".replace("%", " %") if whole else ""


# --- one sentence ----------------------------------------------------------------------------------


def what_mattered(lookups: Mapping[LookupName, Measured], seconds: float) -> str:
    """One sentence: what the lookups' tasks waited for most; empty where they hardly waited, or none ran.

    The lookup that waited longest for its source is spoken of. The share is of the time in which tasks
    were in that lookup. What cannot have made up a tenth of the whole ``seconds`` is not worth a word.
    """
    ran = [each for each in lookups.values() if each.counts.seconds > 0]
    if not ran:
        return ""
    slowest = max(ran, key=lambda each: (waited_for_source(each.counts), each.counts.seconds))
    counts = slowest.counts
    by_spark = waited_for_source(counts) < _MATTERS * counts.seconds
    waits = {cause: each for cause, each in counts.waited.counts.items() if (cause in BY_SPARK) == by_spark}
    cause = max(waits, key=lambda each: waits[each], default=None)
    least = max((_MATTERS_OF_SPARK if by_spark else _MATTERS) * counts.seconds, _MATTERS * seconds)
    if cause is None or waits[cause] < least:
        return ""
    share = share_text(waits[cause], counts.seconds)
    of_time = f"{share} of {seconds_text(counts.seconds)} in {counted(counts.tasks, 'task')}"
    if by_spark:
        return f"{_WAITS_FOR[cause]} ({of_time})"
    waited = _WAITS_FOR[cause].format(table=slowest.name.table)
    return f"{of_time} went into {waited}: {_load_text(slowest)}"


def _load_text(lookup: Measured) -> str:
    counts = lookup.counts
    of = "" if lookup.capacity is None else f" of {lookup.capacity}"
    said = [f"{counted(int(counts.most_in_flight), 'request')} in flight{of}"]
    said.append(f"p99 {seconds_text(counts.latency.quantile(0.99))}")
    return ", ".join([*said, *nonzero(throttled=counts.throttled, failed=counts.errors)])


def nonzero(**numbers: int) -> list[str]:
    """Those of ``numbers`` that are not zero, with their names.

    >>> nonzero(retried=0, failed=1200)
    ['1,200 failed']
    """
    return [f"{number:,} {name}" for name, number in numbers.items() if number]


# --- one line --------------------------------------------------------------------------------------


def in_short(lookup: Measured) -> str:
    """One line: how many keys a lookup asked for, found and missed, and how long its tasks waited."""
    counts = lookup.counts
    more = {
        "skipped": counts.skipped,
        "from the cache": from_cache(counts),
        "asked again": counts.retried_keys,
    }
    said = [
        f"{lookup.name.alias}: {counted(counts.keys, 'key')} asked for",
        f"{counts.hits:,} found",
        f"{counts.misses:,} missed",
        *(f"{count:,} {what}" for what, count in more.items() if count),
        *([f"{counted(counts.errors, 'request')} failed"] if counts.errors else []),
        f"waited {seconds_text(waited_for_source(counts))}",
    ]
    return ", ".join(said)


# --- all figures -----------------------------------------------------------------------------------


def facts_of(lookup: Measured) -> Iterator[tuple[str, str]]:
    """Name and text of each figure that says something, for a plan that was run."""
    counts = lookup.counts
    null = f", {counts.null_key_rows:,} with NULL in the key" if counts.null_key_rows else ""
    dropped = f", {counts.unasked_rows:,} of keys that were not asked" if counts.unasked_rows else ""
    rows = f"{counts.rows_in:,} in{null}, {counts.rows_found:,} found{dropped}, {counts.rows_out:,} out"
    yield "rows", rows
    skipped = f", {counts.skipped:,} skipped" if counts.skipped else ""
    share = f" ({share_text(counts.hits, counts.keys)})" if counts.keys else ""
    yield "keys", f"{counts.keys:,} asked, {counts.hits:,} found{share}, {counts.misses:,} missed{skipped}"
    if has_cache(counts):
        yield "cache", _cache_text(counts)
    yield "requests", _requests_text(lookup)
    if counts.requests:
        quantiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
        yield (
            "latency",
            ", ".join(f"{name} {seconds_text(counts.latency.quantile(q))}" for name, q in quantiles.items()),
        )
    if retried := _retries_text(counts):
        yield "retried", retried
    if counts.errors:
        classes = ", ".join(f"{count:,} {name}" for name, count in counts.errors_by_class.counts.items())
        yield "failed", f"{counted(counts.errors, 'request')} ({classes})"
    yield "time", _time_text(counts)
    if counts.repeated_tasks:
        yield "repeated", f"{counted(counts.repeated_tasks, 'run')} of tasks, not counted"


def has_cache(counts: LookupMetrics) -> bool:
    return from_cache(counts) + counts.cache_misses > 0


def from_cache(counts: LookupMetrics) -> int:
    return counts.cache_hits + counts.cache_missing


def _cache_text(counts: LookupMetrics) -> str:
    known = from_cache(counts)
    left = [f"{rows:,} left it ({why})" for why, rows in counts.cache_evicted_by_reason.counts.items()]
    said = [
        f"{counted(known, 'key')} known ({share_text(known, known + counts.cache_misses)})",
        f"{counts.cache_missing:,} of them to have no row",
        *([f"{counts.cache_stale:,} too old and used"] if counts.cache_stale else []),
        f"{counted(int(counts.cache_rows), 'row')} and {bytes_text(counts.cache_bytes)} held",
        *left,
        *_loads_texts(counts),
    ]
    return ", ".join(said)


def _loads_texts(counts: LookupMetrics) -> Iterator[str]:
    if counts.cache_loads:
        took = seconds_text(counts.cache_load_millis / 1000)
        yield f"the table read {counted(counts.cache_loads, 'time')}, in {took} at most"
    if counts.cache_load_failures:
        yield f"{counted(counts.cache_load_failures, 'load')} that failed"
    if counts.switched_after:
        yield f"instead of asking, after {counted(int(counts.switched_after), 'key')}"
    if counts.cache_age:
        yield f"its rows up to {seconds_text(counts.cache_age)} old"


def _requests_text(lookup: Measured) -> str:
    counts = lookup.counts
    if not counts.requests:
        return "none"
    asked = counts.keys - from_cache(counts) + counts.retried_keys
    each = asked / counts.requests
    of = "" if lookup.capacity is None else f" of {lookup.capacity}"
    return (
        f"{counts.requests:,} of {counted(round(each), 'key')} each,"
        f" at most {counts.most_in_flight}{of} in flight in one task;"
        f" {bytes_text(counts.bytes_out)} out, {bytes_text(counts.bytes_in)} in"
    )


def _retries_text(counts: LookupMetrics) -> str:
    causes = {"after a miss": counts.retried_misses, "after a failure": counts.retried_failures}
    said = [f"{counted(count, 'key')} {cause}" for cause, count in causes.items() if count]
    if counts.throttled:
        said.append(f"{counted(counts.throttled, 'request')} after a pause that the source asked for")
    return ", ".join(said)


def _time_text(counts: LookupMetrics) -> str:
    waits = sorted(counts.waited.counts.items(), key=lambda each: -each[1])
    least = 0.005 * counts.seconds
    shares = [f"{cause} {share_text(seconds, counts.seconds)}" for cause, seconds in waits if seconds > least]
    waited = f", waiting: {', '.join(shares)}" if shares else ""
    return f"{seconds_text(counts.seconds)} in {counted(counts.tasks, 'task')}{waited}"


# --- a line while it runs --------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """The counts of a lookup until a moment."""

    counts: LookupMetrics
    waiting: int
    time: float


def live_text(alias: str, now: Moment, before: Moment) -> str:
    """One line about a lookup that runs: its pace since ``before``, and its figures so far."""
    counts = now.counts
    passed = now.time - before.time
    pace = (_settled_keys(counts) - _settled_keys(before.counts)) / passed if passed > 0 else 0.0
    said = [f"{alias}: {pace:,.0f} keys/s"]
    if _settled_keys(counts):
        said.append(f"{share_text(counts.hits, _settled_keys(counts))} found")
    if counts.latency.counts:
        said.append(f"p99 {seconds_text(counts.latency.quantile(0.99))}")
    if now.waiting:
        said.append(f"{now.waiting:,} {'key waits' if now.waiting == 1 else 'keys wait'} for a retry")
    return ", ".join([*said, *nonzero(throttled=counts.throttled, failed=counts.errors)])


def _settled_keys(counts: LookupMetrics) -> int:
    return counts.hits + counts.misses + counts.skipped
