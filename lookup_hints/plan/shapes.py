"""Where a lookup table stands: a lookup join, a scan, or a shape that is refused by name and reason."""

from __future__ import annotations

from sqlglot import exp

from lookup_hints.errors import Problem, Span, UnsupportedLookup
from lookup_hints.plan.conditions import Names
from lookup_hints.plan.draft import Context, LookupJoin
from lookup_hints.plan.reading import LookupUse, Statement
from lookup_hints.plan.splice import Cut
from lookup_hints.sqltext import Kind, Piece

_KINDS = {
    (): "INNER",
    ("INNER",): "INNER",
    ("LEFT",): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
}
_FIRST_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "INSERT", "CREATE", "CACHE")
_REFUSED_KINDS = {
    "RIGHT": "a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped",
    "FULL": "a FULL JOIN needs every row of the lookup table; write LEFT JOIN",
    "CROSS": "a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality",
    "NATURAL": "NATURAL JOIN is not supported yet; write JOIN ... ON with the equality",
    "SEMI": "LEFT SEMI lookup joins are not supported yet; write JOIN ... ON and select the left columns",
    "ANTI": "LEFT ANTI lookup joins are not supported yet; write LEFT JOIN ... ON and WHERE ... IS NULL",
}


def query_part(statement: Statement) -> Cut:
    """The query of the statement: all of it, or what ``INSERT`` and ``CREATE ... AS`` take their rows from.

    Raises:
        UnsupportedLookup: the kind of statement cannot hold a lookup.
    """
    _refuse_pipes_and_blocks(statement)
    if not (statement.pieces[0].is_word(*_FIRST_WORDS) or statement.pieces[0].is_symbol("(")):
        raise _wrong_kind(statement)
    tree = statement.tree
    end = _end(statement)
    if isinstance(tree, exp.Query):
        return Cut(statement.pieces[0].start, end)
    if not isinstance(tree, exp.Insert | exp.Create | exp.Cache) or tree.args.get("with_"):
        raise _wrong_kind(statement)
    if isinstance(tree, exp.Insert):
        _refuse_writing(statement, tree)
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "VIEW" and not _is_temporary(statement):
        raise UnsupportedLookup(
            Problem(
                "A view that outlives the session cannot hold a lookup join: the lookup does not outlive it.",
                _first_span(statement),
                "Write CREATE TEMPORARY VIEW.",
            )
        )
    start = _query_start(statement, isinstance(tree, exp.Insert))
    return Cut(start, end)


def _wrong_kind(statement: Statement) -> UnsupportedLookup:
    return UnsupportedLookup(
        Problem(
            "A lookup table cannot be used in this kind of statement"
            f" ({statement.pieces[0].text.upper()}) yet.",
            _first_span(statement),
            "Use it in a SELECT, INSERT INTO ... SELECT, CREATE TABLE ... AS or a temporary view.",
        )
    )


def _refuse_writing(statement: Statement, insert: exp.Insert) -> None:
    target = insert.find(exp.Table)
    if target is not None and not target.args.get("db") and statement.is_lookup_table(target.name):
        raise UnsupportedLookup(
            Problem(
                f"{target.name} is a lookup table: it is asked, never written to.",
                statement.span(statement.place_of(target) or Cut(0, 0)),
            )
        )


def _refuse_pipes_and_blocks(statement: Statement) -> None:
    for piece in statement.pieces:
        if piece.is_symbol("|>"):
            raise UnsupportedLookup(
                Problem(
                    "A lookup table cannot be used in pipe syntax yet.",
                    statement.span(Cut(piece.start, piece.end)),
                    "Write SELECT ... FROM ... JOIN.",
                )
            )
    if statement.pieces[0].is_word("BEGIN"):
        raise UnsupportedLookup(
            Problem(
                "A lookup table cannot be used within BEGIN ... END yet.",
                _first_span(statement),
                "Put the statement into the script by itself.",
            )
        )


def _end(statement: Statement) -> int:
    last = statement.pieces[-1]
    return statement.pieces[-2].end if last.is_symbol(";") and len(statement.pieces) > 1 else last.end


def _is_temporary(statement: Statement) -> bool:
    return any(piece.is_word("TEMPORARY", "TEMP") for piece in statement.pieces[:5])


def _query_start(statement: Statement, is_insert: bool) -> int:
    """Where the query of ``INSERT INTO t ...`` or ``CREATE ... AS ...`` begins."""
    pieces = statement.pieces
    for index, piece in enumerate(pieces):
        if statement.depth(index) or index < 2:
            continue
        if not is_insert and piece.is_word("AS") and index + 1 < len(pieces):
            return pieces[index + 1].start
        first = pieces[index + 1] if piece.is_symbol("(") and index + 1 < len(pieces) else piece
        if is_insert and first.is_word("SELECT", "WITH", "FROM", "VALUES"):
            return piece.start
    raise UnsupportedLookup(Problem("The query of this statement cannot be found.", _first_span(statement)))


def _first_span(statement: Statement) -> Span:
    first = statement.pieces[0]
    return statement.span(Cut(first.start, first.end))


def is_scan(statement: Statement, use: LookupUse) -> bool:
    """Whether the lookup table is the first relation of a FROM, and so is read rather than asked."""
    before = statement.pieces[use.index - 1] if use.index else None
    return before is not None and before.is_word("FROM")


def lookup_join(statement: Statement, use: LookupUse, context: Context) -> LookupJoin:
    """The lookup join of a lookup table that is not the first relation of its FROM.

    Raises:
        UnsupportedLookup: the shape is not supported; says which join, and why.
    """
    start = statement.join_start(use.index)
    if start is None:
        raise _refused(
            statement, use, Cut(statement.pieces[use.index].start, use.end), _why_no_join(statement, use)
        )
    words = tuple(piece.text.upper() for piece in statement.pieces[start : use.index - 1])
    join = Cut(statement.pieces[start].start, use.end)
    for word, reason in _REFUSED_KINDS.items():
        if word in words:
            raise _refused(statement, use, join, reason)
    _check_time(statement, use)
    on = _condition(statement, use, join)
    whole = Cut(join.start, on.end)
    _check_is_last(statement, use, whole)
    return LookupJoin(
        use=use,
        connector=context.connector(use.table),
        kind=_KINDS[words],
        at=whole,
        on=on,
        select=statement.select_of(use.index),
        names=names_of(use, context.case_sensitive),
    )


def _why_no_join(statement: Statement, use: LookupUse) -> str:
    before = statement.pieces[use.index - 1] if use.index else None
    if before is not None and before.is_symbol(","):
        return "comma joins with a lookup table are not supported yet; write JOIN ... ON"
    return "a lookup table must be the right side of a JOIN ... ON, by its bare name"


def _condition(statement: Statement, use: LookupUse, join: Cut) -> Cut:
    index = statement.index_at(use.end - 1) + 1
    following = statement.after(index)
    if following is not None and following.is_word("USING"):
        raise _refused(statement, use, join, "USING is not supported yet; write ON with the equality")
    if following is None or not following.is_word("ON"):
        raise _refused(statement, use, join, "it has no ON condition, so nothing says which rows to ask for")
    on = Cut(statement.pieces[index + 1].start, statement.condition_end(index + 1))
    tree = _join_node(use)
    if tree is None or statement.expression(on) != tree.args.get("on"):
        raise _refused(statement, use, join, "its ON condition cannot be told apart; put it in parentheses")
    return on


def _join_node(use: LookupUse) -> exp.Join | None:
    parent = use.node.parent
    return parent if isinstance(parent, exp.Join) else None


def _check_is_last(statement: Statement, use: LookupUse, join: Cut) -> None:
    """Only further lookup joins and the clauses after FROM may follow."""
    index = statement.index_at(join.end - 1) + 1
    following = statement.after(index)
    if following is None:
        return
    if following.is_symbol(",") or _starts_join(statement, index):
        right = _right_side(statement, index)
        is_lookup = any(other.index == right for other in statement.uses) and not following.is_symbol(",")
        if not is_lookup:
            raise _refused(
                statement,
                use,
                join,
                "a relation follows it that is not looked up; put lookup joins last in the FROM",
            )
    if following.is_symbol(")") and statement.select_of(use.index) < _opening(statement, index):
        raise _refused(statement, use, join, "it stands in parentheses; take them away")


def _starts_join(statement: Statement, index: int) -> bool:
    words = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI")
    piece, following = statement.pieces[index], statement.after(index + 1)
    is_lateral_join = piece.is_word("LATERAL") and not (following is not None and following.is_word("VIEW"))
    return piece.is_word(*words) or is_lateral_join


def _right_side(statement: Statement, index: int) -> int:
    """Index of the right side of the join that begins at ``index``."""
    while index < len(statement.pieces) and not statement.pieces[index].is_word("JOIN"):
        index += 1
    return index + 1


def _opening(statement: Statement, index: int) -> int:
    """Offset of the parenthesis that the piece at ``index`` closes."""
    depth = statement.depth(index)
    for earlier in range(index - 1, -1, -1):
        if statement.depth(earlier) == depth and statement.pieces[earlier].is_symbol("("):
            return statement.pieces[earlier].start
    return 0


def _check_time(statement: Statement, use: LookupUse) -> None:
    """A lookup reads the present: the time may be a column, or the present; a fixed time is refused."""
    if use.time is None:
        return
    first = statement.pieces[statement.index_at(use.time.start)]
    if _is_fixed(first):
        raise UnsupportedLookup(
            Problem(
                f"{use.alias} is asked for a fixed time, but connector {use.table.connector!r} knows only"
                " the present.",
                statement.span(use.time),
                "Use a time column of the left side, PROCTIME() or current_timestamp().",
            )
        )


def _is_fixed(first: Piece) -> bool:
    return first.kind in (Kind.STRING, Kind.NUMBER) or first.is_word("TIMESTAMP", "DATE")


def names_of(use: LookupUse, case_sensitive: bool) -> Names:
    """What the columns of a lookup table are called in its query block."""
    alias = use.node.args.get("alias")
    given = [column.name for column in alias.args.get("columns") or []] if alias is not None else []
    return Names(
        table=use.table,
        alias=use.alias,
        columns=tuple(given or use.table.schema.names),
        others=frozenset(_other_relations(use)),
        case_sensitive=case_sensitive,
    )


def _other_relations(use: LookupUse) -> set[str]:
    block = use.node.find_ancestor(exp.Select)
    if block is None:
        return set()
    relations = block.find_all(exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    return {relation.alias_or_name for relation in relations if relation is not use.node} - {"", use.alias}


def _refused(statement: Statement, use: LookupUse, at: Cut, reason: str) -> UnsupportedLookup:
    message = f"The lookup join with {use.alias} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at)))
