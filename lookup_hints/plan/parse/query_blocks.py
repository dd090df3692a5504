"""The structure of a query as values: its blocks, the relations they join, and which names they see.

Only the parts that the planner needs, each with its place in the text: relations with their names and kind of
join, conditions, and the nesting of blocks. ``query_reader`` builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import takewhile

from lookup_hints.sql.text_edits import Cut


class Role(Enum):
    """The role of a query in the query block around it."""

    STATEMENT = "statement"
    CTE = "cte"
    RELATION = "relation"
    EXPRESSION = "expression"


class Shape(Enum):
    """The kind of a relation in FROM."""

    TABLE = "table"
    QUERY = "query"
    PARENTHESES = "parentheses"
    FUNCTION = "function"
    VALUES = "values"
    PIVOT = "pivot"


@dataclass(eq=False)
class Cte:
    """One query of a WITH.

    Args:
        name: its name.
        at: name, columns, AS and query.
        query: its query.
        recursive: whether it may read itself.
        holder: the query whose WITH defines it.
    """

    name: str
    at: Cut
    query: Query
    recursive: bool
    holder: Query


Level = tuple[Cte, ...]
"""The CTEs of one WITH that can be named at some place."""


@dataclass(eq=False)
class Relation:
    """One relation of a FROM.

    Args:
        shape: its kind.
        first: index of its first piece.
        last: index of its last piece, alias included.
        start: index of its first piece behind LATERAL or STREAM.
        name: for a table its name, without a schema; empty where it has one, and for other shapes.
        name_at: index of the piece that names it (or of the last part of its name).
        alias_at: index of its alias, or None.
        columns: the names that its alias gives its columns.
        extensions: the text between its name and its alias: samples, options, a watermark.
        time: the expression of ``FOR SYSTEM_TIME AS OF``.
        plain: whether it consists of name, time and alias only.
        lateral: whether it is LATERAL.
        query: the query in parentheses, if it is one.
        chain: the joined relations in parentheses, if it is some.
        cte: the CTE that its name means.
    """

    shape: Shape
    first: int
    last: int
    start: int = -1
    name: str = ""
    name_at: int = -1
    alias_at: int | None = None
    columns: tuple[str, ...] = ()
    extensions: tuple[Cut, ...] = ()
    time: Cut | None = None
    plain: bool = True
    lateral: bool = False
    query: Query | None = None
    chain: Chain | None = None
    cte: Cte | None = None

    @property
    def session_name(self) -> str:
        """The name of the table or view of the session that it is, without a schema; empty for others."""
        return self.name if self.shape is Shape.TABLE and self.cte is None else ""

    @property
    def reads(self) -> Query | None:
        """The query that gives its rows: the one in its parentheses, or that of its CTE; None for others."""
        return self.query if self.cte is None else self.cte.query

    @property
    def everything(self) -> Iterator[Relation]:
        """Itself and, if it is a chain in parentheses, the relations inside."""
        yield self
        if self.chain is not None:
            yield from self.chain.everything

    @property
    def open_chain(self) -> Chain | None:
        """The chain in its parentheses, if they have no alias: its relations keep their names outside."""
        return self.chain if self.alias_at is None else None

    def as_seen(self, is_seen: Callable[[Step], bool]) -> list[Relation]:
        """The relations whose names it exposes: itself, or those in its parentheses."""
        return [self] if self.open_chain is None else self.open_chain._visible_relations(is_seen)


@dataclass(eq=False)
class Step:
    """A link of a chain: a join, or a PIVOT or UNPIVOT (then ``right`` is None).

    Args:
        first: index of its first word.
        last: index of its last piece.
        words: the words before JOIN, in capitals.
        right: the relation joined.
        pivoted: the relation that a PIVOT makes of all before it.
        on: the condition.
        match: the MATCH_CONDITION of an ASOF JOIN, without its parentheses.
        nearest: the expression by which ``NEAREST BY`` chooses rows of the right side.
        using: indices of the column names of USING.
    """

    first: int
    last: int
    words: tuple[str, ...] = ()
    right: Relation | None = None
    pivoted: Relation | None = None
    on: Cut | None = None
    match: Cut | None = None
    nearest: Cut | None = None
    using: tuple[int, ...] = ()

    @property
    def fills_left(self) -> bool:
        """Whether it may fill the relations before it with NULLs, as RIGHT and FULL JOIN do."""
        return "RIGHT" in self.words or "FULL" in self.words

    @property
    def takes_nearest(self) -> bool:
        """Whether it is an ASOF JOIN or NEAREST BY: no condition on its right side can come before it."""
        return "ASOF" in self.words or self.nearest is not None

    @property
    def hides_right(self) -> bool:
        """Whether nothing behind it can name its right side: it only keeps or drops rows."""
        return "SEMI" in self.words or "ANTI" in self.words


@dataclass(eq=False)
class Chain:
    """Relations joined one after the other: one item of the comma-separated list of a FROM.

    If a RIGHT, FULL or ASOF JOIN follows a comma, the comma itself is a join of the chain.
    """

    head: Relation
    steps: list[Step] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.head.first

    @property
    def last(self) -> int:
        return self.steps[-1].last if self.steps else self.head.last

    @property
    def steps_in_order(self) -> Iterator[Step]:
        """Its joins, those in the parentheses that it begins with first."""
        if self.head.open_chain is not None:
            yield from self.head.open_chain.steps_in_order
        yield from self.steps

    @property
    def everything(self) -> Iterator[Relation]:
        """Its relations, including parentheses and the relations inside them."""
        for relation in self.direct:
            yield from relation.everything

    @property
    def direct(self) -> Iterator[Relation]:
        yield self.head
        yield from (step.right for step in self.steps if step.right is not None)

    @property
    def direct_shown(self) -> Iterator[Relation]:
        """Its relations in order, parentheses as one, that can be named behind it."""
        yield self.head
        for step in self.steps:
            if step.right is not None and not step.hides_right:
                yield step.right

    def keeps_rows_of(self, relation: Relation) -> bool:
        """Whether no join fills the columns of ``relation``, a direct one, with NULL, or hides them."""
        rights = [step.right for step in self.steps]
        at = rights.index(relation) if relation in rights else -1
        own = self.steps[at] if at > -1 else Step(0, 0)
        is_kept = not ({"LEFT", "FULL", "SEMI", "ANTI"} & set(own.words) or own.takes_nearest)
        return is_kept and not any(step.fills_left for step in self.steps[at + 1 :])

    @property
    def relations(self) -> list[Relation]:
        return self._visible_relations(lambda _: True)

    def before(self, relation: Relation) -> list[Relation]:
        """Those of its ``relations`` that come before ``relation``, in order."""
        return list(takewhile(lambda each: each is not relation, self.relations))

    @property
    def shown(self) -> list[Relation]:
        """Its relations that can be named behind it: not the right sides of SEMI and ANTI joins."""
        return self._visible_relations(lambda step: not step.hides_right)

    def _visible_relations(self, is_seen: Callable[[Step], bool]) -> list[Relation]:
        seen = list(self.head.as_seen(is_seen))
        for step in self.steps:
            if step.pivoted is not None:
                seen = [step.pivoted]
            elif step.right is not None and is_seen(step):
                seen += step.right.as_seen(is_seen)
        return seen


@dataclass(eq=False)
class Source:
    """The relations of a FROM: chains with commas between them."""

    at: int
    chains: list[Chain]

    @property
    def first(self) -> int:
        return self.chains[0].first

    @property
    def last(self) -> int:
        return self.chains[-1].last


@dataclass(eq=False)
class Pipe:
    """One operator of pipe syntax, ``|> ...``.

    Args:
        first: index of its ``|>``.
        last: index of its last piece.
        join: the join, where it is one.
        where: the condition, where it is a WHERE.
        ordered: whether it is an ORDER BY.
    """

    first: int
    last: int
    join: Step | None = None
    where: Cut | None = None
    ordered: bool = False


@dataclass(eq=False)
class Block:
    """One SELECT (or FROM ... |> ...) with what belongs to it.

    Args:
        query: the query whose branch it is.
        first: index of its first piece.
        last: index of its last piece.
        selects: indices of its SELECT words: several in a multi-insert, none in ``FROM t |> ...``.
        source: its FROM (or its TABLE, in ``TABLE t``).
        wheres: its WHERE conditions.
        pipes: its pipe operators.
        views_last: index of the last piece of its LATERAL VIEWs, or -1.
        distinct: whether it is a SELECT DISTINCT.
        grouped: whether it has a GROUP BY.
    """

    query: Query
    first: int
    last: int
    selects: list[int] = field(default_factory=list)
    source: Source | None = None
    wheres: list[Cut] = field(default_factory=list)
    pipes: list[Pipe] = field(default_factory=list)
    views_last: int = -1
    distinct: bool = False
    grouped: bool = False

    @property
    def chains(self) -> list[Chain]:
        """The items of the comma-separated list of its FROM."""
        return [] if self.source is None else self.source.chains

    @property
    def relations(self) -> Iterator[Relation]:
        for chain in self.chains:
            yield from chain.relations
        for pipe in self.pipes:
            if pipe.join is not None and pipe.join.right is not None:
                yield pipe.join.right

    @property
    def outward(self) -> Iterator[Block]:
        """Itself, and the blocks around it whose names its expressions see, from the inside."""
        around: Block | None = self
        while around is not None:
            yield around
            around = around.query.outer

    @property
    def everything(self) -> Iterator[Relation]:
        """Every relation of its FROM and pipes, those in parentheses with a name of their own too."""
        for chain in self.chains:
            yield from chain.everything
        for pipe in self.pipes:
            if pipe.join is not None and pipe.join.right is not None:
                yield from pipe.join.right.everything

    @cached_property
    def behind_asof(self) -> frozenset[Relation]:
        """The relations on the right of an ASOF JOIN, including those in their parentheses."""
        chains = self.chains + [relation.chain for relation in self.everything if relation.chain is not None]
        steps = [*(step for chain in chains for step in chain.steps), *(pipe.join for pipe in self.pipes)]
        rights = (step.right for step in steps if step is not None and step.takes_nearest)
        return frozenset(each for right in rights if right is not None for each in right.everything)

    @property
    def shown(self) -> list[Relation]:
        """The relations that its WHERE and SELECT can name."""
        return [relation for chain in self.chains for relation in chain.shown]

    @property
    def steps(self) -> Iterator[Step]:
        """Its joins in the order of the text, and those of its pipe operators.

        Joins in parentheses are included only at the start of a chain, where the parentheses change nothing.
        """
        for chain in self.chains:
            yield from chain.steps_in_order
        yield from (pipe.join for pipe in self.pipes if pipe.join is not None)


@dataclass(eq=False)
class Query:
    """One query: blocks joined by UNION and the like, with the WITH before and the ORDER BY after them.

    Args:
        role: its role in its parent.
        parent: the block that holds it.
        outer: the block whose relations it can name besides its own: a derived table does not see its
            neighbours, but sees what the block that holds it sees.
        first: index of its first piece.
        last: index of its last piece.
        levels: the CTEs that it can name, its own included, innermost WITH first.
        blocks: its blocks; those of branches in parentheses included.
        branches: its branches in parentheses.
        ordered: whether it ends with an ORDER BY.
        limit_at: index of the LIMIT that it ends with, or None.
        lateral: whether it is a LATERAL subquery.
    """

    role: Role
    parent: Block | None
    outer: Block | None
    first: int
    last: int
    levels: tuple[Level, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    branches: list[Query] = field(default_factory=list)
    ordered: bool = False
    limit_at: int | None = None
    lateral: bool = False

    @property
    def stands_alone(self) -> bool:
        """Whether neither it nor a query around it is a subquery of an expression, or LATERAL."""
        around: Query | None = self
        while around is not None:
            if around.role is Role.EXPRESSION or around.lateral:
                return False
            around = around.parent.query if around.parent is not None else None
        return True


@dataclass(eq=False)
class Structure:
    """The structure of a statement.

    Args:
        queries: every query, outer ones before those in them.
        blocks: every block, in the same order.
        ctes: every CTE.
    """

    queries: list[Query] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    ctes: list[Cte] = field(default_factory=list)

    def block_at(self, index: int) -> Block | None:
        return self._innermost_blocks.get(index)

    def queries_in(self, block: Block) -> Sequence[Query]:
        """The queries that ``block`` holds, but for those in them."""
        return self._by_parent.get(block, ())

    @property
    def relations(self) -> Iterator[tuple[Block, Relation]]:
        """Every relation, with its block."""
        return ((block, relation) for block in self.blocks for relation in block.everything)

    def relations_in(self, query: Query | None) -> Iterator[Relation]:
        """The relations of a query, and of the queries in it."""
        for block in self.blocks if query is not None else ():
            if query is not None and query.first <= block.first and block.last <= query.last:
                yield from block.everything

    def readers_of(self, query: Query) -> Sequence[tuple[Block, Relation]]:
        """The relations that are a query, with their blocks: a derived table, or all that name a CTE."""
        return self._readers_by_query.get(query, ())

    @cached_property
    def _readers_by_query(self) -> dict[Query, list[tuple[Block, Relation]]]:
        found: dict[Query, list[tuple[Block, Relation]]] = {}
        for block, relation in self.relations:
            if relation.reads is not None:
                found.setdefault(relation.reads, []).append((block, relation))
        return found

    @cached_property
    def _by_parent(self) -> dict[Block | None, list[Query]]:
        found: dict[Block | None, list[Query]] = {}
        for query in self.queries:
            found.setdefault(query.parent, []).append(query)
        return found

    @cached_property
    def _innermost_blocks(self) -> dict[int, Block]:
        # Inner blocks come later, and their pieces with them.
        return {index: block for block in self.blocks for index in range(block.first, block.last + 1)}
