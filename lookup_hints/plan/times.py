"""The time of ``FOR SYSTEM_TIME AS OF``: a lookup reads the present, and only processing time is that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Block, Relation
from lookup_hints.spi.changes import Versions, versions_of
from lookup_hints.spi.model import LookupTable
from lookup_hints.sql.splice import Cut, Edit

PRESENT = ("PROCTIME", "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP")


@dataclass(frozen=True)
class TimedRelation:
    """A relation with a FOR SYSTEM_TIME AS OF that is ours.

    Args:
        relation: the relation.
        block: the block whose FROM holds it.
        time: the expression.
        tables: the lookup tables that it is, or reads, as far as the statement names them.
    """

    relation: Relation
    block: Block
    time: Cut
    tables: tuple[LookupTable, ...]


def timed(statement: Statement) -> Iterator[TimedRelation]:
    """Each relation with such a time, in the order of the blocks."""
    own = {use.relation: (use.table,) for use in statement.uses}
    queries = frozenset(statement.timed)
    for block in statement.structure.blocks:
        for relation in block.everything:
            if relation.time is None or not (relation in own or relation in queries):
                continue
            tables = own.get(relation) or tuple(
                use.table for use in statement.uses if use.relation in statement.read_by(relation)
            )
            yield TimedRelation(relation, block, relation.time, tables)


def dropped_times(statement: Statement) -> Iterator[Edit]:
    """The edits that leave the clause out where Spark would see it behind a query, CTE or view."""
    for relation in statement.timed:
        clause = statement.time_clause(relation)
        if clause is not None:
            yield Edit(clause, ())


def refuse_other_times(statement: Statement, use: TimedRelation) -> None:
    """Refuse a time that is neither a column nor the present.

    Raises:
        UnsupportedLookup: it is one; names the place.
    """
    if calls_the_present(statement, use.time) or _is_column(statement, use.time):
        return
    connectors = " and ".join(dict.fromkeys(repr(table.connector) for table in use.tables))
    by_whom = (
        f"connector {connectors} knows only the present" if connectors else "a lookup knows only the present"
    )
    name = statement.alias_of(use.relation) or "The relation"
    raise UnsupportedLookup(
        Problem(
            f"{name} is asked for a time of its own, but {by_whom}.",
            statement.span(use.time),
            "Write PROCTIME() or current_timestamp(), or leave FOR SYSTEM_TIME AS OF out.",
        )
    )


def versions_wanted(use: LookupUse) -> Versions | None:
    """The columns by which the time of ``use`` chooses rows; None where no time chooses any."""
    return None if use.time is None else versions_of(use.base)


def is_time_column(statement: Statement, use: LookupUse) -> bool:
    """Whether the time is a column, which Spark can find or not."""
    return use.time is not None and not calls_the_present(statement, use.time)


def calls_the_present(statement: Statement, time: Cut) -> bool:
    """Whether the time is ``PROCTIME()``, ``current_timestamp`` or the like."""
    first, last = statement.tokens.index_at(time.start), statement.tokens.index_at(time.end - 1)
    arguments = "".join(piece.text for piece in statement.pieces[first + 1 : last + 1])
    return statement.pieces[first].is_word(*PRESENT) and arguments in ("", "()")


def _is_column(statement: Statement, time: Cut) -> bool:
    first, last = statement.tokens.index_at(time.start), statement.tokens.index_at(time.end - 1)
    found = statement.pieces[first : last + 1]
    names, dots = found[::2], found[1::2]
    return all(piece.is_name for piece in names) and all(piece.is_symbol(".") for piece in dots)
