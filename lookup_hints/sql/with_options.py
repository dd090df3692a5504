"""Find and read lists of options in ``WITH (...)`` and ``OPTIONS (...)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_hints.sql.cursor import Cursor
from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.tokens import Tokens


@dataclass(frozen=True)
class ListedOption:
    """One option as a list gives it: the pieces of its key, a string or a name with dots, and its value."""

    key_pieces: Sequence[Piece]
    has_sign: bool
    value: Piece

    @property
    def key(self) -> str:
        first = self.key_pieces[0]
        return first.value if first.kind is Kind.STRING else ".".join(each.name for each in self.key_pieces)

    @property
    def text(self) -> str:
        """The value of the option."""
        return self.value.value if self.value.kind is Kind.STRING else self.value.text


def read_option_list(reader: Cursor) -> Iterator[ListedOption]:
    """Read ``'key' = 'value', ...)``, and Spark's variants: ``key.with.dots 'value'``, and ``==``.

    Raises:
        Unreadable: the text is anything else.
    """
    while not reader.symbol(")"):
        is_string = reader.peek().kind is Kind.STRING
        key = [reader.take()] if is_string else reader.dotted_name("The name of an option")
        sign = reader.symbol("=") or reader.symbol("==")
        yield ListedOption(key, sign, reader.take())
        if not reader.is_symbol(")"):
            reader.expect(",", "or ')' after an option")


def option_lists(found: Tokens) -> Iterator[Sequence[Piece]]:
    """The pieces after the parenthesis of each ``WITH ('key' = ...)`` and ``OPTIONS ('key' = ...)``."""
    for at, piece in enumerate(found):
        opens = piece.is_word("WITH", "OPTIONS") and found.is_symbol(at + 1, "(")
        if opens and found.is_symbol(at + 3, "=") and found[at + 2].kind is Kind.STRING:
            yield found[at + 2 : found.closing(at + 1) + 1]
