"""The planner: a statement with lookup tables -> Spark SQL with lookup functions, forwards.

Facts are found first, each once. Of each use of a lookup table it is decided whether it asks, is read whole,
or is looked through. The text is written last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from lookup_hints.errors import HintError, InternalError, Problem, UnsupportedLookup, nearest
from lookup_hints.hints.hint_comments import LookupHint, conflict_of_hints
from lookup_hints.plan.cte_read_twice import notes_of_repeated
from lookup_hints.plan.decide.access import AccessDecision, Decisions
from lookup_hints.plan.decide.ask_or_read import access_of_all
from lookup_hints.plan.decide.complete_join import completed
from lookup_hints.plan.decide.scan_and_filters import refuse_forbidden, scan_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.plan.facts_of_lookup_tables import Facts
from lookup_hints.plan.forms.choose_form import FoundJoins, find_lookups
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.plan.lookup_get.rewrite import JoinsForCalls, joins_for_calls
from lookup_hints.plan.parse.query_parts import (
    describes,
    gives_rows,
    is_one_query,
    makes_function,
    query_parts,
    sure_uses,
)
from lookup_hints.plan.parse.statement import FindTable, Statement, UnreadableStatement
from lookup_hints.plan.session_interface import Context
from lookup_hints.plan.system_time import check_times
from lookup_hints.plan.table_use import CannotBeAsked, NotReadEither, TableUse
from lookup_hints.plan.write.spark_sql import edits_of, rebalanced
from lookup_hints.spi.lookup_options import LOOKUP
from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, spliced
from lookup_hints.sql.words import JOIN_WORDS, NEVER_ALIASES


def mentions_lookup(text: SqlText, is_lookup: Callable[[str], object]) -> bool:
    """Whether ``text`` has the name of a lookup table anywhere; if not, it is Spark's business alone.

    Strings count: `IDENTIFIER('customers')` is a name too.
    """
    names = {
        piece.name if piece.is_name else piece.value
        for piece in text.code
        if piece.is_name or piece.kind is Kind.STRING
    }
    return any(is_lookup(name) not in (None, False) for name in names)


def surely_uses_lookup(text: SqlText, find_table: FindTable) -> bool:
    """Whether a lookup table's name occurs where only a relation can be, not a column or schema."""
    return any(True for _ in sure_uses(Statement(text, find_table)))


# Facts are found once, decisions stay, and text is written last. (docs/decisions/0200)
def plan(text: SqlText, hints: tuple[LookupHint, ...], context: Context) -> LookupPlan:
    """The plan of a statement that mentions a lookup table, has a LOOKUP hint or calls ``lookup_get``.

    Raises:
        HintError: a hint names no lookup join of its query block.
        UnsupportedLookup: a lookup table is used in an unsupported way; names the join and the reason.
        OptionError: a bad value in a table's or the session's lookup options.
        Exception: the error of Spark's analysis of the user's statement.
    """
    joined: JoinsForCalls | None = None
    try:
        joined = joins_for_calls(text, hints, context)
        if joined is None:
            return _plan_text(text, hints, context)
        return replace(_plan_text(joined.text, joined.hints, context), calls=joined)
    except (LookupError, AttributeError, StopIteration, AssertionError, RuntimeError) as error:
        # A StopIteration inside a generator comes as a plain RuntimeError; those of PySpark are subclasses.
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
            raise
        raise InternalError(
            f"the planner failed ({type(error).__name__}: {error}); please report this with the statement"
        ) from error
    except Exception as error:
        if joined is not None:
            joined.put_in_place(error)
        raise


def _plan_text(text: SqlText, hints: tuple[LookupHint, ...], context: Context) -> LookupPlan:
    statement = Statement(text, context.find_table, context.is_lookup_view)
    try:
        statement.queries = query_parts(statement)
        statement.has_parameters = makes_function(statement)
        facts = Facts(statement, context, hints)
        statement.own_names_in_hints = frozenset(hint.at for hint in _own_external_hints(facts))
        if describes(statement):
            return LookupPlan(text, facts.analysis.over_stubs())
        output = facts.output  # Spark's errors come first
        _check_names_were_read(statement)
        _refuse_misspelt_joins(statement)
        notes, warnings = check_times(statement, facts.analysis, context)
        planned = _plan_in_rounds(facts, _starting_decisions(facts))
    except RecursionError:
        raise _nested_too_deeply(statement) from None
    return replace(planned, output=output, notes=(*notes, *planned.notes), warnings=tuple(warnings))


# --- decisions --------------------------------------------------------------------------------------


def _starting_decisions(facts: Facts) -> Decisions:
    """The starting decisions: look through every view, or read every table if ``read_because`` is set.

    Raises:
        UnsupportedLookup: a table's source cannot be read whole, or the user requires a lookup.
    """
    reason = facts.context.read_because
    if not reason:
        return Decisions(facts.looked_through)
    uses = facts.uses
    for use in uses:
        if not use.may_be_read:
            raise UnsupportedLookup(Problem(f"{use.alias} cannot be read: {reason}."))
    return (
        Decisions().reading(dict.fromkeys(uses, AccessDecision(reads=True, reason=reason))).without_list(uses)
    )


def _plan_in_rounds(facts: Facts, settled: Decisions) -> LookupPlan:
    """Plan in rounds: find joins, decide, write; repeat whenever a refusal settles another use.

    Three things can be settled for a use: that it is read whole, that it does not become a lookup of listed
    constants, and that it is not looked through. Each round settles at least one, so the rounds are bounded.

    Raises:
        UnsupportedLookup: a table can be neither looked up nor read; gives the first reason found.
        QueryError: invalid hints or options.
    """
    first: UnsupportedLookup | None = None
    for _ in range(1 + 3 * len((*facts.uses, *facts.looked_through))):
        found = find_lookups(facts, settled)
        refusal = found if isinstance(found, UnsupportedLookup) else None
        if isinstance(found, FoundJoins):
            settled = found.settled
            _check_hints(facts, found)
            access = access_of_all(facts, found.joins)
            better_read = {use: decision for use, decision in access.items() if decision.reads}
            if better_read:
                settled = settled.choosing(better_read)
                continue
            written = _write_plan(facts, found, access)
            if isinstance(written, LookupPlan):
                return written
            refusal = written
        assert refusal is not None, "what is not written is refused"
        more = _decisions_after_refusal(settled, refusal)
        if more is None:
            told = first or refusal
            raise told if isinstance(told, UnreadableStatement) else UnsupportedLookup(told.problems)
        if more.looked_through != settled.looked_through:
            first = first or refusal
        settled = more
    raise AssertionError("nothing more is settled, and nothing written")


def _decisions_after_refusal(settled: Decisions, refusal: UnsupportedLookup) -> Decisions | None:
    """The decisions after a refusal: read the table, or do not look through to it. None: raise it."""
    if isinstance(refusal, NotReadEither):
        return None
    dropped = set(settled.looked_through)
    if isinstance(refusal, CannotBeAsked):
        use = refusal.use
        if use.through is None and use in settled.read:  # so the refused join was a lookup of constants
            return settled.without_list({use})
        if use.through is None:
            decision = AccessDecision(reads=True, reason=refusal.reason)
            return settled.reading({use: decision}) if use.may_be_read else None
        dropped = {use}
    if not dropped or any(use.is_named for use in dropped):
        return None
    return settled.without_look_through(dropped)


def _write_plan(
    facts: Facts, found: FoundJoins, access: dict[TableUse, AccessDecision]
) -> LookupPlan | UnsupportedLookup:
    """The plan; or the refusal of a join that cannot be completed, or of a table that must not be read."""
    statement, conf, notes = facts.statement, facts.context.conf, list[str]()
    try:
        joins = completed(facts, found.joins, access)
        scans = tuple(scan_of(use, decision) for use, decision in found.scans.items())
        edits = edits_of(facts.analysis, joins, scans, found.bypassed)
        for scan in scans:
            refuse_forbidden(scan)
    except UnsupportedLookup as refusal:
        return refusal
    adaptive = (conf("spark.sql.adaptive.enabled") or "true").lower() == "true"
    shuffles = rebalanced(statement, joins, adaptive=adaptive)
    if shuffles and session_option("rebalance-order-by", conf):
        edits += shuffles
        notes.append("a shuffle was added below the global ORDER BY, so that its sampling does not ask again")
    elif shuffles:
        notes.append("a global ORDER BY over a lookup samples its rows first: each key is asked for twice")
    is_inside = not gives_rows(statement) and is_one_query(statement)
    return LookupPlan(
        text=statement.text,
        sql=spliced(statement.text, edits),
        joins=joins,
        scans=scans,
        query_at=statement.queries[0] if is_inside else None,
        notes=(*notes, *notes_of_repeated(statement, joins)),
        edits=tuple(edits),
    )


# --- checks of a statement --------------------------------------------------------------------------


def _own_external_hints(facts: Facts) -> list[LookupHint]:
    """The hints EXTERNAL_LOOKUP that name a lookup table; the others are for Spark.

    Raises:
        HintError: Spark's own hint for the same relation says how else to join it.
    """
    spark_words = [hint for hint in facts.hints if hint.may_be_others]
    uses = (*facts.uses, *facts.looked_through) if spark_words else ()
    own = [hint for hint in spark_words if any(use.is_meant_by(hint) for use in uses)]
    problems = [conflict_of_hints(hint.word, hint.beside, hint.table, hint.at) for hint in own if hint.beside]
    if problems:
        raise HintError(problems)
    return own


def _check_hints(facts: Facts, found: FoundJoins) -> None:
    """Check that each hint names a lookup join of its query block, or a table that is read on request.

    Raises:
        HintError: a hint names none.
    """
    on_request = (use for use in found.scans if use.hint and use.requested_access.value != LOOKUP)
    hintable = [*(join.use for join in found.joins), *found.settled.chosen, *on_request]
    problems = [
        _unmatched_hint(hint, found)
        for hint in facts.hints
        if not hint.may_be_others or hint.at in facts.statement.own_names_in_hints
        if not any(use.is_named_by(hint) or use.is_named_inside_by(hint) for use in hintable)
    ]
    if problems:
        raise HintError(problems)


def _unmatched_hint(hint: LookupHint, found: FoundJoins) -> Problem:
    at = hint.places.get("table", hint.at)
    for use, decision in found.scans.items():
        if use.is_named_by(hint):
            message = f"{hint.word} names {hint.table!r}, which is read whole, because {decision.reason}."
            return Problem(message, at, "Leave the hint out, or join the table by an equality of its key.")
    uses = [join.use for join in found.joins if hint.select in join.use.selects]
    message = f"{hint.word} names {hint.table!r}, but no lookup join in this query block has that alias."
    by_name = [use.alias for use in uses if use.table.name.lower() == hint.table.lower()]
    if by_name:
        tip = f"Where a table has an alias, the hint uses it: {by_name[0]!r}."
    elif uses:
        tip = nearest(hint.table, [use.shown for use in uses])
    else:
        tip = (
            "The block has no lookup join: a lookup table is the right side of a JOIN, created WITH"
            " ('connector' = ...)."
        )
    return Problem(message, at, tip)


def _check_names_were_read(statement: Statement) -> None:
    """Check that each name of a lookup table in a relation's place was read as a relation."""
    read = {relation.name_at for _, relation in statement.structure.relations}
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


_AS_CLOSE = 0.75


# Spark refuses these: no join word is an alias, and only a join or a clause follows an alias.
# (docs/decisions/0257)
def _refuse_misspelt_joins(statement: Statement) -> None:
    """Refuse ``o LEFT JOINN c`` and ``o JION c``, which the reader of FROM takes for its end."""
    tokens, structure = statement.tokens, statement.structure
    aliases = {relation.alias_at for _, relation in structure.relations}
    for block in structure.blocks:
        chains = [*block.chains, *(each.chain for each in block.everything if each.chain is not None)]
        for start in (*(chain.last + 1 for chain in chains), *(pipe.first + 1 for pipe in block.pipes)):
            at = start
            while tokens.is_word(at, *JOIN_WORDS):
                at += 1
            # In FROM o JION c it is read as the alias of o.
            may_be_alias = start - 1 in aliases and not tokens.is_word(start - 2, "AS")
            is_followed = tokens.is_name(start) and not tokens.is_word(start, *NEVER_ALIASES)
            for place in (at, start - 1) if may_be_alias and is_followed else (at,):
                if place < block.query.last and _is_nearly_join(tokens[place]):
                    span = statement.span(tokens.cut(place, place))
                    message = f"A join cannot begin with {tokens[place].text!r}."
                    raise UnsupportedLookup(Problem(message, span, "Did you mean JOIN?"))


def _is_nearly_join(piece: Piece) -> bool:
    word = piece.text.upper()
    is_near = piece.kind is Kind.WORD and bool(get_close_matches(word, ["JOIN"], cutoff=_AS_CLOSE))
    return is_near and word != "JOIN"


def _nested_too_deeply(statement: Statement) -> UnreadableStatement:
    tokens = statement.tokens
    deepest = max(range(len(tokens)), key=tokens.depth)
    return UnreadableStatement(
        Problem(
            f"This statement, which uses a lookup table, is nested too deeply: {tokens.depth(deepest)}"
            " parentheses are open here.",
            statement.span(tokens.cut(deepest, deepest)),
            "Write parts of it as temporary views.",
        )
    )
