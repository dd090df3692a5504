"""Statements of Spark that we read too: ``SET`` of one of our options, and ``EXPLAIN``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from lookup_hints.errors import NotAllowed, OptionError, Problem, Span, did_you_mean, nearest
from lookup_hints.spi import flink
from lookup_hints.spi.flink import instead_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, SESSION_OPTIONS
from lookup_hints.spi.options import Option, Place, bad_value
from lookup_hints.spi.policy import policy_of_configuration
from lookup_hints.sql.lexer import Kind, blanked, pieces
from lookup_hints.streaming.options import RESTART_OPTIONS, STREAM_OPTIONS

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
