"""``o JOIN c ON ...``: INNER, LEFT, SEMI or ANTI; and ``c [RIGHT] JOIN o ON ...``, its sides swapped.

``|> JOIN c ON ...`` of pipe syntax is written as the operators that give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lookup_hints.plan.column_pruning import last_of_projection
from lookup_hints.plan.decide.nearest_joins import nearest_join
from lookup_hints.plan.forms.constant_or_correlated import correlated_join, is_correlated
from lookup_hints.plan.forms.join_graph import MULTIPLIED, is_multiplied_behind
from lookup_hints.plan.forms.on_using_natural import (
    join_of_step,
    left_of_step,
    possible_conditions,
    range_join,
    with_outer_checked_after,
)
from lookup_hints.plan.forms.other_uses import OtherUses
from lookup_hints.plan.joins import Form, FoundJoin, LookupJoin
from lookup_hints.plan.key_conditions import Conditions, Conjunct, conjuncts, sorted_conditions
from lookup_hints.plan.keys_in_where import with_where
from lookup_hints.plan.parse.query_blocks import Chain, Pipe, Relation, Shape, Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide
from lookup_hints.plan.table_use import TableUse
from lookup_hints.plan.write.from_parts import FromForm, FromPart, Visible
from lookup_hints.plan.write.lateral_view import joined, pipe_operators
from lookup_hints.plan.write.using_and_stars import Merged, merged_by, qualified_names, shared_edits
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut, Edit


class ExplicitJoin(FromForm):
    """A lookup table on the right of JOIN: its view, or its condition, is written after the left side."""

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        source, step = join.home.source, join.use.step
        if join.needs and source is not None and step is not None:
            return LeftSide(statement.tokens.cut(source.first, step.first - 1))
        return left_of_step(statement, join.use)

    def left_table(self, join: FoundJoin) -> Relation | None:
        chain, source = join.use.chain, join.home.source
        if chain is None or source is None or len(source.chains) > 1:
            return None
        is_first = chain.steps[0] is join.use.step and not join.use.around
        return chain.head if is_first and chain.head.shape is Shape.TABLE and chain.head.plain else None

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        relation, statement = join.left_table, analysis.statement
        if not join.shuffled or relation is None:
            return
        at = statement.tokens.place(relation)
        keys = joined([("(", key.left, ")") for key in join.conditions.keys], ", ")
        alias = quoted(statement.alias_of(relation) or "")
        yield Edit(at, ("(SELECT * FROM ", at, " DISTRIBUTE BY ", *keys, f") AS {alias}"))

    def stays_in(self, join: FoundJoin, chain: Chain) -> bool:
        return join.use.chain is chain

    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        if not join.is_condition:
            built = replace(built, views=[*built.views, join])
        else:
            built = replace(built, filters=[*built.filters, join])
        return built if join.is_semi else replace(built, visible=[*built.visible, own])


def explicit_join(use: TableUse) -> FoundJoin | None:
    """The join whose right side ``use`` is, in FROM or in a pipe operator; None where it is none.

    Raises:
        UnsupportedLookup: it cannot run; names the reason.
    """
    if use.step is None:
        return None
    form = ExplicitJoin() if use.pipe is None else PipeJoin()
    if use.step.nearest is not None:
        return nearest_join(form, use, use.step)
    join = join_of_step(form, use, use.step)
    asked = correlated_join(join)
    if asked is not None:
        return asked
    join = with_outer_checked_after(join, can_check_after=join.kind == "INNER" and use.pipe is None)
    possible = possible_conditions(join)
    needs = _named_before_comma(use, possible)
    join = join.with_(conditions=possible, needs=needs)
    if join.kind == "INNER" and is_multiplied_behind(use, needs):
        if use.may_be_read:
            raise use.refused(join.at, MULTIPLIED)
        join = join.with_(notes=(*join.notes, MULTIPLIED))
    return join


def _named_before_comma(use: TableUse, conditions: Conditions) -> frozenset[Relation]:
    """The relations before a comma that the chain so far names: a comma binds as a JOIN does in Spark."""
    source = use.block.source
    if source is None or use.chain is None or use.chain not in source.chains[1:]:
        return frozenset()
    chains = source.chains[: source.chains.index(use.chain)]
    before = {relation for chain in chains for relation in chain.shown}
    scope = use.scope
    steps = use.chain.steps[: use.chain.steps.index(use.step) + 1] if use.step is not None else []
    computed = [each for each in use.chain.everything if each.lateral and each.first < use.index]
    referred = [scope.referred(tree) for tree in use.statement.trees(step.on for step in steps)]
    referred += [use.scopes.referred(scope, key) for key in conditions.keys if not key.shared]
    named = {relation for relation in before for each in computed if use.scopes.may_name(each, relation)}
    return frozenset(before & named.union(*(each.relations for each in referred)))


_KINDS = {
    **dict.fromkeys(((), ("INNER",), ("CROSS",)), "INNER"),
    ("RIGHT",): "LEFT",
    ("RIGHT", "OUTER"): "LEFT",
}


class SwappedJoin(FromForm):
    """A lookup table first in its chain: the relation joined to it is written before it."""

    shown = "the left side of a join, swapped"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        right = self.opens(join).right
        assert right is not None, "a join has a right side"
        return LeftSide(statement.tokens.place(right))

    def opens(self, join: FoundJoin) -> Step:
        assert join.use.chain is not None
        return join.use.chain.steps[0]

    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        """``built`` with its view; its columns still come first."""
        return replace(built, visible=[own, *built.visible], views=[join], reordered=True)


def swapped_join(use: TableUse, others: OtherUses) -> FoundJoin | None:
    """The join with ``use`` on its left, if the right side gives the keys; else None.

    Raises:
        UnsupportedLookup: its ON holds a query where Spark allows none.
    """
    if use.chain is None or not use.relation.plain or not use.chain.steps:
        return None
    step = use.chain.steps[0]
    kind, right = _KINDS.get(step.words), step.right
    if kind is None or right is None or right.lateral or step.using:
        return None
    if others.may_be_asked(use.statement, right):
        return None
    on = list(conjuncts(use.statement, step.on)) if step.on is not None else []
    if _names_other_chains(use, right, on):
        return None
    conditions = sorted_conditions(use.statement, on, use.names, use.askable, always=use.always)
    if kind == "INNER":
        conditions = with_where(use, conditions, right)
    at = use.statement.tokens.cut(use.relation.first, step.last)
    join = FoundJoin(use, SwappedJoin(), kind, at, use.block, conditions)
    if not conditions.keys:
        ranged = range_join(join, right.as_seen(lambda _: True))
        if ranged is None:
            return None
        join = ranged
    elif (
        all(key.constant for key in conditions.keys)
        or use.missing(conditions.keys)
        or is_correlated(use, conditions.keys)
    ):
        return None
    return join.with_(conditions=possible_conditions(join))


def _names_other_chains(use: TableUse, right: Relation, on: Iterable[Conjunct]) -> bool:
    """Whether ON also names relations before a comma, which the swapped sides could not see."""
    own = {use.relation, *right.as_seen(lambda _: True)}
    return any(use.scope.referred(each.tree).relations - own for each in on)


# --- in pipe syntax ---------------------------------------------------------------------------------


class PipeJoin(Form):
    """A lookup join with the rows that come out of the operators before it."""

    shown = "a join of pipe syntax"

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        return left_of_step(statement, join.use)

    def edits(self, join: LookupJoin, analysis: Analysis, numbers: Iterator[int]) -> Iterator[Edit]:
        statement, pipe = analysis.statement, join.use.pipe
        assert pipe is not None
        merged = _merged_by_pipe(statement, join, pipe)
        text = pipe_operators(statement, join, next(numbers), private=merged is not None)
        yield Edit(Cut(statement.pieces[pipe.first].end, statement.pieces[pipe.last].end), text)
        if merged is not None:
            yield from shared_edits(analysis, join.home, [merged])


def _merged_by_pipe(statement: Statement, join: LookupJoin, pipe: Pipe) -> Merged | None:
    """The shared columns of ``|> JOIN c USING (id)``, if ``c.id`` or ``c.*`` follows; else None.

    Raises:
        UnsupportedLookup: no list of columns after it removes the private column again.
    """
    merged = merged_by(join)
    if merged is None:
        return None
    named = next((at for at in _shared_names(statement, merged) if at > pipe.last), None)
    if named is None:
        return None
    end = last_of_projection(statement, join.home, pipe)
    if end is not None:
        return replace(merged, own=(end + 1, join.home.last))
    alias, piece = join.use.alias, statement.pieces[named]
    if piece.is_symbol("*"):
        reason = f"{alias}.* holds a column of USING, and no list of columns follows"
        instead = f"list the columns, and name that one without {alias}"
    else:
        reason = f"{piece.text} is a column of USING, and no list of columns follows"
        instead = f"name it without {alias}"
    raise join.use.refused(statement.tokens.cut(named - 2, named), reason, instead)


def _shared_names(statement: Statement, merged: Merged) -> Iterator[int]:
    """The places behind ``c.`` of columns of USING and of stars."""
    shared = set(map(str.lower, merged.columns))
    for index in qualified_names(statement, merged.join.home, merged.alias):
        piece = statement.pieces[index]
        if piece.is_symbol("*") or (piece.is_name and piece.name.lower() in shared):
            yield index
