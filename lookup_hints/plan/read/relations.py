"""Reads what stands behind FROM: relations, their aliases, and the joins between them."""

from __future__ import annotations

from typing import Protocol

from lookup_hints.plan.read.structure import (
    Block,
    Chain,
    Cte,
    Level,
    Query,
    Relation,
    Role,
    Shape,
    Source,
    Step,
)
from lookup_hints.plan.read.tokens import JOIN_WORDS, SET_WORDS, Tokens
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.splice import Cut

_NO_ALIAS = (
    *JOIN_WORDS,
    *SET_WORDS,
    *("JOIN", "ON", "USING", "LATERAL", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "DISTRIBUTE"),
    *("CLUSTER", "LIMIT", "OFFSET", "QUALIFY", "TABLESAMPLE", "SELECT", "INSERT"),
)


class ReadsQueries(Protocol):
    """Reads the queries that stand in a FROM."""

    def begins_query(self, index: int) -> bool:
        """Whether a query begins at the piece, in the parenthesis before it."""
        ...

    def opens_query(self, index: int) -> bool:
        """Whether the piece is a parenthesis that holds a query."""
        ...

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
        ...

    def expressions(self, first: int, end: int, block: Block) -> None:
        """Read the queries inside the expressions between ``first`` and ``end``."""
        ...


class FromReader:
    """Reads the relations of a FROM, and the joins of pipe operators."""

    def __init__(self, tokens: Tokens, queries: ReadsQueries) -> None:
        self._tokens, self._queries = tokens, queries

    def source(self, at: int, end: int, block: Block) -> Source:
        """The relations of the FROM at ``at``."""
        chains = [self._chain(at + 1, end, block)]
        while chains[-1].last + 2 < end and self._tokens.is_symbol(chains[-1].last + 1, ","):
            chains.append(self._chain(chains[-1].last + 2, end, block))
            if any(step.fills_left or step.takes_nearest for step in chains[-1].steps):
                chains = [_crossed(chains)]
        return Source(at, chains)

    def _chain(self, at: int, end: int, block: Block) -> Chain:
        chain = Chain(self._relation(at, end, block))
        while chain.last + 1 < end:
            step = self.step(chain.last + 1, end, block)
            if step is None:
                break
            chain.steps.append(step)
        return chain

    def step(self, at: int, end: int, block: Block) -> Step | None:
        """The join or pivot that begins at the piece, or None."""
        tokens = self._tokens
        if tokens.is_word(at, "PIVOT", "UNPIVOT"):
            return self._pivot(at, end, block)
        join = at
        while join < end and (tokens.is_word(join, *JOIN_WORDS) or tokens.opens_asof_join(join)):
            join += 1
        if join + 1 >= end or not tokens.is_word(join, "JOIN"):
            return None
        right = self._relation(join + 1, end, block)
        words = tuple(tokens.pieces[index].text.upper() for index in range(at, join))
        step = Step(at, right.last, words, right)
        following = right.last + 1
        if following < end and tokens.is_match_condition(following):
            step.last = tokens.closing(following + 1)
            step.match = tokens.cut(following + 2, max(following + 2, step.last - 1))
            self._queries.expressions(following + 1, step.last + 1, block)
            following = step.last + 1
        if following < end and tokens.is_word(following, "ON") and following + 1 < end:
            step.on = Cut(tokens.pieces[following + 1].start, tokens.condition_end(following + 1, end))
            step.last = tokens.index_at(step.on.end - 1)
            self._queries.expressions(following + 1, step.last + 1, block)
        elif following < end and tokens.is_word(following, "USING") and tokens.is_symbol(following + 1, "("):
            step.last = tokens.closing(following + 1)
            step.using = tuple(
                index for index in range(following + 2, step.last) if tokens.pieces[index].is_name
            )
        return step

    def _pivot(self, at: int, end: int, block: Block) -> Step | None:
        tokens = self._tokens
        opening = at + 1
        while opening < end and tokens.is_word(opening, "INCLUDE", "EXCLUDE", "NULLS"):
            opening += 1
        if not tokens.is_symbol(opening, "("):
            return None
        closing = tokens.closing(opening)
        self._queries.expressions(opening + 1, closing, block)
        pivoted = Relation(Shape.PIVOT, at, closing, at)
        pivoted.alias_at, last = self._alias(closing + 1, end)
        pivoted.last = closing if pivoted.alias_at is None else last
        return Step(at, pivoted.last, pivoted=pivoted)

    # --- relations ---------------------------------------------------------------------------------

    def _relation(self, first: int, end: int, block: Block) -> Relation:
        tokens = self._tokens
        at = first
        lateral = tokens.is_word(at, "LATERAL")
        at += lateral
        if tokens.is_word(at, "STREAM") and self._is_stream(at, end):
            at += 1
        if tokens.is_symbol(at, "("):
            relation = self._in_parentheses(at, block, lateral)
        elif tokens.is_word(at, "VALUES") and at + 1 < end and not tokens.is_word(at + 1, *_NO_ALIAS, "AS"):
            relation = self._values(at, end, block)
        else:
            relation = self.table(at, end, block)
        relation.first, relation.start, relation.lateral = first, at, lateral
        if first != at:
            relation.plain = False
        return self._with_alias(relation, end, block)

    def _is_stream(self, at: int, end: int) -> bool:
        """Whether STREAM stands before a relation, and is not its name."""
        following = at + 1
        if following >= end or _ends_relation(self._tokens, following):
            return False
        return self._tokens.pieces[following].is_name or self._tokens.is_symbol(following, "(")

    def _in_parentheses(self, at: int, block: Block, lateral: bool) -> Relation:
        closing = self._tokens.closing(at)
        if self._queries.begins_query(at + 1):
            outer, levels = block if lateral else block.query.outer, block.query.levels
            query = self._queries.query(at + 1, closing, Role.RELATION, block, outer, levels, lateral=lateral)
            return Relation(Shape.QUERY, at, closing, query=query)
        chain = self._chain(at + 1, closing, block)
        is_whole = not chain.steps and chain.head.last + 1 == closing
        if is_whole and chain.head.shape is Shape.TABLE and not chain.head.lateral:
            # (customers c) is customers c.
            chain.head.last = closing
            return chain.head
        return Relation(Shape.PARENTHESES, at, closing, chain=chain)

    def _values(self, at: int, end: int, block: Block) -> Relation:
        """An inline table: commas separate its rows until an alias or something else comes."""
        tokens = self._tokens
        last = at + 1
        while last < end:
            start = last
            while last < end and not tokens.is_symbol(last, ",") and not self._ends_value(last, start):
                last = tokens.closing(last) + 1 if tokens.is_symbol(last, "(") else last + 1
            more = last + 1 < end and tokens.is_symbol(last, ",")
            if not more or tokens.pieces[last + 1].is_name or self._queries.opens_query(last + 1):
                break
            last += 1
        self._queries.expressions(at + 1, last, block)
        return Relation(Shape.VALUES, at, last - 1)

    def _ends_value(self, at: int, start: int) -> bool:
        piece, before = self._tokens.pieces[at], self._tokens.pieces[at - 1]
        if at == start or not piece.is_name:
            return piece.text in (")", ";", "|>")
        ended = before.is_symbol(")") or before.kind in (Kind.STRING, Kind.NUMBER) or before.is_word("NULL")
        return ended or piece.is_word("AS", *_NO_ALIAS)

    def table(self, at: int, end: int, block: Block) -> Relation:
        """The table, or function of tables, whose name begins at the piece; without its alias."""
        tokens = self._tokens
        last = at
        if tokens.is_word(at, "IDENTIFIER") and tokens.is_symbol(at + 1, "("):
            closing = tokens.closing(at + 1)
            literal = tokens.pieces[min(at + 2, closing)]  # the text may end behind the parenthesis
            name = literal.value.strip("`") if literal.kind is Kind.STRING and closing == at + 3 else ""
            name = "" if "." in name else name
            relation = Relation(Shape.TABLE, at, closing, name=name, name_at=at)
            relation.cte = _cte_of(name, block.query.levels)
            return relation
        while tokens.is_symbol(last + 1, ".") and last + 2 < end:
            last += 2
        if tokens.is_symbol(last + 1, "(") and last + 1 < end:
            closing = tokens.closing(last + 1)
            self._queries.expressions(last + 2, closing, block)
            return Relation(Shape.FUNCTION, at, closing, name_at=last)
        if at >= end or not tokens.pieces[at].is_name:
            return Relation(Shape.FUNCTION, at, min(at, end - 1), plain=False)
        name = tokens.pieces[at].name if last == at else ""
        relation = Relation(Shape.TABLE, at, last, name=name, name_at=last)
        relation.cte = _cte_of(name, block.query.levels)
        return relation

    def _with_alias(self, relation: Relation, end: int, block: Block) -> Relation:
        """``relation`` with its time, options, sample and alias."""
        tokens = self._tokens
        is_bare = relation.shape is Shape.TABLE and not tokens.is_symbol(relation.start, "(")
        has_time = is_bare or relation.shape is Shape.QUERY
        time = tokens.time_clause(relation.last) if has_time else None
        if time is not None:
            relation.time, relation.last = time, tokens.index_at(time.end - 1)
        while (last := self._extension_end(relation.last + 1, end, block)) is not None:
            relation.extensions += (tokens.cut(relation.last + 1, last),)
            relation.last, relation.plain = last, False
        alias_at, columns_end = self._alias(relation.last + 1, end)
        if alias_at is not None:
            relation.alias_at, relation.last = alias_at, columns_end
            names = tokens.pieces[alias_at + 2 : columns_end]
            relation.columns = tuple(piece.name for piece in names if piece.is_name)
            late = tokens.time_clause(relation.last) if has_time and time is None else None
            if late is not None:  # as BigQuery writes it
                relation.time, relation.last = late, tokens.index_at(late.end - 1)
        return relation

    def _extension_end(self, at: int, end: int, block: Block) -> int | None:
        """Index of the last piece of the options, sample or watermark that begins here."""
        tokens = self._tokens
        if at >= end:
            return None
        if tokens.is_word(at, "WITH", "TABLESAMPLE") and tokens.is_symbol(at + 1, "("):
            closing = tokens.closing(at + 1)
            if tokens.is_word(closing + 1, "REPEATABLE") and tokens.is_symbol(closing + 2, "("):
                closing = tokens.closing(closing + 2)
            return closing
        if tokens.is_word(at, "WATERMARK"):
            delay = next((k for k in range(at, end) if tokens.is_word(k, "DELAY")), None)
            return None if delay is None else tokens.operand_end(delay + 2)
        return None

    def _alias(self, at: int, end: int) -> tuple[int | None, int]:
        """Index of the alias at the piece, or None; and of the last piece of its column list."""
        tokens = self._tokens
        if at < end and tokens.is_word(at, "AS") and at + 1 < end:
            at += 1
        elif at >= end or not tokens.pieces[at].is_name or _ends_relation(tokens, at):
            return None, at - 1
        if tokens.is_symbol(at + 1, "(") and at + 1 < end:
            return at, tokens.closing(at + 1)
        return at, at


def _crossed(chains: list[Chain]) -> Chain:
    """``chains`` as one: a comma binds as a join does in Spark.

    ``a, b RIGHT JOIN c`` is ``(a CROSS JOIN b) RIGHT JOIN c``, which gives rows without ``a``. An ASOF JOIN
    may compare columns of ``a``.
    """
    steps = list(chains[0].steps)
    for chain in chains[1:]:
        steps += [Step(chain.first - 1, chain.head.last, ("CROSS",), chain.head), *chain.steps]
    return Chain(chains[0].head, steps)


def _ends_relation(tokens: Tokens, at: int) -> bool:
    """Whether the word at ``at`` begins what follows a relation, and so is not its alias."""
    if tokens.is_word(at, *_NO_ALIAS) or tokens.opens_asof_join(at) or tokens.is_match_condition(at):
        return True
    if tokens.is_word(at, "WINDOW"):
        return tokens.is_word(at + 2, "AS")
    if tokens.is_word(at, "FOR", "WITH", "WATERMARK"):
        return tokens.is_word(at + 1, "SYSTEM_TIME", "SYSTEM_VERSION", "TIMESTAMP", "VERSION")
    if tokens.is_word(at, "PIVOT", "UNPIVOT"):
        return tokens.is_symbol(at + 1, "(") or tokens.is_word(at + 1, "INCLUDE", "EXCLUDE")
    return False


def _cte_of(name: str, levels: tuple[Level, ...]) -> Cte | None:
    """The CTE of a name, the innermost first."""
    if not name:
        return None
    found = (cte for level in levels for cte in reversed(level) if cte.name.lower() == name.lower())
    return next(found, None)
