"""Which rows of the left side reach a lookup, as a query that Spark can run without any lookup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.plan.decide.ask_or_read import holds_lookups, is_filtered_around
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.key_conditions import is_random, known_conjuncts
from lookup_hints.plan.parse.query_blocks import Block
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide
from lookup_hints.plan.write.lateral_view import key_arguments
from lookup_hints.sql.text_edits import Cut


@dataclass(frozen=True)
class LeftRowsToCount:
    """The rows of the left side of a lookup join.

    Args:
        home: the block of the join.
        left: the part of its FROM that gives the rows.
        conditions: the conditions of WHERE that Spark applies before the lookup.
        why_fewer: why fewer rows may reach the lookup; empty where all do.
        why_more: why more may; empty where none are added.
    """

    home: Block
    left: LeftSide
    conditions: tuple[Cut, ...]
    why_fewer: str = ""
    why_more: str = ""


@dataclass(frozen=True)
class KeysBehindLookup:
    """The keys of a lookup that are computed from the rows of another one alone.

    Args:
        before: the other one.
        conditions: the conditions of WHERE on its rows.
        why_fewer: why fewer of these keys may be asked; empty where all are.
    """

    before: LookupJoin
    conditions: tuple[Cut, ...]
    why_fewer: str


class CannotBeCounted(Exception):
    """Which rows reach a lookup is known only when it runs; the text says why.

    Args:
        reason: why.
        bound: the rows that bound them, where there are some.
        behind: where a sample of the lookup before it shows its keys.
    """

    def __init__(
        self, reason: str, bound: LeftRowsToCount | None = None, behind: KeysBehindLookup | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.bound, self.behind = reason, bound, behind


def left_rows_to_count(joins: Sequence[LookupJoin], join: LookupJoin) -> LeftRowsToCount:
    """The rows that reach the lookup of ``join``, one of all ``joins`` of its statement.

    Raises:
        CannotBeCounted: another lookup, or a query around it, gives its keys.
    """
    statement, home = join.use.statement, join.home
    here = [each for each in joins if each.home is home]
    asked = {each.use.relation for each in here}
    others = [relation for relation in home.relations if relation not in asked]
    left = join.left_side(statement)
    is_single = len(others) == 1 and not others[0].lateral and not home.pipes
    if is_single:
        left = LeftSide(statement.tokens.cut(others[0].first, others[0].last))
    if left.at is None:
        raise CannotBeCounted("its keys come from no relation before it")
    before = [each for each in here if each.use.index < join.use.index]
    rows = LeftRowsToCount(
        home,
        left,
        tuple(_conditions_before_lookup(statement, here, join, left.at)),
        why_fewer=next(_reasons_for_fewer(statement, here, before, join), ""),
        why_more=next((_GIVES_MORE.format(each.use.shown) for each in before if not is_unique(each)), ""),
    )
    for each in before:
        if each.use.relation in _relations_of_keys(join):
            bound = rows if is_single and not rows.why_more else None
            behind = _keys_behind(statement, here, before, each, join)
            raise CannotBeCounted(f"its keys come from the lookup of {each.use.shown}", bound, behind)
    if holds_lookups(statement, home, left.at):
        raise CannotBeCounted("a lookup before it decides which rows reach it")
    return rows


_GIVES_MORE = "the lookup of {} before it may give several rows for one"


def _relations_of_keys(join: LookupJoin) -> frozenset[object]:
    scopes = join.use.scopes
    scope = scopes.of_where(join.home)
    return frozenset(each for key in join.conditions.keys for each in scopes.referred(scope, key).relations)


def _keys_behind(
    statement: Statement,
    here: Sequence[LookupJoin],
    before: Sequence[LookupJoin],
    asked: LookupJoin,
    join: LookupJoin,
) -> KeysBehindLookup | None:
    if join.order is not None or _relations_of_keys(join) != {asked.use.relation}:
        return None
    others = [each for each in before if each is not asked]
    why_fewer = next(_reasons_for_fewer(statement, here, others, join), "")
    scope, conditions = join.use.scopes.of_where(join.home), list[Cut]()
    for where in join.home.wheres:
        for conjunct in statement.once(known_conjuncts, where) or ():
            relations = scope.referred(conjunct.tree).relations
            if relations == {asked.use.relation} and not is_random(conjunct.tree):
                conditions.append(conjunct.at)
            elif asked.use.relation in relations:
                why_fewer = why_fewer or "a condition of WHERE compares the rows of lookups"
    return KeysBehindLookup(asked, tuple(conditions), why_fewer)


def is_unique(join: LookupJoin) -> bool:
    """Whether a left row finds one row at the most."""
    key = set(join.function.table.primary_key)
    return join.is_semi or bool(key and key <= set(join.function.key_columns))


def _reasons_for_fewer(
    statement: Statement, here: Sequence[LookupJoin], before: Sequence[LookupJoin], join: LookupJoin
) -> Iterator[str]:
    home, asked = join.home, {each.use.relation for each in here}
    yield from (
        f"the lookup of {each.use.shown} before it may drop rows" for each in before if each.kind != "LEFT"
    )
    if join.chosen.settings.stops_early:
        yield "a LIMIT may stop it early"
    if is_filtered_around(statement, home):
        yield "the query around it may need fewer rows"
    for step in home.steps:
        is_behind = statement.pieces[step.first].start >= join.at.end and step.right not in asked
        if is_behind and ("LEFT" not in step.words or step.hides_right):
            yield "a join behind it may need fewer rows"
    if home.pipes:
        yield "operators behind it may need fewer rows"
    trees = [each.tree for where in home.wheres for each in statement.once(known_conjuncts, where) or ()]
    if any(tree.find(exp.Query) for tree in trees) or len(trees) < len(home.wheres):
        yield "a condition of WHERE holds a query"


# Spark pushes conditions on the left side alone below the lookup, unless its function is not deterministic.
def _conditions_before_lookup(
    statement: Statement, here: Sequence[LookupJoin], join: LookupJoin, left: Cut
) -> Iterator[Cut]:
    if any(each.repeated and each.use.index >= join.use.index for each in here) or join.home.pipes:
        return
    place, scope = statement.tokens.place, join.use.scopes.of_where(join.home)
    inside = {
        each
        for each in join.home.relations
        if left.start <= place(each).start and place(each).end <= left.end
    }
    for where in join.home.wheres:
        for conjunct in statement.once(known_conjuncts, where) or ():
            referred = scope.referred(conjunct.tree)
            is_left = referred.relations <= inside and not referred.outer
            if is_left and not conjunct.tree.find(exp.Query) and not is_random(conjunct.tree):
                yield conjunct.at


def key_expressions(analysis: Analysis, join: LookupJoin) -> list[str]:
    """The keys of a lookup as Spark computes them, each with its cast; NULL where nothing is looked up."""
    return ["".join(map(analysis.text_over_stubs, argument)) for argument in key_arguments(join)]


def asked_key(join: LookupJoin, values: Sequence[str]) -> str:
    """The key that is asked for, over the texts of its ``values``; NULL where nothing is looked up."""
    columns, null_safe = join.function.key_columns, join.function.null_safe
    compared = values if join.function.order_asked else values[: len(columns)]
    key = compared[0] if len(compared) == 1 and not null_safe else f"struct({', '.join(compared)})"
    plain = [
        value
        for at, value in enumerate(values)
        if columns[at : at + 1] not in [(each,) for each in null_safe]
    ]
    asking = " AND ".join(f"{value} IS NOT NULL" for value in plain)
    return f"IF({asking}, {key}, NULL)" if asking else key
