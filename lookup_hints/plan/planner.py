"""The planner: a statement with lookup tables -> Spark SQL with lookup functions, rule by rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from lookup_hints.errors import InternalError, OptionError, Problem, UnsupportedLookup
from lookup_hints.hints.parse import LookupHint
from lookup_hints.plan.analysis import Analysis, KeyTypeError
from lookup_hints.plan.ask_or_read import BetterRead, choose_access, read_as_decided
from lookup_hints.plan.budgets import gives_limits
from lookup_hints.plan.choose import Choice, choose, session_option
from lookup_hints.plan.conditions import KeyEquality
from lookup_hints.plan.ctes import must_run_once, notes_of_ctes
from lookup_hints.plan.draft import Context, Draft, LookupJoin, LookupPlan
from lookup_hints.plan.forms.find import find_lookups
from lookup_hints.plan.guards import guard_reads
from lookup_hints.plan.hinted import is_named, match_hints
from lookup_hints.plan.keys import ANSI, KeyCast, key_cast
from lookup_hints.plan.look_through import ViewResolver, names_view
from lookup_hints.plan.order import cast_order, choose_who_orders, order_rows
from lookup_hints.plan.processing_time import check_times
from lookup_hints.plan.read.kinds import (
    describes,
    gives_rows,
    is_one_query,
    makes_function,
    names_a_relation,
    query_parts,
    script_variables,
)
from lookup_hints.plan.read.statement import FindTable, LookupUse, Statement, UnreadableStatement
from lookup_hints.plan.reading import read_all, read_instead
from lookup_hints.plan.refusal import CannotBeAsked, NotReadEither
from lookup_hints.plan.repeated import notes_of_inserts, notes_of_ranges, notes_of_subqueries
from lookup_hints.plan.stopping import stopped_early
from lookup_hints.plan.write.columns import residual_columns, used_columns
from lookup_hints.plan.write.edits import edits_of
from lookup_hints.plan.write.sorting import rebalanced
from lookup_hints.spec import LookupName, LookupSettings, LookupSpec, Switch
from lookup_hints.spi import Connector
from lookup_hints.spi.types import type_name, written_type
from lookup_hints.sql.lexer import Kind, code, pieces
from lookup_hints.sql.splice import Cut, spliced

Rule = Callable[[Draft], Draft]


def mentions_lookup(text: str, is_lookup: Callable[[str], object]) -> bool:
    """Whether ``text`` has the name of a lookup table anywhere; if not, it is Spark's business alone.

    Strings count: `IDENTIFIER('customers')` is a name too.
    """
    names = {
        piece.name if piece.is_name else piece.value
        for piece in code(pieces(text))
        if piece.is_name or piece.kind is Kind.STRING
    }
    return any(is_lookup(name) not in (None, False) for name in names)


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
    statement = Statement(text, context.find_table, context.is_lookup_view)
    try:
        statement.queries = query_parts(statement)
        statement.has_parameters = makes_function(statement)
        draft = Draft(
            statement,
            context,
            Analysis(statement, context.analyse, script_variables(statement.tokens)),
            hints,
        )
        if describes(statement):
            return LookupPlan(text, draft.analysis.over_stubs(), (), (), None, None, ())
        draft = reduce(_after, ABOUT_THE_STATEMENT, draft)
        draft = _decided(read_all(draft) if context.read_because else draft)
    except RecursionError:
        raise _nested_too_deeply(statement) from None
    except (LookupError, AttributeError, StopIteration, AssertionError) as error:
        raise InternalError(
            f"the planner failed ({type(error).__name__}: {error}); please report this with the statement"
        ) from error
    return LookupPlan(
        text=text,
        sql=spliced(text, draft.edits),
        joins=draft.joins,
        scans=draft.scans,
        output=draft.output,
        query=_written_query(draft),
        notes=draft.notes,
        warnings=draft.warnings,
    )


def _decided(draft: Draft) -> Draft:
    """``draft`` with each of its lookup tables asked, or read where it cannot be."""
    while True:
        try:
            return reduce(_after, RULES, draft)
        except NotReadEither:
            raise
        except CannotBeAsked as error:
            if error.use.through is not None:
                return _without_look_through(draft, UnsupportedLookup(error.problems), {error.use})
            if error.use in draft.read:  # it was to be asked for a list of constants then
                draft = draft.with_(unlisted=draft.unlisted | {error.use})
            else:
                draft = read_instead(draft, error)
        except BetterRead as better:
            draft = read_as_decided(draft, better.decisions)
            draft = draft.with_(
                looked_through=tuple(use for use in draft.looked_through if use not in better.decisions),
                unlisted=draft.unlisted | better.decisions.keys(),
            )
        except UnsupportedLookup as error:
            return _without_look_through(draft, error, set(draft.looked_through))


def _without_look_through(draft: Draft, error: UnsupportedLookup, dropped: set[LookupUse]) -> Draft:
    """``draft`` where the ``dropped`` are ordinary relations; the tables inside them are asked or read.

    Raises:
        UnsupportedLookup: ``error``, where that does not help, or a hint wants one of them to be asked.
    """
    if not dropped or any(is_named(draft, use) for use in dropped):
        raise error from None
    try:
        return _decided(
            draft.with_(looked_through=tuple(use for use in draft.looked_through if use not in dropped))
        )
    except UnsupportedLookup:
        raise error from None


def _after(draft: Draft, rule: Rule) -> Draft:
    return rule(draft)


def _nested_too_deeply(statement: Statement) -> UnreadableStatement:
    tokens = statement.tokens
    deepest = max(range(len(tokens.pieces)), key=tokens.depth)
    return UnreadableStatement(
        Problem(
            f"This statement, which uses a lookup table, is nested too deeply: {tokens.depth(deepest)}"
            " parentheses are open here.",
            statement.span(tokens.cut(deepest, deepest)),
            "Write parts of it as temporary views.",
        )
    )


def _written_query(draft: Draft) -> str | None:
    """The one query, as Spark gets it, of a statement that writes what the query gives."""
    statement = draft.statement
    if gives_rows(statement) or not is_one_query(statement):
        return None
    return spliced(statement.text, draft.edits, statement.queries[0])


def analyse_as_plain_join(draft: Draft) -> Draft:
    """Spark analyses the statement over stubs: its errors come first, and it says what must come out."""
    statement = draft.statement
    if not is_one_query(statement) or not (statement.uses or names_view(statement, draft.context.find_view)):
        return draft
    return draft.with_(output=draft.analysis.output())


def look_through(draft: Draft) -> Draft:
    """Derived tables, CTEs and views that are one lookup table, and nothing more, are uses of that table."""
    statement, context = draft.statement, draft.context
    resolver = ViewResolver(statement, context.find_view, context.case_sensitive)
    is_view = statement.tokens.is_word(0, "CREATE") and any(
        statement.tokens.is_word(at, "VIEW") for at in range(2, 6)
    )
    makes_view = is_view and resolver.of_query(statement.structure.queries[0]) is not None
    return draft.with_(looked_through=resolver.uses(), makes_view=makes_view)


def account_for_names(draft: Draft) -> Draft:
    """A lookup table's name that stands where a relation does must have been read as one."""
    statement = draft.statement
    read = {relation.name_at for block in statement.structure.blocks for relation in block.everything}
    read |= {use.index for use in statement.uses}
    for index, piece in enumerate(statement.pieces):
        is_use = piece.is_name and statement.is_lookup_table(piece.name)
        if is_use and index not in read and statement.tokens.is_word(index - 1, "FROM", "JOIN"):
            raise UnreadableStatement(
                Problem(
                    f"How the lookup table {piece.name} is used here cannot be read.",
                    statement.span(Cut(piece.start, piece.end)),
                )
            )
    return draft


def find_joins(draft: Draft) -> Draft:
    """Every use of a lookup table is a lookup join, or reads the whole table."""
    found = find_lookups(draft)
    return draft.with_(joins=found.joins, scans=found.scans, bypassed=found.bypassed)


def choose_settings(draft: Draft) -> Draft:
    """Each join gets its runner and its options."""
    context, others = draft.context, _that_may_share_budgets(draft)

    def with_choice(join: LookupJoin) -> LookupJoin:
        choice = choose(
            join.hint, join.connector, context.conf, context.predicates, context.unwritable, others
        )
        return join.with_(choice=_with_switch(choice, join), notes=(*join.notes, *choice.notes))

    return draft.each_join(with_choice)


def _with_switch(choice: Choice, join: LookupJoin) -> Choice:
    """``choice``; the table may be read while the statement runs, where nothing that was said is against it.

    A retry that waits for late rows, or looks at rows, wants the source's answer. So does who wants no cache.
    """
    settings, keys = choice.settings, None if join.access is None else join.access.reads_after
    retry = settings.retry
    wants_source = "cache" in choice.sources or retry.on_miss or retry.on_rows is not None
    if keys is None or wants_source:
        return choice
    return replace(choice, settings=replace(settings, switch=Switch(keys)))


def _that_may_share_budgets(draft: Draft) -> list[Connector]:
    """The connectors of the statement's lookups and of the session's tables, as far as they give limits."""
    found = [join.connector for join in draft.joins]
    known = {id(connector.table) for connector in found}
    for table in draft.context.tables() if found else ():
        if gives_limits(table) and id(table) not in known:
            with suppress(OptionError):  # which is told where that table is used
                found.append(draft.context.connector(table))
    return found


def expect_early_stops(draft: Draft) -> Draft:
    """A join whose rows go to a LIMIT asks for no more than it must until Spark has seen its first rows."""
    stopped = draft.joins and stopped_early(draft)

    def with_patience(join: LookupJoin) -> LookupJoin:
        if join.use.index not in stopped:
            return join
        settings = replace(join.chosen.settings, stops_early=True)
        return join.with_(choice=replace(join.chosen, settings=settings))

    return draft.each_join(with_patience)


def type_keys(draft: Draft) -> Draft:
    """Each key is cast to its column's type, where one value can stand for it."""
    if not draft.analysis.knows or not draft.joins:
        return draft.each_join(lambda join: join.with_(casts=tuple(KeyCast() for _ in join.conditions.keys)))
    questions = [join.question(draft.statement) for join in draft.joins]
    try:
        answers = draft.analysis.key_types(questions)
    except KeyTypeError as error:
        join = next(join for join in draft.joins if join.use is error.question.use)
        raise _not_alone(draft, join, error) from error
    types = dict(zip((join.use for join in draft.joins), answers, strict=True))

    def with_casts(join: LookupJoin) -> LookupJoin:
        kinds = types[join.use]
        return join.with_(casts=_casts(draft, join, kinds), order=cast_order(draft, join, kinds[-1]))

    return draft.each_join(with_casts)


def _not_alone(draft: Draft, join: LookupJoin, error: KeyTypeError) -> UnsupportedLookup:
    """The whole statement was analysed before: what fails now does so for standing alone."""
    at = error.part if isinstance(error.part, Cut) else join.at
    written = error.part if isinstance(error.part, str) else " ".join(at.of(draft.statement.text).split())
    is_key = error.part is not error.question.value
    what = "key" if is_key else "time" if join.order is None or not join.order.is_asof else "value"
    reason = f"its {what} {written} cannot be computed before the lookup"
    problem = Problem(
        f"The lookup join with {join.use.shown} cannot run: {reason}. Spark says: {error}",
        draft.statement.span(at),
        f"Write a subquery on the left that gives {written} as a column, and join by that.",
    )
    if what == "time":
        return NotReadEither(problem)
    return CannotBeAsked(problem, join.use, reason)


def _casts(draft: Draft, join: LookupJoin, types: list[str]) -> tuple[KeyCast, ...]:
    keys = join.conditions.keys
    return tuple(_cast(draft, join, key, kind) for key, kind in zip(keys, types, strict=False))


def _cast(draft: Draft, join: LookupJoin, key: KeyEquality, left: str) -> KeyCast:
    kind = join.use.table.schema.field(key.column).type
    column = type_name(kind)
    ansi = (draft.context.conf(ANSI) or "true").lower() == "true"
    zone = draft.context.conf("spark.sql.session.timeZone") or ""
    cast = key_cast(left, column, ansi=ansi, zone=zone)
    if cast is not None and cast.recheck and not key.kept and _has_query(draft.statement, join):
        cast = None  # the row that is found is checked in a lambda, where Spark takes no query
    is_mixed = (left == "string") != (column == "string")
    if join.compares_as_in and key.shared and not ansi and is_mixed:
        cast = None  # without ANSI, IN compares them as texts, which = does not
    if cast is None:
        written = key.left if isinstance(key.left, str) else key.left.of(draft.statement.text)
        reason = (
            f"{written} is {left.upper()} and {join.use.alias}.{key.column} is {column.upper()}, so one key"
            " may equal several values of the column"
        )
        problem = Problem(
            f"The lookup join with {join.use.shown} cannot run: {reason}.",
            draft.statement.span(key.whole),
            f"Write CAST({written} AS {written_type(column)}).",
        )
        raise CannotBeAsked(problem, join.use, reason)
    return replace(cast, wrapping=draft.context.wrapping(kind))


def _has_query(statement: Statement, join: LookupJoin) -> bool:
    """Whether a key of the join is given by a query."""
    return any(_has_subquery(statement, key) for key in join.conditions.keys)


def _has_subquery(statement: Statement, key: KeyEquality) -> bool:
    """Whether the key holds a query."""
    tree = statement.expression(key.left) if isinstance(key.left, Cut) else None
    return tree is not None and tree.find(exp.Query) is not None


def choose_columns(draft: Draft) -> Draft:
    """Only the columns that the query block names are asked for."""

    def with_columns(join: LookupJoin) -> LookupJoin:
        keys = join.conditions.keys
        used = set(
            residual_columns(join.use, join.names, join.checked, keys)
            if join.is_semi
            else used_columns(draft.statement, join.use, join.names, keys)
        )
        rechecked = {key.column for key, cast in zip(keys, join.casts, strict=True) if cast.recheck}
        in_order = (name for name in join.use.table.schema.names if name in used | rechecked)
        return join.with_(columns=tuple(in_order))

    return draft.each_join(with_columns)


def find_repeated(draft: Draft) -> Draft:
    """A lookup inside a CTE that is read more than once must not be inlined: its function says so."""
    return draft.each_join(lambda join: join.with_(repeated=must_run_once(draft.statement, join)))


def shuffle_left_rows(draft: Draft) -> Draft:
    """`shuffle` partitions the left table by key, where the left is one table; else says that it cannot."""

    def with_shuffle(join: LookupJoin) -> LookupJoin:
        if not join.chosen.shuffle:
            return join
        if join.left_table is not None:
            return join.with_(shuffled=True)
        note = "'shuffle'='true' has no effect: the left side of this join is not one table"
        return join.with_(notes=(*join.notes, note))

    return draft.each_join(with_shuffle)


def name_functions(draft: Draft) -> Draft:
    """Each join gets its function, named by all that decides what it does."""

    def with_spec(join: LookupJoin) -> LookupJoin:
        table = join.use.table
        name = LookupName(table.name, join.use.shown, table.connector, draft.context.line)
        unnamed = LookupSpec(
            connector=join.connector,
            key_columns=tuple(join.use.base_column(key.column) for key in join.conditions.keys),
            columns=join.asked_columns,
            settings=_without_invalidated(join, draft.context),
            name=name,
            kind=join.kind,
            packed=_is_packed(draft.statement, join),
            order=None if join.order is None else join.order.condition,
            order_asked=join.order is not None and join.order.is_asked,
        )
        function = draft.context.name_function(unnamed, join.repeated)
        named = replace(unnamed, name=replace(name, function=function))
        return join.with_(spec=named, notes=(*join.notes, *_notes_of_changes(named)))

    return draft.each_join(with_spec)


def _notes_of_changes(spec: LookupSpec) -> Iterator[str]:
    """What a change drops where a row may lose its key: an answer to the old key would keep it."""
    changed = spec.settings.changed
    if changed is not None and not spec.keys_are_immutable:
        columns = ", ".join(spec.key_columns)
        yield (
            f"each change that {changed.column.name} tells drops all that is remembered of this lookup, as"
            f" ({columns}) is not a part of a PRIMARY KEY of {spec.table.name}"
        )


def _without_invalidated(join: LookupJoin, context: Context) -> LookupSettings:
    """What was invalidated of the table longer ago than a row may be old is gone anyway."""
    settings = join.chosen.settings
    if settings.cache is None and settings.whole is None:
        return settings
    longest = math.inf if settings.cache is None else settings.cache.longest
    return replace(settings, invalidations=context.invalidations(join.connector.table, longest))


def _is_packed(statement: Statement, join: LookupJoin) -> bool:
    """Whether its keys travel as one argument: several that hold a query make Spark fail."""
    keys, conditions = join.conditions.keys, join.conditions.left_only
    return len(keys) + (join.order is not None) > 1 and (
        any(_has_subquery(statement, key) for key in keys)
        or any(each.tree.find(exp.Query) for each in conditions)
    )


def note_repeated_work(draft: Draft) -> Draft:
    """What makes Spark ask again, and cannot be cured, is said."""
    notes = [
        *notes_of_ranges(draft),
        *notes_of_inserts(draft),
        *notes_of_subqueries(draft),
        *notes_of_ctes(draft),
    ]
    return draft.with_(notes=(*draft.notes, *notes))


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


ABOUT_THE_STATEMENT: tuple[Rule, ...] = (
    analyse_as_plain_join,
    account_for_names,
    check_times,
    look_through,
)

RULES: tuple[Rule, ...] = (
    find_joins,
    order_rows,
    match_hints,
    choose_access,
    choose_settings,
    expect_early_stops,
    type_keys,
    choose_who_orders,
    choose_columns,
    find_repeated,
    shuffle_left_rows,
    name_functions,
    rewrite_joins,
    guard_global_sort,
    guard_reads,
    note_repeated_work,
)
