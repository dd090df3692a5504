"""Lookup joins that Spark would run more than once, above all in CTEs with several readers.

Spark computes a CTE once for each reader, but only once in all if it holds a nondeterministic function. Spark
refuses such functions below LATERAL, in ON, in aggregates and the like (docs/decisions/0101). Shapes that no
rewrite can fix get a note in EXPLAIN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from lookup_hints.plan.joins import FoundJoin, LookupJoin
from lookup_hints.plan.key_conditions import known_conjuncts
from lookup_hints.plan.parse.query_blocks import Block, Cte, Query, Relation, Role
from lookup_hints.plan.parse.query_parts import inserts
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.views_and_derived_tables import names_of_cte
from lookup_hints.sql.lexer import Kind, quoted
from lookup_hints.sql.text_edits import Edit


# Made non-deterministic: then Spark computes a CTE that is read twice only once. (docs/decisions/0101)
def must_run_once(statement: Statement, join: FoundJoin) -> bool:
    """Whether the rows of ``join`` are read more than once, and Spark can be made to compute them once."""
    return _is_read_again(statement, join) and _can_run_once(statement, join)


# Aliases that rename nothing are removed by Spark, and its CTE rule then looks for columns that are gone
# (PLAN_VALIDATION_FAILED). Private names are never removed. (docs/decisions/0175)
def private_columns(analysis: Analysis, joins: Sequence[LookupJoin]) -> Iterator[Edit]:
    """Edits that give CTEs that are computed once private column names, which their readers rename back.

    Spark pushes the conditions of all readers into such a CTE, and later replaces them: in the old plan, but
    by the new columns. In between it drops aliases that rename nothing, such as those of packed relations.
    Then the columns no longer match, and the plan is invalid. An alias that renames is kept.
    """
    statement = analysis.statement
    once = {cte: None for join in joins if join.repeated for cte in _ctes_around(statement, join)}
    for cte in once:
        readers = statement.once(_readers_of_cte, cte)
        columns = _column_names_of_cte(analysis, cte, readers)
        if (
            len(readers) > 1
            and columns
            and all(_can_restore_names(statement, joins, *each) for each in readers)
        ):
            yield _with_private_columns(statement, cte, len(columns))
            listed = f"({', '.join(map(quoted, columns))})"
            yield from (
                _restore_names(statement, relation, listed) for _, relation in readers if not relation.columns
            )


def _column_names_of_cte(
    analysis: Analysis, cte: Cte, readers: list[tuple[Block, Relation]]
) -> tuple[str, ...]:
    """The column names of the CTE; empty if unknown."""
    given = names_of_cte(analysis.statement, cte)
    if given or cte.recursive or not readers:
        return () if cte.recursive else given
    return analysis.columns_of_cte(cte, readers[0][0]) or ()


def _can_restore_names(
    statement: Statement, joins: Sequence[LookupJoin], block: Block, relation: Relation
) -> bool:
    is_table_query = block.source is not None and statement.tokens.is_word(block.source.at, "TABLE")
    is_shuffled = any(join.shuffled and join.left_table is relation for join in joins)
    return not (is_table_query or is_shuffled or (relation.time is not None and relation.alias_at is None))


def _with_private_columns(statement: Statement, cte: Cte, count: int) -> Edit:
    name = statement.tokens.index_at(cte.at.start)
    has_list = statement.tokens.is_symbol(name + 1, "(")
    last = statement.tokens.closing(name + 1) if has_list else name
    listed = ", ".join(quoted(f"__lookup_column_{number}") for number in range(1, count + 1))
    at = statement.tokens.cut(name, last)
    return Edit(at, (statement.tokens.cut(name, name), f"({listed})"))


def _restore_names(statement: Statement, relation: Relation, listed: str) -> Edit:
    if relation.alias_at is not None:
        at, alias = statement.tokens.cut(relation.alias_at, relation.alias_at), ""
    else:
        at, alias = statement.tokens.cut(relation.last, relation.last), f" AS {quoted(relation.name)}"
    return Edit(at, (at, f"{alias}{listed}"))


def _is_read_again(statement: Statement, join: FoundJoin) -> bool:
    return any(len(statement.once(_readers_of_cte, cte)) > 1 for cte in _ctes_around(statement, join))


# Below LATERAL and in subqueries of ON, ORDER BY and GROUP BY Spark takes no function that is not
# deterministic. (docs/decisions/0101)
def _can_run_once(statement: Statement, join: FoundJoin) -> bool:
    around = _ctes_around(statement, join)
    reading = [block for cte in around for block, _ in statement.once(_readers_of_cte, cte)]
    may_be_random = (_may_be_random(statement, block) for block in (join.home, *reading))
    return all(cte.holder.stands_alone for cte in around) and all(may_be_random)


def _ctes_around(statement: Statement, join: FoundJoin) -> list[Cte]:
    """The CTEs through which the rows of ``join`` come out: the one that holds it, those that read that."""
    found: list[Cte] = []
    waiting = [_innermost_cte(statement, join.at.start)]
    while waiting:
        cte = waiting.pop()
        if cte is not None and cte not in found:
            found.append(cte)
            starts = (
                statement.pieces[relation.first].start for _, relation in statement.once(_readers_of_cte, cte)
            )
            waiting += [_innermost_cte(statement, start) for start in starts]
    return found


def _readers_of_cte(statement: Statement, cte: Cte) -> list[tuple[Block, Relation]]:
    """The relations that read ``cte``, with their blocks; but for those inside it, as it may read itself."""
    readers = statement.structure.readers_of(cte.query)
    return [each for each in readers if not cte.at.holds(statement.tokens.place(each[1]))]


def _innermost_cte(statement: Statement, offset: int) -> Cte | None:
    holding = [cte for cte in statement.structure.ctes if cte.at.start <= offset < cte.at.end]
    return max(holding, key=lambda cte: cte.at.start, default=None)


def _may_be_random(statement: Statement, block: Block) -> bool:
    """Whether Spark accepts nondeterministic functions at the place of ``block``."""
    query = block.query
    while query.parent is not None:
        is_expression = query.role is Role.EXPRESSION
        if query.lateral or (is_expression and not _is_filter_or_item(statement, query, query.parent)):
            return False
        query = query.parent.query
    return True


def _is_filter_or_item(statement: Statement, query: Query, parent: Block) -> bool:
    """Whether the subquery is in a WHERE of ``parent``, or in its SELECT list outside of any call.

    ON, GROUP BY, ORDER BY and aggregates require deterministic expressions.
    """
    place, tokens = statement.tokens.place(query), statement.tokens
    wheres = (*parent.wheres, *(pipe.where for pipe in parent.pipes if pipe.where is not None))
    if any(where.holds(place) for where in wheres):
        return True
    if parent.grouped or parent.source is None or not parent.selects:
        return False
    is_listed = parent.selects[0] < query.first < parent.source.at
    return is_listed and tokens.depth(query.first) == tokens.depth(parent.selects[0]) + 1


# --- what cannot be cured ---------------------------------------------------------------------------


def notes_of_repeated(statement: Statement, joins: Sequence[LookupJoin]) -> list[str]:
    """Notes on lookups that Spark repeats and no rewrite can prevent."""
    found = (_notes_of_ranges, _notes_of_inserts, _notes_of_subqueries, _notes_of_ctes)
    return [note for notes in found for note in notes(statement, joins)]


def _notes_of_ranges(statement: Statement, joins: Sequence[LookupJoin]) -> Iterator[str]:
    """REPARTITION_BY_RANGE samples its input, as a global ORDER BY does."""
    hints = (piece.text.upper() for piece in statement.text.pieces if piece.kind is Kind.HINT)
    if joins and any("REPARTITION_BY_RANGE" in hint for hint in hints):
        yield "REPARTITION_BY_RANGE samples its rows first: right over a lookup join it asks for a key twice"


def _notes_of_inserts(statement: Statement, joins: Sequence[LookupJoin]) -> Iterator[str]:
    """``FROM ... INSERT ... INSERT ...`` is as many queries over one FROM."""
    found = inserts(statement.tokens)
    is_shared = statement.pieces[0].is_word("FROM", "WITH") and len(found) > 1
    if is_shared and any(join.use.index < found[0] for join in joins):
        yield "each INSERT of this statement computes the FROM before it, and so asks its keys, by itself"


def _notes_of_subqueries(statement: Statement, joins: Sequence[LookupJoin]) -> Iterator[str]:
    """A scalar or LATERAL subquery with another correlation than equality runs its outer query twice."""
    homes = {id(join.home): join.home for join in joins}
    for home in homes.values():
        inner = statement.structure.queries_in(home)
        if any(_is_computed_for_each_row(statement, home, query) for query in inner):
            yield (
                "a subquery that is correlated by more than equalities makes Spark compute the rows around"
                " it, and so the lookup joins among them, twice"
            )


def _is_computed_for_each_row(statement: Statement, home: Block, query: Query) -> bool:
    before = query.first - 2
    is_scalar = query.role is Role.EXPRESSION and not statement.tokens.is_word(before, "EXISTS", "IN")
    if not (is_scalar or query.lateral):
        return False
    return any(
        not isinstance(each.tree, exp.EQ) and _names_any_relation(statement, home, each.tree)
        for block in query.blocks
        for where in block.wheres
        for each in known_conjuncts(statement, where) or ()
    )


def _names_any_relation(statement: Statement, home: Block, tree: exp.Expr) -> bool:
    aliases = {alias.lower() for each in home.relations if (alias := statement.alias_of(each))}
    return any(column.table.lower() in aliases for column in tree.find_all(exp.Column) if column.table)


def _notes_of_ctes(statement: Statement, joins: Sequence[LookupJoin]) -> Iterator[str]:
    """The lookup joins that each reader of a CTE runs again."""
    for join in joins:
        if _is_read_again(statement, join) and not join.repeated:
            yield (
                f"the lookup join with {join.use.alias} is in a CTE that is read more than once, and that"
                " Spark can only compute for each that reads it"
            )
