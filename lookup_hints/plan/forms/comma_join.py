"""``FROM o, c WHERE c.id = o.id``: a table between commas whose keys WHERE gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lookup_hints.plan.forms.join_graph import (
    MULTIPLIED,
    JoinedRelations,
    Link,
    is_multiplied_by,
    joined_by,
    links_of,
    smallest_joined,
)
from lookup_hints.plan.forms.on_using_natural import range_join
from lookup_hints.plan.forms.other_uses import OtherUses
from lookup_hints.plan.joins import FoundJoin, LookupJoin
from lookup_hints.plan.key_conditions import Conditions, KeyEquality, chosen_keys
from lookup_hints.plan.keys_in_where import where_equalities
from lookup_hints.plan.parse.name_resolution import Referred
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.scopes import Scopes
from lookup_hints.plan.spark_analysis import LeftSide
from lookup_hints.plan.table_use import CannotBeAsked, TableUse
from lookup_hints.plan.write.from_parts import FromForm, FromPart, Visible


# A comma binds as JOIN does in Spark, but no product is made for a lookup: Spark moves no join from behind a
# view to before it. (docs/decisions/0151)
class CommaJoin(FromForm):
    """A table between commas, joined with the chains that give its keys, and written after them."""

    shown = "between commas, keys from WHERE"
    waits = True

    def left_side(self, join: FoundJoin, statement: Statement) -> LeftSide:
        source = join.home.source
        assert source is not None, "it stands in a FROM"
        return LeftSide(statement.tokens.place(source))

    def behind(self, join: LookupJoin, built: FromPart, own: Visible) -> FromPart:
        return replace(built, visible=[*built.visible, own], views=[*built.views, join])


def comma_join(use: TableUse, others: OtherUses) -> FoundJoin | None:
    """The join of a table alone between commas with relations that do not wait for keys; or None.

    Relations that may be computed from the table wait with it.
    """
    if not (use.relation.plain and _is_alone_in_chain(use) and len(use.block.chains) > 1):
        return None
    others.waiting |= _computed_from(use)
    if is_by_primary_key(use, [each for each, _ in where_equalities(use) if each.constant]):
        return None  # constants give one row, independent of other relations
    given = list(_given_equalities(use, others, others.waiting))
    joined = _joins_by_groups(use, given, others.waiting)
    if joined:
        return joined[0]
    beside = [chain for chain in use.block.chains if chain is not use.chain]
    if len(beside) == 1 and not others.waiting & set(beside[0].relations):
        shown = frozenset(beside[0].shown)
        ranged = range_join(_make_join(use, (), shown), shown)
        if ranged is not None:
            return ranged
    product = None if use.may_be_read else _join_by_equalities(use, given)
    return None if product is None else product.with_(notes=(MULTIPLIED,))


def _make_join(use: TableUse, keys: tuple[KeyEquality, ...], needs: JoinedRelations) -> FoundJoin:
    at = use.statement.tokens.place(use.relation)
    return FoundJoin(use, CommaJoin(), "INNER", at, use.block, Conditions(keys), needs=needs)


Given = tuple[KeyEquality, Referred]
"""An equality of WHERE, and the names in its left side."""


# Keys come from one group of joined relations. The other equalities stay in WHERE, where Spark joins the
# rows found with the other groups. (docs/decisions/0151)
def _joins_by_groups(use: TableUse, given: list[Given], waiting: set[Relation]) -> list[FoundJoin]:
    """The joins with relations that are joined without ``use``: by primary key first, then by most keys."""
    chain_of = use.statement.once(_chain_of, use.block)
    named = {chain_of[each] for _, referred in given for each in referred.relations if each in chain_of}
    if len(named) < 2 and not (named and is_multiplied_by(use, named)):
        product = _join_by_equalities(use, given)
        return [] if product is None else [product]
    chains = [chain for chain in use.block.chains if not waiting & set(chain.relations)]
    links = links_of(use.scopes, use.block)
    side_by_side = [Link(tuple(frozenset((each,)) for each in chain.relations)) for chain in chains]
    found, shown = [], frozenset(use.block.shown)  # a SEMI JOIN hides its right side
    for group in joined_by([*links, *side_by_side], (each for chain in chains for each in chain.relations)):
        inside = [(equality, referred) for equality, referred in given if referred.relations <= group]
        product = _join_by_equalities(use, inside)
        if product is not None:
            needs = smallest_joined([*links, *side_by_side], product.needs, group, chains)
            if not is_multiplied_by(use, {chain_of[each] for each in needs}):
                found.append(product.with_(needs=needs & shown))

    def rank(join: FoundJoin) -> tuple[bool, int]:
        keys = join.conditions.keys
        return not is_by_primary_key(use, keys), -len(keys)

    return sorted(found, key=rank)


def _chain_of(_: Statement, block: Block) -> dict[Relation, Chain]:
    return {relation: chain for chain in block.chains for relation in chain.relations}


def _join_by_equalities(use: TableUse, given: list[Given]) -> FoundJoin | None:
    """The join by the keys ``given``; None if the source cannot look up by them."""
    keys: dict[str, KeyEquality] = {}
    for equality, _ in given:
        keys.setdefault(equality.column, equality)
    chosen = chosen_keys(keys.values(), use.table, use.always)
    if not chosen or use.missing(chosen):
        return None
    needs = (referred.relations for equality, referred in given if equality in chosen)
    return _make_join(use, chosen, frozenset[Relation]().union(*needs))


# Tables with their whole primary key come before those with only a part of it.
# (docs/decisions/0151)
def is_by_primary_key(use: TableUse, keys: Iterable[KeyEquality]) -> bool:
    """Whether ``keys`` hold the whole primary key that is declared."""
    primary = set(use.table.primary_key)
    return bool(primary) and primary <= {key.column for key in keys}


def why_no_key(
    pending: Iterable[TableUse], scanned: Iterable[TableUse], others: OtherUses
) -> Iterator[CannotBeAsked]:
    """Why uses of ``pending`` between commas beside ordinary relations cannot be looked up."""
    heads = {use.relation for use in (*pending, *scanned)}
    for use in pending:
        if not _is_alone_in_chain(use):
            continue
        if any(chain.head not in heads and not chain.head.lateral for chain in use.block.chains):
            yield _no_key_error(use, others)


def _no_key_error(use: TableUse, others: OtherUses) -> CannotBeAsked:
    statement, computed = use.statement, _computed_from(use)
    at = statement.tokens.place(use.relation)
    if any(referred.relations & computed for _, referred in where_equalities(use)):
        reason = "its key comes from joins behind the comma that name it themselves"
        return use.refused(at, reason, "write CROSS JOIN in place of the comma")
    if any(_given_equalities(use, others, {use.relation})):
        return use.refused(at, MULTIPLIED)
    reason = "no equality in WHERE gives its key, so nothing says which rows to ask for"
    return use.refused(at, reason)


def _is_alone_in_chain(use: TableUse) -> bool:
    """Whether nothing is joined to it, and it is not in parentheses."""
    return use.chain is not None and not (use.chain.steps or use.around)


def _given_equalities(
    use: TableUse, others: OtherUses, waiting: set[Relation]
) -> Iterator[tuple[KeyEquality, Referred]]:
    """The equalities of WHERE that relations give which do not wait for keys themselves."""
    if use.block not in others.tied:
        others.tied[use.block] = _tied_relations(use.scopes, use.block, others)
    unable = waiting | others.tied[use.block]
    for equality, referred in where_equalities(use):
        if referred.relations and not referred.relations & unable and not referred.outer:
            yield equality, referred


def _tied_relations(scopes: Scopes, block: Block, others: OtherUses) -> set[Relation]:
    """The relations of chains of ordinary joins whose ON names relations before their comma.

    With a LATERAL VIEW after it, such a chain would be in a derived table that cannot see the others.
    """
    scope, statement, tied = scopes.of_from(block), scopes.statement, set[Relation]()
    for chain in block.chains[1:]:
        own = set(chain.relations)
        steps = (
            step
            for step in chain.steps_in_order
            if step.right and not others.may_be_asked(statement, step.right)
        )
        trees = statement.trees(step.on for step in steps)
        if any(scope.referred(tree).relations - own for tree in trees):
            tied |= own
    return tied


# A chain that names relations before its comma is written after all of them. (docs/decisions/0100)
def _computed_from(use: TableUse) -> set[Relation]:
    """The relations of chains behind ``use`` that may name it: in a LATERAL relation, or in ON."""
    return {
        relation
        for chain, lateral, named in use.scopes.once(_leaning_chains, use.block)
        if chain.first > use.index
        if use.relation in named or any(use.scopes.may_name(each, use.relation) for each in lateral)
        for relation in chain.relations
    }


# The names in a LATERAL relation are guessed from its words. Guessing too many is safe: more rows pass the
# lookup. (docs/decisions/0100)
def _leaning_chains(scopes: Scopes, block: Block) -> list[tuple[Chain, list[Relation], frozenset[Relation]]]:
    """The chains with LATERAL relations or names in ON: each with both, as far as there are any."""
    scope, found = scopes.of_from(block), []
    for chain in block.chains:
        lateral = [each for each in chain.everything if each.lateral]
        trees = scopes.statement.trees(step.on for step in chain.steps_in_order)
        named = (scope.referred(tree).relations for tree in trees)
        found.append((chain, lateral, frozenset[Relation]().union(*named)))
    return [(chain, lateral, named) for chain, lateral, named in found if lateral or named]
