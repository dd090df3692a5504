"""The errors of lookup tables that stand where they cannot be asked: each names the table and the reason."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.sql.splice import Cut


def refused(statement: Statement, use: LookupUse, at: Cut, reason: str) -> UnsupportedLookup:
    """The error of a lookup join that cannot run."""
    message = f"The lookup join with {use.alias} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at)))


def refuse_extra_clauses(statement: Statement, use: LookupUse) -> None:
    """Refuse LATERAL, STREAM, samples and the like beside the lookup table.

    Raises:
        UnsupportedLookup: one stands there.
    """
    relation = use.relation
    if relation.plain and not relation.lateral:
        return
    raise UnsupportedLookup(
        Problem(
            f"Only AS and FOR SYSTEM_TIME AS OF can stand beside the lookup table {use.table.name}:"
            " it is asked by key, not read.",
            statement.span_of(relation),
        )
    )
