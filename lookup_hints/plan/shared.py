"""Stars and names in a block whose FROM was written anew: private columns stay out of sight.

The columns of USING and NATURAL come once, and first; the dimension's own are found by qualifier only.
"""

from __future__ import annotations

from collections.abc import Iterator

from lookup_hints.plan.columns import own_stars
from lookup_hints.plan.conditions import KeyEquality
from lookup_hints.plan.draft import Draft, LookupJoin
from lookup_hints.plan.joins import refused
from lookup_hints.plan.reading import Statement
from lookup_hints.plan.splice import Cut, Edit
from lookup_hints.plan.structure import Block, Relation
from lookup_hints.plan.views import private_name
from lookup_hints.sqltext import quoted


def star_edits(draft: Draft, block: Block, joins: list[LookupJoin], hidden: list[str]) -> Iterator[Edit]:
    """The edits of each ``*`` of the block: without ``hidden`` columns, shared columns first."""
    statement = draft.statement
    first = _shared_first(draft, block, joins)
    without = [f"{_qualifier(join)}.{private_name(key.column)}" for join, key in _shared(joins)]
    if not (first or hidden):
        return
    for index in own_stars(statement, block):
        _refuse_inner_order(statement, block, joins)
        yield from _star(statement, index, first, [*without, *hidden])


def star_of_all(draft: Draft, block: Block, joins: list[LookupJoin], hidden: list[str]) -> str | None:
    """What ``*`` is in a block without a SELECT, or None where it is just that."""
    first = list(_shared_first(draft, block, joins).values())
    without = [f"{_qualifier(join)}.{private_name(key.column)}" for join, key in _shared(joins)]
    if not first:
        return None
    return ", ".join([*first, f"* EXCEPT ({', '.join([*first, *without, *hidden])})"])


def _refuse_inner_order(statement: Statement, block: Block, joins: list[LookupJoin]) -> None:
    """In parentheses behind other relations, shared columns come first among their own columns only."""
    in_order = list(block.steps)
    for join in joins:
        if join.conditions.shared_keys and join.use.step not in in_order:
            reason = "it joins by USING or NATURAL in parentheses, under a *; list the columns, or write ON"
            raise refused(statement, join.use, join.at, reason)


def _star(statement: Statement, index: int, first: dict[str, str], without: list[str]) -> Iterator[Edit]:
    tokens = statement.tokens
    star = statement.pieces[index]
    given: set[str] = set()
    has_list = tokens.is_word(index + 1, "EXCEPT") and tokens.is_symbol(index + 2, "(")
    if has_list:
        inside = range(index + 3, tokens.closing(index + 2))
        given = {tokens.pieces[at].name.lower() for at in inside if tokens.pieces[at].is_name}
    leading = [text for name, text in first.items() if name not in given]
    if leading:
        yield Edit(Cut(star.start, star.start), (f"{', '.join(leading)}, ",))
    names = ", ".join([*leading, *without])
    if not names:
        return
    if has_list:
        end = tokens.pieces[index + 2].end
        yield Edit(Cut(end, end), (f"{names}, ",))
    else:
        yield Edit(Cut(star.end, star.end), (f" EXCEPT ({names})",))


def _shared_first(draft: Draft, block: Block, joins: list[LookupJoin]) -> dict[str, str]:
    """The names of USING columns, in the order in which ``*`` gives them: those of the last join first.

    With how each is written: by its qualifier where a lookup table shares it, as relations that come
    later may have such a column too.
    """
    by_relation = {join.use.relation: join for join in joins}
    if not any(key.shared for join in joins for key in join.conditions.keys):
        return {}
    names: dict[str, str] = {}
    for step in reversed(list(block.steps)):
        join = None if step.right is None else by_relation.get(step.right)
        own = [draft.statement.pieces[at].name for at in step.using]
        if join is not None and not own:
            own = [key.column for key in join.conditions.shared_keys]
        for name in own:
            written = quoted(name) if join is None else _on_the_left(draft, join, name)
            names.setdefault(name.lower(), written)
    return names


def _on_the_left(draft: Draft, join: LookupJoin, name: str) -> str:
    """A shared column by the relation on the left of ``join`` that has it."""
    for relation in _before(join):
        alias = draft.statement.alias_of(relation)
        for column in draft.analysis.columns_of(relation) or ():
            if alias is not None and column.lower() == name.lower():
                is_merged = _is_merged(draft.statement, join, name)
                return quoted(column) if is_merged else f"{quoted(alias)}.{quoted(column)}"
    return quoted(name)


def _before(join: LookupJoin) -> Iterator[Relation]:
    """The relations on the left of ``join`` in its chain."""
    for relation in join.use.chain.relations if join.use.chain is not None else ():
        if relation is join.use.relation:
            return
        yield relation


def _is_merged(statement: Statement, join: LookupJoin, name: str) -> bool:
    """Whether a join before it shares the column already: no relation has it by itself then."""
    for step in join.use.chain.steps if join.use.chain is not None else ():
        if step is join.use.step:
            return False
        if any(statement.pieces[at].name.lower() == name.lower() for at in step.using):
            return True
    return False


def _shared(joins: list[LookupJoin]) -> Iterator[tuple[LookupJoin, KeyEquality]]:
    """The columns of USING that the joins' own relations have under private names."""
    for join in joins:
        for key in join.conditions.shared_keys:
            if not join.is_semi and key.column in join.columns:
                yield join, key


def _qualifier(join: LookupJoin) -> str:
    return quoted(join.use.alias)


def shared_edits(draft: Draft, block: Block, joins: list[LookupJoin]) -> Iterator[Edit]:
    """The edits of ``c.id`` and ``c.*``, where ``c`` has ``id`` under a private name, and of ``o.*``."""
    for join, key in _shared(joins):
        yield from _own_names(draft.statement, block, join, key)
    for join in joins:
        keys = join.conditions.shared_keys
        if not keys:
            continue
        private = [key for key in keys if not join.is_semi and key.column in join.columns]
        if private:
            yield from _own_stars(draft.statement, block, join, private)
        yield from _left_stars(draft, block, join, keys)


def _own_names(statement: Statement, block: Block, join: LookupJoin, key: KeyEquality) -> Iterator[Edit]:
    name = join.names.columns[join.use.table.schema.names.index(key.column)]
    for index in _qualified(statement, block, join.use.alias):
        piece = statement.pieces[index]
        if not piece.is_name or piece.name.lower() != name.lower():
            continue
        new = private_name(key.column)
        if _is_whole_item(statement, index):
            new += f" AS {quoted(piece.name)}"
        yield Edit(Cut(piece.start, piece.end), (new,))


def _qualified(statement: Statement, block: Block, alias: str) -> Iterator[int]:
    """Indices of what stands behind ``alias.`` in the block."""
    tokens = statement.tokens
    for index in range(block.first + 2, block.last + 1):
        qualifier = tokens.pieces[index - 2]
        is_qualified = tokens.is_symbol(index - 1, ".") and not tokens.is_symbol(index - 3, ".")
        is_named = is_qualified and qualifier.is_name and qualifier.name.lower() == alias.lower()
        if is_named and not _is_hidden(statement, block, index, alias):
            yield index


def _is_hidden(statement: Statement, block: Block, index: int, alias: str) -> bool:
    """Whether a query inside ``block``, at the piece, has a relation of the same name."""
    holding = [
        each
        for each in statement.structure.blocks
        if each is not block and block.first <= each.first <= index <= each.last <= block.last
    ]
    names = (statement.alias_of(relation) for each in holding for relation in each.relations)
    return any(name is not None and name.lower() == alias.lower() for name in names)


def _is_whole_item(statement: Statement, index: int) -> bool:
    """Whether the qualified name that ends at ``index`` is an item of a SELECT list by itself, unnamed."""
    tokens = statement.tokens
    before, after = index - 3, index + 1
    if _is_field(statement, index):
        return True
    ends = tokens.is_symbol(after, ",") or tokens.is_word(after, "FROM") or tokens.after(after) is None
    return ends and _is_in_list(statement, before, tokens.depth(index))


def _is_field(statement: Statement, index: int) -> bool:
    """Whether the qualified name is a whole argument of STRUCT, which takes its name for the field's."""
    tokens = statement.tokens
    opening, depth = index - 3, tokens.depth(index)
    ends = tokens.is_symbol(index + 1, ",") or tokens.is_symbol(index + 1, ")")
    if not ends or not (tokens.is_symbol(opening, ",") or tokens.is_symbol(opening, "(")):
        return False
    while opening > 0 and not (tokens.is_symbol(opening, "(") and tokens.depth(opening) < depth):
        opening -= 1
    return tokens.is_word(opening - 1, "STRUCT")


def _is_in_list(statement: Statement, index: int, depth: int) -> bool:
    """Whether a SELECT list goes on behind the piece."""
    tokens = statement.tokens
    if tokens.is_word(index, "SELECT", "DISTINCT", "ALL"):
        return True
    if not tokens.is_symbol(index, ","):
        return False
    for earlier in range(index, -1, -1):
        if tokens.depth(earlier) < depth:
            return False
        if tokens.depth(earlier) == depth and tokens.is_word(earlier, "SELECT", "FROM", "WHERE", "BY", "ON"):
            return tokens.is_word(earlier, "SELECT")
    return False


def _own_stars(
    statement: Statement, block: Block, join: LookupJoin, keys: list[KeyEquality]
) -> Iterator[Edit]:
    """``c.*``: its shared columns come first, under their own names."""
    qualifier = _qualifier(join)
    every = join.use.table.schema.names
    shown = [quoted(join.names.columns[every.index(key.column)]) for key in keys]
    first = "".join(
        f"{qualifier}.{private_name(key.column)} AS {name}, " for key, name in zip(keys, shown, strict=True)
    )
    without = ", ".join(private_name(key.column) for key in keys)
    for index in _qualified(statement, block, join.use.alias):
        if statement.tokens.is_symbol(index, "*"):
            start, end = statement.pieces[index - 2].start, statement.pieces[index].end
            yield Edit(Cut(start, start), (first,))
            yield Edit(Cut(end, end), (f" EXCEPT ({without})",))


def _left_stars(draft: Draft, block: Block, join: LookupJoin, keys: list[KeyEquality]) -> Iterator[Edit]:
    """``o.*``, where ``o`` has the shared columns, but not first."""
    statement = draft.statement
    for relation in _before(join):
        alias = statement.alias_of(relation)
        if alias is None or not _comes_later(draft, relation, keys):
            continue
        columns = {name.lower(): name for name in draft.analysis.columns_of(relation) or ()}
        names = [quoted(columns[key.column.lower()]) for key in keys]
        for index in _qualified(statement, block, alias):
            if statement.tokens.is_symbol(index, "*"):
                start, end = statement.pieces[index - 2].start, statement.pieces[index].end
                yield Edit(Cut(start, start), ("".join(f"{quoted(alias)}.{name}, " for name in names),))
                yield Edit(Cut(end, end), (f" EXCEPT ({', '.join(names)})",))


def _comes_later(draft: Draft, relation: Relation, keys: list[KeyEquality]) -> bool:
    """Whether the relation has the shared columns, and other columns before them."""
    columns = [name.lower() for name in draft.analysis.columns_of(relation) or ()]
    wanted = [key.column.lower() for key in keys]
    return set(wanted) <= set(columns) and columns[: len(wanted)] != wanted
