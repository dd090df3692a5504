"""A whole table in a folder: what is found of it, how it is replaced, and what befalls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache.store import full_table, hashing
from lookup_hints.cache.store.full_table import Generations
from lookup_hints.cache.store.ranges import TooLarge
from lookup_hints.cache.store.segment_files import StoreLimits
from tests.unit.cache.loader import loaded, names, table_of
from tests.unit.cache.support import KEYS, SCHEMA, Clock

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EVERYTHING = StoreLimits()


def generations(folder: Path, clock: Clock | None = None, limits: StoreLimits = EVERYTHING) -> Generations:
    return Generations(folder / "whole", limits, clock or Clock())


@pytest.fixture
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go to files by a few hundred bytes."""
    monkeypatch.setattr(full_table, "_AT_ONCE", 500)


def test_every_key_is_found_or_known_to_have_no_row(tmp_path: Path) -> None:
    one = generations(tmp_path)
    loaded(one, [(1, "a"), (3, "x"), (3, "y"), (None, "nobody")])
    assert names(one, [1, 2, 3, 4]) == {1: ["a"], 2: [], 3: ["x", "y"], 4: []}
    assert one.held == (3, one.held[1])


def test_an_empty_table_has_no_row(tmp_path: Path) -> None:
    one = generations(tmp_path)
    assert one.opened() is None
    loaded(one, [])
    assert names(one, [1, 2]) == {1: [], 2: []}


@pytest.mark.work(15)
@pytest.mark.usefixtures("many_ranges")
@given(
    ids=st.lists(st.one_of(st.none(), st.integers(-50, 50)), max_size=300),
    asked=st.lists(st.integers(-60, 60), min_size=1, max_size=80, unique=True),
)
def test_a_large_table_is_that_of_its_rows(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int | None], asked: list[int]
) -> None:
    one = generations(tmp_path_factory.mktemp("table"))
    loaded(one, [(each, f"n{at}") for at, each in enumerate(ids)])
    expected = {key: [f"n{at}" for at, each in enumerate(ids) if each == key] for key in asked}
    assert {key: sorted(found) for key, found in names(one, asked).items()} == {
        key: sorted(found) for key, found in expected.items()
    }
    assert not list(tmp_path_factory.getbasetemp().rglob("*.rows"))


@pytest.mark.usefixtures("many_ranges")
def test_texts_and_floats_are_keys_too(tmp_path: Path) -> None:
    texts, floats = ["", "a", "b" * 300], [0.0, 1.5, float("inf")]
    keys: list[tuple[pa.DataType, list[Any]]] = [(pa.string(), texts), (pa.float64(), floats)]
    for number, (kind, values) in enumerate(keys):
        schema = pa.schema([("id", kind), ("name", pa.string())])
        one = generations(tmp_path / str(number))
        loaded(one, [(each, str(each)) for each in values for _ in range(20)], schema)
        assert names(one, values, schema) == {each: [str(each)] * 20 for each in values}
    assert names(one, [-0.0], schema) == {-0.0: ["0.0"] * 20}


def test_of_keys_with_one_hash_neither_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third one that has it, and is not in the table, is not believed either: all are asked."""
    schema = pa.schema([("id", pa.string()), ("name", pa.string())])
    same = hashing.hashes_of(hashing.comparable(pa.table({"id": ["x"]})))
    monkeypatch.setattr(full_table, "hashes_of", lambda keys: np.repeat(same, keys.num_rows))
    one = generations(tmp_path)
    loaded(one, [("a", "1"), ("b", "2")], schema)
    assert names(one, ["a", "b", "c"], schema) == {}
    loaded(one, [("a", "1"), ("a", "2")], schema)
    assert names(one, ["a", "b"], schema) == {"a": ["1", "2"], "b": []}


def test_the_old_generation_answers_until_the_new_one_is_there(tmp_path: Path) -> None:
    one, other = generations(tmp_path), generations(tmp_path)
    loaded(one, [(1, "old")])

    def rows() -> Iterator[pa.RecordBatch]:
        assert names(other, [1, 2]) == {1: ["old"], 2: []}
        yield from table_of([(2, "new")])
        assert names(other, [1, 2]) == {1: ["old"], 2: []}

    with one.loading(wait=True):
        one.load(rows(), KEYS.names)
    assert names(other, [1, 2]) == {1: [], 2: ["new"]}
    assert len(list((tmp_path / "whole").glob("*.generation"))) == 1


def test_only_one_process_loads(tmp_path: Path) -> None:
    one, other = generations(tmp_path), generations(tmp_path)
    with one.loading(wait=True), other.loading(wait=False) as is_alone:
        assert not is_alone
    with other.loading(wait=False) as is_alone:
        assert is_alone


def test_a_load_that_fails_leaves_the_old_generation_and_nothing_else(tmp_path: Path) -> None:
    one = generations(tmp_path)
    loaded(one, [(1, "old")])

    def rows() -> Iterator[pa.RecordBatch]:
        yield from table_of([(1, "new")])
        raise ConnectionError

    with one.loading(wait=True), pytest.raises(ConnectionError):
        one.load(rows(), KEYS.names)
    assert names(one, [1]) == {1: ["old"]}
    assert not list((tmp_path / "whole").glob("*.tmp"))


@pytest.mark.usefixtures("many_ranges")
@pytest.mark.parametrize("limits", [StoreLimits(max_bytes=3000), StoreLimits(max_rows=50)])
def test_a_table_that_does_not_fit_is_not_read_to_its_end(tmp_path: Path, limits: StoreLimits) -> None:
    one, read = generations(tmp_path, limits=limits), []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(1000):
            read.append(number)
            yield from table_of([(number * 10 + each, "x" * 20) for each in range(10)])

    with one.loading(wait=True), pytest.raises(TooLarge):
        one.load(rows(), KEYS.names)
    assert len(read) < 20
    assert one.opened() is None
    assert not list((tmp_path / "whole").glob("*.tmp"))


def test_a_generation_of_the_future_is_not_used(tmp_path: Path) -> None:
    clock = Clock()
    one = generations(tmp_path, clock)
    loaded(one, [(1, "a")])
    clock.now -= 10
    assert generations(tmp_path, clock).opened() is None
    loaded(one, [(1, "b")])
    assert names(one, [1]) == {1: ["b"]}


@pytest.mark.usefixtures("many_ranges")
@pytest.mark.parametrize("harm", ["cut", "flip", "missing"])
def test_a_damaged_generation_is_removed_and_not_used(tmp_path: Path, harm: str) -> None:
    loaded(generations(tmp_path), [(each, "x" * 20) for each in range(200)])
    file = sorted(tmp_path.rglob("*.segment"))[1]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    if harm != "missing":
        file.write_bytes(data if harm == "flip" else data[:1000])
    one = generations(tmp_path)
    assert one.opened() is None
    assert one.damaged == 1
    assert not list((tmp_path / "whole").glob("*.generation"))


def test_a_file_with_the_name_of_a_generation_is_removed(tmp_path: Path) -> None:
    one, strange = generations(tmp_path), tmp_path / "whole" / "00000009.1.2.1.1.generation"
    loaded(one, [(1, "a")])
    strange.write_bytes(b"something else")
    assert names(generations(tmp_path), [1]) == {1: ["a"]}
    assert not strange.exists()
    strange.write_bytes(b"something else")
    loaded(one, [(1, "b")])
    assert names(one, [1]) == {1: ["b"]}
    assert [each.suffix for each in (tmp_path / "whole").iterdir() if each.is_file()] == [""], (
        "its lock alone"
    )


def test_a_note_is_for_all_until_a_load_succeeds(tmp_path: Path) -> None:
    clock = Clock()
    one, other = generations(tmp_path, clock), generations(tmp_path, clock)
    with one.loading(wait=True):
        note = one.note("source", "down")
    assert other.noted() == note
    clock.now -= 1
    assert other.noted() is None
    clock.now += 1
    loaded(one, [])
    assert other.noted() is None


def test_other_users_cannot_read_the_files(tmp_path: Path) -> None:
    one = generations(tmp_path)
    loaded(one, [(1, "a")])
    with one.loading(wait=True):
        one.note("source", "down")
    found = list(tmp_path.rglob("*"))
    assert any(each.is_file() for each in found)
    for each in found:
        assert each.stat().st_mode & 0o077 == 0, each


# --- killed while they load


def ended(folder: Path, *steps: object) -> Sequence[int]:
    """How processes that load ended, each killed before one of its steps."""
    command = [sys.executable, "-m", "tests.unit.cache.loader", str(folder), *map(str, steps)]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return list(map(int, run.stdout.split()))


def test_a_loader_that_is_killed_at_any_step_leaves_the_old_rows_or_the_new_ones(tmp_path: Path) -> None:
    steps = range(1, 40)
    how = ended(tmp_path, *steps)
    killed = how.count(-9)
    assert killed > 20
    assert set(how[killed:]) == {0}, "the others came to their end"
    for step in steps[: killed + 1]:
        folder = tmp_path / str(step)
        one = Generations(folder / "whole", EVERYTHING, Clock())
        found: Any = names(one, [1, 2]) if one.opened() is not None else None
        assert found in (None, {1: ["old"], 2: []}, {1: [], 2: ["new"]})
        with one.loading(wait=False) as is_alone:
            assert is_alone, "the lock is free"
            one.load(table_of([(3, "after")]), ["id"])
        assert names(one, [1, 2, 3]) == {1: [], 2: [], 3: ["after"]}
        left = sorted(each.name for each in (folder / "whole").iterdir() if each.is_dir())
        assert len(left) == 1
        assert not list((folder / "whole").glob("*.tmp"))


def test_rows_have_the_columns_that_are_wanted(tmp_path: Path) -> None:
    one = generations(tmp_path)
    loaded(one, [(1, "a")])
    one.opened()
    ((rows, _),) = one.probe(pa.table({"id": [1]}), ["name", "id"]).found
    assert rows.schema.names == ["name", "id"]
    assert SCHEMA.field("name") == rows.schema.field("name")
