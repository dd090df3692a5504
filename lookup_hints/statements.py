"""Split a script into statements, find its parameters, and determine the kind of each statement.

A statement is one of ours, EXPLAIN, a streaming INSERT, or any other of Spark's. It ends at ``;`` outside of
strings, quoted names, comments and hints. A SQL script (``BEGIN ... END``) is one statement with all ``;`` in
it. Nothing runs here.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from lookup_hints.errors import (
    NotAllowed,
    OptionError,
    Problem,
    QueryError,
    Span,
    counted,
    did_you_mean,
    nearest,
)
from lookup_hints.spi import flink
from lookup_hints.spi.arrow_types import TIMESTAMP
from lookup_hints.spi.flink import instead_of
from lookup_hints.spi.lookup_options import INIT, LOOKUP_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.option_values import Option, Place, bad_value
from lookup_hints.spi.secrets import masked_text
from lookup_hints.spi.security_policy import policy_of_configuration
from lookup_hints.sql.lexer import Kind, Piece, blanked
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.words import FIRST_WORDS
from lookup_hints.streaming.insert import StreamInsert, names_a_stream, read_insert, shown_insert
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS
from lookup_hints.tables.ddl import Ddl, ShowCreateTable, parse_ddl, shown_statement

SESSION_KEYS: dict[str, Option] = {
    key: option
    for option in (*LOOKUP_OPTIONS, *SESSION_OPTIONS, *STREAM_OPTIONS, *RESTART_OPTIONS)
    if Place.SESSION in option.places
    for key in option.session_keys
}
"""Our options for SET and ``--conf``, by each of their names."""
_OURS = re.compile(
    r"(spark\.)?((lookup|table\.exec\.async-lookup|restart-strategy)\.|restart-strategy$|table\.dml-sync$"
    r"|(jobmanager\.)?execution\.failover-strategy$)",
    re.IGNORECASE,
)
_SET = re.compile(r"\s*SET\s+(['\"`]?)(?P<key>[\w.-]+)\1\s*=\s*(?P<value>.*)", re.IGNORECASE | re.DOTALL)
_SECURITY = "lookup.security."
ESTIMATE = "estimate"
"""The mode of EXPLAIN that counts left sides, and is not Spark's."""
EXPLAIN_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED", "ESTIMATE")


def own_setting(text: SqlText) -> tuple[str, str] | None:
    """Key and value of a SET of one of our options, or None for any other statement.

    Spark's own SET takes no bare key with a dash in it; Flink's quotes both (``SET 'k' = 'v'``).

    >>> own_setting(SqlText("SET table.exec.async-lookup.timeout = 10 s -- enough"))
    ('table.exec.async-lookup.timeout', '10 s')

    Raises:
        OptionError: no option has that key, though it looks like one of ours, or the value is bad.
        NotAllowed: it is a switch of ``lookup.security``.
    """
    match = _SET.fullmatch(_without_comments(text)) if text.starts_with("SET") else None
    if match is None or not _is_ours(match["key"]):
        return None
    key, written = match["key"], match["value"].rstrip("; \t\r\n")
    key_at = Span(text, *match.span("key"))
    if key.lower().removeprefix("spark.").startswith(_SECURITY):
        tip = "Ask the administrator, who sets it when Spark starts."
        raise NotAllowed(Problem(f"{key!r} cannot be changed by a statement.", key_at, tip))
    if key.lower().removeprefix("spark.") == INIT.session_key:
        tip = "Set it where Spark starts, or run its statements."
        raise OptionError(Problem(f"{key!r} is read when a session starts, not later.", key_at, tip))
    found = SqlText(written).pieces
    value = found[0].value if len(found) == 1 and found[0].kind is Kind.STRING else written
    _check_setting(key, value, key_at, Span(text, match.start("value"), match.start("value") + len(written)))
    return key, value


def check_configuration(key: str, value: str) -> None:
    """Refuse a setting at Spark's start that looks like an option of ours, but is none."""
    if key.removeprefix("spark.").startswith(_SECURITY):
        policy_of_configuration({key: value})
    elif _is_ours(key):
        _check_setting(key, value, None, None)


def _check_setting(key: str, value: str, key_at: Span | None, value_at: Span | None) -> None:
    option = SESSION_KEYS.get(key)
    if option is None:
        known = [each for each in SESSION_KEYS if _prefix_and_word(each) == _prefix_and_word(key.lower())]
        tip = (
            _of_flink(key, flink.SESSION_OPTIONS)
            or did_you_mean(key, known)
            or _of_flink(key, flink.OTHER_SESSION_OPTIONS)
            or nearest(key, known)
        )
        raise OptionError(Problem(f"No session option is called {key!r}.", key_at, tip))
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


def _prefix_and_word(key: str) -> tuple[bool, str]:
    """Whether ``key`` has our prefix, and its first word after that, for suggestions."""
    return key.startswith("spark."), key.removeprefix("spark.").partition(".")[0]


def explained(text: SqlText) -> tuple[SqlText, str] | None:
    """The statement inside an EXPLAIN, and the mode; None for any other statement.

    The text before it becomes blanks, so that places stay the same.

    >>> explained(SqlText("EXPLAIN COST SELECT 1"))
    ('             SELECT 1', 'cost')
    """
    if not text.starts_with("EXPLAIN"):
        return None
    has_mode = text.code.is_word(1, *EXPLAIN_MODES)
    mode = text.code[1].text.lower() if has_mode else "formatted"
    return text.blank_before(text.code[has_mode].end), mode


def _without_comments(text: SqlText) -> str:
    shown: str = text
    for piece in text.pieces:
        if piece.kind is Kind.COMMENT:
            shown = blanked(shown, piece.start, piece.end)
    return shown


_AS_CLOSE = 0.75


@dataclass(frozen=True)
class Setting:
    """``SET key = value`` of one of our options."""

    key: str
    value: str


@dataclass(frozen=True)
class Explain:
    """``EXPLAIN [mode] text``; places in ``text`` are those of the statement."""

    text: SqlText = field(repr=False)
    mode: str


@dataclass(frozen=True)
class SparkStatement:
    """A query, or anything else that Spark reads; ``words`` are its first five pieces, in capitals."""

    words: tuple[str, ...] = field(repr=False)  # of SET, a password may be one


StatementKind = Setting | Explain | Ddl | StreamInsert | SparkStatement


def read_statement(
    text: SqlText, is_ours: Callable[[Ddl], bool] = lambda _: True, timestamp: pa.DataType = TIMESTAMP
) -> StatementKind:
    """The kind of ``text``: decided only here, for the session and all other callers.

    >>> read_statement(SqlText("EXPLAIN COST SELECT 1")).mode
    'cost'

    Args:
        text: one statement.
        is_ours: whether DDL is about a lookup table, by the names in a catalog
            (``LookupCatalog.concerns``). Any other is Spark's.
        timestamp: the meaning of TIMESTAMP in this session.

    Raises:
        QueryError: it is one of ours, and invalid.
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
    words = (piece.text.upper() for piece in text.code[:5])
    return SparkStatement(tuple(words)) if inner is None else Explain(*inner)


def gives_text(statement: StatementKind) -> bool:
    """Whether the result of a statement is a text of several lines rather than rows."""
    if isinstance(statement, SparkStatement):
        return statement.words[:3] == ("SHOW", "CREATE", "TABLE")
    return isinstance(statement, Explain | ShowCreateTable)


def shown_text(text: SqlText) -> str:
    """``text`` as it may be shown: the values of options that it gives are masked, places stay true."""
    return shown_insert(shown_statement(text))


def check_first_word(text: SqlText) -> str | None:
    """A note where ``text`` begins with a word that begins no statement known here; an extension may know it.

    Raises:
        QueryError: it is nearly a word that does: ``SELEC``.
    """
    first = text.code.piece_at(0)
    if first is None or first.kind is not Kind.WORD or text.code.is_symbol(1, ":"):
        return None
    word = first.text.upper()
    if word in FIRST_WORDS:
        return None
    near = get_close_matches(word, FIRST_WORDS, n=1, cutoff=_AS_CLOSE)
    if near:
        at = Span(text, first.start, first.end)
        raise QueryError(Problem(f"No statement begins with {word}.", at, f"Did you mean {near[0]}?"))
    return f"not checked: no statement of Spark's own begins with {word}"


def parameters(text: SqlText) -> list[tuple[str, Span]]:
    """The name and place of each parameter marker ``:name`` of a statement.

    >>> [name for name, _ in parameters(SqlText("SELECT v:a.b FROM t WHERE day = :day LIMIT :n"))]
    ['day', 'n']
    """
    code = text.code
    found = []
    for at in code.places(":", 0, len(code) - 2):
        mark, name, before = code[at], code[at + 1], code.piece_at(at - 1)
        may_end_value = before is not None and (before.is_name or before.text in (")", "]"))
        # v:a is a field of v, and label: a label.
        is_part = before is not None and before.end == mark.start and may_end_value
        if name.is_name and mark.end == name.start and not is_part:
            found.append((name.name, Span(text, mark.start, name.end)))
    return found


# The rewrite moves conditions about, so `?` would bind to wrong places; named parameters stay where they
# belong. (docs/decisions/0005)
def named_parameters(text: SqlText, args: Sequence[Any]) -> tuple[SqlText, dict[str, Any]]:
    """``?`` markers as named ones: the rewrite moves text about, and positions would change.

    Raises:
        QueryError: there are more or fewer markers than values.
    """
    out, at = [], 0
    markers = [piece for piece in text.code if piece.is_symbol("?")]
    if len(markers) != len(args):
        first_without = [Span(text, marker.start, marker.end) for marker in markers[len(args) :]]
        there = f"{counted(len(markers), 'parameter marker')} (?) and {counted(len(args), 'value')}"
        tip = "Each marker takes one value, in the order of the text."
        place = first_without[0] if first_without else None
        raise QueryError(Problem(f"There are {there} for them.", place, tip))
    for number, marker in enumerate(markers):
        out += [text[at : marker.start], f":__p{number}"]
        at = marker.end
    named = {f"__p{number}": value for number, value in enumerate(args)}
    return SqlText("".join([*out, text[at:]])), named


@dataclass(frozen=True)
class ScriptStatement:
    """One statement of a script."""

    text: SqlText = field(repr=False)  # DDL may hold a password
    offset: int
    line: int
    column: int = field(default=1, compare=False)  # implied by the offset


def split_statements(text: str) -> list[ScriptStatement]:
    """The statements of a script, in order, without empty ones and mere comments.

    >>> [statement.text for statement in split_statements("SET a = 1; SELECT ';' -- ;")]
    ['SET a = 1', "SELECT ';' -- ;"]

    Raises:
        QueryError: a quote, a comment or a BEGIN is never closed.
    """
    script = SqlText(text)
    _refuse_unclosed(script)
    solid = [piece.start for piece in script.pieces if piece.kind is not Kind.COMMENT]
    statements: list[ScriptStatement] = []
    start = 0
    for end in _ends_of_statements(script):
        first = bisect_left(solid, start)
        if first < len(solid) and solid[first] < end:
            at = solid[first]
            begins = Span(text, at, end)
            length = len(text[at:end].rstrip())
            part = script.part(at, at + length)
            statements.append(ScriptStatement(part, at, begins.line, begins.column))
        start = end + 1
    return statements


def read_script(path_or_text: str | os.PathLike[str]) -> str:
    """The script in a file, if ``path_or_text`` is the path of one, else ``path_or_text`` itself.

    Raises:
        QueryError: it ends with ``.sql`` and there is no such file, or the file cannot be read.
    """
    if isinstance(path_or_text, str) and not _is_path(path_or_text):
        return path_or_text
    path = Path(path_or_text)
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        tip = nearest(path.name, sorted(other.name for other in path.parent.glob("*.sql")))
        raise QueryError(Problem(f"There is no file {str(path)!r}.", tip=tip)) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise QueryError(Problem(f"The file {str(path)!r} cannot be read: {why}.")) from error


def parse_params(params: Iterable[str]) -> dict[str, Any]:
    """The values of ``name=value`` parameters, typed as Spark SQL types the same literals.

    >>> parse_params(["n=5", "share=0.5", "day=2013-01-01", "code='007'"])
    {'n': 5, 'share': Decimal('0.5'), 'day': '2013-01-01', 'code': '007'}

    Raises:
        QueryError: all that are not ``name=value``, or give a name twice.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for param in params:
        name, sign, value = param.partition("=")
        name = name.strip()
        if not sign or not name.isidentifier():
            problems.append(Problem(f"The parameter {param!r} is not name=value.", tip="Write it as in n=5."))
        elif name in values:
            problems.append(Problem(f"The parameter {name!r} is given twice."))
        else:
            values[name] = _param_value(value.strip())
    if problems:
        raise QueryError(problems)
    return values


# --- splitting -------------------------------------------------------------------------------------


def _refuse_unclosed(text: SqlText) -> None:
    found = text.pieces
    if found and found[-1].kind is Kind.UNCLOSED:
        is_comment = found[-1].text.startswith("/*")
        last = Span(text, found[-1].start, found[-1].start + (2 if is_comment else 1))
        message = f"This {'comment' if is_comment else 'quote'} is never closed."
        at = last if is_comment else _likely_opening(text, last)
        if at != last:
            message = f"A quote is never closed, probably this one. Read so, the last one opens at {last}."
        if masked_text(at.underlined()) != at.underlined():
            # The line holds a password: say where, and no more.
            raise QueryError(Problem(f"{at}: {message}"))
        raise QueryError(Problem(message, at))


# After a quote that is not closed, each opening quote closes: a text goes over lines, a word touches its end.
def _likely_opening(text: SqlText, last: Span) -> Span:
    """Where the quote opened that makes ``last`` one that is never closed."""
    over_lines = [
        piece
        for piece in text.pieces
        if piece.kind in (Kind.STRING, Kind.QUOTED)
        and piece.text[-1] == text[last.start]
        and "\n" in piece.text
    ]
    touched = [piece for piece in over_lines if re.match(r"\w", text[piece.end :][:1])]
    likely = [*touched[:1], *over_lines[-1:]]
    return Span(text, likely[0].start, likely[0].start + 1) if likely else last


def _ends_of_statements(text: SqlText) -> Iterator[int]:
    """Where statements end: at each ``;`` outside a SQL script, and at the end of the text."""
    blocks = _Blocks(text.code)
    for index, piece in enumerate(text.code):
        if piece.is_symbol(";") and not blocks.open:
            yield piece.start
        blocks.read(index)
    if blocks.open:
        word = blocks.open[-1].word
        end = "END" if word.is_word("BEGIN") or blocks.open[-1].is_expression else f"END {word.text.upper()}"
        at = Span(text, word.start, word.end)
        raise QueryError(Problem(f"This {word.text} is never closed.", at, tip=f"Write {end} where it ends."))
    yield len(text)


@dataclass(frozen=True)
class _ScriptBlock:
    """An open block of a SQL script: the word that opens it, and whether it is a CASE expression."""

    word: Piece
    is_expression: bool = False


class _Blocks:
    """Follows a SQL script and knows which of its blocks are open.

    Most of the words that open and close blocks are also names of functions and columns (``IF``,
    ``REPEAT``, ``end``), so they count only where a statement begins.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.open: list[_ScriptBlock] = []
        self._begins = True
        self._declares = False

    def read(self, at: int) -> None:
        """Take the piece at ``at`` into account, which follows the last one."""
        piece = self._tokens[at]
        begins, self._begins = self._begins, self._next_begins(at)
        if piece.is_symbol(";"):
            self._declares = False
        elif piece.kind is not Kind.WORD or self._tokens.is_symbol(at - 1, "."):
            return
        elif piece.is_word("END"):
            self._close_block(begins, at)
        elif self._opens_block(piece, begins):
            self.open.append(_ScriptBlock(piece))
            self._begins = piece.is_word("BEGIN", "LOOP", "REPEAT")
        elif piece.is_word("CASE") and self.open and not self._tokens.is_word(at - 1, "END"):
            self.open.append(_ScriptBlock(piece, is_expression=True))
        elif begins and piece.is_word("DECLARE"):
            self._declares = True

    def _next_begins(self, at: int) -> bool:
        piece = self._tokens[at]
        if piece.is_symbol(";"):
            return True
        is_label = piece.is_symbol(":") or self._tokens.is_symbol(at + 1, ":")
        if self._begins and (is_label or piece.is_word("NOT", "ATOMIC")):
            return True
        if not self.open or self.open[-1].is_expression:
            return False
        inside = self.open[-1].word
        return (inside.is_word("IF", "CASE") and piece.is_word("THEN", "ELSE")) or (
            inside.is_word("WHILE", "FOR") and piece.is_word("DO")
        )

    def _opens_block(self, piece: Piece, begins: bool) -> bool:
        if piece.is_word("BEGIN"):
            # DECLARE ... HANDLER FOR ... BEGIN ... END holds a block in the middle of a statement.
            return begins or self._declares
        return begins and bool(self.open) and piece.is_word("IF", "CASE", "WHILE", "LOOP", "REPEAT", "FOR")

    def _close_block(self, begins: bool, at: int) -> None:
        if not self.open:
            return
        block = self.open[-1]
        # UNTIL <condition> END REPEAT: the one END of a block that begins no statement.
        ends_repeat = block.word.is_word("REPEAT") and self._tokens.is_word(at + 1, "REPEAT")
        if begins or block.is_expression or ends_repeat:
            self.open.pop()


# --- files and parameters --------------------------------------------------------------------------


def _is_path(text: str) -> bool:
    if "\n" in text or "\0" in text:
        return False
    if text.lower().endswith(".sql"):
        return True
    try:
        return Path(text).is_file()
    except OSError:  # longer than the system allows for a name
        return False


_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+)")
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_WORDS = {"true": True, "false": False, "null": None}


def _param_value(text: str) -> Any:
    found = SqlText(text).pieces
    if len(found) == 1 and found[0].kind is Kind.STRING:
        return found[0].value
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for pattern, kind in ((_INTEGER, int), (_DECIMAL, Decimal), (_DOUBLE, float)):
        if pattern.fullmatch(text):
            return kind(text)
    return text
