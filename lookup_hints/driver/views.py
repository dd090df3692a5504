"""Temporary views over lookup tables, valid as long as Spark's view of that name is unchanged.

To Spark such a view reads the whole table. To look up by key instead, the session keeps the definition of the
view. Views can be dropped and replaced without our notice, so at each use Spark's plan of the view must equal
the plan at its creation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.parse.lookup_use import LookThrough
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import FindTable, Statement
from lookup_hints.plan.views_and_derived_tables import ViewResolver
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.sql_text import SqlText

RunSpark = Callable[[str], Sequence[Sequence[str]]]
"""Runs a statement in Spark itself and returns its rows; raises Spark's errors."""

FoundView = tuple[LookThrough | None, bool]
"""The query over one lookup table that a view is, None if it is more; and whether it reads one in any way."""

_NUMBER = re.compile(r"#\d+")
# Settings about how a query runs, not what it means: Spark's `ViewHelper` does not keep them with a view.
_HOW_ONLY = tuple(
    f"spark.sql.{part}." for part in ("adaptive", "codegen", "execution", "optimizer", "shuffle")
)


# Kept with Spark's analysed plan of the view, so that a view that was replaced meanwhile is seen.
# (docs/decisions/0152)
@dataclass(frozen=True)
class Definition:
    """A statement that creates a temporary view: its name, and its query if that is over one lookup table.

    ``reads_lookups``: whether it reads a lookup table in any way.
    """

    name: str
    through: LookThrough | None
    reads_lookups: bool = True


# Spark knows such a view only as one that reads the whole table, so its definition is remembered here.
# (docs/decisions/0152)
class LookupViews:
    """The temporary views of one Spark session that read a lookup table."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[Definition, str]] = {}
        """By name in lower case, with Spark's plan at creation."""

    def knows(self, name: str) -> bool:
        """Whether such a view was created under that name, even if it was dropped since."""
        return name.lower() in self._views

    def plans(self, rows: RunSpark) -> str:
        """Spark's plans of all these views that still exist: they name what the views read."""
        return "\n".join(
            filter(None, (_current_meaning(made.name, rows) for made, _ in self._views.values()))
        )

    def remember(self, made: Definition, rows: RunSpark) -> None:
        """Store the definition of a view that Spark has just created, replacing any of the same name."""
        self._views.pop(made.name.lower(), None)
        if made.reads_lookups:
            meaning = _current_meaning(made.name, rows)
            if meaning is not None:
                self._views[made.name.lower()] = made, meaning

    def find(self, name: str, rows: RunSpark, *, case_sensitive: bool) -> FoundView:
        """The view of that name; nothing of one that was replaced since."""
        made, meaning = self._views.get(name.lower(), (None, ""))
        if made is None or (case_sensitive and made.name != name):
            return None, False
        return (made.through, True) if _current_meaning(made.name, rows) == meaning else (None, False)


def view_definition(
    text: SqlText,
    find_table: FindTable,
    find_view: Callable[[str], FoundView],
    *,
    case_sensitive: bool,
) -> Definition | None:
    """The view that a statement makes in this session; None for any other statement."""
    if not text.starts_with("CREATE"):
        return None
    statement = Statement(text, find_table, lambda name: find_view(name)[1])
    tokens, at = statement.tokens, 1
    at += 2 if tokens.is_word(at, "OR") and tokens.is_word(at + 1, "REPLACE") else 0
    if not tokens.is_word(at, "TEMPORARY", "TEMP") or not tokens.is_word(at + 1, "VIEW"):
        return None
    at += 5 if tokens.is_word(at + 2, "IF") else 2
    if at >= len(tokens) or not tokens[at].is_name or tokens.is_symbol(at + 1, "."):
        return None
    name = tokens[at].name
    try:
        statement.queries = query_parts(statement)
        resolver = ViewResolver(statement, lambda name: find_view(name)[0], case_sensitive)
        found = resolver.of_query(statement.structure.queries[0])
        # The places of its hints belong to another text.
        through = None if found is None else replace(found, hinted=())
        reads_lookups = statement.reads_lookups
    except UnsupportedLookup:
        through, reads_lookups = None, False
    if through is None or tokens.is_word(at + 1, "AS"):
        return Definition(name, through, reads_lookups)
    return Definition(name, _with_view_names(statement, at + 1, through))


def _with_view_names(statement: Statement, at: int, through: LookThrough) -> LookThrough | None:
    """``through`` with the view's own column names; None if its column list holds more than names."""
    tokens = statement.tokens
    closing = tokens.closing(at) if tokens.is_symbol(at, "(") else at
    names = statement.pieces[at + 1 : closing : 2]
    is_list = tokens.is_word(closing + 1, "AS") and all(piece.is_name for piece in names)
    if not is_list or len(names) != len(through.columns):
        return None
    given = zip((piece.name for piece in names), (each for _, each in through.columns), strict=True)
    renamed = replace(through, columns=tuple(given))
    return renamed if renamed.is_clear else None


def _current_meaning(name: str, rows: RunSpark) -> str | None:
    """Spark's current plan of a view and the settings it depends on; None if there is no view."""
    try:
        text = rows(f"EXPLAIN EXTENDED SELECT * FROM {quoted(name)}")[0][0]  # noqa: S608 (a quoted name)
    except Exception:
        return None
    settings = sorted(
        f"{key}={value}"
        for key, value, *_ in rows("SET")
        if key.startswith("spark.sql.") and not key.startswith(_HOW_ONLY)
    )
    # Each analysis numbers its columns anew: number them in the order of the text.
    numbers: dict[str, str] = {}
    plan = _NUMBER.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), analysed_plan(text))
    return "\n".join([plan, *settings])


def analysed_plan(explained: str) -> str:
    """The analysed plan within the text of EXPLAIN EXTENDED."""
    _, _, analysed = explained.partition("== Analyzed Logical Plan ==")
    return analysed.partition("== Optimized Logical Plan ==")[0]
