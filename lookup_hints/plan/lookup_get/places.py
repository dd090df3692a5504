"""Where the LEFT JOIN of a ``lookup_get`` goes: behind the relations whose columns its key names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from lookup_hints.errors import Problem, UnsupportedLookup
from lookup_hints.plan.column_pruning import is_projected
from lookup_hints.plan.lookup_get.calls import ValueCall, first_of_statement
from lookup_hints.plan.parse.aggregates import AGGREGATES
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.scopes import Scopes
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.words import ORDER_WORDS, SET_WORDS

IN_SOURCE = "Select the value in USING: USING (SELECT ..., lookup_get(...) AS value FROM ...)."
IN_DERIVED_TABLE = "Compute the key in a derived table: FROM (SELECT ..., key AS k FROM ...)."


@dataclass(frozen=True)
class JoinPlace:
    """A place for LEFT JOINs.

    Args:
        block: the block whose FROM or pipe operators they join.
        at: the offset behind which they go.
        opens: the offset of a parenthesis that holds them with the relation before them, or -1.
        needs_from: whether the block has no FROM, and gets one.
        is_pipe: whether they are pipe operators.
        is_early: whether they are before the end of the FROM or the pipe operators, for a condition there.
        commas: indices of commas before them that must be joins, as the key is of relations on both sides.
    """

    block: Block
    at: int
    opens: int = -1
    needs_from: bool = False
    is_pipe: bool = False
    is_early: bool = False
    commas: tuple[int, ...] = ()


def refused(statement: Statement, call: ValueCall, reason: str, tip: str) -> UnsupportedLookup:
    at = statement.tokens.cut(call.first, call.last)
    return UnsupportedLookup(Problem(f"lookup_get cannot be here: {reason}.", statement.span(at), tip))


def place_of(statement: Statement, scopes: Scopes, call: ValueCall) -> JoinPlace:
    """The place of the join of a call.

    Raises:
        UnsupportedLookup: there is none.
    """
    _refuse_kinds_of_key(statement, call)
    block, relations = _home_of(statement, scopes, call)
    if block.source is None:
        listed = items_until_clause(statement, block.selects[0] + 1, block.last) if block.selects else []
        if not listed:
            raise refused(
                statement, call, "this query has neither columns nor FROM", "Write SELECT ... FROM."
            )
        return JoinPlace(block, listed[-1].end, needs_from=True)
    if block.pipes and not (block.selects and call.first < block.pipes[0].first):
        return _place_among_pipes(statement, block, relations, call)
    if block.source.first <= call.first <= block.source.last:
        return _place_in_from(statement, block, relations, call)
    return _place_behind_from(statement, block, relations, call)


def clause_of(statement: Statement, block: Block, index: int) -> str:
    """The first word of the clause of ``block`` that holds the piece, in capitals."""
    tokens, found = statement.tokens, ""
    for at in tokens.in_plain_sight(block.first, index):
        is_clause = tokens.is_word(at, "SELECT", "WHERE", "HAVING", "QUALIFY", "WINDOW")
        is_clause |= tokens.is_word(at, "FROM") and not tokens.is_word(at - 1, "DISTINCT")
        is_clause |= tokens.is_word(at, "GROUP", *ORDER_WORDS) and tokens.is_word(at + 1, "BY")
        if is_clause and not tokens.is_symbol(at - 1, "."):
            found = tokens[at].text.upper()
    return found


def items_until_clause(statement: Statement, first: int, last: int) -> list[Cut]:
    """The items of a list that begins at the piece and ends where the next clause begins."""
    tokens = statement.tokens
    for at in tokens.in_plain_sight(first, last):
        is_from = tokens.is_word(at, "FROM") and not tokens.is_word(at - 1, "DISTINCT")
        ends = is_from or tokens.starts_clause(at) or tokens[at].text in ("|>", ";")
        if ends or tokens.is_word(at, *SET_WORDS):
            return tokens.parts(first, at - 1)
    return tokens.parts(first, last)


def enclosing_calls(statement: Statement, first: int, index: int) -> Iterator[int]:
    """Indices of the parentheses from the piece ``first`` on that are open at the piece, innermost first."""
    tokens, depth = statement.tokens, statement.tokens.depth(index)
    for at in range(index - 1, first - 1, -1):
        if tokens.is_symbol(at, "(") and tokens.depth(at) < depth:
            depth = tokens.depth(at)
            yield at


# --- keys -------------------------------------------------------------------------------------------


def _refuse_kinds_of_key(statement: Statement, call: ValueCall) -> None:
    tokens = statement.tokens
    for key, tree in zip(call.keys, call.trees, strict=True):
        first, last = tokens.indices(key)
        if any(
            (tokens[at].text.upper() in AGGREGATES and tokens.is_symbol(at + 1, "("))
            or tokens.is_word(at, "OVER")
            for at in range(first, last)
        ) and not tree.find(exp.Query):
            raise refused(statement, call, "its key is an aggregate or a window", IN_DERIVED_TABLE)
    named = {column.parts[0].name.lower() for tree in call.trees for column in tree.find_all(exp.Column)}
    for opening in enclosing_calls(statement, 0, call.first):
        for arrow in range(opening + 1, call.first):
            is_own = tokens.is_symbol(arrow, "->") and tokens.depth(arrow) == tokens.depth(opening) + 1
            if not is_own or any(
                tokens.is_symbol(at, ",") and tokens.depth(at) == tokens.depth(arrow)
                for at in range(arrow, call.first)
            ):
                continue
            begin = arrow - 1
            while tokens.depth(begin) > tokens.depth(arrow) or tokens.is_symbol(begin, ")"):
                begin -= 1
            names = {piece.name.lower() for piece in tokens[begin:arrow] if piece.is_name}
            if names & named:
                reason = "its key is a variable of a lambda, which no join can name"
                tip = "Make rows of the array first: FROM ... LATERAL VIEW explode(...)."
                raise refused(statement, call, reason, tip)


def _home_of(statement: Statement, scopes: Scopes, call: ValueCall) -> tuple[Block, frozenset[Relation]]:
    """The block whose FROM has the columns of the key, and those of its relations that have them."""
    block = statement.structure.block_at(call.first)
    if block is None:
        raise _no_query_around(statement, call)
    inner = block
    while True:
        inside = block.source is not None and block.source.first <= call.first <= block.source.last
        scope = scopes.of_from(block) if inside or block.pipes else scopes.of_where(block)
        found = [scope.referred(tree) for tree in call.trees]
        relations = frozenset(relation for each in found for relation in each.relations)
        around = block.query.outer
        if not any(each.outer for each in found) or around is None:
            break
        if relations:
            reason = "its key has columns of two queries"
            raise refused(statement, call, reason, "Use columns of one query as its key.")
        block = around
    is_of_target = block.source is None and any(tree.find(exp.Column) for tree in call.trees)
    begin = first_of_statement(statement.tokens, call.first)
    if is_of_target and statement.tokens.is_word(begin, "MERGE", *_WITHOUT_FROM):
        raise _no_query_around(statement, call)
    _refuse_order_of_union(statement, inner, call)
    return block, relations


_WITHOUT_FROM = ("UPDATE", "DELETE")


def _no_query_around(statement: Statement, call: ValueCall) -> UnsupportedLookup:
    reason = "it stands in no query whose FROM could hold the lookup"
    begin = first_of_statement(statement.tokens, call.first)
    tip = (
        IN_SOURCE if statement.tokens.is_word(begin, "MERGE") else "Use it in the query that gives the rows."
    )
    if statement.tokens.is_word(begin, *_WITHOUT_FROM):
        tip = f"Write a MERGE INTO the same table. {IN_SOURCE}"
    return refused(statement, call, reason, tip)


def _refuse_order_of_union(statement: Statement, block: Block, call: ValueCall) -> None:
    query = block.query
    is_ordered = clause_of(statement, block, call.first) in ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE")
    if is_ordered and (len(query.blocks) > 1 or query.branches):
        reason = "it orders the rows of a set operation"
        raise refused(statement, call, reason, "Select the value in each branch, and order by its name.")


# --- places -----------------------------------------------------------------------------------------


def _place_behind_from(
    statement: Statement, block: Block, relations: frozenset[Relation], call: ValueCall
) -> JoinPlace:
    tokens = statement.tokens
    if block.views_last > -1 and not _names_relations(statement, block, call.trees):
        reason = "its key may be a column of a LATERAL VIEW, behind which nothing can be joined"
        raise refused(statement, call, reason, f"Qualify the key. {IN_DERIVED_TABLE}")
    holding = [n for n, chain in enumerate(block.chains) if relations & set(chain.everything)]
    holding = holding or [len(block.chains) - 1]
    between = block.chains[holding[0] + 1 : holding[-1] + 1]
    if any(chain.steps or chain.head.lateral for chain in between):
        reason = "its key has columns of relations with commas between them"
        raise refused(statement, call, reason, "Write CROSS JOIN in place of the comma.")
    commas = tuple(chain.first - 1 for chain in between)
    return JoinPlace(block, tokens[block.chains[holding[-1]].last].end, commas=commas)


def _names_relations(statement: Statement, block: Block, trees: Iterable[exp.Expr]) -> bool:
    """Whether each column in ``trees`` has the alias of a relation of the block before it."""
    aliases = statement.aliases_in(block)
    columns = [column for tree in trees for column in tree.find_all(exp.Column)]
    return all(len(each.parts) > 1 and each.parts[0].name.lower() in aliases for each in columns)


def _place_in_from(
    statement: Statement, block: Block, relations: frozenset[Relation], call: ValueCall
) -> JoinPlace:
    """A place before the join whose condition, or whose LATERAL, the call is in; or inside its right side."""
    tokens = statement.tokens
    closed = [each for each in block.everything if each.chain is not None and each.alias_at is not None]
    if any(each.first <= call.first <= each.last for each in closed):
        reason = "the parentheses around this join have an alias"
        raise refused(statement, call, reason, "Write the join as a derived table: (SELECT ... FROM ...).")
    number = next(n for n, chain in enumerate(block.chains) if chain.first <= call.first <= chain.last)
    chain, step = _step_at(block.chains[number], call.first)
    before = _relations_before(chain, step)
    if step is not None and relations <= before:
        return JoinPlace(block, tokens[step.first - 1].end, is_early=True)
    earlier = [each for each in block.chains[:number] if relations <= set(each.everything)]
    if earlier:
        return JoinPlace(block, tokens[earlier[0].last].end)
    tip = "Put the condition into WHERE, or compute the value in a derived table on one side."
    return _place_in_right(statement, block, step, relations, call, tip)


def _place_in_right(
    statement: Statement,
    block: Block,
    step: Step | None,
    relations: frozenset[Relation],
    call: ValueCall,
    tip: str,
) -> JoinPlace:
    """A place on the right side of the join whose condition the call is in."""
    right = None if step is None else step.right
    is_inside = right is not None and relations <= set(right.everything) and call.first > right.last
    if right is None or right.lateral or not is_inside:
        raise refused(statement, call, "its key has columns of both sides of the join", tip)
    tokens = statement.tokens
    return JoinPlace(block, tokens[right.last].end, tokens[right.first].start, is_early=True)


def _step_at(chain: Chain, index: int) -> tuple[Chain, Step | None]:
    """The innermost chain, and its join, that hold the piece; no join where the first relation does."""
    holding = next((step for step in chain.steps if step.first <= index <= step.last), None)
    relation = chain.head if holding is None else holding.right
    if relation is not None and relation.chain is not None and relation.first <= index <= relation.last:
        return _step_at(relation.chain, index)
    return chain, holding


def _relations_before(chain: Chain, step: Step | None) -> set[Relation]:
    found = set(chain.head.everything) if step is not None else set()
    for each in chain.steps:
        if each is step or step is None:
            break
        found |= set(each.right.everything) if each.right is not None else set()
        found |= {each.pivoted} if each.pivoted is not None else set()
    return found


def _place_among_pipes(
    statement: Statement, block: Block, relations: frozenset[Relation], call: ValueCall
) -> JoinPlace:
    tokens = statement.tokens
    if not is_projected(statement, block):
        raise refused(statement, call, "no |> SELECT lists the columns behind it", "End with |> SELECT.")
    if block.source is not None and call.first <= block.source.last:
        return _place_in_from(statement, block, relations, call)
    pipe = next((each for each in block.pipes if each.first <= call.first <= each.last), None)
    if pipe is None:
        raise refused(
            statement, call, "its step of the pipe cannot be read", "Look at the end of the step before."
        )
    earlier = block.pipes[: block.pipes.index(pipe)]
    if any(select < pipe.first for select in block.selects) or any(
        tokens.is_word(each.first + 1, "AGGREGATE") for each in earlier
    ):
        raise refused(statement, call, "a SELECT or AGGREGATE comes before it", IN_DERIVED_TABLE)
    if pipe.join is not None and pipe.join.right is not None and relations & set(pipe.join.right.everything):
        tip = "Put the condition into |> WHERE."
        return _place_in_right(statement, block, pipe.join, relations, call, tip)
    return JoinPlace(block, tokens[pipe.first - 1].end, is_pipe=True)
