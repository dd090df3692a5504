"""One lookup join as Spark SQL: the call of its function, the rows it gives, the view that joins them.

The call stands inside a generator: there Spark evaluates it once per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lookup_hints.nearest import DISTANCE
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.key_conditions import over_variable
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import alias_text
from lookup_hints.sql.lexer import quoted, text_value
from lookup_hints.sql.text_edits import Fragment

PRIVATE_PREFIX = "__lookup_using_"
HIDDEN_PREFIX = "__lookup_hidden_"
ROW = "`__lookup_row`"
ROWS = "`__lookup_rows`"
Text = tuple[Fragment, ...]


# The call stands inside a generator: as a column or predicate Spark would copy it and ask twice.
# (docs/decisions/0011)
def lateral_view(statement: Statement, join: LookupJoin, number: int) -> Text:
    """The ``LATERAL VIEW`` of a join; that of a semi join has no columns, and ``number`` makes it unique."""
    if join.is_semi:
        return ("LATERAL VIEW inline(", *_kept_or_not(join, "struct()"), f") `__lookup_semi_{number}`")
    names = _given_names(join)
    renamed = f" AS {names}" if names else ""
    outer = "OUTER " if join.kind == "LEFT" and not _drops_rows(join) else ""
    return (
        f"LATERAL VIEW {outer}inline(",
        *_rows_of_join(join),
        ") ",
        _alias_of_join(statement, join),
        renamed,
    )


def source_query(statement: Statement, join: LookupJoin, keys: Text = ()) -> Text:
    """The rows of a key that comes from outside, or from the FROM ``keys``, as a relation."""
    columns = ", ".join(visible_name(join, column) for column in join.columns)
    names = f"({columns})" if join.is_renamed else ""
    return (
        "(SELECT inline(",
        *_matching_rows(join),
        ")",
        *keys,
        ") AS ",
        _alias_of_join(statement, join),
        names,
    )


def semi_condition(statement: Statement, join: LookupJoin) -> Text:
    """The condition on left rows of a SEMI or ANTI join whose own condition holds a query."""
    conditions = [("(", each.at, ")") for each in join.conditions.queries]
    where = (" WHERE ", *joined(conditions, " AND ")) if conditions else ()
    found: Text = ("EXISTS (SELECT 1 FROM ", *source_query(statement, join), *where, ")")
    every = tuple(joined([*(("(", each.at, ")") for each in join.conditions.after), found], " AND "))
    return every if join.kind == "LEFT SEMI" else ("NOT coalesce(", *every, ", false)")


def pipe_operators(statement: Statement, join: LookupJoin, number: int, *, private: bool = False) -> Text:
    """The pipe operators that join (or keep) the rows: a generator in EXTEND, and its column taken apart.

    With ``private`` the table's columns of USING come out, too, under names of their own.
    """
    column = f"`__lookup_{number}`"
    shared = join.conditions.shared_keys
    names = list(joined([(key.left,) for key in shared], ", "))
    first: Text = (" SELECT ", *names, ", * EXCEPT (", *names, "), ") if shared else (" EXTEND ",)
    if join.is_semi:
        return (*first, "explode(", *_kept_or_not(join, "true"), f") AS {column} |> DROP {column}")
    hidden = [key.column for key in shared if key.column in join.columns]
    fields = f"{column}.* EXCEPT ({', '.join(map(quoted, hidden))})" if hidden else f"{column}.*"
    aliases = [visible_name(join, name) for name in join.columns if name not in hidden]
    if private:
        own = [visible_name(join, name) for name in hidden]
        renamed = (f"{column}.{quoted(name)} AS {given}" for name, given in zip(hidden, own, strict=True))
        fields = ", ".join((*renamed, fields))
        aliases = [*own, *aliases]
    rows = _padded_rows(join) if join.kind == "LEFT" else _rows_of_join(join)
    return (
        *first,
        "explode(",
        *rows,
        f") AS {column} |> JOIN LATERAL (SELECT {fields}) AS ",
        _alias_of_join(statement, join),
        f"({', '.join(aliases)})" if join.use.column_aliases and aliases else "",
        f" |> DROP {column}",
    )


def private_name(column: str) -> str:
    """The private name of a column of USING, which must not be found without its qualifier."""
    return quoted(f"{PRIVATE_PREFIX}{column}")


def visible_name(join: LookupJoin, column: str) -> str:
    """The output name of a lookup table's column: the query's name, but private for columns of USING."""
    called = join.use.names.columns[join.use.table.schema.names.index(column)]
    is_shared = any(key.shared and key.column == column for key in join.conditions.keys)
    return private_name(called) if is_shared else quoted(called)


def joined(parts: Iterable[Sequence[Fragment]], separator: str) -> Iterator[Fragment]:
    for number, part in enumerate(parts):
        if number:
            yield separator
        yield from part


def _alias_of_join(statement: Statement, join: LookupJoin) -> str:
    relation = join.use.relation
    if relation.alias_at is not None:
        return statement.pieces[relation.alias_at].text
    return (
        quoted(join.use.alias) if statement.alias_index(relation) is None else alias_text(statement, relation)
    )


def _given_names(join: LookupJoin) -> str:
    """The query's names of the returned columns; empty if they are the table's own."""
    is_shared = any(key.shared and key.column in join.columns for key in join.conditions.keys)
    if not (join.is_renamed or is_shared):
        return ""
    return ", ".join(visible_name(join, column) for column in join.columns)


def _drops_rows(join: LookupJoin) -> bool:
    return join.chosen.settings.on_error == "skip"


def _kept_or_not(join: LookupJoin, element: str) -> Text:
    """An array of one ``element`` for a left row that stays, of none for others."""
    sign = "> 0" if join.kind == "LEFT SEMI" else "= 0"
    return (f"slice(array({element}), 1, int(size(", *_matching_rows(join), f") {sign}))")


def _rows_of_join(join: LookupJoin) -> Text:
    return _padded_rows(join) if join.kind == "LEFT" and _drops_rows(join) else _matching_rows(join)


def _matching_rows(join: LookupJoin) -> Text:
    call, residual = _found_rows(join), _residual_condition(join)
    return _nearest_rows(join, ("filter(", *call, f", {ROW} -> ", *residual, ")") if residual else call)


# Sources compute distances in another order of additions, or with other digits. So what the user sees, and
# which rows are the nearest, is Spark's own arithmetic. (docs/decisions/0300)
def _nearest_rows(join: LookupJoin, rows: Text) -> Text:
    """Those of ``rows`` that are nearest to the left row, in their order; all where it is no NEAREST BY.

    Rows at no distance are left out. Of equally near rows those with the smaller primary key stay.
    """
    ranking = join.ranking
    if ranking is None:
        return rows
    distance = over_variable(ranking.by, join.use.names, ROW, join.field)
    key = [f"{text_value(name)}, {ROW}.{quoted(join.field(name))}" for name in join.use.table.primary_key]
    ties = f", 'key', named_struct({', '.join(key)})" if key else ""
    nearer, farther = (-1, 1) if ranking.direction == DISTANCE else (1, -1)
    steps = [("at", nearer, farther), *([("key", -1, 1)] if key else [])]
    order = "".join(
        f"WHEN a.{name} < b.{name} THEN {less} WHEN a.{name} > b.{name} THEN {more} "
        for name, less, more in steps
    )
    return (
        *("transform(slice(array_sort(filter(transform(", *rows, f", {ROW} -> named_struct('at', "),
        *(*distance, f"{ties}, 'row', {ROW})), near -> near.at IS NOT NULL), "),
        f"(a, b) -> CASE {order}ELSE 0 END), 1, {ranking.most}), near -> near.row)",
    )


# OUTER puts a row of NULLs only where there is no row at all, not where the residual condition drops all.
# (docs/decisions/0011)
def _padded_rows(join: LookupJoin) -> Text:
    """The rows of a LEFT join with a NULL instead of none.

    NULL instead of an array says: drop the row, on which OUTER would put a NULL as well.
    """
    residual = _residual_condition(join)
    kept = _nearest_rows(join, (f"filter({ROWS}, {ROW} -> ", *residual, ")") if residual else (ROWS,))
    return (
        "transform(array(",
        *_found_rows(join),
        f"), {ROWS} -> CASE WHEN {ROWS} IS NULL THEN array() WHEN size(",
        *kept,
        ") = 0 THEN array(NULL) ELSE ",
        *kept,
        " END)[0]",
    )


def _residual_condition(join: LookupJoin) -> Text:
    """The residual condition over a row, and the equalities of keys that were cast."""
    parts: list[Text] = [
        over_variable(each, join.use.names, ROW, join.field) for each in join.conditions.residual
    ]
    parts += [
        ("((", key.left, f") {key.sign} {ROW}.{quoted(join.field(key.column))})")
        for key, cast in zip(join.conditions.keys, join.casts, strict=True)
        if cast.recheck and not key.kept
    ]
    return tuple(joined(parts, " AND "))


def _found_rows(join: LookupJoin) -> Text:
    """The rows that the function gives, as the query sees them through which the table is named.

    Its own conditions come first, so that expressions see the rows alone that meet them.
    """
    through, rows = join.use.through, _function_call(join)
    if through is None:
        return rows
    if through.where:
        conditions = " AND ".join(f"({each.over(ROW)})" for each in through.where)
        rows = ("filter(", *rows, f", {ROW} -> {conditions})")
    if join.is_computed:
        fields = (f"{text_value(name)}, {through.expression(name).over(ROW)}" for name in join.columns)
        rows = ("transform(", *rows, f", {ROW} -> named_struct({', '.join(fields)}))")
    return rows


def key_arguments(join: LookupJoin) -> list[Text]:
    """The keys of the lookup, and the values that it compares by order, if any.

    A condition on the left alone goes into the key, as a NULL key is never looked up. (Around the call it
    would save nothing: Spark evaluates Python functions before any CASE or IF around them.)
    """
    arguments: list[Text] = []
    written = [key.left for key in join.conditions.keys]
    written += () if join.order is None else join.order.values
    for value, cast in zip(written, (*join.casts, *join.order_casts), strict=True):
        before, after = cast.prefix_and_suffix()
        arguments.append((before, value, after))
    if join.conditions.left_only:
        conditions = tuple(joined([("(", each.at, ")") for each in join.conditions.left_only], " AND "))
        # Around each of them: a key that fails is not to be computed either.
        arguments = [("if(", *conditions, ", ", *argument, ", NULL)") for argument in arguments]
    return arguments


def _function_call(join: LookupJoin) -> Text:
    """The call of the lookup function."""
    arguments = key_arguments(join)
    if join.function.packed:
        names = join.function.argument_schema.names
        named = [(f"{text_value(name)}, ", *each) for name, each in zip(names, arguments, strict=True)]
        arguments = [("named_struct(", *joined(named, ", "), ")")]
    return (f"{join.function.name.function}(", *joined(arguments, ", "), ")")
