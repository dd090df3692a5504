"""DataFrames in the text of a statement: ``{orders}`` in braces, as ``spark.sql`` takes them.

The planner reads names, so a frame in braces becomes a private name, and the name becomes braces again
when the text goes to Spark: the frame is then part of the query, and no view is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from lookup_hints.errors import Problem, QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PRIVATE = "__lookup_frame_"
_NAME = re.compile(rf"\b{_PRIVATE}(\w+)\b")


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a DataFrame, classic or Connect (PySpark 3.5 has no class above both)."""
    return hasattr(value, "createOrReplaceTempView")


def named_frames(text: str, variables: Mapping[str, Any]) -> tuple[str, dict[str, DataFrame]]:
    """``text`` with a private name for each DataFrame in braces, and the DataFrames by their names.

    >>> named_frames("SELECT '{{}}' FROM {o}", {"o": frame})[0]
    "SELECT '{}' FROM __lookup_frame_o"

    Raises:
        QueryError: something other than a DataFrame is in braces.
    """
    out: list[str] = []
    frames: dict[str, DataFrame] = {}
    refused: dict[str, None] = {}
    for literal, field, form, conversion in Formatter().parse(text):
        out.append(literal)
        if field is None:
            continue
        if field in variables and is_frame(variables[field]) and not (form or conversion):
            frames[field] = variables[field]
            out.append(private_name(field))
        else:
            refused[field] = None
    if refused:
        raise variables_refused(refused)
    return "".join(out), frames


def variables_refused(names: Iterable[str]) -> QueryError:
    """The error for variables that cannot be used in braces."""
    message = (
        f"Variables in braces ({', '.join(sorted(names))}) cannot stand in a statement with a lookup table,"
        " but for DataFrames in queries."
    )
    tip = "Pass values as args= with markers (:name)."
    return QueryError(Problem(message, tip=tip))


def private_name(name: str) -> str:
    """The private name of the frame ``name`` in the planned text."""
    return f"{_PRIVATE}{name}"


def with_braces(text: str) -> str:
    """``text`` with its private names in braces again, as ``spark.sql`` takes it.

    >>> with_braces("SELECT '{}' FROM __lookup_frame_o")
    "SELECT '{{}}' FROM {o}"
    """
    return _NAME.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))


def run_over(spark: SparkSession, text: str, args: Any, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Run ``text``, which holds private names of ``frames``, by Spark's own ``sql``."""
    run: Callable[..., DataFrame] = type(spark).sql
    try:
        return run(spark, with_braces(text), args or None, **frames)
    except TypeError:  # Spark Connect takes no variables before 4.0
        for name, frame in frames.items():
            frame.createOrReplaceTempView(private_name(name))
        return run(spark, text, args or None)
