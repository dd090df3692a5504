"""What the source says has changed, as Spark's workers heed it: what they ask again, and what they do not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache import open_caches
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import (
    ChangedColumn,
    FullCache,
    LookupSettings,
    LookupSpec,
    PartialCache,
    PeriodicReload,
)
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi import Changes, ChangesRequest, ReportsChanges, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker import arrow_worker
from lookup_hints.worker.arrow_worker import look_up
from tests.unit.engine.support import plain

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("version", pa.int64())])
TOKEN = "t0ken-of-the-source"
INTERVAL = 100.0
NEVER = 36_000.0
AT_ONCE = 1e-9
"""Each look asks the source, and what it has seen before has settled."""


class Table(SyncLookup, Scan, ReportsChanges):
    """Rows that tests change; it keeps what it was asked."""

    def __init__(self, name: str = "people", key: tuple[str, ...] = ("id",)) -> None:
        options = {"connector": "changing", "token": TOKEN}
        super().__init__(LookupTable(name, SCHEMA, key, options))
        self.rows: dict[int, tuple[str, int]] = {}
        self.asked: list[int] = []
        self.checks = 0
        self.written = 0
        self.is_down = self.tells_nothing = False
        self.answers: Any = None

    def write(self, *ids: int, name: str = "") -> None:
        for each in ids:
            self.written += 1
            self.rows[each] = name or f"n{each}v{self.written}", self.written

    def secrets(self) -> set[str]:
        return {TOKEN}

    def lookup(self, request: LookupRequest) -> pa.Table:
        (key,) = request.key_columns
        keys = request.keys.column(key)
        if key == "id":
            self.asked += keys.to_pylist()
        if self.is_down:
            raise ConnectorError("down")
        rows = self._rows()
        return rows.filter(pc.is_in(rows.column(key), value_set=keys.combine_chunks())).select(
            request.columns
        )

    def scan(self, schema: pa.Schema) -> Any:
        yield from self._rows().select(schema.names).to_batches()

    def changes(self, request: ChangesRequest) -> Changes:
        self.checks += 1
        if self.tells_nothing:
            raise ConnectorError(f"no rights for {TOKEN}")
        if self.answers is not None:
            return self.answers  # type: ignore[no-any-return]  # what a mistaken class answers
        rows = self._rows()
        latest = pc.max(rows.column("version"))
        if request.since is None:
            return Changes(latest)
        changed = rows.filter(pc.greater(rows.column("version"), request.since))
        return Changes(latest, changed.select(request.schema.names) if len(changed) <= request.most else None)

    def _rows(self) -> pa.Table:
        rows = [{"id": each, "name": name, "version": last} for each, (name, last) in list(self.rows.items())]
        return pa.Table.from_pylist(rows, schema=SCHEMA)


class Later:
    """The time of tasks and of what they remember, as short on a busy machine as on another one."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        self.sleep(0.001)  # one moment after the other
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def __call__(self) -> None:
        """Let an interval pass."""
        self.sleep(INTERVAL)


later = Later()


@pytest.fixture(autouse=True)
def _own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (open_caches, arrow_worker):
        monkeypatch.setattr(each, "time", later)


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def cache(interval: float = INTERVAL, **how: Any) -> PartialCache:
    changed = ChangedColumn(SCHEMA.field("version"), interval)
    return PartialCache(NEVER, missing_ttl=NEVER, max_bytes=2**26, changed=changed, **how)


def run(
    table: Table, *ids: Any, key: str = "id", columns: Sequence[str] = ("name",), **settings: Any
) -> tuple[Any, LookupMetrics]:
    """What a task finds for ``ids``, and what it counted."""
    settings = {"cache": cache(), **settings}
    spec = LookupSpec(table, (key,), tuple(columns), LookupSettings(asynchronous=False, **settings))
    reports: list[LookupMetrics] = []
    batches = iter([(pa.array(ids, SCHEMA.field(key).type),)])
    found = plain(look_up(spec, table.table.name, batches, lambda _, counts: reports.append(counts)))
    return [None if rows is None else sorted(value for (value,) in rows) for rows in found], reports[0]


def settled(table: Table, *ids: int, **settings: Any) -> None:
    """Ask for ``ids``, after so long that changes can be told, and that a table has been read again."""
    for _ in range(4):
        later()
        run(table, *ids, **settings)
        for thread in threading.enumerate():
            if thread.name == "lookup-reload":
                thread.join()
    table.asked.clear()
    table.checks = 0


def test_only_what_has_changed_is_asked_again() -> None:
    table = Table()
    table.write(1, 2, 3)
    settled(table, 1, 2, 3, 4)
    table.write(2, 4, name="new")
    later()
    found, counts = run(table, 1, 2, 3, 4)
    assert found == [["n1v1"], ["new"], ["n3v3"], ["new"]]
    assert sorted(table.asked) == [2, 4]
    assert (counts.cache_hits, counts.cache_misses, counts.cache_checks) == (2, 2, 1)


def test_no_check_is_made_within_the_interval() -> None:
    table = Table()
    table.write(1)
    how = cache(NEVER)
    run(table, 1, cache=how)
    table.write(1, name="new")
    for _ in range(3):
        found, counts = run(table, 1, cache=how)
        assert (found, counts.cache_checks) == ([["n1v1"]], 0)
    assert (table.asked, table.checks) == ([1], 1)


def test_a_key_that_a_change_may_replace_loses_all_answers() -> None:
    """A row that moves from one name to another one is told by its new name alone."""
    table = Table()
    table.write(1, name="a")
    table.write(2, name="b")
    how: dict[str, Any] = {"key": "name", "columns": ("id",)}
    settled(table, "a", "b", **how)  # type: ignore[arg-type]
    table.write(1, name="b")
    later()
    assert run(table, "a", "b", **how)[0] == [[], [1, 2]]


def test_without_a_primary_key_each_change_counts() -> None:
    table = Table(key=())
    table.write(1, 2)
    settled(table, 1, 2)
    later()
    run(table, 1, 2)
    assert table.asked == [], "nothing has changed"
    table.write(1)
    later()
    run(table, 1, 2)
    assert sorted(table.asked) == [1, 2]


def test_what_is_not_known_to_be_current_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.write(1)
    settled(table, 1)
    table.tells_nothing = True
    later()
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        for _ in range(3):
            table.write(1)
            assert run(table, 1)[0] == [[f"n1v{table.written}"]]
    assert table.checks == 1, "it is not asked again at once"
    assert [each.getMessage() for each in caplog.records] == [
        "Lookup of people runs without its cache: what has changed is not known: no rights for ***"
    ]
    table.tells_nothing = False
    later()
    table.asked.clear()
    run(table, 1)
    run(table, 1)
    assert len(table.asked) <= 1, "it is used again"


def test_where_both_fail_rows_are_used_if_that_is_wanted() -> None:
    table = Table()
    how: dict[str, Any] = {"cache": cache(stale_if_error=NEVER)}
    table.write(1)
    settled(table, 1, 2, **how)
    table.tells_nothing = True
    table.write(1, name="new")
    later()
    assert run(table, 1, **how)[0] == [["new"]], "it is asked for first"
    table.is_down = True
    found, counts = run(table, 1, **how)
    assert (found, counts.cache_stale) == ([["new"]], 1)
    with pytest.raises(ConnectorError, match="down"):
        run(table, 2, **how)


@pytest.mark.parametrize(
    "answer", [None, Changes(pa.scalar("x")), Changes(pa.scalar(1, pa.int32())), (pa.scalar(1), None)]
)
def test_a_class_that_is_mistaken_is_named(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.write(1)
    table.answers = answer or (1,)
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        assert run(table, 1)[0] == [["n1v1"]]
    assert (
        "connector Table of table people must tell changes by a Changes, with a latest int64" in caplog.text
    )


def test_a_table_that_is_kept_whole_asks_for_what_has_changed() -> None:
    table = Table()
    table.write(1, 2, 3)
    whole = FullCache(PeriodicReload(NEVER), changed=cache().changed)
    how: dict[str, Any] = {"cache": None, "whole": whole}
    settled(table, 1, 2, 3, **how)
    table.write(2, 4, name="new")
    later()
    assert run(table, 1, 2, 3, 4, **how)[0] == [["n1v1"], ["new"], ["n3v3"], ["new"]]
    assert sorted(table.asked) == [2, 4]
    table.tells_nothing = True
    later()
    table.asked.clear()
    run(table, 1, 3, **how)
    assert sorted(table.asked) == [1, 3], "who cannot tell whether it has changed does not use it"


def test_an_executor_without_a_folder_asks_everything(executor: Path) -> None:
    table = Table()
    table.write(1)
    executor.chmod(0o700)
    (executor / "lookup_hints").write_text("in the way")
    assert run(table, 1)[0] == [["n1v1"]]
    assert table.checks == 0


WRITES = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6)


@pytest.mark.work(9)
@given(writes=WRITES, asks=st.integers(1, 4), is_whole=st.booleans(), key=st.sampled_from([("id",), ()]))
def test_a_cache_that_is_checked_changes_no_row(
    writes: list[list[int]], asks: int, is_whole: bool, key: tuple[str, ...]
) -> None:
    table = Table(f"t{hash((str(writes), asks, is_whole, key))}", key)
    partial = cache(AT_ONCE)
    kept: dict[str, Any] = {"cache": partial}
    if is_whole:
        kept = {"cache": None, "whole": FullCache(PeriodicReload(NEVER), changed=partial.changed)}
    for ids in writes:
        table.write(*ids)
        without = run(table, *range(6), cache=None)[0]
        assert run(table, *range(6), **kept, batch_size=asks)[0] == without


def test_the_test_before_can_fail() -> None:
    table, partial = Table("unchecked"), replace(cache(AT_ONCE), changed=None)
    table.write(1)
    run(table, 1, cache=partial)
    table.write(1)
    assert run(table, 1, cache=partial)[0] != run(table, 1, cache=None)[0]
