"""The calls of ``lookup_get('table', 'column', key [, default])`` in a statement, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.errors import Problem, QueryError, counted, nearest
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.session_interface import Context
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.lexer import Kind, quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.tokens import Tokens

FORM = "lookup_get('table', 'column', key [, default])"


def calls_in(tokens: Tokens) -> Iterator[int]:
    """Indices of the names of calls; a function of that name in a schema is not ours."""
    for at, piece in enumerate(tokens):
        if (
            piece.is_word("LOOKUP_GET")
            and tokens.is_symbol(at + 1, "(")
            and not tokens.is_symbol(at - 1, ".")
        ):
            yield at


def calls_lookup_get(text: SqlText) -> bool:
    """Whether there is a call in ``text``, by its pieces alone."""
    return any(True for _ in calls_in(text.code))


def tables_of_calls(text: SqlText) -> list[str]:
    """The names of the tables that the calls in ``text`` give in quotes."""
    tables = (text.code.piece_at(at + 2) for at in calls_in(text.code))
    return [piece.value for piece in tables if piece is not None and piece.kind is Kind.STRING]


def first_of_statement(tokens: Tokens, at: int) -> int:
    """The first piece of the statement that has the piece ``at``; a script has many."""
    if tokens.is_word(0, "BEGIN"):
        for first in range(at, 0, -1):
            if tokens.is_symbol(first - 1, ";") or _begins_in_block(tokens, first):
                return first
    return 0


def _begins_in_block(tokens: Tokens, at: int) -> bool:
    """Whether a MERGE, UPDATE or DELETE begins at the piece; WHEN MATCHED THEN has actions of these names."""
    is_written = (
        (tokens.is_word(at, "MERGE") and tokens.is_word(at + 1, "INTO", "WITH"))
        or (tokens.is_word(at, "UPDATE") and not tokens.is_word(at + 1, "SET"))
        or tokens.are_words(at, "DELETE", "FROM")
    )
    return is_written and tokens.is_word(at - 1, "BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT")


@dataclass(frozen=True)
class ValueCall:
    """One call.

    Args:
        first: index of its name.
        last: index of its closing parenthesis.
        table: the lookup table; or the view over one, as such a table.
        relation: its name in a FROM.
        column: the column whose value it gives.
        keys: the value of each column of the table's key, in their order.
        trees: the same as trees.
        default: what it gives where the table has no row.
    """

    first: int
    last: int
    table: LookupTable
    relation: str
    column: str
    keys: tuple[Cut, ...]
    trees: tuple[exp.Expr, ...]
    default: Cut | None


def read_call(statement: Statement, context: Context, first: int) -> ValueCall:
    """The call whose name is at the piece.

    Raises:
        QueryError: its arguments are wrong.
    """
    tokens = statement.tokens
    last = tokens.closing(first + 1)
    whole = tokens.cut(first, last)
    arguments = tokens.parts(first + 2, last - 1)
    if not 3 <= len(arguments) <= 4:
        raise _argument_error(
            statement, whole, f"It takes 3 or 4 arguments, not {len(arguments)}.", f"Write {FORM}."
        )
    table, relation = _find_table(statement, context, arguments[0])
    column = _find_column(statement, table, arguments[1])
    if not table.primary_key:
        message = f"The lookup table {table.name} declares no key, so a key may have several rows."
        raise _argument_error(
            statement, arguments[0], message, "Declare PRIMARY KEY (column) NOT ENFORCED in its CREATE TABLE."
        )
    keys = _parts_of_key(statement, arguments[2])
    names = ", ".join(table.primary_key)
    if len(keys) != len(table.primary_key):
        form = names if len(table.primary_key) == 1 else f"struct({names})"
        has = f"{counted(len(table.primary_key), 'column')} ({names})"
        message = f"The key of {table.name} has {has}, and {counted(len(keys), 'value')} is given."
        raise _argument_error(
            statement, arguments[2], message.replace("values is", "values are"), f"Write the key as {form}."
        )
    trees = [statement.expression(key) for key in keys]
    for key, tree in zip(keys, trees, strict=True):
        if tree is None or isinstance(tree, exp.Alias):
            raise _argument_error(
                statement, key, "This part of the key cannot be read.", "Write one value, without a name."
            )
    return ValueCall(
        first,
        last,
        table,
        relation,
        column,
        tuple(keys),
        tuple(tree for tree in trees if tree is not None),
        arguments[3] if len(arguments) > 3 else None,
    )


def raise_together(errors: Sequence[QueryError]) -> None:
    """Raise one error with the problems of all, if there are any."""
    if errors:
        raise type(errors[0])([problem for error in errors for problem in error.problems])


def _argument_error(statement: Statement, at: Cut, message: str, tip: str = "") -> QueryError:
    return QueryError(Problem(f"lookup_get: {message}", statement.span(at), tip))


def _text_of(statement: Statement, argument: Cut, what: str) -> str:
    first, last = statement.tokens.indices(argument)
    piece = statement.tokens[first]
    if first != last or piece.kind is not Kind.STRING:
        message = f"The {what} must be known before the query runs."
        raise _argument_error(statement, argument, message, f"Write its name in quotes: {FORM}.")
    return piece.value


def _find_table(statement: Statement, context: Context, argument: Cut) -> tuple[LookupTable, str]:
    name = _text_of(statement, argument, "table")
    table = context.find_table(name)
    if table is None:
        view = context.find_view(name)
        if view is not None:
            return view.table, quoted(name)
        known = sorted(each.name for each in context.tables())
        raise _argument_error(
            statement, argument, f"There is no lookup table {name!r}.", nearest(name, known)
        )
    if any(cte.name.lower() == name.lower() for cte in statement.structure.ctes):
        message = f"A query of WITH is called {name}, too, and hides the lookup table."
        raise _argument_error(statement, argument, message, "Give that query another name.")
    return table, quoted(table.name)


def _find_column(statement: Statement, table: LookupTable, argument: Cut) -> str:
    name = _text_of(statement, argument, "column")
    for column in table.schema.names:
        if column.lower() == name.lower():
            return str(column)
    raise _argument_error(
        statement, argument, f"{table.name} has no column {name!r}.", nearest(name, table.schema.names)
    )


# (docs/decisions/0274)
def _parts_of_key(statement: Statement, key: Cut) -> list[Cut]:
    """The values in ``struct(a, b)`` or ``(a, b)``; else the key itself."""
    tokens = statement.tokens
    first, last = tokens.indices(key)
    opening = first + tokens.is_word(first, "STRUCT")
    if tokens.is_symbol(opening, "(") and tokens.closing(opening) == last and opening + 1 < last:
        return tokens.parts(opening + 1, last - 1)
    return [key]
