"""``EXECUTE IMMEDIATE``: its inner statement is planned like any other, and Spark binds the values.

So each rewritten text reaches Spark inside an EXECUTE IMMEDIATE with the user's own USING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lookup_hints.sql.lexer import Piece, comma_groups, text_value
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import named_parameters


@dataclass(frozen=True)
class Immediate:
    """The values of a statement that EXECUTE IMMEDIATE runs.

    Args:
        using: the expressions after USING, each with a name.
        into: the variables after INTO, which receive the row.
        args: the values of parameter markers in ``using``.
    """

    using: str = field(repr=False)
    into: str = ""
    args: Mapping[str, Any] | None = field(default=None, repr=False)

    def running(self, text: str, *, into: bool = False) -> str:
        """The statement that runs ``text`` with these values, and keeps its row where ``into`` says so."""
        target = f" INTO {self.into}" if into and self.into else ""
        using = f" USING {self.using}" if self.using else ""
        return f"EXECUTE IMMEDIATE {text_value(text)}{target}{using}"


def read_immediate(
    text: SqlText, args: Mapping[str, Any] | Sequence[Any] | None, value_of: Callable[[str, Any], object]
) -> tuple[SqlText, Immediate | None] | None:
    """The statement that ``text`` runs, and its values, if any; None where it is no EXECUTE IMMEDIATE."""
    if len(text.code) < 3 or not text.code.are_words(0, "EXECUTE", "IMMEDIATE"):
        return None
    if args is not None and not isinstance(args, Mapping):
        text, args = named_parameters(text, args)
    found = text.code.before_semicolons
    count = len(found)
    into, using = (
        next((at for at in range(count) if found.depth(at) == 0 and found.is_word(at, word)), count)
        for word in ("INTO", "USING")
    )
    end = min(into, using)
    if end < 3:
        return None
    inner = value_of(_text_of(text, found[2:end]), args)
    if not isinstance(inner, str) or not inner.strip():
        return None
    statement = SqlText(inner)
    targets, given = found[into + 1 : using if using > into else count], found[using + 1 :]
    if not targets and not given:
        return statement, None
    inside = [group for _, group in comma_groups(given)] if given else []
    if len(inside) == 1 and given[0].is_symbol("(") and given[-1].is_symbol(")"):
        inside = [group for _, group in comma_groups(given[1:-1])]
    values = [_text_of(text, group) for group in inside]
    if any(piece.is_symbol("?") for piece in statement.code):
        statement, _ = named_parameters(statement, values)
        values = [f"{value} AS __p{number}" for number, value in enumerate(values)]
    return statement, Immediate(", ".join(values), _text_of(text, targets), args)


def _text_of(text: str, found: Sequence[Piece]) -> str:
    return text[found[0].start : found[-1].end] if found else ""
