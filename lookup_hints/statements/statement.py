"""What a statement is: one of ours, EXPLAIN, a streaming INSERT, or whatever else is Spark's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.spi.types import TIMESTAMP
from lookup_hints.sql.lexer import Kind, Piece, code, pieces
from lookup_hints.statements.commands import explained, own_setting
from lookup_hints.streaming.insert import StreamInsert, names_a_stream, read_insert, shown_insert
from lookup_hints.tables.ddl import Ddl, ShowCreateTable, parse_ddl, shown_statement

# Spark's own, and those that Delta Lake, Iceberg and Hudi add.
FIRST_WORDS = (
    *("ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "CLOSE", "COMMENT", "COMMIT"),
    *("CONVERT", "COPY", "CREATE", "DECLARE", "DELETE", "DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE"),
    *("EXPLAIN", "EXPORT", "FETCH", "FROM", "GENERATE", "GRANT", "IMPORT", "INSERT", "LIST", "LOAD"),
    *("LOCK", "MAP", "MERGE", "MSCK", "UNLIMITED", "OPTIMIZE", "REDUCE", "REFRESH", "REORG", "REPAIR"),
    *("REPLACE", "RESET", "RESTORE", "REVOKE", "ROLLBACK", "SELECT", "SET", "SHOW", "START", "TABLE"),
    *("TRUNCATE", "UNCACHE", "UNLOCK", "UPDATE", "USE", "VACUUM", "VALUES", "WITH"),
)
"""What statements begin with."""
_AS_CLOSE = 0.75


@dataclass(frozen=True)
class Setting:
    """``SET key = value`` of one of our options."""

    key: str
    value: str


@dataclass(frozen=True)
class Explain:
    """``EXPLAIN [mode] text``; places in ``text`` are those of the statement."""

    text: str = field(repr=False)
    mode: str


@dataclass(frozen=True)
class SparkStatement:
    """A query, or anything else that Spark reads; ``words`` are its first five pieces, in capitals."""

    words: tuple[str, ...] = field(repr=False)  # of SET, a password may be one


Statement = Setting | Explain | Ddl | StreamInsert | SparkStatement


def read_statement(
    text: str, is_ours: Callable[[Ddl], bool] = lambda _: True, timestamp: pa.DataType = TIMESTAMP
) -> Statement:
    """What ``text`` is: the one decision, for the session and for every way in.

    >>> read_statement("EXPLAIN COST SELECT 1").mode
    'cost'

    Args:
        text: one statement.
        is_ours: whether DDL is about a lookup table, which a catalog knows by the table's name
            (``LookupCatalog.concerns``). Any other is Spark's.
        timestamp: the type that TIMESTAMP is in this session.

    Raises:
        QueryError: it is one of ours, and wrong.
    """
    if names_a_stream(text):
        return read_insert(text)
    ddl = parse_ddl(text, timestamp)
    if ddl is not None and is_ours(ddl):
        return ddl
    setting = own_setting(text)
    if setting is not None:
        return Setting(*setting)
    inner = explained(text)
    return SparkStatement(_first_words(text)) if inner is None else Explain(*inner)


def _first_words(text: str) -> tuple[str, ...]:
    return tuple(piece.text.upper() for piece in code(pieces(text))[:5])


def gives_text(statement: Statement) -> bool:
    """Whether the result of a statement is a text of several lines rather than rows."""
    if isinstance(statement, SparkStatement):
        return statement.words[:3] == ("SHOW", "CREATE", "TABLE")
    return isinstance(statement, Explain | ShowCreateTable)


def shown_text(text: str) -> str:
    """``text`` as it may be shown: the values of options that it gives are masked, places stay true."""
    return shown_insert(shown_statement(text))


def check_first_word(text: str) -> str | None:
    """A note where ``text`` begins with a word that begins no statement known here; an extension may know it.

    Raises:
        QueryError: it is nearly a word that does: ``SELEC``.
    """
    found = code(pieces(text))
    if not found or found[0].kind is not Kind.WORD or _is_label(found):
        return None
    word = found[0].text.upper()
    if word in FIRST_WORDS:
        return None
    near = get_close_matches(word, FIRST_WORDS, n=1, cutoff=_AS_CLOSE)
    if near:
        at = Span(text, found[0].start, found[0].end)
        raise QueryError(Problem(f"No statement begins with {word}.", at, f"Did you mean {near[0]}?"))
    return f"not checked: no statement of Spark's own begins with {word}"


def _is_label(found: list[Piece]) -> bool:
    return len(found) > 1 and found[1].is_symbol(":")


def parameters(text: str) -> list[tuple[str, Span]]:
    """The name and place of each parameter marker ``:name`` of a statement.

    >>> [name for name, _ in parameters("SELECT v:a.b FROM t WHERE day = :day LIMIT :n")]
    ['day', 'n']
    """
    found = code(pieces(text))
    return [
        (name.name, Span(text, mark.start, name.end))
        for at, (mark, name) in enumerate(pairwise(found))
        if mark.is_symbol(":") and name.is_name and mark.end == name.start
        # v:a is a field of v, and label: a label.
        if not (at and found[at - 1].end == mark.start and _may_end_a_value(found[at - 1]))
    ]


def _may_end_a_value(piece: Piece) -> bool:
    return piece.is_name or piece.is_symbol(")") or piece.is_symbol("]")


def named_parameters(text: str, args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """``?`` markers as named ones: the rewrite moves text about, and positions would change.

    Raises:
        QueryError: there are more or fewer markers than values.
    """
    out, at = [], 0
    markers = [piece for piece in code(pieces(text)) if piece.is_symbol("?")]
    if len(markers) != len(args):
        first_without = [Span(text, marker.start, marker.end) for marker in markers[len(args) :]]
        counted = f"{_count(len(markers), 'parameter marker')} (?) and {_count(len(args), 'value')}"
        tip = "Each marker takes one value, in the order of the text."
        place = first_without[0] if first_without else None
        raise QueryError(Problem(f"There are {counted} for them.", place, tip))
    for number, marker in enumerate(markers):
        out += [text[at : marker.start], f":__p{number}"]
        at = marker.end
    named = {f"__p{number}": value for number, value in enumerate(args)}
    return "".join([*out, text[at:]]), named


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
