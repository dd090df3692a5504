"""What queries give, many of them in one job of Spark: a job costs more than these queries do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Answer:
    """Columns and rows."""

    columns: list[tuple[str, str]]
    rows: list[tuple[Any, ...]]

    @classmethod
    def of(cls, frame: DataFrame) -> Answer:
        """What ``frame`` gives when it runs."""
        return cls(described(frame), collected(frame))

    def require(self, expected: Answer, text: str, *, ordered: bool) -> None:
        """Fail where this is not ``expected``: names, types, rows, and their order where it counts."""
        assert self.columns == expected.columns, text
        missing = Counter(expected.rows) - Counter(self.rows)
        surplus = Counter(self.rows) - Counter(expected.rows)
        assert not missing and not surplus, (  # noqa: PT018 (both sides tell what went wrong)
            f"{missing.total()} rows are missing, as {_some(missing)};"
            f" {surplus.total()} are too many, as {_some(surplus)}, in\n{text}"
        )
        if ordered:
            assert self.rows == expected.rows, f"the order differs in\n{text}"


def _some(rows: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(rows)[:3]


def answers(frames: list[DataFrame]) -> list[Answer]:
    """What several frames give, from one job: each row as its frame's number and its values as texts."""
    numbered = [_as_texts(frame, number) for number, frame in enumerate(frames)]
    rows: list[list[tuple[str | None, ...]]] = [[] for _ in frames]
    # One task: each would be told all the plans, which takes longer than to run one of them.
    for number, values in _union(numbered).coalesce(1).collect():
        rows[number].append(tuple(values))
    return [
        Answer([(column.name, column.dataType.simpleString()) for column in frame.schema.fields], found)
        for frame, found in zip(frames, rows, strict=True)
    ]


def require_equal(pairs: Iterable[tuple[str, DataFrame, DataFrame]]) -> list[Answer]:
    """Run what Spark and what a lookup join make of each text, in one job: they must be equal. Returns the answers."""
    every = list(pairs)
    found = answers([frame for _, plain, ours in every for frame in (plain, ours)])
    for (text, *_), expected, actual in zip(every, found[::2], found[1::2], strict=True):
        actual.require(expected, text, ordered=False)
    return found[1::2]


def _union(frames: list[DataFrame]) -> DataFrame:
    """The frames one after the other; by halves, as Spark looks through all of each union that it makes."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


def _as_texts(frame: DataFrame, number: int) -> DataFrame:
    names = [f"column_{at}" for at in range(len(frame.columns))]
    texts = ", ".join(f"string({name})" for name in names)
    return frame.toDF(*names).selectExpr(f"{number} AS number", f"array({texts}) AS texts")


def described(frame: DataFrame) -> list[tuple[str, str]]:
    """Names and types of the columns."""
    return [(column.name, column.dataType.simpleString()) for column in frame.schema.fields]


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows as values that compare and hash: repr tells NaN, -0.0, and nested values apart."""
    return [tuple(map(_shown, row)) for row in frame.collect()]


def _shown(value: Any) -> str:
    """``value`` as text; the entries of a map have no order."""
    return repr(sorted(value.items(), key=repr) if isinstance(value, dict) else value)
