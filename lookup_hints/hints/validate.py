"""LOOKUP calls -> validated hints, and how several hints for one table become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lookup_hints.errors import HintError, Problem, Span, nearest
from lookup_hints.hints.parse import ParsedHint, misspelt_hints, parse_hints
from lookup_hints.retry import RetryPolicy
from lookup_hints.spi.flink import HINT_OPTIONS, instead_of
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS, REMOVED_OPTIONS
from lookup_hints.spi.options import Place, bad_value, options_at
from lookup_hints.sql.option_list import Pair

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
    hints: list[LookupHint] = []
    problems: list[Problem] = [*misspelt_hints(text)]
    for parsed in parse_hints(text):
        hint, mistakes = _checked(parsed)
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


def _checked(parsed: ParsedHint) -> tuple[LookupHint, list[Problem]]:
    """The hint that ``parsed`` asks for, as far as it is right, and what is wrong."""
    problems = list(parsed.problems)
    values: dict[str, Any] = {}
    places: dict[str, Span] = {}
    for pair in parsed.arguments:
        key = pair.key.lower()
        problem = _read(pair, key, values)
        if problem is not None:
            problems.append(problem)
        places[key] = pair.value_at
    # With a mistake of form, the table may be what could not be read.
    if "table" not in places and not parsed.problems:
        tip = "Name the alias of the lookup table: 'table' = '...'."
        problems.append(Problem("This LOOKUP hint names no table.", parsed.at, tip))
    table = values.pop("table", "")
    return LookupHint(table, parsed.at, parsed.select, values, places), problems


def _read(pair: Pair, key: str, values: dict[str, Any]) -> Problem | None:
    """Put the typed value of ``pair`` into ``values``, over an earlier one, or say what is wrong."""
    option = _OPTIONS.get(key)
    if option is None:
        tip = instead_of(key, {**HINT_OPTIONS, **REMOVED_OPTIONS}) or nearest(pair.key, tuple(_OPTIONS))
        return Problem(f"No LOOKUP option is called {pair.key!r}.", pair.key_at, tip)
    try:
        values[key] = option.type.parse(pair.value)
    except ValueError as error:
        return replace(bad_value(option, pair.key, pair.value, error), at=pair.value_at)
    return None
