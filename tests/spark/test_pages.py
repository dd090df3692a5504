"""The examples of the pages run, and show what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_on_dataframes(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall((DOCS / "dataframe.md").read_text(encoding="utf-8"))
    assert len(blocks) > 6
    _run(blocks, "dataframe.md", spark, capsys)


def test_the_keys_of_the_page_on_security_are_shown_and_hidden(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its other examples are tried in ``tests/servers/connectors/test_security_page.py``."""
    blocks = BLOCK.findall((DOCS / "security.md").read_text(encoding="utf-8"))
    _run(blocks[:2], "security.md", spark, capsys)


def test_the_example_of_the_connector_adbc(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "connectors.md").read_text(encoding="utf-8")
    section = page.partition("\n## adbc\n")[2].partition("\n## ")[0]
    blocks = BLOCK.findall(section)
    assert [kind for kind, _ in blocks] == ["", "python", ""]
    _run(blocks[1:], "connectors.md", spark, capsys)


def _run(
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
