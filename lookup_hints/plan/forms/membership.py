"""``[NOT] EXISTS (SELECT ... FROM c)`` and ``x [NOT] IN (SELECT ... FROM c)`` in WHERE: SEMI and ANTI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.conditions import Conditions, conjuncts, sorted_conditions
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.forms.exists_or_in import Membership, membership
from lookup_hints.plan.forms.facts import Facts, is_random, where_of
from lookup_hints.plan.forms.possible import is_awkward, queried
from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Relation, Role
from lookup_hints.plan.write.views import Text, lateral_view
from lookup_hints.sql.splice import Edit


@dataclass(frozen=True)
class MembershipJoin(LookupJoin):
    """A semi or anti join with the rows of the block around the query: its view stands behind that FROM."""

    form: ClassVar[str] = "EXISTS or IN in WHERE"
    compares_as_in: ClassVar[bool] = True

    @classmethod
    def found(cls, facts: Facts, use: LookupUse, _waiting: set[Relation]) -> MembershipJoin | None:
        """The join that an EXISTS or IN over ``use``, and nothing more, is; else None."""
        found = _membership(facts, use)
        conditions = None if found is None else _conditions(facts, use, found)
        if found is None or conditions is None or _may_be_null(use, found):
            return None
        kind = "LEFT ANTI" if found.negated else "LEFT SEMI"
        return facts.join(cls, use, kind, found.at, conditions, home=use.block.query.parent)

    @staticmethod
    def why_not(facts: Facts, use: LookupUse) -> UnsupportedLookup | None:
        """The error of a NOT IN that would be an anti join, were no NULL possible; else None."""
        found = _membership(facts, use)
        if found is None or _conditions(facts, use, found) is None or not _may_be_null(use, found):
            return None
        return UnsupportedLookup(
            Problem(
                f"NOT IN over the lookup table {use.table.name} cannot run: where either side may be NULL it"
                " needs the whole table.",
                facts.statement.span(found.at),
                "Write NOT EXISTS (SELECT 1 FROM ... WHERE column = value) instead, or add IS NOT NULL for"
                " the left side of a NOT IN over the primary key.",
            )
        )

    def left_side(self, statement: Statement) -> LeftSide:
        """All of the FROM around it, its LATERAL VIEWs included."""
        source = self.home.source
        assert source is not None, "its home has a FROM"
        last = self.home.views_last if self.home.views_last > -1 else source.last
        return LeftSide(statement.tokens.cut(source.chains[0].first, last))

    def edits(self, draft: Draft, numbers: Iterator[int]) -> Iterator[Edit]:
        """Nothing is left of the condition."""
        yield Edit(self.at, ("true",))

    def behind_from(self, statement: Statement, numbers: Iterator[int]) -> Text:
        """The view that keeps or drops rows."""
        return lateral_view(statement, self, next(numbers))


def _membership(facts: Facts, use: LookupUse) -> Membership | None:
    """The condition of the WHERE around the query that is an EXISTS or IN over ``use``, or None."""
    query = use.block.query
    parent = query.parent
    if parent is None or query.role is not Role.EXPRESSION or parent.source is None:
        return None
    where = facts.statement.once(where_of, parent)
    found = membership(facts.statement, use, where, facts.names(use))
    return found if use.relation.plain else None


def _conditions(facts: Facts, use: LookupUse, found: Membership) -> Conditions | None:
    """The conditions of the join, or None where it cannot be asked by them, or hides a query in them."""
    statement, block = facts.statement, use.block
    inner = list(conjuncts(statement, block.wheres[0])) if block.wheres else []
    askable = facts.askable(use)
    given = [key for key in found.keys if key.column in askable]
    conditions = sorted_conditions(statement, inner, facts.names(use), askable, given, facts.always(use))
    if len(given) < len(found.keys) or not conditions.keys or facts.missing(use, conditions.keys):
        return None
    checked = [*conditions.residual, *conditions.left_only]
    if checked and queried(facts, conditions.keys):
        return None
    if any(is_awkward(each.tree) for each in checked) or is_random(found.tree):
        return None
    return conditions


def _may_be_null(use: LookupUse, found: Membership) -> bool:
    """Whether it is a NOT IN with a side that may be NULL: then it is no anti join."""
    if not found.negated or not found.keys:
        return False
    key = found.keys[0]
    is_plain = len(found.keys) == 1 and key.column in use.table.primary_key
    return not (is_plain and found.left_is_not_null)
