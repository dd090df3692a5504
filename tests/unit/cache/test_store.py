"""The store alone, on a made-up clock: what it knows, for how long, and how much it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache.store import answer_store as stores
from lookup_hints.cache.store import hashing, segment_entries
from lookup_hints.cache.store.answer_store import Ages, Store
from lookup_hints.cache.store.segment_entries import Answers
from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.support import AGES, NOW, SCHEMA, Clock, asked, keys, learned, store


@pytest.fixture
def clock() -> Clock:
    return Clock()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "lookup_hints" / "store").glob("*.segment"))


def held_bytes(folder: Path) -> int:
    found = (folder / "lookup_hints" / "store").iterdir()
    return sum(each.stat().st_size for each in found)


def test_what_is_learned_stays_where_the_key_was_asked_again_in_vain(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["Ann"], 2: []}), learned({3: ["Cy"]}, unknown=[1, 2, 4])])
    assert asked(one, [1, 2, 3, 4]) == {1: ["Ann"], 2: [], 3: ["Cy"]}


def test_what_was_learned_is_known(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"], 2: [], 3: ["x", "y", "z"]}, unknown=[4])])
    assert asked(one, [3, 4, 5, 1, 2]) == {1: ["a"], 2: [], 3: ["x", "y", "z"]}


def test_other_processes_know_it_too(tmp_path: Path, clock: Clock) -> None:
    one, other = store(tmp_path, clock), store(tmp_path, clock)
    assert asked(other, [1]) == {}
    one.learn([learned({1: ["a"]})])
    assert asked(other, [1]) == {1: ["a"]}


def test_rows_of_a_key_keep_their_order_wherever_they_stood(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    rows = pa.table([[2, 1, 2, 1], ["a", "b", "c", "d"]], schema=SCHEMA)
    positions, none = pa.array([1, 0, 1, 0], pa.int32()), pa.array([], pa.int32())
    one.learn([Answers(keys([1, 2]), rows, positions, none, NOW)])
    assert asked(one, [1, 2]) == {1: ["b", "d"], 2: ["a", "c"]}


def test_the_newest_answer_counts(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["old"], 2: ["old"], 3: ["old"]})])
    one.learn([learned({1: ["new", "er"], 2: []}), learned({1: ["newest"]})])
    assert asked(one, [1, 2, 3]) == {1: ["newest"], 2: [], 3: ["old"]}


def test_nothing_learned_is_nothing_written(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([])
    one.learn([learned({}, unknown=[1])])
    assert files(tmp_path) == []
    assert asked(one, [1]) == {}


# --- times


def test_rows_and_misses_have_times_of_their_own(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"], 2: []})])
    clock.now += 89
    assert asked(one, [1, 2]) == {1: ["a"], 2: []}
    clock.now += 11
    assert asked(one, [1, 2]) == {1: ["a"]}
    clock.now += 800
    assert asked(one, [1]) == {1: ["a"]}
    clock.now += 100
    assert asked(one, [1]) == {}


def test_keys_expire_one_after_the_other_within_a_tenth(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    ids = list(range(1000))
    one.learn([learned({each: ["a"] for each in ids})])
    left = []
    for age in (899, 925, 950, 975, 1000):
        clock.now = 10_000.0 + age
        left.append(len(asked(one, ids)))
    assert left[0] == 1000
    assert left[-1] == 0
    assert all(150 < before - after < 350 for before, after in pairwise(left))


def test_an_expired_miss_hides_older_rows(tmp_path: Path, clock: Clock) -> None:
    """The source has said that they are gone."""
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    one.learn([learned({1: []})])
    clock.now += 100
    assert asked(one, [1]) == {}


def test_what_is_not_used_expires_sooner(tmp_path: Path, clock: Clock) -> None:
    one, other = (store(tmp_path, clock, ages=Ages(1000.0, 100.0, unused=50.0)) for _ in range(2))
    one.learn([learned({1: ["a"], 2: ["b"]})])
    for _ in range(5):
        clock.now += 40
        assert asked(other, [1]) == {1: ["a"]}
    assert asked(one, [1, 2]) == {1: ["a"]}


def test_an_answer_of_the_future_is_not_used(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    clock.now -= 1
    assert asked(one, [1]) == {}
    one.learn([learned({1: ["b"]})])
    assert asked(one, [1]) == {1: ["b"]}, "what comes later is newer, whatever the clock says"


def test_segments_without_a_fresh_answer_are_removed(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    clock.now += 1000
    one.learn([learned({2: ["b"]})])
    assert len(files(tmp_path)) == 1
    assert one.evicted["expired"] == 1


@given(
    hashes=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 40)), max_size=60),
    long_run=st.sampled_from([2, 256]),
)
def test_hashes_are_ordered_as_a_stable_sort_does(hashes: list[int], long_run: int) -> None:
    """Small ones differ only in bits that give way to their positions."""
    numbers = np.array(hashes, np.uint64)
    with patch.object(hashing, "_LONG_RUN", long_run):
        order, ordered = hashing.in_order(numbers)
    assert order.tolist() == np.argsort(numbers, kind="stable").tolist()
    assert ordered.tolist() == sorted(hashes)


# --- merging and limits


def test_many_small_segments_become_few(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    expected: dict[Any, list[str]] = {}
    for turn in range(100):
        now = {
            turn + each: [] if (turn + each) % 5 == 0 else [f"{turn}"] * (each % 3 + 1) for each in range(9)
        }
        one.learn([learned(now)])
        expected.update(now)
    assert asked(one, list(range(120))) == expected
    assert len(files(tmp_path)) <= stores.MOST_SEGMENTS


def test_a_merge_drops_what_is_too_old(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    for each in range(stores.MOST_SEGMENTS):
        one.learn([learned({each: []})])
    clock.now += 100
    large = "a" * 1000  # the old segments are cheaper to merge
    one.learn([learned({99: [large]})])
    clock.now += 1
    one.learn([learned({100: [large]})])
    assert one.evicted["expired"] == stores.MERGED_AT_ONCE
    assert asked(one, [*range(20), 99, 100]) == {99: [large], 100: [large]}


def test_a_merge_does_not_bring_back_what_a_miss_has_hidden(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({each: ["a"] for each in range(100, 1000)} | {1: ["gone"]})])
    for each in range(1, stores.MOST_SEGMENTS):
        one.learn([learned({each: []})])
    clock.now += 150
    for each in range(1000, 1000 + 2 * stores.MOST_SEGMENTS):
        one.learn([learned({each: ["a"]})])
        assert asked(one, [1, 100]) == {100: ["a"]}


@pytest.mark.parametrize("limits", [StoreLimits(max_rows=100), StoreLimits(max_bytes=20_000)])
def test_limits_hold_at_any_time_and_the_newest_stay(
    tmp_path: Path, clock: Clock, limits: StoreLimits
) -> None:
    one = store(tmp_path, clock, limits)
    for turn in range(100):
        one.learn([learned({each: ["a"] for each in range(10 * turn, 10 * turn + 10)})])
        assert limits.allow(one.rows, held_bytes(tmp_path))
    assert asked(one, list(range(990, 1000))) == {each: ["a"] for each in range(990, 1000)}
    assert asked(one, list(range(500))) == {}
    assert one.evicted["size"] >= 500


def test_what_was_used_is_carried_on(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock, StoreLimits(max_rows=100))
    hot = [0, 1]
    for turn in range(50):
        one.learn([learned({each: ["a"] for each in range(10 * turn, 10 * turn + 10)})])
        assert asked(one, hot) == {0: ["a"], 1: ["a"]}, turn
        clock.now += 2


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock, StoreLimits(max_rows=5))
    one.learn([learned({1: ["a"]})])
    one.learn([learned({each: ["a"] for each in range(10)})])
    assert asked(one, list(range(10))) == {1: ["a"]}


# --- keys

LATE = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
KINDS: list[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, -1, 0, 1, 127]),
    (pa.int16(), [-1, 0, 1]),
    (pa.int32(), [-(2**31), -1, 0, 1]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.float32(), [0.0, 1.5, -1.5, math.inf, -math.inf]),
    (pa.float64(), [0.0, 1.5, 1.5000000000000002, math.inf]),
    (
        pa.string(),
        ["", "a", "A", "a\0", "\0a", "ä", "seven77", "eight888", "nine99999", "x" * 1000, "x" * 1001],
    ),
    (pa.binary(), [b"", b"\0", b"\0\0", b"abc", b"\xff" * 8, b"\xff" * 16]),
    (pa.date32(), [date(1, 1, 1), date(2026, 1, 1), date(9999, 12, 31)]),
    (pa.timestamp("us", tz="UTC"), [LATE, LATE.replace(microsecond=7)]),
    (pa.timestamp("us"), [LATE.replace(tzinfo=None)]),
    (pa.duration("us"), [1, -1]),
    (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-1.00"), Decimal(10**35), Decimal(10**35 + 1)]),
    (pa.decimal128(5, 0), [Decimal(1), Decimal(-1)]),
]


@pytest.mark.parametrize(
    ("kind", "values"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_each_kind_of_key_finds_its_own_rows(
    tmp_path: Path, clock: Clock, kind: pa.DataType, values: Sequence[Any]
) -> None:
    schema = pa.schema([("id", kind), ("name", pa.string())])
    assert hashing.can_hash(pa.schema([("id", kind)]))
    one = store(tmp_path, clock)
    ids = pa.array(values, kind).to_pylist()
    one.learn([learned({each: [f"{number}"] for number, each in enumerate(ids)}, schema)])
    assert asked(one, ids[::-1], schema) == {each: [f"{number}"] for number, each in enumerate(ids)}
    for number, each in enumerate(ids):
        assert asked(one, [each], schema) == {each: [f"{number}"]}
    assert len(np.unique(hashing.hashes_of(hashing.comparable(keys(ids, schema))))) == len(ids)


def test_zeros_are_one_and_so_are_nans(tmp_path: Path, clock: Clock) -> None:
    schema = pa.schema([("id", pa.float64()), ("name", pa.string())])
    one = store(tmp_path, clock)
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    one.learn([learned({-0.0: ["zero"], math.nan: ["nan"]}, schema)])
    assert asked(one, [0.0], schema) == {0.0: ["zero"]}
    assert list(asked(one, [other_nan], schema).values()) == [["nan"]]


def test_keys_of_several_columns(tmp_path: Path, clock: Clock) -> None:
    both = pa.table({"a": [1, 1, 2, 2], "b": ["1", "2", "1", "2"]})
    one = store(tmp_path, clock)
    none = pa.array([], pa.int32())
    rows = pa.table({"n": [10, 20, 30]})
    one.learn([Answers(both, rows, pa.array([0, 1, 2], pa.int32()), none, NOW)])
    known = one.probe(both.take([3, 2, 1, 0]), ["n"])
    ((rows, positions),) = known.found
    assert dict(zip(positions.to_pylist(), rows.column("n").to_pylist(), strict=True)) == {
        1: 30,
        2: 20,
        3: 10,
    }


def test_slices_of_keys_are_those_keys(tmp_path: Path, clock: Clock) -> None:
    whole = pa.table({"a": ["x", "yy", "zzz", "", "w"], "b": pa.array([1, 2, 3, 4, 5], pa.decimal128(9, 0))})
    part = whole.slice(1, 3)
    copied = pa.Table.from_pylist(part.to_pylist(), schema=part.schema)
    hashes = [hashing.hashes_of(hashing.comparable(each)) for each in (part, copied)]
    assert hashes[0].tolist() == hashes[1].tolist()


@given(st.lists(st.text(max_size=20), min_size=1))
def test_a_text_has_one_hash_whatever_texts_are_beside_it(texts: list[str]) -> None:
    schema = pa.schema([("id", pa.string())])
    together = hashing.hashes_of(hashing.comparable(keys(texts, schema)))
    alone = [hashing.hashes_of(hashing.comparable(keys([each], schema))).item() for each in texts]
    assert together.tolist() == alone


NAMED = pa.schema([("id", pa.string()), ("name", pa.string())])


def in_other_case(answers: dict[Any, list[str]]) -> Answers:
    """What a source tells that compares texts in any case."""
    as_asked = learned(answers, NAMED)
    ids = pc.utf8_upper(as_asked.rows.column("id"))
    return replace(as_asked, rows=as_asked.rows.set_column(0, "id", ids))


def test_keys_that_rows_hold_are_not_kept_twice() -> None:
    found, missed = learned({"a": ["1"], "b": ["2"]}, NAMED), learned({"c": []}, NAMED)
    contents = [segment_entries.content_of([each]) for each in (found, missed, in_other_case({"d": ["4"]}))]
    assert [each.keyed_by for each in contents] == [("id",), (), ()]
    assert [each.keys is None for each in contents] == [True, False, False]
    for first, second in ((0, 0), (0, 1), (1, 0), (0, 2), (2, 0)):
        both = segment_entries.merged([contents[first], contents[second]])
        assert both.keyed_by == (("id",) if first == second else ())
        assert hashing.hashes_of(both.keys_of(np.arange(len(both)))).tolist() == both.hashes.tolist()


def test_a_key_finds_the_rows_that_were_found_for_it_be_it_written_otherwise_there(
    tmp_path: Path, clock: Clock
) -> None:
    one = store(tmp_path, clock)
    answers: dict[Any, list[str]] = {}
    for turn in range(40):
        new: dict[Any, list[str]] = {f"key{turn}{part}": [f"{turn}"] for part in "abc"}
        if turn % 3 == 2:
            new[f"key{turn}z"] = []
        one.learn([in_other_case(new) if turn % 3 == 1 else learned(new, NAMED)])
        answers |= new
    assert asked(one, [*answers, "KEY1A"], NAMED) == answers
    assert len(files(tmp_path)) < 40


def test_keys_of_equal_hashes_never_find_each_others_rows(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(keys: pa.RecordBatch) -> hashing.Hashes:
        found: hashing.Hashes = hashing.hashes_of(keys) % np.uint64(3)
        return found

    monkeypatch.setattr(segment_entries, "hashes_of", few)
    monkeypatch.setattr(stores, "hashes_of", few)
    schema = pa.schema([("id", pa.string()), ("name", pa.string())])
    one = store(tmp_path, clock)
    answers = {f"{number}": [f"n{number}"] for number in range(50)}
    for start in (0, 25):
        one.learn([learned(dict(list(answers.items())[start : start + 25]), schema)])
    known = asked(one, list(answers), schema)
    assert known
    assert known.items() <= answers.items()


def test_types_without_a_hash_are_known() -> None:
    assert not hashing.can_hash(pa.schema([("id", pa.list_(pa.int64()))]))


def test_no_keys_are_no_answer(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    assert asked(one, []) == {}


def test_jitter_takes_a_tenth_at_most() -> None:
    ages = AGES
    many = segment_entries.content_of([learned({each: ["a"] for each in range(512)}, when=0.0)])
    every = np.arange(len(many))
    assert ages.valid(many, every, 899.0).all()
    assert not ages.valid(many, every, 1000.0).any()


def late_and_stale(of: Store, ids: list[int]) -> tuple[list[int], list[int]]:
    known = of.probe(keys(ids), ["name"])
    refreshing, fallback = (
        [each for _, at in groups for each in at.to_pylist()] for groups in (known.refreshing, known.fallback)
    )
    return sorted(ids[at] for at in refreshing), sorted(ids[at] for at in fallback)


def test_rows_that_are_too_old_are_kept_for_as_long_as_they_may_be_used(tmp_path: Path) -> None:
    clock = Clock()
    one = store(tmp_path, clock, ages=Ages(rows=100.0, missing=100.0, refreshing=50.0, fallback=200.0))
    one.learn([learned({1: ["a"], 2: []})])
    assert late_and_stale(one, [1, 2]) == ([], [])
    clock.now += 149
    for number in range(3, 40):  # merged meanwhile
        one.learn([learned({number: ["b"]})])
    assert asked(one, [1, 2]) == {}
    assert late_and_stale(one, [1, 2, 3]) == ([1], [])
    clock.now += 1
    assert late_and_stale(one, [1, 2]) == ([], [1])
    clock.now += 149
    assert late_and_stale(one, [1, 2]) == ([], [1])
    clock.now += 1
    assert late_and_stale(one, [1, 2]) == ([], [])
    one.learn([learned({1: ["new"]})])
    assert late_and_stale(one, [1]) == ([], [])
    assert asked(one, [1]) == {1: ["new"]}
