"""The page on streams and its example do what they say."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lookup_hints import LookupSession
from lookup_hints.statements import split_statements
from lookup_hints.streaming.supervisor import Status
from sql_examples.prepare_data import main as prepare
from tests.spark.elsewhere import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(500)
PAGE = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
_numbers = itertools.count()


def blocks(language: str) -> list[str]:
    """The examples of the page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[LookupSession]:
    own = LookupSession(spark.newSession())
    database = f"page_{next(_numbers)}"
    own.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path}/tables'")
    own.sql(f"USE {database}")
    yield own
    own.streams.stop()
    own.sql("USE default")
    own.sql(f"DROP DATABASE {database} CASCADE")


def test_the_examples_of_the_page_run(session: LookupSession, tmp_path: Path) -> None:
    for block in blocks("sql"):
        for statement in split_statements(block.replace("/tmp/", f"{tmp_path}/")):
            session.sql(statement.text)
            if statement.text.startswith("CREATE TABLE orders"):
                session.sql("INSERT INTO orders VALUES (10, 1, 5.0), (11, 2, 6.0), (12, 3, 7.0)")
    assert session.streams.await_all(100)
    assert [stream.supervised.name for stream in session.streams.started] == ["enriched", "peek"]
    rows = session.sql("SELECT * FROM enriched ORDER BY order_id").collect()
    assert [tuple(row) for row in rows] == [(10, "Ada"), (11, "Emmy"), (12, None)]

    session.spark.readStream.table("orders").createOrReplaceTempView("arriving")
    names: dict[str, Any] = {
        "session": session,
        "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    (code,) = blocks("python")
    exec(code, names)
    assert names["query"].status is Status.FINISHED
    assert session.spark.read.parquet(names["out"]).count() == 3


def run_example(folder: Path) -> str:
    example, flights = ROOT / "sql_examples" / "stream.sql", folder / "data" / "flights.parquet"
    program = Path(sys.executable).with_name("lookup-hints")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [program, "run", example, "--param", f"flights={flights}", "--master", "local[2]"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_enriches_a_year_of_flights_and_doubles_none(tmp_path: Path) -> None:
    assert prepare(["--dir", str(tmp_path / "data")]) == 0
    assert (
        "streaming query enriched_flights into parquet.`data/enriched_flights`: finished, batches so far 4"
        in (run_example(tmp_path))
    )
    run_example(tmp_path)
    enriched = pq.read_table(tmp_path / "data" / "enriched_flights", columns=["tailnum", "seats"])
    assert enriched.num_rows == 336_776
    assert enriched["seats"].null_count == 52_606
