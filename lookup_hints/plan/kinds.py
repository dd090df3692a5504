"""What kind of statement it is, by its words alone, and which part of it is the query."""

from __future__ import annotations

from lookup_hints.errors import Problem, Span, UnsupportedLookup
from lookup_hints.plan.reading import Statement, UnreadableStatement
from lookup_hints.plan.splice import Cut
from lookup_hints.sqltext import Piece

_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES")
_WRITING_WORDS = ("INSERT", "CREATE", "CACHE")
_RELATION_WORDS = ("FROM", "JOIN", "TABLE", "USING", "INTO", "UPDATE", "STREAM")


def query_part(statement: Statement) -> Cut:
    """The query of the statement: all of it, or what INSERT, CREATE and CACHE take their rows from.

    Raises:
        UnreadableStatement: the kind of statement cannot hold a lookup.
        UnsupportedLookup: it would write to a lookup table, take its name, or outlive the session.
    """
    _refuse_pipes_and_blocks(statement)
    first = statement.pieces[0]
    if first.is_word(*_WRITING_WORDS):
        _refuse_target(statement)
        return Cut(_query_start(statement), _end(statement))
    if not (first.is_word(*_QUERY_WORDS) or first.is_symbol("(")):
        raise _wrong_kind(statement, first.text.upper())
    if any(piece.is_word("INSERT") and not statement.depth(at) for at, piece in enumerate(statement.pieces)):
        raise _wrong_kind(statement, f"INSERT after {first.text.upper()}")
    return Cut(first.start, _end(statement))


def names_a_relation(statement: Statement, index: int) -> bool:
    """Whether the piece stands where only a relation can stand, so that its statement is surely ours."""
    before = statement.pieces[index - 1] if index else None
    following = statement.after(index + 1)
    is_qualified = following is not None and following.is_symbol(".")
    return before is not None and before.is_word(*_RELATION_WORDS) and not is_qualified


def _wrong_kind(statement: Statement, kind: str) -> UnreadableStatement:
    return UnreadableStatement(
        Problem(
            f"A lookup table cannot be used in this kind of statement ({kind}) yet.",
            _first_span(statement),
            "Use it in a SELECT, INSERT INTO ... SELECT, CREATE TABLE ... AS or a temporary view.",
        )
    )


def _refuse_pipes_and_blocks(statement: Statement) -> None:
    for piece in statement.pieces:
        if piece.is_symbol("|>"):
            raise UnreadableStatement(
                Problem(
                    "A lookup table cannot be used in pipe syntax yet.",
                    statement.span(Cut(piece.start, piece.end)),
                    "Write SELECT ... FROM ... JOIN.",
                )
            )
    if statement.pieces[0].is_word("BEGIN"):
        raise UnreadableStatement(
            Problem(
                "A lookup table cannot be used within BEGIN ... END yet.",
                _first_span(statement),
                "Put the statement into the script by itself.",
            )
        )


def _refuse_target(statement: Statement) -> None:
    """INSERT does not write to lookup tables, and a view neither takes their name nor outlives them."""
    target = _target(statement)
    is_create = statement.pieces[0].is_word("CREATE")
    words = [piece.text.upper() for piece in statement.pieces[:6]]
    if target is not None and statement.is_lookup_table(target.name):
        message = (
            f"{target.name} is the name of a lookup table; drop that first, or choose another name."
            if is_create
            else f"{target.name} is a lookup table: it is asked, never written to."
        )
        raise UnsupportedLookup(Problem(message, statement.span(Cut(target.start, target.end))))
    if is_create and "VIEW" in words and not {"TEMPORARY", "TEMP"} & set(words[: words.index("VIEW")]):
        raise UnsupportedLookup(
            Problem(
                "A view that outlives the session cannot hold a lookup join: the lookup does not outlive it.",
                _first_span(statement),
                "Write CREATE TEMPORARY VIEW.",
            )
        )


def _target(statement: Statement) -> Piece | None:
    """The unqualified name that the statement writes or creates."""
    words = ("INTO", "OVERWRITE", "TABLE", "VIEW", "IF", "NOT", "EXISTS")
    index = next((at for at, piece in enumerate(statement.pieces) if piece.is_word(*words[:4])), None)
    while index is not None and index < len(statement.pieces) and statement.pieces[index].is_word(*words):
        index += 1
    target = None if index is None else statement.after(index)
    following = None if index is None else statement.after(index + 1)
    is_qualified = following is not None and following.is_symbol(".")
    return target if target is not None and target.is_name and not is_qualified else None


def _query_start(statement: Statement) -> int:
    pieces = statement.pieces
    for index, piece in enumerate(pieces[2:], 2):
        first = pieces[index + 1] if piece.is_symbol("(") and index + 1 < len(pieces) else piece
        if statement.depth(index) == 0 and first.is_word(*_QUERY_WORDS):
            return piece.start
    raise UnreadableStatement(Problem("The query of this statement cannot be found.", _first_span(statement)))


def _end(statement: Statement) -> int:
    last = statement.pieces[-1]
    return statement.pieces[-2].end if last.is_symbol(";") and len(statement.pieces) > 1 else last.end


def _first_span(statement: Statement) -> Span:
    first = statement.pieces[0]
    return statement.span(Cut(first.start, first.end))
