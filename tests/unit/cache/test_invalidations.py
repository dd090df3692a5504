"""What was invalidated is not used any more, whoever has it and whenever it is written."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache.store.answer_store import Store
from lookup_hints.cache.store.invalidations import Invalidations
from lookup_hints.cache.store.segment_files import Folder
from lookup_hints.lookup_spec import NULL_IS_KEY
from tests.unit.cache.support import AGES, KEYS, SCHEMA, UNLIMITED, Clock, asked, keys, learned, store

LONGEST = 1000.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def invalidate(
    folder: Path, clock: Clock, number: int, *ids: int, who: str = "me", whole: bool = False
) -> None:
    """As another process does."""
    taken = Invalidations(folder / "lookup_hints", KEYS)
    taken.invalidate(who, number, None if whole else keys(ids), clock.now, LONGEST)


def test_answers_from_before_an_invalidation_are_not_used(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"], 2: []})])
    invalidate(tmp_path, clock, 1, whole=True)
    assert asked(one, [1, 2]) == {}
    clock.now += 1
    one.learn([learned({1: ["b"]}), learned({2: ["late"]}, when=clock.now - 2)])
    assert asked(one, [1, 2]) == {1: ["b"]}, "an answer is as old as its question"


def test_only_the_keys_that_were_invalidated_are_asked_again(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"], 2: [], 3: ["c"]})])
    invalidate(tmp_path, clock, 1, 1, 2, 99)
    assert asked(one, [1, 2, 3]) == {3: ["c"]}
    clock.now += 1
    one.learn([learned({1: ["b"]})])
    assert asked(one, [1, 2, 3]) == {1: ["b"], 3: ["c"]}


def test_what_was_written_down_is_not_written_again(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    invalidate(tmp_path, clock, 5, 1)
    clock.now += 1
    one.learn([learned({1: ["b"]})])
    clock.now += 1
    invalidate(tmp_path, clock, 5, 1)
    invalidate(tmp_path, clock, 4, whole=True)
    assert asked(one, [1]) == {1: ["b"]}
    invalidate(tmp_path, clock, 1, 1, who="another")
    assert asked(one, [1]) == {}


def test_each_invalidating_session_has_one_file(tmp_path: Path, clock: Clock) -> None:
    for number in range(1, 20):
        invalidate(tmp_path, clock, number, number)
        clock.now += 100
    (file,) = tmp_path.rglob("*.taken")
    assert file.stat().st_size == 24 + 16 * 10, "what is too old to be used needs no notes"
    invalidate(tmp_path, clock, 20, whole=True)
    (file,) = tmp_path.rglob("*.taken")
    assert file.stat().st_size == 24


def test_a_store_of_other_columns_has_any_row_of_these_keys(tmp_path: Path, clock: Clock) -> None:
    path, schema = tmp_path / "lookup_hints", pa.schema([("zip", pa.string())])
    other = Store(
        path / "other", store(tmp_path, clock)._folder.limits, AGES, clock, Invalidations(path, schema)
    )
    by_zip = pa.schema([("id", pa.string()), SCHEMA.field("name")])
    other.learn([learned({"x": ["a"]}, by_zip, when=clock.now)])
    assert asked(other, ["x"], by_zip) == {"x": ["a"]}
    invalidate(tmp_path, clock, 1, 7)
    assert asked(other, ["x"], by_zip) == {}


def test_a_store_in_which_null_is_a_key_asks_only_the_invalidated_keys_again(
    tmp_path: Path, clock: Clock
) -> None:
    path, marked = tmp_path / "lookup_hints", pa.field("id", pa.int64(), metadata=NULL_IS_KEY)
    schema = pa.schema([marked, SCHEMA.field("name")])
    notes = Invalidations(path, pa.schema([marked]))
    null_safe = Store(path / "null-safe", UNLIMITED, AGES, clock, notes)
    null_safe.learn([learned({1: ["a"], 2: ["b"], None: ["nobody"]}, schema, when=clock.now)])
    invalidate(tmp_path, clock, 1, 1)
    assert asked(null_safe, [1, 2, None], schema) == {2: ["b"], None: ["nobody"]}
    invalidate(tmp_path, clock, 2, whole=True)
    assert asked(null_safe, [1, 2, None], schema) == {}


def test_a_primary_key_that_changes_takes_the_older_keys_back_with_all_others(
    tmp_path: Path, clock: Clock
) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"], 2: ["b"]})])
    invalidate(tmp_path, clock, 1, 1)
    text = pa.table({"id": ["x"]})
    Invalidations(tmp_path / "lookup_hints", KEYS).invalidate("me", 2, text, clock.now, LONGEST)
    assert asked(one, [1, 2]) == {}


@pytest.mark.parametrize("harm", [b"", b"x" * 15, b"x" * 17])
def test_a_damaged_note_takes_everything_back(tmp_path: Path, clock: Clock, harm: bytes) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    invalidate(tmp_path, clock, 1, 2)
    (file,) = tmp_path.rglob("*.taken")
    file.write_bytes(harm)
    assert asked(one, [1]) == {}
    clock.now += 1
    one.learn([learned({1: ["b"]})])
    assert asked(one, [1]) == {1: ["b"]}


def test_who_finds_a_damaged_note_late_drops_no_answer_that_others_have_learned_since(
    tmp_path: Path, clock: Clock
) -> None:
    one, late = store(tmp_path, clock), store(tmp_path, clock)
    invalidate(tmp_path, clock, 1, 2)
    (file,) = tmp_path.rglob("*.taken")
    file.write_bytes(b"damaged")
    one.learn([learned({1: ["a"]})])
    assert asked(one, [1]) == {}
    for _ in range(3):
        clock.now += 1
        one.learn([learned({1: ["b"]})])
        clock.now += 1
        assert asked(late, [1]) == {1: ["b"]}
        late = store(tmp_path, clock)
    clock.now += 1
    invalidate(tmp_path, clock, 2, 2)
    assert asked(late, [1]) == {1: ["b"]}


def test_a_note_that_another_process_replaces_meanwhile_takes_back_its_own_keys_alone(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, names, replaced = store(tmp_path, clock), Folder.names, list[str]()
    invalidate(tmp_path, clock, 1, 2)
    clock.now += 1
    one.learn([learned({1: ["a"], 3: ["c"]})])

    def names_before(folder: Folder) -> list[str]:
        found = [*names(folder)]
        if not replaced and any(each.endswith(".taken") for each in found):
            replaced.extend(found)
            invalidate(tmp_path, clock, 2, 3)
        return found

    monkeypatch.setattr(Folder, "names", names_before)
    clock.now += 1
    assert asked(store(tmp_path, clock), [1, 3]) == {1: ["a"]}
    assert replaced


def test_a_damaged_note_that_cannot_be_replaced_takes_back_what_was_there(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["a"]})])
    invalidate(tmp_path, clock, 1, 2)
    (file,) = tmp_path.rglob("*.taken")
    file.write_bytes(b"damaged")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space is left")

    monkeypatch.setattr(Folder, "put", fail)
    assert asked(one, [1]) == {}
    clock.now += 1
    one.learn([learned({1: ["b"]})])
    assert asked(one, [1]) == {1: ["b"]}


def test_no_changed_bit_of_a_note_brings_stale_rows_back(tmp_path: Path, clock: Clock) -> None:
    one = store(tmp_path, clock)
    one.learn([learned({1: ["stale"]})])
    invalidate(tmp_path, clock, 1, 1)
    (file,) = tmp_path.rglob("*.taken")
    whole = file.read_bytes()
    for at in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        file.write_bytes(damaged)
        assert asked(store(tmp_path, clock), [1]) == {}, at
    file.write_bytes(whole[: -len(whole) // 2])
    assert asked(store(tmp_path, clock), [1]) == {}


def test_other_users_cannot_read_the_invalidations(tmp_path: Path, clock: Clock) -> None:
    invalidate(tmp_path, clock, 1, 1)
    found = list((tmp_path / "lookup_hints").rglob("*"))
    assert any(each.is_file() for each in found)
    for each in found:
        assert each.stat().st_mode & 0o077 == 0, each


STEPS = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 9), st.integers(0, 3)),
    st.tuples(st.just("take"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 300), st.just(0)),
)


@pytest.mark.work(4)
@given(steps=st.lists(STEPS, max_size=30))
def test_ranges_find_the_same_rows_as_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as name:
        folder, clock = Path(name), Clock()
        one, truth = store(folder, clock), dict[int, tuple[str, float]]()
        for number, (what, key, more) in enumerate(steps, 1):
            clock.now += 0.5
            if what == "learn":
                when = clock.now - more
                one.learn([learned({key: [f"v{number}"]}, when=when)])
                truth[key] = f"v{number}", when
            elif what == "take":
                invalidate(folder, clock, number, key, whole=bool(more))
            else:
                clock.now += key
            taken = _moments(steps[:number])
            right = {each: said for each, said in truth.items() if said[1] > taken.get(each, -1.0)}
            found = asked(one, list(range(10)))
            assert all(names == [right[each][0]] for each, names in found.items())
            assert {each for each, said in right.items() if clock.now - said[1] < 0.9 * AGES.rows} <= set(
                found
            )


def _moments(steps: list[tuple[str, int, int]]) -> dict[int, float]:
    """When each key was last invalidated."""
    now, moments = Clock().now, dict[int, float]()
    for what, key, more in steps:
        now += 0.5 + (key if what == "wait" else 0)
        if what == "take":
            moments.update(dict.fromkeys(range(10) if more else [key], now))
    return moments
