"""What a statement is: one of ours, EXPLAIN, a streaming INSERT, or whatever else is Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lookup_hints.errors import NotAllowed, OptionError, Problem, QueryError, Span, did_you_mean, nearest
from lookup_hints.spi import flink
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.flink import instead_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Option, Place, bad_value
from lookup_hints.spi.security_policy import policy_of_configuration
from lookup_hints.sql.lexer import Kind, Piece, blanked, code, pieces
from lookup_hints.streaming.insert import StreamInsert, names_a_stream, read_insert, shown_insert
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.tables.ddl import Ddl, ShowCreateTable, parse_ddl, shown_statement

SESSION_KEYS: dict[str, Option] = {
    key: option
    for option in (*LOOKUP_OPTIONS, *SESSION_OPTIONS, *STREAM_OPTIONS, *RESTART_OPTIONS)
    if Place.SESSION in option.places
    for key in option.session_keys
}
"""What SET and ``--conf`` may give of ours, by each of its names."""
_OURS = re.compile(
    r"(spark\.)?((lookup|table\.exec\.async-lookup|restart-strategy)\.|restart-strategy$|table\.dml-sync$"
    r"|(jobmanager\.)?execution\.failover-strategy$)",
    re.IGNORECASE,
)
_SET = re.compile(r"\s*SET\s+(['\"`]?)(?P<key>[\w.-]+)\1\s*=\s*(?P<value>.*)", re.IGNORECASE | re.DOTALL)
_SECURITY = "lookup.security."
_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")


def own_setting(text: str) -> tuple[str, str] | None:
    """Key and value of a SET of one of our options, or None for any other statement.

    Spark's own SET takes no bare key with a dash in it; Flink's quotes both (``SET 'k' = 'v'``).

    >>> own_setting("SET table.exec.async-lookup.timeout = 10 s -- enough")
    ('table.exec.async-lookup.timeout', '10 s')

    Raises:
        OptionError: no option has that key, though it looks like one of ours, or the value is bad.
        NotAllowed: it is a switch of ``lookup.security``.
    """
    match = _SET.fullmatch(_without_comments(text)) if _begins(text, "SET") else None
    if match is None or not _is_ours(match["key"]):
        return None
    key, written = match["key"], match["value"].rstrip("; \t\r\n")
    key_at = Span(text, *match.span("key"))
    if key.lower().removeprefix("spark.").startswith(_SECURITY):
        tip = "Ask the administrator, who sets it when Spark starts."
        raise NotAllowed(Problem(f"{key!r} cannot be changed by a statement.", key_at, tip))
    found = pieces(written)
    value = found[0].value if len(found) == 1 and found[0].kind is Kind.STRING else written
    _check(key, value, key_at, Span(text, match.start("value"), match.start("value") + len(written)))
    return key, value


def check_configuration(key: str, value: str) -> None:
    """Refuse what is given to Spark at its start, if it looks like an option of ours and is none."""
    if key.removeprefix("spark.").startswith(_SECURITY):
        policy_of_configuration({key: value})
    elif _is_ours(key):
        _check(key, value, None, None)


def _check(key: str, value: str, key_at: Span | None, value_at: Span | None) -> None:
    option = SESSION_KEYS.get(key)
    if option is None:
        known = [each for each in SESSION_KEYS if _family(each) == _family(key.lower())]
        raise OptionError(_unknown(key, key_at, known))
    try:
        option.type.parse(value)
    except ValueError as error:
        raise OptionError(replace(bad_value(option, key, value, error), at=value_at)) from None


def _is_ours(key: str) -> bool:
    """Whether a key is one of ours, looks like it, or is Flink's: of that, Spark would take no notice."""
    of_flink = {**flink.SESSION_OPTIONS, **flink.OTHER_SESSION_OPTIONS}
    return bool(_OURS.match(key)) or bool(_of_flink(key, of_flink))


def _of_flink(key: str, options: Mapping[str, str]) -> str:
    return instead_of(key.lower().removeprefix("spark."), options)


def _unknown(key: str, at: Span | None, known: list[str]) -> Problem:
    tip = (
        _of_flink(key, flink.SESSION_OPTIONS)
        or did_you_mean(key, known)
        or _of_flink(key, flink.OTHER_SESSION_OPTIONS)
        or nearest(key, known)
    )
    return Problem(f"No session option is called {key!r}.", at, tip)


def _family(key: str) -> tuple[bool, str]:
    """With the prefix or not, and the first word after it: what a mistyped key may have meant."""
    return key.startswith("spark."), key.removeprefix("spark.").partition(".")[0]


def explained(text: str) -> tuple[str, str] | None:
    """What an EXPLAIN statement explains, and its mode; None for any other statement.

    What stands before it is turned into spaces, so that places stay true.

    >>> explained("EXPLAIN COST SELECT 1")
    ('             SELECT 1', 'cost')
    """
    found = [piece for piece in pieces(text) if piece.kind is not Kind.COMMENT]
    if not (found and found[0].is_word("EXPLAIN")):
        return None
    has_mode = len(found) > 1 and found[1].is_word(*_MODES)
    mode = found[1].text.lower() if has_mode else "formatted"
    return blanked(text, 0, found[has_mode].end), mode


def _begins(text: str, word: str) -> bool:
    first = next((piece for piece in pieces(text) if piece.kind is not Kind.COMMENT), None)
    return first is not None and first.is_word(word)


def _without_comments(text: str) -> str:
    for piece in pieces(text):
        if piece.kind is Kind.COMMENT:
            text = blanked(text, piece.start, piece.end)
    return text


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
    words = (piece.text.upper() for piece in code(pieces(text))[:5])
    return SparkStatement(tuple(words)) if inner is None else Explain(*inner)


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
    is_label = len(found) > 1 and found[1].is_symbol(":")
    if not found or found[0].kind is not Kind.WORD or is_label:
        return None
    word = found[0].text.upper()
    if word in FIRST_WORDS:
        return None
    near = get_close_matches(word, FIRST_WORDS, n=1, cutoff=_AS_CLOSE)
    if near:
        at = Span(text, found[0].start, found[0].end)
        raise QueryError(Problem(f"No statement begins with {word}.", at, f"Did you mean {near[0]}?"))
    return f"not checked: no statement of Spark's own begins with {word}"


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
