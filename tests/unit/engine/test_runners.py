"""Both runners against one oracle: a dictionary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine.adaptive_batch_size import windows
from lookup_hints.engine.arrow import Keys, Placed, distinct_keys
from lookup_hints.engine.async_runner import AsyncRunner, run_async
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.retry import FixedDelay
from lookup_hints.spi.request_and_answer import Answer, LookupRequest
from tests.unit.engine.support import (
    ON_MISS,
    Asked,
    Clock,
    Row,
    VirtualLoop,
    batches_of,
    handed_back,
    ids,
    keys,
    matches,
    names_of,
    plain,
    rows,
    scheduler,
    slow,
    spec,
)

SCHEMA = pa.schema([("x", pa.float64()), ("s", pa.string()), ("v", pa.int64())])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
TEXTS = st.sampled_from(["", "a", "b", None])
RETRY = FixedDelay(2, 2.0).if_miss()


def normal(key: Row) -> Row:
    """A key as SQL compares it; a dictionary finds no NaN."""
    return tuple("NaN" if isinstance(part, float) and math.isnan(part) else part for part in key)


def answer_from(dimension: list[Row]) -> Callable[[LookupRequest], pa.Table]:
    """A source that answers the rows of the keys asked, by SQL's equality, in the table's order."""

    def answer(request: LookupRequest) -> pa.Table:
        asked = {normal(tuple(key.values())) for key in request.keys.to_pylist()}
        return rows(*(row for row in dimension if normal(row[:2]) in asked), schema=SCHEMA)

    return answer


def run_both(
    lookup: LookupSpec, inputs: Callable[[], Iterator[Keys]], answer: Callable[[LookupRequest], pa.Table]
) -> tuple[list[Settled], list[Settled]]:
    clock = Clock()
    by_sync = run_sync(RequestScheduler(lookup, Random(1)), inputs(), answer, clock=clock, sleep=clock.sleep)
    loop = VirtualLoop()
    dawdling = slow(answer, lambda request: Random(request.keys.num_rows).random())
    runner = AsyncRunner(RequestScheduler(lookup, Random(1)), dawdling)
    both = list(by_sync), list(run_async(runner, inputs(), loop.call))
    loop.close()
    return both


@pytest.mark.work(4)
@given(
    key_rows=st.lists(st.tuples(FLOATS, TEXTS), max_size=60),
    cuts=st.lists(st.integers(0, 20), max_size=5),
    dimension=st.lists(st.tuples(FLOATS, TEXTS, st.integers(0, 9)), max_size=15),
    window=st.integers(1, 30),
    batch_size=st.integers(1, 10),
    capacity=st.integers(1, 4),
    ordered=st.booleans(),
)
def test_both_runners_answer_as_a_dictionary_does(
    key_rows: list[Row],
    cuts: list[int],
    dimension: list[Row],
    window: int,
    batch_size: int,
    capacity: int,
    ordered: bool,
) -> None:
    settings = LookupSettings(
        asynchronous=True, capacity=capacity, batch_size=batch_size, ordered=ordered, retry=RETRY
    )
    lookup = LookupSpec(Asked(answer_from([]), SCHEMA), ("x", "s"), ("v",), settings)
    columns = [
        pa.array([key[index] for key in key_rows], lookup.key_schema.field(index).type) for index in (0, 1)
    ]

    def inputs() -> Iterator[Keys]:
        batches = (
            pa.RecordBatch.from_arrays(list(batch), schema=lookup.key_schema)
            for batch in batches_of(columns, *cuts)
        )
        return map(distinct_keys, windows(batches, iter(lambda: window, None)))

    table: dict[Row, list[Row]] = {}
    for row in dimension:
        table.setdefault(normal(row[:2]), []).append(row[2:])
    expected = [matches(table, normal(key)) for key in key_rows]

    for found in run_both(lookup, inputs, answer_from(dimension)):
        assert plain(lists for one in found for lists in one.results(lookup)) == expected


# --- sync


def run_plain(
    of: RequestScheduler, inputs: Iterator[Keys], answer: Callable[[LookupRequest], Any], clock: Clock
) -> list[list[Row] | None]:
    return handed_back(run_sync(of, inputs, answer, clock=clock, sleep=clock.sleep))


def test_a_sync_retry_sleeps_once_for_all_misses() -> None:
    clock = Clock()
    asked: list[list[int]] = []

    def answer(request: LookupRequest) -> pa.Table:
        asked.append(ids(request))
        return names_of(*range(3))(request) if len(asked) <= 3 else names_of()(request)

    inputs = iter([keys(0, 10), keys(1, 11), keys(2, 12)])
    found = run_plain(scheduler(retry=ON_MISS), inputs, answer, clock)
    assert asked == [[0, 10], [1, 11], [2, 12], [0, 1, 2]]
    assert clock.slept == [10.0]
    assert found == [[(key, f"n{key}")] for key in (0, 10, 1, 11, 2, 12)]


def test_time_spent_waiting_is_counted() -> None:
    clock = Clock()

    def answer(request: LookupRequest) -> pa.Table:
        clock.now += 0.5
        return rows()

    lookup = scheduler(retry=RETRY)
    run_plain(lookup, iter([keys(1)]), answer, clock)
    waited = lookup.metrics.waited.counts
    assert waited["source"] == pytest.approx(3 * 0.5)
    assert waited["retry"] == pytest.approx(2 * 2.0, abs=0.3)


def test_sync_hands_a_window_out_before_it_reads_the_next() -> None:
    read: list[int] = []

    def inputs() -> Iterator[Keys]:
        for index in range(3):
            read.append(index)
            yield keys(index)

    clock = Clock()
    found = run_sync(scheduler(), inputs(), names_of(), clock=clock, sleep=clock.sleep)
    next(found)
    assert read == [0]


def test_time_without_a_permit_does_not_count_against_the_timeout_of_a_sync_request() -> None:
    clock, timeouts = Clock(), list[float | None]()
    limiter = OriginLimiter(in_memory(), Rules(rate=0.25, adapts=False), clock=clock, sleep=clock.sleep)

    def answer(request: LookupRequest) -> pa.Table:
        timeouts.append(request.timeout)
        clock.now += 2.0
        return names_of()(request)

    def call(work: Callable[[], Answer], seconds: float | None, more: Callable[[], float]) -> Answer:
        assert seconds is not None
        late_at, answer = clock() + seconds, work()
        if clock() > late_at and more() < 0:
            raise LookupTimeout(f"has not returned within {seconds:g} s")
        return answer

    lookups = RequestScheduler(spec(timeout=3.0), Random(1), limiter=limiter)
    inputs = iter([keys(1), keys(2), keys(3)])  # a request each 4 s: the second one waits for 2 s
    found = handed_back(run_sync(lookups, inputs, answer, clock=clock, sleep=clock.sleep, call=call))
    assert (timeouts, clock()) == ([3.0, 3.0, 3.0], 10.0)
    assert found == [[(key, f"n{key}")] for key in (1, 2, 3)]


def test_what_a_sync_request_finds_is_as_old_as_its_call() -> None:
    clock, learned = Clock(), list[tuple[list[int], float]]()

    def learn(keys: pa.Table, found: Placed, missing: pa.Array, asked: float) -> None:
        learned.append((keys["id"].to_pylist(), asked))

    def call(work: Callable[[], Answer], *_: object) -> Answer:
        clock.now += 2.0  # the call before it, which has been given up
        return work()

    lookups = RequestScheduler(spec(), Random(1), learn=learn)
    inputs = iter([keys(1), keys(2)])
    handed_back(run_sync(lookups, inputs, names_of(), clock=clock, sleep=clock.sleep, call=call))
    assert learned == [([1], 2.0), ([2], 4.0)]


def test_a_sync_failure_reaches_the_caller() -> None:
    def answer(request: LookupRequest) -> pa.Table:
        raise OSError("reset")

    with pytest.raises(ConnectorError, match="OSError: reset"):
        run_plain(scheduler(), iter([keys(1)]), answer, Clock())


def test_no_input_gives_no_window() -> None:
    assert run_plain(scheduler(), iter([]), names_of(), Clock()) == []
    loop = VirtualLoop()
    runner = AsyncRunner(RequestScheduler(spec(), Random(1)), slow(names_of(), lambda _: 0.0))
    assert list(run_async(runner, iter([]), loop.call)) == []
    loop.close()
