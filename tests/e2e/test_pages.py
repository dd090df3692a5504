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
    namespace: dict[str, Any] = {"spark": spark.newSession(), "__name__": "__main__"}
    shown = ""
    blocks = BLOCK.findall((DOCS / "dataframe.md").read_text(encoding="utf-8"))
    assert len(blocks) > 6
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "dataframe.md", "exec"), namespace)
            shown = capsys.readouterr().out
        else:
            assert text.strip() == shown.strip()
