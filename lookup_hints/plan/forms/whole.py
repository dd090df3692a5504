"""A lookup table that no key is known for: it is read whole, and Spark joins it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.analysis import alias_text, extended, selected_instead
from lookup_hints.plan.draft import TableScan
from lookup_hints.plan.forms.facts import Facts
from lookup_hints.plan.forms.filters import filters_of
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.reading import readers_of
from lookup_hints.plan.refusal import NotReadEither
from lookup_hints.plan.times import versions_wanted
from lookup_hints.plan.write.columns import used_columns
from lookup_hints.spi import Filter, FilteredScan
from lookup_hints.sql.splice import Edit

_NEEDS_LEFT = {
    "ASOF": "an ASOF JOIN",
    "SEMI": "a SEMI JOIN",
    "ANTI": "an ANTI JOIN",
    "LEFT": "a LEFT JOIN",
    "FULL": "a FULL JOIN",
}


@dataclass(frozen=True)
class WholeTable(TableScan):
    """A use of a lookup table whose relation reads it."""

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, reason: str) -> WholeTable:
        """The scan that ``use`` is: of the columns that its query block names."""
        context = facts.context
        columns = used_columns(facts.statement, use, facts.names(use))
        if use.column_aliases:
            columns = tuple(use.table.schema.names)
        connector = facts.connector(use)
        readers = readers_of(connector, context.conf)
        filters = _filters(facts, use)
        name = context.name_scan(use.table, columns, filters)
        return cls(use, connector, columns, name, readers, reason, filters=filters)

    def edits(self, statement: Statement) -> Iterator[Edit]:
        """The edits that read the table; what stands between its name and its alias stays."""
        relation, tokens = self.use.relation, statement.tokens
        yield from selected_instead(statement, self.use)
        rows = extended((self.relation,), relation.extensions)
        at = tokens.cut(relation.start, relation.last)
        yield Edit(at, (*rows, f" AS {alias_text(statement, relation)}"))


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


def _filters(facts: Facts, use: LookupUse) -> tuple[Filter, ...]:
    """The conditions by which its source leaves rows out."""
    connector = facts.connector(use)
    if not isinstance(connector, FilteredScan):
        return ()
    return tuple(filter(connector.can_filter, filters_of(facts.statement, use, facts.names(use))))


def cannot_be_read(facts: Facts, use: LookupUse) -> UnsupportedLookup:
    """The error of a table that would have to be read, and cannot be."""
    statement, table = facts.statement, use.table
    if versions_wanted(use) is not None:
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
