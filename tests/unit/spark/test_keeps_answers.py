"""Connectors that keep answers themselves, as Spark's workers run them: where, and what is counted."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.process import Process
from lookup_hints.runtime.spec import LookupSettings, LookupSpec
from lookup_hints.spark.arrow_worker import look_up
from lookup_hints.spi import AsyncRowLookup, KeepsAnswers, reporting
from lookup_hints.spi.model import LookupTable, RowRequest, Rows
from tests.unit.runtime.support import plain

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Keeping(AsyncRowLookup, KeepsAnswers):
    """Keeps the names of ids, as files."""

    def __init__(self, **options: str) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "keeping", **options}))
        self.folder: Path | None = None
        self.requests: list[RowRequest] = []

    def keeps(self) -> str:
        return self.table.options.get("keeps", "names")

    def keep_in(self, folder: Path) -> None:
        self.folder = folder

    async def alookup_row(self, request: RowRequest) -> Rows:
        self.requests.append(request)
        if self.folder is None or request.kept_as is None:
            return [{"name": "asked"}]
        file = self.folder / f"{request.key['id']}{request.kept_as}"
        if file.exists():
            reporting().recalled()
            return [{"name": file.read_text()}]
        file.write_text("kept")
        return [{"name": "asked"}]


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def run(connector: Keeping, *ids: int, **settings: Any) -> tuple[list[str], LookupMetrics]:
    """The names that a task finds for ``ids``, and what it counted."""
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(asynchronous=True, **settings))
    reports: list[LookupMetrics] = []
    identity = str(sorted(connector.table.options.items()))
    found = plain(
        look_up(spec, identity, iter([(pa.array(ids, pa.int64()),)]), lambda _, new: reports.append(new))
    )
    return [name for rows in found if rows is not None for (name,) in rows], reports[0]


def test_it_has_a_private_folder_of_its_options(executor: Path) -> None:
    one, other = Keeping(), Keeping(url="elsewhere")
    run(one, 1)
    run(other, 1)
    assert one.folder is not None
    assert other.folder is not None
    assert one.folder != other.folder
    for each in (one.folder, other.folder):
        assert each.parent == executor / "lookup_hints" / "kept"
        assert stat.S_IMODE(each.stat().st_mode) == stat.S_IMODE(each.parent.stat().st_mode) == 0o700


def test_what_it_has_kept_is_no_request() -> None:
    connector = Keeping()
    names, counts = run(connector, 1, 2)
    assert (names, counts.requests, counts.kept_answers) == (["asked", "asked"], 2, 0)
    names, counts = run(connector, 1, 2, 3)
    assert (names, counts.requests, counts.kept_answers) == (["kept", "kept", "asked"], 1, 2)
    assert (counts.keys, counts.hits) == (3, 3)


def test_a_query_may_do_without_and_what_was_taken_back_has_another_name() -> None:
    connector = Keeping()
    kinds: list[dict[str, Any]] = [{}, {"kept_as": None}, {"kept_as": "s 1"}, {"kept_as": "s 1"}, {}]
    names = [run(connector, 1, **settings)[0] for settings in kinds]
    assert names == [["asked"], ["asked"], ["asked"], ["kept"], ["kept"]]


def test_nothing_is_kept_where_its_options_want_nothing_kept(executor: Path) -> None:
    connector = Keeping(keeps="")
    assert run(connector, 1)[0] == ["asked"]
    assert connector.folder is None
    assert not (executor / "lookup_hints" / "kept").exists()


@pytest.mark.parametrize("lacking", ["no folder", "a file in its place"])
def test_where_there_is_no_folder_one_warning_says_so(
    executor: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lacking: str
) -> None:
    if lacking == "no folder":
        monkeypatch.delenv("SPARK_LOCAL_DIRS")
    else:
        (executor / "lookup_hints").write_text("")
    with caplog.at_level(logging.WARNING, "lookup_hints.cache"):
        for connector in (Keeping(), Keeping(url="elsewhere")):
            assert run(connector, 1)[0] == ["asked"]
            assert connector.folder is None
    [warned] = [each.getMessage() for each in caplog.records if each.name == "lookup_hints.cache"]
    assert warned.startswith("Lookup of people runs without its cache: ")
