"""The code of a text, and what its readers ask at an index: words, parentheses, clauses, ends of operands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Protocol

from lookup_hints.sql.lexer import Kind, Piece
from lookup_hints.sql.text_edits import Cut
from lookup_hints.sql.words import CLAUSE_WORDS, ORDER_WORDS, QUERY_WORDS, SET_WORDS

_UNITS = tuple(
    f"{unit}{plural}"
    for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
    for plural in ("", "S")
)

# Words that may precede a literal of time.
_TYPES_OF_TIME = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "DATE")

_OPERATORS = ("+", "-", "*", "/", "%", "||")


class HasPlace(Protocol):
    """A stretch of the text, from one piece to another."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


class Tokens(tuple[Piece, ...]):
    """The code pieces of a text, no comments and no hints, with what can be asked at an index.

    ``SqlText.code`` is one, so parentheses are matched once for each text.

    >>> from lookup_hints.sql.sql_text import SqlText
    >>> tokens = SqlText("SELECT f(a, (b)) FROM t").code
    >>> tokens.closing(2), tokens.depth(3), tokens.is_word(9, "FROM")
    (8, 1, True)
    """

    @cached_property
    def _piece_starts(self) -> list[int]:
        return [piece.start for piece in self]

    @cached_property
    def _parenthesis_depths(self) -> list[int]:
        """For each piece how many parentheses are open around it; a parenthesis counts as outside itself."""
        depths, depth = [], 0
        for piece in self:
            if piece.is_symbol(")"):
                depth -= 1
            depths.append(depth)
            if piece.is_symbol("("):
                depth += 1
        return depths

    @cached_property
    def _parenthesis_closings(self) -> dict[int, int]:
        """For each parenthesis that is closed the index of the one that closes it."""
        opened: list[int] = []
        closings: dict[int, int] = {}
        for index, piece in enumerate(self):
            if piece.is_symbol("("):
                opened.append(index)
            elif piece.is_symbol(")") and opened:
                closings[opened.pop()] = index
        return closings

    @property
    def has_matched_parentheses(self) -> bool:
        count = sum(piece.is_symbol("(") or piece.is_symbol(")") for piece in self)
        return count == 2 * len(self._parenthesis_closings)

    @property
    def before_semicolons(self) -> Tokens:
        """All but the semicolons at the end."""
        count = len(self)
        while self.is_symbol(count - 1, ";"):
            count -= 1
        return self if count == len(self) else Tokens(self[:count])

    def index_at(self, offset: int) -> int:
        return bisect_right(self._piece_starts, offset) - 1

    def depth(self, index: int) -> int:
        """How many parentheses are open around the piece."""
        return self._parenthesis_depths[index]

    def piece_at(self, index: int) -> Piece | None:
        """The piece at ``index``, or None outside the text."""
        return self[index] if 0 <= index < len(self) else None

    def is_word(self, index: int, *words: str) -> bool:
        """Whether the piece at ``index`` is there and one of ``words``."""
        return 0 <= index < len(self) and self[index].is_word(*words)

    def are_words(self, index: int, *words: str) -> bool:
        """Whether ``words`` follow one another from ``index`` on."""
        return all(self.is_word(at, word) for at, word in enumerate(words, index))

    def is_symbol(self, index: int, symbol: str) -> bool:
        """Whether the piece at ``index`` is there and is ``symbol``."""
        return 0 <= index < len(self) and self[index].is_symbol(symbol)

    def is_name(self, index: int) -> bool:
        """Whether the piece at ``index`` is there and is a name, in backquotes or not."""
        return 0 <= index < len(self) and self[index].is_name

    def starts_dotted_name(self, index: int) -> bool:
        """Whether the piece at ``index`` is the first of a name with dots."""
        return self.is_name(index) and self.is_dot(index + 1) and not self.is_symbol(index - 1, ".")

    def except_list(self, star: int) -> int | None:
        """Index of the parenthesis that closes ``EXCEPT (...)`` after the star at ``star``, or None."""
        has_list = self.is_word(star + 1, "EXCEPT") and self.is_symbol(star + 2, "(")
        return self.closing(star + 2) if has_list else None

    def names(self, index: int, name: str) -> bool:
        """Whether the piece at ``index`` is there, and is ``name`` in any case, in backquotes or not."""
        return self.is_name(index) and self[index].name.lower() == name.lower()

    def places(self, text: str, first: int, last: int) -> Iterator[int]:
        """Indices from ``first`` to ``last`` of the pieces ``text``, in any case, in backquotes or not."""
        found = self._indices_by_name.get(text.lower(), [])
        return iter(found[bisect_left(found, first) : bisect_right(found, last)])

    @cached_property
    def _indices_by_name(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for index, piece in enumerate(self):
            found[piece.name.lower()].append(index)
        return found

    def closing(self, index: int) -> int:
        """Index of the parenthesis that closes the one at ``index``; of the last piece if none does."""
        return self._parenthesis_closings.get(index, len(self) - 1)

    def closing_if_any(self, index: int) -> int | None:
        """Index of the parenthesis that closes the one at ``index``; None if none does."""
        return self._parenthesis_closings.get(index)

    def cut(self, first: int, last: int) -> Cut:
        return Cut(self[first].start, self[last].end)

    def place(self, part: HasPlace) -> Cut:
        """The place of a relation, join, query or the like in the text."""
        return self.cut(part.first, part.last)

    def indices(self, part: Cut) -> tuple[int, int]:
        """Indices of the first and the last piece of a part of the text."""
        return self.index_at(part.start), self.index_at(part.end - 1)

    def in_plain_sight(self, first: int, last: int) -> Iterator[int]:
        """Indices from ``first`` to ``last`` that are not in nested parentheses or a CASE."""
        depth, cases = self._parenthesis_depths[first] if first <= last else 0, 0
        for index in range(first, last + 1):
            if self._parenthesis_depths[index] == depth:
                cases = max(0, cases + self.case_step(index))
                if cases == 0:
                    yield index

    def parts(self, first: int, last: int) -> list[Cut]:
        """The stretches between the commas from the piece ``first`` to the piece ``last``."""
        found, begin = list[Cut](), first
        for index in range(first, last + 1):
            if (
                self.is_symbol(index, ",")
                and self._parenthesis_depths[index] == self._parenthesis_depths[first]
            ):
                if begin < index:
                    found.append(self.cut(begin, index - 1))
                begin = index + 1
        return [*found, self.cut(begin, last)] if begin <= last else found

    def begins_query(self, index: int) -> bool:
        """Whether a query begins at the piece; a word TABLE does so only in ``TABLE t``."""
        if not self.is_word(index, "TABLE"):
            return self.is_word(index, *QUERY_WORDS)
        last = index + 1
        if self.is_word(last, "IDENTIFIER") and self.is_symbol(last + 1, "("):
            last = self.closing(last + 1)
        while self.is_dot(last + 1):
            last += 2
        following = self.piece_at(last + 1)
        if not self.is_name(index + 1):
            return False
        # Elsewhere it is the name of a column, or stands before what is written: INSERT INTO TABLE t SELECT.
        is_end = following is None or following.text in (")", ";", "|>")
        return is_end or self.is_word(last + 1, *SET_WORDS, *ORDER_WORDS, "WINDOW", "DO")

    def starts_clause(self, index: int) -> bool:
        """Whether the piece begins a clause, and so ends the condition before it."""
        if self.opens_asof_join(index):
            return True
        if not self.is_word(index, *CLAUSE_WORDS) or self.is_symbol(index - 1, "."):
            return False
        is_call = self.is_symbol(index + 1, "(")
        return not (is_call and self.is_word(index, "LEFT", "RIGHT"))

    def opens_asof_join(self, index: int) -> bool:
        """Whether the piece is the ASOF of ``ASOF JOIN ... MATCH_CONDITION (...)``; else it is a name."""
        if not (self.is_word(index, "ASOF") and self.is_word(index + 1, "JOIN")):
            return False
        depth = self._parenthesis_depths[index]
        for later in range(index + 2, len(self)):
            if self._parenthesis_depths[later] < depth:
                return False
            if self._parenthesis_depths[later] == depth and self.is_match_condition(later):
                return True
            if self._parenthesis_depths[later] == depth and self.is_word(later, "JOIN", "WHERE", "SELECT"):
                return False
        return False

    def nearest_by(self, index: int) -> int | None:
        """Where the expression begins in ``EXACT NEAREST 3 BY DISTANCE ...``; None if that is not here."""
        if not (self.is_word(index, "APPROX", "EXACT") and self.is_word(index + 1, "NEAREST")):
            return None
        by = index + 2 if self.is_word(index + 2, "BY") else index + 3
        begins = self.is_word(by, "BY") and self.is_word(by + 1, "DISTANCE", "SIMILARITY")
        return by + 2 if begins and by + 2 < len(self) else None

    def is_match_condition(self, index: int) -> bool:
        return self.is_word(index, "MATCH_CONDITION") and self.is_symbol(index + 1, "(")

    def condition_end(self, index: int, end: int) -> int:
        """End (offset) of the condition that begins at the piece: where the next clause starts."""
        depth = self._parenthesis_depths[index]
        offset = self[index].start
        cases = 0
        for later in range(index, end):
            piece = self[later]
            if self._parenthesis_depths[later] < depth:
                break
            if self._parenthesis_depths[later] == depth:
                if piece.text in (",", ";", "|>"):
                    break
                cases = max(0, cases + self.case_step(later))
                if cases == 0 and self.starts_clause(later):
                    break
            offset = piece.end
        return offset

    def case_step(self, index: int) -> int:
        """1 where the piece opens a CASE, -1 where it ends one, else 0 (as for the name in ``end.id``)."""
        if not self.is_word(index, "CASE", "END") or self.is_dot(index + 1) or self.is_symbol(index - 1, "."):
            return 0
        return 1 if self.is_word(index, "CASE") else -1

    def is_dot(self, index: int) -> bool:
        return self.is_symbol(index, ".") and index + 1 < len(self)

    # --- values and times --------------------------------------------------------------------------

    def time_clause(self, index: int) -> Cut | None:
        """The expression of the ``[FOR] SYSTEM_TIME AS OF expression`` after a table's name at ``index``."""
        at = index + 1
        at += self.is_word(at, "FOR")
        if not self.is_word(at, "SYSTEM_TIME", "TIMESTAMP", "SYSTEM_VERSION", "VERSION"):
            return None
        first = at + 3
        if not (self.is_word(at + 1, "AS") and self.is_word(at + 2, "OF")) or first >= len(self):
            return None
        return self.cut(first, self.operand_end(first))

    def operand_end(self, index: int) -> int:
        """Index of the last piece of the value expression that begins at ``index``."""
        at = min(index, len(self) - 1)
        while at + 1 < len(self) and self[at].text in ("+", "-", ":"):
            at += 1  # a sign, or the colon of a parameter
        if self.is_word(at, "INTERVAL"):
            at += self.is_symbol(at + 1, "-") and self._is_literal(at + 2)
            while self._is_literal(at + 1) or self.is_word(at + 1, *_UNITS, "TO"):
                at += 1
        elif self.is_word(at, *_TYPES_OF_TIME) and self._is_literal(at + 1):
            at += 1
        elif self.is_word(at, "CASE"):
            at = self._balanced_end(at, self.case_step)
        elif self.is_symbol(at, "("):
            at = self.closing(at)
        while True:
            if self.is_dot(at + 1):
                at += 2
            elif self.is_symbol(at + 1, "("):
                at = self.closing(at + 1)
            elif self.is_symbol(at + 1, "["):
                at = self._balanced_end(at + 1, lambda i: self.is_symbol(i, "[") - self.is_symbol(i, "]"))
            elif self.is_symbol(at + 1, "::") and self.piece_at(at + 2):
                at = self.operand_end(at + 2)
            else:
                break
        following = self.piece_at(at + 1)
        if following is not None and following.text in _OPERATORS and self.piece_at(at + 2):
            return self.operand_end(at + 2)
        return at

    def _is_literal(self, index: int) -> bool:
        piece = self.piece_at(index)
        return piece is not None and piece.kind in (Kind.STRING, Kind.NUMBER)

    def _balanced_end(self, index: int, step: Callable[[int], int]) -> int:
        """Index of the piece that closes what the one at ``index`` opens; of the last piece if none does."""
        depths = enumerate(accumulate(map(step, range(index, len(self)))), index)
        return next((at for at, depth in depths if depth == 0), len(self) - 1)
