"""Where a lookup table stands: a lookup join, a scan, or a shape that is refused by name and reason."""

from __future__ import annotations

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.conditions import Names
from lookup_hints.plan.draft import Context, LookupJoin
from lookup_hints.plan.reading import LookupUse, Statement
from lookup_hints.plan.splice import Cut

_KINDS = {
    (): "INNER",
    ("INNER",): "INNER",
    ("LEFT",): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
}
_REFUSED_KINDS = {
    "RIGHT": "a RIGHT JOIN needs every row of the lookup table; write LEFT JOIN with the sides swapped",
    "FULL": "a FULL JOIN needs every row of the lookup table; write LEFT JOIN",
    "CROSS": "a CROSS JOIN gives no key to ask for; write JOIN ... ON with an equality",
    "NATURAL": "NATURAL JOIN is not supported yet; write JOIN ... ON with the equality",
    "SEMI": "LEFT SEMI lookup joins are not supported yet; write JOIN ... ON and select the left columns",
    "ANTI": "LEFT ANTI lookup joins are not supported yet; write LEFT JOIN ... ON and WHERE ... IS NULL",
}


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
    if words not in _KINDS:
        raise _refused(statement, use, join, f"{' '.join(words)} JOIN is no kind of join")
    check_time(statement, use)
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
        names=names_of(statement, use, context.case_sensitive),
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
    if statement.after(index + 1) is None:
        raise _refused(statement, use, join, "its ON condition is missing")
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
    if following.is_word("UNPIVOT"):
        raise _refused(statement, use, join, "UNPIVOT follows it; put the join into a subquery")
    if following.is_word("PIVOT") and statement.after(index + 1) is not None:
        index = statement.closing(index + 1) + 1
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


_PRESENT = ("PROCTIME", "CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP")


def check_time(statement: Statement, use: LookupUse) -> None:
    """A lookup reads the present: its time is a column or the present; any other time is refused."""
    if use.time is None or _is_present(statement, use.time):
        return
    raise UnsupportedLookup(
        Problem(
            f"{use.alias} is asked for a time of its own, but connector {use.table.connector!r} knows only"
            " the present.",
            statement.span(use.time),
            "Use a time column of the left side, PROCTIME() or current_timestamp().",
        )
    )


def is_time_column(statement: Statement, use: LookupUse) -> bool:
    """Whether the time is a column, which Spark can find or not."""
    return use.time is not None and not _calls_the_present(statement, use.time)


def _is_present(statement: Statement, time: Cut) -> bool:
    if _calls_the_present(statement, time):
        return True
    first, last = statement.index_at(time.start), statement.index_at(time.end - 1)
    found = statement.pieces[first : last + 1]
    names, dots = found[::2], found[1::2]
    return all(piece.is_name for piece in names) and all(piece.is_symbol(".") for piece in dots)


def _calls_the_present(statement: Statement, time: Cut) -> bool:
    first, last = statement.index_at(time.start), statement.index_at(time.end - 1)
    arguments = "".join(piece.text for piece in statement.pieces[first + 1 : last + 1])
    return statement.pieces[first].is_word(*_PRESENT) and arguments in ("", "()")


def names_of(statement: Statement, use: LookupUse, case_sensitive: bool) -> Names:
    """What the columns of a lookup table are called in its query block.

    Raises:
        UnsupportedLookup: an alias list of the wrong length, or an alias that Spark would change.
    """
    here = Cut(statement.pieces[use.index].start, use.end)
    given = use.column_aliases
    if given and len(given) != len(use.table.schema.names):
        count = len(use.table.schema.names)
        raise _refused(statement, use, here, f"it gives {len(given)} names to {count} columns")
    if case_sensitive and use.alias != use.alias.lower():
        reason = "with spark.sql.caseSensitive its alias must be in lower case, as Spark makes it so"
        raise _refused(statement, use, here, reason)
    return Names(
        table=use.table,
        alias=use.alias,
        columns=given or tuple(use.table.schema.names),
        others=frozenset(_other_relations(use)),
        case_sensitive=case_sensitive,
    )


def _other_relations(use: LookupUse) -> set[str]:
    block = use.node.find_ancestor(exp.Select)
    if block is None:
        return set()
    relations = block.find_all(exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    own = (each for each in relations if each is not use.node and each.find_ancestor(exp.Select) is block)
    return {relation.alias_or_name for relation in own} - {"", use.alias}


def _refused(statement: Statement, use: LookupUse, at: Cut, reason: str) -> UnsupportedLookup:
    message = f"The lookup join with {use.alias} cannot run: {reason}."
    return UnsupportedLookup(Problem(message, statement.span(at)))
