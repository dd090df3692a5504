"""Text of a statement -> its hint comments, with the LOOKUP calls in them; and the edits that take those out.

A hint comment ``/*+ ... */`` holds items ``NAME`` or ``NAME(...)``, separated by commas or blanks, and
belongs to the SELECT right before it. The dialect reads the items; those that are not LOOKUP are Spark's
and are never touched, but for names of our tables in Spark's EXTERNAL_LOOKUP. The statement around a hint
comment is not parsed, so it may be of any form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from lookup_hints.errors import HintError, Problem, Span, nearest
from lookup_hints.hints.dialect import HINT_MARK, Lookup, hint_items, place_of
from lookup_hints.retry import RetryPolicy
from lookup_hints.spi.flink import HINT_OPTIONS, instead_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, REMOVED_OPTIONS
from lookup_hints.spi.option_values import Place, bad_value, options_at
from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit


@dataclass(frozen=True)
class HintComment:
    """One hint comment.

    Args:
        is_closed: whether it is closed.
        at: its place.
        select: offset of the SELECT that it follows, or -1 if it follows something else.
        items: each ``Lookup`` and ``OtherHint`` in it, in order, with its place and its mistakes of form.
    """

    is_closed: bool
    at: Span
    select: int
    items: tuple[exp.Expression, ...]

    @property
    def lookups(self) -> list[Lookup]:
        return [item for item in self.items if isinstance(item, Lookup)]


def hint_comments(text: SqlText) -> tuple[HintComment, ...]:
    """The hint comments of ``text``, in order.

    >>> [hint.options for hint in hint_comments(SqlText("SELECT /*+ LOOKUP('table'='c') */ 1"))[0].lookups]
    [{'table': 'c'}]
    """
    found = []
    before: Piece | None = None
    for piece in text.pieces:
        if piece.kind is Kind.HINT or (piece.kind is Kind.UNCLOSED and piece.text.startswith(HINT_MARK)):
            select = before.start if before is not None and before.is_word("SELECT") else -1
            found.append(_read_comment(text, piece, select))
        elif piece.kind is not Kind.COMMENT:
            before = piece
    return tuple(found)


def removals(text: SqlText, own: Collection[Span] = ()) -> tuple[Edit, ...]:
    """The edits that take every LOOKUP call out of ``text``, and the names ``own`` out of EXTERNAL_LOOKUP.

    Other hints stay as they are, byte for byte; a comment that holds nothing else goes as a whole.
    """
    return tuple(
        edit
        for comment in text.once(hint_comments)
        if comment.is_closed
        for edit in _edits_without_hints(comment, own)
    )


def _read_comment(text: str, comment: Piece, select: int) -> HintComment:
    is_closed = comment.kind is Kind.HINT
    items = hint_items(text, comment.start, comment.end - (len("*/") if is_closed else 0))
    for item in items:
        if isinstance(item, Lookup) and not is_closed:
            item.set("expressions", [])
            opening = Span(text, comment.start, comment.start + len(HINT_MARK))
            problem = Problem("The comment of this hint is never closed.", opening, "End it with */.")
            item.problems = (problem,)
        elif isinstance(item, Lookup) and select < 0:
            problem = Problem("A LOOKUP hint belongs right after SELECT, not here.", place_of(item, text))
            item.problems = (problem, *item.problems)
    return HintComment(is_closed, Span(text, comment.start, comment.end), select, tuple(items))


def _edits_without_hints(comment: HintComment, own: Collection[Span]) -> Iterator[Edit]:
    at = comment.at
    others = {id(item): _names_of_others(item, at.text, own) for item in comment.items}
    kept = [item for item in comment.items if others[id(item)] is None or others[id(item)]]
    if len(kept) == len(comment.items) and not any(others.values()):
        return
    if not kept:
        around = at.text[at.start - 1 : at.start] + at.text[at.end : at.end + 1]
        yield Edit(Cut(at.start, at.end), () if any(map(str.isspace, around)) else (" ",))
        return
    first_kept = place_of(kept[0], at.text).start
    # Calls before the first other item are removed with the text after them, later ones with that before.
    if comment.items[0] is not kept[0]:
        yield Edit(Cut(place_of(comment.items[0], at.text).start, first_kept), ())
    end = first_kept
    for item in comment.items:
        place, names = place_of(item, at.text), others[id(item)]
        if names:
            yield Edit(Cut(place.start, place.end), (f"{item.name}({', '.join(names)})",))
        elif names is not None and place.start > first_kept:
            yield Edit(Cut(end, place.end), ())
        end = place.end


def _names_of_others(item: exp.Expression, text: str, own: Collection[Span]) -> list[str] | None:
    """What is left of a hint without the names ``own``; None of one that stays as it is."""
    if isinstance(item, Lookup):
        return []
    given = _named_in(item, text) if item.name.upper() == EXTERNAL_LOOKUP else []
    if not any(span in own for _, span in given):
        return None
    return [span.text[span.start : span.end] for _, span in given if span not in own]


def _named_in(item: exp.Expression, text: str) -> list[tuple[str, Span]]:
    """The names without a qualifier among the parameters of a hint that is not LOOKUP, with their places."""
    at = place_of(item, text)
    found = SqlText(text[at.start : at.end]).code
    return [
        (piece.name, Span(text, at.start + piece.start, at.start + piece.end))
        for before, piece, after in zip(found, found[1:], found[2:], strict=False)
        if piece.is_name
        and (before.is_symbol("(") or before.is_symbol(","))
        and (after.is_symbol(",") or after.is_symbol(")"))
    ]


EXTERNAL_LOOKUP = "EXTERNAL_LOOKUP"
"""Spark's own hint, from 4.4 on: on a lookup table of ours it means LOOKUP without options."""

JOIN_STRATEGIES = frozenset(
    {
        *("BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "SHUFFLE_MERGE", "MERGEJOIN"),
        *("SHUFFLE_HASH", "SHUFFLE_REPLICATE_NL"),
    }
)
"""Names of Spark's hints that choose how it joins."""


def conflict_of_hints(word: str, strategy: str, table: str, at: Span | None = None) -> Problem:
    """The mistake of a hint for a lookup beside one for another way to join the same table."""
    message = f"{word} and {strategy} both say how {table} is joined."
    tip = "Leave one of them out, as Spark demands for its own lookup join (CONFLICTING_JOIN_STRATEGY)."
    return Problem(message, at, tip)


_AS_CLOSE = 0.79
_OPTIONS = options_at(Place.HINT, LOOKUP_OPTIONS)


@dataclass(frozen=True)
class LookupHint:
    """One LOOKUP hint with valid options.

    Args:
        table: the name in the hint, as written.
        at: the whole call.
        select: offset of the SELECT of its query block.
        options: typed values of its options by key, without ``table``.
        places: the places of the values of its options, ``table`` included.
        retry: a policy made in Python, which replaces the retry options.
        word: the name of the hint. ``EXTERNAL_LOOKUP`` may be about a table that is not ours.
        beside: a hint of Spark's that chooses how the same relation is joined.
    """

    table: str
    at: Span
    select: int
    options: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Span] = field(default_factory=dict)
    retry: RetryPolicy | None = None
    word: str = Lookup.name
    beside: str = ""

    @property
    def may_be_others(self) -> bool:
        """Whether it means nothing here unless it names a lookup table."""
        return self.word == EXTERNAL_LOOKUP

    @property
    def scope(self) -> tuple[int, str]:
        """Its target: the SELECT of a query block, and the name of a table there, in lower case."""
        return self.select, self.table.lower()


def lookup_hints(text: SqlText) -> tuple[LookupHint, ...]:
    """The LOOKUP hints of a statement, in order.

    Raises:
        HintError: all mistakes of all hints, with their places.
    """
    hints, problems = read_hints(text)
    if problems:
        raise HintError(problems)
    return hints


def read_hints(text: SqlText) -> tuple[tuple[LookupHint, ...], tuple[Problem, ...]]:
    """The hints of a statement that are right, and the problems of those that are not."""
    comments = text.once(hint_comments)
    problems = [
        Problem(f"There is no hint {item.name}.", place_of(item.this, text), f"Did you mean {meant}?")
        for comment in comments
        for item in comment.items
        if (meant := _meant_instead(item))
    ]
    hints: list[LookupHint] = []
    for comment in comments:
        for lookup in comment.lookups:
            hint, mistakes = _check_lookup(lookup, comment.select, text)
            problems += mistakes
            if not mistakes:
                hints.append(hint)
        problems += _options_of_external(comment)
        hints += _external_hints(comment)
    return tuple(hints), tuple(problems)


def _options_of_external(comment: HintComment) -> Iterator[Problem]:
    for item in comment.items:
        at = place_of(item, comment.at.text)
        if item.name.upper() == EXTERNAL_LOOKUP and "=" in at.text[at.start : at.end]:
            tip = "Options are for LOOKUP('table' = '...', ...)."
            yield Problem(f"{EXTERNAL_LOOKUP} takes names of tables alone.", at, tip)


def _external_hints(comment: HintComment) -> Iterator[LookupHint]:
    """A hint for each name in each EXTERNAL_LOOKUP of a comment."""
    text = comment.at.text
    strategies = {
        name.lower(): item.name
        for item in comment.items
        if item.name.upper() in JOIN_STRATEGIES
        for name, _ in _named_in(item, text)
    }
    for item in comment.items:
        if item.name.upper() == EXTERNAL_LOOKUP and comment.select >= 0:
            for name, at in _named_in(item, text):
                beside = strategies.get(name.lower(), "")
                yield LookupHint(name, at, comment.select, word=EXTERNAL_LOOKUP, beside=beside)


def merged(hints: Iterable[LookupHint]) -> tuple[LookupHint, ...]:
    """One hint per query block and table: for each option the first hint that sets it wins."""
    by_scope: dict[tuple[int, str], LookupHint] = {}
    for hint in hints:
        first = by_scope.setdefault(hint.scope, hint)
        by_scope[hint.scope] = replace(
            first, options={**hint.options, **first.options}, places={**hint.places, **first.places}
        )
    return tuple(by_scope.values())


def _meant_instead(item: exp.Expression) -> str:
    """The hint whose name an item's is nearly: Spark takes no notice of a hint that it does not know."""
    known = {name.replace("_", ""): name for name in (Lookup.name, EXTERNAL_LOOKUP)}
    is_ours = isinstance(item, Lookup) or item.name.upper() == EXTERNAL_LOOKUP
    near = [] if is_ours else get_close_matches(item.name.upper().replace("_", ""), known, 1, _AS_CLOSE)
    return known[near[0]] if near else ""


def _check_lookup(lookup: Lookup, select: int, text: str) -> tuple[LookupHint, list[Problem]]:
    at = place_of(lookup, text)
    problems = list(lookup.problems)
    values: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for option in lookup.expressions:
        key = option.this.name.lower()
        problem = _read_option(option, key, values, text)
        if problem is not None:
            problems.append(problem)
        places[key] = place_of(option.expression, text)
    # With a mistake of form, ``table`` may be the part that could not be read.
    if "table" not in places and not lookup.problems:
        tip = "Name the alias of the lookup table: 'table' = '...'."
        problems.append(Problem("This LOOKUP hint names no table.", at, tip))
    table = values.pop("table", "")
    return LookupHint(table, at, select, values, places), problems


def _read_option(given: exp.EQ, key: str, values: dict[str, Any], text: str) -> Problem | None:
    """Put the typed value of ``given`` into ``values``, replacing an earlier one, or return the problem."""
    name, value = given.this.name, given.expression.name
    option = _OPTIONS.get(key)
    if option is None:
        tip = instead_of(key, {**HINT_OPTIONS, **REMOVED_OPTIONS}) or nearest(name, tuple(_OPTIONS))
        return Problem(f"No LOOKUP option is called {name!r}.", place_of(given.this, text), tip)
    try:
        values[key] = option.type.parse(value)
    except ValueError as error:
        return replace(bad_value(option, name, value, error), at=place_of(given.expression, text))
    return None
