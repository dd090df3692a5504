"""The error that Spark's EXPLAIN shows in place of a plan, in terms of the user's text."""

from __future__ import annotations

import re

from lookup_hints.driver.statement_scope import explain_words
from lookup_hints.errors import Problem, QueryError, Span
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.sql.sql_text import SqlText

REFUSED = "Error occurred during query planning"
"""So begins what Spark explains of a statement that it would refuse."""

# In some modes each plan is the text of the error.
_ERROR = re.compile(
    rf"^(?:{REFUSED}: ?\n|[\w.]+AnalysisException: )(?P<told>[^\n]*)"
    r"; line (?P<line>\d+) pos (?P<column>\d+)",
    re.MULTILINE,
)
_PLACE = re.compile(r"; line (\d+) pos (\d+)")


class _ToldError(Exception):
    """An error of which only the text is known."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# Of a query Spark raises its error. Of MERGE and others it explains nothing but the text of one.
def refuse_unplanned(shown: str, text: SqlText, planned: LookupPlan, mode: str) -> None:
    """Refuse the statement ``text`` where Spark has ``shown`` an error that names a place in it.

    Raises:
        QueryError: it has.
    """
    shown_error = _ERROR.search(shown)
    if shown_error is None:
        return
    line, column = int(shown_error["line"]), int(shown_error["column"])
    column -= len(explain_words(mode)) if line == 1 else 0
    error = _ToldError(f"{shown_error['told']}; line {line} pos {column}")
    planned.put_in_place(error)
    place = _PLACE.search(error.message)
    if place is None:
        raise QueryError(Problem(error.message))
    at = _name_at(text, int(place[1]), int(place[2]))
    raise QueryError(Problem(error.message[: place.start()], at))


def _name_at(text: SqlText, line: int, column: int) -> Span | None:
    """The name that begins at a line (from 1) and column (from 0), with its qualifiers."""
    offset = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column
    code = text.code
    first = next((at for at in range(len(code)) if code[at].start == offset), None)
    if first is None:
        return None
    last = first
    while code.is_symbol(last + 1, ".") and code.is_name(last + 2):
        last += 2
    return Span(text, offset, code[last].end)
