"""Rows as CSV, JSON and Markdown: Spark reads back exactly what it had."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import csv

from lookup_hints.cli import commands
from lookup_hints.cli.main import main
from lookup_hints.cli.result_formats import _as_csv, _as_markdown, written
from lookup_hints.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = r"""
CAST(1.10 AS DECIMAL(38, 18)) AS price, 12345678901234567890123456789.123456789BD AS large, 1e300D AS far,
double('NaN') AS nan, double('-Infinity') AS least, float(0.1) AS tenth, 9223372036854775807L AS most, true AS yes,
timestamp'2024-01-02 03:04:05.123456' AS at, timestamp'1800-01-01 00:00:00' AS old,
timestamp_ntz'2024-01-02 03:04:05.000001' AS wall, date'2024-02-29' AS day,
CAST(NULL AS STRING) AS nothing, ' a,"b"\nc|d\\ ' AS text, 'é🙂' AS wide, 'NULL' AS word
"""
NESTED = r"""
X'00FF10' AS bytes, named_struct('a', 1, 'b', CAST(NULL AS STRING), 'c', CAST(1.50 AS DECIMAL(10, 4))) AS inner,
array(1.50, NULL) AS list, map('k', X'01') AS pairs, array(timestamp'2024-01-02 03:04:05.123456') AS times
"""


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_spark_reads_its_values_back_from_json(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(f"SELECT {PLAIN}, {NESTED} FROM range(2)")
    (tmp_path / "rows.json").write_text(written(frame, kind, None), encoding="utf-8")
    reader = spark.read.schema(frame.schema).option("multiLine", kind == "json").option("mode", "FAILFAST")
    read = reader.json(str(tmp_path / "rows.json"))
    assert repr(read.collect()) == repr(frame.collect())


def test_spark_reads_its_values_back_from_csv(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(f"SELECT {PLAIN} FROM range(2)")
    (tmp_path / "rows.csv").write_text(written(frame, "csv", None), encoding="utf-8", newline="")
    reader = spark.read.schema(frame.schema).option("header", True).option("multiLine", True)
    read = reader.option("escape", '"').option("mode", "FAILFAST").csv(str(tmp_path / "rows.csv"))
    assert repr(read.collect()) == repr(frame.collect())


def test_an_empty_text_is_no_null_in_csv(spark: SparkSession) -> None:
    text = written(spark.sql("SELECT '' AS empty, CAST(NULL AS STRING) AS nothing"), "csv", None)
    assert text == 'empty,nothing\n"",\n'
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(("empty", "nothing"), pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    read = csv.read_csv(io.BytesIO(text.encode()), convert_options=options)
    assert read.to_pylist() == [{"empty": "", "nothing": None}]


def test_what_is_nested_is_json_inside_a_cell_of_csv(spark: SparkSession) -> None:
    names, *_ = written(frame := spark.sql(f"SELECT {NESTED}"), "csv", None).splitlines()
    assert names == ",".join(frame.columns)
    assert written(
        spark.sql("SELECT named_struct('a', 1.50, 'b', NULL) AS s, X'00FF' AS x"), "csv", None
    ) == ('s,x\n"{""a"":1.50,""b"":null}",AP8=\n')


def test_each_time_says_its_offset(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT timestamp'2024-07-02 03:04:05.123456' AS at, timestamp'1800-01-01 00:00:00' AS old"
    )
    assert written(frame, "csv", None) == (
        "at,old\n2024-07-02T03:04:05.123456-04:00,1800-01-01T00:00:00.000000-04:56:02\n"
    )


def test_names_may_stand_twice_but_not_in_json(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS a, 2 AS a, NULL AS `b.c`")
    assert written(frame, "csv", None) == "a,a,b.c\n1,2,\n"
    assert written(frame, "markdown", None) == "| a | a | b.c |\n| --- | --- | --- |\n| 1 | 2 | NULL |\n"
    with pytest.raises(QueryError, match="Two columns are called 'a'"):
        written(frame, "json", None)


def test_no_rows_and_few_rows(spark: SparkSession) -> None:
    assert written(spark.range(0), "json", None) == "[]\n"
    assert written(spark.range(0), "jsonl", None) == ""
    assert written(spark.range(0), "csv", None) == "id\n"
    assert written(spark.range(0, 9, 1, 1), "jsonl", 2) == '{"id":0}\n{"id":1}\n'
    assert len(written(spark.range(99), "csv", None).splitlines()) == 100


def test_cells_keep_what_separates_cells() -> None:
    assert _as_csv(["a"], [[None], [""], [" x"], ['"'], ["a,b"], ["c\rd"]]) == (
        'a\n\n""\n" x"\n""""\n"a,b"\n"c\rd"\n'
    )
    assert _as_markdown(["a|b"], [["x\ny\\"], [None]]) == "| a\\|b |\n| --- |\n| x<br>y\\\\ |\n| NULL |\n"


# --- the command -----------------------------------------------------------------------------------


def test_rows_stand_alone_on_the_standard_output(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-c", "SELECT id FROM range(0, 30, 1, 1)", "--format", "jsonl"]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [{"id": number} for number in range(30)]
    assert re.fullmatch(r"\d+\.\d s\n", printed.err)


def test_quiet_shows_rows_alone(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-c", "SELECT 1 AS one", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "+---+\n|one|\n+---+\n|  1|\n+---+\n\n"
    assert printed.err == ""
    assert main(["run", "-c", "SELECT nope", "--quiet", "--format", "csv"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "UNRESOLVED_COLUMN" in printed.err


def test_rows_go_into_a_file(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.csv"
    text = "SELECT 1 AS one; SELECT 2 AS two"
    assert main(["run", "-c", text, "--format", "csv", "--output", str(out), "--quiet"]) == 0
    assert out.read_text(encoding="utf-8") == "one\n1\ntwo\n2\n"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("file", [["-"], []])
def test_sql_may_come_through_a_pipe(
    file: list[str], spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT :n AS n"))
    assert main(["run", *file, "--param", "n=7", "--format", "csv", "--quiet"]) == 0
    assert capsys.readouterr().out == "n\n7\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-c", "SELECT 1", "job.sql"], "Both -c and a file are given: job.sql"),
        ([], "Nothing to run. Name a file, write -c 'SELECT ...', or send SQL through a pipe."),
        (["-c", "SELECT 1", "--output", "no/such/folder"], "--output: no/such/folder cannot be written"),
    ],
)
def test_wrong_use_is_told_before_spark_starts(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_start_spark", lambda *_: pytest.fail("Spark is not started"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(["run", *arguments]) == 2
    assert told in capsys.readouterr().err
