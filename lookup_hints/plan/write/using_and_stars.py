"""Stars and names in a block whose FROM was written again: private columns stay out of sight.

The columns of USING and NATURAL come once, and first; the right side's own are found by qualifier only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lookup_hints.plan.column_pruning import leaving_out, own_stars
from lookup_hints.plan.joins import LookupJoin
from lookup_hints.plan.parse.query_blocks import Block, Chain, Relation, Step
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import Analysis
from lookup_hints.plan.write.lateral_view import visible_name
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.text_edits import Cut, Edit


@dataclass(frozen=True)
class Merged:
    """A join by USING or NATURAL whose right side has its shared columns under private names.

    Args:
        join: the lookup join that made them private: itself, or a later one packed with it.
        step: the join itself.
        alias: the alias of its right side.
        left: the relations on its left.
        columns: the shared columns, in output order.
        private: the private name of each shared column of the right side, by its name there.
        own: the pieces, from first to last index, in which the right side still has its own names.
    """

    join: LookupJoin
    step: Step
    alias: str
    left: tuple[Relation, ...]
    columns: tuple[str, ...]
    private: Mapping[str, str]
    own: tuple[int, int] = (0, -1)

    @property
    def qualifier(self) -> str:
        return quoted(self.alias)


def merged_by(join: LookupJoin) -> Merged | None:
    """The columns that a lookup join shares by USING or NATURAL; None for other joins."""
    keys, step = join.conditions.shared_keys, join.use.step
    if not keys or step is None:
        return None
    every = join.use.table.schema.names
    private = {
        join.use.names.columns[every.index(key.column)]: visible_name(join, key.column)
        for key in keys
        if not join.is_semi and key.column in join.columns
    }
    columns = tuple(join.use.names.columns[every.index(key.column)] for key in keys)
    return Merged(join, step, join.use.alias, tuple(join.left), columns, private)


def star_edits(analysis: Analysis, block: Block, merged: list[Merged], hidden: list[str]) -> Iterator[Edit]:
    """The edits of each ``*`` of the block: without ``hidden`` columns, shared columns first."""
    statement = analysis.statement
    stars = list(own_stars(statement, block))
    if not stars:
        return  # saves a trip to Spark for the columns
    first = _shared_first(analysis, block, merged)
    if not (first or hidden):
        return
    for index in stars:
        _refuse_inner_order(block, merged)
        yield from _edit_star(statement, index, first, [*_private_columns(merged), *hidden])


def star_of_all(analysis: Analysis, block: Block, merged: list[Merged], hidden: list[str]) -> str | None:
    """The list that replaces ``*`` in a block without a SELECT; None if ``*`` can stay."""
    first = list(_shared_first(analysis, block, merged).values())
    if not first:
        return None
    return ", ".join([*first, f"* EXCEPT ({', '.join([*first, *_private_columns(merged), *hidden])})"])


def _private_columns(merged: list[Merged]) -> Iterator[str]:
    """The columns that no ``*`` shows."""
    for each in merged:
        yield from (f"{each.qualifier}.{private}" for private in each.private.values())


def _refuse_inner_order(block: Block, merged: list[Merged]) -> None:
    """In parentheses behind other relations, shared columns come first among their own columns only."""
    in_order = list(block.steps)
    for each in merged:
        if each.step not in in_order:
            reason = "USING or NATURAL is in parentheses, under a *"
            raise each.join.use.refused(each.join.at, reason, "list the columns, or write ON")


def _edit_star(statement: Statement, index: int, first: dict[str, str], without: list[str]) -> Iterator[Edit]:
    tokens = statement.tokens
    star = statement.pieces[index]
    inside = tokens[index + 3 : tokens.except_list(index) or 0]
    given = {piece.name.lower() for piece in inside if piece.is_name}
    leading = [text for name, text in first.items() if name not in given]
    if leading:
        yield Edit(Cut(star.start, star.start), (f"{', '.join(leading)}, ",))
    names = ", ".join([*leading, *without])
    if not names:
        return
    yield leaving_out(statement, index, names)


def _shared_first(analysis: Analysis, block: Block, merged: list[Merged]) -> dict[str, str]:
    """The names of USING columns in the order of ``*``: those of the last join first.

    Each with its text: qualified if its right side has a private one, as later relations may have a column
    of that name.
    """
    if not merged:
        return {}
    by_step = {each.step: each for each in merged}
    shared = _SharedOrder(analysis, block, merged).names
    names: dict[str, str] = {}
    for step in reversed(list(block.steps)):
        found = by_step.get(step)
        for name in shared.get(step, ()):
            written = quoted(name) if found is None else _on_the_left(analysis, found, name)
            names.setdefault(name.lower(), written)
    return names


def _on_the_left(analysis: Analysis, merged: Merged, name: str) -> str:
    """A shared column by the relation on the left that has it."""
    for relation in merged.left:
        alias = analysis.statement.alias_of(relation)
        for column in analysis.columns_of(relation) or ():
            if alias is not None and column.lower() == name.lower():
                is_merged = _is_merged(analysis.statement, merged, name)
                return quoted(column) if is_merged else f"{quoted(alias)}.{quoted(column)}"
    return quoted(name)


def _is_merged(statement: Statement, merged: Merged, name: str) -> bool:
    """Whether a RIGHT or FULL join before it shares the column: no relation on the left has it then."""
    chain = merged.join.use.chain
    for step in chain.steps if chain is not None else ():
        if step is merged.step:
            return False
        is_changed = "RIGHT" in step.words or "FULL" in step.words
        if is_changed and any(statement.pieces[at].name.lower() == name.lower() for at in step.using):
            return True
    return False


def shared_edits(analysis: Analysis, block: Block, merged: list[Merged]) -> Iterator[Edit]:
    """The edits of ``c.id``, where ``c`` has ``id`` under a private name, and of ``c.*`` and ``o.*``."""
    for each in merged:
        for name, private in each.private.items():
            yield from _own_names(analysis.statement, block, each, name, private)
    if not merged or not _has_qualified_star(analysis.statement, block):
        return
    for alias, shown in _shown_first(analysis, block, merged).items():
        yield from _qualified_stars(analysis.statement, block, alias, shown)


def _has_qualified_star(statement: Statement, block: Block) -> bool:
    tokens = statement.tokens
    return any(
        tokens.is_symbol(index, "*") and tokens.is_symbol(index - 1, ".")
        for index in range(block.first, block.last + 1)
    )


def short_names(statement: Statement, block: Block) -> Iterator[Edit]:
    """The edits of ``db.t.x``, which is ``t.x`` where ``t`` came out of a derived table."""
    tokens, pieces = statement.tokens, statement.pieces
    aliases = {alias.lower() for each in block.relations if (alias := statement.alias_of(each))}
    tables = {
        alias.lower()
        for each in block.relations
        if each.alias_at is None and (alias := statement.alias_of(each))
    }
    for index in range(block.first + 2, block.last):
        is_between = tokens.is_symbol(index - 1, ".") and tokens.is_symbol(index + 1, ".")
        if not (is_between and pieces[index].is_name and pieces[index].name.lower() in tables):
            continue
        first = index
        while tokens.is_symbol(first - 1, ".") and first - 2 >= block.first:
            first -= 2
        # An alias in front makes it a field of a column that is called like the table.
        if pieces[first].name.lower() not in aliases:
            yield Edit(Cut(pieces[first].start, pieces[index].start), ("",))


def _own_names(statement: Statement, block: Block, merged: Merged, name: str, private: str) -> Iterator[Edit]:
    for index in qualified_names(statement, block, merged.alias):
        piece = statement.pieces[index]
        if not statement.tokens.names(index, name) or _is_own(merged, index):
            continue
        if _is_in_order_of_distinct(statement, block, index):
            # There Spark resolves only selected columns, by their output names.
            yield Edit(Cut(statement.pieces[index - 2].start, piece.end), (quoted(piece.name),))
            continue
        new = f"{private} AS {quoted(piece.name)}" if is_whole_item(statement, index) else private
        yield Edit(Cut(piece.start, piece.end), (new,))


def _is_in_order_of_distinct(statement: Statement, block: Block, index: int) -> bool:
    tokens = statement.tokens
    depth = tokens.depth(block.first)
    return block.distinct and any(
        tokens.is_word(at, "ORDER") and tokens.is_word(at + 1, "BY") and tokens.depth(at) == depth
        for at in range(block.first, index)
    )


def _is_own(merged: Merged | None, index: int) -> bool:
    return merged is not None and merged.own[0] <= index <= merged.own[1]


def qualified_names(statement: Statement, block: Block, alias: str) -> Iterator[int]:
    """Indices of names and stars after ``alias.`` in the block, but for inner queries that have the alias."""
    tokens = statement.tokens
    for index in range(block.first + 2, block.last + 1):
        is_qualified = tokens.is_symbol(index - 1, ".") and not tokens.is_symbol(index - 3, ".")
        if (
            is_qualified
            and tokens.names(index - 2, alias)
            and not _is_shadowed(statement, block, index, alias)
        ):
            yield index


def _is_shadowed(statement: Statement, block: Block, index: int, alias: str) -> bool:
    """Whether a query inside ``block``, at the piece, has a relation of the same name."""
    holding = [
        each
        for each in statement.structure.blocks
        if each is not block and block.first <= each.first <= index <= each.last <= block.last
    ]
    names = (statement.alias_of(relation) for each in holding for relation in each.relations)
    return any(name is not None and name.lower() == alias.lower() for name in names)


def is_whole_item(statement: Statement, index: int, length: int = 3) -> bool:
    """Whether the name of ``length`` pieces that ends at ``index`` is an item of a SELECT list, unnamed."""
    tokens = statement.tokens
    before, after = index - length, index + 1
    if _is_field(statement, index, before):
        return True
    following = tokens.piece_at(after)
    ends = following is None or following.text in (",", ")", "|>") or tokens.is_word(after, "FROM", "GROUP")
    return ends and _is_in_list(statement, before, tokens.depth(index))


def _is_field(statement: Statement, index: int, before: int) -> bool:
    """Whether the name is a whole field of ``STRUCT(a, b)`` or ``(a, b)``, which takes its name."""
    tokens = statement.tokens
    opening, depth = before, tokens.depth(index)
    ends = tokens.is_symbol(index + 1, ",") or tokens.is_symbol(index + 1, ")")
    if not ends or not (tokens.is_symbol(opening, ",") or tokens.is_symbol(opening, "(")):
        return False
    while opening > 0 and not (tokens.is_symbol(opening, "(") and tokens.depth(opening) < depth):
        opening -= 1
    is_alone = opening == before and tokens.is_symbol(index + 1, ")")
    return tokens.is_word(opening - 1, "STRUCT") or (not is_alone and _is_row(statement, opening, depth))


def _is_row(statement: Statement, opening: int, depth: int) -> bool:
    """Whether a row in parentheses opens there: an item of a SELECT list, or the first argument of a call."""
    tokens = statement.tokens
    if not tokens.is_symbol(opening - 1, "("):
        return _is_in_list(statement, opening - 1, depth - 1)
    called = tokens[opening - 2] if opening > 1 else None
    return called is not None and called.is_name and not called.is_word(*_BEFORE_LISTS)


_BEFORE_LISTS = ("BY", "CUBE", "EXISTS", "IN", "OVER", "ROLLUP", "SETS", "USING", "VALUES")


def _is_in_list(statement: Statement, index: int, depth: int) -> bool:
    """Whether a list whose items are columns of the result goes on behind the piece."""
    tokens = statement.tokens
    if tokens.is_word(index, "DISTINCT", "ALL") or _opens_list(statement, index):
        return True
    if not tokens.is_symbol(index, ","):
        return False
    for earlier in range(index, -1, -1):
        if tokens.depth(earlier) < depth:
            return False
        if tokens.depth(earlier) == depth and (
            _opens_list(statement, earlier) or tokens.is_word(earlier, "FROM", "WHERE", "BY", "ON")
        ):
            return _opens_list(statement, earlier)
    return False


def _opens_list(statement: Statement, index: int) -> bool:
    """Whether the piece is a SELECT, or opens such a list of a pipe operator."""
    tokens = statement.tokens
    if tokens.is_word(index, "SELECT"):
        return True
    if tokens.is_word(index, "EXTEND", "AGGREGATE"):
        return tokens.is_symbol(index - 1, "|>")
    if not (tokens.is_word(index, "BY") and tokens.is_word(index - 1, "GROUP")):
        return False
    depth = tokens.depth(index)
    pipe = next(
        (at for at in range(index, -1, -1) if tokens.is_symbol(at, "|>") and tokens.depth(at) == depth), None
    )
    return pipe is not None and tokens.is_word(pipe + 1, "AGGREGATE")


@dataclass(frozen=True)
class _SharedColumn:
    """A shared column that comes first in ``alias.*``: its name, and its (maybe private) name inside.

    ``merged`` is the join that gave its side private names, if one did.
    """

    name: str
    inside: str
    merged: Merged | None


def _shown_first(
    analysis: Analysis, block: Block, merged: list[Merged]
) -> dict[str, dict[str, _SharedColumn]]:
    """For each relation, by its alias in lower case, the columns that come first, by name in lower case."""
    order = _SharedOrder(analysis, block, merged)
    of_right = {each.alias.lower(): each for each in merged}
    on_the_left = {relation for each in merged for relation in each.left}
    found: dict[str, dict[str, _SharedColumn]] = {}
    for relation in block.relations:
        alias = (analysis.statement.alias_of(relation) or "").lower()
        own = of_right.get(alias)
        names = order.first_of(relation)
        in_place = tuple(analysis.columns_of(relation) or ())[: len(names)]
        if own is None and (relation not in on_the_left or names == in_place):
            continue
        private = own.private if own is not None else {}
        found[alias] = {
            name.lower(): _SharedColumn(name, private.get(name, quoted(name)), own) for name in names
        }
    return found


def _qualified_stars(
    statement: Statement, block: Block, alias: str, shown: Mapping[str, _SharedColumn]
) -> Iterator[Edit]:
    """``c.*``: its shared columns come first, under their own names; but for those that EXCEPT names."""
    tokens = statement.tokens
    for index in qualified_names(statement, block, alias):
        firsts = {name: first for name, first in shown.items() if not _is_own(first.merged, index)}
        if not tokens.is_symbol(index, "*") or not firsts:
            continue
        end = tokens.except_list(index) or index
        given = _items(statement, index + 3, end) if end > index else {}
        start, qualifier = statement.pieces[index - 2].start, statement.pieces[index - 2].text
        leading = (
            f"{qualifier}.{first.inside} AS {quoted(first.name)}, "
            for name, first in firsts.items()
            if name not in given
        )
        without = [first.inside for first in firsts.values()]
        without += [text for name, text in given.items() if name not in firsts]
        yield Edit(Cut(start, start), ("".join(leading),))
        after = Cut(statement.pieces[index].end, statement.pieces[end].end)
        yield Edit(after, (f" EXCEPT ({', '.join(without)})",))


def _items(statement: Statement, first: int, end: int) -> dict[str, str]:
    """The items of a list of names: text by name, in lower case, without backquotes."""
    found: dict[str, str] = {}
    begin = first
    for index in range(first, end + 1):
        if index == end or statement.tokens.is_symbol(index, ","):
            parts = statement.pieces[begin:index]
            name = "".join(part.name if part.is_name else part.text for part in parts)
            found[name.lower()] = "".join(part.text for part in parts)
            begin = index + 1
    return found


# --- Spark's order ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Owned:
    """A column and the relation that it is from; None for one that a FULL JOIN makes of two."""

    relation: Relation | None
    name: str

    def is_called(self, name: str) -> bool:
        return self.name.lower() == name.lower()


@dataclass(frozen=True)
class _JoinedColumns:
    """The columns of some joined relations: those that ``*`` shows, and those that need a qualifier."""

    shown: tuple[_Owned, ...] = ()
    qualified: tuple[_Owned, ...] = ()

    def beside(self, right: _JoinedColumns) -> _JoinedColumns:
        return _JoinedColumns(self.shown + right.shown, self.qualified + right.qualified)

    def found(self, names: Sequence[str]) -> tuple[_Owned, ...]:
        """The first shown column of each of ``names``; one that none has belongs to no relation known."""
        return tuple(
            next((each for each in self.shown if each.is_called(name)), _Owned(None, name)) for name in names
        )

    def without(self, some: Sequence[_Owned]) -> tuple[_Owned, ...]:
        return tuple(each for each in self.shown if each not in some)


class _SharedOrder:
    """The columns of a block's FROM in Spark's order.

    Attributes:
        names: the shared columns of each join by USING or NATURAL.
    """

    def __init__(self, analysis: Analysis, block: Block, merged: Sequence[Merged]) -> None:
        self._analysis, self._block = analysis, block
        self._merged = {each.step: each.columns for each in merged}
        self.names: dict[Step, tuple[str, ...]] = {}
        self._shared = set[_Owned]()
        columns = _JoinedColumns()
        for chain in self._block.chains:
            columns = columns.beside(self._of_chain(chain))
        for pipe in self._block.pipes:
            if pipe.join is not None:
                columns = self._joined(columns, pipe.join)
        self._columns = columns

    def first_of(self, relation: Relation) -> tuple[str, ...]:
        """The shared columns of ``relation``, which come first in its star, in their order there."""
        return tuple(
            each.name
            for each in (*self._columns.qualified, *self._columns.shown)
            if each.relation is relation and each in self._shared
        )

    def _of_chain(self, chain: Chain) -> _JoinedColumns:
        columns = self._of_relation(chain.head)
        for step in chain.steps:
            columns = self._joined(columns, step)
        return columns

    def _of_relation(self, relation: Relation) -> _JoinedColumns:
        if relation.open_chain is not None:
            return self._of_chain(relation.open_chain)
        return _JoinedColumns(
            tuple(_Owned(relation, name) for name in self._analysis.columns_of(relation) or ())
        )

    def _joined(self, left: _JoinedColumns, step: Step) -> _JoinedColumns:
        if step.right is None:
            return left if step.pivoted is None else self._of_relation(step.pivoted)
        right = self._of_relation(step.right)
        names = self._names_of(step, left, right)
        if not names:
            return left if step.hides_right else left.beside(right)
        self.names[step] = names
        lefts, rights = left.found(names), right.found(names)
        self._shared |= {*lefts, *rights}
        first, hidden = lefts, rights
        if "RIGHT" in step.words:
            first, hidden = rights, lefts
        elif "FULL" in step.words:
            first, hidden = tuple(_Owned(None, name) for name in names), lefts + rights
        if step.hides_right:
            return _JoinedColumns(first + left.without(lefts), left.qualified)
        return _JoinedColumns(
            first + left.without(lefts) + right.without(rights),
            hidden + left.qualified + right.qualified,
        )

    def _names_of(self, step: Step, left: _JoinedColumns, right: _JoinedColumns) -> tuple[str, ...]:
        pieces = self._analysis.statement.pieces
        given = tuple(pieces[at].name for at in step.using) or self._merged.get(step, ())
        if given or "NATURAL" not in step.words:
            return given
        of_right = {each.name for each in right.shown}
        return tuple(each.name for each in left.shown if each.name in of_right)
