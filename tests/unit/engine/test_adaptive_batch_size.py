"""How large requests become."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa

from lookup_hints.engine.adaptive_batch_size import (
    ANSWER_BYTES,
    FEWEST_KEYS,
    FIRST_KEYS,
    LARGEST_ROWS,
    REQUEST_BYTES,
    WINDOW_BYTES,
    RequestSize,
)
from lookup_hints.engine.arrow import ordered_keys
from lookup_hints.engine.backlog import Idle, ScheduledRequest
from lookup_hints.errors import AnswerTooLarge
from tests.unit.engine.support import Asked, asks, handed_back, ids, keys, names_of, scheduler

QUICK, NEITHER, SLOW = 0.01, 0.5, 5.0


def test_requests_double_while_full_ones_are_answered_quickly() -> None:
    size = RequestSize(5000)
    assert size.keys == FIRST_KEYS
    size.answered(FIRST_KEYS, QUICK)
    assert size.keys == 2 * FIRST_KEYS
    size.answered(FIRST_KEYS, QUICK)  # says little about one twice as large
    size.answered(2 * FIRST_KEYS, NEITHER)
    assert size.keys == 2 * FIRST_KEYS
    size.answered(2 * FIRST_KEYS - 3, QUICK)  # equal keys of a window are asked once
    assert size.keys == 4 * FIRST_KEYS
    size.answered(size.keys, QUICK)
    assert size.keys == 5000


def test_requests_to_a_slow_source_shrink_so_that_more_are_in_flight() -> None:
    size = RequestSize(8000)
    size.answered(FIRST_KEYS, SLOW)
    assert size.keys == FIRST_KEYS // 2
    for _ in range(20):
        size.answered(size.keys, SLOW)
    assert size.keys == FEWEST_KEYS


def test_batch_size_is_never_exceeded_and_may_be_below_all_defaults() -> None:
    size = RequestSize(3)
    size.answered(3, QUICK)
    assert size.keys == 3
    size.answered(3, SLOW)
    assert size.keys == 3


def test_long_keys_go_in_smaller_requests() -> None:
    size = RequestSize(8000)
    size.saw(pa.table({"path": ["x" * 10_000] * 50}))
    assert REQUEST_BYTES // 20_000 < size.keys <= REQUEST_BYTES // 10_000
    size.saw(pa.table({"path": ["x" * 10 * REQUEST_BYTES]}))
    assert size.keys == 1
    size.saw(pa.table({"path": ["short"]}))
    assert size.keys == FIRST_KEYS


def test_a_flow_learns_from_its_answers() -> None:
    lookup = scheduler(asynchronous=True, capacity=1, batch_size=10_000)
    lookup.add(keys(*range(10_000)))
    sizes, now = [], 0.0
    while isinstance(ask := lookup.next(now), ScheduledRequest):
        sizes.append(len(ids(ask)))
        now += QUICK
        lookup.answered(ask, names_of()(ask.request), now)
    assert sizes == [1024, 2048, 4096, 2832]


def test_a_source_with_few_connections_gets_no_more_requests_than_it_works_on() -> None:
    class Few(Asked):
        def requests_at_once(self) -> int:
            return 2

    lookup = scheduler(connector=Few(names_of()), asynchronous=True, batch_size=1, capacity=100)
    lookup.add(keys(1, 2, 3))
    first = asks(lookup)
    assert [ids(ask) for ask in first] == [[1], [2]]
    assert lookup.next(0.0) == Idle()
    lookup.answered(first[0], names_of()(first[0].request), 0.0)
    assert [ids(ask) for ask in asks(lookup)] == [[3]]


def test_results_behind_a_slow_head_count_against_capacity_and_not_against_connections() -> None:
    class Two(Asked):
        def requests_at_once(self) -> int:
            return 2

    lookup = scheduler(connector=Two(names_of()), asynchronous=True, batch_size=1, capacity=4, ordered=True)
    lookup.add(keys(*range(9)))
    _head, *others = asks(lookup)
    sent = []
    while others:
        for ask in others:
            lookup.answered(ask, names_of()(ask.request), 0.0)
            sent += ids(ask)
        others = asks(lookup)
    assert sent == [1, 2, 3]


def test_wide_rows_make_requests_and_windows_smaller_at_once_and_narrow_ones_larger_again() -> None:
    size = RequestSize(8000)
    size.found(1000, 1000 * 100)
    assert size.keys == FIRST_KEYS
    assert size.rows is not None
    assert size.rows > LARGEST_ROWS
    size.found(10, 10 * ANSWER_BYTES // 8)
    assert (size.keys, size.rows) == (8, 8 * WINDOW_BYTES // ANSWER_BYTES)
    for _ in range(20):
        size.found(8, 8 * 100)
    assert size.keys == FIRST_KEYS


def test_an_answer_that_is_too_large_says_how_many_keys_fit() -> None:
    size = RequestSize(8000)
    assert size.rows is None
    size.too_large(16)
    assert size.keys == 16
    assert size.rows == 16 * WINDOW_BYTES // ANSWER_BYTES
    size.too_large(40)
    assert size.keys == 16


def test_keys_whose_answer_was_too_large_are_asked_again_in_the_order_of_their_rows() -> None:
    lookup = scheduler(batch_size=10_000)
    ids_of_rows = [*reversed(range(1000)), None, *range(1000)]
    lookup.add(ordered_keys(pa.table({"id": pa.array(ids_of_rows, pa.int64())})))
    (too_large,) = asks(lookup)
    assert ids(too_large) == [*range(1000)]
    lookup.failed(too_large, AnswerTooLarge("too large", keys=10), 0.0)
    asked = []
    while isinstance(ask := lookup.next(0.0), ScheduledRequest):
        asked.append(ids(ask))
        lookup.answered(ask, names_of()(ask.request), 0.0)
    assert len(asked[0]) == 10
    assert [*chain.from_iterable(asked)] == [*reversed(range(1000))]
    expected = [[] if key is None else [(key, f"n{key}")] for key in ids_of_rows]
    assert handed_back(lookup.finished()) == expected
    assert lookup.metrics.keys == lookup.metrics.hits == 1000


def test_a_window_that_has_begun_goes_on_with_smaller_requests() -> None:
    lookup = scheduler(batch_size=100, asynchronous=True)
    lookup.add(keys(*range(1000)))
    first, second, *_ = asks(lookup)
    lookup.answered(first, names_of()(first.request), 0.0)
    lookup.failed(second, AnswerTooLarge("too large", keys=1), 0.0)
    assert [ids(ask) for ask in asks(lookup)] == [[100]]  # those that are in flight may be as large
