"""The SQL examples are right as far as their text goes, and their data can be made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lookup_hints.hints.hint_comments import lookup_hints
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import read_script, split_statements
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from sql_examples.prepare_data import main

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "sql_examples").glob("*.sql"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_creates_lookup_tables_and_hints_at_them(path: Path) -> None:
    texts = [statement.text for statement in split_statements(read_script(path))]
    assert any(isinstance(parse_ddl(SqlText(text)), CreateLookupTable) for text in texts)
    assert any(lookup_hints(SqlText(text)) for text in texts)


@pytest.mark.work(3)
def test_the_data_of_the_examples_is_made_and_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["--dir", str(tmp_path / "data")]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "flights: 336,776 rows in 4 Parquet files",
            "planes: 3,322 rows in SQLite, by tailnum",
            "airports: 1,458 rows in SQLite, by faa",
            "airlines: 16 rows in SQLite, by carrier",
            "weather: 26,115 rows in SQLite, by origin and time_hour",
        ]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "dimensions.sqlite",
        "flights.parquet",
    ]
    flights = pq.read_table(
        tmp_path / "data" / "flights.parquet", columns=["dep_time", "time_hour", "tailnum"]
    )
    assert [str(column.type) for column in flights.schema] == ["int32", "timestamp[us, tz=UTC]", "string"]
    assert flights["tailnum"].null_count == 2512
    with closing(sqlite3.connect(tmp_path / "data" / "dimensions.sqlite")) as database:
        first = database.execute("SELECT origin, min(time_hour), wind_gust FROM weather").fetchone()
    assert first == ("EWR", "2013-01-01 06:00:00", None)
