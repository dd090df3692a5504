"""Lookups of tables that an executor keeps whole, as Spark's workers run them: when the source is read."""

from __future__ import annotations

import logging
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta, timezone
from itertools import count
from pathlib import Path
from threading import Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache import open_caches
from lookup_hints.cache.full_cache import HeldTable, keys_by_hash
from lookup_hints.cache.open_caches import OpenCaches
from lookup_hints.cache.store.hashing import comparable, hashes_of
from lookup_hints.cache.task_cache import NotKept
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import (
    DailyReload,
    FullCache,
    Invalidation,
    LookupSettings,
    LookupSpec,
    PartialCache,
    PeriodicReload,
)
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.unit.engine.support import plain

FULL = FullCache(PeriodicReload(600.0), max_bytes=2**26)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
FLOATS = pa.schema([("id", pa.float64()), ("name", pa.string())])
Row = tuple[Any, str]


class Readable(SyncLookup, Scan):
    """A table that counts how often it is read, and keeps the ids that it was asked."""

    def __init__(self, rows: Sequence[Row] = (), schema: pa.Schema = SCHEMA, **options: str) -> None:
        super().__init__(LookupTable("people", schema, options={"connector": "readable", **options}))
        self.rows = list(rows)
        self.reads, self.asked = 0, list[Any]()
        self.down: Exception | None = None

    def lookup(self, request: LookupRequest) -> pa.Table:
        self.asked += request.keys.column("id").to_pylist()
        return self._table().select(request.columns)

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        for batch in self._table().select(schema.names).to_batches(max_chunksize=3):
            yield batch
            if self.down is not None:
                raise self.down

    def _table(self) -> pa.Table:
        return pa.table([[key for key, _ in self.rows], [name for _, name in self.rows]], self.table.schema)


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def spec_of(connector: Readable, whole: FullCache | None = FULL, **settings: Any) -> LookupSpec:
    return LookupSpec(connector, ("id",), ("name",), LookupSettings(False, whole=whole, **settings))


def run(connector: Readable, *ids: Any, whole: FullCache | None = FULL, **settings: Any) -> Any:
    """The names that a task finds for ``ids``, and what it counted."""
    reports: list[LookupMetrics] = []
    batches = iter([(pa.array(ids, connector.table.schema.field("id").type),)])
    identity = str(sorted(connector.table.options.items()))
    spec = spec_of(connector, whole, **settings)
    found = plain(look_up(spec, identity, batches, lambda _, counts: reports.append(counts)))
    return [None if rows is None else [name for (name,) in rows] for rows in found], reports[0]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name == "lookup_hints.cache"]


def test_the_table_is_read_once_and_no_key_is_asked(executor: Path) -> None:
    connector = Readable([(1, "a"), (3, "x"), (3, "y"), (None, "nobody")])
    found, counts = run(connector, 1, 2, None, 3)
    assert found == [["a"], [], [], ["x", "y"]]
    assert (counts.cache_hits, counts.cache_missing, counts.cache_misses, counts.requests) == (2, 1, 0, 0)
    assert (counts.cache_loads, counts.cache_load_failures, counts.cache_rows) == (1, 0, 3)
    assert counts.cache_bytes > 0
    _, counts = run(connector, 3)
    assert counts.cache_loads == 0
    process.this_process = Process()
    assert run(connector, 2, 3)[0] == [[], ["x", "y"]]
    assert (connector.reads, connector.asked) == (1, [])


def test_a_retry_of_misses_asks_the_source() -> None:
    connector = Readable([(1, "a")])
    run(connector, 1)
    connector.rows.append((2, "late"))
    assert run(connector, 1, 2)[0] == [["a"], []]
    assert run(connector, 1, 2, retry=FixedDelay(1, 0.001).if_miss())[0] == [["a"], ["late"]]
    assert (connector.reads, connector.asked) == (1, [2])


def test_one_of_two_simultaneous_users_loads_and_the_other_waits(executor: Path) -> None:
    connector = Readable([(each, f"n{each}") for each in range(100)])
    spec, folder = spec_of(connector), executor / "whole"
    ids = pa.table({"id": [1, 1000]})
    tables = [HeldTable(folder, spec) for _ in range(4)]
    threads = [Thread(target=table.probe, args=(ids, ["name"])) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connector.reads == 1
    assert sorted(table.loads.cache_loads for table in tables) == [0, 0, 0, 1]


# --- what was invalidated

WHO = "0" * 32


def test_keys_that_were_invalidated_are_asked_until_the_table_is_read_again() -> None:
    connector = Readable([(1, "a"), (2, "b"), (3, "c")])
    run(connector, 1)
    connector.rows = [(1, "new"), (3, "new")]
    taken = (Invalidation(WHO, 1, ("id",), ((1,), (2,))),)
    for _ in range(2):
        assert run(connector, 1, 2, 3, invalidations=taken)[0] == [["new"], [], ["c"]]
    assert (connector.reads, connector.asked) == (1, [1, 2, 1, 2])


def test_a_table_that_was_invalidated_is_read_again() -> None:
    connector = Readable([(1, "a")])
    run(connector, 1)
    connector.rows = [(1, "new")]
    taken = (Invalidation(WHO, 1),)
    assert run(connector, 1, 2, invalidations=taken)[0] == [["new"], []], "by key, until the table is there"
    (held,) = process.this_process.the(OpenCaches)._held.values()
    held.wait()
    connector.asked.clear()
    assert run(connector, 1, 2, invalidations=taken)[0] == [["new"], []]
    assert (connector.reads, connector.asked) == (2, [])


def test_a_task_that_begins_meanwhile_does_not_hide_what_was_invalidated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connector = Readable([(1, "a")])
    run(connector, 1)
    connector.rows = [(1, "new")]
    taken = (Invalidation(WHO, 1, ("id",), ((1,),)),)
    look = HeldTable._valid_generation

    def look_and_begin_another(held: HeldTable) -> Any:
        found = look(held)
        monkeypatch.setattr(HeldTable, "_valid_generation", look)
        run(connector, invalidations=taken)
        return found

    monkeypatch.setattr(HeldTable, "_valid_generation", look_and_begin_another)
    assert run(connector, 1, invalidations=taken)[0] == [["new"]]


def test_it_stays_invalidated_when_answers_of_others_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 0.0
    monkeypatch.setattr(open_caches, "time", SimpleNamespace(monotonic=lambda: monotonic() + ahead))
    connector = Readable([(1, "a"), (2, "b")])
    whole = FullCache(PeriodicReload(86_400.0), max_bytes=2**26)
    run(connector, 1, whole=whole)
    connector.rows = [(1, "new"), (2, "new")]
    first, second = (Invalidation(WHO, number, ("id",), ((number,),)) for number in (1, 2))
    assert run(connector, 1, 2, whole=whole, invalidations=(first,))[0] == [["new"], ["b"]]
    ahead = 700.0
    partial = PartialCache(600.0, missing_ttl=30.0, max_bytes=2**26)
    run(connector, 2, whole=None, cache=partial, invalidations=(second,))
    assert run(connector, 1, 2, whole=whole, invalidations=(first, second))[0] == [["new"], ["new"]]


# --- when it is read again


class Moving:
    """Clocks that tests move; the one on the wall may jump."""

    def __init__(self) -> None:
        self.now = 10_000.0
        self.jumped = datetime(2026, 3, 1, 12, tzinfo=timezone.utc).timestamp() - self.now

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.jumped


class Held:
    """A table that is kept whole on made-up clocks."""

    def __init__(self, folder: Path, whole: FullCache, clocks: Moving | None = None) -> None:
        self.connector = Readable([(1, "old")])
        self.clocks = clocks or Moving()
        self.table = HeldTable(
            folder / "whole", spec_of(self.connector, whole), self.clocks.clock, self.clocks.wall
        )

    def name(self) -> str:
        known = self.table.probe(pa.table({"id": [1]}), ["name"])
        return str(known.found[0].rows.column("name")[0])

    def after(self, seconds: float) -> str:
        """The name that is found so much later, when a reload that is due then is over."""
        self.clocks.now += seconds
        self.name()
        self.table.wait()
        return self.name()


def test_it_is_read_again_after_the_interval_and_not_before(tmp_path: Path) -> None:
    held = Held(tmp_path, FULL)
    assert held.name() == "old"
    held.connector.rows = [(1, "new")]
    assert held.after(599) == "old"
    assert held.after(1) == "new"
    assert held.table.loads.cache_age == 0
    assert held.after(599) == "new"
    assert held.table.loads.cache_age == 599
    assert held.connector.reads == 2
    held.after(1)
    assert held.connector.reads == 3


@pytest.mark.parametrize(("fixed_rate", "due"), [(False, 150.0), (True, 100.0)])
def test_the_interval_begins_with_the_end_or_with_the_start(
    tmp_path: Path, fixed_rate: bool, due: float
) -> None:
    reload = PeriodicReload(100.0, fixed_rate)
    assert reload.after(1, 0.0, 50.0) == due


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("number", "days", "at", "loaded", "due"),
    [
        (1, 1, "13:00+00:00", "2026-03-01T12:00+00:00", "2026-03-01T13:00+00:00"),
        (1, 1, "11:00+00:00", "2026-03-01T12:00+00:00", "2026-03-02T11:00+00:00"),
        (1, 3, "13:00+00:00", "2026-03-01T12:00+00:00", "2026-03-01T13:00+00:00"),
        (2, 3, "13:00+00:00", "2026-03-01T13:00+00:00", "2026-03-04T13:00+00:00"),
        (1, 1, "01:00+07:00", "2026-03-01T12:00+00:00", "2026-03-01T18:00+00:00"),
    ],
)
def test_a_time_of_day_is_the_next_one_and_then_each_so_many_days(
    number: int, days: int, at: str, loaded: str, due: str
) -> None:
    assert DailyReload(time.fromisoformat(at), days).after(number, _at(loaded), _at(loaded)) == _at(due)


def test_a_time_without_an_offset_is_that_of_the_machine() -> None:
    loaded = datetime(2026, 3, 1, 12)
    due = DailyReload(time(13)).after(1, loaded.timestamp(), loaded.timestamp())
    assert datetime.fromtimestamp(due) == loaded + timedelta(hours=1)


def test_it_is_read_again_at_the_time_of_day(tmp_path: Path) -> None:
    held = Held(tmp_path, replace(FULL, reload=DailyReload(time(13, tzinfo=timezone.utc))))
    held.name()
    held.connector.rows = [(1, "new")]
    assert held.after(3599) == "old"
    assert held.after(1) == "new"
    assert held.after(86_399) == "new"
    assert held.connector.reads == 2
    held.after(1)
    assert held.connector.reads == 3


def test_a_wall_clock_that_jumps_back_causes_no_reload(tmp_path: Path) -> None:
    held = Held(tmp_path, replace(FULL, reload=DailyReload(time(13, tzinfo=timezone.utc))))
    held.name()
    held.clocks.jumped -= 7200
    assert held.after(3600) == "old"
    assert held.connector.reads == 1


def test_a_clock_that_jumps_back_reads_anew(tmp_path: Path) -> None:
    """What is of the future has no age."""
    held = Held(tmp_path, FULL)
    held.name()
    held.connector.rows = [(1, "new")]
    held.clocks.now -= 100
    assert held.name() == "new"


# --- failures


def test_a_reload_that_fails_keeps_the_old_rows_and_tries_again_soon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(tmp_path, FULL)
    held.name()
    held.connector.rows, held.connector.down = [(1, "new")], OSError("source is down")
    assert held.after(600) == "old"
    assert (held.table.loads.cache_load_failures, held.connector.reads) == (1, 2)
    (said,) = warnings(caplog)
    assert "could not be read again" in said
    assert "source is down" in said
    assert held.after(59) == "old"
    assert held.connector.reads == 2
    held.connector.down = None
    assert held.after(1) == "new"
    assert held.connector.reads == 3


def test_a_reload_that_fails_may_fail_the_lookups_of_all_processes(tmp_path: Path) -> None:
    whole = replace(FULL, keeps_old=False)
    held = Held(tmp_path, whole)
    other = Held(tmp_path, whole, held.clocks)
    assert held.name() == "old"
    held.connector.rows, held.connector.down = [(1, "new")], OSError("source is down")
    with pytest.raises(
        ConnectorError, match=r"people could not be read for its FULL cache: .*source is down"
    ):
        held.after(600)
    with pytest.raises(ConnectorError, match="source is down"):
        other.name()
    held.connector.down = None
    held.clocks.now += 60
    with pytest.raises(ConnectorError, match="source is down"):
        held.name()
    held.table.wait()
    assert held.name() == "new"
    assert other.name() == "new"


def test_a_reload_that_cannot_be_kept_is_no_failure_of_the_source(tmp_path: Path) -> None:
    held = Held(tmp_path, replace(FULL, keeps_old=False, max_bytes=100_000))
    assert held.name() == "old"
    held.connector.rows = [(number, "n" * 100) for number in range(10_000)]
    with pytest.raises(NotKept, match=r"^the table takes more than 0\.09\d* MB; .*of a reload that failed"):
        held.after(600)
    held.connector.rows = [(1, "new")]
    with pytest.raises(NotKept):
        held.after(60)
    held.table.wait()
    assert held.name() == "new"


def test_a_first_load_that_fails_fails_the_task_and_says_what_to_try() -> None:
    connector = Readable([(1, "a")], password="hunter2")
    connector.down = OSError("no such table; password=hunter2")
    with pytest.raises(ConnectorError) as failed:
        run(connector, 1)
    text = str(failed.value)
    assert "table people could not be read for its FULL cache" in text
    assert "no such table" in text
    assert "'lookup.cache' = 'PARTIAL' asks it by key" in text
    connector.down = None
    assert run(connector, 1)[0] == [["a"]]


def test_a_table_that_is_too_large_is_asked_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connector = Readable([(each, "x" * 100) for each in range(100)])
    small = replace(FULL, max_bytes=1000)
    for _ in range(3):
        assert run(connector, 1, 200, whole=small)[0] == [["x" * 100], []]
    assert connector.reads == 1
    assert connector.asked == [1, 200] * 3
    (said,) = warnings(caplog)
    assert "Lookup of people runs without its cache" in said
    assert "'lookup.full-cache.max-bytes' gives it more" in said


def test_a_disk_that_is_full_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lookup_hints.cache.store.full_table._create_file", full)
    connector = Readable([(1, "a")])
    for _ in range(2):
        assert run(connector, 1, 2)[0] == [["a"], []]
    assert connector.reads == 1
    (said,) = warnings(caplog)
    assert "No space left on device" in said


def test_without_a_folder_or_numpy_the_source_is_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connector = Readable([(1, "a")])
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    for _ in range(2):
        assert run(connector, 1)[0] == [["a"]]
    assert len(warnings(caplog)) == 1
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/proc")
    for name in [name for name in sys.modules if name.startswith(("lookup_hints.cache.store.", "numpy"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lookup_hints.cache.full_cache")
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(sys.modules, "numpy.typing", None)
    assert run(connector, 1)[0] == [["a"]]
    assert connector.reads == 0
    assert len(warnings(caplog)) == 2


def test_a_folder_that_is_removed_meanwhile_is_made_anew(
    executor: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = Readable([(1, "a")])
    run(connector, 1)
    shutil.rmtree(executor / "lookup_hints")
    assert run(connector, 1)[0] == [["a"]]
    assert (connector.reads, connector.asked, warnings(caplog)) == (2, [], [])


def test_a_folder_that_goes_while_a_task_runs_is_no_error(
    executor: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = Readable([(1, "a")])
    run(connector, 1)
    memory = OpenCaches().task_cache(
        spec_of(connector), str(sorted(connector.table.options.items())), executor / "lookup_hints"
    )
    shutil.rmtree(executor / "lookup_hints")
    assert [memory.keys_of(pa.table({"id": [1]})) for _ in range(2)] == [None, None]
    (said,) = warnings(caplog)
    assert "Lookup of people runs without its cache: FileNotFoundError" in said


def test_a_damaged_generation_is_read_anew(executor: Path) -> None:
    connector = Readable([(each, "x") for each in range(100)])
    run(connector, 1)
    (file,) = executor.rglob("*.segment")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    file.write_bytes(data)
    process.this_process = Process()
    assert run(connector, 1, 200)[0] == [["x"], []]
    assert (connector.reads, connector.asked) == (2, [])


def test_a_file_with_the_name_of_a_generation_keeps_no_table_from_its_cache(executor: Path) -> None:
    connector = Readable([(1, "x")])
    run(connector, 1)
    (generation,) = executor.rglob("*.generation")
    generation.with_name("00000009.1.2.1.1.generation").write_bytes(b"something else")
    process.this_process = Process()
    assert run(connector, 1, 200)[0] == [["x"], []]
    assert (connector.reads, connector.asked) == (1, [])


KILLED = """
import os, sys
from pathlib import Path
import pyarrow as pa
from lookup_hints.cache.full_cache import HeldTable
from tests.unit.cache.test_full_cache import Readable, spec_of

class Killed(Readable):
    def scan(self, schema):
        yield from super().scan(schema)
        os.kill(os.getpid(), 9)

HeldTable(Path(sys.argv[1]), spec_of(Killed([(1, "half")]))).probe(pa.table({"id": [1]}), ["name"])
"""


def test_the_work_of_a_loader_that_is_killed_is_taken_over(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent.parent.parent
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "whole")], cwd=root, check=False)
    assert run.returncode == -9
    held = Held(tmp_path, FULL)
    assert held.name() == "old"
    assert held.connector.reads == 1


# --- the same rows with it and without

NUMBERS = count()
VALUES = st.sampled_from([0.0, -0.0, float("nan"), 1.0, -1.0, 2.5, float("inf"), 1e300, 5e-324, None])


@pytest.mark.work(5)
@given(
    rows=st.lists(st.tuples(VALUES, st.text(max_size=3)), max_size=30),
    tasks=st.lists(st.lists(VALUES, min_size=1, max_size=30), min_size=1, max_size=4),
    max_bytes=st.sampled_from([None, 2_000, 100]),
    at_once=st.sampled_from([8 * 2**20, 50]),
)
def test_it_changes_no_row(
    rows: list[Row], tasks: list[list[float | None]], max_bytes: int | None, at_once: int
) -> None:
    connector = Readable(rows, FLOATS, number=str(next(NUMBERS)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lookup_hints.cache.store.full_table._AT_ONCE", at_once)
        for ids in tasks:
            without = run(connector, *ids, whole=None)[0]
            assert run(connector, *ids, whole=replace(FULL, max_bytes=max_bytes))[0] == without
    assert connector.reads == any(each is not None for ids in tasks for each in ids)


def test_logs_say_nothing_where_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    run(Readable([(1, "a")]), 1)
    assert caplog.records == []


@given(
    st.lists(
        st.tuples(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.none(), st.sampled_from("ab")),
        max_size=30,
    ),
    st.sampled_from([["a"], ["b"], ["a", "b"]]),
)
def test_keys_by_hash_are_the_same_keys_for_each_row(
    values: list[tuple[int | None, str]], columns: list[str]
) -> None:
    table = pa.Table.from_pylist(
        [{"a": one, "b": other} for one, other in values],
        pa.schema([("a", pa.int64()), ("b", pa.string())]),
    )
    rows = table.select(columns)
    found = keys_by_hash(rows)
    assert found.table.schema == rows.schema
    hashes = hashes_of(comparable(found.table)).tolist()
    assert hashes == sorted(set(hashes))
    told = found.table.to_pylist()
    each = [None if code is None else told[code] for code in found.codes.to_pylist()]
    assert each == [None if None in row.values() else row for row in rows.to_pylist()]


def test_keys_by_hash_are_equal_as_sql_has_it() -> None:
    found = keys_by_hash(pa.table({"x": [0.0, math.nan, -0.0, -math.nan]}))
    assert found.table.num_rows == 2
    zero, nan, *again = found.codes.to_pylist()
    assert again == [zero, nan]
