"""Versions in a cache: those that have ended are asked for once, the last one again when it is too old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lookup_hints.cache import open_caches, task_cache
from lookup_hints.cache.store.answer_store import MOST_SEGMENTS, Ages, Past
from lookup_hints.cache.store.segment_entries import Answers, Content, content_of
from lookup_hints.cache.store.segment_files import StoreLimits
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import ChangedColumn, Invalidation, LookupSettings, LookupSpec, PartialCache
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi import Changes, ChangesRequest, OrderCondition, ReportsChanges, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker import arrow_worker
from lookup_hints.worker.arrow_worker import Background, look_up
from tests.kinds import EXAMPLES
from tests.unit.cache.support import Clock, keys, learned, store, told
from tests.unit.engine.support import plain

TTL, HOUR = 600.0, 3600
BEGIN = datetime(2024, 3, 10, 12, tzinfo=timezone.utc)
UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
NEVER = datetime(9999, 12, 31, tzinfo=timezone.utc)
LAST, WITHIN = OrderCondition("since"), OrderCondition("since", until="until")


class Time:
    """The time of tasks and of what they remember. It stands still but for a moment with each look."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        self.passed += 1e-6
        return 50_000.0 + self.passed

    def time(self) -> float:
        return BEGIN.timestamp() + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


TIME = Time()


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> Time:
    for each in (open_caches, task_cache, arrow_worker):
        monkeypatch.setattr(each, "time", TIME)
    TIME.passed = 0.0
    return TIME


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


@dataclass
class Version:
    """A row of a history; tests change it."""

    k: int
    since: Any
    until: Any
    v: str
    n: int = 0


NAMES = count()


class Prices(SyncLookup):
    """Versions of rows; it keeps the keys that it was asked."""

    def __init__(self, kind: pa.DataType = UTC) -> None:
        columns = [("k", pa.int64()), ("since", kind), ("until", kind), ("v", pa.string()), ("n", pa.int64())]
        options = {"connector": "prices", "name": str(next(NAMES)), "lookup.valid-from": "since"}
        super().__init__(LookupTable("prices", pa.schema(columns), ("k", "since"), options))
        self.rows: list[Version] = []
        self.asked: list[int] = []
        self.is_down = False

    def add(self, k: int, *since: Any) -> None:
        """A version from each moment on."""
        self.rows += [Version(k, each, None, f"{k} from {each}") for each in since]

    def lookup(self, request: LookupRequest) -> pa.Table:
        if self.is_down:
            raise ConnectorError("down")
        keys = request.keys.column("k").to_pylist()
        self.asked += keys
        rows = [vars(each) for each in self.rows if each.k in keys]
        return pa.Table.from_pylist(rows, schema=self.table.schema).select(request.columns)


def kept(**how: Any) -> PartialCache:
    return PartialCache(TTL, missing_ttl=TTL / 10, max_bytes=2**26, versions_by="since", **how)


def run(
    prices: Prices,
    *moments: tuple[Any, ...],
    cache: PartialCache | None = None,
    order: OrderCondition = LAST,
    **settings: Any,
) -> tuple[list[list[str]], LookupMetrics]:
    """What a task finds for keys and moments, and what it counted."""
    settings = {"cache": cache or kept(), **settings}
    spec = LookupSpec(prices, ("k",), ("v",), LookupSettings(asynchronous=False, **settings), order=order)
    reports: list[LookupMetrics] = []
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*moments, strict=True), spec.argument_schema, strict=True)
    ]
    identity = prices.table.options["name"]
    found = plain(look_up(spec, identity, iter([columns]), lambda _, counts: reports.append(counts)))
    return [sorted(v for (v,) in rows or ()) for rows in found], reports[0]


def at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


def test_a_replay_asks_once_however_old_the_answers_are(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-30), at(-20), at(-10))
    prices.add(2, at(-20), at(-1))
    old = [(1, at(-25)), (1, at(-15)), (2, at(-19)), (1, at(-40)), (2, None)]
    first = run(prices, *old)[0]
    assert first == [[f"1 from {at(-30)}"], [f"1 from {at(-20)}"], [f"2 from {at(-20)}"], [], []]
    prices.add(1, at(0))
    for _ in range(3):
        later.passed += 1000 * TTL
        process.this_process = Process()
        found, counts = run(prices, *old)
        assert (found, counts.cache_hits, counts.cache_misses) == (first, 2, 0)
    assert sorted(prices.asked) == [1, 2]


def test_the_last_version_is_asked_for_again_when_it_is_too_old(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    prices.add(2, at(-2), at(-1))
    moments = [(1, at(-0.5)), (2, at(-1.5))]
    run(prices, *moments)
    prices.add(1, at(-0.75))
    assert run(prices, *moments)[0] == [[f"1 from {at(-1)}"], [f"2 from {at(-2)}"]]
    later.passed += TTL
    assert run(prices, *moments)[0] == [[f"1 from {at(-0.75)}"], [f"2 from {at(-2)}"]]
    assert prices.asked == [1, 2, 1]
    assert run(prices, (1, at(-1)), (1, at(-0.75)))[0] == [[f"1 from {at(-1)}"], [f"1 from {at(-0.75)}"]]
    assert prices.asked == [1, 2, 1]


def test_a_key_is_asked_for_again_for_the_latest_of_its_moments(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    run(prices, (1, at(-1)))
    later.passed += TTL
    prices.add(1, at(0))
    assert run(prices, (1, at(0)), (1, at(-2)))[0] == [[f"1 from {at(0)}"], [f"1 from {at(-2)}"]]
    assert prices.asked == [1, 1]


def test_a_correction_changes_no_answer_for_a_moment_before_it_was_known(later: Time) -> None:
    """The column `until` says here from when a row is known."""
    prices = Prices()
    prices.rows += [Version(1, at(-30), at(-30), "first"), Version(1, at(-30), at(-10), "corrected")]
    how: dict[str, Any] = {
        "cache": replace(kept(), versions_by="until"),
        "order": OrderCondition("since", known_from="until"),
    }
    old = [(1, at(-20)), (1, at(-31)), (1, at(-30))]
    first = [["first"], [], ["first"]]
    assert run(prices, *old, **how)[0] == first
    prices.rows.append(Version(1, at(-25), at(0), "late"))
    for _ in range(3):
        later.passed += 1000 * TTL
        process.this_process = Process()
        assert run(prices, *old, **how)[0] == first
    # It is the moment by which rows are known that counts, not that when they are valid.
    apart = {**how, "order": OrderCondition("since", known_from="until", known_apart=True)}
    assert run(prices, (1, at(1000), at(-20)), (1, at(-31), at(-20)), **apart)[0] == [["first"], []]
    assert prices.asked == [1]
    table = prices.table
    options = {**table.options, "lookup.known-from": "until"}
    prices.table = replace(table, primary_key=("k", "since", "until"), options=options)
    gone = (Invalidation("session", 1, ("k", "since", "until"), ((1, at(-30), at(-30)),)),)
    prices.rows[0].v = "repaired"
    assert run(prices, *old, invalidations=gone, **how)[0] == [["repaired"], [], ["repaired"]]
    prices.asked.remove(1)
    # What was known when the source was asked says nothing of later moments.
    later.passed += TTL
    assert run(prices, (1, at(-5)), (1, at(0)), **how)[0] == [["corrected"], ["late"]]
    assert prices.asked == [1, 1]


def test_what_is_planned_may_change_until_it_begins(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-1), at(2))
    assert run(prices, (1, at(1)))[0] == [[f"1 from {at(-1)}"]]
    prices.rows[1].since = at(0.5)
    later.passed += TTL
    assert run(prices, (1, at(1)))[0] == [[f"1 from {at(2)}"]]
    later.passed += 3 * HOUR
    run(prices, (1, at(1)))
    later.passed += 3 * HOUR
    run(prices, (1, at(0)))
    assert prices.asked == [1, 1, 1]


@pytest.mark.parametrize("never", [None, NEVER])
def test_a_row_with_an_end_has_ended_when_that_has_come(later: Time, never: datetime | None) -> None:
    prices = Prices()
    prices.rows = [
        Version(1, at(-9), at(-6), "a"),
        Version(1, at(-5), at(-2), "b"),
        Version(1, at(-3), never, "c"),
    ]
    past = [(1, at(-10)), (1, at(-9)), (1, at(-6)), (1, at(-5)), (1, at(-3.5))]
    expected = [[], ["a"], [], ["b"], ["b"]]
    assert run(prices, *past, order=WITHIN)[0] == expected
    later.passed += 9 * TTL
    assert run(prices, *past, order=WITHIN)[0] == expected
    assert prices.asked == [1]
    prices.rows[-1].until = at(-1)
    assert run(prices, (1, at(-2.5)), order=WITHIN)[0] == [["b", "c"]]
    assert prices.asked == [1, 1], "c had not ended"
    later.passed += TTL
    assert run(prices, (1, at(-2.5)), (1, at(-1.5)), order=WITHIN)[0] == [["b", "c"], ["c"]]
    assert prices.asked == [1, 1], "it has now"
    run(prices, (1, at(0)), order=WITHIN)
    assert prices.asked == [1, 1, 1]


def test_without_rows_a_key_is_asked_for_as_ever(later: Time) -> None:
    prices = Prices()
    assert run(prices, (1, at(-1)))[0] == [[]]
    prices.add(1, at(-2), at(0))
    later.passed += TTL / 10
    assert run(prices, (1, at(-1)))[0] == [[f"1 from {at(-2)}"]]


def test_other_lookups_of_the_table_use_no_old_rows_and_leave_them_there(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    run(prices, (1, at(-2)))
    later.passed += 10 * TTL
    spec = LookupSpec(prices, ("k",), ("since", "v"), LookupSettings(asynchronous=False, cache=kept()))
    identity = prices.table.options["name"]
    for _ in range(2):
        assert len(plain(look_up(spec, identity, iter([(pa.array([1]),)]), None))[0] or ()) == 2
    assert prices.asked == [1, 1]
    later.passed += 10 * TTL
    run(prices, (1, at(-2)))
    assert prices.asked == [1, 1]


def test_a_table_without_versions_expires(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    for _ in range(2):
        run(prices, (1, at(-2)), cache=replace(kept(), versions_by=None))
        run(prices, (1, at(-2)), cache=replace(kept(), versions_by="until"))
        later.passed += TTL
    assert prices.asked == [1, 1]


@pytest.mark.parametrize("columns", [(), ("k", "since")])
def test_what_was_invalidated_is_asked_for_again_however_long_ago_that_was(
    later: Time, columns: tuple[str, ...]
) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    prices.add(2, at(-2), at(-1))
    run(prices, (1, at(-2)), (2, at(-2)))
    prices.rows[0].v = "corrected"
    gone = (Invalidation("session", 1, columns, ((1, at(-2)),) if columns else ()),)
    run(prices, (3, at(0)), invalidations=gone)
    prices.asked.clear()
    for _ in range(2):
        later.passed += 10 * TTL
        assert run(prices, (1, at(-2)), (2, at(-2)))[0] == [["corrected"], [f"2 from {at(-2)}"]]
    assert prices.asked == ([1] if columns else [1, 2])


class Changing(Prices, ReportsChanges):
    """Tells by ``n`` which rows were written after others."""

    def changes(self, request: ChangesRequest) -> Changes:
        written = [(each.n, each.k) for each in self.rows]
        latest = pa.scalar(max(written)[0], pa.int64())
        if request.since is None:
            return Changes(latest)
        keys = [k for n, k in written if n > request.since.as_py()]
        return Changes(latest, pa.table({"k": pa.array(keys, pa.int64())}))


def test_a_version_that_comes_late_is_seen_where_the_source_tells_what_has_changed(later: Time) -> None:
    prices = Changing()
    changed = ChangedColumn(prices.table.schema.field("n"), 60.0)
    prices.add(1, at(-3), at(-1))
    prices.add(2, at(-3), at(-1))
    old = [(1, at(-2)), (2, at(-2))]
    for _ in range(4):
        later.passed += 60
        run(prices, *old, cache=kept(changed=changed))
    prices.asked.clear()
    prices.rows.append(Version(1, at(-2.5), None, "late", n=1))
    for _ in range(3):
        later.passed += 10 * TTL
        assert run(prices, *old, cache=kept(changed=changed))[0] == [["late"], [f"2 from {at(-3)}"]]
    assert set(prices.asked) == {1}


def test_where_asking_fails_the_past_is_known(later: Time) -> None:
    prices = Prices()
    prices.add(1, at(-2), at(-1))
    run(prices, (1, at(-2)))
    later.passed += 10 * TTL
    prices.is_down = True
    assert run(prices, (1, at(-2)))[0] == [[f"1 from {at(-2)}"]]
    with pytest.raises(ConnectorError, match="down"):
        run(prices, (1, at(-1)))


def test_the_past_is_not_fetched_again_beside_the_lookup(later: Time) -> None:
    prices, cache = Prices(), kept(stale_while_revalidate=1000 * TTL)
    prices.add(1, at(-2), at(-1))
    run(prices, (1, at(-2)), cache=cache)
    later.passed += TTL
    _, counts = run(prices, (1, at(-2)), cache=cache)
    process.this_process.the(Background).wait()
    assert (counts.cache_stale, counts.cache_hits, prices.asked) == (0, 1, [1])
    _, counts = run(prices, (1, at(-1)), cache=cache)
    process.this_process.the(Background).wait()
    assert (counts.cache_stale, counts.requests) == (1, 0)


# --- the store


def test_versions_stay_until_the_limits_are_reached(tmp_path: Path) -> None:
    now, turns = Clock(), 3 * MOST_SEGMENTS
    limits, ages = StoreLimits(max_rows=4 * turns), Ages(rows=TTL, missing=TTL, keeps_versions=True)
    one = store(tmp_path, now, limits, ages)

    def known(keys_: range) -> dict[Any, list[str]]:
        moments = pa.array(["1"] * len(keys_))
        past = Past("name", None, pa.array(keys_), moments, len(keys_), 0.0)
        return told(one.probe(keys(keys_), ["name"], past), keys_)

    for number in range(turns):
        one.learn([learned({number: ["1", "2"], -1 - number: []})])
        now.now += TTL
    assert known(range(turns)) == {number: ["1", "2"] for number in range(turns)}
    assert 0 < one.evicted["expired"] < turns, "misses go"
    for number in range(turns, 3 * turns):
        one.learn([learned({number: ["1", "2"]})])
        assert one.rows <= 4 * turns
    assert len(known(range(3 * turns))) < 3 * turns


VALUES: list[tuple[pa.DataType, Sequence[Any]]] = [
    (UTC, [at(-9), at(-5), at(-1)]),
    (LOCAL, [at(-49).replace(tzinfo=None), at(-25).replace(tzinfo=None), at(-13).replace(tzinfo=None)]),
    (pa.date32(), [date(1, 1, 1), date(2024, 3, 9), date(2024, 3, 10)]),
    (pa.int32(), [-1, 0, 7]),
    (pa.float64(), [-1.5, 0.0, float("nan")]),
    (pa.decimal128(38, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal(10**30)]),
]


def entry(kind: pa.DataType, *since: Any, when: float = 0.0) -> Content:
    rows = pa.table({"k": [1] * len(since), "since": pa.array(since, kind)})
    none = pa.array([], pa.int32())
    answers = Answers(pa.table({"k": [1]}), rows, pa.array([0] * len(since), pa.int32()), none, when)
    return content_of([answers])


def holds(content: Content, *moments: Any) -> bool:
    kind = content.rows.column("since").type
    codes = pa.array([0] * len(moments), pa.int32())
    past = Past("since", None, codes, pa.array(moments, kind), 1, BEGIN.timestamp())
    first = content.loaded[:1].astype("int64") * 0
    return bool(past.holds(content, first, first)[0])


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_each_kind_of_moment_is_compared(kind: pa.DataType, values: Sequence[Any]) -> None:
    content = entry(kind, values[1], None, values[0])
    assert holds(content, values[0], None, values[0])
    assert not holds(content, values[0], values[1])
    assert not holds(content, values[2], values[0])
    assert not holds(content, None)


def test_a_local_time_has_passed_when_it_has_everywhere() -> None:
    """An hour ago in Greenwich, it is still to come in the west."""
    local = [each.replace(tzinfo=None) for each in (at(-20), at(-11))]
    assert holds(entry(UTC, at(-20), at(-11)), at(-15))
    assert not holds(entry(LOCAL, *local), at(-15).replace(tzinfo=None))
    assert holds(entry(LOCAL, *local, when=HOUR), at(-15).replace(tzinfo=None))
    days = [date(2024, 3, 9), date(2024, 3, 10)]
    assert holds(entry(pa.date32(), *days), days[0])
    assert not holds(entry(pa.date32(), *days, when=-1.0), days[0])


# --- any history


@dataclass(frozen=True)
class Kind:
    """A type of moments, as seconds are written in it."""

    type: pa.DataType
    written: Callable[[float], Any]
    seconds: Callable[[Any], float]
    never: Any
    """What some write for the end of a row that has not ended."""
    delay: float = 0.0
    """So much later it is known that a moment has come."""


def _local(zone: int) -> Kind:
    shift = timedelta(hours=zone)
    return Kind(
        LOCAL,
        lambda seconds: (BEGIN + timedelta(seconds=seconds) + shift).replace(tzinfo=None),
        lambda moment: (moment.replace(tzinfo=timezone.utc) - BEGIN - shift).total_seconds(),
        NEVER.replace(tzinfo=None),
        delay=(12 + zone) * HOUR,
    )


KINDS = [
    Kind(
        UTC,
        lambda seconds: BEGIN + timedelta(seconds=seconds),
        lambda moment: (moment - BEGIN).total_seconds(),
        NEVER,
    ),
    Kind(pa.int64(), int, float, 10**12),
    _local(-12),
    _local(14),
]


@dataclass
class World:
    """A source whose history grows as it happens, and all that it has ever said."""

    kind: Kind
    has_ends: bool
    never: Any

    def __post_init__(self) -> None:
        self.prices = Prices(self.kind.type)
        self.states: list[tuple[float, list[Version]]] = []
        self.known_until: dict[int, float] = {}

    def change(self, now: float, key: int, how: str, ahead: float) -> None:
        """What may happen to versions that have not ended, and to those that are planned.

        Args:
            now: the time.
            key: whose versions.
            how: one begins, the last one ends, is corrected, or another one is planned in place of it.
            ahead: for how long it is planned.
        """
        if how == "plan" and self.kind.type == pa.int64():
            return  # nobody can tell that it has not begun
        self.prices.rows = [
            each for each in self.prices.rows if each.k != key or self.kind.seconds(each.since) <= now
        ]
        current = [each for each in self.prices.rows if each.k == key]
        moment = self.kind.written(now + ahead if how == "plan" else now)
        is_open = bool(current) and self._ends(current[-1]) > now
        if how == "correct" and is_open:
            current[-1].v += "!"
        if how == "correct" or (current and current[-1].since == moment):
            return
        if is_open:
            current[-1].until = moment
        if how != "end" or not self.has_ends:
            self.prices.rows.append(Version(key, moment, self.never, f"{key} at {now}"))

    def note(self, now: float) -> None:
        self.states.append((now, [replace(each) for each in self.prices.rows]))

    def said(self, key: int, moment: float, since: float) -> list[list[str]]:
        """What the source could have answered since then."""
        before = [number for number, (then, _) in enumerate(self.states) if then <= since]
        return [self.answer(rows, key, moment) for _, rows in self.states[max(before, default=0) :]]

    def answer(self, rows: list[Version], key: int, moment: float) -> list[str]:
        begun = [each for each in rows if each.k == key and self.kind.seconds(each.since) <= moment]
        if not self.has_ends:
            return [begun[-1].v] if begun else []
        return [each.v for each in begun if self._ends(each) > moment]

    def _ends(self, row: Version) -> float:
        return float("inf") if row.until in (None, self.never) else self.kind.seconds(row.until)

    def answered(self, key: int, now: float) -> None:
        """The source was asked for ``key``: what it knows of before this moment does not change."""
        rows = [each for each in self.prices.rows if each.k == key]
        begins = [self.kind.seconds(each.since) for each in rows]
        ends = [self._ends(each) for each in rows if self.has_ends]
        is_number = self.kind.type == pa.int64()
        present = max(begins, default=0.0) if is_number else now - self.kind.delay
        is_open = [begin for begin, end in zip(begins, ends, strict=False) if end > present]
        last = max((each for each in (*begins, *ends) if each <= present), default=float("-inf"))
        self.known_until[key] = min([last, *is_open])


HAPPENS = ["begin", "end", "correct", "plan"]
KEYS = [0, 0, 0, 1]
STEPS = 50


@pytest.mark.work(20)
@settings(max_examples=max(8, EXAMPLES // 10), phases=[Phase.generate])
@given(
    chance=st.randoms(use_true_random=False),
    kind=st.sampled_from(KINDS),
    has_ends=st.booleans(),
    never=st.booleans(),
    pace=st.sampled_from([100, 100_000]),
)
def test_rows_are_as_old_as_they_may_be_and_the_past_is_asked_for_once(
    chance: Random, kind: Kind, has_ends: bool, never: bool, pace: int
) -> None:
    """A row may be six steps old, or none."""
    TIME.passed = 0.0
    world, order = World(kind, has_ends, kind.never if never else None), WITHIN if has_ends else LAST
    for _ in range(STEPS):
        TIME.passed = now = float(int(TIME.passed) + pace * chance.randint(1, 3))
        for how in chance.choices(HAPPENS, k=chance.randrange(3)):
            world.change(now, chance.choice(KEYS), how, 8 * pace)
        world.note(now)
        wanted = [(chance.choice(KEYS), now - pace * chance.randint(-1, 9)) for _ in range(2)]
        asked_before = len(world.prices.asked)
        found, _ = run(world.prices, *((key, kind.written(moment)) for key, moment in wanted), order=order)
        for (key, moment), rows in zip(wanted, found, strict=True):
            assert rows in world.said(key, moment, now - TTL)
        latest = {key: max(moment for each, moment in wanted if each == key) for key, _ in wanted}
        for key in world.prices.asked[asked_before:]:
            assert latest[key] >= world.known_until.get(key, float("-inf")), "it was known"
            world.answered(key, now)
