"""Temporary views over lookup tables: what each sees, as long as Spark's view of that name is still the same.

Spark knows such a view as one that reads the whole table. To ask by key instead, a session remembers what
the view was made of. Views are also dropped and replaced where nobody tells us, so at each use Spark's own
plan of the view must be what it was when the view was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.parse.lookup_use import LookThrough
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import FindTable, Statement
from lookup_hints.plan.views_and_derived_tables import FindView, ViewResolver
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.sql_text import SqlText

RunSpark = Callable[[str], Sequence[Sequence[str]]]
"""The rows of a statement that Spark itself runs; raises what Spark says."""

_NUMBER = re.compile(r"#\d+")
# Settings that say how a query runs, not what it means: Spark's `ViewHelper` keeps none with a view.
_HOW_ONLY = tuple(
    f"spark.sql.{part}." for part in ("adaptive", "codegen", "execution", "optimizer", "shuffle")
)


# Kept with Spark's analysed plan of the view, so that a view that was replaced meanwhile is seen.
# (docs/decisions/0152)
@dataclass(frozen=True)
class Definition:
    """A statement that makes a temporary view: its name, and what its query sees where that is one table.

    ``reads_lookups`` says whether it reads a lookup table, however.
    """

    name: str
    through: LookThrough | None
    reads_lookups: bool = True


# A view over a lookup table cannot exist in Spark, which does not know the table; its definition is
# remembered here. (docs/decisions/0152)
class LookupViews:
    """The temporary views of one Spark session that read a lookup table."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[Definition, str]] = {}
        """By name in lower case, with what each has meant when it was made."""

    def knows(self, name: str) -> bool:
        """Whether such a view of that name was made, whatever became of it."""
        return name.lower() in self._views

    def remember(self, made: Definition, rows: RunSpark) -> None:
        """Keep what a view sees that Spark has just made; a view of its name that was there is gone."""
        self._views.pop(made.name.lower(), None)
        if made.reads_lookups:
            meaning = _current_meaning(made.name, rows)
            if meaning is not None:
                self._views[made.name.lower()] = made, meaning

    def find(self, name: str, rows: RunSpark, *, case_sensitive: bool) -> LookThrough | None:
        """What the view of that name sees; None where that is no one table, or it is another view by now."""
        made, _ = self._views.get(name.lower(), (None, ""))
        if made is None or made.through is None:
            return None
        return made.through if self.reads_lookups(name, rows, case_sensitive=case_sensitive) else None

    def reads_lookups(self, name: str, rows: RunSpark, *, case_sensitive: bool) -> bool:
        """Whether the view of that name reads a lookup table, and is not another one by now."""
        made, meaning = self._views.get(name.lower(), (None, ""))
        if made is None or (case_sensitive and made.name != name):
            return False
        return _current_meaning(made.name, rows) == meaning


def view_definition(
    text: SqlText,
    find_table: FindTable,
    find_view: FindView,
    is_lookup_view: Callable[[str], bool],
    *,
    case_sensitive: bool,
) -> Definition | None:
    """The view that a statement makes in this session; None for any other statement."""
    if not text.starts_with("CREATE"):
        return None
    statement = Statement(text, find_table, is_lookup_view)
    tokens, at = statement.tokens, 1
    at += 2 if tokens.is_word(at, "OR") and tokens.is_word(at + 1, "REPLACE") else 0
    if not tokens.is_word(at, "TEMPORARY", "TEMP") or not tokens.is_word(at + 1, "VIEW"):
        return None
    at += 5 if tokens.is_word(at + 2, "IF") else 2
    if at >= len(tokens.pieces) or not tokens.pieces[at].is_name or tokens.is_symbol(at + 1, "."):
        return None
    name = tokens.pieces[at].name
    try:
        statement.queries = query_parts(statement)
        found = ViewResolver(statement, find_view, case_sensitive).of_query(statement.structure.queries[0])
        # The places of its hints are those of another text.
        through = None if found is None else replace(found, hinted=())
        reads_lookups = statement.reads_lookups
    except UnsupportedLookup:
        through, reads_lookups = None, False
    if through is None or tokens.is_word(at + 1, "AS"):
        return Definition(name, through, reads_lookups)
    return Definition(name, _with_view_names(statement, at + 1, through))


def _with_view_names(statement: Statement, at: int, through: LookThrough) -> LookThrough | None:
    """``through`` with the names that the view gives its columns; None where more than names stand there."""
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
    """What a view means now: Spark's plan of it and the settings it depends on; None if there is no view."""
    try:
        text = rows(f"EXPLAIN EXTENDED SELECT * FROM {quoted(name)}")[0][0]  # noqa: S608 (a quoted name)
    except Exception:
        return None
    settings = sorted(f"{key}={value}" for key, value, *_ in rows("SET") if _affects_analysis(key))
    return "\n".join([_renumber_plan(analysed_plan(text)), *settings])


def analysed_plan(explained: str) -> str:
    """The analysed plan in what EXPLAIN EXTENDED says."""
    _, _, analysed = explained.partition("== Analyzed Logical Plan ==")
    return analysed.partition("== Optimized Logical Plan ==")[0]


def _renumber_plan(plan: str) -> str:
    """``plan``, its numbers those that each analysis gives alike."""
    numbers: dict[str, str] = {}
    return _NUMBER.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), plan)


def _affects_analysis(setting: str) -> bool:
    return setting.startswith("spark.sql.") and not setting.startswith(_HOW_ONLY)
