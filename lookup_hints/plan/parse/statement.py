"""A statement as the planner reads it: its pieces, its structure, and its uses of lookup tables.

Structure and places are read from the pieces. sqlglot reads only single expressions, mostly conditions, and
its trees must agree with the pieces. So the syntax around a lookup join may be anything that Spark accepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, TypeVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from lookup_hints.errors import Span, UnsupportedLookup
from lookup_hints.plan.parse.lookup_use import UNNAMED, LookupUse
from lookup_hints.plan.parse.plain_expressions import plain_trees
from lookup_hints.plan.parse.query_blocks import Block, Chain, Pipe, Relation, Shape, Step, Structure
from lookup_hints.plan.parse.query_reader import read_structure
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import NO_CODE, blanked
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Fragment

PRESENT = ("PROCTIME", "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP")
"""Functions that give the time at which a row is processed."""

Self = TypeVar("Self", bound="Remembering")
Subject = TypeVar("Subject", bound=Hashable)
Answer = TypeVar("Answer")

FindTable = Callable[[str], LookupTable | None]
"""The lookup table of a name, or None."""

TableOf = Callable[[Relation], LookupTable | None]
"""The lookup table that a relation is, or None."""


class UnreadableStatement(UnsupportedLookup):
    """The statement as a whole cannot be planned: its kind, or its syntax."""


@cache
def _sqlglot_dialects() -> tuple[Dialect, ...]:
    # Found when they are first wanted: to import them takes longer than to plan a statement.
    return Dialect.get_or_raise("spark"), Dialect.get_or_raise("databricks")


# Facts shared by all joins are computed once, so that planning stays linear in the number of joins.
# (docs/decisions/0076)
class Remembering:
    """Base of classes that memoize the results of their methods."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Callable[..., Any], Hashable], Any] = {}

    def once(self: Self, question: Callable[[Self, Subject], Answer], subject: Subject) -> Answer:
        """The memoized result of ``question`` for ``subject``."""
        wanted = (question, subject)
        if wanted not in self._answers:
            self._answers[wanted] = question(self, subject)
        found: Answer = self._answers[wanted]
        return found


def once(question: Callable[[Self, Subject], Answer]) -> Callable[[Self, Subject], Answer]:
    """A method of ``Remembering`` whose answer to each subject is remembered."""
    return lambda self, subject: self.once(question, subject)


_NAMES_OR_SYNTAX = {TokenType.ALL, TokenType.ANY, TokenType.VALUES}
"""Words that sqlglot never takes for the name of a table before its column, as Spark does."""


class Statement(Remembering):
    """One SQL statement, read."""

    def __init__(
        self, text: SqlText, find_table: FindTable, is_lookup_view: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Read ``text``.

        Args:
            text: the statement.
            find_table: which names are lookup tables.
            is_lookup_view: whether a view of that name reads a lookup table.
        """
        super().__init__()
        self.text = text
        self.tokens = self.pieces = text.code
        self.queries: list[Cut] = [Cut(0, len(text))]
        """The parts that are queries; the planner narrows them before it reads the structure."""
        self.has_parameters = False
        """Whether it is a function: its queries name its parameters as they do columns of an outer query."""
        self.own_names_in_hints: frozenset[Span] = frozenset()
        """The names of lookup tables in hints that are Spark's, too."""
        self._find, self._is_lookup_view = find_table, is_lookup_view
        self._trees: dict[Cut, exp.Expr | None] = {}

    @cached_property
    def structure(self) -> Structure:
        return read_structure(self.tokens, [self.tokens.indices(part) for part in self.queries])

    # --- expressions -------------------------------------------------------------------------------

    @cached_property
    def clean(self) -> str:
        """The text with all that sqlglot need not see turned into spaces."""
        text: str = self.text
        for piece in self.text.pieces:
            if piece.kind in NO_CODE:
                text = blanked(text, piece.start, piece.end)
        for relation in (*(use.relation for use in self.uses), *self.timed):
            clause = self.time_clause(relation)
            if clause is not None:
                text = blanked(text, clause.start, clause.end)
        return text

    def trees(self, parts: Iterable[Fragment | None]) -> list[exp.Expr]:
        """The trees of those ``parts`` that are in the text and can be parsed."""
        return [tree for part in parts if (tree := self.expression(part)) is not None]

    def expression(self, part: Fragment | None) -> exp.Expr | None:
        """The tree of ``part`` as one expression; None if it is not an expression, or not part of the text.

        Its nodes have their places in the whole text. It is parsed as a projection, as alone a name such as
        `comment` would begin a statement.
        """
        if not isinstance(part, Cut):
            return None
        if part not in self._trees:
            self._trees[part] = self._parse_part(part)
        return self._trees[part]

    def _parse_part(self, part: Cut) -> exp.Expr | None:
        first, last = self.tokens.indices(part)
        if part.start <= self.pieces[first].start and self.pieces[last].end <= part.end:
            plain = plain_trees(self.pieces[first : last + 1])
            self._trees.update(plain)
            if plain:
                return plain[self.tokens.cut(first, last)]
        for dialect in _sqlglot_dialects():
            try:
                tree = self._parse_as_select(part, dialect)
            except (SqlglotError, RecursionError, AttributeError, TypeError):
                continue  # for some pipes in subqueries sqlglot drops the part before them
            if not isinstance(tree, exp.Select):
                return None
            has_clauses = any(value for name, value in tree.args.items() if name != "expressions")
            return tree.expressions[0] if len(tree.expressions) == 1 and not has_clauses else None
        return None

    def _parse_as_select(self, part: Cut, dialect: Dialect) -> exp.Expr | None:
        """The tree of ``SELECT part``, its nodes placed as in the whole text."""
        word = "SELECT "
        tokens = dialect.tokenize(word + self.clean[part.start : part.end])
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            token.start += part.start - len(word)
            token.end += part.start - len(word)
            if following and following.token_type is TokenType.DOT and token.token_type in _NAMES_OR_SYNTAX:
                token.token_type = TokenType.IDENTIFIER
        return next(iter(dialect.parser().parse(tokens, self.clean)), None)

    # --- places ------------------------------------------------------------------------------------

    def span(self, part: Cut) -> Span:
        return Span(self.text, part.start, part.end)

    # --- lookup tables -----------------------------------------------------------------------------

    @cached_property
    def uses(self) -> tuple[LookupUse, ...]:
        """Every place where the statement reads a lookup table, in the order of the text."""
        return self.uses_as(self.table_of)

    def uses_as(self, table_of: TableOf) -> tuple[LookupUse, ...]:
        """Every relation that is a lookup table in the eyes of ``table_of``, in the order of the text."""
        found = (use for block in self.structure.blocks for use in self._uses_in(block, table_of))
        return tuple(sorted(found, key=lambda use: use.index))

    def _uses_in(self, block: Block, table_of: TableOf) -> Iterator[LookupUse]:
        for chain in block.chains:
            yield from self._uses_of(table_of, chain, block, ())
        for pipe in block.pipes:
            if pipe.join is not None and pipe.join.right is not None:
                yield from self._uses_at(table_of, pipe.join.right, block, None, pipe.join, (), pipe)

    def _uses_of(
        self, table_of: TableOf, chain: Chain, block: Block, around: tuple[Relation, ...]
    ) -> Iterator[LookupUse]:
        yield from self._uses_at(table_of, chain.head, block, chain, None, around)
        for step in chain.steps:
            if step.right is not None:
                yield from self._uses_at(table_of, step.right, block, chain, step, around)

    def _uses_at(
        self,
        table_of: TableOf,
        relation: Relation,
        block: Block,
        chain: Chain | None,
        step: Step | None,
        around: tuple[Relation, ...],
        pipe: Pipe | None = None,
    ) -> Iterator[LookupUse]:
        if relation.chain is not None:
            yield from self._uses_of(table_of, relation.chain, block, (*around, relation))
        table = table_of(relation)
        if table is not None:
            alias = self.alias_of(relation) or self.private_alias(relation)
            yield LookupUse(table, relation, alias, block, chain, step, around, pipe)

    @cached_property
    def timed(self) -> tuple[Relation, ...]:
        """The derived tables, CTEs and views over lookup tables that have a FOR SYSTEM_TIME AS OF.

        Spark takes none there, so the clause is ours.
        """
        timed = (each for _, each in self.structure.relations if each.time is not None)
        queries = (each for each in timed if self.table_of(each) is None)
        return tuple(each for each in queries if any(map(self._is_lookup, self.read_by(each))))

    @property
    def reads_lookups(self) -> bool:
        return any(self._is_lookup(each) for _, each in self.structure.relations)

    def time_clause(self, relation: Relation) -> Cut | None:
        """``FOR SYSTEM_TIME AS OF ...`` behind the relation, if it is there."""
        if relation.time is None:
            return None
        first = self.tokens.index_at(relation.time.start) - 3
        first -= self.tokens.is_word(first - 1, "FOR")
        return Cut(self.pieces[first].start, relation.time.end)

    def calls_the_present(self, time: Cut) -> bool:
        """Whether the time is ``PROCTIME()``, ``current_timestamp`` or the like."""
        first, last = self.tokens.indices(time)
        arguments = "".join(piece.text for piece in self.pieces[first + 1 : last + 1])
        return self.pieces[first].is_word(*PRESENT) and arguments in ("", "()")

    def read_by(self, *relations: Relation) -> frozenset[Relation]:
        """All that ``relations`` read, themselves included: by way of queries inside them, and of CTEs."""
        found, waiting = set(relations), list(relations)
        while waiting:
            each = waiting.pop()
            more = {*self.structure.relations_in(each.reads)} - found
            found |= more
            waiting += more
        return frozenset(found)

    def _is_lookup(self, relation: Relation) -> bool:
        """Whether the relation is a lookup table, or a view that reads one."""
        name = relation.session_name
        return bool(name) and (self._find(name) is not None or self._is_lookup_view(name))

    def table_of(self, relation: Relation) -> LookupTable | None:
        """The lookup table that ``relation`` is, or None."""
        return self._find(relation.session_name) if relation.session_name else None

    def alias_of(self, relation: Relation) -> str | None:
        """The name by which the query calls ``relation``, or None where it has none."""
        at = self.alias_index(relation)
        if at is None:
            return None
        piece = self.pieces[at]
        return relation.name if piece.is_word("IDENTIFIER") and relation.alias_at is None else piece.name

    def private_alias(self, relation: Relation) -> str:
        """The private name given to a derived table without a name."""
        return f"{UNNAMED}{relation.first}"

    def alias_index(self, relation: Relation) -> int | None:
        """Index of the piece that names ``relation`` in the query, or None."""
        if relation.alias_at is not None:
            return relation.alias_at
        return relation.name_at if relation.shape is Shape.TABLE else None

    def has_outer(self, block: Block) -> bool:
        """Whether ``block`` may refer to names around it: of an outer query, or parameters of a function."""
        return block.query.outer is not None or self.has_parameters

    def aliases_in(self, block: Block, case_sensitive: bool = False) -> Mapping[str, int]:
        """How many relations of ``block`` have each name, in lower case where case does not count."""
        return self._count_aliases((block, case_sensitive))

    @once
    def _count_aliases(self, wanted: tuple[Block, bool]) -> Mapping[str, int]:
        block, case_sensitive = wanted
        aliases = filter(None, map(self.alias_of, block.relations))
        return Counter(each if case_sensitive else each.lower() for each in aliases)

    def aliases_around(self, at: int) -> Iterator[tuple[str, Block]]:
        """The aliases that the piece at ``at`` may mean, with their blocks, from the inside."""
        block = self.structure.block_at(at)
        for each in () if block is None else block.outward:
            yield from ((alias, each) for alias in map(self.alias_of, each.relations) if alias)

    def named_in(self, block: Block, name: str, alias: str) -> Iterator[int]:
        """Indices of the pieces ``name`` in ``block``, but for those behind the alias of another relation."""
        found = self._by_qualifier((block, name.lower()))
        yield from found.get("", ())
        yield from found.get(alias.lower(), ())

    @once
    def _by_qualifier(self, wanted: tuple[Block, str]) -> Mapping[str, Sequence[int]]:
        """The places of a name by the alias, in lower case, before it; "" where none of the block is."""
        block, name = wanted
        aliases = self.aliases_in(block)
        found: dict[str, list[int]] = {}
        for index in self.tokens.places(name, block.first, block.last):
            is_plain = self.tokens.is_symbol(index - 1, ".") and not self.tokens.is_symbol(index - 3, ".")
            qualifier = self.pieces[index - 2].name.lower() if is_plain and index > 1 else ""
            found.setdefault(qualifier if qualifier in aliases else "", []).append(index)
        return found

    @cached_property
    def given_to_all(self) -> frozenset[str]:
        """The names, in lower case, that ``|> AS`` gives to all columns."""
        return frozenset(
            piece.name.lower()
            for index, piece in enumerate(self.pieces)
            if self.tokens.is_word(index - 1, "AS") and self.tokens.is_symbol(index - 2, "|>")
        )

    def is_lookup_table(self, name: str) -> bool:
        return self._find(name) is not None
