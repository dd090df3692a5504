"""The planner: a statement and the lookup tables it names -> a plan, as a list of rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlglot import exp

from lookup_hints.errors import HintError, InternalError, Problem, UnsupportedLookup, nearest
from lookup_hints.hints.validate import LookupHint, merged
from lookup_hints.plan.analysis import key_types_sql, plain_sql
from lookup_hints.plan.choose import choose, session_option
from lookup_hints.plan.columns import used_columns
from lookup_hints.plan.conditions import Conjunct, KeyEquality, sorted_conditions
from lookup_hints.plan.draft import Context, Draft, LookupJoin, LookupPlan, TableScan
from lookup_hints.plan.keys import KeyCast, is_key_type, key_cast
from lookup_hints.plan.kinds import names_a_relation, query_part
from lookup_hints.plan.reading import FindTable, LookupUse, Statement, cte_named_by
from lookup_hints.plan.rewrite import edits_of, rebalanced, single_relation
from lookup_hints.plan.shapes import check_time, is_scan, lookup_join, names_of
from lookup_hints.plan.splice import Cut, spliced
from lookup_hints.spec import LookupSpec
from lookup_hints.spi import Connector, Scan
from lookup_hints.sqltext import code, pieces
from lookup_hints.types import sql_type


def mentions_lookup(text: str, find_table: FindTable) -> bool:
    """Whether ``text`` has the name of a lookup table anywhere; if not, it is Spark's business alone."""
    return any(piece.is_name and find_table(piece.name) is not None for piece in code(pieces(text)))


def surely_uses_lookup(text: str, find_table: FindTable) -> bool:
    """Whether a lookup table's name stands where only a relation can: not a column or schema of its name."""
    statement = Statement(text, find_table)
    return any(
        piece.is_name and find_table(piece.name) is not None and names_a_relation(statement, index)
        for index, piece in enumerate(statement.pieces)
    )


def plan(text: str, hints: tuple[LookupHint, ...], context: Context) -> LookupPlan:
    """The plan of a statement that mentions a lookup table or has a LOOKUP hint.

    Raises:
        HintError: a hint names no lookup join of its query block.
        UnsupportedLookup: a lookup table stands where it cannot; names the join and the reason.
        OptionError: a bad value in a table's or the session's lookup options.
        Exception: what Spark's analysis says about the user's statement.
    """
    statement = Statement(text, context.find_table)
    try:
        statement.query = query_part(statement)
        draft = Draft(statement, context, hints)
        for rule in RULES:
            draft = rule(draft)
    except (LookupError, AttributeError, RecursionError) as error:
        raise InternalError(
            f"the planner failed ({type(error).__name__}: {error}); please report this with the statement"
        ) from error
    return LookupPlan(
        text=text,
        sql=spliced(text, draft.edits),
        joins=draft.joins,
        scans=draft.scans,
        output=draft.output if _is_query(statement) else None,
        notes=draft.notes,
    )


def _is_query(statement: Statement) -> bool:
    """Whether the statement gives rows, rather than writing them somewhere."""
    return statement.query.start == statement.pieces[0].start


def find_joins(draft: Draft) -> Draft:
    """Every lookup table that is the right side of a join becomes a lookup join."""
    statement = draft.statement
    asked = [use for use in statement.uses if not is_scan(statement, use)]
    return draft.with_(joins=tuple(lookup_join(statement, use, draft.context) for use in asked))


def match_hints(draft: Draft) -> Draft:
    """Each hint goes to the lookup join of its query block that it names; one that names none is an error."""
    by_block: dict[int, list[LookupHint]] = defaultdict(list)
    for hint in draft.hints:
        by_block[hint.select].append(hint)
    problems = [
        _unmatched(hint, draft) for hint in draft.hints if not any(_names(hint, join) for join in draft.joins)
    ]
    if problems:
        raise HintError(problems)

    def with_hint(join: LookupJoin) -> LookupJoin:
        own = [hint for hint in merged(tuple(by_block[join.select])) if _names(hint, join)]
        return join.with_(hint=own[0] if own else None)

    return draft.each_join(with_hint)


def _names(hint: LookupHint, join: LookupJoin) -> bool:
    return hint.select == join.select and hint.table.lower() == join.use.alias.lower()


def _unmatched(hint: LookupHint, draft: Draft) -> Problem:
    here = [join.use.alias for join in draft.joins if join.select == hint.select]
    message = f"LOOKUP names {hint.table!r}, but no lookup join of this query block is called so."
    by_name = [
        join.use.alias
        for join in draft.joins
        if join.select == hint.select and join.use.table.name.lower() == hint.table.lower()
    ]
    if by_name:
        tip = f"Where a table has an alias, the hint uses it: {by_name[0]!r}."
    elif here:
        tip = nearest(hint.table, here)
    else:
        tip = (
            "The block has no lookup join: a lookup table is the right side of a JOIN, created WITH"
            " ('connector' = ...)."
        )
    return Problem(message, hint.places.get("table", hint.at), tip)


def find_scans(draft: Draft) -> Draft:
    """Every lookup table that is the first relation of a FROM is read whole, where its connector can."""
    statement = draft.statement
    scanned = [use for use in statement.uses if is_scan(statement, use)]
    return draft.with_(scans=tuple(_scan(draft, use) for use in scanned))


def _scan(draft: Draft, use: LookupUse) -> TableScan:
    connector = draft.context.connector(use.table)
    name = draft.statement.pieces[use.index]
    if not isinstance(connector, Scan):
        raise UnsupportedLookup(
            Problem(
                f"{use.table.name} cannot be read whole: connector"
                f" {use.table.connector!r} answers keys only.",
                draft.statement.span(Cut(name.start, name.end)),
                "Put it on the right side of a JOIN with an equality.",
            )
        )
    check_time(draft.statement, use)
    columns = used_columns(use, names_of(draft.statement, use, draft.context.case_sensitive))
    if use.column_aliases:
        columns = tuple(use.table.schema.names)
    return TableScan(use, connector, columns, draft.context.name_scan(use.table, columns))


def analyse_as_plain_join(draft: Draft) -> Draft:
    """Spark analyses the statement over stubs: its errors come first, and it says what must come out."""
    if draft.context.analyse is None:
        return draft
    return draft.with_(output=draft.context.analyse(plain_sql(draft)))


def sort_conditions(draft: Draft) -> Draft:
    """ON falls into keys, residual conditions and conditions on the left alone."""

    def with_conditions(join: LookupJoin) -> LookupJoin:
        askable = join.connector.key_columns() & _key_typed(join.connector)
        conditions = sorted_conditions(draft.statement, join.on, join.names, askable)
        if not conditions.keys:
            raise _no_key(draft.statement, join, askable)
        for conjunct in conditions.residual:
            _refuse_subquery(draft.statement, join, conjunct, (exp.Query,))
        for conjunct in conditions.left_only:
            # An uncorrelated scalar subquery can stand in the key; IN and EXISTS cannot.
            _refuse_subquery(draft.statement, join, conjunct, (exp.Exists, exp.In))
        return join.with_(conditions=conditions)

    return draft.each_join(with_conditions)


def _key_typed(connector: Connector) -> frozenset[str]:
    schema = connector.table.schema
    return frozenset(column.name for column in schema if is_key_type(sql_type(column.type).lower()))


def _no_key(statement: Statement, join: LookupJoin, askable: frozenset[str]) -> UnsupportedLookup:
    can = ", ".join(name for name in join.use.table.schema.names if name in askable)
    return UnsupportedLookup(
        Problem(
            f"The lookup join with {join.use.alias} has no key: no equality between an expression of the left"
            " side and a column that can be asked by.",
            statement.span(join.on),
            f"Columns that can be asked by: {can}.",
        )
    )


def _refuse_subquery(
    statement: Statement, join: LookupJoin, conjunct: Conjunct, kinds: tuple[type[exp.Expr], ...]
) -> None:
    if not any(found.find(exp.Query) for found in conjunct.tree.find_all(*kinds)):
        return
    tip = "Move it to WHERE." if join.kind == "INNER" else "Compute it in a subquery on the left first."
    raise UnsupportedLookup(
        Problem(
            f"The lookup join with {join.use.alias} cannot run: a subquery stands in its ON condition.",
            statement.span(conjunct.at),
            tip,
        )
    )


def choose_settings(draft: Draft) -> Draft:
    """Each join gets its runner and its options."""

    def with_choice(join: LookupJoin) -> LookupJoin:
        choice = choose(join.hint, join.connector, draft.context.conf, draft.context.predicates)
        return join.with_(choice=choice, notes=(*join.notes, *choice.notes))

    return draft.each_join(with_choice)


def type_keys(draft: Draft) -> Draft:
    """Each key is cast to its column's type, where one value can stand for it."""
    if draft.context.analyse is None:
        return draft.each_join(lambda join: join.with_(casts=tuple(KeyCast() for _ in join.sorted.keys)))
    return draft.each_join(lambda join: join.with_(casts=_casts(draft, join)))


def _casts(draft: Draft, join: LookupJoin) -> tuple[KeyCast, ...]:
    assert draft.context.analyse is not None
    try:
        types = draft.context.analyse(key_types_sql(draft, join))
    except Exception as error:
        # The whole statement was analysed before: what fails now does so for standing alone.
        raise UnsupportedLookup(
            Problem(
                f"The lookup join with {join.use.alias} cannot run: its key (or its time) does not stand by"
                f" itself, as when it refers to an outer query. Spark says: {_first_line(error)}",
                draft.statement.span(join.at),
            )
        ) from error
    return tuple(
        _cast(draft, join, key, kind) for key, (_, kind) in zip(join.sorted.keys, types, strict=False)
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _cast(draft: Draft, join: LookupJoin, key: KeyEquality, left: str) -> KeyCast:
    kind = join.use.table.schema.field(key.column).type
    column = sql_type(kind).lower().replace(", ", ",")
    ansi = (draft.context.conf("spark.sql.ansi.enabled") or "true").lower() == "true"
    cast = key_cast(left, column, ansi=ansi)
    if cast is not None and cast.recheck and _has_subquery(draft.statement, key):
        cast = None
    if cast is None:
        raise UnsupportedLookup(
            Problem(
                f"The lookup join with {join.use.alias} cannot run: {key.left.of(draft.statement.text)} is"
                f" {left.upper()} and {join.use.alias}.{key.column} is {column.upper()}, so one key may equal"
                " several values of the column.",
                draft.statement.span(key.whole),
                f"Write CAST({key.left.of(draft.statement.text)} AS {column.upper()}).",
            )
        )
    return replace(cast, wrapping=draft.context.wrapping(kind))


def _has_subquery(statement: Statement, key: KeyEquality) -> bool:
    """Whether the key holds a query: it could not be written again, to check the row that is found."""
    tree = statement.expression(key.left)
    return tree is not None and tree.find(exp.Query) is not None


def choose_columns(draft: Draft) -> Draft:
    """Only the columns that the query block names are asked for."""

    def with_columns(join: LookupJoin) -> LookupJoin:
        keys = join.sorted.keys
        used = set(used_columns(join.use, join.names, keys))
        rechecked = {key.column for key, cast in zip(keys, join.casts, strict=True) if cast.recheck}
        in_order = (name for name in join.use.table.schema.names if name in used | rechecked)
        return join.with_(columns=tuple(in_order))

    return draft.each_join(with_columns)


def find_repeated(draft: Draft) -> Draft:
    """A lookup inside a CTE that is read more than once must not be inlined: its function says so."""
    readers = _readers(draft.statement.tree)
    return draft.each_join(lambda join: join.with_(repeated=_is_read_twice(join.use.node, readers)))


def _readers(tree: exp.Expr) -> dict[int, list[exp.Table]]:
    readers: dict[int, list[exp.Table]] = defaultdict(list)
    for table in tree.find_all(exp.Table):
        cte = cte_named_by(table)
        if cte is not None:
            readers[id(cte)].append(table)
    return readers


def _is_read_twice(node: exp.Expr, readers: dict[int, list[exp.Table]]) -> bool:
    """Whether the rows of ``node`` are read more than once, through the CTEs around it."""
    seen: set[int] = set()
    around = node.find_ancestor(exp.CTE)
    while around is not None and id(around) not in seen:
        seen.add(id(around))
        outside = [table for table in readers[id(around)] if not _is_inside(table, around)]
        if len(outside) != 1:
            return len(outside) > 1
        around = outside[0].find_ancestor(exp.CTE)
    return False


def _is_inside(node: exp.Expr, around: exp.Expr) -> bool:
    while node.parent is not None:
        node = node.parent
        if node is around:
            return True
    return False


def shuffle_left_rows(draft: Draft) -> Draft:
    """`shuffle` partitions the left table by key, where the left is one table; else says that it cannot."""

    def with_shuffle(join: LookupJoin) -> LookupJoin:
        if not join.chosen.shuffle:
            return join
        if single_relation(draft.statement, join) is not None:
            return join.with_(shuffled=True)
        note = "'shuffle'='true' has no effect: the left side of this join is not one table"
        return join.with_(notes=(*join.notes, note))

    return draft.each_join(with_shuffle)


def name_functions(draft: Draft) -> Draft:
    """Each join gets its function, named by all that decides what it does."""

    def with_spec(join: LookupJoin) -> LookupJoin:
        unnamed = LookupSpec(
            connector=join.connector,
            key_columns=tuple(key.column for key in join.sorted.keys),
            columns=join.columns,
            settings=join.chosen.settings,
        )
        return join.with_(spec=replace(unnamed, name=draft.context.name_function(unnamed, join.repeated)))

    return draft.each_join(with_spec)


def rewrite_joins(draft: Draft) -> Draft:
    """The edits of every join and scan."""
    return draft.with_(edits=edits_of(draft))


def guard_global_sort(draft: Draft) -> Draft:
    """A shuffle goes between a lookup and a global ORDER BY, whose sampling would ask twice."""
    edits = rebalanced(draft)
    if not edits:
        return draft
    if not session_option("rebalance-order-by", draft.context.conf):
        note = "a global ORDER BY over a lookup samples its rows first: each key is asked for twice"
        return draft.with_(notes=(*draft.notes, note))
    note = "a shuffle was added below the global ORDER BY, so that its sampling does not ask again"
    return draft.with_(edits=(*draft.edits, *edits), notes=(*draft.notes, note))


RULES: Iterable[Callable[[Draft], Draft]] = (
    find_joins,
    match_hints,
    find_scans,
    analyse_as_plain_join,
    sort_conditions,
    choose_settings,
    type_keys,
    choose_columns,
    find_repeated,
    shuffle_left_rows,
    name_functions,
    rewrite_joins,
    guard_global_sort,
)
