"""The structure of a query, read from its pieces, clause by clause.

What stands inside expressions is read no further than to find the queries in it. Clauses that are not named
here are passed over, so syntax that nobody foresaw is in nobody's way.
"""

from __future__ import annotations

from lookup_hints.plan.read.relations import FromReader
from lookup_hints.plan.read.structure import (
    Block,
    Chain,
    Cte,
    Level,
    Pipe,
    Query,
    Role,
    Source,
    Structure,
)
from lookup_hints.plan.read.tokens import QUERY_WORDS, SET_WORDS, Tokens
from lookup_hints.sql.splice import Cut

_ENDS_QUERY_IN_PARENTHESES = (*SET_WORDS, "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")


def read_structure(tokens: Tokens, parts: list[tuple[int, int]]) -> Structure:
    """The structure of the queries that stand at ``parts`` (indices, the end not included)."""
    reader = _QueryCutter(tokens)
    for first, end in parts:
        reader.query(first, end, Role.STATEMENT, None, None, ())
    return reader.found


class _QueryCutter:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.relations = FromReader(tokens, self)
        self.found = Structure()

    def query(
        self,
        first: int,
        end: int,
        role: Role,
        parent: Block | None,
        outer: Block | None,
        levels: tuple[Level, ...],
        *,
        lateral: bool = False,
    ) -> Query:
        """The query between ``first`` and ``end``."""
        query = Query(role, parent, outer, first, end - 1, levels, lateral=lateral)
        self.found.queries.append(query)
        at = self._with(query, first, end) if self._tokens.is_word(first, "WITH") else first
        _QueryReader(self, self._tokens, query, end).read(at)
        return query

    def _with(self, query: Query, first: int, end: int) -> int:
        """Read the WITH; index of what follows it."""
        recursive = self._tokens.is_word(first + 1, "RECURSIVE")
        at = first + 1 + recursive
        outer = query.levels
        own: Level = ()
        while at < end:
            start, opening = at, at + 1
            while opening < end and not self.opens_query(opening):
                opening += 1
            if opening >= end:
                break
            closing = self._tokens.closing(opening)
            name = self._tokens.pieces[start].name
            cut = Cut(self._tokens.pieces[start].start, self._tokens.pieces[closing].end)
            cte = Cte(name, cut, query, recursive, holder=query)
            seen: Level = (*own, cte) if recursive else own
            levels = (seen, *outer)
            cte.query = self.query(opening + 1, closing, Role.CTE, query.parent, query.outer, levels)
            self.found.ctes.append(cte)
            own = (*own, cte)
            at = closing + 1
            if not self._tokens.is_symbol(at, ","):
                break
            at += 1
        query.levels = (own, *outer)
        return at

    def opens_query(self, index: int) -> bool:
        """Whether the piece is a parenthesis that holds a query."""
        return self._tokens.is_symbol(index, "(") and self.begins_query(index + 1)

    def begins_query(self, index: int) -> bool:
        """Whether a query begins at the piece, in the parenthesis before it."""
        if self._tokens.is_word(index, *QUERY_WORDS):
            return True
        if not self._tokens.is_symbol(index, "(") or not self.begins_query(index + 1):
            return False
        after = self._tokens.closing(index) + 1
        return (
            self._tokens.is_symbol(after, ")")
            or self._tokens.is_symbol(after, "|>")
            or self._tokens.is_word(after, *_ENDS_QUERY_IN_PARENTHESES)
        )

    def expressions(self, first: int, end: int, block: Block) -> None:
        """Read the queries inside the expressions between ``first`` and ``end``."""
        at = first
        while at < end:
            if not self._tokens.is_symbol(at, "("):
                at += 1
                continue
            closing = self._tokens.closing(at)
            # TRIM(FROM x) holds no query.
            if self.begins_query(at + 1) and not self._tokens.is_word(at - 1, "TRIM"):
                self.query(at + 1, closing, Role.EXPRESSION, block, block, block.query.levels)
            else:
                self.expressions(at + 1, closing, block)
            at = closing + 1


class _QueryReader:
    """Reads the blocks of one query, clause by clause."""

    def __init__(self, reader: _QueryCutter, tokens: Tokens, query: Query, end: int) -> None:
        self._reader, self._tokens, self._query, self._end = reader, tokens, query, end
        self._block: Block | None = None

    def read(self, at: int) -> None:
        """Read from ``at`` to the end of the query."""
        while at < self._end:
            following = self._clause(at)
            if self._block is not None:
                self._block.last = following - 1
            at = following

    def _clause(self, at: int) -> int:
        """Read what begins at the piece; index of what follows it."""
        tokens = self._tokens
        piece = tokens.pieces[at]
        if at and tokens.is_symbol(at - 1, "."):
            return at + 1
        if piece.is_symbol("("):
            return self._parenthesis(at)
        if piece.is_symbol("|>"):
            return self._pipe(at)
        if piece.is_word("SELECT"):
            return self._select(at)
        if piece.is_word("TABLE") and self._block is None:
            return self._whole_table(at)
        if piece.is_word("FROM") and not tokens.is_word(at - 1, "DISTINCT"):
            return self._from(at)
        if piece.is_word("WHERE") and self._block is not None and self._block.source is not None:
            return self._where(at)
        if piece.is_word(*SET_WORDS) and not tokens.is_symbol(at - 1, "*"):
            self._block = None
            self._query.ordered, self._query.limit_at = False, None
        elif piece.is_word("ORDER") and tokens.is_word(at + 1, "BY"):
            self._query.ordered = True
        elif piece.is_word("LIMIT") and not tokens.is_word(at + 1, "ALL"):
            self._query.limit_at = at
        elif piece.is_word("GROUP") and tokens.is_word(at + 1, "BY") and self._block is not None:
            self._block.grouped = True
        return at + 1

    def _parenthesis(self, at: int) -> int:
        closing = self._tokens.closing(at)
        if self._block is None and self._reader.begins_query(at + 1):
            query = self._query
            branch = self._reader.query(
                at + 1, closing, query.role, query.parent, query.outer, query.levels, lateral=query.lateral
            )
            query.branches.append(branch)
            query.blocks += branch.blocks
        elif self._block is not None:
            self._reader.expressions(at, closing + 1, self._block)
        return closing + 1

    def _new_block(self, at: int) -> Block:
        block = Block(self._query, at, at)
        self._query.blocks.append(block)
        self._reader.found.blocks.append(block)
        self._block = block
        return block

    def _select(self, at: int) -> int:
        block = self._block
        is_from_first = block is not None and block.source is not None and block.source.at == block.first
        if block is None or not is_from_first:
            block = self._new_block(at)
        block.selects.append(at)
        block.distinct = block.distinct or self._tokens.is_word(at + 1, "DISTINCT")
        return at + 1

    def _whole_table(self, at: int) -> int:
        """``TABLE t``: a name, to which Spark lets nobody give an alias."""
        if at + 1 >= self._end:
            return at + 1
        block = self._new_block(at)
        relation = self._reader.relations.table(at + 1, self._end, block)
        relation.start = relation.first
        block.source = Source(at, [Chain(relation)])
        return relation.last + 1

    def _from(self, at: int) -> int:
        block = self._block
        if at + 1 >= self._end:
            return at + 1
        if block is None or block.source is not None:
            block = self._new_block(at)
        block.source = self._reader.relations.source(at, self._end, block)
        following = max(block.source.last, at) + 1
        while self._tokens.is_word(following, "LATERAL") and self._tokens.is_word(following + 1, "VIEW"):
            block.views_last = self._view(following, block)
            following = block.views_last + 1
        return following

    def _view(self, at: int, block: Block) -> int:
        """Index of the last piece of the LATERAL VIEW at the piece."""
        tokens = self._tokens
        opening = at + 2
        while opening + 1 < self._end and not tokens.is_symbol(opening, "("):
            opening += 1
        last = tokens.closing(opening)
        self._reader.expressions(opening, last + 1, block)
        if not tokens.is_word(last + 1, "AS") and last + 1 < self._end and tokens.pieces[last + 1].is_name:
            last += 0 if tokens.starts_clause(last + 1) else 1
        if tokens.is_word(last + 1, "AS"):
            last += 2
            while tokens.is_symbol(last + 1, ",") and last + 2 < self._end:
                last += 2
        return min(last, self._end - 1)

    def _where(self, at: int) -> int:
        block = self._block
        assert block is not None
        if at + 1 >= self._end:
            return at + 1
        condition = Cut(self._tokens.pieces[at + 1].start, self._tokens.condition_end(at + 1, self._end))
        block.wheres.append(condition)
        end = self._tokens.index_at(condition.end - 1) + 1
        self._reader.expressions(at + 1, end, block)
        return max(end, at + 1)

    def _pipe(self, at: int) -> int:
        tokens = self._tokens
        block = self._block or self._new_block(at)
        step = self._reader.relations.step(at + 1, self._end, block)
        if step is not None:
            block.pipes.append(Pipe(at, step.last, step if step.right is not None else None))
            return step.last + 1
        last = at
        while last + 1 < self._end and not tokens.is_symbol(last + 1, "|>"):
            last += 1
            if tokens.is_symbol(last, "("):
                last = tokens.closing(last)
        if tokens.is_word(at + 1, "SELECT"):
            block.selects.append(at + 1)
        self._reader.expressions(at + 1, last + 1, block)
        where = tokens.cut(at + 2, last) if tokens.is_word(at + 1, "WHERE") and last > at + 1 else None
        block.pipes.append(Pipe(at, last, where=where, ordered=tokens.is_word(at + 1, "ORDER")))
        return last + 1
