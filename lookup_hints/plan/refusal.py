"""The errors of lookup tables that stand where they cannot be asked: each names the table and the reason."""

from __future__ import annotations

from collections.abc import Sequence

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.sql.splice import Cut


class CannotBeAsked(UnsupportedLookup):
    """A use of a lookup table cannot be a lookup join; where its source can be read, it is read instead.

    Args:
        problems: what the user is told where it cannot be read.
        use: where its table is named.
        reason: why it cannot be asked, as a sentence goes on behind "because".
    """

    def __init__(self, problems: Sequence[Problem] | Problem, use: LookupUse, reason: str) -> None:
        super().__init__(problems)
        self.use, self.reason = use, reason


class NotReadEither(UnsupportedLookup):
    """A lookup table that cannot be asked as it stands there; to read it would give other rows."""


def refused(
    statement: Statement, use: LookupUse, at: Cut, reason: str, instead: str = "", tip: str = ""
) -> CannotBeAsked:
    """The error of a lookup join that cannot run, with what to write ``instead``; its table may be read."""
    whole = f"{reason}; {instead}" if instead else reason
    return CannotBeAsked(cannot_run(statement, use, at, whole, tip).problems, use, reason)


def cannot_run(
    statement: Statement, use: LookupUse, at: Cut, reason: str, tip: str = ""
) -> UnsupportedLookup:
    """The error of a lookup join that cannot run, and whose table cannot be read in its place either."""
    message = f"The lookup join with {use.shown} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at), tip))


def refuse_extra_clauses(statement: Statement, use: LookupUse) -> None:
    """Refuse LATERAL, STREAM, samples and the like beside the lookup table.

    Raises:
        CannotBeAsked: a sample or the like stands there, which a table that is read can have.
        UnsupportedLookup: LATERAL or STREAM stands there.
    """
    relation = use.relation
    if relation.plain and not relation.lateral:
        return
    problem = Problem(
        f"Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table {use.table.name}:"
        " it is asked by key, not read.",
        statement.span_of(relation),
    )
    if statement.tokens.is_word(relation.first, "STREAM", "LATERAL"):
        raise UnsupportedLookup(problem)
    extra = " ".join(extension.of(statement.text) for extension in relation.extensions)
    raise CannotBeAsked(problem, use, f"{' '.join(extra.split())} applies to it")
