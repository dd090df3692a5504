"""Which uses count: a table inside a derived table, CTE or view that is asked by key is not read there."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from lookup_hints.plan.read.statement import LookupUse, Statement
from lookup_hints.plan.read.structure import Block, Query, Relation


class Uses:
    """The uses of a statement, block by block: those that read a block before those in it."""

    def __init__(self, statement: Statement, uses: Sequence[LookupUse], through: Sequence[LookupUse]) -> None:
        """``uses`` name a lookup table, those of ``through`` see one through a query."""
        self._by_block: dict[Block, list[LookupUse]] = defaultdict(list)
        for use in (*uses, *through):
            self._by_block[use.block].append(use)
        self._readers = _readers(statement) if through else {}
        self._waiting = {use.relation for use in through}
        self._bypassed = set[Relation]()

    def blocks(self) -> Iterator[list[LookupUse]]:
        """The uses of each block that count, in the order of the text.

        The next block depends on which relations of those before were bypassed.
        """
        blocks = deque(self._by_block)
        while blocks:
            block = blocks.popleft()
            if any(each in self._waiting for each in self._readers.get(block.query, ())):
                blocks.append(block)
                continue
            here = self._by_block[block]
            self._waiting -= {use.relation for use in here}
            if self.is_bypassed(block):
                self._bypassed.update(use.relation for use in here)
            else:
                yield sorted(here, key=lambda use: use.index)

    def bypass(self, use: LookupUse) -> None:
        """Say that ``use`` asks by key, so that what it is seen through is not read there."""
        self._bypassed.add(use.relation)

    def is_bypassed(self, block: Block) -> bool:
        """Whether all that read the block ask by key what they see through it."""
        readers = self._readers.get(block.query, ())
        return bool(readers) and all(each in self._bypassed for each in readers)


def _readers(statement: Statement) -> Mapping[Query, Sequence[Relation]]:
    """For each query the relations that are it: a derived table, or all that name a CTE."""
    found: dict[Query, list[Relation]] = defaultdict(list)
    for block in statement.structure.blocks:
        for relation in block.everything:
            query = relation.query if relation.cte is None else relation.cte.query
            if query is not None:
                found[query].append(relation)
    return found
