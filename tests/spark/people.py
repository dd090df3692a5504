"""The lookup table ``people``, under its name in Spark, and what Spark says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookup_hints import disable, enable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PEOPLE = [(1, "Ann"), (2, "Bob"), (2, "Bea"), (5, None)]


def enabled_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, enabled until the end."""
    session = spark.newSession()
    enable(session)
    yield session
    disable(session)


def create(spark: SparkSession, folder: Path, options: str = "", *, replace: bool = False) -> None:
    rows = json.dumps(PEOPLE)
    spark.sql(
        f"CREATE {'OR REPLACE' if replace else ''} TEMPORARY TABLE people (id BIGINT, name STRING,"
        f" PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tests.spark.counting:CountingConnector',"
        f" 'rows' = '{rows}', 'log' = '{folder}/log' {options})"
    )


def calls(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def answer(frame: DataFrame) -> tuple[list[tuple[str, str]], list[str]]:
    return frame.dtypes, sorted(map(str, map(tuple, frame.collect())))


def plain_people(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(PEOPLE, "id BIGINT, name STRING")
