"""What the source says has changed is not used any more: asked once in an interval, for all processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_hints.cache.store import invalidations as checking
from lookup_hints.cache.store.invalidations import Checks, Invalidations, ReadChanges, Unanswered
from tests.unit.cache.support import AGES, KEYS, Clock, Learning, asked, keys, learned, store

INTERVAL = 10.0
SECOND = 1.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def checks(folder: Path, clock: Clock, step: float | None = SECOND, schema: pa.Schema = KEYS) -> Checks:
    """The checks of the table whose stores are there, as a new process sees them."""
    path = folder / "lookup_hints"
    return Checks(path, Invalidations(path, schema), INTERVAL, step, AGES.longest, clock)


@dataclass
class Table:
    """A table whose rows have a value that grows, and what it was asked."""

    rows: dict[int, int] = field(default_factory=dict)
    asked: list[int | None] = field(default_factory=list)

    def ask(self, since: int | None) -> tuple[int | None, pa.Table | None]:
        self.asked.append(since)
        latest = max(self.rows.values(), default=None)
        if since is None:
            return latest, None
        return latest, keys([key for key, value in self.rows.items() if value > since])


def fails(since: int | None) -> tuple[int | None, pa.Table | None]:
    raise Unanswered("down")


def learn(one: Learning, *ids: int) -> None:
    one.learn([learned({each: [f"n{each}"] for each in ids})])


@pytest.mark.parametrize("step", [SECOND, 1e-6, None])
def test_only_what_has_changed_is_invalidated(tmp_path: Path, clock: Clock, step: float | None) -> None:
    unit = 1 if step is None else int(1 / step)
    one, table, check = (
        store(tmp_path, clock),
        Table({1: 5 * unit, 2: 50 * unit, 3: 990 * unit}),
        checks(tmp_path, clock, step),
    )
    for _ in range(4):
        assert not check.failure(table.ask)
        clock.now += INTERVAL
    learn(one, 1, 2, 3)
    clock.now += 1
    table.rows[2] = 1000 * unit
    assert not check.failure(table.ask)
    assert asked(one, [1, 2, 3]) == {1: ["n1"], 3: ["n3"]}


def test_a_table_at_rest_loses_nothing(tmp_path: Path, clock: Clock) -> None:
    """All its rows have one value, as of one load."""
    one, table, check = store(tmp_path, clock), Table(dict.fromkeys(range(9), 1000)), checks(tmp_path, clock)
    for _ in range(5):
        check.failure(table.ask)
        clock.now += INTERVAL
    learn(one, *range(9))
    for _ in range(5):
        clock.now += INTERVAL
        check.failure(table.ask)
        assert len(asked(one, [*range(9)])) == 9
    assert table.asked[0] is None
    assert table.asked[-1] == 1000


def test_it_asks_once_in_an_interval_for_all_processes(tmp_path: Path, clock: Clock) -> None:
    table, processes = Table({1: 1}), [checks(tmp_path, clock) for _ in range(3)]
    for expected in range(1, 4):
        for check in processes * 2:
            assert not check.failure(table.ask)
            clock.now += 1
        assert len(table.asked) == expected
        clock.now += INTERVAL - 6


def test_the_first_check_trusts_nothing_that_is_there(tmp_path: Path, clock: Clock) -> None:
    one, table = store(tmp_path, clock), Table({1: 1})
    learn(one, 1)
    checks(tmp_path, clock).failure(table.ask)
    assert asked(one, [1]) == {}


def test_numbers_say_nothing_before_three_intervals(tmp_path: Path, clock: Clock) -> None:
    """A number may have been taken long before the first one that was seen: of a time one can tell."""
    one, table, check = store(tmp_path, clock), Table({1: 5, 2: 6}), checks(tmp_path, clock, step=None)
    kept = []
    for _ in range(6):
        check.failure(table.ask)
        kept.append(len(asked(one, [1, 2])))
        clock.now += 0.001
        learn(one, 1, 2)
        clock.now += INTERVAL
    assert kept == [0, 0, 0, 2, 2, 2]


def test_what_fell_takes_everything_back(tmp_path: Path, clock: Clock) -> None:
    """The table was loaded anew, with numbers that begin anew."""
    one, table, check = store(tmp_path, clock), Table({1: 5, 2: 600}), checks(tmp_path, clock)
    for rows in ({1: 5, 2: 7}, {}, {3: 1}):
        check.failure(table.ask)
        clock.now += INTERVAL
        learn(one, 1, 2, 3)
        clock.now += INTERVAL
        table.rows = rows
        check.failure(table.ask)
        assert asked(one, [1, 2, 3]) == {}


def test_an_empty_table_loses_nothing_while_it_is_empty(tmp_path: Path, clock: Clock) -> None:
    one, table, check = store(tmp_path, clock), Table(), checks(tmp_path, clock)
    check.failure(table.ask)
    clock.now += 1
    one.learn([learned({1: []})])
    clock.now += INTERVAL
    check.failure(table.ask)
    assert asked(one, [1]) == {1: []}


def test_too_many_keys_take_everything_back(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_CHANGED", 3)
    one, table, check = store(tmp_path, clock), Table(dict.fromkeys(range(9), 0)), checks(tmp_path, clock)
    table.rows[9] = 1000
    check.failure(table.ask)
    clock.now += 1
    learn(one, *range(10))
    for key, left in [(1, 8), (2, 7), (3, 0)]:
        clock.now += 3 * INTERVAL
        table.rows[key] = 1000 + 100 * key
        check.failure(table.ask)
        assert len(asked(one, [*range(10)])) == left, "with key 9 there are 2, 3 and 4"
    clock.now += 1
    learn(one, *range(10))
    clock.now += INTERVAL
    table.rows |= dict.fromkeys(range(4), 2000)
    check.failure(table.ask)
    assert asked(one, [*range(10)]) == {}, "4 at once"


def test_a_check_that_fails_is_known_to_all_and_not_repeated_at_once(tmp_path: Path, clock: Clock) -> None:
    one, other, table = checks(tmp_path, clock), checks(tmp_path, clock), Table({1: 1})
    assert one.failure(fails) == "down"
    assert other.failure(table.ask) == "down"
    assert table.asked == []
    clock.now += INTERVAL
    assert not other.failure(table.ask)
    assert not one.failure(fails), "the other has asked"


def test_what_changed_while_checks_failed_is_invalidated(tmp_path: Path, clock: Clock) -> None:
    one, table, check = store(tmp_path, clock), Table({1: 100, 2: 100}), checks(tmp_path, clock)
    check.failure(table.ask)
    clock.now += 1
    learn(one, 1, 2)
    for _ in range(20):
        clock.now += INTERVAL
        check.failure(fails)
    table.rows[1] = 150
    clock.now += INTERVAL
    check.failure(table.ask)
    assert 1 not in asked(one, [1, 2])


def test_one_kind_of_keys_is_asked_for_by_itself(tmp_path: Path, clock: Clock) -> None:
    by_name = pa.schema([("name", pa.string())])
    one, table = store(tmp_path, clock), Table({1: 100, 2: 100})
    check, other = checks(tmp_path, clock), checks(tmp_path, clock, schema=by_name)
    check.failure(table.ask)
    clock.now += 1
    learn(one, 1, 2)
    other.failure(lambda _: (100, None))
    assert len(table.asked) == 1
    assert len(asked(one, [1, 2])) == 2, "everything is invalidated of the other kind alone"


@pytest.mark.parametrize("harm", [b"", b"{", b"{}", b"[1]", b'{"seen": 1}', b'{"tried": 1, "seen": [1]}'])
def test_a_damaged_file_is_as_none(tmp_path: Path, clock: Clock, harm: bytes) -> None:
    one, table = store(tmp_path, clock), Table({1: 1})
    checks(tmp_path, clock).failure(table.ask)
    clock.now += 1
    learn(one, 1)
    (file,) = tmp_path.rglob("*.checks")
    file.write_bytes(harm)
    assert not checks(tmp_path, clock).failure(table.ask)
    assert table.asked == [None, None]
    assert asked(one, [1]) == {}


def test_a_clock_that_jumps_back_asks_anew(tmp_path: Path, clock: Clock) -> None:
    table, check = Table({1: 1}), checks(tmp_path, clock)
    check.failure(table.ask)
    clock.now -= 1000
    check.failure(table.ask)
    assert table.asked == [None, None]


def test_other_users_cannot_read_the_state_of_checks(tmp_path: Path, clock: Clock) -> None:
    checks(tmp_path, clock).failure(Table({1: 1}).ask)
    found = list((tmp_path / "lookup_hints").rglob("*"))
    assert any(each.is_file() for each in found)
    for each in found:
        assert each.stat().st_mode & 0o077 == 0, each


# --- a table that others write to


class Written:
    """A table that transactions write to: each takes its value when it begins, and is seen within an interval.

    Args:
        grain: the seconds that share one value; None for numbers.
        meanwhile: what happens while it says what has changed.
    """

    def __init__(
        self, clock: Clock, grain: float | None, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        self._clock, self._grain, self._meanwhile = clock, grain, meanwhile
        self._begun = 0
        self._open: list[tuple[float, int, int, int]] = []
        self.rows: dict[int, tuple[int, int]] = {}
        self.replaced: dict[tuple[int, int], float] = {}
        """When each version of a key was seen no more."""
        self.seen = 0.0
        """As of when it said last what has changed."""

    def begin(self, key: int) -> None:
        if any(key == each for _, each, _, _ in self._open):  # its row is locked
            return
        self._begun += 1
        now = self._clock()
        value = self._begun if self._grain is None else int(now // self._grain * self._grain * 1e6)
        self._open.append((now, key, value, self._begun))

    def commit(self, which: int) -> None:
        if self._open:
            _, key, value, version = self._open.pop(which % len(self._open))
            self.replaced[key, self.rows.get(key, (0, 0))[1]] = self._clock()
            self._clock.now += 0.001
            self.rows[key] = value, version

    def wait(self, seconds: float) -> None:
        end = self._clock.now + seconds
        while self._open and (due := min(self._open))[0] + INTERVAL <= end:
            self._clock.now = max(self._clock.now, due[0] + INTERVAL)
            self.commit(self._open.index(due))
        self._clock.now = end

    def version(self, key: int) -> int:
        return self.rows.get(key, (0, 0))[1]

    def ask(self, since: int | None) -> tuple[int | None, pa.Table | None]:
        self._meanwhile()
        self.wait(0.25)
        latest, found = max((value for value, _ in self.rows.values()), default=None), None
        self.seen = self._clock()
        self._meanwhile()
        if since is not None:
            found = keys([key for key, row in self.rows.items() if row[0] > since])
            self.seen = self._clock()
        self._meanwhile()
        self.wait(0.25)
        return latest, found


class Life:
    """What writers of a table and tasks do at random, and that no task uses what is older than the last check."""

    IDS = (0, 1, 2, 3, 4)

    def __init__(self, folder: Path, random: Random, grain: float | None) -> None:
        self._random, clock = random, Clock()
        self._clock, self._table, self._store = (
            clock,
            Written(clock, grain, self._meanwhile),
            store(folder, clock),
        )
        self._checks = checks(folder, clock, None if grain is None else 1e-6)
        self._under_way: list[tuple[int, int, float]] = []

    def step(self) -> None:
        weighted = [
            (self._begin, 3),
            (self._commit, 1),
            (self._wait, 5),
            (self._question, 1),
            (self._answer, 1),
            (self._look, 4),
        ]
        (what,) = self._random.choices([each for each, _ in weighted], [weight for _, weight in weighted])
        what()

    def _meanwhile(self) -> None:
        """While the source says what has changed, others go on."""
        for _ in range(self._random.randrange(4)):
            self._random.choice([self._begin, self._commit, self._question])()

    def _key(self) -> int:
        return self._random.randrange(len(self.IDS))

    def _begin(self) -> None:
        self._table.begin(self._key())

    def _commit(self) -> None:
        self._table.commit(self._random.randrange(4))

    def _wait(self) -> None:
        self._table.wait(self._random.choice([0.1, 0.5, 1, 2, INTERVAL]))

    def _question(self) -> None:
        """It is answered at once, and written later."""
        key = self._key()
        self._under_way.append((key, self._table.version(key), self._clock()))
        self._table.wait(0.01)

    def _answer(self) -> None:
        if self._under_way:
            key, version, when = self._under_way.pop(self._random.randrange(len(self._under_way)))
            self._store.learn([learned({key: [f"v{version}"] if version else []}, when=when)])

    def _look(self) -> None:
        assert not self._checks.failure(self._table.ask)
        known = asked(self._store, self.IDS)
        for key, found in known.items():
            version = int(found[0][1:]) if found else 0
            assert self._table.replaced.get((key, version), self._clock.now) >= self._table.seen, "it is old"
        self._clock.now += 0.001
        unknown = {key: self._table.version(key) for key in set(self.IDS) - known.keys()}
        self._store.learn(
            [learned({key: [f"v{version}"] if version else [] for key, version in unknown.items()})]
        )


@pytest.mark.work(8)
@settings(max_examples=max(1, settings().max_examples // 3))
@given(seed=st.integers(0, 2**32), grain=st.sampled_from([None, 1e-6, 1.0, INTERVAL]))
def test_no_answer_is_older_than_the_last_check(seed: int, grain: float | None) -> None:
    """Whatever is written when, what is used after a check was true at its moment, or later."""
    with TemporaryDirectory() as name:
        life = Life(Path(name), Random(seed), grain)
        for _ in range(250):
            life.step()


def test_a_row_that_changes_while_the_source_is_asked_is_invalidated(tmp_path: Path, clock: Clock) -> None:
    """The question comes after the check has begun, and before the change that the check finds."""
    one, table, check = store(tmp_path, clock), Table({1: 100}), checks(tmp_path, clock)
    check.failure(table.ask)

    def ask(since: int | None) -> tuple[int | None, pa.Table | None]:
        clock.now += 1
        learn(one, 1)
        clock.now += 1
        table.rows[1] = 200
        return table.ask(since)

    clock.now += INTERVAL
    check.failure(ask)
    assert asked(one, [1]) == {}


@pytest.mark.parametrize("grain", [1e-6, 1.0, INTERVAL])
def test_two_changes_with_one_value_are_seen_an_interval_apart(
    tmp_path: Path, clock: Clock, grain: float
) -> None:
    """The second one takes the same value, and commits as late as it may."""
    one, table = store(tmp_path, clock), Written(clock, grain)
    check = checks(tmp_path, clock, 1e-6)
    table.begin(1)
    table.commit(0)
    table.wait(0.9 * grain)
    table.begin(1)
    for _ in range(3):
        check.failure(table.ask)
        clock.now += 0.001
        one.learn([learned({1: [f"v{table.version(1)}"]})])
        table.wait(0.9 * INTERVAL)
        found = asked(one, [1])
        check.failure(table.ask)
        assert asked(one, [1]) in ({}, {1: [f"v{table.version(1)}"]}), found
        table.wait(0.2 * INTERVAL)
    assert table.version(1) == 2


def test_the_test_before_can_fail() -> None:
    """Without looking back, a change that is seen late is missed."""
    clock = Clock()
    table = Written(clock, None)
    ask: ReadChanges = table.ask
    table.begin(1)
    table.begin(2)
    table.commit(1)
    latest, _ = ask(None)
    table.commit(0)
    assert latest is not None
    assert ask(latest)[1] == keys([])
