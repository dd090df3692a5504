"""Micro-batches as Spark's progress tells of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.streaming.streams import batch_of, lookups_of

PROGRESS: dict[str, Any] = {
    "id": "a-b",
    "batchId": 3,
    "timestamp": "2026-01-01T00:00:10.500Z",
    "durationMs": {"triggerExecution": 1250, "addBatch": 900},
    "numInputRows": 12,
    "eventTime": {},
    "sources": [{"metrics": {}}],
}

COUNTED = {LookupName("t"): LookupMetrics(keys=7)}


def counts_of(query: str, batch: int) -> dict[LookupName, LookupMetrics]:
    return COUNTED if (query, batch) == ("a-b", 3) else {}


def test_a_batch_has_its_rows_time_and_counts() -> None:
    batch = batch_of(PROGRESS, counts_of)
    assert (batch.number, batch.rows, batch.seconds, batch.lag) == (3, 12, 1.25, "")
    assert batch.began.isoformat() == "2026-01-01T00:00:10.500000+00:00"
    assert batch.total == LookupMetrics(keys=7)


def test_the_lag_is_that_of_event_time() -> None:
    progress = {**PROGRESS, "eventTime": {"max": "2026-01-01T00:00:08.000Z"}}
    assert batch_of(progress, counts_of).lag == "2.5 s behind"


def test_else_that_of_the_offsets_of_the_sources() -> None:
    behind = [{"metrics": {"maxOffsetsBehindLatest": "1000"}}, {"metrics": {"maxOffsetsBehindLatest": "234"}}]
    assert batch_of({**PROGRESS, "sources": behind}, counts_of).lag == "1,234 rows behind"


def test_a_progress_may_be_an_object_as_listeners_get_it() -> None:
    sources = [SimpleNamespace(metrics=None)]
    progress = SimpleNamespace(**{**PROGRESS, "sources": sources, "eventTime": None})
    assert lookups_of(progress, counts_of) == COUNTED
    assert batch_of(progress, counts_of).rows == 12


def test_before_pyspark_4_a_progress_leaves_out_what_does_not_apply() -> None:
    progress = {name: value for name, value in PROGRESS.items() if name != "eventTime"}
    assert batch_of({**progress, "sources": [{}]}, counts_of).lag == ""


def test_on_spark_connect_a_progress_counts_the_rows_of_its_sources() -> None:
    class Progress(dict[str, Any]):
        numInputRows = 12  # noqa: N815 (Spark's name)

    assert batch_of(Progress({**PROGRESS, "numInputRows": None}), counts_of).rows == 12
