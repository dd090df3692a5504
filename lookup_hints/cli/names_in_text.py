"""Names that the text of a statement uses and nothing has: columns of lookup tables, and aliases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lookup_hints.errors import Problem, Span, nearest
from lookup_hints.plan.parse.lookup_use import LookupUse
from lookup_hints.plan.parse.query_blocks import Block, Query, Relation, Shape
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import FindTable, UnreadableStatement
from lookup_hints.plan.parse.statement import Statement as ReadStatement
from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut

Names = frozenset[str]
"""Names in lower case."""


# An error only where nothing else is possible: a false alarm teaches people to leave `check` out.
# (docs/decisions/0184)
def unknown_columns(statement: ReadStatement) -> Iterator[Problem]:
    """The columns that a statement takes from lookup tables by their aliases, and that these do not have."""
    for use in statement.uses:
        if use.block.pipes or use.relation.columns or not use.table.schema.names:
            continue  # its columns may have other names, or unknown ones
        hidden = [query for query in statement.structure.queries if _hides_alias(statement, query, use)]
        for at in statement.tokens.places(use.alias, use.block.first, use.block.last - 2):
            column = statement.pieces[at + 2]
            is_column = column.is_name and not statement.tokens.is_symbol(at + 3, "(")
            is_qualified = statement.tokens.is_symbol(at + 1, ".") and not statement.tokens.is_symbol(
                at - 1, "."
            )
            if (
                is_column
                and is_qualified
                and column.name.lower() not in map(str.lower, use.table.schema.names)
                and not any(query.first <= at <= query.last for query in hidden)
            ):
                yield Problem(
                    f"The table {use.table.name} has no column {column.name!r}.",
                    statement.span(Cut(column.start, column.end)),
                    nearest(column.name, use.table.schema.names),
                )


def _hides_alias(statement: ReadStatement, query: Query, use: LookupUse) -> bool:
    """Whether a query inside the block of ``use`` has a relation of its name, which its expressions mean."""
    is_inside = use.block.first < query.first and query.last <= use.block.last
    return is_inside and any(use.alias.lower() in statement.aliases_in(block) for block in query.blocks)


def possible_columns(text: SqlText) -> Names:
    """Possible columns of an unknown table: all names in the text that nowhere begin a dotted name."""
    found = text.code
    leading = {piece.name.lower() for at, piece in enumerate(found) if _starts_dotted_name(found, at)}
    return frozenset(piece.name.lower() for piece in found if piece.is_name) - leading


def no_column_before_from(text: SqlText) -> Iterator[Problem]:
    """Commas before a FROM, which Spark takes for the name of a column."""
    found = text.code
    for comma, word, behind in zip(found, found[1:], found[2:], strict=False):
        if (
            comma.is_symbol(",")
            and word.is_word("FROM")
            and behind.is_name
            and not behind.is_word("FROM", "AS")
        ):
            at = Span(text, comma.start, word.end)
            yield Problem("There is no column between this comma and FROM.", at, "Leave the comma out.")


# --- aliases ---------------------------------------------------------------------------------------

# Names that may be there though no text has them: made by functions of Spark's, hidden, or of catalogs.
_NOT_WRITTEN = re.compile(r"_.*|c(ol)?\d+|col|key|value|pos|id|session|system|builtin|spark_catalog")

_KEEPS_TABLES = (
    *("CACHE", "CREATE", "DESC", "DESCRIBE", "FROM", "INSERT", "SELECT", "SHOW", "VALUES", "WITH", "("),
)


class ScriptNames:
    """The names that a script defines for its later statements, as far as its text shows."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        """Tables whose CREATE is wrong, so that nothing is known about them."""
        self._made: dict[str, Names] = {}
        self._declared: Names = frozenset()

    def read(self, text: SqlText, find_table: FindTable) -> None:
        """Take a statement of Spark's into account."""
        found = text.code
        first = found[0].text.upper() if found else ""
        name = created_name(found)
        if first == "DECLARE":
            self._declared |= _names_in_pieces(found)
        elif first not in _KEEPS_TABLES:
            self._made.clear()
        elif name is not None:
            self._made.pop(name.lower(), None)
            names = self._names_of_created(text, find_table)
            if names is not None:
                self._made[name.lower()] = names

    def _names_of_created(self, text: SqlText, find_table: FindTable) -> Names | None:
        """Possible names of the columns of a created table or view; None if unknown from the text."""
        statement = ReadStatement(text, find_table)
        try:
            statement.queries = query_parts(statement)
        except UnreadableStatement:  # it holds no query
            statement.queries = []
        words = [piece.text.upper() for piece in statement.pieces[:8]]
        has_columns = "(" in words[:7] or bool(statement.structure.blocks)
        return None if "EXISTS" in words or not has_columns else self._names_in(statement)

    def unknown_aliases(self, statement: ReadStatement) -> Iterator[Problem]:
        """Names before a dot that cannot exist.

        This is certain only if the text gives the columns of everything that the statement reads. Otherwise
        the name may be a column with fields, as may a name that the text also uses elsewhere.
        """
        names = self._names_in(statement)
        if names is None:
            return
        for index, piece in enumerate(statement.pieces):
            block = statement.structure.block_at(index)
            is_marked = any(statement.tokens.is_symbol(index - 1, mark) for mark in (":", "{", "$", "@"))
            is_call = statement.tokens.is_symbol(index + 3, "(")
            if (
                block is not None
                and _starts_dotted_name(statement.pieces, index)
                and not (is_marked or is_call or piece.name.lower() in names)
                and not _NOT_WRITTEN.fullmatch(piece.name.lower())
            ):
                at = statement.span(Cut(piece.start, piece.end))
                known = list(_aliases_around(statement, block))
                yield Problem(f"Nothing is called {piece.name!r} here.", at, nearest(piece.name, known))

    def _names_in(self, statement: ReadStatement) -> Names | None:
        """All names that a statement can use; None if it reads relations with unknown columns."""
        found, tokens = statement.pieces, statement.tokens
        names = self._declared | _names_in_pieces(found)
        if any(
            piece.is_word("INLINE", "INLINE_OUTER")
            or (piece.is_symbol("*") and tokens.is_symbol(at - 2, ")"))
            for at, piece in enumerate(found)
        ):
            return None  # the fields of a function's result become columns
        for relation in (each for block in statement.structure.blocks for each in block.everything):
            own = self._names_of(statement, relation)
            if own is None:
                return None
            names |= own
        return names

    def _names_of(self, statement: ReadStatement, relation: Relation) -> Names | None:
        table = statement.table_of(relation)
        if table is not None:
            return frozenset(re.findall(r"\w+", str(table.schema).lower())) if table.schema.names else None
        if relation.shape is Shape.FUNCTION:
            return frozenset() if statement.tokens.is_word(relation.start, "RANGE") else None
        if relation.shape is Shape.TABLE and relation.cte is None:
            return self._made.get(relation.name.lower())
        return frozenset()


def _aliases_around(statement: ReadStatement, block: Block | None) -> Iterator[str]:
    while block is not None:
        yield from filter(None, map(statement.alias_of, block.relations))
        block = block.query.outer


def created_name(found: Sequence[Piece]) -> str | None:
    """The name of the table or view that a CREATE makes; None where it has a schema."""
    at = next((at for at, piece in enumerate(found[:6]) if piece.is_word("TABLE", "VIEW")), None)
    if at is None or not found[0].is_word("CREATE"):
        return None
    rest = [piece for piece in found[at + 1 : at + 6] if not piece.is_word("IF", "NOT", "EXISTS")]
    is_plain = bool(rest) and rest[0].is_name and not (len(rest) > 1 and rest[1].is_symbol("."))
    return rest[0].name if is_plain else None


def _starts_dotted_name(found: Sequence[Piece], index: int) -> bool:
    """Whether the piece is the first of a name with dots, and no call of a function."""
    before = found[index - 1] if index else None
    after = found[index + 1] if index + 2 < len(found) else None
    return (
        found[index].is_name
        and after is not None
        and after.is_symbol(".")
        and not (before is not None and before.is_symbol("."))
    )


def _names_in_pieces(found: Sequence[Piece]) -> Names:
    """Every name and every word of a string, except names that occur only before a dot."""
    names = {
        piece.name.lower()
        for at, piece in enumerate(found)
        if piece.is_name and not _starts_dotted_name(found, at)
    }
    strings = (piece.text.lower() for piece in found if piece.kind is Kind.STRING)
    return frozenset(names.union(*(re.findall(r"\w+", text) for text in strings)))
