"""Lookups with a cache, as Spark's workers run them: what is asked of the source, and what is not."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.cache.open_caches import name_of
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import Invalidation, LookupSettings, LookupSpec, PartialCache
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, Connector, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable, RowRequest, Rows
from lookup_hints.worker.arrow_worker import Background, look_up
from tests.unit.engine.support import plain

CACHE = PartialCache(600.0, missing_ttl=30.0, max_bytes=2**26)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Answer = Callable[[Any], Sequence[str]]


class Asked(SyncLookup, AsyncLookup):
    """Answers the names that ``answer`` gives for an id, and keeps the ids that it was asked."""

    answer: Answer
    asked: list[Any]

    def __init__(self, name: str = "people", schema: pa.Schema = SCHEMA, **options: str) -> None:
        super().__init__(LookupTable(name, schema, options={"connector": "asked", **options}))
        self.asked = []
        self.answer = one_name

    def lookup(self, request: LookupRequest) -> pa.Table:
        ids = request.keys.column("id").to_pylist()
        self.asked += ids
        rows = [{"id": each, "name": name} for each in ids for name in self.answer(each)]
        return pa.Table.from_pylist(rows, schema=self.table.schema).select(request.columns)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        return self.lookup(request)


version: list[int] = []
"""So often the rows of AskedAnew have changed; -1 where it fails."""


class AskedAnew(SyncLookup, AsyncLookup):
    """Is opened twice in a process: by its tasks, and beside them."""

    def __init__(self, name: str, **options: str) -> None:
        super().__init__(LookupTable(name, SCHEMA, options={"connector": "anew", **options}))

    def lookup(self, request: LookupRequest) -> pa.Table:
        if version[-1:] == [-1]:
            raise ConnectorError("down")
        rows = [{"id": each, "name": f"v{len(version)}"} for each in request.keys.column("id").to_pylist()]
        return pa.Table.from_pylist(rows, schema=self.table.schema).select(request.columns)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        return self.lookup(request)


class ByRow(AsyncRowLookup):
    """The same for one key at a time."""

    def __init__(self) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "by_row"}))
        self.asked: list[Any] = []

    async def alookup_row(self, request: RowRequest) -> Rows:
        self.asked.append(request.key["id"])
        return [{"name": name} for name in one_name(request.key["id"])]


def one_name(each: Any) -> Sequence[str]:
    """Multiples of five have no name."""
    return [] if each % 5 == 0 else [f"n{each}"]


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def run(connector: Connector, *ids: Any, cache: PartialCache | None = CACHE, **settings: Any) -> Any:
    """The names that a task finds for ``ids``, and what it counted."""
    settings.setdefault("asynchronous", isinstance(connector, AsyncRowLookup))
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(cache=cache, **settings))
    reports: list[LookupMetrics] = []
    batches = iter([(pa.array(ids, connector.table.schema.field("id").type),)])
    identity = f"{type(connector)} {connector.table.name} {sorted(connector.table.options.items())}"
    found = plain(look_up(spec, identity, batches, lambda _, counts: reports.append(counts)))
    return [None if rows is None else [name for (name,) in rows] for rows in found], reports[0]


BOTH = pytest.mark.parametrize("asynchronous", [True, False])


@BOTH
def test_a_second_task_asks_nothing(asynchronous: bool) -> None:
    connector = Asked()
    expected = [list(one_name(each)) for each in range(10)]
    assert run(connector, *range(10), asynchronous=asynchronous)[0] == expected
    connector.asked.clear()
    found, counts = run(connector, *range(10), asynchronous=asynchronous)
    assert (found, connector.asked) == (expected, [])
    assert (counts.cache_hits, counts.cache_missing, counts.cache_misses) == (8, 2, 0)
    assert (counts.hits, counts.misses, counts.keys, counts.requests) == (8, 2, 10, 0)
    assert counts.cache_rows == 10
    assert counts.cache_bytes > 0


def test_only_what_is_not_known_is_asked() -> None:
    connector = Asked()
    run(connector, 1, 2, 5)
    connector.asked.clear()
    found, counts = run(connector, 5, 4, None, 2, 3, 4)
    assert found == [[], ["n4"], [], ["n2"], ["n3"], ["n4"]]
    assert sorted(connector.asked) == [3, 4]
    assert (counts.cache_hits, counts.cache_missing, counts.cache_misses) == (1, 1, 2)


def test_one_key_at_a_time_is_remembered_too() -> None:
    connector = ByRow()
    expected = [list(one_name(each)) for each in range(300)]
    assert run(connector, *range(300))[0] == expected
    connector.asked.clear()
    assert run(connector, *range(300))[0] == expected
    assert connector.asked == []


def test_another_process_of_the_executor_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run(Asked(), 1, 2, 5)
    monkeypatch.setattr(process, "this_process", Process())
    connector = Asked()
    assert run(connector, 1, 2, 5)[0] == [["n1"], ["n2"], []]
    assert connector.asked == []


def test_a_task_that_failed_leaves_what_it_learned() -> None:
    connector = Asked()

    def fails_late(each: int) -> Sequence[str]:
        if each == 9:
            raise ConnectorError("down")
        return [f"n{each}"]

    connector.answer = fails_late
    with pytest.raises(ConnectorError, match="down"):
        run(connector, *range(10), batch_size=1)
    connector.answer = one_name
    connector.asked.clear()
    assert run(connector, 8)[0] == [["n8"]]
    assert connector.asked == []


@pytest.mark.parametrize("on_error", ["null", "skip"])
def test_failures_are_not_remembered(on_error: str) -> None:
    connector = Asked()

    def fail(each: int) -> Sequence[str]:
        raise ConnectorError("down")

    connector.answer = fail
    assert run(connector, 1, on_error=on_error)[0] == [[] if on_error == "null" else None]
    connector.answer = one_name
    assert run(connector, 1)[0] == [["n1"]]


def test_misses_are_not_cached_unless_enabled() -> None:
    connector = Asked()
    never = replace(CACHE, missing_ttl=None)
    run(connector, 1, 5, cache=never)
    connector.asked.clear()
    assert run(connector, 1, 5, cache=never)[0] == [["n1"], []]
    assert connector.asked == [5]


def test_a_retry_of_misses_passes_by_what_is_known_to_be_missing() -> None:
    connector = Asked()
    run(connector, 1, 5)
    connector.answer = lambda each: [f"late{each}"]
    retry = FixedDelay(2, 0.001).if_miss()
    assert run(connector, 1, 5, retry=retry)[0] == [["n1"], ["late5"]]
    assert run(connector, 5)[0] == [["late5"]], "the late row is remembered"


def test_a_predicate_sees_what_comes_from_the_cache() -> None:
    connector = Asked()
    run(connector, 1, 2, 5)
    connector.answer = lambda each: [f"late{each}"]
    connector.asked.clear()

    def is_one(rows: Sequence[Any]) -> bool:
        return any((row["id"], row["name"]) == (1, "n1") for row in rows)

    retry = FixedDelay(2, 0.001).if_result(is_one)
    assert run(connector, 1, 2, 5, retry=retry)[0] == [["late1"], ["n2"], []]
    assert connector.asked == [1]


def test_a_miss_that_a_retry_could_not_help_is_remembered_for_others() -> None:
    connector = Asked()
    run(connector, 5, retry=FixedDelay(1, 0.001).if_miss())
    connector.asked.clear()
    assert run(connector, 5)[0] == [[]]
    assert connector.asked == []


def test_without_the_option_nothing_is_kept(executor: Path) -> None:
    connector = Asked()
    for _ in range(2):
        _, counts = run(connector, 1, cache=None)
    assert connector.asked == [1, 1]
    assert counts.cache_misses == 0
    assert not list(executor.rglob("*.segment"))


# --- what was invalidated


def back(number: int, *ids: int, session: str = "a") -> Invalidation:
    """Takes these ids back; without any, all."""
    return (
        Invalidation(session, number, ("id",), tuple((each,) for each in ids))
        if ids
        else Invalidation(session, number)
    )


def test_what_was_invalidated_is_asked_again_once() -> None:
    connector = Asked()
    run(connector, *range(10))
    connector.answer = lambda each: [f"new{each}"]
    connector.asked.clear()
    taken = (back(1, 3), back(2, 4, 5))
    expected = [["n2"], ["new3"], ["new4"], ["new5"], ["n6"]]
    for _ in range(2):
        assert run(connector, 2, 3, 4, 5, 6, invalidations=taken)[0] == expected
    assert sorted(connector.asked) == [3, 4, 5]
    assert run(connector, 2, 3, 4, 5, 6)[0] == expected, "those who were planned before know it, too"
    run(connector, 2, invalidations=(*taken, back(3, 2)))
    assert sorted(connector.asked) == [2, 3, 4, 5]
    assert run(connector, *range(10), invalidations=(back(4),))[0] == [[f"new{each}"] for each in range(10)]


def test_two_sessions_invalidate_for_themselves() -> None:
    connector = Asked()
    run(connector, 1)
    for taken in [(back(1),), (back(1),), (back(1, session="b"),), (back(1), back(1, session="b"))]:
        run(connector, 1, invalidations=taken)
    assert connector.asked == [1, 1, 1]


@pytest.mark.parametrize("column", ["id", "nr"])
def test_keys_of_a_table_that_was_replaced_invalidate_all_of_the_new_one(column: str) -> None:
    connector = Asked(schema=pa.schema([("id", pa.string()), ("name", pa.string())]))
    connector.answer = lambda each: [f"n{each}"]
    taken = (Invalidation("a", 1, (column,), ((1,),)),)
    for _ in range(2):
        assert run(connector, "1", invalidations=taken)[0] == [["n1"]]
    assert connector.asked == ["1"]


# --- rows that are too old


def fail(each: int) -> Sequence[str]:
    raise ConnectorError("down")


@BOTH
def test_where_asking_fails_rows_that_are_too_old_are_used(asynchronous: bool) -> None:
    old = PartialCache(0.0001, missing_ttl=30.0, stale_if_error=600.0)
    connector = Asked()
    run(connector, 1, 2, cache=old, asynchronous=asynchronous)
    connector.answer = lambda each: [f"new{each}"]
    assert run(connector, 2, cache=old, asynchronous=asynchronous)[0] == [["new2"]], "they are asked first"
    connector.answer = fail
    how: dict[str, Any] = {"cache": old, "asynchronous": asynchronous}
    found, counts = run(connector, 1, 2, **how)
    assert found == [["n1"], ["new2"]]
    assert (counts.cache_stale, counts.hits, counts.cache_hits, counts.cache_misses) == (2, 2, 0, 2)
    with pytest.raises(ConnectorError, match="down"):
        run(connector, 1, 3, **how)
    found, counts = run(connector, 1, 3, **how, on_error="null")
    assert found == [["n1"], []]
    assert (counts.cache_stale, counts.hits, counts.misses) == (1, 1, 1)
    with pytest.raises(ConnectorError, match="down"):
        run(connector, 1, invalidations=(back(1),), **how)


def test_there_is_an_end_to_that() -> None:
    old = PartialCache(0.0001, missing_ttl=30.0, stale_if_error=0.0001)
    connector = Asked()
    run(connector, 1, cache=old)
    connector.answer = fail
    with pytest.raises(ConnectorError, match="down"):
        run(connector, 1, cache=old)


def test_a_row_that_the_source_does_not_have_any_more_is_not_used() -> None:
    old = PartialCache(0.0001, missing_ttl=None, stale_if_error=600.0)
    connector = Asked()
    run(connector, 1, cache=old)
    connector.answer = lambda each: []
    assert run(connector, 1, cache=old)[0] == [[]]
    connector.answer = fail
    with pytest.raises(ConnectorError, match="down"):
        run(connector, 1, cache=old)


@BOTH
def test_rows_that_are_too_old_are_used_while_they_are_asked_for_anew(asynchronous: bool) -> None:
    refreshing = PartialCache(0.05, missing_ttl=30.0, stale_while_revalidate=600.0)
    connector = AskedAnew("anew", key=f"{asynchronous}")
    how: dict[str, Any] = {"cache": refreshing, "asynchronous": asynchronous}
    version.clear()
    assert run(connector, 1, 2, **how)[0] == [["v0"], ["v0"]]
    time.sleep(0.06)
    version.append(1)
    found, counts = run(connector, 1, 3, **how)
    assert found == [["v0"], ["v1"]]
    assert (counts.cache_stale, counts.cache_hits, counts.cache_misses, counts.requests) == (1, 1, 1, 1)
    process.this_process.the(Background).wait()
    version.append(2)
    assert run(connector, 1, **how)[0] in ([["v1"]], [["v2"]])
    process.this_process.the(Background).wait()


def test_what_cannot_be_asked_anew_is_used_until_it_is_too_old_for_that() -> None:
    refreshing = PartialCache(0.0001, missing_ttl=30.0, stale_while_revalidate=600.0)
    connector = AskedAnew("anew", key="fails")
    version.clear()
    run(connector, 1, cache=refreshing)
    version.append(-1)
    for _ in range(2):
        assert run(connector, 1, cache=refreshing)[0] == [["v0"]]
        process.this_process.the(Background).wait()


# --- where it rests


def test_other_users_cannot_read_the_files(executor: Path) -> None:
    run(Asked(password="hunter2"), 1)
    found = list(executor.rglob("*"))
    assert any(each.is_file() for each in found)
    for each in found:
        assert each.stat().st_mode & 0o077 == 0, each
        assert "hunter2" not in str(each)
        assert not each.is_file() or b"hunter2" not in each.read_bytes()


def test_answers_of_others_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "one")
    connector = Asked()
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(False))
    other_columns = replace(spec, columns=("name", "id"), key_columns=("name",))
    secret = spec.over(Asked(password="${env:SECRET}"))
    names = [
        name_of(spec, "a"),
        name_of(spec, "b"),
        name_of(other_columns, "a"),
        name_of(spec.over(Asked(url="x")), "a"),
        name_of(secret, "a"),
    ]
    monkeypatch.setenv("SECRET", "two")
    names.append(name_of(secret, "a"))
    assert len(set(names)) == len(names)
    assert name_of(spec, "a") == names[0]


# --- where there can be none


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name == "lookup_hints.cache"]


def test_without_numpy_there_is_no_cache_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.startswith("lookup_hints.cache.store.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setitem(sys.modules, "numpy.typing", None)
    assert [run(Asked(), 1)[0] for _ in range(2)] == [[["n1"]]] * 2
    (said,) = warnings(caplog)
    assert "Lookup of people runs without its cache" in said
    assert "numpy" in said


def test_without_a_folder_there_is_no_cache_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert [run(Asked(), 1)[0] for _ in range(2)] == [[["n1"]]] * 2
    (said,) = warnings(caplog)
    assert "Spark has given this worker no folder" in said


def test_a_folder_that_others_can_read_is_not_used(executor: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(Asked(), 1)
    (folder,) = (each.parent for each in executor.rglob("*.segment"))
    folder.chmod(0o755)
    process.this_process = Process()
    assert run(Asked(), 1)[0] == [["n1"]]
    (said,) = warnings(caplog)
    assert "open to others" in said


def test_a_folder_that_is_removed_meanwhile_is_no_error(
    executor: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = Asked()
    run(connector, 1, 2)

    def remove(each: int) -> Sequence[str]:
        shutil.rmtree(executor / "lookup_hints")
        return one_name(each)

    connector.answer = remove
    assert run(connector, 2, 3)[0] == [["n2"], ["n3"]]
    assert len(warnings(caplog)) == 1
    connector.answer = one_name
    connector.asked.clear()
    for _ in range(2):
        assert run(connector, 2, 3)[0] == [["n2"], ["n3"]]
    assert connector.asked == [2, 3], "a later task begins a new one"


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "swap"])
def test_a_damaged_file_is_not_used(executor: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    run(Asked(), *range(1000))
    for file in executor.rglob("*.segment"):
        data = bytearray(file.read_bytes())
        middle = len(data) // 2
        if harm == "flip":
            data[middle] ^= 1
        elif harm == "swap":
            data[0:8192], data[8192:16384] = data[8192:16384], data[0:8192]
        file.unlink()  # others may have it mapped
        file.write_bytes(data[: {"cut": middle, "empty": 0}.get(harm, len(data))])
    process.this_process = Process()
    connector = Asked()
    for _ in range(2):
        assert run(connector, *range(1000))[0] == [list(one_name(each)) for each in range(1000)]
    assert len(connector.asked) == 1000
    (said,) = warnings(caplog)
    assert "damaged" in said


# --- the same rows with a cache and without

FLOATS = pa.schema([("id", pa.float64()), ("name", pa.string())])
VALUES = st.sampled_from([0.0, -0.0, float("nan"), 1.0, -1.0, 2.5, float("inf"), 1e300, 5e-324, None])


class Table(SyncLookup):
    """A table that does not change, asked as SQL compares."""

    def __init__(self, name: str, rows: Sequence[tuple[float, str]]) -> None:
        super().__init__(LookupTable(name, FLOATS, options={"connector": "table"}))
        self.rows = pa.table([[key for key, _ in rows], [name for _, name in rows]], schema=FLOATS)

    def lookup(self, request: LookupRequest) -> pa.Table:
        return self.rows.select(request.columns)


@pytest.mark.work(9)
@given(
    rows=st.lists(st.tuples(VALUES.filter(lambda each: each is not None), st.text(max_size=3)), max_size=20),
    tasks=st.lists(st.lists(VALUES, min_size=1, max_size=30), min_size=1, max_size=5),
    cache=st.builds(
        PartialCache,
        expire_after_write=st.sampled_from([0.0001, 600.0]),
        expire_after_access=st.sampled_from([None, 0.0001, 600.0]),
        missing_ttl=st.sampled_from([None, 0.0001, 30.0]),
        max_rows=st.sampled_from([None, 1, 5]),
        max_bytes=st.sampled_from([None, 1000, 10_000]),
        stale_while_revalidate=st.sampled_from([0.0, 0.0001, 600.0]),
        stale_if_error=st.sampled_from([0.0, 600.0]),
    ),
    asks=st.integers(1, 4),
    back=st.sampled_from([(), ("id",)]),
)
def test_a_cache_changes_no_row(
    rows: list[tuple[float, str]],
    tasks: list[list[float | None]],
    cache: PartialCache,
    asks: int,
    back: tuple[str, ...],
) -> None:
    connector = Table(f"t{hash((str(rows), cache))}", rows)
    for number, ids in enumerate(tasks):
        keys = tuple((each,) for each in ids if each is not None) if back else ()
        taken = (Invalidation("session", number // 2, back if keys else (), keys),)
        without = run(connector, *ids, cache=None)[0]
        assert run(connector, *ids, cache=cache, batch_size=asks, invalidations=taken)[0] == without


def test_the_connector_that_is_carried_says_whose_answers_they_are() -> None:
    """Connectors of equal tables and rows are equal, those of other rows are not."""
    one, same, other = (Table("t", [(1.0, name)]) for name in ("a", "a", "b"))
    identities = [PickledConnector.of(each).identity for each in (one, same, other)]
    assert identities[0] == identities[1] != identities[2]
