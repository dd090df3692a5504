"""Names that the text of a statement uses and nothing has: columns of lookup tables, and aliases."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lookup_hints.errors import Problem, Span, nearest
from lookup_hints.plan.parse.query_blocks import Relation, Shape
from lookup_hints.plan.parse.query_parts import query_parts
from lookup_hints.plan.parse.statement import FindTable, UnreadableStatement
from lookup_hints.plan.parse.statement import Statement as ReadStatement
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.tokens import Tokens

Names = frozenset[str]
"""Names in lower case."""


# An error only where nothing else is possible: a false alarm teaches people to leave `check` out.
# (docs/decisions/0184)
def unknown_columns(statement: ReadStatement) -> Iterator[Problem]:
    """The columns that a statement takes from lookup tables by their aliases, and that these do not have."""
    for use in statement.uses:
        if use.block.pipes or use.relation.columns or not use.table.schema.names:
            continue  # its columns may have other names, or unknown ones
        alias = use.alias.lower()
        for at in statement.tokens.places(alias, use.block.first, use.block.last - 2):
            column = statement.pieces[at + 2]
            meant = (block for each, block in statement.aliases_around(at) if each.lower() == alias)
            if (
                statement.tokens.starts_dotted_name(at)
                and column.is_name
                and not statement.tokens.is_symbol(at + 3, "(")
                and column.name.lower() not in map(str.lower, use.table.schema.names)
                and next(meant, None) is use.block
            ):
                yield Problem(
                    f"The table {use.table.name} has no column {column.name!r}.",
                    statement.span(Cut(column.start, column.end)),
                    nearest(column.name, use.table.schema.names),
                )


def possible_columns(text: SqlText) -> Names:
    """Possible columns of an unknown table: all names in the text that nowhere begin a dotted name."""
    tokens = text.code
    leading = {piece.name.lower() for at, piece in enumerate(tokens) if tokens.starts_dotted_name(at)}
    return frozenset(piece.name.lower() for piece in tokens if piece.is_name) - leading


def no_column_before_from(text: SqlText) -> Iterator[Problem]:
    """Commas before a FROM, which Spark takes for the name of a column."""
    tokens = text.code
    for at in tokens.places("FROM", 1, len(tokens) - 2):
        is_behind_comma = tokens.is_symbol(at - 1, ",") and tokens.is_word(at, "FROM")
        if is_behind_comma and tokens[at + 1].is_name and not tokens.is_word(at + 1, "FROM", "AS"):
            place = Span(text, tokens[at - 1].start, tokens[at].end)
            yield Problem("There is no column between this comma and FROM.", place, "Leave the comma out.")


# --- aliases ---------------------------------------------------------------------------------------

# Names that may be there though no text has them: made by functions of Spark's, hidden, or of catalogs.
_NOT_WRITTEN = re.compile(r"_.*|c(ol)?\d+|col|key|value|pos|id|session|system|builtin|spark_catalog")

_KEEPS_TABLES = (
    *("CACHE", "CREATE", "DESC", "DESCRIBE", "FROM", "INSERT", "SELECT", "SHOW", "VALUES", "WITH"),
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
        name = created_name(text.code)
        if text.starts_with("DECLARE"):
            self._declared |= _names_in_pieces(text.code)
        elif not (text.starts_with(*_KEEPS_TABLES) or text.code.is_symbol(0, "(")):
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
        tokens = statement.tokens
        for index, piece in enumerate(tokens):
            is_marked = any(tokens.is_symbol(index - 1, mark) for mark in (":", "{", "$", "@"))
            if (
                statement.structure.block_at(index) is not None
                and tokens.starts_dotted_name(index)
                and not (is_marked or tokens.is_symbol(index + 3, "(") or piece.name.lower() in names)
                and not _NOT_WRITTEN.fullmatch(piece.name.lower())
            ):
                at = statement.span(Cut(piece.start, piece.end))
                known = [alias for alias, _ in statement.aliases_around(index)]
                yield Problem(f"Nothing is called {piece.name!r} here.", at, nearest(piece.name, known))

    def _names_in(self, statement: ReadStatement) -> Names | None:
        """All names that a statement can use; None if it reads relations with unknown columns."""
        tokens = statement.tokens
        names = self._declared | _names_in_pieces(tokens)
        if any(
            piece.is_word("INLINE", "INLINE_OUTER")
            or (piece.is_symbol("*") and tokens.is_symbol(at - 2, ")"))
            for at, piece in enumerate(tokens)
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


def created_name(tokens: Tokens) -> str | None:
    """The name of the table or view that a CREATE makes; None where it has a schema."""
    at = next((at for at in range(1, 6) if tokens.is_word(at, "TABLE", "VIEW")), None)
    if at is None or not tokens.is_word(0, "CREATE"):
        return None
    at += 4 if tokens.are_words(at + 1, "IF", "NOT", "EXISTS") else 1
    return tokens[at].name if tokens.is_name(at) and not tokens.is_symbol(at + 1, ".") else None


def _names_in_pieces(tokens: Tokens) -> Names:
    """Every name and every word of a string, except names that occur only before a dot."""
    names = {
        piece.name.lower()
        for at, piece in enumerate(tokens)
        if piece.is_name and not tokens.starts_dotted_name(at)
    }
    strings = (piece.text.lower() for piece in tokens if piece.kind is Kind.STRING)
    return frozenset(names.union(*(re.findall(r"\w+", text) for text in strings)))
