"""Column pruning: fetch only the columns of a lookup table that a query block uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lookup_hints.plan.key_conditions import ColumnNames, Conjunct, KeyEquality, references
from lookup_hints.plan.parse.query_blocks import Block, Pipe
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.table_use import TableUse
from lookup_hints.sql.text_edits import Cut, Edit
from lookup_hints.sql.words import SET_WORDS


def used_columns(use: TableUse, keys: Sequence[KeyEquality] = ()) -> tuple[str, ...]:
    """The columns of ``use.table`` that its query block names, in the table's order.

    Errs towards too many: a word counts wherever it could be a column. The lookup table's side of a key
    equality does not count, as the connector evaluates it. A star counts as all columns. Never empty: if no
    column is named, the result is the first key column, or else the first column.
    """
    statement, names, every = use.statement, use.names, tuple(use.table.schema.names)
    if any(relation.alias_at is not None for relation in use.around) or _uses_all_columns(use):
        return every
    used = {
        column
        for called in names.columns
        for index in statement.named_in(use.block, called, use.alias)
        if (column := _column_at(statement, index, names)) is not None and not _is_key_side(use, index, keys)
    }
    return _used_or_one(every, used, keys)


def residual_columns(
    use: TableUse, residual: Iterable[Conjunct], keys: Sequence[KeyEquality]
) -> tuple[str, ...]:
    """The columns of ``use.table`` that ``residual`` names: all that a semi join needs."""
    used = {reference.column for conjunct in residual for reference in references(conjunct.tree, use.names)}
    return _used_or_one(tuple(use.table.schema.names), used, keys)


def _used_or_one(every: tuple[str, ...], used: set[str], keys: Sequence[KeyEquality]) -> tuple[str, ...]:
    least = keys[0].column if keys else every[0]
    return tuple(column for column in every if column in used) or (least,)


def _uses_all_columns(use: TableUse) -> bool:
    statement, block, names = use.statement, use.block, use.names
    if _selects_nothing_by_name(use) or statement.once(_hides_names, block):
        return True
    return statement.once(_has_star, block) or any(
        _is_star_of(statement, index, names) for index in statement.named_in(block, "*", names.alias)
    )


def _has_star(statement: Statement, block: Block) -> bool:
    return any(True for _ in stars(statement, block, block.last + 1))


def _selects_nothing_by_name(use: TableUse) -> bool:
    """Whether all columns come out for want of a SELECT behind the use."""
    block, tokens = use.block, use.statement.tokens
    if not block.pipes:
        return not block.selects
    if use.pipe is None and block.selects and block.selects[0] < use.index:
        return False
    for pipe in block.pipes:
        if pipe.first > use.index and tokens.is_word(pipe.first + 1, *SET_WORDS):
            return True
        if pipe.first > use.index and tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            return False
    return True


def _hides_names(statement: Statement, block: Block) -> bool:
    """Whether columns are used that the text does not name: by PIVOT, NATURAL or IDENTIFIER('c.zip')."""
    tokens = statement.tokens
    if any(step.right is None or "NATURAL" in step.words for step in block.steps):
        return True
    return any(
        tokens.is_symbol(index + 1, "(")
        and not any(index == relation.name_at for relation in block.relations)
        for word in ("IDENTIFIER", "PIVOT", "UNPIVOT")
        for index in tokens.places(word, block.first, block.last)
        if tokens.is_word(index, word)
    )


def own_stars(statement: Statement, block: Block) -> Iterator[int]:
    """Indices of the stars without a qualifier that mean all columns of the block's FROM."""
    return stars(statement, block, block.pipes[0].first if block.pipes else block.last + 1)


def stars(statement: Statement, block: Block, end: int) -> Iterator[int]:
    """Indices before ``end`` of the block's stars without a qualifier; not those of count(*)."""
    tokens = statement.tokens
    inner = statement.structure.queries_in(block)
    for index in tokens.places("*", block.first, end - 1):
        if not tokens.is_symbol(index, "*") or any(each.first <= index <= each.last for each in inner):
            continue
        opens = tokens.is_symbol(index - 1, "(") or tokens.is_symbol(index - 1, ",")
        begins = opens or tokens.is_word(index - 1, "SELECT", "DISTINCT", "ALL")
        if begins and not _is_count_star(statement, index):
            yield index


def leaving_out(statement: Statement, index: int, names: str) -> Edit:
    """The edit that leaves columns out of the star at ``index``, beside those that its EXCEPT names."""
    tokens, star = statement.tokens, statement.pieces[index]
    if tokens.except_list(index) is not None:
        end = tokens[index + 2].end
        return Edit(Cut(end, end), (f"{names}, ",))
    return Edit(Cut(star.end, star.end), (f" EXCEPT ({names})",))


def _is_count_star(statement: Statement, index: int) -> bool:
    tokens = statement.tokens
    opening = index - 2 if tokens.is_word(index - 1, "ALL") else index - 1
    called = tokens.piece_at(opening - 1)
    is_count = called is not None and called.is_name and called.name.upper() == "COUNT"
    return is_count and tokens.is_symbol(opening, "(") and tokens.is_symbol(index + 1, ")")


def _is_star_of(statement: Statement, index: int, names: ColumnNames) -> bool:
    """Whether the star is ``c.*``, or qualified by a name that ``|> AS`` gave to all columns."""
    tokens = statement.tokens
    before = tokens.piece_at(index - 2)
    if before is None or not tokens.is_symbol(index - 1, "."):
        return False
    return before.name.lower() == names.alias.lower() or before.name.lower() in statement.given_to_all


def _column_at(statement: Statement, index: int, names: ColumnNames) -> str | None:
    tokens = statement.tokens
    piece = statement.pieces[index]
    column = names.own_name(piece.name) if piece.is_name else None
    if column is None or tokens.is_word(index - 1, "AS"):
        return None
    qualifier = tokens.piece_at(index - 2) if tokens.is_symbol(index - 1, ".") else None
    if qualifier is not None and not tokens.is_symbol(index - 3, ".") and names.is_other(qualifier.name):
        return None
    return column


def _is_key_side(use: TableUse, index: int, keys: Sequence[KeyEquality]) -> bool:
    """Whether the piece is the dimension's side of a key equality, or names the table itself."""
    if use.relation.first <= index <= use.relation.last:
        return True
    start = use.statement.pieces[index].start
    place = Cut(start, start + 1)
    return any(
        key.whole.holds(place)
        and not (isinstance(key.left, Cut) and key.left.holds(place) and not key.shared)
        for key in keys
        if not key.kept
    )


# --- pipe operators ---------------------------------------------------------------------------------


def last_of_projection(statement: Statement, block: Block, join: Pipe) -> int | None:
    """Index of the last piece of the operator after ``join`` that selects columns by name, or None.

    Also None if a star, or another operator that changes the columns, comes before its end.
    """
    for pipe in block.pipes[block.pipes.index(join) + 1 :]:
        if statement.tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            has_star = any(at > join.last for at in stars(statement, block, pipe.last + 1))
            return None if has_star else pipe.last
        if not _pipe_keeps_columns(statement, pipe):
            return None
    return None


def is_projected(statement: Statement, block: Block) -> bool:
    """Whether a pipe operator selects columns by name before private ones are seen."""
    tokens = statement.tokens
    for pipe in block.pipes:
        if tokens.is_word(pipe.first + 1, "SELECT", "AGGREGATE"):
            return not any(at > pipe.first for at in stars(statement, block, pipe.last + 1))
        if not _pipe_keeps_columns(statement, pipe):
            return False
    return False


def last_before_columns(statement: Statement, block: Block) -> int:
    """Index of the last piece of FROM and the pipe operators behind it that leave its columns as they are.

    So far a column of USING can be named by its qualifier.
    """
    assert block.source is not None
    last = max(block.source.last, block.views_last)
    for pipe in block.pipes:
        if not _pipe_keeps_columns(statement, pipe):
            break
        last = pipe.last
    return last


def _pipe_keeps_columns(statement: Statement, pipe: Pipe) -> bool:
    """Whether the columns so far stay first, in their order, with their qualifiers."""
    if pipe.join is not None:
        return not (pipe.join.using or "NATURAL" in pipe.join.words)
    return statement.tokens.is_word(
        pipe.first + 1, "WHERE", "ORDER", "LIMIT", "OFFSET", "TABLESAMPLE", "EXTEND"
    )
