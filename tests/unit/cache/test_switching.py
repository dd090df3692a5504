"""Lookups that ask, and then read their table: when, who, and that their rows stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache import open_caches
from lookup_hints.lookup_spec import LookupSettings, LookupSpec, Switch
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi import OrderCondition, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.unit.cache.test_full_cache import FLOATS, VALUES, Readable, Row, run, warnings
from tests.unit.engine.support import plain

NAMES = [(each, f"n{each}") for each in range(0, 200, 2)]
NUMBERS = count()
Running = Callable[[str | None], None]


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(open_caches, "running_statement", lambda: "7")
    return tmp_path


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Running:
    """Says which run of a statement it is."""
    return lambda number: monkeypatch.setattr(open_caches, "running_statement", lambda: number)


def names(connector: Readable, *ids: Any, keys: int = 10, **settings: Any) -> Any:
    return run(connector, *ids, whole=None, switch=Switch(keys), **settings)


def expected(*ids: int) -> list[list[str]]:
    return [[f"n{each}"] if each % 2 == 0 else [] for each in ids]


def test_it_asks_until_that_has_cost_as_much_as_reading() -> None:
    connector = Readable(NAMES)
    assert names(connector, *range(4))[0] == expected(*range(4))
    process.this_process = Process()
    assert names(connector, *range(4, 9))[0] == expected(*range(4, 9))
    assert (connector.reads, sorted(connector.asked)) == (0, list(range(9)))
    found, counts = names(connector, 9, 10, 300)
    assert found == [[], ["n10"], []]
    assert (connector.reads, len(connector.asked)) == (1, 9)
    assert (counts.cache_loads, counts.switched_after, counts.cache_rows) == (1, 12, 100)
    process.this_process = Process()
    _, counts = names(connector, *range(100))
    assert (connector.reads, len(connector.asked)) == (1, 9)
    assert (counts.cache_loads, counts.switched_after, counts.requests) == (0, 0, 0)


def test_lookups_without_a_cache_count_nothing_of_one() -> None:
    _, counts = names(Readable(NAMES), 1, 2)
    assert counts.cache_hits + counts.cache_missing + counts.cache_misses == 0
    assert counts.requests == 1


def test_another_run_of_the_statement_begins_anew(running: Running, executor: Path) -> None:
    connector = Readable(NAMES)
    names(connector, *range(20))
    running("8")
    connector.rows = [(2, "new")]
    assert names(connector, 2)[0] == [["new"]]
    assert connector.asked == [2]
    assert [each.name for each in executor.rglob("read/*")] == ["8"], "nobody uses what the other has left"


def test_others_go_on_asking_while_one_reads() -> None:
    connector, other = Readable(NAMES), Readable(NAMES)
    scan = connector.scan

    def meanwhile(schema: Any) -> Any:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(process, "this_process", Process())
            assert names(other, 1, 2)[0] == expected(1, 2)
        return scan(schema)

    connector.scan = meanwhile  # type: ignore[method-assign]
    assert names(connector, *range(20))[0] == expected(*range(20))
    assert (other.reads, other.asked) == (0, [1, 2])


@pytest.mark.parametrize("stream", [True, False])
def test_streams_and_runs_without_a_statement_never_switch_to_reading(
    stream: bool, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stream:
        monkeypatch.setattr(open_caches, "in_stream", lambda: True)
    else:
        running(None)
    connector = Readable(NAMES)
    names(connector, *range(50))
    assert connector.reads == 0


def test_lookups_go_on_by_key_if_the_table_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    connector = Readable(NAMES)
    connector.down = OSError("no rights to read it")
    for _ in range(3):
        assert names(connector, *range(20))[0] == expected(*range(20))
    assert connector.reads == 1
    (said,) = warnings(caplog)
    assert "Table people is still asked by key, as it could not be read" in said
    assert "no rights" in said


def test_lookups_go_on_by_key_if_the_table_is_too_large(caplog: pytest.LogCaptureFixture) -> None:
    connector = Readable(NAMES)
    small = Switch(10, max_bytes=100)
    for _ in range(2):
        assert run(connector, *range(20), whole=None, switch=small)[0] == expected(*range(20))
    assert connector.reads == 1
    assert len(warnings(caplog)) == 1


def test_without_a_folder_it_asks_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    connector = Readable(NAMES)
    assert names(connector, *range(20))[0] == expected(*range(20))
    assert connector.reads == 0
    # It answers with all of its rows, whatever it is asked.
    assert [said for said in caplog.messages if "keys that were not asked" not in said] == []


@pytest.mark.work(6)
@given(
    rows=st.lists(st.tuples(VALUES, st.text(max_size=3)), max_size=30),
    tasks=st.lists(st.lists(VALUES, min_size=1, max_size=30), min_size=1, max_size=4),
    keys=st.integers(1, 40),
)
def test_it_changes_no_row(rows: list[Row], tasks: list[list[float | None]], keys: int) -> None:
    connector = Readable(rows, FLOATS, number=f"switch {next(NUMBERS)}")
    for ids in tasks:
        assert names(connector, *ids, keys=keys)[0] == run(connector, *ids, whole=None)[0]
    assert connector.reads <= 1


VERSIONS = pa.schema([("k", pa.int64()), ("since", pa.int64()), ("until", pa.int64()), ("v", pa.string())])


class Versions(SyncLookup, Scan):
    """A table of versions that counts how often it is read."""

    def __init__(self, rows: list[tuple[int, int | None, int | None]]) -> None:
        options = {"connector": "versions", "number": str(next(NUMBERS))}
        super().__init__(LookupTable("versions", VERSIONS, options=options))
        names = ("k", "since", "until")
        listed = [{**dict(zip(names, row, strict=True)), "v": str(row)} for row in rows]
        self.rows, self.reads = pa.Table.from_pylist(listed, schema=VERSIONS), 0

    def lookup(self, request: LookupRequest) -> pa.Table:
        return self.rows.select(request.columns)

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        yield from self.rows.select(schema.names).to_batches(max_chunksize=3)


MOMENTS = st.one_of(st.none(), st.integers(0, 9))


@pytest.mark.work(6)
@given(
    pairs=st.sets(st.tuples(st.integers(0, 5), MOMENTS), max_size=25),
    ends=st.lists(MOMENTS, min_size=25, max_size=25),
    tasks=st.lists(
        st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 6)), MOMENTS), min_size=1, max_size=30),
        min_size=1,
        max_size=4,
    ),
    keys=st.integers(1, 15),
    order=st.one_of(
        st.builds(OrderCondition, st.just("since"), st.sampled_from([">=", ">", "<=", "<"])),
        st.just(OrderCondition("since", until="until")),
    ),
)
def test_it_changes_none_of_the_rows_that_answer_by_order(
    pairs: set[tuple[int, int | None]],
    ends: list[int | None],
    tasks: list[list[tuple[int | None, int | None]]],
    keys: int,
    order: OrderCondition,
) -> None:
    table = Versions(
        [(key, since, until) for (key, since), until in zip(sorted(pairs, key=str), ends, strict=False)]
    )

    def found(task: list[tuple[int | None, int | None]], switch: Switch | None) -> Any:
        spec = LookupSpec(table, ("k",), ("v",), LookupSettings(False, switch=switch), order=order)
        columns = [pa.array(column, pa.int64()) for column in zip(*task, strict=True)]
        rows = plain(look_up(spec, table.table.options["number"], iter([columns]), None))
        return [sorted(each or ()) for each in rows]

    for task in tasks:
        assert found(task, Switch(keys)) == found(task, None)
    distinct = sum(len({key for key, value in task if None not in (key, value)}) for task in tasks)
    assert table.reads == (distinct >= keys)
