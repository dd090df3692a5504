"""The files of dead letters, without Spark: parts, repeats, and what is left behind."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from lookup_hints.engine.outcomes import FailedKeys
from lookup_hints.errors import ConnectorError, NotAllowed
from lookup_hints.lookup_spec import DeadLetters, LookupName, LookupSettings, LookupSpec
from lookup_hints.metrics.lookup_metrics import TaskRun
from lookup_hints.spi.security_policy import Policy, variable_of
from lookup_hints.worker import dead_letter_files as module
from lookup_hints.worker.dead_letter_files import (
    LONGEST_ERROR,
    PART,
    SCHEMA,
    DeadLetterWriter,
    key_texts,
    probe,
)
from tests.unit.engine.support import SCHEMA as PEOPLE
from tests.unit.engine.support import Asked, names_of


class Task:
    """Runs of one task, as Spark would tell of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.run = TaskRun(stage=3, partition=1, attempt=0, number=17)
        self.properties = {"spark.sql.execution.id": "5"}
        self.copies = False
        monkeypatch.setattr(module, "task_run", lambda: self.run)
        monkeypatch.setattr(module, "job_property", self.properties.get)
        monkeypatch.setattr(module, "running_statement", lambda: self.properties["spark.sql.execution.id"])

    def letters(self, kind: str = "parquet", secrets: frozenset[str] = frozenset()) -> DeadLetterWriter:
        settings = LookupSettings(
            False, on_error="null", dead_letters=DeadLetters(str(self.folder), kind, "app-1", self.copies)
        )
        spec = LookupSpec(
            Asked(names_of(), PEOPLE),
            ("id",),
            ("name",),
            settings,
            LookupName("people", "p", "asked", 4, "lookup_p_1f"),
        )
        return DeadLetterWriter(spec, secrets)

    def end(self, *failed: FailedKeys, kind: str = "parquet", secrets: frozenset[str] = frozenset()) -> None:
        """A run of the task to its end."""
        with self.letters(kind, secrets) as letters:
            for each in failed:
                letters.keep(each)
                letters.write_full_parts()
            letters.finish()

    @property
    def files(self) -> list[str]:
        """What is in the folder."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    @property
    def keys(self) -> list[int]:
        """The keys that a reader finds."""
        return sorted(json.loads(row["key"])["id"] for row in self.rows())

    def rows(self) -> Iterator[dict[str, Any]]:
        for path in self.folder.rglob("[!_]*.parquet"):
            table = pq.read_table(pa.BufferReader(path.read_bytes()))
            assert table.schema == SCHEMA
            yield from table.to_pylist()


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    return Task(tmp_path / "letters", monkeypatch)


def failed(*ids: int, error: str = "down") -> FailedKeys:
    return FailedKeys(pa.table({"id": pa.array(ids, pa.int64())}), "OSError", error, 2)


def test_a_file_is_named_by_statement_function_stage_and_partition(task: Task) -> None:
    task.end(failed(1, 2), failed(3))
    (name,) = task.files
    assert name.startswith("run=app-1-5/lookup_p_1f-s3-p1-")
    assert name.endswith("-00001.parquet")
    assert task.keys == [1, 2, 3]


def test_a_task_without_failures_makes_no_folder(task: Task) -> None:
    task.end()
    assert not task.folder.exists()


def test_many_letters_are_written_in_parts_before_the_task_ends(task: Task) -> None:
    with task.letters() as letters:
        letters.keep(failed(*range(PART - 1)))
        letters.write_full_parts()
        assert not task.folder.exists()
        letters.keep(failed(*range(PART, PART + 500)))
        letters.write_full_parts()
        assert ["/_lookup" in name for name in task.files] == [True]
        letters.keep(failed(7))
        letters.finish()
    assert [name[-13:] for name in task.files] == ["00001.parquet", "00002.parquet"]
    assert len(task.keys) == PART + 500


def test_a_repeated_task_takes_the_place_of_all_its_parts_and_of_no_others(task: Task) -> None:
    task.end(failed(*range(PART)), failed(PART))
    task.run = TaskRun(stage=3, partition=2, attempt=0, number=18)
    task.end(failed(-2))
    task.run = TaskRun(stage=4, partition=1, attempt=0, number=19)
    task.end(failed(-3))
    assert len(task.files) == 4
    task.run = TaskRun(stage=3, partition=1, attempt=1, number=20)
    task.end(failed(5))
    assert task.keys == [-3, -2, 5]
    task.end()
    assert task.keys == [-3, -2]


def test_a_task_that_fails_leaves_what_was_there(task: Task) -> None:
    task.end(failed(1))
    with task.letters() as letters:
        letters.keep(failed(*range(PART)))
        letters.write_full_parts()
        assert len(task.files) == 2
    assert task.keys == [1]
    assert len(task.files) == 1


def test_a_batch_that_starts_anew_takes_the_place_of_all_its_letters(task: Task) -> None:
    def start(run_id: str, stage: int, partition: int, batch: int = 8) -> None:
        task.properties["spark.jobGroup.id"] = run_id
        task.run = TaskRun(stage, partition, 0, 17, ("query", batch))

    for partition in (0, 1, 2):
        start("first", 3, partition)
        task.end(failed(partition))
    start("first", 3, 0, batch=7)
    task.end(failed(70))
    assert task.keys == [0, 1, 2, 70]
    start("second", 9, 0)
    task.end()
    assert task.keys == [70], "its first task removes what the batch left, in however many parts it was"
    task.end(failed(0))
    start("second", 9, 1)
    task.end(failed(1))
    assert task.keys == [0, 1, 70]
    assert {row["query_id"] for row in task.rows()} == {"query"}
    assert sorted({row["batch_id"] for row in task.rows()}) == [7, 8]


def test_two_tasks_of_a_batch_that_starts_anew_remove_the_same_letters(task: Task) -> None:
    task.properties["spark.jobGroup.id"] = "first"
    task.run = TaskRun(3, 0, 0, 17, ("query", 8))
    task.end(failed(0))
    task.properties["spark.jobGroup.id"] = "second"
    task.run = TaskRun(9, 0, 0, 19, ("query", 8))
    with task.letters() as letters:
        letters.keep(failed(0))
        task.run = TaskRun(9, 1, 0, 18, ("query", 8))
        task.end(failed(1))
        assert task.keys == [1]
        letters.finish()
    assert task.keys == [0, 1]


def test_a_copy_that_is_late_leaves_the_letters_of_the_first_one(task: Task) -> None:
    with task.letters() as late:
        late.keep(failed(8))  # the source has answered another key meanwhile
        task.run = TaskRun(3, 1, 1, 18)
        task.end(failed(7))
        assert task.keys == [7]
        late.finish()
    assert task.keys == [7, 8], "Spark may have taken the rows of either"


def test_a_copy_that_begins_late_leaves_the_letters_of_one_that_may_be_running(task: Task) -> None:
    task.copies = True
    task.end(failed(7))  # its rows are being sorted, say
    task.run = TaskRun(3, 1, 1, 18)
    task.end()
    assert task.keys == [7]


class Dying(fs.LocalFileSystem):  # type: ignore[misc]
    """Files of a process that is killed before its second step of a kind."""

    step = ""
    made = 0

    def _make(self, step: str) -> None:
        self.made += step == self.step
        if self.made == 2:
            raise KeyboardInterrupt

    def move(self, source: str, target: str) -> None:
        self._make("move")
        super().move(source, target)

    def delete_file(self, path: str) -> None:
        self._make("delete_file")
        super().delete_file(path)


@pytest.mark.parametrize("step", ["move", "delete_file"])
def test_a_repeated_task_that_is_killed_at_any_step_loses_no_letter(
    task: Task, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    task.end(failed(*range(PART)), failed(PART))
    task.run = TaskRun(3, 1, 1, 18)
    with monkeypatch.context() as patch:
        patch.setattr(Dying, "step", step)
        patch.setattr(fs, "LocalFileSystem", Dying)
        killed = task.letters().__enter__()  # whose ``__exit__`` nobody calls
        for part in (failed(*range(PART)), failed(PART)):
            killed.keep(part)
            killed.write_full_parts()
        with pytest.raises(KeyboardInterrupt):
            killed.finish()
    assert {*task.keys} == {*range(PART + 1)}
    task.run = TaskRun(3, 1, 2, 19)
    task.end(failed(5))
    assert task.keys == [5]


def test_a_letter_tells_what_failed_without_secrets_and_at_a_bounded_length(task: Task) -> None:
    task.end(failed(1, error=f"no hunter2 here {'x' * 5000}"), secrets=frozenset({"hunter2"}))
    (letter,) = task.rows()
    assert letter["error"].startswith("no *** here xxx")
    assert len(letter["error"]) == LONGEST_ERROR
    told = [letter[name] for name in ("table", "alias", "line", "connector", "error_class", "attempts")]
    assert told == ["people", "p", 4, "asked", "OSError", 2]


def test_json_has_a_line_for_each_letter(task: Task) -> None:
    task.end(failed(1, 2, error="é\n"), kind="json")
    (name,) = task.files
    lines = (task.folder / name).read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    assert set(first) == set(SCHEMA.names)
    assert (first["key"], first["error"], first["batch_id"]) == ('{"id": 1}', "é\n", None)
    assert first["failed_at"].endswith("+00:00")
    assert len(lines) == 2


def test_a_folder_that_cannot_be_written_is_told_with_table_folder_and_machine(task: Task) -> None:
    task.folder.touch()
    with pytest.raises(ConnectorError) as raised:
        task.end(failed(1))
    assert f"of table people cannot be written to {task.folder} on {socket.gethostname()}: " in str(
        raised.value
    )
    assert raised.value.__cause__ is not None


def test_a_worker_writes_nowhere_that_its_machine_does_not_allow(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = task.letters()
    letters._spec.connector.table = replace(letters._spec.connector.table, policy=Policy())
    monkeypatch.setenv(variable_of("lookup.security.allowed-references"), f"file:{tmp_path}/other/**")
    letters.keep(failed(1))
    with pytest.raises(NotAllowed, match="dead-letter"), letters:
        letters.finish()
    assert not task.folder.exists()


def test_a_probe_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    assert probe(str(tmp_path / "a" / "b")) is None
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    why = probe(str(tmp_path / "file" / "b"))
    assert why is not None
    assert "Error: " in why


def test_a_key_is_a_json_object_with_values_that_json_has() -> None:
    table = pa.table(
        {
            "a b": pa.array(['é"\n']),
            "b": pa.array([b"\x00\xff"]),
            "f": pa.array([float("nan")]),
            "g": pa.array([float("-inf")]),
            "t": pa.array([253402300800000000], pa.timestamp("us", "UTC")),
        }
    )
    assert key_texts(table) == [
        '{"a b": "é\\"\\n", "b": "AP8=", "f": "NaN", "g": "-Infinity", "t": "10000-01-01 00:00:00.000000Z"}'
    ]
