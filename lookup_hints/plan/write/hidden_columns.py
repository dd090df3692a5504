"""Columns that no star shows, as `_metadata` of files: a packed relation keeps those that are named.

``struct(o.*)`` drops them. So they go into the struct under private names, and the names behind it change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lookup_hints.plan.analysis import Analysis
from lookup_hints.plan.read.statement import Statement
from lookup_hints.plan.read.structure import Block, Relation
from lookup_hints.plan.refusal import refused
from lookup_hints.plan.write.from_part import Visible
from lookup_hints.plan.write.using import Merged, is_whole_item, leaving_out, qualified_names
from lookup_hints.plan.write.views import HIDDEN_PREFIX
from lookup_hints.sql.lexer import quoted
from lookup_hints.sql.splice import Cut, Edit

_OF_FILES = "_metadata"
"""Spark's own name, which stands without a qualifier, too."""


@dataclass(frozen=True)
class Concealed:
    """A packed relation with columns that its star does not show.

    Args:
        relation: the relation.
        alias: what it is called, as it is written.
        private: the private name of each such column.
        own: where they still have their own names: the pieces from the first to the last index.
    """

    relation: Relation
    alias: str
    private: Mapping[str, str]
    own: tuple[int, int]

    @property
    def qualified(self) -> list[str]:
        """The private names behind the alias."""
        return [f"{self.alias}.{private}" for private in self.private.values()]


def concealed_in(
    analysis: Analysis, block: Block, visible: Visible, own: tuple[int, int]
) -> Concealed | None:
    """What the block names of a relation outside ``own``, and its star does not show; None: nothing."""
    statement = analysis.statement
    alias = statement.alias_of(visible.relation)
    if alias is None or not analysis.knows:
        return None
    named = {
        statement.pieces[index].name: None
        for index in (*qualified_names(statement, block, alias), *_of_files(statement, block))
        if statement.pieces[index].is_name and not own[0] <= index <= own[1]
    }
    private = {
        name: quoted(f"{HIDDEN_PREFIX}{name}")
        for name in named
        if analysis.has_hidden(visible.relation, visible.alias, name)
    }
    return Concealed(visible.relation, visible.alias, private, own) if private else None


def concealed_edits(
    statement: Statement, block: Block, concealed: Sequence[Concealed], merged: Sequence[Merged]
) -> Iterator[Edit]:
    """The edits of the names of such columns, and of the stars of their relations."""
    for each in concealed:
        alias = statement.alias_of(each.relation) or ""
        for index in qualified_names(statement, block, alias):
            if statement.tokens.is_symbol(index, "*"):
                yield from _without_private(statement, index, each, merged)
            else:
                yield from _renamed(statement, index, each, 3)
        for index in _of_files(statement, block):
            yield from _renamed(statement, index, each, 1)


def _of_files(statement: Statement, block: Block) -> Iterator[int]:
    tokens = statement.tokens
    for index in tokens.places(_OF_FILES, block.first, block.last):
        if not tokens.is_symbol(index - 1, ".") and not tokens.is_symbol(index + 1, "("):
            yield index


def _renamed(statement: Statement, index: int, concealed: Concealed, length: int) -> Iterator[Edit]:
    piece = statement.pieces[index]
    by_name = {name.lower(): private for name, private in concealed.private.items()}
    private = by_name.get(piece.name.lower()) if piece.is_name else None
    if private is None or concealed.own[0] <= index <= concealed.own[1]:
        return
    qualifier = "" if length > 1 else f"{concealed.alias}."
    name = f" AS {quoted(piece.name)}" if is_whole_item(statement, index, length) else ""
    yield Edit(Cut(piece.start, piece.end), (f"{qualifier}{private}{name}",))


def _without_private(
    statement: Statement, index: int, concealed: Concealed, merged: Sequence[Merged]
) -> Iterator[Edit]:
    alias = statement.pieces[index - 2].name.lower()
    shares = next((each for each in merged if each.alias.lower() == alias), None)
    if shares is not None:
        reason = "USING or NATURAL gives columns to a relation of which a hidden one is named, too"
        raise refused(statement, shares.join.use, shares.join.at, reason, "list the columns, or write ON")
    yield leaving_out(statement, index, ", ".join(concealed.private.values()))
