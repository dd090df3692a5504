"""`spark.lookup.init`: the tables of a session are there before its first statement."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession
from lookup_hints.errors import OptionError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """-- the tables of all jobs
CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]');

CREATE TEMPORARY TABLE towns (zip STRING, town STRING) WITH ('connector' = 'memory', 'rows' = '[["1", "Ulm"]]');
"""


def session_with(spark: SparkSession, init: object) -> LookupSession:
    own = spark.newSession()
    own.conf.set("spark.lookup.init", str(init))
    return LookupSession(own)


def test_a_file_is_run_before_the_first_statement(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(TABLES, encoding="utf-8")
    session = session_with(spark, file)
    joined = session.sql("SELECT p.name FROM range(3) r JOIN people p ON r.id = p.id")
    assert {row.name for row in joined.collect()} == {"Ann", "Bob"}
    file.write_text("no longer read", encoding="utf-8")
    assert [table.name for table in LookupSession(session.spark).tables()] == ["people", "towns"]


def test_a_function_is_called_with_the_session(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables_of_a_function.py").write_text(
        f'def create(session):\n    for part in """{TABLES}""".split(";")[:2]:\n        session.sql(part)\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    session = session_with(spark, "tables_of_a_function:create")
    assert [table.name for table in session.tables()] == ["people", "towns"]


def test_all_threads_wait_for_the_one_that_creates_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(TABLES, encoding="utf-8")
    session = session_with(spark, file)
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: session.sql("SELECT * FROM people").count(), range(8)))
    assert counts == [2] * 8


def test_a_mistake_names_file_and_line_until_it_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(TABLES.replace("town STRING", "town STRNG"), encoding="utf-8")
    session = session_with(spark, file)
    for _ in range(2):
        with pytest.raises(
            QueryError, match=f"^lookup.init: {re.escape(str(file))}, line 5, column 48: .*STRNG"
        ):
            session.sql("SELECT 1")
    file.write_text(TABLES, encoding="utf-8")
    assert session.sql("SELECT * FROM people").count() == 2, "the table made before the mistake is made again"


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (
            "CREATE TEMPORARY TABLE t (id BIGINT) WITH ('connector' = 'memory', 'rowz' = '')",
            "line 2: table t: ",
        ),
        ("SELECT nothing", "line 2: AnalysisException: .*nothing"),
        ("SELECT 'open", r"line 2, column 8: This quote is never closed"),
    ],
)
def test_each_kind_of_mistake_in_a_file(spark: SparkSession, tmp_path: Path, init: str, message: str) -> None:
    file = tmp_path / "tables.sql"
    file.write_text(f"-- first\n{init}", encoding="utf-8")
    with pytest.raises(QueryError, match=f"^lookup.init: {re.escape(str(file))}, {message}"):
        session_with(spark, file).tables()


def test_each_kind_of_mistake_in_a_function(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "failing_tables.py"
    module.write_text(
        "\ndef create(session):\n    session.sql('CREATE TEMPORARY TABLE t')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(QueryError, match=f"^lookup.init: {re.escape(str(module))}, line 3: "):
        session_with(spark, "failing_tables:create").sql("SELECT 1")
    with pytest.raises(
        QueryError, match=r"the module failing_tables has no function 'make'\. Write there: def make"
    ):
        session_with(spark, "failing_tables:make").sql("SELECT 1")
    with pytest.raises(QueryError, match="the module nowhere cannot be imported: ModuleNotFoundError"):
        session_with(spark, "nowhere:create").sql("SELECT 1")
    with pytest.raises(QueryError, match=r"^lookup.init: There is no file 'nowhere.sql'"):
        session_with(spark, "nowhere.sql").sql("SELECT 1")


def test_it_cannot_be_set_later(spark: SparkSession) -> None:
    session = LookupSession(spark.newSession())
    with pytest.raises(
        OptionError, match=r"'lookup.init' is read when a session starts, not later\. Set it where"
    ):
        session.sql("SET lookup.init = 'os:abort'")
