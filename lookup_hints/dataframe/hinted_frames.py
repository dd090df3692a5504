"""A LOOKUP hint in DataFrame code: ``df.join(spark.table("customers").hint("lookup"), "id")``.

Spark's own ``external_lookup`` means the same there, without options.

The hint is on the frame of the table, and what it is joined with comes later, so ``join`` and ``hint`` of the
class of DataFrames are replaced while a session is enabled. All frames but those of lookup tables go on to
PySpark's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from lookup_hints.dataframe.frames_in_text import is_frame
from lookup_hints.dataframe.join import JoinRequest, is_using, kind_of, pairs_of
from lookup_hints.errors import HintError, Problem, QueryError
from lookup_hints.hints.hint_comments import (
    EXTERNAL_LOOKUP,
    JOIN_STRATEGIES,
    LookupHint,
    conflict_of_hints,
    read_hints,
)
from lookup_hints.sql.lexer import string_literal
from lookup_hints.sql.sql_text import SqlText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE = "_lookup_hints_table"
_SPARKS_WORD = EXTERNAL_LOOKUP.lower()


@dataclass(frozen=True)
class FrameOfTable:
    """What a frame knows of the lookup table that it reads.

    Args:
        name: the table's name.
        join: joins a frame with the table by key.
        unread: the frame of the table that fails when it is read, and says why it gets there.
        hint: the options of ``.hint("lookup", ...)``; None without one.
        strategy: a hint of Spark's that chooses how it is joined, such as ``broadcast``.
    """

    name: str
    join: Callable[[DataFrame, JoinRequest], DataFrame]
    unread: Callable[[str], DataFrame]
    hint: LookupHint | None = None
    strategy: str = ""


def mark_frame(frame: DataFrame, table: FrameOfTable) -> DataFrame:
    """``frame``, which reads ``table`` and may get a hint."""
    vars(frame)[_TABLE] = table
    return frame


_OWN: dict[Any, tuple[Any, Any]] = {}
"""``join`` and ``hint`` as PySpark has them, by the class of DataFrames."""


def replace_join_and_hint(kind: Any) -> None:
    """Let ``join`` and ``hint`` of a class of DataFrames know lookup tables."""
    if kind not in _OWN:
        _OWN[kind] = kind.join, kind.hint
        kind.join, kind.hint = _join_by_key(kind.join), _hint_table(kind.hint)


def restore_join_and_hint(kind: Any) -> None:
    """Give a class of DataFrames its own ``join`` and ``hint`` back."""
    if kind in _OWN:
        kind.join, kind.hint = _OWN.pop(kind)


def _hint_table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @wraps(original)
    def hint(self: DataFrame, name: str, *parameters: Any) -> DataFrame:
        word = name.lower() if isinstance(name, str) else ""
        table: FrameOfTable | None = vars(self).get(_TABLE)
        is_strategy = word.upper() in JOIN_STRATEGIES
        if (table is None and word != "lookup") or not (is_strategy or word in ("lookup", _SPARKS_WORD)):
            return original(self, name, *parameters)
        if table is None:
            raise HintError(
                Problem(
                    "The hint 'lookup' is about a lookup table, and this DataFrame is none, or not as it is.",
                    tip="Hint first: df.join(spark.table('customers').hint('lookup'), 'id').",
                )
            )
        if is_strategy and table.hint is None:
            return mark_frame(original(self, name, *parameters), replace(table, strategy=word))
        if is_strategy or table.strategy:
            raise HintError(conflict_of_hints(repr(word), repr(table.strategy or "lookup"), table.name))
        if word == _SPARKS_WORD and parameters:
            tip = f"With options: .hint('lookup', {str(parameters[0])!r})."
            raise HintError(Problem("The hint 'external_lookup' takes no parameters.", tip=tip))
        given = _read_parameters(table.name, parameters)
        why = (
            f"The hint {word!r} on the table {table.name} has no effect here: it is for the right side of"
            f" join. Write df.join(spark.table({table.name!r}).hint({word!r}), 'id'), or leave the hint out."
        )
        return mark_frame(table.unread(why), replace(table, hint=given))

    return hint


def _join_by_key(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @wraps(original)
    def join(self: DataFrame, other: DataFrame, on: Any = None, how: str | None = None) -> DataFrame:
        table: FrameOfTable | None = vars(other).get(_TABLE) if is_frame(other) else None
        if table is None or table.hint is None:
            return original(self, other, on, how)
        names = [on] if isinstance(on, str) else on
        if not (isinstance(names, list) and names and all(isinstance(each, str) for each in names)):
            raise QueryError(
                Problem(
                    f"A join by key with {table.name} takes names of columns that both sides have.",
                    tip=f"Other keys: session.lookup_join(df, {table.name!r}, on={{'customer_id': 'id'}}).",
                )
            )
        request = JoinRequest(
            pairs=pairs_of(names),
            is_using=is_using(names),
            kind=kind_of(how or "inner", table.name),
            condition=None,
            columns=None,
            alias=table.name,
            options=table.hint.options,
            retry=None,
        )
        return table.join(self, request)

    return join


def _read_parameters(table: str, parameters: tuple[Any, ...]) -> LookupHint:
    """The options of a hint's parameters, which are ``"capacity=20"`` each, read as those of SQL are.

    Raises:
        HintError: all mistakes at once, in the hint as SQL has it.
    """
    listed = parameters[0] if len(parameters) == 1 and isinstance(parameters[0], list) else parameters
    options = [f"'table'={string_literal(table)}"]
    for each in listed:
        key, equals, value = str(each).partition("=")
        if not equals:
            raise HintError(
                Problem(
                    f"The hint 'lookup' has a parameter {each!r}.", tip="Write 'option=value': 'capacity=20'."
                )
            )
        options.append(f"{string_literal(key.strip())}={string_literal(value.strip())}")
    hints, problems = read_hints(SqlText(f"SELECT /*+ LOOKUP({', '.join(options)}) */ *"))
    if problems:
        raise HintError(problems)
    return hints[0]
