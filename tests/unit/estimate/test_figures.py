"""The arithmetic of an estimate."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import ceil
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine.adaptive_batch_size import CAREFUL_GROWTH, GROWTH, RequestSize, window_sizes, windows
from lookup_hints.estimate.figures import (
    LARGEST_WINDOW,
    Figure,
    KeysOfSample,
    Money,
    Pace,
    SampledKeys,
    WindowKeys,
    keys_of_windows,
    last_hash_of_share,
    money_of,
    requests_of_windows,
    seconds_of,
    share_of_hashes,
    window_bounds,
)
from lookup_hints.estimate.report import admission_problem, figure_text, money_text


@pytest.mark.parametrize("is_careful", [True, False])
def test_windows_are_those_that_a_task_cuts(is_careful: bool) -> None:
    rows = 500_000
    table = pa.record_batch({"n": pa.array(range(rows))})
    cut = windows(iter([table]), window_sizes(CAREFUL_GROWTH if is_careful else GROWTH))
    begins = [window.column("n")[0].as_py() for window in cut]
    bounds = window_bounds(is_careful=is_careful)
    assert begins[1 : len(bounds) + 1] == bounds
    assert begins[len(bounds) + 1] - bounds[-1] == LARGEST_WINDOW


def _windows(*keys: int) -> list[WindowKeys]:
    return [WindowKeys(each * 2, each * 2, each) for each in keys]


@given(
    keys=st.lists(st.integers(0, 20_000), min_size=1, max_size=9),
    batch_size=st.integers(1, 9000),
    seconds=st.sampled_from([None, 0.001, 9.0]),
    is_stable=st.booleans(),
)
def test_windows_that_are_counted_together_give_a_range_that_holds_that_of_each(
    keys: list[int], batch_size: int, seconds: float | None, is_stable: bool
) -> None:
    apart, asking = _windows(*keys), sum(map(bool, keys))
    together = [WindowKeys(2 * sum(keys), 2 * sum(keys), sum(keys), asking, max(keys))]
    ranges = []
    for each in (apart, together):
        found = keys_of_windows(each, is_approximate=False, is_stable=is_stable)
        requests = requests_of_windows(
            each, found, batch_size=batch_size, seconds=seconds, is_stable=is_stable
        )
        ranges.append((found, requests))
    (found, requests), (wider_found, wider) = ranges
    assert found == wider_found
    assert wider.least <= requests.least
    assert requests.most is not None
    assert wider.most is not None
    assert requests.most <= wider.most


@given(
    keys=st.lists(st.integers(0, 20_000), min_size=1, max_size=5),
    batch_size=st.integers(1, 9000),
    slow=st.lists(st.booleans(), min_size=1, max_size=9),
)
def test_requests_of_any_speed_are_within_the_range(
    keys: list[int], batch_size: int, slow: list[bool]
) -> None:
    """Against the size that the engine itself gives requests, whatever a source takes."""
    size, sent = RequestSize(batch_size), 0
    for left in keys:
        while left:
            asked = min(size.keys, left)
            left, sent = left - asked, sent + 1
            size.answered(asked, 2.0 if slow[sent % len(slow)] else 0.01)
    counted = _windows(*keys)
    exact = keys_of_windows(counted, is_approximate=False, is_stable=True)
    found = requests_of_windows(counted, exact, batch_size=batch_size, seconds=None, is_stable=True)
    assert found.least <= sent <= (found.most or 0)


def test_requests_are_exact_where_their_size_cannot_adapt() -> None:
    counted = _windows(1000, 250)
    keys = keys_of_windows(counted, is_approximate=False, is_stable=True)
    assert requests_of_windows(counted, keys, batch_size=100, seconds=None, is_stable=True) == Figure.exactly(
        13
    )
    assert requests_of_windows(counted, keys, batch_size=1, seconds=None, is_stable=True) == Figure.exactly(
        1250
    )
    assert requests_of_windows(counted, keys, batch_size=600, seconds=0.05, is_stable=True) == Figure.exactly(
        3
    )
    assert not requests_of_windows(counted, keys, batch_size=600, seconds=None, is_stable=True).is_exact


def test_requests_of_other_tasks_may_hold_one_key_each() -> None:
    counted = _windows(100, 60)
    keys = keys_of_windows(counted, is_approximate=False, is_stable=False)
    found = requests_of_windows(counted, keys, batch_size=50, seconds=None, is_stable=False)
    assert found == Figure(2, 320)
    with_cache = requests_of_windows(counted, Figure(0, 160), batch_size=50, seconds=None, is_stable=True)
    assert with_cache == Figure(0, 5)


def test_a_shuffle_leaves_what_holds_for_any_windows() -> None:
    counted = _windows(100, 60)
    found = keys_of_windows(counted, is_approximate=False, is_stable=False)
    assert found == Figure(100, 320, 160)


def test_hyperloglog_leaves_a_range_of_five_per_cent() -> None:
    found = keys_of_windows(_windows(10_000), is_approximate=True, is_stable=True)
    assert found == Figure(9500, 10_500, 10_000)


def test_a_rate_and_a_latency_bound_the_seconds() -> None:
    requests = Figure.exactly(100)
    assert seconds_of(requests, Pace()) is None
    assert seconds_of(requests, Pace(rate=10.0)) == Figure(10.0, None)
    assert seconds_of(requests, Pace(in_flight=20, seconds=0.5)) == Figure(2.5, 50.0)
    assert seconds_of(requests, Pace(rate=10.0, in_flight=20, seconds=0.5)) == Figure(10.0, 50.0)
    assert seconds_of(Figure(5, None), Pace(rate=10.0, seconds=1.0)) == Figure(0.5, None)


def test_money_is_exact_decimal_arithmetic() -> None:
    tenth = Decimal("0.1")
    assert money_of(Figure.exactly(3), Figure(0, None), None, None) is None
    assert money_of(Figure.exactly(3), Figure(0, 7), tenth, None) == Money(Decimal("0.3"), Decimal("0.3"))
    assert money_of(Figure(3, 4), Figure(0, 7), tenth, tenth) == Money(Decimal("0.3"), Decimal("1.1"))
    assert money_of(Figure.exactly(3), Figure(0, None), tenth, tenth) == Money(Decimal("0.3"), None)
    assert money_of(Figure.exactly(3), Figure(0, None), tenth, Decimal(0)) == Money(tenth * 3, tenth * 3)


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_money_grows_with_the_requests(requests: int, more: int) -> None:
    price = Decimal("0.005")
    found = money_of(Figure(requests, requests + more), Figure(0, 0), price, None)
    assert found is not None
    assert found.most is not None
    assert found.most - found.least == price * more


def test_what_is_unknown_says_so() -> None:
    assert figure_text(None) == figure_text(Figure(0, None)) == "UNKNOWN"
    assert figure_text(Figure(7, None)) == "UNKNOWN, at least 7"
    assert figure_text(Figure(7, 9)) == "7 to 9"
    assert money_text(Money(Decimal("1.50"), None)) == "UNKNOWN, at least 1.50"
    assert money_text(Money(Decimal("1.50"), Decimal(2))) == "1.50 to 2"


def test_what_may_stay_below_the_limit_is_admitted() -> None:
    assert admission_problem("t", Figure(0, 10_000), 5) == ""
    assert admission_problem("t", Figure.exactly(5), 5) == ""
    assert "6 requests, and 'lookup.max-requests' is 5" in admission_problem("t", Figure.exactly(6), 5)


def test_sums_of_figures_keep_what_is_not_known() -> None:
    assert Figure.exactly(2) + Figure(1, 5) == Figure(3, 7)
    assert Figure.exactly(2) + Figure(1, None) == Figure(3, None)
    assert ceil((Figure.exactly(2) + Figure.exactly(3)).least) == 5


@pytest.mark.parametrize("seed", range(40))
def test_the_keys_with_some_hashes_bound_those_of_all_windows(seed: int) -> None:
    """Of keys of which few are in many windows, and many in few."""
    random = Random(seed)
    share, skew = random.choice([0.01, 0.1, 0.5]), random.choice([0.3, 1.0, 4.0])
    keys, rows = random.choice([3, 300, 9000]), random.choice([10, 500, 3000])
    hashes = [random.randrange(-(2**63), 2**63) for _ in range(keys)]
    cut = [{int(keys * random.random() ** skew) for _ in range(rows)} for _ in range(random.randint(1, 12))]
    chosen = {key for key in range(keys) if hashes[key] <= last_hash_of_share(share)}
    seen = Counter(key for window in cut for key in window & chosen)
    sample = KeysOfSample(share, len(seen), sum(seen.values()), sum(each**2 for each in seen.values()))
    windows = [WindowKeys(rows, rows, len(window & chosen)) for window in cut]
    asked, distinct = sum(map(len, cut)), len(set().union(*cut))
    found = sample.keys_of_windows(windows, is_stable=True)
    assert found.least <= asked <= (found.most or 0)
    found = sample.keys_of_windows(windows, is_stable=False)
    assert found.least <= distinct
    assert found.most == rows * len(cut)


@pytest.mark.parametrize("behind", [1, 30, 800, 5000])
@pytest.mark.parametrize("asked", [10, 100, 1000, 6000])
def test_a_sample_of_keys_bounds_the_keys_behind_all(behind: int, asked: int) -> None:
    """Of 5,000 keys that lead to others by chance, some to none."""
    random = Random(behind * asked)
    hashes = sorted(random.randrange(-(2**63), 2**63) for _ in range(5000))
    leads = [(each, random.randrange(behind) if random.random() < 0.9 else None) for each in hashes]
    chosen = leads[:asked]
    share = 1.0 if asked > 5000 else share_of_hashes(chosen[-1][0])
    found = SampledKeys(len(chosen), share, frozenset(chosen)).keys_behind
    real = len({each for _, each in leads} - {None})
    assert found.most is not None
    assert found.least <= real <= found.most
    assert found.is_exact == (asked > 5000)
