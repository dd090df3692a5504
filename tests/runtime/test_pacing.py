"""How large requests become."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa

from lookup_hints.errors import AnswerTooLarge
from lookup_hints.runtime.batching import LARGEST_ROWS
from lookup_hints.runtime.flow import Ask, Idle
from lookup_hints.runtime.pacing import (
    ANSWER_BYTES,
    FEWEST_KEYS,
    FIRST_KEYS,
    REQUEST_BYTES,
    WINDOW_BYTES,
    RequestSize,
)
from tests.runtime.support import Asked, asks, flow, handed_back, ids, keys, names_of

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
    lookup = flow(asynchronous=True, capacity=1, batch_size=10_000)
    lookup.add(keys(*range(10_000)))
    sizes, now = [], 0.0
    while isinstance(ask := lookup.next(now), Ask):
        sizes.append(len(ids(ask)))
        now += QUICK
        lookup.answered(ask, names_of()(ask.request), now)
    assert sizes == [1024, 2048, 4096, 2832]


def test_a_source_with_few_connections_gets_no_more_requests_than_it_works_on() -> None:
    class Few(Asked):
        def requests_at_once(self) -> int:
            return 2

    lookup = flow(connector=Few(names_of()), asynchronous=True, batch_size=1, capacity=100)
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

    lookup = flow(connector=Two(names_of()), asynchronous=True, batch_size=1, capacity=4, ordered=True)
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


def test_a_window_whose_answer_is_too_large_is_cut_before_it_is_asked_again() -> None:
    lookup = flow(batch_size=10_000)
    lookup.add(keys(*range(1000), None, *range(1000)))
    (too_large,) = asks(lookup)
    lookup.failed(too_large, AnswerTooLarge("too large", keys=10), 0.0)
    sizes, found = [], []
    while isinstance(ask := lookup.next(0.0), Ask):
        sizes.append(len(ids(ask)))
        lookup.answered(ask, names_of()(ask.request), 0.0)
        found.append(handed_back(lookup.finished()))
    assert sizes[0] == 10
    assert max(map(len, found)) == 10 * WINDOW_BYTES // ANSWER_BYTES
    expected = [[(key, f"n{key}")] for key in range(1000)]
    assert list(chain.from_iterable(found)) == [*expected, [], *expected]
    assert lookup.metrics.keys == lookup.metrics.hits == 2000


def test_a_window_that_has_begun_is_not_cut() -> None:
    lookup = flow(batch_size=100, asynchronous=True)
    lookup.add(keys(*range(1000)))
    first, second, *_ = asks(lookup)
    lookup.answered(first, names_of()(first.request), 0.0)
    lookup.failed(second, AnswerTooLarge("too large", keys=1), 0.0)
    assert {len(ids(ask)) for ask in asks(lookup)} == {1}
    assert list(lookup.finished()) == []
