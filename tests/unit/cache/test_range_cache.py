"""Ranges without a key, as Spark's workers look them up: the table is read once, and nobody is asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.cache import full_cache, open_caches
from lookup_hints.cache.full_cache import use_of
from lookup_hints.engine.arrow import Keys, KnownAnswers
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import FullCache, Invalidation, LookupSettings, LookupSpec, PeriodicReload
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi import OrderCondition, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.unit.engine.support import plain

SCHEMA = pa.schema([("lo", pa.int64()), ("hi", pa.int64()), ("name", pa.string())])
FOR_RUN = FullCache(PeriodicReload(inf), max_bytes=2**26)
FULL = FullCache(PeriodicReload(600.0), max_bytes=2**26)
CLOSED = OrderCondition("lo", ">=", "hi", "<=", is_open=False)


class Networks(SyncLookup, Scan):
    """A table that counts how often it is read, and cannot be asked."""

    def __init__(self, *rows: tuple[int | None, int | None, str]) -> None:
        super().__init__(LookupTable("networks", SCHEMA, options={"connector": "networks"}))
        self.rows, self.reads, self.down = list(rows), 0, ""

    def lookup(self, request: LookupRequest) -> pa.Table:
        raise AssertionError("it was asked")

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        columns = [list(column) for column in zip(*self.rows, strict=True)] or [[], [], []]
        yield from pa.table(columns, schema=SCHEMA).select(schema.names).to_batches(max_chunksize=3)
        if self.down:
            raise ConnectorError(self.down)


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker of the run 1."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    in_run(monkeypatch, "1")
    return tmp_path


def in_run(monkeypatch: pytest.MonkeyPatch, run: str | None) -> None:
    monkeypatch.setattr(open_caches, "running_part", lambda: run)


def run(
    connector: Networks,
    *values: int | None,
    whole: FullCache = FOR_RUN,
    order: OrderCondition = CLOSED,
    **changes: Any,
) -> tuple[list[list[str]], LookupMetrics]:
    """The names that a task finds for ``values``, and what it counted."""
    reports: list[LookupMetrics] = []
    settings = LookupSettings(False, whole=whole, **changes)
    spec = LookupSpec(connector, (), ("name",), settings, order=order, order_asked=True)
    batches = iter([(pa.array(values, pa.int64()),)])
    found = plain(look_up(spec, "it", batches, lambda _, counts: reports.append(counts)))
    return [[name for (name,) in rows or ()] for rows in found], reports[0]


ROWS = ((10, 20, "a"), (15, 30, "b"), (None, 40, "no start"), (5, None, "no end"), (30, 20, "reversed"))


def test_the_table_is_read_once_for_all_tasks_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = Networks(*ROWS)
    found, counts = run(networks, 9, 10, 17, None, 30, 17, 31)
    assert found == [[], ["a"], ["a", "b"], [], ["b"], ["a", "b"], []]
    assert (counts.cache_loads, counts.requests, counts.cache_rows) == (1, 0, 2)
    assert (counts.cache_hits, counts.cache_missing, counts.rows_found) == (3, 2, 6)
    process.this_process = Process()
    assert run(networks, 12)[0] == [["a"]]
    assert networks.reads == 1
    in_run(monkeypatch, "2")
    networks.rows.append((40, 41, "new"))
    assert run(networks, 40)[0] == [["new"]]
    assert networks.reads == 2


def test_the_ends_are_those_of_the_condition() -> None:
    half_open = replace(CLOSED, until_operator="<")
    for order, expected in (
        (CLOSED, [["a"], ["a", "b"], ["a", "b"], ["b"]]),
        (half_open, [["a"], ["a", "b"], ["b"], []]),
        (replace(CLOSED, operator=">"), [[], ["a"], ["a", "b"], ["b"]]),
        (replace(half_open, operator=">"), [[], ["a"], ["b"], []]),
    ):
        assert run(Networks(*ROWS), 10, 15, 20, 30, order=order)[0] == expected


def test_what_is_no_part_of_a_run_is_read_for_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    in_run(monkeypatch, None)
    networks = Networks(*ROWS)
    assert [run(networks, 12)[0] for _ in range(2)] == [[["a"]], [["a"]]]
    assert networks.reads == 2


def test_what_earlier_runs_have_left_is_removed(monkeypatch: pytest.MonkeyPatch, executor: Path) -> None:
    networks = Networks(*ROWS)
    for number in ("1", "2", "3"):
        in_run(monkeypatch, number)
        run(networks, 12)
    assert [each.parent.name for each in executor.rglob("in-use")] == ["3"]


def test_a_full_cache_answers_other_runs_until_it_is_invalidated(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = Networks(*ROWS)
    for name in ("1", "2"):
        in_run(monkeypatch, name)
        assert run(networks, 12, whole=FULL)[0] == [["a"]]
    assert networks.reads == 1
    networks.rows[0] = (10, 20, "changed")
    for number, told in enumerate((Invalidation("s", 1), Invalidation("s", 2, ("name",), (("a",),))), 2):
        assert run(networks, 12, whole=FULL, invalidations=(told,))[0] == [["changed"]]
        assert networks.reads == number


def test_a_table_that_cannot_be_read_fails_the_task() -> None:
    networks = Networks(*ROWS)
    networks.down = "it is down"
    for whole in (FOR_RUN, FULL):
        with pytest.raises(
            ConnectorError, match=r"networks could not be read whole, for the ranges.*it is down"
        ):
            run(networks, 12, whole=whole)


@pytest.mark.parametrize("whole", [FOR_RUN, FULL])
def test_a_table_that_cannot_be_kept_fails_each_task(whole: FullCache) -> None:
    networks = Networks(*ROWS)
    for _ in range(2):
        with pytest.raises(ConnectorError, match=r"networks is kept whole .*'lookup.full-cache.max-bytes'"):
            run(networks, 12, whole=replace(whole, max_bytes=10))
    assert networks.reads == 1


def test_without_a_folder_the_task_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    with pytest.raises(ConnectorError, match="Spark has given this worker no folder"):
        run(Networks(*ROWS), 12)


def test_where_many_ranges_hold_a_value_few_values_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_cache, "WINDOW_BYTES", 4000)
    networks = Networks(*((0, 100, "x" * 10) for _ in range(20)))
    asked: list[int] = []
    probe = full_cache.SearchedCache.probe

    def counted(self: full_cache.SearchedCache, keys: Keys, columns: list[str]) -> KnownAnswers:
        asked.append(keys.table.num_rows)
        return probe(self, keys, columns)

    monkeypatch.setattr(full_cache.SearchedCache, "probe", counted)
    found, counts = run(networks, *range(50))
    assert found == [["x" * 10] * 20] * 50
    assert max(asked) < 10
    assert counts.rows_found == 1000


def test_an_empty_table_holds_nothing() -> None:
    assert run(Networks(), 1, None)[0] == [[], []]


def test_runs_that_begin_together_leave_each_other_their_folders(tmp_path: Path) -> None:
    def kept(first: int) -> int:
        """How many folders of runs stayed while they were in use; another task has each of the runs, too."""
        held: list[object] = []
        stayed = 0
        for number in range(first, first + 60):
            path = tmp_path / "runs" / f"run-{number // 2}"
            held = [*held[-3:], use_of(path)]
            (path / f"kept-by-{first}").touch()
            stayed += (path / "in-use").exists()
        return stayed

    with ThreadPoolExecutor(4) as tasks:
        assert [*tasks.map(kept, (0, 1, 30, 31))] == [60] * 4
