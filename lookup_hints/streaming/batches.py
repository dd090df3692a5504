"""What is known of a micro-batch: Spark's progress of it, and what its lookups counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lookup_hints.metrics.counts import LookupMetrics
from lookup_hints.spec import LookupName

CountsOf = Callable[[str, int], Mapping[LookupName, LookupMetrics]]
"""What lookups counted in a micro-batch: takes the id of the streaming query and the number of the batch."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a streaming query.

    Args:
        number: which one, as the checkpoint counts.
        began: when, in UTC.
        seconds: how long it took.
        rows: rows that came in.
        lag: how far the query is behind; empty where neither event time nor the source says.
        lookups: what each lookup counted in it.
    """

    number: int
    began: datetime
    seconds: float
    rows: int
    lag: str = ""
    lookups: Mapping[LookupName, LookupMetrics] = field(default_factory=dict)

    @property
    def total(self) -> LookupMetrics:
        """The counts of all its lookups together."""
        return sum(self.lookups.values(), LookupMetrics())


def lookups_of(progress: Any, counts_of: CountsOf) -> Mapping[LookupName, LookupMetrics]:
    """What lookups counted in the micro-batch of a ``StreamingQueryProgress``, object or dictionary."""
    return counts_of(str(_of(progress, "id")), int(_of(progress, "batchId")))


def batch_of(progress: Any, counts_of: CountsOf) -> MicroBatch:
    """The micro-batch of a ``StreamingQueryProgress``, object or dictionary."""
    began = _time(_of(progress, "timestamp"))
    return MicroBatch(
        number=int(_of(progress, "batchId")),
        began=began,
        seconds=(_of(progress, "durationMs") or {}).get("triggerExecution", 0) / 1000,
        rows=int(_of(progress, "numInputRows")),
        lag=_lag(progress, began),
        lookups=lookups_of(progress, counts_of),
    )


def _of(progress: Any, name: str) -> Any:
    # Before PySpark 4.0 it is a plain dictionary, and what does not apply to the query is not in it. On Spark
    # Connect an entry may be None where the attribute sums up the sources.
    return getattr(progress, name) if hasattr(progress, name) else progress.get(name)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _lag(progress: Any, began: datetime) -> str:
    """By event time, or by what a source such as Kafka says of its offsets."""
    latest = (_of(progress, "eventTime") or {}).get("max")
    if latest:
        return f"{max(0.0, (began - _time(latest)).total_seconds()):,.1f} s behind"
    sources = (_of(source, "metrics") or {} for source in _of(progress, "sources") or ())
    behind = [float(each["maxOffsetsBehindLatest"]) for each in sources if "maxOffsetsBehindLatest" in each]
    return f"{sum(behind):,.0f} rows behind" if behind else ""
