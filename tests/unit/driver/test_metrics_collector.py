"""What the driver keeps of the workers' counts: each task once, by lookup and by micro-batch."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from lookup_hints.driver import metrics_collector
from lookup_hints.driver.metrics_collector import Counts, receive_over_connect
from lookup_hints.metrics.lookup_metrics import (
    CountsByKey,
    Latencies,
    LookupMetrics,
    MaxGauge,
    TaskRecord,
    TaskRun,
)

ALL_KINDS = LookupMetrics(
    keys=3,
    errors_by_class=CountsByKey({"OSError": 2}),
    most_in_flight=MaxGauge(7),
    latency=Latencies({10: 4}),
)


def taken(*records: TaskRecord) -> Counts:
    counts = Counts()
    for record in records:
        counts.take([record.plain()])
    return counts


def record(number: int, *, stage: int = 1, partition: int = 0, attempt: int = 0, keys: int = 3) -> TaskRecord:
    return TaskRecord("f", TaskRun(stage, partition, attempt, number), LookupMetrics(keys=keys))


def of_batch(number: int, batch: int) -> TaskRecord:
    return TaskRecord("f", TaskRun(number, 0, 0, number, ("q", batch)), LookupMetrics(keys=2))


def test_a_record_travels_as_plain_data_and_comes_back_as_it_was() -> None:
    sent = TaskRecord("f", TaskRun(1, 2, 3, 4, ("q", 5)), ALL_KINDS)
    assert TaskRecord.of(pickle.loads(pickle.dumps(sent.plain()))) == sent
    assert b"lookup_hints" not in pickle.dumps(sent.plain()), "no class of ours is named"
    assert sent.plain()["counts"].keys() == {"keys", "errors_by_class", "most_in_flight", "latency"}


def test_tasks_add_up() -> None:
    counts = taken(record(1), record(2, partition=1, keys=4), record(3, stage=2))
    assert counts.totals == {"f": LookupMetrics(keys=10)}


def test_a_task_that_spark_computes_again_counts_once() -> None:
    counts = taken(record(1), record(8, keys=5), record(9, keys=5))
    assert counts.totals == {"f": LookupMetrics(keys=3, repeated_tasks=2)}


def test_a_task_that_failed_before_it_succeeded_tells_of_its_repeats() -> None:
    assert taken(record(5, attempt=2)).totals == {"f": LookupMetrics(keys=3, repeated_tasks=2)}


def test_a_copy_that_spark_started_of_a_slow_task_is_one_repeat_whoever_comes_first() -> None:
    once = {"f": LookupMetrics(keys=3, repeated_tasks=1)}
    assert taken(record(1), record(2, attempt=1)).totals == once
    assert taken(record(2, attempt=1), record(1)).totals == once


def test_two_lookups_of_the_same_function_in_one_task_both_count() -> None:
    assert taken(record(1), record(1)).totals == {"f": LookupMetrics(keys=6)}


@pytest.mark.work(5)
def test_the_memory_for_records_of_tasks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.REMEMBERED_TASKS", 20)
    counts = taken(*(record(number, partition=number) for number in range(30)))
    assert len(counts._tasks) == 20


def test_micro_batches_add_up_to_the_total_each_by_itself() -> None:
    counts = taken(of_batch(1, 0), of_batch(2, 0), of_batch(3, 1))
    assert counts.of_batch("q", 0) == {"f": LookupMetrics(keys=4)}
    assert counts.of_batch("q", 1) == {"f": LookupMetrics(keys=2)}
    assert counts.of_batch("another", 0) == {}
    assert counts.totals == {"f": LookupMetrics(keys=6)}


def test_a_batch_that_runs_again_has_the_counts_of_its_last_run() -> None:
    def of_run(number: int, query_run: str, keys: int) -> TaskRecord:
        return TaskRecord("f", TaskRun(number, 0, 0, number, ("q", 0), query_run), LookupMetrics(keys=keys))

    counts = taken(of_run(1, "first", 5), of_run(3, "second", 7), of_run(4, "second", 8))
    assert counts.of_batch("q", 0) == {"f": LookupMetrics(keys=15)}
    counts.take([of_run(2, "first", 9).plain()])
    assert counts.of_batch("q", 0) == {"f": LookupMetrics(keys=15)}, "it was late"
    assert counts.totals == {"f": LookupMetrics(keys=29)}, "all of them were asked for"


def test_a_batch_that_is_over_is_packed_and_what_comes_late_adds_up() -> None:
    late = TaskRecord("f", TaskRun(1, 1, 0, 9, ("q", 0)), ALL_KINDS)
    counts = taken(of_batch(1, 0), of_batch(2, 1), late)
    assert [isinstance(each._counts, bytes) for each in counts._batches.values()] == [True, False]
    assert counts.of_batch("q", 0) == {"f": LookupMetrics(keys=2) + ALL_KINDS}
    assert counts.of_batch("q", 1) == {"f": LookupMetrics(keys=2)}


def test_the_memory_for_batches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.REMEMBERED_BATCHES", 3)
    runs = [TaskRun(number, 0, 0, number, (f"q{number // 4}", number % 4)) for number in range(13)]
    counts = taken(*(TaskRecord("f", run, LookupMetrics(keys=2)) for run in runs))
    assert list(counts._batches) == [("q2", 2), ("q2", 3), ("q3", 0)]
    assert list(counts._latest) == ["q2", "q3"], "nothing is kept of queries that ended long ago"


@pytest.mark.parametrize("before", [(), (of_batch(1, 0),)])
def test_counts_that_another_thread_is_about_to_take_are_waited_for(
    before: tuple[TaskRecord, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.AWAITED", 60.0)
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.AWAITED_OF_NEW_QUERY", 60.0)
    counts = taken(*before)
    another = threading.Timer(0.05, lambda: counts.take([of_batch(2, 1).plain()]))
    another.start()
    assert counts.awaited_of_batch("q", 1) == {"f": LookupMetrics(keys=2)}
    another.join()


def test_a_query_without_lookups_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.AWAITED", 60.0)
    monkeypatch.setattr("lookup_hints.driver.metrics_collector.AWAITED_OF_NEW_QUERY", 0.0)
    assert taken(of_batch(1, 0)).awaited_of_batch("another", 0) == {}


class StartOfStream:
    """A response of a Connect server that says that a streaming query has started."""

    observed_metrics: Sequence[object] = ()

    def HasField(self, name: str) -> bool:  # noqa: N802 (the name of protobuf)
        return name == "write_stream_operation_start_result"


def test_counts_are_fetched_after_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def ask_for_streams(*_: object) -> Iterator[object]:
        asked.set()
        return iter(())

    monkeypatch.setattr(metrics_collector, "_EVERY", 0.001)
    monkeypatch.setattr("lookup_hints.pyspark_internals.ask_for_streams", ask_for_streams)
    client = SimpleNamespace(_verify_response_integrity=lambda _: None, is_closed=False)
    receive_over_connect(SimpleNamespace(client=client), lambda _: None)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        client._verify_response_integrity(StartOfStream())
    client._verify_response_integrity(StartOfStream())
    assert asked.wait(20)
