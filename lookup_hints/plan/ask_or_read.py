"""The rule that decides of each lookup join whether its table is asked or read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from lookup_hints.errors import HintError, OptionError, Problem
from lookup_hints.plan.access import MOST_ROWS, Access, AccessDecision, Case, decide, keys_worth_reading
from lookup_hints.plan.analysis import LeftSide
from lookup_hints.plan.cost import LeftRows
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.hinted import hint_of
from lookup_hints.plan.read.statement import LookupUse
from lookup_hints.plan.read.structure import Block, Role
from lookup_hints.plan.requested_access import LOOKUP, SCAN, requested_access, value_of
from lookup_hints.plan.stopping import stopped_early
from lookup_hints.plan.times import versions_wanted
from lookup_hints.plan.unfiltered import certain_left
from lookup_hints.spi import Scan, TableSize
from lookup_hints.spi.options import InForce, Place
from lookup_hints.sql.lexer import code, pieces
from lookup_hints.sql.splice import Fragment

_FILTERED = "unknown: conditions or joins may take some away before they are asked for"
_SAYS_HOW_TO_ASK = ("retry-predicate", "on-error", "max-requests")
"""Options of a table that say what becomes of misses and failures, which a read does not know."""


class BetterRead(Exception):
    """Some lookup joins are to be read instead: planning begins again with them as scans."""

    def __init__(self, decisions: Mapping[LookupUse, AccessDecision]) -> None:
        super().__init__("some tables are read whole")
        self.decisions = decisions


def choose_access(draft: Draft) -> Draft:
    """Each lookup join is asked, for a reason.

    Raises:
        BetterRead: some of them should be read.
        QueryError: the user wants a table to be read that cannot be.
    """
    stopped = stopped_early(draft) if draft.joins else frozenset()
    decisions = {join.use: _decision(draft, join, join.use.index in stopped) for join in draft.joins}
    read = {use: decision for use, decision in decisions.items() if decision.reads}
    if read:
        raise BetterRead(read)
    return draft.each_join(lambda join: join.with_(access=decisions[join.use]))


def read_as_decided(draft: Draft, decisions: Mapping[LookupUse, AccessDecision]) -> Draft:
    """``draft`` with these uses among those that are read."""
    reasons = {use: decision.reason for use, decision in decisions.items()}
    return draft.with_(read={**draft.read, **reasons}, decided={**draft.decided, **decisions})


def _decision(draft: Draft, join: LookupJoin, is_stopped: bool) -> AccessDecision:
    requested = requested_access(draft, join.use)
    said = _said(draft, join.use, requested)
    if requested.value == LOOKUP:
        return AccessDecision(reads=False, reason=said)
    no_scan = _why_not_read(draft, join.use)
    if requested.value == SCAN:
        # A table that is read where all of it is wanted is asked where its past rows are.
        may_be_asked = (Place.SESSION, Place.TABLE) if versions_wanted(join.use) else (Place.SESSION,)
        if no_scan and requested.source not in may_be_asked:
            raise _cannot_read(draft, join, requested, no_scan)
        must_ask = no_scan or _stream(draft, join)
        if must_ask:
            return AccessDecision(reads=False, reason=f"{must_ask}, so {said} has no effect")
    case = Case(
        Access(requested.value),
        said,
        must_ask=no_scan or _must_ask(draft, join, is_stopped),
        most_rows=_most_rows(draft, join.use),
    )
    sizes: list[TableSize] = []

    def size() -> TableSize:
        sizes.append(draft.context.table_size(join.connector))
        return sizes[0]

    decision = decide(case, size, lambda: _left_rows(draft, join))
    keys = keys_worth_reading(sizes[0], case.most_rows) if sizes else None
    if decision.reads or keys is None or _stream(draft, join):
        return decision
    return replace(decision, reads_after=keys)


def _said(draft: Draft, use: LookupUse, requested: InForce) -> str:
    """Who wants what, as EXPLAIN shows it; empty where nobody does."""
    hint = hint_of(draft, use)
    if requested.source is Place.HINT and hint is not None and "access" not in hint.options:
        return "a LOOKUP hint names it"
    return f"'access' = '{requested.value}' ({requested.source.value})" if requested.source else ""


def _most_rows(draft: Draft, use: LookupUse) -> int:
    most = value_of("scan.max-rows", draft, use).value
    return MOST_ROWS if most is None else min(MOST_ROWS, most)


def _why_not_read(draft: Draft, use: LookupUse) -> str:
    """Why a table cannot, or may not, be read; empty where it can be."""
    connector = draft.context.connector(use.base)
    if not isinstance(connector, Scan):
        return f"connector {use.table.connector!r} answers keys only"
    if not value_of("scan", draft, use).value:
        return f"'scan' = 'false' of table {use.table.name} forbids to read it"
    if versions_wanted(use) is not None:
        return "FOR SYSTEM_TIME AS OF chooses among its rows"
    guard = value_of("on-scan", draft, use)
    if guard.value == "error" and guard.source is not None:
        return f"'lookup.on-scan' = 'error' ({guard.source.value}) forbids to read it"
    return ""


def _cannot_read(draft: Draft, join: LookupJoin, requested: InForce, reason: str) -> HintError | OptionError:
    message = f"{join.use.alias} cannot be read as 'access' = 'scan' wants it: {reason}."
    tip = "Leave 'access' out, or write 'lookup' or 'auto'."
    hint = hint_of(draft, join.use)
    if requested.source is Place.HINT and hint is not None:
        return HintError(Problem(message, hint.places.get("access", hint.at), tip))
    return OptionError(Problem(f"table {join.use.table.name}: {message}", None, tip))


def _must_ask(draft: Draft, join: LookupJoin, is_stopped: bool) -> str:
    """Why reading would give other rows than asking, or more work; empty where nothing says so."""
    if is_stopped:
        stops = "are shown" if draft.context.few_rows else "go to a LIMIT"
        return f"the first rows alone {stops}"
    if _makes_a_view(draft):
        return "what will read the view, and how much of it, is not known"
    said = [key for key in _SAYS_HOW_TO_ASK if value_of(key, draft, join.use).source is Place.TABLE]
    return f"{said[0]!r} of its table says how it is asked" if said else ""


def _makes_a_view(draft: Draft) -> bool:
    words = draft.statement.pieces[:6]
    return words[0].is_word("CREATE") and any(piece.is_word("VIEW") for piece in words)


def _stream(draft: Draft, join: LookupJoin) -> str:
    """What to say where the left rows are a stream, which no read can follow; else nothing."""
    left = join.left_side(draft.statement)
    if left.at is None or not draft.analysis.knows:
        return ""
    is_beneath = all(role in (Role.STATEMENT, Role.RELATION) for role in _roles(join.home))
    if draft.output is not None and is_beneath and not draft.context.is_stream(draft.analysis.whole()):
        return ""  # Spark has analysed the whole statement: where it is no stream, nothing beneath it is
    query = _rows_of(draft, join, left)
    return "a stream always asks" if draft.context.is_stream(query) else ""


def _roles(block: Block) -> Iterator[Role]:
    """What the query of ``block`` is to the block around it, and so on outwards."""
    around: Block | None = block
    while around is not None:
        yield around.query.role
        around = around.query.parent


def _left_rows(draft: Draft, join: LookupJoin) -> LeftRows:
    """The rows on the left that surely ask, by Spark's own estimate."""
    left = certain_left(draft, join)
    if left is None:
        return LeftRows(None, _FILTERED)
    if draft.context.left_rows is None:
        return LeftRows(None, "unknown: Spark was not asked")
    found = draft.context.left_rows(_rows_of(draft, join, left))
    names = [_column_of(draft, key.left) for key in join.conditions.keys]
    values = [found.values[name] for name in names if name in found.values]
    return found if len(values) < len(names) else replace(found, keys=prod(values))


def _column_of(draft: Draft, left: Fragment) -> str:
    """The name of the column that the left side of a key is; no name of any where it is an expression."""
    words = code(pieces(left if isinstance(left, str) else left.of(draft.statement.text)))
    is_column = len(words) in (1, 3) and words[-1].is_name and words[0].is_name
    return words[-1].name if is_column and (len(words) == 1 or words[1].is_symbol(".")) else ""


def _rows_of(draft: Draft, join: LookupJoin, left: LeftSide) -> str:
    """A query for the rows of ``left``, which Spark is asked anyway, or which serves several joins."""
    if len(draft.joins) > 1:
        return draft.analysis.rows_of(join.home, left)
    return draft.analysis.asking_rows(replace(join.question(draft.statement), left=left))
