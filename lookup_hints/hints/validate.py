"""LOOKUP calls -> validated hints, and how several hints for one table become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from lookup_hints.errors import HintError, Problem, Span, nearest
from lookup_hints.hints.dialect import Lookup, place_of
from lookup_hints.hints.parse import hint_comments
from lookup_hints.retry import RetryPolicy
from lookup_hints.spi.flink import HINT_OPTIONS, instead_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, REMOVED_OPTIONS
from lookup_hints.spi.options import Place, bad_value, options_at

_AS_CLOSE = 0.79
_OPTIONS = options_at(Place.HINT, LOOKUP_OPTIONS)


@dataclass(frozen=True)
class LookupHint:
    """One LOOKUP hint whose options exist and have values that they can have.

    Args:
        table: the name that the hint gives, as written.
        at: the whole call.
        select: where the SELECT of its query block stands.
        options: typed values of the options given, by key; ``table`` is not among them.
        places: where the value of each option given stands, ``table`` included.
        retry: a policy made in Python, in place of the options of a retry.
    """

    table: str
    at: Span
    select: int
    options: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Span] = field(default_factory=dict)
    retry: RetryPolicy | None = None

    @property
    def scope(self) -> tuple[int, str]:
        """The query block and the name, ignoring case, that the hint speaks of."""
        return self.select, self.table.lower()


def lookup_hints(text: str) -> tuple[LookupHint, ...]:
    """The LOOKUP hints of a statement, in order.

    Raises:
        HintError: all mistakes of all hints, with their places.
    """
    hints, problems = read_hints(text)
    if problems:
        raise HintError(problems)
    return hints


def read_hints(text: str) -> tuple[tuple[LookupHint, ...], tuple[Problem, ...]]:
    """The hints of a statement that are right, and the problems of those that are not."""
    comments = hint_comments(text)
    problems = [
        Problem(f"There is no hint {item.name}.", place_of(item.this, text), "Did you mean LOOKUP?")
        for comment in comments
        for item in comment.items
        if _is_misspelt(item)
    ]
    hints: list[LookupHint] = []
    for comment in comments:
        for lookup in comment.lookups:
            hint, mistakes = _checked(lookup, comment.select, text)
            problems += mistakes
            if not mistakes:
                hints.append(hint)
    return tuple(hints), tuple(problems)


def merged(hints: Iterable[LookupHint]) -> tuple[LookupHint, ...]:
    """One hint per query block and table: each option is that of the first hint that gives it."""
    by_scope: dict[tuple[int, str], LookupHint] = {}
    for hint in hints:
        first = by_scope.setdefault(hint.scope, hint)
        by_scope[hint.scope] = replace(
            first,
            options={**hint.options, **first.options},
            places={**hint.places, **first.places},
        )
    return tuple(by_scope.values())


def _is_misspelt(item: exp.Expression) -> bool:
    """Whether a hint's name is nearly ours: Spark takes no notice of a hint that it does not know."""
    name = item.name.upper().replace("_", "")
    is_close = bool(get_close_matches(name, [Lookup.name], cutoff=_AS_CLOSE))
    return is_close and not isinstance(item, Lookup)


def _checked(lookup: Lookup, select: int, text: str) -> tuple[LookupHint, list[Problem]]:
    at = place_of(lookup, text)
    problems = list(lookup.problems)
    values: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for option in lookup.expressions:
        key = option.this.name.lower()
        problem = _read(option, key, values, text)
        if problem is not None:
            problems.append(problem)
        places[key] = place_of(option.expression, text)
    # With a mistake of form, the table may be what could not be read.
    if "table" not in places and not lookup.problems:
        tip = "Name the alias of the lookup table: 'table' = '...'."
        problems.append(Problem("This LOOKUP hint names no table.", at, tip))
    table = values.pop("table", "")
    return LookupHint(table, at, select, values, places), problems


def _read(given: exp.EQ, key: str, values: dict[str, Any], text: str) -> Problem | None:
    """Put the typed value that is ``given`` into ``values``, over an earlier one, or say what is wrong."""
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
