"""The doctor over files and sessions: what it finds from the driver and from workers, and its exit codes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
SET lookup.cluster-tasks = 2;
CREATE OR REPLACE TEMPORARY TABLE doctored WITH ('connector' = 'sqlite', 'path' = '{path}', 'table-name' = 'people');
SELECT p.name FROM nowhere n JOIN doctored p ON n.name = p.name;
INSERT INTO nowhere SELECT p.name FROM STREAM nowhere n JOIN doctored p ON n.id = p.id;
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [(n, f"name {n}") for n in range(2000)])
        connection.commit()
    return path


def test_a_file_whose_tables_are_well_is_looked_at_by_the_keys_of_its_queries(
    spark: SparkSession, people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.sql"
    file.write_text(SQL.format(path=people), encoding="utf-8")
    before = people.read_bytes(), sorted(tmp_path.iterdir())
    assert main(["doctor", str(file)]) == 0
    assert spark.conf.get("lookup.cluster-tasks") == "2", "what the file sets holds"
    spark.conf.unset("lookup.cluster-tasks")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "workers"
    assert lines[1].startswith("  ok      versions    driver, 1 executor: Python 3.")
    assert "doctored: sqlite" in lines
    assert f"  ok      file        driver, 1 executor: {people}." in lines
    assert [line.split(":")[0].split()[-1] for line in lines if "  lookup  " in line] == [
        *("driver", "driver", "executor", "executor")
    ]
    assert "by id: 10 lookups of keys of the table, 10 found; p50 " in out
    assert "by name: 10 lookups of keys of the table, 10 found; p50 " in out
    assert 'each request reads the whole table. CREATE INDEX by_key ON "people" ("name").' in out
    assert lines[-1] == "all is well; 1 warning"
    assert (people.read_bytes(), sorted(tmp_path.iterdir())) == before, "nothing is written"


def test_a_file_with_broken_tables_names_each(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.sql"
    file.write_text(
        "CREATE OR REPLACE TEMPORARY TABLE undiscovered WITH ('connector' = 'postgres',"
        " 'url' = 'postgresql://app:hunter2@nowhere.invalid/x');"
        "CREATE OR REPLACE TEMPORARY TABLE misspelt (id INT) WITH ('connector' = 'sqlite', 'pth' = 'x');",
        encoding="utf-8",
    )
    assert main(["doctor", str(file), "--timeout", "5"]) == 1
    out = capsys.readouterr().out
    assert "  fail    dns         driver, 1 executor: the name nowhere.invalid is not known here" in out
    assert "  fail    statement   driver: " in out
    assert "has no option 'pth'" in out
    assert out.splitlines()[-1] == "broken: misspelt, undiscovered"
    assert "hunter2" not in out


def test_what_the_driver_has_and_the_workers_lack_says_where(
    spark: SparkSession, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_HERE", str(people))
    session = LookupSession(spark.newSession())
    session.sql(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING)"
        " WITH ('connector' = 'sqlite', 'path' = '${env:ONLY_HERE}')"
    )
    report = session.doctor("people")
    assert not report.is_well
    assert "  ok      lookup      driver: by id: 10 lookups" in str(report)
    assert "  fail    options     1 executor: Table people: the environment variable 'ONLY_HERE'" in str(
        report
    )


def test_a_key_can_be_given(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.sql"
    file.write_text(
        "CREATE OR REPLACE TEMPORARY TABLE few (id BIGINT, name STRING)"
        """ WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]');""",
        encoding="utf-8",
    )
    assert main(["doctor", str(file), "--key", "id=1"]) == 0
    assert "10 lookups of the key that is given, 10 found" in capsys.readouterr().out
    assert main(["doctor", "-c", "SELECT 1"]) == 0
    assert capsys.readouterr().out == "-c: no lookup table is created in it\n"
    assert main(["doctor", str(file), "--key", "id"]) == 2
    assert main(["doctor", str(file), "--timeout", "0"]) == 2
