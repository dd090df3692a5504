"""Completion at the cursor: tables, columns, words of SQL, and options of hints, WITH and SET."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lookup_hints.errors import LookupHintsError
from lookup_hints.hints.hint_comments import EXTERNAL_LOOKUP
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.option_values import TEXT, Option, Place, options_at
from lookup_hints.sql.lexer import Kind, Piece, quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.words import FIRST_WORDS, NEVER_ALIASES, OFFERED_WORDS
from lookup_hints.statements import EXPLAIN_MODES, SESSION_KEYS
from lookup_hints.tables.registry import connector_class, connector_names, retry_predicates

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession

_BEFORE_TABLE = ("FROM", "JOIN", "INTO", "TABLE", "DESCRIBE", "DESC", "UPDATE")
_SETTING = re.compile(r"\s*SET\s+(['\"`]?)([\w.-]+)", re.IGNORECASE)
_CONNECTOR = Option("connector", TEXT, "Who asks the source.")


@dataclass(frozen=True)
class Candidate:
    """One completion at the cursor.

    Args:
        text: the text to insert.
        typed: the number of characters before the cursor that it replaces.
        meaning: a short description.
    """

    text: str
    typed: int
    meaning: str = ""


def candidates(text: str, at: int, names: CompletionNames, *, asked: bool = True) -> list[Candidate]:
    """The completions of ``text`` at the place ``at``.

    Args:
        text: the text typed so far, on both sides of the cursor.
        at: where the cursor is.
        names: the existing tables and columns.
        asked: whether the user pressed Tab; else an empty word gets no completions.
    """
    typed = SqlText(text[:at])
    start = max((piece.end for piece in typed.pieces if piece.is_symbol(";")), default=0)
    before, after = typed.part(start, at), text[at:]
    found = before.pieces
    if found and found[-1].text.startswith("--") and "\n" not in before[found[-1].end :]:
        return []
    if found and found[-1].kind is Kind.UNCLOSED:
        return list(_complete_in_unclosed(before, after, names))
    setting = re.match(r"\s*SET\s+([\w.-]*)$", before, re.IGNORECASE)
    if setting:
        ours = {key: each.meaning for key, each in SESSION_KEYS.items() if not key.startswith("spark.")}
        return _match_prefix(setting[1], ours.items())
    options = _options_of_table(before.code, before.code)
    if options is not None:
        return list(_complete_option(before.code, options, "", after))
    return _complete_name(
        before.code, SqlText(before + after), names, asked=asked, is_new=before[-1:].isspace()
    )


def _match_prefix(typed: str, offered: Iterable[tuple[str, str]]) -> list[Candidate]:
    return [
        Candidate(text, len(typed), meaning)
        for text, meaning in offered
        if text.lower().startswith(typed.lower()) and text != typed
    ]


# --- inside hints and strings ----------------------------------------------------------------------


def _complete_in_unclosed(before: SqlText, after: str, names: CompletionNames) -> Iterator[Candidate]:
    """Inside a hint or a string; a comment and a quoted name have no candidates."""
    last = before.pieces[-1]
    if last.text.startswith("/*+"):
        yield from _complete_in_hint(SqlText(last.text[3:]).code, before + after, after)
    elif last.text[0] in "'\"":
        own = _options_of_table(before.code, before.code)
        if own is not None:
            yield from _complete_option(before.code, own, before + after, after)
            return
        end = "" if after.startswith(last.text[0]) else last.text[0]
        offered = _names_of_value(Tokens(before.code[:-1]), names)
        yield from _match_prefix(last.text[1:], ((f"{name}{end}", "") for name in offered))


def _names_of_value(found: Tokens, names: CompletionNames) -> Sequence[str]:
    """What the string behind ``lookup_get(`` or ``lookup_get('table',`` may be; nothing elsewhere."""
    last = len(found) - 1
    if found.is_symbol(last, "(") and found.is_word(last - 1, "LOOKUP_GET"):
        return names.tables()
    is_second = found.is_symbol(last, ",") and found.is_word(last - 3, "LOOKUP_GET")
    return names.columns(found[last - 1].value) if is_second and found[last - 1].kind is Kind.STRING else ()


def _complete_in_hint(found: Tokens, text: str, after: str) -> Iterator[Candidate]:
    typed = found[-1].text if found and found[-1].kind is Kind.WORD else ""
    if _is_within(EXTERNAL_LOOKUP, found):
        yield from _match_prefix(typed, relations(SqlText(text)))
    elif _is_within("LOOKUP", found):
        yield from _complete_option(found, options_at(Place.HINT, LOOKUP_OPTIONS), text, after)
    elif not found or typed:
        yield from _match_prefix(typed, _HINTS.items())


_HINTS = {
    "LOOKUP('table' = '": "how a lookup table is asked",
    f"{EXTERNAL_LOOKUP}(": "Spark's own word: ask these tables",
}


def _is_within(hint: str, found: Tokens) -> bool:
    opened = max(found.places("(", 0, len(found)), default=0)
    return found.is_word(opened - 1, hint) and found.closing_if_any(opened) is None


def _complete_option(
    found: Sequence[Piece], options: Mapping[str, Option], text: str, after: str
) -> Iterator[Candidate]:
    """A key or a value of ``'key' = 'value', ...``, whose last piece may be a string that is still open."""
    is_open = found[-1].kind is Kind.UNCLOSED
    typed = found[-1].text[1:] if is_open else ""
    closed = found[:-1] if is_open else found
    quote = "" if is_open else "'"
    end = "" if is_open and after.startswith("'") else "'"
    if closed[-1].is_symbol("="):
        values = _values_of_key(closed[-2].value if closed[-2].kind is Kind.STRING else "", options, text)
        yield from _match_prefix(typed, ((f"{quote}{value}{end}", "") for value in values))
    elif closed[-1].is_symbol("(") or closed[-1].is_symbol(","):
        given = {piece.value for piece in closed if piece.kind is Kind.STRING}
        keys = ((key, option.meaning) for key, option in options.items() if key not in given)
        follows = "" if end == "" else "' = '"
        yield from _match_prefix(typed, ((f"{quote}{key}{follows}", meaning) for key, meaning in keys))


def _values_of_key(key: str, options: Mapping[str, Option], text: str) -> Sequence[str]:
    if key == "table":
        return [alias for alias, _ in relations(SqlText(text))]
    if key == "retry-predicate":
        return ("lookup_miss", "exception", *retry_predicates())
    if key == "connector":
        return connector_names()
    return options[key].type.values if key in options else ()


@dataclass(frozen=True)
class GivenOption:
    """An option as a statement gives it.

    Args:
        option: the option.
        key: its name there.
        value: its value, if the cursor is in it; else empty.
        place: the key or the value, whichever the cursor is in.
    """

    option: Option
    key: str
    value: str
    place: Cut


def option_at(text: SqlText, at: int) -> GivenOption | None:
    """The option whose key or value is at the place ``at`` of a statement."""
    setting = _SETTING.match(text)
    if setting is not None and setting.start(2) <= at < setting.end(2):
        option = SESSION_KEYS.get(setting[2].lower())
        return None if option is None else GivenOption(option, setting[2], "", Cut(*setting.span(2)))
    here = next((piece for piece in text.pieces if piece.start <= at < piece.end), None)
    if here is None:
        return None
    start, inside = (here.start + 3, SqlText(here.text[3:-2])) if here.kind is Kind.HINT else (0, text)
    found = Tokens(piece for piece in inside.code if piece.start <= at - start)
    if here.kind is not Kind.HINT:
        options = _options_of_table(found, text.code)
    else:
        options = options_at(Place.HINT, LOOKUP_OPTIONS) if _is_within("LOOKUP", found) else None
    if options is None or found[-1].kind is not Kind.STRING or at - start >= found[-1].end:
        return None
    is_value = found[-2].is_symbol("=")
    key = found[-3].value if is_value else found[-1].value
    option = next((each for name, each in options.items() if name == key or each.is_named(key)), None)
    place = Cut(start + found[-1].start, start + found[-1].end)
    return None if option is None else GivenOption(option, key, found[-1].value if is_value else "", place)


def _options_of_table(words: Tokens, whole: Tokens) -> Mapping[str, Option] | None:
    """The possible options of the open WITH clause, if it belongs to a lookup table.

    Args:
        words: the code up to the cursor.
        whole: that of the whole statement, as far as it is known.
    """
    opened = [at for at in words.places("(", 1, len(words)) if words.is_word(at - 1, "WITH")]
    if not (opened and words.is_word(0, "CREATE")) or words.closing_if_any(opened[-1]) is not None:
        return None
    given = whole[opened[-1] :]
    names = [
        value.value
        for key, value in zip(given, given[2:], strict=False)
        if key.kind is value.kind is Kind.STRING and key.value == "connector"
    ]
    own: Sequence[Option] = ()
    with suppress(LookupHintsError):  # not typed to its end, or its driver is missing
        own = connector_class(names[0]).OPTIONS if names else ()
    options = {option.key: option for option in own}
    return {"connector": _CONNECTOR, **options, **options_at(Place.TABLE, LOOKUP_OPTIONS)}


# --- names and words -------------------------------------------------------------------------------


def relations(text: SqlText) -> list[tuple[str, str]]:
    """The alias and the name of each table that ``text`` joins, as far as it is typed.

    >>> relations(SqlText("SELECT FROM orders AS o JOIN shop.customers c ON "))
    [('o', 'orders'), ('c', 'shop.customers')]
    """
    named: list[tuple[str, str]] = []
    is_from = False
    for at, piece in enumerate(text.code):
        if piece.is_word(*NEVER_ALIASES) and not piece.is_word("AS"):
            is_from = piece.is_word("FROM")
        if piece.is_word("FROM", "JOIN") or (piece.is_symbol(",") and named and is_from):
            named += _read_relation(text.code, at + 1)
    return named


def _read_relation(tokens: Tokens, at: int) -> Iterator[tuple[str, str]]:
    """The alias and the name of the table at the piece, if there is one."""
    if _is_plain_name(tokens, at):
        parts = [tokens[at].name]
        while tokens.is_symbol(at + 1, ".") and tokens.is_name(at + 2):
            at += 2
            parts.append(tokens[at].name)
        time = tokens.time_clause(at)
        at = 1 + (at if time is None else tokens.index_at(time.end - 1))
        at += tokens.is_word(at, "AS")
        yield (tokens[at].name if _is_plain_name(tokens, at) else parts[-1]), ".".join(parts)


def _is_plain_name(tokens: Tokens, at: int) -> bool:
    return tokens.is_name(at) and not tokens.is_word(at, *NEVER_ALIASES)


def _complete_name(
    found: Tokens, text: SqlText, names: CompletionNames, *, asked: bool, is_new: bool
) -> list[Candidate]:
    """A column behind an alias and a dot, a table, a column, or a word of SQL."""
    has_word = bool(found) and found[-1].is_name and not is_new
    typed = found[-1].text if has_word else ""
    before = found[:-1] if has_word else found
    if len(before) > 1 and before[-1].is_symbol(".") and before[-2].is_name:
        meant = [table for alias, table in relations(text) if alias.lower() == before[-2].name.lower()]
        return _match_prefix(typed, ((column, "") for table in meant for column in names.columns(table)))
    tables = [(table, "table") for table in names.tables()]
    if before and before[-1].is_word(*_BEFORE_TABLE):
        return _match_prefix(typed, tables)
    if not typed and not asked:
        return []
    joined = relations(text)
    columns = [(column, alias) for alias, table in joined for column in names.columns(table)]
    aliases = [(alias, "table") for alias, _ in joined]
    is_start = not before
    first: tuple[str, ...] = FIRST_WORDS
    if len(before) == 1 and before[0].is_word("EXPLAIN"):
        is_start, first = True, (*EXPLAIN_MODES, *FIRST_WORDS)
    words = [
        (word.lower() if typed.islower() else word, "")
        for word in (first if is_start else (*OFFERED_WORDS, *FIRST_WORDS))
    ]
    offered = words if is_start else [*columns, *aliases, *words]
    return _match_prefix(typed, dict.fromkeys(offered))


class CompletionNames(Protocol):
    """The names that a statement can use."""

    def tables(self) -> Sequence[str]:
        """The names of tables and views."""

    def columns(self, table: str) -> Sequence[str]:
        """The columns of a table; empty if there is no such table."""


class SessionNames:
    """The tables of a session and their columns, cached until a statement may have changed them."""

    def __init__(self, session: LookupSession) -> None:
        self._session = session
        self._tables: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        self._tables = None
        self._columns.clear()

    def tables(self) -> Sequence[str]:
        if self._tables is None:
            ours = [table.name for table in self._session.tables()]
            try:
                spark_tables = [row["tableName"] for row in self._session.spark.sql("SHOW TABLES").collect()]
            except Exception:  # the catalog cannot be listed, which is no reason to stop typing
                spark_tables = []
            self._tables = sorted({*ours, *spark_tables})
        return self._tables

    def columns(self, table: str) -> Sequence[str]:
        key = table.lower()
        if key not in self._columns:
            self._columns[key] = self._columns_of(table)
        return self._columns[key]

    def _columns_of(self, table: str) -> list[str]:
        for ours in self._session.tables():
            if ours.name.lower() == table.lower():
                return list(ours.schema.names)
        try:
            return self._session.spark.table(".".join(map(quoted, table.split(".")))).columns
        except Exception:  # no such table: a name of a CTE, or one that is not typed to its end
            return []
