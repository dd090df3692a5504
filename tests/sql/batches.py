"""Queries with and without lookup tables, many in one job of Spark: a job costs more than these queries do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from lookup_hints.errors import UnsupportedLookup
from tests.sql.trees import LOOKUPS
from tests.sql.worlds import Answer, Worlds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Each query is one task over a few rows: nothing is shuffled, compiled, or planned again at run time.
CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.crossJoin.enabled": "true",
}


@dataclass
class Both:
    """Runs queries with and without lookup tables, several in one job of Spark."""

    worlds: Worlds

    def check(self, texts: list[str]) -> None:
        """Each query must be refused or give what Spark gives without lookup tables."""
        plans = [(text, *self.frames(text)) for text in texts]
        running = [(text, plain, ours) for text, plain, ours in plans if ours is not None]
        if not running:
            return
        expected = answers([plain for _, plain, _ in running])
        actual = answers([ours for _, _, ours in running])
        for (text, _, _), wanted, given in zip(running, expected, actual, strict=True):
            given.require(wanted, text, ordered=False)

    def frames(self, text: str) -> tuple[DataFrame, DataFrame | None]:
        """The query over ordinary tables, and over lookup tables unless it is refused."""
        plain = self.worlds.plain.sql(text)
        try:
            return plain, self.worlds.world(LOOKUPS).session.sql(text)
        except UnsupportedLookup:
            return plain, None


def answers(frames: list[DataFrame]) -> list[Answer]:
    """What several frames give, from one job: each row as its frame's number and its values as texts."""
    numbered = [_as_texts(frame, number) for number, frame in enumerate(frames)]
    rows: list[list[tuple[str | None, ...]]] = [[] for _ in frames]
    for number, values in reduce(lambda one, other: one.union(other), numbered).collect():
        rows[number].append(tuple(values))
    return [
        Answer([(column.name, column.dataType.simpleString()) for column in frame.schema.fields], found)
        for frame, found in zip(frames, rows, strict=True)
    ]


def _as_texts(frame: DataFrame, number: int) -> DataFrame:
    names = [f"column_{at}" for at in range(len(frame.columns))]
    texts = ", ".join(f"string({name})" for name in names)
    return frame.toDF(*names).selectExpr(f"{number} AS number", f"array({texts}) AS texts")
