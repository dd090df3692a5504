"""The kind of a statement, by its words alone, and which parts of it are queries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from lookup_hints.errors import Problem, Span, UnsupportedLookup
from lookup_hints.plan.parse.statement import Statement, UnreadableStatement
from lookup_hints.sql.lexer import Piece, comma_groups
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.words import QUERY_WORDS

_WRITING_WORDS = ("INSERT", "CREATE", "CACHE", "REPLACE")
_RELATION_WORDS = ("FROM", "JOIN", "TABLE", "USING", "INTO", "UPDATE", "STREAM")
_AFTER_TYPES = ("DEFAULT", "COMMENT", "NOT")
_HOLDING_WORDS = ("BEGIN", "MERGE", "UPDATE", "DELETE", "SET", "DECLARE")


def query_parts(statement: Statement) -> list[Cut]:
    """The queries of the statement: all of it, or what INSERT, CREATE, MERGE, BEGIN ... END and so on hold.

    Raises:
        UnreadableStatement: the kind of statement cannot hold a lookup.
        UnsupportedLookup: it would write to a lookup table, take its name, or outlive the session.
    """
    tokens = statement.tokens
    first = statement.pieces[0]
    if _only_holds_queries(tokens):
        _refuse_lasting(statement, "FUNCTION")
        parts = list(_inner_queries(tokens))
        _refuse_uses_outside(statement, parts)
        return parts
    if first.is_word(*_WRITING_WORDS):
        _refuse_target(statement)
        return [Cut(_query_start(statement), _end_of_text(tokens))]
    if first.is_word(*QUERY_WORDS) or first.is_symbol("("):
        return [Cut(first.start, _end_of_text(tokens))]
    if (at := _start_of_described(tokens)) is not None:
        return [Cut(tokens[at].start, _end_of_text(tokens))]
    raise UnreadableStatement(
        Problem(
            f"A lookup table cannot be used in this kind of statement ({first.text.upper()}).",
            _span_of_first_word(statement),
            "Use it in a SELECT, INSERT INTO ... SELECT, CREATE TABLE ... AS or a temporary view.",
        )
    )


def gives_rows(statement: Statement) -> bool:
    first = statement.pieces[0]
    is_query = first.is_word(*QUERY_WORDS) or first.is_symbol("(")
    return is_query and not inserts(statement.tokens)


def is_one_query(statement: Statement) -> bool:
    """Whether the statement holds exactly one query, whose columns it returns or writes."""
    return len(statement.queries) == 1 and not (
        inserts(statement.tokens) or _only_holds_queries(statement.tokens) or describes(statement)
    )


def describes(statement: Statement) -> bool:
    return _start_of_described(statement.tokens) is not None


def _start_of_described(tokens: Tokens) -> int | None:
    """Where the query begins that the statement describes."""
    if not tokens.is_word(0, "DESCRIBE", "DESC"):
        return None
    at = 1 + tokens.is_word(1, "QUERY")
    words = QUERY_WORDS if at > 1 else [word for word in QUERY_WORDS if word != "TABLE"]
    return at if tokens.is_word(at, *words) or (at > 1 and tokens.is_symbol(at, "(")) else None


def _only_holds_queries(tokens: Tokens) -> bool:
    """Whether the statement is none of its queries, and writes the rows of none."""
    return tokens.is_word(0, *_HOLDING_WORDS) or _parameters_at(tokens) is not None


def makes_function(statement: Statement) -> bool:
    return _parameters_at(statement.tokens) is not None


def _parameters_at(tokens: Tokens) -> int | None:
    """Where the parameters begin of the SQL function that the statement creates, if it creates one."""
    if not tokens.is_word(0, "CREATE"):
        return None
    at = next((at for at in range(1, 5) if tokens.is_word(at, "FUNCTION")), None)
    if at is None:
        return None
    at += 4 if tokens.is_word(at + 1, "IF") else 1
    while tokens.is_dot(at + 1):
        at += 2
    return at + 1 if tokens.is_symbol(at + 1, "(") else None


def written_query(text: SqlText) -> str | None:
    """The one query whose rows a statement writes; None where it holds none, or several."""
    statement = Statement(text, lambda _: None)
    try:
        statement.queries = query_parts(statement)
    except UnreadableStatement:
        return None
    if gives_rows(statement) or not is_one_query(statement):
        return None
    return statement.queries[0].of(text)


def inserts(tokens: Tokens) -> list[int]:
    return [
        index
        for index, piece in enumerate(tokens)
        if index > 0
        and piece.is_word("INSERT")
        and tokens.depth(index) == 0
        and tokens.is_word(index + 1, "INTO", "OVERWRITE")
    ]


def script_variables(statement: Statement) -> dict[str, str]:
    """Types of the variables of a SQL script, or the parameters of a SQL function, by name in lower case."""
    found: dict[str, str] = {}
    tokens, text = statement.tokens, statement.text
    opening = _parameters_at(tokens)
    if opening is not None:
        for _, group in comma_groups(tokens[opening + 1 : tokens.closing(opening)]):
            written = list(takewhile(lambda piece: not piece.is_word(*_AFTER_TYPES), group[1:]))
            if group and group[0].is_name and written:
                found[group[0].name.lower()] = text[written[0].start : written[-1].end]
    if not tokens.is_word(0, "BEGIN"):
        return found
    for index in range(len(tokens)):
        is_other = tokens.is_word(index + 1, "EXIT", "CONTINUE") or tokens.is_word(index + 2, "CONDITION")
        if not tokens.is_word(index, "DECLARE") or is_other:
            continue
        names = [index + 1]
        while tokens.is_symbol(names[-1] + 1, ","):
            names.append(names[-1] + 2)
        first = last = names[-1] + 1
        while last < len(tokens) and not (tokens[last].text in (";", "=") or tokens.is_word(last, "DEFAULT")):
            last += 1
        if last > first:
            kind = tokens.cut(first, last - 1).of(text)
            found.update({tokens[at].name.lower(): kind for at in names})
    return found


def sure_uses(statement: Statement) -> Iterator[int]:
    """Indices of names of lookup tables at places where only a relation can be."""
    tokens = statement.tokens
    for index, piece in enumerate(tokens):
        is_relation = tokens.is_word(index - 1, *_RELATION_WORDS) and not tokens.is_symbol(index + 1, ".")
        if is_relation and piece.is_name and statement.is_lookup_table(piece.name):
            yield index


def _inner_queries(tokens: Tokens) -> Iterator[Cut]:
    """The queries of a statement that is none itself, each as long as it can be."""
    index = 0
    while index < len(tokens):
        end = _query_end(tokens, index)
        if end is None:
            index += 1
            continue
        yield tokens.cut(index, end - 1)
        index = end


def _query_end(tokens: Tokens, index: int) -> int | None:
    """Index after the query that begins at the piece, or None where none does."""
    if not tokens.begins_query(index):
        return None
    if tokens.is_symbol(index - 1, "("):
        return tokens.closing(index - 1)
    begins = index == 0 or tokens.is_symbol(index - 1, ";") or tokens.is_word(index - 1, *_BEFORE_STATEMENTS)
    begins = begins or _is_insert_before(tokens, index)
    if not begins or tokens.is_word(index, "VALUES"):
        return None
    end = index
    while end < len(tokens) and not tokens.is_symbol(end, ";"):
        if tokens.depth(end) == tokens.depth(index) and tokens.is_word(end, "DO"):
            break
        end += 1
    return end


_BEFORE_STATEMENTS = (
    *("BEGIN", "THEN", "ELSE", "DO", "LOOP", "REPEAT", "FOR", "SQLEXCEPTION", "FOUND", "RETURN"),
    "AS",
)


def _is_insert_before(tokens: Tokens, index: int) -> bool:
    """Whether the statement so far is an INSERT, not in other parentheses than the piece."""
    start = index
    while start > 0 and not (
        tokens.is_symbol(start - 1, ";") or tokens.is_word(start - 1, *_BEFORE_STATEMENTS[:-1])
    ):
        start -= 1
    return start < index and tokens.is_word(start, "INSERT") and tokens.depth(start) == tokens.depth(index)


def _refuse_uses_outside(statement: Statement, parts: list[Cut]) -> None:
    for index in sure_uses(statement):
        piece = statement.pieces[index]
        if any(part.start <= piece.start < part.end for part in parts):
            continue
        is_deleted = index == 2 and statement.pieces[0].is_word("DELETE")
        if is_deleted or statement.tokens.is_word(index - 1, "INTO", "UPDATE"):
            raise _refused_write(statement, piece, is_create=False)
        raise UnreadableStatement(
            Problem(
                f"The lookup table {piece.name} cannot stand here: it is asked by a query.",
                statement.span(Cut(piece.start, piece.end)),
                f"Write (SELECT * FROM {piece.name}) instead.",  # noqa: S608 (an error text)
            )
        )


def _refuse_target(statement: Statement) -> None:
    """INSERT does not write to lookup tables, and a view neither takes their name nor outlives them."""
    tokens = statement.tokens
    index = _target_of_write(tokens)
    target = None if tokens.is_symbol(index + 1, ".") else tokens.piece_at(index)
    is_create = not statement.pieces[0].is_word("INSERT")
    if target is not None and target.is_name and statement.is_lookup_table(target.name):
        raise _refused_write(statement, target, is_create)
    if is_create:
        _refuse_lasting(statement, "VIEW")


def _refuse_lasting(statement: Statement, what: str) -> None:
    """Refuse to create a view or function that outlives the lookup tables which it names."""
    words = [piece.text.upper() for piece in statement.pieces[:6]]
    if words[0] != "CREATE" or what not in words:
        return
    is_used = any(True for _ in sure_uses(statement))
    if is_used and not {"TEMPORARY", "TEMP"} & set(words[: words.index(what)]):
        raise UnsupportedLookup(
            Problem(
                f"A {what.lower()} that outlives the session cannot hold a lookup join: the lookup does not"
                " outlive it.",
                _span_of_first_word(statement),
                f"Write CREATE TEMPORARY {what}.",
            )
        )


def _refused_write(statement: Statement, target: Piece, is_create: bool) -> UnsupportedLookup:
    message = (
        f"{target.name} is the name of a lookup table; drop that first, or choose another name."
        if is_create
        else f"{target.name} is a lookup table: it is asked, never written to."
    )
    return UnsupportedLookup(Problem(message, statement.span(Cut(target.start, target.end))))


def _target_of_write(tokens: Tokens) -> int:
    """Index of the name that the statement writes or creates."""
    words = ("INTO", "OVERWRITE", "TABLE", "VIEW", "IF", "NOT", "EXISTS")
    index = next((at for at, piece in enumerate(tokens) if piece.is_word(*words[:4])), 0)
    while tokens.is_word(index, *words):
        index += 1
    return index


def _query_start(statement: Statement) -> int:
    tokens = statement.tokens
    # CREATE TABLE t CLUSTER BY (a) AS ... does not begin with the query TABLE t.
    for index in range(_target_of_write(tokens), len(tokens)):
        first = index
        while tokens.is_symbol(first, "("):
            first += 1
        if tokens.depth(index) == 0 and tokens.begins_query(first):
            return tokens[index].start
    raise UnreadableStatement(
        Problem("The query of this statement cannot be found.", _span_of_first_word(statement))
    )


def _end_of_text(tokens: Tokens) -> int:
    last = tokens[-1]
    return tokens[-2].end if last.is_symbol(";") and len(tokens) > 1 else last.end


def _span_of_first_word(statement: Statement) -> Span:
    first = statement.pieces[0]
    return statement.span(Cut(first.start, first.end))
