"""Calls of ``lookup_get`` in the condition and the actions of a MERGE, moved into the source of its USING.

No join can be there, and Spark takes few queries there. The source gets a column for each value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.errors import QueryError
from lookup_hints.plan.lookup_get.calls import (
    ValueCall,
    calls_in,
    first_of_statement,
    raise_together,
    read_call,
)
from lookup_hints.plan.lookup_get.changed_text import ChangedText
from lookup_hints.plan.lookup_get.places import IN_SOURCE, refused
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.session_interface import Context
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import AsWritten, Cut, Edit, Fragment
from lookup_hints.sql.tokens import Tokens


@dataclass(frozen=True)
class CallsInSource(ChangedText):
    """A MERGE whose calls became columns of its source.

    Args:
        calls: the text of the call by the column.
    """

    calls: dict[str, str]

    def _without_private(self, text: str) -> str:
        for column, call in self.calls.items():
            text = text.replace(quoted(column), quoted(call))
        return text


@dataclass(frozen=True)
class _Merge:
    """A MERGE, alone or in a script: its first and last pieces."""

    first: int
    last: int


@dataclass(frozen=True)
class _MergeSource:
    """The source of a MERGE: its place with its alias, and the name by which its columns are qualified."""

    at: Cut
    name: str

    def names(self, qualifier: str) -> bool:
        return quoted(qualifier).lower() in (self.name.lower(), quoted(self.name).lower())


# (docs/decisions/0302)
def move_calls_into_source(statement: Statement, context: Context) -> CallsInSource | None:
    """The MERGE with the values of the calls outside its queries in its source; None where there are none.

    Each MERGE of a script is one.

    Raises:
        QueryError: a call is wrong, or needs more than the source; lists all such calls.
    """
    errors, edits, calls = list[QueryError](), list[Edit](), dict[str, str]()
    for merge in _find_merges(statement.tokens):
        try:
            edits += _edits_of_merge(statement, context, merge, calls)
        except QueryError as error:
            errors.append(error)
    raise_together(errors)
    return CallsInSource(statement.text, statement.text.edited(edits), tuple(edits), calls) if edits else None


def _find_merges(tokens: Tokens) -> Iterator[_Merge]:
    """Those that have calls."""
    firsts = dict.fromkeys(first_of_statement(tokens, call) for call in calls_in(tokens))
    for first in firsts:
        if tokens.is_word(first, "MERGE"):
            ends = (at for at in range(first, len(tokens)) if tokens.is_symbol(at, ";"))
            yield _Merge(first, next(ends, len(tokens)) - 1)


def _edits_of_merge(
    statement: Statement, context: Context, merge: _Merge, calls: dict[str, str]
) -> list[Edit]:
    """The edits that move the calls of ``merge`` into its source; ``calls`` learns their texts by column.

    Raises:
        QueryError: lists all calls that cannot be there.
    """
    source = _find_source(statement.tokens, merge)
    errors, edits, listed = list[QueryError](), list[Edit](), list[Fragment]()
    for first in calls_in(statement.tokens):
        at = _place_of_value(statement, first) if merge.first <= first <= merge.last else None
        if at is None or any(edit.at.holds(at) for edit in edits):  # or it is in the key of another one
            continue
        try:
            call = read_call(statement, context, first)
            name = _name_of_source(statement, merge, source, call)
        except QueryError as error:
            errors.append(error)
            continue
        column, written = f"__lookup_value_{len(calls) + 1}", statement.tokens.cut(call.first, call.last)
        edits.append(Edit(at, (f"{name}.{quoted(column)}",)))
        calls[column] = written.of(statement.text)
        listed += [", ", AsWritten(written.start, written.end), f" AS {quoted(column)}"]
    raise_together(errors)
    if source is not None and edits:
        begin, end = source.at.start, source.at.end
        edits.append(Edit(Cut(begin, begin), (f"(SELECT {source.name}.*", *listed, " FROM ")))
        edits.append(Edit(Cut(end, end), (f") AS {source.name}",)))
    return edits


def _find_source(tokens: Tokens, merge: _Merge) -> _MergeSource | None:
    """The source; None where it has no name."""
    plain = list(tokens.in_plain_sight(merge.first, merge.last))
    using = next((at for at in plain if tokens.is_word(at, "USING")), merge.last + 1)
    on = next((at for at in plain if at > using and tokens.is_word(at, "ON")), using)
    named = on - 1
    if tokens.is_symbol(named, ")"):  # the list of its columns; or its query, which has no name
        named = next(at for at in range(on) if tokens.closing_if_any(at) == named) - 1
    if named <= using or not tokens.is_name(named):
        return None
    return _MergeSource(tokens.cut(using + 1, on - 1), tokens[named].text)


def _place_of_value(statement: Statement, first: int) -> Cut | None:
    """The call, or all of ``(SELECT call)``, if it is in no other query."""
    tokens, last = statement.tokens, statement.tokens.closing(first + 1)
    if statement.structure.block_at(first) is None:
        return tokens.cut(first, last)
    is_alone = tokens.is_word(first - 1, "SELECT") and tokens.closing_if_any(first - 2) == last + 1
    return tokens.cut(first - 2, last + 1) if is_alone else None


def _name_of_source(statement: Statement, merge: _Merge, source: _MergeSource | None, call: ValueCall) -> str:
    """The name of the source, if it alone gives the key and the default of a call.

    Raises:
        UnsupportedLookup: it does not, or gets no further column.
    """
    if source is None:
        raise refused(statement, call, "the source of the MERGE has no name", "Give it one: USING ... AS s.")
    default = None if call.default is None else statement.expression(call.default)
    trees = [*call.trees, *filter(None, [default])]
    columns = [column for tree in trees for column in tree.find_all(exp.Column)]
    if any(len(each.parts) == 1 for each in columns):
        tip = f"Write {source.name} and a dot before the columns of the source."
        raise refused(statement, call, "its key or default may have columns of the target", tip)
    if any(not source.names(each.parts[0].name) for each in columns):
        raise refused(statement, call, "its key or default has columns of the target", IN_SOURCE)
    tokens = statement.tokens
    own = range(merge.first, merge.last + 1)
    all_columns = (at for at in own if tokens.is_word(at, "SET", "INSERT", "UPDATE"))
    if tokens.is_word(merge.first + 1, "WITH") or any(tokens.is_symbol(at + 1, "*") for at in all_columns):
        tip = f"List the columns in place of *. {IN_SOURCE}"
        raise refused(statement, call, "the MERGE takes all columns of the source", tip)
    return source.name
