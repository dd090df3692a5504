"""Every n-th call fails: right rows or an error that names the cause, nothing left behind, and the next run right.

Each path runs in this process over real files. ``tests/nth_call.py`` says what fails, and how.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from lookup_connectors.sqlite.connector import SqliteConnector
from pyarrow import fs

from lookup_hints.cache.store import answer_store
from lookup_hints.cli import archive
from lookup_hints.cli.main import main
from lookup_hints.engine.outcomes import FailedKeys
from lookup_hints.errors import ConnectorError, LookupHintsError
from lookup_hints.limits.shared_limits import LimitStores
from lookup_hints.lookup_spec import (
    FullCache,
    Invalidation,
    LookupSettings,
    LookupSpec,
    PartialCache,
    PeriodicReload,
    Switch,
)
from lookup_hints.metrics.lookup_metrics import TaskRun
from lookup_hints.spi import OrderCondition
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.streaming.restart_strategy import FixedDelayRestart
from lookup_hints.streaming.supervisor import FULL, REGION, Supervisor
from lookup_hints.worker import dead_letter_files as dead_letters
from lookup_hints.worker.arrow_worker import look_up
from tests.nth_call import LATER, PROCESSES, SYSTEM, Survivor, Target, survive, worker_in
from tests.unit.cache.support import Clock, asked, learned, store
from tests.unit.engine.support import plain
from tests.unit.worker.test_dead_letter_files import Task

PARTS = 4
OURS = (LookupHintsError, MemoryError)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
RANGES = pa.schema([("lo", pa.int64()), ("hi", pa.int64()), ("name", pa.string())])

# --- the store of answers -------------------------------------------------------------------------------


def _learn_three(folder: Path) -> None:
    one = store(folder, Clock())
    one.learn([learned({1: ["oldest"], **{each: [f"n{each}"] for each in range(100, 200)}})])
    one.learn([learned({1: ["older"], 2: ["b"]})])
    one.learn([learned({1: ["new"], 3: []})])


def _learn_and_merge(folder: Path) -> dict[Any, list[str]]:
    """Learns a fourth segment, so that two of the others are merged."""
    clock = Clock()
    with (
        mock.patch.object(answer_store, "MOST_SEGMENTS", 3),
        mock.patch.object(answer_store, "MERGED_AT_ONCE", 2),
    ):
        writer = store(folder, clock)
        asked(writer, [1])
        writer.learn([learned({4: ["d"]})])
        return asked(store(folder, clock), [1, 2, 3, 4])


def _is_known_or_not(found: Any, right: Any) -> bool:
    return set(found) <= set(right) and all(right[key] == found[key] for key in found)


# --- tasks, as Spark's workers run them -----------------------------------------------------------------


def _write_names(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "people.db")) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany(
            "INSERT INTO people VALUES (?, ?)", [(each, f"n{each}") for each in range(0, 40, 2)]
        )
        database.execute("CREATE TABLE networks (lo INTEGER, hi INTEGER, name TEXT)")
        database.executemany(
            "INSERT INTO networks VALUES (?, ?, ?)",
            [(each, each + 4, f"n{each}") for each in range(0, 40, 5)],
        )


def _sqlite(
    folder: Path, table: str = "people", schema: pa.Schema = SCHEMA, **options: str
) -> SqliteConnector:
    options = {"connector": "sqlite", "path": str(folder / "people.db"), **options}
    return SqliteConnector(
        LookupTable(table, schema, options=options, primary_key=("id",) if table == "people" else ())
    )


def _forget_failures(folder: Path) -> None:
    """As if the pause was over after which a whole table is read again."""
    for note in folder.rglob("note"):
        note.unlink()


def _task(spec: LookupSpec, ids: Sequence[int | None]) -> list[Any]:
    reports: list[Any] = []
    batches = iter([(pa.array(ids, pa.int64()),)])
    found = plain(look_up(spec, "x", batches, lambda _, counts: reports.append(counts)))
    return [None if rows is None else sorted(name for (name,) in rows) for rows in found]


def _task_of(**settings: Any) -> Callable[[Path], Any]:
    """Two tasks one after the other, each in a worker of its own."""

    def run(folder: Path) -> Any:
        _forget_failures(folder)
        spec = LookupSpec(_sqlite(folder), ("id",), ("name",), LookupSettings(False, **settings))
        found = []
        for ids in ([1, 2, 3, 2, None, 4], [2, 6, 300]):
            with worker_in(folder):
                found.append(_task(spec, ids))
        return found

    return run


def _ranges_of(whole: FullCache) -> Callable[[Path], Any]:
    closed = OrderCondition("lo", ">=", "hi", "<=", is_open=False)

    def run(folder: Path) -> Any:
        _forget_failures(folder)
        connector = _sqlite(folder, "networks", RANGES)
        spec = LookupSpec(
            connector, (), ("name",), LookupSettings(False, whole=whole), order=closed, order_asked=True
        )
        with worker_in(folder):
            return _task(spec, [3, 7, 100, None])

    return run


INVALIDATED = (Invalidation("s1", 1, ("id",), ((2,),)), Invalidation("s1", 2, ("id",), ((3,),)))

# --- files that tasks share or leave -----------------------------------------------------------------


class ArrowFiles(fs.LocalFileSystem):  # type: ignore[misc]
    """Arrow's own files, by way of methods that can be counted."""

    def create_dir(self, path: str, recursive: bool = True) -> None:
        super().create_dir(path, recursive=recursive)

    def open_output_stream(self, path: str, **how: Any) -> Any:
        return super().open_output_stream(path, **how)

    def delete_file(self, path: str) -> None:
        super().delete_file(path)

    def move(self, source: str, target: str) -> None:
        super().move(source, target)

    def get_file_info(self, paths: Any) -> Any:
        return super().get_file_info(paths)


ARROW = tuple(
    Target(ArrowFiles, name, lambda: OSError(errno.EIO, os.strerror(errno.EIO)))
    for name in ("create_dir", "open_output_stream", "delete_file", "move", "get_file_info")
)


def _dead_letters(kind: str) -> Callable[[Path], Any]:
    """A task and its repetition, which takes the place of it."""

    def run(folder: Path) -> Any:
        with pytest.MonkeyPatch.context() as patch, mock.patch.object(fs, "LocalFileSystem", ArrowFiles):
            task = Task(folder / "letters", patch)
            task.end(FailedKeys(pa.table({"id": [1, 2]}), "OSError", "down", 2), kind=kind)
            why = dead_letters.probe(str(folder / "letters"))
            if why is not None:
                raise ConnectorError(why)
            return [each for each in task.files if "_probe" not in each]

    return run


def _dead_letters_of_batch(folder: Path) -> Any:
    """A micro-batch that runs again after a restart, in stages of other numbers; gives the keys of its letters."""
    with pytest.MonkeyPatch.context() as patch, mock.patch.object(fs, "LocalFileSystem", ArrowFiles):
        task = Task(folder / "letters", patch)
        for run, stage in (("first", 3), ("second", 9)):
            task.properties["spark.jobGroup.id"] = run
            for partition in (0, 1):
                task.run = TaskRun(stage, partition, 0, 17, ("query", 8))
                task.end(FailedKeys(pa.table({"id": [partition, 2 + partition]}), "OSError", "down", 2))
        return task.keys


def _limits(folder: Path) -> Any:
    """Two processes of an executor take the limits of an origin, one after the other: whether each could."""
    limits = [LimitStores().of(folder / "executor", "api") for _ in range(2)]
    could = []
    for each in limits:
        could.append(each.acquire() is not None)
        if could[-1]:
            each.release()
    for each in limits:
        if each._file is not None:
            os.close(each._file)
    return could


# --- streaming queries ---------------------------------------------------------------------------------

BATCHES = 3


class NumberedQuery:
    """A streaming query over a folder, which keeps each batch once; its second one fails at first.

    Its methods are those by which the supervisor asks Spark.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._error: OSError | None = None
        self._is_stopping = threading.Event()
        folder.mkdir(exist_ok=True)
        self._thread = threading.Thread(target=self._run_batches, name="batches", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        return self.tell_id()

    def tell_id(self) -> str:
        return self._folder.name

    def awaitTermination(self, timeout: int | None = None) -> None:  # noqa: N802 (Spark's name)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run_batches(self) -> None:
        try:
            while not self._is_stopping.is_set() and (number := len(self.done(self._folder))) < BATCHES:
                troubled = self._folder / "troubled"
                if number == 1 and not troubled.exists():
                    troubled.touch()
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                (self._folder / f"batch {number}").write_text("")
        except OSError as error:
            self._error = error

    @staticmethod
    def done(folder: Path) -> list[str]:
        return sorted(each.name for each in folder.glob("batch *"))


def _supervise(failover: str) -> Callable[[Path], Any]:
    """Two queries to their end; those of the run before have one batch more to do."""

    def run(folder: Path) -> Any:
        supervisor, queries = Supervisor(), [folder / name for name in ("one", "two")]
        try:
            for each in queries:
                (each / f"batch {BATCHES - 1}").unlink(missing_ok=True)
                strategy = FixedDelayRestart(attempts=3, delay=0.001)
                supervisor.start(partial(NumberedQuery, each), strategy, failover=failover)
            supervisor.await_all(60.0)
        finally:
            supervisor.stop_all()
        return [NumberedQuery.done(each) for each in queries]

    return run


QUERY_CALLS = tuple(
    Target(NumberedQuery, name, lambda: ConnectionError("Spark does not answer (injected)"))
    for name in ("tell_id", "awaitTermination", "stop")
)


def _supervised(failover: str) -> Survivor:
    return Survivor(
        _supervise(failover),
        targets=(*PROCESSES, *QUERY_CALLS),
        excused="all of stop.*leaves threads",  # what cannot be stopped
        of_all=True,
        has_threads=True,
    )


# --- commands ------------------------------------------------------------------------------------------

OPENAPI = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://api.example"}],
    "paths": {
        "/things/{id}": {
            "get": {
                "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}],
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {
                                "schema": {"type": "object", "properties": {"name": {"type": "string"}}}
                            }
                        }
                    }
                },
            }
        }
    },
}
JOB = """CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'sqlite', 'path' = '{folder}/people.db');
SELECT p.name FROM range(3) r LEFT JOIN people p ON r.id = p.id;
"""


class CommandFailed(Exception):
    """A command ended with another code than 0; the text is what it said."""


def _write_files(folder: Path) -> None:
    _write_names(folder)
    (folder / "api.json").write_text(json.dumps(OPENAPI))
    (folder / "job.sql").write_text(JOB.format(folder=folder))
    (folder / "nth_geo.py").write_text("from lookup_connectors.memory import MemoryConnector\n")
    (folder / "bin").mkdir()
    program = folder / "bin" / "spark-submit"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)


def _command(*words: str) -> Callable[[Path], Any]:
    """A command, with ``{}`` for the folder; gives what it printed."""

    def run(folder: Path) -> Any:
        arguments = [each.replace("{}", str(folder)) for each in words]
        said, told = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(said),
            redirect_stderr(told),
            mock.patch.dict(
                os.environ, {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(folder)}
            ),
            mock.patch.object(tempfile, "tempdir", str(folder)),
            mock.patch.object(archive, "_PACKAGES", ("json",)),
        ):
            code = main(arguments)
        if code:
            raise CommandFailed(said.getvalue() + told.getvalue())
        made = folder / "made.zip"
        return said.getvalue(), made.read_bytes() if made.exists() else None, told.getvalue()

    return run


def _is_right_or_said(found: Any, right: Any) -> bool:
    """Whether a command printed what it should, or why a part is missing."""
    return bool(found[:2] == right[:2] or os.strerror(errno.EIO) in found[2])


def _commands() -> dict[str, Survivor]:
    words = {
        "check": "check {}/job.sql",
        "import of OpenAPI": "import {}/api.json",
        "import of SQLite": "import --url sqlite:///{}/people.db",
        "archive": "archive --output {}/made.zip --module {}/nth_geo.py",
        "submit, dry": "submit {}/job.sql --dry-run --module {}/nth_geo.py",
        "submit": "submit {}/job.sql --module {}/nth_geo.py",
    }
    no_stat = [each for each in SYSTEM if each.name != "stat"]  # or it would find another spark-submit
    return {
        name: Survivor(
            _command(*each.split()),
            _write_files,
            no_stat if name == "submit" else SYSTEM,
            _is_right_or_said,
            CommandFailed,
            excused="_installed_metadata.*gives|find_spark_submit|(unlink|rmdir|stat|scandir|open|close) .*run_submit.*leaves|all of .*lookup-hints-",
        )
        for name, each in words.items()
    }


MISTAKEN = "SELECT /*+ LOOKUP('table' = 'c', 'capacty' = '2') */ 1 FROM o JOIN c ON o.id = c.id;"


def _edit(folder: Path) -> Any:
    """An editor opens a script with a mistake, asks about an option, and goes; gives what it was told."""
    to_server, from_editor = os.pipe()
    place = {"line": 0, "character": MISTAKEN.index("'table'") + 2}
    messages = (
        {"id": 1, "method": "initialize", "params": {"capabilities": {}}},
        {"method": "initialized", "params": {}},
        {
            "method": "textDocument/didOpen",
            "params": {
                "textDocument": {"uri": "file:///a.sql", "languageId": "sql", "version": 1, "text": MISTAKEN}
            },
        },
        {
            "id": 2,
            "method": "textDocument/hover",
            "params": {"textDocument": {"uri": "file:///a.sql"}, "position": place},
        },
        {"id": 3, "method": "shutdown"},
        {"method": "exit"},
    )
    with open(from_editor, "wb") as sink:  # noqa: PTH123 (a pipe)
        for each in messages:
            body = json.dumps({"jsonrpc": "2.0", **each}).encode()
            sink.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    with (
        os.fdopen(to_server) as sent,
        (folder / "told").open("w") as told,
        mock.patch.object(sys, "stdin", sent),
        redirect_stdout(told),
        redirect_stderr(io.StringIO()) as said,
    ):
        code = main(["lsp"])
    if code:
        raise CommandFailed(said.getvalue())
    return set(re.findall('"contents"|"id": 3', (folder / "told").read_text()))


PATHS = {
    "dead letters": Survivor(_dead_letters("parquet"), targets=ARROW, errors=OURS, excused="probe.*leaves"),
    "dead letters as text": Survivor(
        _dead_letters("json"), targets=ARROW, errors=OURS, excused="probe.*leaves"
    ),
    "dead letters of a batch": Survivor(_dead_letters_of_batch, targets=ARROW, errors=OURS),
    **_commands(),
    "streaming queries": _supervised(REGION),
    "streaming queries that fail together": _supervised(FULL),
    "limits": Survivor(_limits, errors=(), excused=r"_file\)|leaves opened"),
    "language server": Survivor(_edit, is_right=set.issubset, through=("pygls", "lsprotocol")),
    "store": Survivor(
        _learn_and_merge,
        _learn_three,
        is_right=_is_known_or_not,
        errors=(OSError, MemoryError),
        excused=LATER,
        most_of_a_place=5,
    ),
    "task": Survivor(_task_of(), _write_names, errors=OURS, excused=LATER),
    "partial cache": Survivor(
        _task_of(cache=PartialCache(600.0, missing_ttl=30.0, max_bytes=2**26)),
        _write_names,
        errors=OURS,
        excused=LATER,
    ),
    "invalidations": Survivor(
        _task_of(cache=PartialCache(600.0, max_bytes=2**26), invalidations=INVALIDATED),
        _write_names,
        errors=OURS,
        excused=LATER,
    ),
    "full cache": Survivor(
        _task_of(whole=FullCache(PeriodicReload(600.0), max_bytes=2**26)),
        _write_names,
        errors=OURS,
        excused=LATER,
    ),
    "switching": Survivor(_task_of(switch=Switch(2, 2**26)), _write_names, errors=OURS, excused=LATER),
    "ranges": Survivor(
        _ranges_of(FullCache(PeriodicReload(600.0), max_bytes=2**26)),
        _write_names,
        errors=OURS,
        excused=LATER,
    ),
    "ranges of a run": Survivor(
        _ranges_of(FullCache(PeriodicReload(inf), max_bytes=2**26)), _write_names, errors=OURS, excused=LATER
    ),
}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", PATHS)
def test_each_call_may_fail(name: str, part: int, tmp_path: Path) -> None:
    survive(PATHS[name], tmp_path, part, PARTS).check()
