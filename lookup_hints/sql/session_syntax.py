"""Rewrites of the text that depend on settings of the session, as Spark's parser makes them.

Spark substitutes variables (``${name}``) before parsing, and may read ``"a"`` as a name. The result here
means the same to Spark under these settings, and to readers that know nothing of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lookup_hints.sql.lexer import Kind, Piece, quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.with_options import option_lists

_REFERENCE = re.compile(r"\$\{(?:(\w+?):)?\S+?\}")
_LATE = ("env", "file", "conf")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


# Spark itself resolves variables, so environment, system properties and Spark Connect work without code of
# ours. (docs/decisions/0172)
def with_variables(text: SqlText, value_of: Callable[[str], str | None]) -> SqlText:
    """``text`` with its variables replaced, but for the references to secrets in lists of options.

    >>> with_variables(SqlText("SELECT ${n} FROM t"), {"${n}": "1"}.get)
    'SELECT 1 FROM t'
    """
    listed = (piece for found in option_lists(text.code) for piece in found)
    secret = [Cut(each.start, each.end) for each in listed if each.kind in (Kind.STRING, Kind.UNCLOSED)]

    def value(match: re.Match[str]) -> str:
        at = Cut(match.start(), match.end())
        is_late = match[1] in _LATE and any(cut.holds(at) for cut in secret)
        found = None if is_late else value_of(match[0])
        return match[0] if found is None else found

    made = _REFERENCE.sub(value, text)
    return text if made == text else SqlText(made)


# A text that means the same to Spark under every setting, so that our readers need none.
# (docs/decisions/0172)
def with_backquotes(text: SqlText) -> SqlText:
    """``text`` with double-quoted names in backquotes; places stay unchanged.

    In lists of options, which hold no names, double quotes are strings.

    >>> with_backquotes(SqlText('SELECT "a b" FROM t'))
    'SELECT `a b` FROM t'
    """
    in_options = {piece.start for found in option_lists(text.code) for piece in found}
    edits = (
        Edit(Cut(piece.start, piece.end), (_quoted_name(piece),))
        for piece in text.pieces
        if piece.kind is Kind.STRING and piece.text[0] == '"' and piece.start not in in_options
    )
    return text.edited(edits)


def with_identifiers(text: SqlText, value_of: Callable[[str], object]) -> SqlText:
    """``text`` with the name that each ``IDENTIFIER(expression)`` is.

    >>> with_identifiers(SqlText("SELECT * FROM IDENTIFIER(:t)"), {":t": "a.b"}.get)
    'SELECT * FROM a.b'
    """
    found = text.code
    edits = []
    for at, piece in enumerate(found):
        last = found.closing_if_any(at + 1) if piece.is_word("IDENTIFIER") else None
        if last is None or last == at + 2:
            continue
        value = value_of(text[found[at + 2].start : found[last - 1].end])
        if isinstance(value, str) and _is_name(value):
            edits.append(Edit(Cut(piece.start, found[last].end), (value,)))
    return text.edited(edits)


def _is_name(value: str) -> bool:
    parts = SqlText(value).pieces
    return bool(parts) and all(
        part.is_symbol(".") if at % 2 else part.is_name for at, part in enumerate(parts)
    )


def with_long_pipes(text: SqlText) -> SqlText:
    """``text`` with ``|>`` where ``|`` is a pipe: before the words of an operator, which end no expression.

    >>> with_long_pipes(SqlText("FROM t | WHERE a | b = 1 | LEFT JOIN u USING (k)"))
    'FROM t |> WHERE a | b = 1 |> LEFT JOIN u USING (k)'
    """
    found = text.code
    edits = (
        Edit(Cut(pipe.end, pipe.end), (">",))
        for at, pipe in enumerate(found[:-2])
        if pipe.is_symbol("|") and _begins_operator(found, at + 1)
    )
    return text.edited(edits)


def _begins_operator(found: Tokens, index: int) -> bool:
    if found.is_word(index, "LEFT", "RIGHT", "FULL", "NATURAL", "INNER", "CROSS", "SEMI", "ANTI"):
        return found.is_word(index + 1, "JOIN", "OUTER", "SEMI", "ANTI", "INNER", "LEFT", "RIGHT", "FULL")
    if found.is_word(
        index, "EXTEND", "SET", "DROP", "AS", "AGGREGATE", "LIMIT", "OFFSET", "PIVOT", "UNPIVOT"
    ):
        # A column may be called so; then a clause, a comma or a parenthesis follows.
        after = found[index + 1]
        return (after.is_name and not after.is_word("FROM", "WHERE", "AS")) or after.kind is Kind.NUMBER
    return found.is_word(index, *_OPERATORS)


_OPERATORS = (
    *("SELECT", "WHERE", "JOIN", "UNION", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "SORT", "CLUSTER"),
    *("DISTRIBUTE", "TABLESAMPLE", "LATERAL"),
)


def with_escapes(text: SqlText) -> SqlText:
    r"""``text`` with each backslash doubled in strings of its lists of options, which have no escapes.

    >>> print(with_escapes(SqlText(r"CREATE TEMPORARY TABLE t WITH ('path' = 'C:\temp')")))
    CREATE TEMPORARY TABLE t WITH ('path' = 'C:\\temp')
    """
    strings = (piece for found in option_lists(text.code) for piece in found if piece.kind is Kind.STRING)
    edits = (
        Edit(Cut(piece.start, piece.end), (_ESCAPE.sub(_keep_escape, piece.text),))
        for piece in strings
        if piece.text[0] not in "rR"
    )
    return text.edited(edits)


def _keep_escape(escape: re.Match[str]) -> str:
    escaped = escape[1]
    return "\\\\" + (f"\\{escaped}" if escaped in "\\'\"" else escaped)


def _quoted_name(piece: Piece) -> str:
    name = quoted(piece.text[1:-1].replace('""', '"'))
    return name.ljust(len(piece.text))
