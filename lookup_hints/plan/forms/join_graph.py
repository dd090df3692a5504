"""Which relations of a FROM are joined by conditions without the lookup table; others would be multiplied.

A lookup join is a LATERAL VIEW after the relations that give its keys, and Spark never moves a join from
after a view to before it. So the relations before it must be joined by conditions of their own. Over
ordinary tables Spark would pick any order of joins that has conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lookup_hints.plan.forms.on_using_natural import KINDS
from lookup_hints.plan.key_conditions import known_conjuncts, sides_of
from lookup_hints.plan.keys_in_where import where_of
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Step
from lookup_hints.plan.scopes import Scopes
from lookup_hints.plan.table_use import TableUse

MULTIPLIED = "its keys come from relations that nothing else joins, and whose product would be asked for"

JoinedRelations = frozenset[Relation]
"""Relations that are joined with each other."""


@dataclass(frozen=True)
class Link:
    """A condition that joins relations.

    Args:
        sides: the relations that its sides name; each side must be joined in itself first.
        fixed: whether Spark cannot reorder it, as it belongs to an outer join, for example.
    """

    sides: tuple[JoinedRelations, ...]
    fixed: bool = False

    @property
    def relations(self) -> JoinedRelations:
        return frozenset[Relation]().union(*self.sides)


def joined_by(links: Iterable[Link], relations: Iterable[Relation]) -> list[JoinedRelations]:
    """The groups of ``relations`` that ``links`` among them join."""
    groups: list[JoinedRelations] = [frozenset((relation,)) for relation in relations]
    every = frozenset[Relation]().union(*groups)
    waiting = [link for link in links if link.relations <= every]
    while True:
        ready = next(
            (link for link in waiting if all(any(side <= group for group in groups) for side in link.sides)),
            None,
        )
        if ready is None:
            return groups
        waiting.remove(ready)
        touched = [group for group in groups if group & ready.relations]
        groups = [*(group for group in groups if group not in touched), frozenset[Relation]().union(*touched)]


def is_multiplied_by(use: TableUse, chains: Iterable[Chain]) -> bool:
    """Whether a view behind ``chains`` would make a product of them that Spark's own plan does not have."""
    chains = list(chains)
    if len(chains) == 1 and use.scopes.once(_first_unjoined, chains[0]) is None:
        return False
    return is_multiplied(use, frozenset(each for chain in chains for each in chain.relations))


def is_multiplied_behind(use: TableUse, more: JoinedRelations) -> bool:
    """The same of a view behind the relations before ``use`` in its chain, and ``more``."""
    if use.chain is None:
        return False
    apart = use.scopes.once(_first_unjoined, use.chain)
    if not more and (apart is None or apart >= use.index):
        return False
    return is_multiplied(use, more.union(use.chain.before(use.relation)))


def _first_unjoined(scopes: Scopes, chain: Chain) -> int | None:
    """Offset from which a quick look cannot show that the relations of ``chain`` are joined.

    None: all are joined. Linear in the length of the text, as most chains are joined.
    """
    block = scopes.statement.structure.block_at(chain.first)
    relations = chain.relations
    if block is None or len(relations) < 2:
        return None
    places = {relation: number for number, relation in enumerate(relations)}
    by_last: dict[int, list[JoinedRelations]] = {}
    for link in links_of(scopes, block):
        if all(len(side) == 1 for side in link.sides) and all(each in places for each in link.relations):
            by_last.setdefault(max(places[each] for each in link.relations), []).append(link.relations)
    for number, relation in enumerate(relations):
        # All before it is joined already, so that one of them is enough.
        if number and not any(len(joined) > 1 for joined in by_last.get(number, ())):
            return relation.first
    return None


# No cross product is made to get keys: it would ask for every pair. (docs/decisions/0151)
def is_multiplied(use: TableUse, before: JoinedRelations) -> bool:
    """The same of a view behind ``before``."""
    links = links_of(use.scopes, use.block)
    apart = joined_by(links, before)
    if len(apart) < 2:
        return False
    movable = [link for link in links if not link.fixed or link.relations <= before]
    at_last = joined_by(movable, use.block.relations)
    return sum(bool(group & before) for group in at_last) < len(apart)


# Spark moves no join across a LATERAL VIEW, so the relations before it need conditions of their own.
# (docs/decisions/0151)
def smallest_joined(
    links: Iterable[Link], wanted: JoinedRelations, among: JoinedRelations, chains: Iterable[Chain]
) -> JoinedRelations:
    """Relations of ``among`` that hold ``wanted``, and are joined with each other; few, by whole chains."""
    links, kept = list(links), among
    for chain in chains:
        fewer = kept - frozenset(chain.relations)
        if wanted <= fewer and any(wanted <= group for group in joined_by(links, fewer)):
            kept = fewer
    return kept


def links_of(scopes: Scopes, block: Block) -> list[Link]:
    return scopes.once(_find_links, block)


def _find_links(scopes: Scopes, block: Block) -> list[Link]:
    links = [*_links_of_where(scopes, block)]
    before: list[Relation] = []
    for chain in block.chains:
        links += _links_in(scopes, block, chain, before)
        before += chain.relations
    return links


def _links_of_where(scopes: Scopes, block: Block) -> Iterator[Link]:
    scope = scopes.of_where(block)
    for conjunct in scopes.statement.once(where_of, block):
        sides = scopes.statement.once(sides_of, conjunct.at)
        if sides is not None:
            named = tuple(scope.referred(side.tree).relations for side in sides)
            if all(named):
                yield Link(named)


def _links_in(scopes: Scopes, block: Block, chain: Chain, before: list[Relation]) -> Iterator[Link]:
    """The conditions that join the relations of a chain with each other, and with those ``before`` it."""
    seen: list[Relation] = []
    are_joined = True
    for relation, step in ((chain.head, None), *((step.right, step) for step in chain.steps)):
        own = [] if relation is None else relation.as_seen(lambda _: True)
        if relation is not None and relation.open_chain is not None:
            yield from _links_in(scopes, block, relation.open_chain, [*before, *seen])
        if relation is not None and relation.lateral:
            named = [each for each in (*before, *seen) if scopes.may_name(relation, each)]
            yield from (Link((frozenset((each,)), frozenset(own)), fixed=True) for each in named)
        if step is not None:
            links = list(_links_of_step(scopes, block, step, seen[-1:] if are_joined else seen, own))
            are_joined = any(link.fixed or link.relations & set(seen) for link in links)
            yield from links
        seen += own


def _links_of_step(
    scopes: Scopes, block: Block, step: Step, seen: list[Relation], own: list[Relation]
) -> Iterator[Link]:
    every = tuple(frozenset((each,)) for each in (*seen, *own))
    if KINDS.get(step.words) != "INNER" or step.using or step.right is None:
        yield Link(every, fixed=True)
    elif step.on is not None:
        found = known_conjuncts(scopes.statement, step.on)
        if found is None:
            yield Link(every, fixed=True)
        for conjunct in found or ():
            named = scopes.of_from(block).referred(conjunct.tree).relations
            if named:
                yield Link(tuple(frozenset((each,)) for each in named))
