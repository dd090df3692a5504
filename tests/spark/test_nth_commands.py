"""Every n-th call fails while a command or a cell runs on Spark: a right result or its cause, and nothing left behind.

``tests/nth_call.py`` says what fails, and how. In CI some of the calls fail; by hand, with
``EXAMPLES=1000`` in the environment, each fails once alone, and once with all later ones of its kind.
"""

from __future__ import annotations

import io
import os
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from traitlets.config import Config

from lookup_hints.cli.main import main
from lookup_hints.notebook.magics import CellFailed, load
from tests.kinds import EXAMPLES
from tests.nth_call import FILES, MEMORY, PROCESSES, Survivor, survive
from tests.spark.failing_calls import tables_of
from tests.spark.test_nth_calls import JVM

TABLE = """CREATE OR REPLACE TEMPORARY TABLE nth_people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'sqlite', 'path' = '{folder}/people.db', 'table-name' = 'people');
"""
QUERY = "SELECT r.id, p.name FROM range(0, 3, 1, 1) r LEFT JOIN nth_people p ON r.id = p.id"


MOST = EXAMPLES // 8
LASTING = (False, True) if EXAMPLES > 40 else (False,)


class CommandFailed(Exception):
    """A command ended with another code than 0; the text is what it said."""


def _write_files(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "people.db")) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [(0, "Ann"), (2, "Bob")])
    (folder / "job.sql").write_text(f"{TABLE.format(folder=folder)}{QUERY};\n")


_WITHOUT_FIGURES = re.compile(
    r"^ *\d +\S+$|^\{.*|^SELECT .*|^\(1\) .*|^\w+: DataFrame.*|^  (?:ok|warn|fail) +\S+", re.MULTILINE
)
"""The lines of rows, of a plan, of what a doctor found."""


def _command(*words: str) -> Callable[[Path], Any]:
    """A command, with ``{}`` for the folder; gives what it printed of what it should."""

    def run(folder: Path) -> Any:
        said, told = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(said),
            redirect_stderr(told),
            mock.patch.dict(os.environ, {"TMPDIR": str(folder)}),
            mock.patch.object(tempfile, "tempdir", str(folder)),
        ):
            code = main([each.replace("{}", str(folder)) for each in words])
        if code:
            raise CommandFailed(said.getvalue() + told.getvalue())
        rows = folder / "rows.jsonl"
        return _WITHOUT_FIGURES.findall(said.getvalue()), rows.read_bytes() if rows.exists() else None

    return run


PATHS = {
    "run": _command("run", "{}/job.sql", "--format", "jsonl", "--output", "{}/rows.jsonl"),
    "doctor": _command("doctor", "{}/job.sql"),
}


def _held_by(spark: SparkSession) -> Counter[str]:
    return Counter([*tables_of(spark), *(each.name for each in spark.streams.active)])


@pytest.mark.parametrize("name", PATHS)
def test_each_call_of_a_command_may_fail(name: str, spark: SparkSession, tmp_path: Path) -> None:
    path = Survivor(
        PATHS[name],
        _write_files,
        (*FILES, *MEMORY, *PROCESSES, JVM),
        errors=(CommandFailed, Py4JError),  # outside of a statement, Spark's stack is shown
        elsewhere=lambda: _held_by(spark),
        through=("pyspark", "py4j"),
        excused="package_versions.*gives",  # that a version is not known is a warning
    )
    survive(path, tmp_path, most=MOST, lasting=LASTING).check()


def _cell(shell: Any, line: str) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        with capture_output() as captured:
            shell.run_cell_magic("lookup_sql", line, f"{TABLE.format(folder=folder)}{QUERY}")
        text = re.sub("lookup_p_[0-9a-f]+", "lookup_p", captured.outputs[-1].data["text/plain"])
        return _WITHOUT_FIGURES.findall(text)

    return run


@pytest.fixture
def shell(spark: SparkSession) -> Iterator[Any]:
    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = InteractiveShell.instance(config=config)
    load(shell)
    shell.user_ns["spark"] = spark
    shell.kernel = None  # so that a bar is shown while a cell runs
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("line", ["", "--analyze"])
def test_each_call_of_a_cell_may_fail(line: str, spark: SparkSession, shell: Any, tmp_path: Path) -> None:
    path = Survivor(
        _cell(shell, line),
        _write_files,
        (*FILES, *MEMORY, *PROCESSES, JVM),
        errors=CellFailed,
        elsewhere=lambda: _held_by(spark),
        through=("pyspark", "py4j"),
    )
    survive(path, tmp_path, most=MOST, lasting=LASTING).check()
