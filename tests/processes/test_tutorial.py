"""The tutorial: each of its blocks runs, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sql_examples.prepare_data import main as prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_tutorial(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(["--dir", f"{tmp_path}/data"]) == 0
    capsys.readouterr()
    page = spark.newSession()
    monkeypatch.setattr(type(spark.builder), "getOrCreate", lambda _: page)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks].count("text") == 6
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = ""
    for kind, text in blocks:
        if kind == "python":
            # Spark reads paths from where its JVM was started.
            here = text.replace("data/", f"{tmp_path}/data/")
            exec(compile(here, PAGE.name, "exec"), namespace)
            shown = capsys.readouterr().out
        elif kind == "text":
            assert text.strip() == shown.strip()
    spark.sql("DROP TABLE arriving")
