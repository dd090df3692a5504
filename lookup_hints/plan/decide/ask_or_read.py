"""Whether to look up by key or read the whole table: the user's wish, what forbids it, and the costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from lookup_hints.errors import HintError, OptionError, Problem
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.decide.access import (
    MOST_ROWS,
    AccessDecision,
    Case,
    decide,
    keys_worth_reading,
    size_text,
)
from lookup_hints.plan.facts_of_lookup_tables import Facts
from lookup_hints.plan.joins import FoundJoin
from lookup_hints.plan.key_conditions import Conjunct, known_conjuncts, references
from lookup_hints.plan.parse.aggregates import AGGREGATES
from lookup_hints.plan.parse.query_blocks import Block, Role
from lookup_hints.plan.parse.query_parts import gives_rows
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis, LeftSide
from lookup_hints.plan.table_use import TableUse
from lookup_hints.spi import TableSize
from lookup_hints.spi.connector import why_not_read
from lookup_hints.spi.lookup_options import LOOKUP, SCAN
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.spi.option_values import InForce, Place
from lookup_hints.sql.lexer import Kind
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Fragment

_FILTERED = "unknown: conditions or joins may take some away before they are asked for"
# Options about misses and failures of single keys, which a read of the whole table cannot honour.
_SAYS_HOW_TO_ASK = ("retry-predicate", "on-error", "max-requests")


def access_of_all(facts: Facts, joins: Sequence[FoundJoin]) -> dict[TableUse, AccessDecision]:
    """The decision of each of ``joins``.

    Raises:
        QueryError: the user wants a table to be read that cannot be.
    """
    stopped = stopped_early(facts, joins)
    return {join.use: _decide_access(facts, joins, join, join.use.index in stopped) for join in joins}


def _decide_access(
    facts: Facts, joins: Sequence[FoundJoin], join: FoundJoin, is_stopped: bool
) -> AccessDecision:
    requested = join.use.requested_access
    said = _access_text(join.use, requested)
    if join.is_in_range:
        return _decide_for_ranges(join, requested, said)
    if requested.value == LOOKUP:
        return AccessDecision(reads=False, reason=said)
    if join.ranking is not None and requested.value != SCAN:
        return AccessDecision(reads=False, reason="Spark would compare each row with each")
    no_scan = _why_not_read(join.use)
    if requested.value == SCAN:
        # `access` = 'scan' on a table is about its current rows; past rows may still be looked up.
        may_be_asked = (Place.SESSION, Place.TABLE) if join.use.versions else (Place.SESSION,)
        if no_scan and requested.source not in may_be_asked:
            raise _cannot_read(join, requested, no_scan)
        must_ask = no_scan or _why_stream_asks(facts, joins, join)
        if must_ask:
            return AccessDecision(reads=False, reason=f"{must_ask}, so {said} has no effect")
    own_most = join.use.value_of("scan.max-rows").value
    most_rows = MOST_ROWS if own_most is None else min(MOST_ROWS, own_most)
    case = Case(
        requested.value,
        said,
        must_ask=no_scan or _reason_to_ask(facts, join, is_stopped),
        most_rows=most_rows,
    )
    sizes: list[TableSize] = []

    def size() -> TableSize:
        sizes.append(facts.context.table_size(join.use.connector))
        return sizes[0]

    decision = decide(case, size, lambda: _left_rows(facts.analysis, joins, join))
    if join.use.versions is not None and not (
        _why_not_read(join.use, of_past=False) or _reason_to_ask(facts, join, is_stopped)
    ):
        size()  # an executor that has read the table chooses among the rows of a key, as one that asks does
    keys = keys_worth_reading(sizes[0], most_rows) if sizes else None
    if decision.reads or keys is None or _why_stream_asks(facts, joins, join):
        return decision
    return replace(decision, reads_after=keys)


def _decide_for_ranges(join: FoundJoin, requested: InForce, said: str) -> AccessDecision:
    """All rows travel either way: each executor keeps them and finds its ranges, or Spark compares each."""
    if requested.value == SCAN:
        return AccessDecision(reads=True, reason=said)
    how = multiple_match_of(join.use.base)
    if how != ALL:
        return AccessDecision(reads=True, reason=f"'multiple-match' = {how!r} looks at all rows of a key")
    size, most_rows = join.use.context.table_size(join.use.connector), join.use.value_of("scan.max-rows")
    is_forbidden = most_rows.value is not None and (size.rows or 0) > most_rows.value
    if is_forbidden or _why_not_read(join.use):
        return AccessDecision(reads=True, reason="no equality gives its key")  # `refuse_forbidden` raises
    if requested.value != LOOKUP and (size.bytes or 0) > join.use.value_of("full-cache.max-bytes").value:
        reason = f"{size_text(size)}, is more than 'lookup.full-cache.max-bytes' lets an executor keep"
        return AccessDecision(reads=True, reason=reason)
    return AccessDecision(reads=False, reason=said or "no equality gives a key")


def _access_text(use: TableUse, requested: InForce) -> str:
    """The requested access and its origin, as EXPLAIN shows it; empty if none was requested."""
    hint = use.hint
    if requested.source is Place.HINT and hint is not None and "access" not in hint.options:
        return f"{'an' if hint.may_be_others else 'a'} {hint.word} hint names it"
    return f"'access' = '{requested.value}' ({requested.source.value})" if requested.source else ""


def _why_not_read(use: TableUse, *, of_past: bool = True) -> str:
    """Why a table cannot, or may not, be read; empty where it can be.

    Without ``of_past`` it does not matter that its past rows are wanted.
    """
    if why := why_not_read(use.connector):
        return why
    if not use.value_of("scan").value:
        return f"'scan' = 'false' of table {use.table.name} forbids to read it"
    if of_past and use.versions is not None:
        return "FOR SYSTEM_TIME AS OF chooses among its rows"
    guard = use.value_of("on-scan")
    if guard.value == "error" and guard.source is not None:
        return f"'lookup.on-scan' = 'error' ({guard.source.value}) forbids to read it"
    return ""


def _cannot_read(join: FoundJoin, requested: InForce, reason: str) -> HintError | OptionError:
    message = f"{join.use.alias} cannot be read as 'access' = 'scan' wants it: {reason}."
    tip = "Leave 'access' out, or write 'lookup' or 'auto'."
    hint = join.use.hint
    if requested.source is Place.HINT and hint is not None:
        return HintError(Problem(message, hint.places.get("access", hint.at), tip))
    return OptionError(Problem(f"table {join.use.table.name}: {message}", None, tip))


def _reason_to_ask(facts: Facts, join: FoundJoin, is_stopped: bool) -> str:
    """Why reading would give other rows than asking, or more work; empty where nothing says so."""
    if is_stopped:
        stops = "are shown" if facts.context.few_rows else "go to a LIMIT"
        return f"the first rows alone {stops}"
    if facts.makes_a_view:
        return "what will read the view, and how much of it, is not known"
    said = [key for key in _SAYS_HOW_TO_ASK if join.use.value_of(key).source is Place.TABLE]
    return f"{said[0]!r} of its table says how it is asked" if said else ""


def _why_stream_asks(facts: Facts, joins: Sequence[FoundJoin], join: FoundJoin) -> str:
    """Why a join with a stream on its left must look up by key; empty for other joins."""
    left = join.left_side(facts.statement)
    if left.at is None or not facts.analysis.knows:
        return ""
    is_beneath = all(role in (Role.STATEMENT, Role.RELATION) for role in _roles_around(join.home))
    if facts.output is not None and is_beneath and not facts.context.is_stream(facts.analysis.whole()):
        return ""  # Spark has analysed the whole statement: where it is no stream, nothing beneath it is
    query = _query_for_rows(facts.analysis, joins, join, left)
    return "a stream always asks" if facts.context.is_stream(query) else ""


def _roles_around(block: Block) -> Iterator[Role]:
    around: Block | None = block
    while around is not None:
        yield around.query.role
        around = around.query.parent


# Not all rows of the left side reach the lookup: Spark pushes conditions below the join.
# (docs/decisions/0153)
def _left_rows(analysis: Analysis, joins: Sequence[FoundJoin], join: FoundJoin) -> LeftRows:
    left = _certain_left(joins, join)
    if left is None:
        return LeftRows(None, _FILTERED)
    found = join.use.context.left_rows(_query_for_rows(analysis, joins, join, left))
    names = [_column_of_key(join.use.statement, key.left) for key in join.conditions.keys]
    values = [found.values[name] for name in names if name in found.values]
    return found if len(values) < len(names) else replace(found, keys=prod(values))


def _column_of_key(statement: Statement, left: Fragment) -> str:
    """The name of the column that the left side of a key is; empty where it is an expression."""
    words = SqlText(left if isinstance(left, str) else left.of(statement.text)).code
    is_column = len(words) in (1, 3) and words[-1].is_name and words[0].is_name
    return words[-1].name if is_column and (len(words) == 1 or words[1].is_symbol(".")) else ""


def _query_for_rows(analysis: Analysis, joins: Sequence[FoundJoin], join: FoundJoin, left: LeftSide) -> str:
    """A query for the rows of ``left`` that Spark analyses anyway, or that several joins share."""
    if len(joins) > 1:
        return analysis.rows_of(join.home, left)
    return analysis.asking_rows(replace(join.question(analysis.statement), left=left))


# --- which rows on the left are sure to ask ---------------------------------------------------------


def _certain_left(joins: Sequence[FoundJoin], join: FoundJoin) -> LeftSide | None:
    """The part of FROM all of whose rows reach the lookup; None if some may not.

    Spark pushes conditions below a lookup join, also those of outer queries and those that it infers from
    equalities. So the only conditions allowed are on non-key columns of the lookup table.
    """
    if _is_filtered(joins, join) or is_filtered_around(join.use.statement, join.home):
        return None
    asked = {each.use.relation for each in joins if each.home is join.home}
    others = [relation for relation in join.home.relations if relation not in asked]
    if any(relation.lateral for relation in others):
        return None
    if len(others) == 1:
        left = LeftSide(join.use.statement.tokens.cut(others[0].first, others[0].last))
    else:
        left = join.left_side(join.use.statement)
    return None if left.at is None or holds_lookups(join.use.statement, join.home, left.at) else left


# Other lookup tables are empty stubs to Spark here: an inner join with one makes all of it empty.
# (docs/decisions/0153)
def holds_lookups(statement: Statement, block: Block, part: Cut) -> bool:
    """Whether the part, or a CTE that it may name, holds a lookup table: Spark sees an empty one there."""
    parts = [part, *(cte.at for level in block.query.levels for cte in level)]
    places = [statement.pieces[use.index].start for use in statement.uses]
    return any(each.start <= place < each.end for each in parts for place in places)


def _is_filtered(joins: Sequence[FoundJoin], join: FoundJoin) -> bool:
    """Whether something in the block of the join may drop left rows before the lookup."""
    home = join.home
    here = [each for each in joins if each.home is home]
    if home.pipes or home.views_last > -1 or any(each.conditions.left_only for each in here):
        return True
    if any(each.kind != "LEFT" for each in here if each.use.index < join.use.index):
        return True
    asked = {each.use.relation for each in here}
    steps = (step for step in home.steps if join.use.statement.pieces[step.first].start >= join.at.end)
    behind = (step for step in steps if step.right not in asked)
    if any("LEFT" not in step.words or step.hides_right for step in behind):
        return True
    conditions = [join.use.statement.once(known_conjuncts, where) for where in home.wheres]
    return any(
        each is None or any(_may_be_pushed(join, conjunct) for conjunct in each) for each in conditions
    )


def _may_be_pushed(join: FoundJoin, conjunct: Conjunct) -> bool:
    keys = join.conditions.keys
    if conjunct.at == join.at or any(key.whole == conjunct.at for key in keys):
        return False
    named = {reference.column for reference in references(conjunct.tree, join.use.names)}
    return not named or bool(named & {key.column for key in keys})


def is_filtered_around(statement: Statement, block: Block) -> bool:
    """Whether a HAVING, a LIMIT or a query around the block may take rows of it away."""
    while not _has_having(statement, block):
        query = block.query
        if query.limit_at is not None and not query.ordered:
            return True
        if query.role is Role.STATEMENT:
            return False
        around = query.parent
        if query.role is not Role.RELATION or query.lateral or around is None:
            return True
        if around.wheres or around.pipes or len(list(around.everything)) != 1:
            return True
        block = around
    return True


def _has_having(statement: Statement, block: Block) -> bool:
    tokens = statement.tokens
    places = (at for word in ("HAVING", "QUALIFY") for at in tokens.places(word, block.first, block.last))
    return any(tokens.is_word(at, "HAVING", "QUALIFY") for at in places)


# --- which joins Spark may stop early ---------------------------------------------------------------


FEW_ROWS = 10_000
"""A LIMIT of more rows than this wants them fast rather than few."""

_OVER_ALL_ROWS = AGGREGATES | {"OVER"}


# Under a LIMIT few rows may be wanted, so reading a whole table is not certain to pay.
def stopped_early(facts: Facts, joins: Iterable[FoundJoin]) -> frozenset[int]:
    """Indices of the tables of joins whose rows stream into a LIMIT, neither sorted nor grouped.

    A statement whose caller takes only the first rows counts as having a LIMIT.
    """
    homes = {join.home for join in joins}
    stopped = {home for home in homes if _stops_early(facts, home, frozenset())}
    return frozenset(join.use.index for join in joins if join.home in stopped)


def _stops_early(facts: Facts, block: Block, inside: frozenset[Block]) -> bool:
    """Whether the rows of ``block`` go to a LIMIT, in it or around it, as they come."""
    if block in inside or not is_plain(block) or facts.statement.once(_aggregates_all_rows, block):
        return False
    in_pipes = _stops_in_pipes(facts.statement, block)
    if in_pipes is not None:
        return in_pipes
    holding = [query for query in facts.statement.structure.queries if block in query.blocks]
    for query in sorted(holding, key=lambda query: query.first, reverse=True):
        if query.ordered:
            return False
        if query.limit_at is not None and _is_small_limit(facts.statement, query.limit_at):
            return True
    if block.query.role is Role.STATEMENT:
        return facts.context.few_rows and gives_rows(facts.statement)
    readers = _blocks_that_read(facts.statement, block)
    return bool(readers) and all(_stops_early(facts, reader, inside | {block}) for reader in readers)


def _blocks_that_read(statement: Statement, block: Block) -> list[Block]:
    """The blocks whose FROM reads the rows of ``block``; none where an expression does."""
    structure = statement.structure
    if block.query.role is Role.RELATION:
        return [] if block.query.parent is None else [block.query.parent]
    return [
        reader
        for reader in structure.blocks
        for relation in reader.everything
        if relation.cte is not None and block in relation.cte.query.blocks
    ]


def _aggregates_all_rows(statement: Statement, block: Block) -> bool:
    """Whether an aggregate or a window is over all rows of the FROM."""
    structure, pieces = statement.structure, statement.pieces
    inner = [query for query in structure.queries if query.parent is block]
    end = block.pipes[0].first if block.pipes else block.last
    return any(
        pieces[index].is_name
        and pieces[index].name.upper() in _OVER_ALL_ROWS
        and statement.tokens.is_symbol(index + 1, "(")
        for index in range(block.first, end)
        if not any(query.first <= index <= query.last for query in inner)
    )


def _stops_in_pipes(statement: Statement, block: Block) -> bool | None:
    """Whether a pipe operator is a LIMIT over rows as they come; None where the rows just go on."""
    for pipe in block.pipes:
        if pipe.ordered or statement.tokens.is_word(pipe.first + 1, "AGGREGATE", "DISTINCT"):
            return False
        if statement.tokens.is_word(pipe.first + 1, "LIMIT") and _is_small_limit(statement, pipe.first + 1):
            return True
    return None


def _is_small_limit(statement: Statement, limit_at: int) -> bool:
    """Whether the LIMIT is small; one that is not a number counts as small."""
    pieces = statement.pieces
    if limit_at + 1 >= len(pieces) or pieces[limit_at + 1].kind is not Kind.NUMBER:
        return True
    text = pieces[limit_at + 1].text
    return not text.isdecimal() or int(text) <= FEW_ROWS


def is_plain(block: Block) -> bool:
    """Whether nothing between its FROM and its rows shuffles them anyway."""
    return not (block.grouped or block.distinct)
