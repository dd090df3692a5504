"""Why a lookup table that no key is known for is read whole, or cannot be."""

from __future__ import annotations

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.facts import Facts
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.refusal import NotReadEither

_NEEDS_LEFT = {
    "ASOF": "an ASOF JOIN",
    "SEMI": "a SEMI JOIN",
    "ANTI": "an ANTI JOIN",
    "LEFT": "a LEFT JOIN",
    "FULL": "a FULL JOIN",
}


def why_read(use: LookupUse) -> str:
    """Why a table is read that stands first in its FROM, or first in a chain of joins there."""
    step = use.chain.steps[0] if use.chain is not None and use.chain.steps else None
    if step is None:
        return "no equality gives its key"
    kind = next((word for word in _NEEDS_LEFT if word in step.words), None)
    if kind is not None:
        return f"{_NEEDS_LEFT[kind]} needs every row of its left side"
    is_shared = step.using or "NATURAL" in step.words
    return "the sides of USING and NATURAL stay in their order" if is_shared else "no equality gives its key"


def cannot_be_read(facts: Facts, use: LookupUse) -> UnsupportedLookup:
    """The error of a table that would have to be read, and cannot be."""
    statement, table = facts.statement, use.table
    if use.versions is not None:
        return NotReadEither(
            Problem(
                f"FOR SYSTEM_TIME AS OF chooses among the rows of a key of {table.name}, and no equality"
                " gives one.",
                statement.span(statement.tokens.cut(use.index, use.index)),
                "Put it on the right side of a JOIN with an equality.",
            )
        )
    return UnsupportedLookup(
        Problem(
            f"{table.name} cannot be read whole: connector {table.connector!r} answers keys only.",
            statement.span(statement.tokens.cut(use.index, use.index)),
            "Put it on the right side of a JOIN with an equality.",
        )
    )
