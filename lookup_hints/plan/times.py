"""The time of ``FOR SYSTEM_TIME AS OF``: a lookup reads the present, any other time is refused."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.sql.splice import Cut

_PRESENT = ("PROCTIME", "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP")


def check_time(statement: Statement, use: LookupUse) -> None:
    """Refuse a time that is neither a column nor the present."""
    if use.time is None or _is_present(statement, use.time):
        return
    raise UnsupportedLookup(
        Problem(
            f"{use.alias} is asked for a time of its own, but connector {use.table.connector!r} knows only"
            " the present.",
            statement.span(use.time),
            "Use a time column of the left side, PROCTIME() or current_timestamp().",
        )
    )


def is_time_column(statement: Statement, use: LookupUse) -> bool:
    """Whether the time is a column, which Spark can find or not."""
    return use.time is not None and not _calls_the_present(statement, use.time)


def _is_present(statement: Statement, time: Cut) -> bool:
    if _calls_the_present(statement, time):
        return True
    first, last = statement.tokens.index_at(time.start), statement.tokens.index_at(time.end - 1)
    found = statement.pieces[first : last + 1]
    names, dots = found[::2], found[1::2]
    return all(piece.is_name for piece in names) and all(piece.is_symbol(".") for piece in dots)


def _calls_the_present(statement: Statement, time: Cut) -> bool:
    first, last = statement.tokens.index_at(time.start), statement.tokens.index_at(time.end - 1)
    arguments = "".join(piece.text for piece in statement.pieces[first + 1 : last + 1])
    return statement.pieces[first].is_word(*_PRESENT) and arguments in ("", "()")
