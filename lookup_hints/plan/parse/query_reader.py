"""The structure of a query, read from its pieces, clause by clause.

Expressions are read only as far as needed to find the queries in them. Unknown clauses are skipped, so new
syntax of Spark does not break the reader.
"""

from __future__ import annotations

from lookup_hints.plan.parse.query_blocks import (
    Block,
    Chain,
    Cte,
    Level,
    Pipe,
    Query,
    Relation,
    Role,
    Shape,
    Source,
    Step,
    Structure,
)
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.words import AFTER_RELATION, JOIN_WORDS, ORDER_WORDS, SET_WORDS


def _cross_chains(chains: list[Chain]) -> Chain:
    """``chains`` as one: a comma binds as a join does in Spark.

    ``a, b RIGHT JOIN c`` is ``(a CROSS JOIN b) RIGHT JOIN c``, which gives rows without ``a``. An ASOF JOIN
    may compare columns of ``a``.
    """
    steps = list(chains[0].steps)
    for chain in chains[1:]:
        steps += [Step(chain.first - 1, chain.head.last, ("CROSS",), chain.head), *chain.steps]
    return Chain(chains[0].head, steps)


def _ends_relation(tokens: Tokens, at: int) -> bool:
    """Whether the word at ``at`` begins the next clause, and so is not an alias."""
    if tokens.is_word(at, *AFTER_RELATION) or tokens.opens_asof_join(at) or tokens.is_match_condition(at):
        return True
    if tokens.nearest_by(at) is not None:
        return True
    if tokens.is_word(at, "WINDOW"):
        return tokens.is_word(at + 2, "AS")
    if tokens.is_word(at, "FOR", "WITH", "WATERMARK"):
        return tokens.is_word(at + 1, "SYSTEM_TIME", "SYSTEM_VERSION", "TIMESTAMP", "VERSION")
    if tokens.is_word(at, "PIVOT", "UNPIVOT"):
        return tokens.is_symbol(at + 1, "(") or tokens.is_word(at + 1, "INCLUDE", "EXCLUDE")
    return False


def _cte_of(name: str, levels: tuple[Level, ...]) -> Cte | None:
    if not name:
        return None
    found = (cte for level in levels for cte in reversed(level) if cte.name.lower() == name.lower())
    return next(found, None)


_ENDS_QUERY_IN_PARENTHESES = (*SET_WORDS, *ORDER_WORDS)


# From pieces, not sqlglot trees: any clause that sqlglot does not know would refuse the whole statement.
# (docs/decisions/0010)
def read_structure(tokens: Tokens, parts: list[tuple[int, int]]) -> Structure:
    """The structure of the queries at ``parts``, given by the indices of first and last pieces."""
    reader = _Reader(tokens)
    for first, last in parts:
        reader.query(first, last + 1, Role.STATEMENT, None, None, ())
    return reader.found


class _Reader:
    """Reads the queries of a text, those in them, and the relations that their FROM and pipes join."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
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
        query = Query(role, parent, outer, first, end - 1, levels, lateral=lateral)
        self.found.queries.append(query)
        at = self._read_with(query, first, end) if self._tokens.is_word(first, "WITH") else first
        _QueryReader(self, self._tokens, query, end).read(at)
        return query

    def _read_with(self, query: Query, first: int, end: int) -> int:
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
            name = self._tokens[start].name
            cut = Cut(self._tokens[start].start, self._tokens[closing].end)
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
        return self._tokens.is_symbol(index, "(") and self.begins_query(index + 1)

    def begins_query(self, index: int) -> bool:
        """Whether a query begins at the piece, in the parenthesis before it."""
        if self._tokens.begins_query(index):
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

    # --- FROM, and joins of pipe operators ------------------------------------------------------------

    def source(self, at: int, end: int, block: Block) -> Source:
        chains = [self._read_chain(at + 1, end, block)]
        while chains[-1].last + 2 < end and self._tokens.is_symbol(chains[-1].last + 1, ","):
            chains.append(self._read_chain(chains[-1].last + 2, end, block))
            if any(step.fills_left or step.takes_nearest for step in chains[-1].steps):
                chains = [_cross_chains(chains)]
        return Source(at, chains)

    def _read_chain(self, at: int, end: int, block: Block) -> Chain:
        chain = Chain(self._read_relation(at, end, block))
        while chain.last + 1 < end:
            step = self.step(chain.last + 1, end, block)
            if step is None:
                break
            chain.steps.append(step)
        return chain

    def step(self, at: int, end: int, block: Block) -> Step | None:
        tokens = self._tokens
        if tokens.is_word(at, "PIVOT", "UNPIVOT"):
            return self._read_pivot(at, end, block)
        join = at
        while join < end and (tokens.is_word(join, *JOIN_WORDS) or tokens.opens_asof_join(join)):
            join += 1
        if join + 1 >= end or not tokens.is_word(join, "JOIN"):
            return None
        right = self._read_relation(join + 1, end, block)
        words = tuple(tokens[index].text.upper() for index in range(at, join))
        step = Step(at, right.last, words, right)
        following = right.last + 1
        if following < end and tokens.is_match_condition(following):
            step.last = tokens.closing(following + 1)
            step.match = tokens.cut(following + 2, max(following + 2, step.last - 1))
            self.expressions(following + 1, step.last + 1, block)
            following = step.last + 1
        begin = tokens.nearest_by(following) if following < end else None
        if begin is not None:
            step.nearest = Cut(tokens[begin].start, tokens.condition_end(begin, end))
            step.last = tokens.index_at(step.nearest.end - 1)
            self.expressions(begin, step.last + 1, block)
        elif following < end and tokens.is_word(following, "ON") and following + 1 < end:
            step.on = Cut(tokens[following + 1].start, tokens.condition_end(following + 1, end))
            step.last = tokens.index_at(step.on.end - 1)
            self.expressions(following + 1, step.last + 1, block)
        elif following < end and tokens.is_word(following, "USING") and tokens.is_symbol(following + 1, "("):
            step.last = tokens.closing(following + 1)
            step.using = tuple(index for index in range(following + 2, step.last) if tokens[index].is_name)
        return step

    def _read_pivot(self, at: int, end: int, block: Block) -> Step | None:
        tokens = self._tokens
        opening = at + 1
        while opening < end and tokens.is_word(opening, "INCLUDE", "EXCLUDE", "NULLS"):
            opening += 1
        if not tokens.is_symbol(opening, "("):
            return None
        closing = tokens.closing(opening)
        self.expressions(opening + 1, closing, block)
        pivoted = Relation(Shape.PIVOT, at, closing, at)
        pivoted.alias_at, last = self._read_alias(closing + 1, end)
        pivoted.last = closing if pivoted.alias_at is None else last
        return Step(at, pivoted.last, pivoted=pivoted)

    # --- relations ---------------------------------------------------------------------------------

    def _read_relation(self, first: int, end: int, block: Block) -> Relation:
        tokens = self._tokens
        at = first
        lateral = tokens.is_word(at, "LATERAL")
        at += lateral
        if tokens.is_word(at, "STREAM") and self._is_stream(at, end):
            at += 1
        if tokens.is_symbol(at, "("):
            relation = self._in_parentheses(at, block, lateral)
        elif (
            tokens.is_word(at, "VALUES")
            and at + 1 < end
            and not tokens.is_word(at + 1, *AFTER_RELATION, "AS")
        ):
            relation = self._read_values(at, end, block)
        else:
            relation = self.table(at, end, block)
        relation.first, relation.start, relation.lateral = first, at, lateral
        if first != at:
            relation.plain = False
        return self._with_alias(relation, end, block)

    def _is_stream(self, at: int, end: int) -> bool:
        following = at + 1
        if following >= end or _ends_relation(self._tokens, following):
            return False
        return self._tokens[following].is_name or self._tokens.is_symbol(following, "(")

    def _in_parentheses(self, at: int, block: Block, lateral: bool) -> Relation:
        closing = self._tokens.closing(at)
        if self.begins_query(at + 1):
            outer, levels = block if lateral else block.query.outer, block.query.levels
            query = self.query(at + 1, closing, Role.RELATION, block, outer, levels, lateral=lateral)
            return Relation(Shape.QUERY, at, closing, query=query)
        chain = self._read_chain(at + 1, closing, block)
        is_whole = not chain.steps and chain.head.last + 1 == closing
        if is_whole and chain.head.shape is Shape.TABLE and not chain.head.lateral:
            # (customers c) is customers c.
            chain.head.last = closing
            return chain.head
        return Relation(Shape.PARENTHESES, at, closing, chain=chain)

    def _read_values(self, at: int, end: int, block: Block) -> Relation:
        """An inline table: commas separate its rows until an alias or something else comes."""
        tokens = self._tokens
        last = at + 1
        while last < end:
            start = last
            while last < end and not tokens.is_symbol(last, ",") and not self._ends_value(last, start):
                last = tokens.closing(last) + 1 if tokens.is_symbol(last, "(") else last + 1
            more = last + 1 < end and tokens.is_symbol(last, ",")
            if not more or tokens[last + 1].is_name or self.opens_query(last + 1):
                break
            last += 1
        self.expressions(at + 1, last, block)
        return Relation(Shape.VALUES, at, last - 1)

    def _ends_value(self, at: int, start: int) -> bool:
        piece, before = self._tokens[at], self._tokens[at - 1]
        if at == start or not piece.is_name:
            return piece.text in (")", ";", "|>")
        ended = before.is_symbol(")") or before.kind in (Kind.STRING, Kind.NUMBER) or before.is_word("NULL")
        return ended or piece.is_word("AS", *AFTER_RELATION)

    def table(self, at: int, end: int, block: Block) -> Relation:
        """The table, or function of tables, whose name begins at the piece; without its alias."""
        tokens = self._tokens
        last = at
        if tokens.is_word(at, "IDENTIFIER") and tokens.is_symbol(at + 1, "("):
            closing = tokens.closing(at + 1)
            literal = tokens[min(at + 2, closing)]  # the text may end behind the parenthesis
            name = literal.value.strip("`") if literal.kind is Kind.STRING and closing == at + 3 else ""
            name = "" if "." in name else name
            relation = Relation(Shape.TABLE, at, closing, name=name, name_at=at)
            relation.cte = _cte_of(name, block.query.levels)
            return relation
        while tokens.is_symbol(last + 1, ".") and last + 2 < end:
            last += 2
        if tokens.is_symbol(last + 1, "(") and last + 1 < end:
            closing = tokens.closing(last + 1)
            self.expressions(last + 2, closing, block)
            return Relation(Shape.FUNCTION, at, closing, name_at=last)
        if at >= end or not tokens[at].is_name:
            return Relation(Shape.FUNCTION, at, min(at, end - 1), plain=False)
        name = tokens[at].name if last == at else ""
        relation = Relation(Shape.TABLE, at, last, name=name, name_at=last)
        relation.cte = _cte_of(name, block.query.levels)
        return relation

    def _with_alias(self, relation: Relation, end: int, block: Block) -> Relation:
        tokens = self._tokens
        is_bare = relation.shape is Shape.TABLE and not tokens.is_symbol(relation.start, "(")
        has_time = is_bare or relation.shape is Shape.QUERY
        time = tokens.time_clause(relation.last) if has_time else None
        if time is not None:
            relation.time, relation.last = time, tokens.index_at(time.end - 1)
        while (last := self._extension_end(relation.last + 1, end, block)) is not None:
            relation.extensions += (tokens.cut(relation.last + 1, last),)
            relation.last, relation.plain = last, False
        alias_at, columns_end = self._read_alias(relation.last + 1, end)
        if alias_at is not None:
            relation.alias_at, relation.last = alias_at, columns_end
            names = tokens[alias_at + 2 : columns_end]
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

    def _read_alias(self, at: int, end: int) -> tuple[int | None, int]:
        tokens = self._tokens
        if at < end and tokens.is_word(at, "AS") and at + 1 < end:
            at += 1
        elif at >= end or not tokens[at].is_name or _ends_relation(tokens, at):
            return None, at - 1
        if tokens.is_symbol(at + 1, "(") and at + 1 < end:
            return at, tokens.closing(at + 1)
        return at, at


class _QueryReader:
    """Reads the blocks of one query, clause by clause."""

    def __init__(self, reader: _Reader, tokens: Tokens, query: Query, end: int) -> None:
        self._reader, self._tokens, self._query, self._end = reader, tokens, query, end
        self._block: Block | None = None

    def read(self, at: int) -> None:
        while at < self._end:
            following = self._read_clause(at)
            if self._block is not None:
                self._block.last = following - 1
            at = following

    def _read_clause(self, at: int) -> int:
        tokens = self._tokens
        piece = tokens[at]
        if at and tokens.is_symbol(at - 1, "."):
            return at + 1
        if piece.is_symbol("("):
            return self._read_parenthesis(at)
        if piece.is_symbol("|>"):
            return self._read_pipe(at)
        if piece.is_word("SELECT"):
            return self._read_select(at)
        if piece.is_word("TABLE") and self._block is None and tokens.begins_query(at):
            return self._whole_table(at)
        if piece.is_word("FROM") and not tokens.is_word(at - 1, "DISTINCT"):
            return self._read_from(at)
        if piece.is_word("WHERE") and self._block is not None and self._block.source is not None:
            return self._read_where(at)
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

    def _read_parenthesis(self, at: int) -> int:
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

    def _read_select(self, at: int) -> int:
        block = self._block
        is_from_first = block is not None and block.source is not None and block.source.at == block.first
        if block is None or not is_from_first:
            block = self._new_block(at)
        block.selects.append(at)
        block.distinct = block.distinct or self._tokens.is_word(at + 1, "DISTINCT")
        return at + 1

    def _whole_table(self, at: int) -> int:
        """``TABLE t``: a name, for which Spark allows no alias."""
        block = self._new_block(at)
        relation = self._reader.table(at + 1, self._end, block)
        relation.start = relation.first
        block.source = Source(at, [Chain(relation)])
        return relation.last + 1

    def _read_from(self, at: int) -> int:
        block = self._block
        if at + 1 >= self._end:
            return at + 1
        if block is None or block.source is not None:
            block = self._new_block(at)
        block.source = self._reader.source(at, self._end, block)
        following = max(block.source.last, at) + 1
        while self._tokens.is_word(following, "LATERAL") and self._tokens.is_word(following + 1, "VIEW"):
            block.views_last = self._read_view(following, block)
            following = block.views_last + 1
        return following

    def _read_view(self, at: int, block: Block) -> int:
        """Index of the last piece of the LATERAL VIEW at the piece."""
        tokens = self._tokens
        opening = at + 2
        while opening + 1 < self._end and not tokens.is_symbol(opening, "("):
            opening += 1
        last = tokens.closing(opening)
        self._reader.expressions(opening, last + 1, block)
        if not tokens.is_word(last + 1, "AS") and last + 1 < self._end and tokens[last + 1].is_name:
            last += 0 if tokens.starts_clause(last + 1) else 1
        if tokens.is_word(last + 1, "AS"):
            last += 2
            while tokens.is_symbol(last + 1, ",") and last + 2 < self._end:
                last += 2
        return min(last, self._end - 1)

    def _read_where(self, at: int) -> int:
        block = self._block
        assert block is not None
        if at + 1 >= self._end:
            return at + 1
        condition = Cut(self._tokens[at + 1].start, self._tokens.condition_end(at + 1, self._end))
        block.wheres.append(condition)
        end = self._tokens.index_at(condition.end - 1) + 1
        self._reader.expressions(at + 1, end, block)
        return max(end, at + 1)

    def _read_pipe(self, at: int) -> int:
        tokens = self._tokens
        block = self._block or self._new_block(at)
        step = self._reader.step(at + 1, self._end, block)
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
