"""Spark's SQL with lookup joins, as a dialect of sqlglot: ``spark_lookup``.

With it sqlglot, and tools built on it (formatters, linters, lineage), read LOOKUP hints,
``FOR SYSTEM_TIME AS OF`` and ``CREATE TEMPORARY TABLE ... WITH (...)``, and write them back unchanged:

>>> import sqlglot
>>> query = sqlglot.parse_one("SELECT /*+ LOOKUP('table'='c') */ 1", dialect="spark_lookup")
>>> query.find(Lookup).options
{'table': 'c'}
>>> query.sql(dialect="spark_lookup")
"SELECT /*+ LOOKUP('table' = 'c') */ 1"
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from lookup_hints.errors import Problem, Span
from lookup_hints.sql.lexer import Kind, Piece, cut_into_pieces

if TYPE_CHECKING:
    from sqlglot.generator import Generator as _SparkGenerator
    from sqlglot.parser import Parser as _SparkParser
else:
    _SparkParser, _SparkGenerator = Spark.Parser, Spark.Generator

# --- tokens -----------------------------------------------------------------------------------------

# Our lexer, which is exact, gives the place and the text of a token; the keywords of sqlglot's Spark dialect
# give its kind. Comments are attached as in sqlglot: to the token before them if it is on the same line, else
# to the token after them.

HINT_MARK = "/*+"

_SPARK = Spark.Tokenizer
_KEYWORDS: Mapping[str, TokenType] = _SPARK.KEYWORDS
_SINGLE: Mapping[str, TokenType] = _SPARK.SINGLE_TOKENS
_SUFFIXES: Mapping[str, str] = _SPARK.NUMERIC_LITERALS
_LONGEST_SYMBOL = 4
_WORDS = {
    first: max(len(k.split()) for k in _KEYWORDS if k.startswith(f"{first} "))
    for first in {keyword.split()[0] for keyword in _KEYWORDS if " " in keyword}
}
_BEFORE_HINT = frozenset({*_SPARK.TOKENS_PRECEDING_HINT, TokenType.HINT})
_BEFORE_COMMAND = frozenset({TokenType.SEMICOLON, TokenType.BEGIN})


def tokens_of(text: str) -> list[Token]:
    """The tokens of ``text``, for sqlglot's parser.

    Raises:
        TokenError: a quote or a comment is never closed.
    """
    return _SqlglotTokens(text, cut_into_pieces(text)).read()


def hint_tokens(text: str, start: int, end: int) -> list[Token]:
    """The tokens inside the hint comment at ``start`` of ``text``, with their places in ``text``.

    A hint has no commands and no separators of statements; an unclosed quote or comment becomes one token.
    """
    offset = start + len(HINT_MARK)
    inside = [replace(piece, start=piece.start + offset) for piece in cut_into_pieces(text[offset:end])]
    return option_tokens(text, inside)


def option_tokens(text: str, found: Sequence[Piece]) -> list[Token]:
    """The tokens of a part of ``text``, read as in a hint."""
    return _HintTokens(text, found).read()


def is_unclosed(token: Token) -> bool:
    """Whether this token of a hint is a quote or a comment that is never closed, and all behind it."""
    return token.token_type is TokenType.UNKNOWN and token.text[0] in "'\"`/"


@dataclass
class _SqlglotTokens:
    text: str
    _pieces: Sequence[Piece]
    tokens: list[Token] = field(default_factory=list)
    # Comments for the next token.
    _waiting: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = [0, *(at + 1 for at, char in enumerate(self.text) if char == "\n")]

    def read(self) -> list[Token]:
        at = 0
        while at < len(self._pieces):
            at = self._read_token(at)
        if self.tokens:
            self.tokens[-1].comments.extend(self._waiting)
        return self.tokens

    def _read_token(self, at: int) -> int:
        """Read the token at piece ``at``; returns the index of the next piece."""
        piece = self._pieces[at]
        if piece.kind is Kind.UNCLOSED:
            return self._read_unclosed(at)
        if piece.kind in (Kind.COMMENT, Kind.HINT):
            is_line = piece.text.startswith("--")
            mark = HINT_MARK if piece.kind is Kind.HINT else piece.text[:2]
            self._waiting.append(piece.text[len(mark) :] if is_line else piece.text[len(mark) : -2])
            before = self.tokens[-1] if self.tokens else None
            if piece.kind is Kind.HINT and self._takes_hint(before):
                self._append_token(TokenType.HINT, piece.start, piece.end, piece.text)
            elif before is not None and before.line == self._line_at(piece.start):
                before.comments.extend(self._waiting)
                self._waiting = []
            return at + 1
        if piece.kind is Kind.QUOTED:
            return self._add_pieces(TokenType.IDENTIFIER, at, text=piece.name)
        if piece.kind is Kind.STRING:
            kind = TokenType.RAW_STRING if piece.text[0] in "rR" else TokenType.STRING
            return self._add_pieces(kind, at, text=piece.value)
        if piece.kind is Kind.NUMBER:
            return self._read_number(at)
        if piece.kind is Kind.WORD:
            return self._read_word(at)
        return self._read_symbol(at)

    def _read_unclosed(self, at: int) -> int:
        piece = self._pieces[at]
        raise TokenError(
            f"Missing the end of what begins at line {self._line_at(piece.start)}: {piece.text[:20]}"
        )

    def _takes_hint(self, before: Token | None) -> bool:
        return before is not None and before.token_type in _BEFORE_HINT

    def _read_word(self, at: int) -> int:
        piece = self._pieces[at]
        for after in self._pieces[at + 1 : at + 2] if piece.text in "xX" else ():
            if after.kind is Kind.STRING and after.start == piece.end:
                return self._add_pieces(TokenType.HEX_STRING, at, after=at + 2, text=after.value)
        for count in range(_WORDS.get(piece.text.upper(), 1), 1, -1):
            phrase = self._pieces[at : at + count]
            keyword = " ".join(each.text.upper() for each in phrase)
            if keyword in _KEYWORDS and all(each.kind is Kind.WORD for each in phrase):
                return self._add_pieces(_KEYWORDS[keyword], at, after=at + len(phrase), text=keyword)
        is_parameter = bool(self.tokens) and self.tokens[-1].token_type is TokenType.PARAMETER
        kind = TokenType.VAR if is_parameter else _KEYWORDS.get(piece.text.upper(), TokenType.VAR)
        behind = self._add_pieces(kind, at)
        return self._read_command(behind) if kind in _SPARK.COMMANDS else behind

    def _read_command(self, at: int) -> int:
        """The text after a command word, up to a semicolon, as one string token."""
        if len(self.tokens) > 1 and self.tokens[-2].token_type not in _BEFORE_COMMAND:
            return at
        count = len(self._pieces)
        end = next((i for i in range(at, count) if self._pieces[i].is_symbol(";")), count)
        if end > at:
            start, stop = self._pieces[at].start, self._pieces[end - 1].end
            self._append_token(TokenType.STRING, start, stop, self.text[start:stop])
        return end

    def _read_number(self, at: int) -> int:
        piece = self._pieces[at]
        digits = piece.text.rstrip("lLsSyYfFdDbB")
        suffix = piece.text[len(digits) :]
        if not suffix:
            return self._add_pieces(TokenType.NUMBER, at)
        self._add_pieces(TokenType.NUMBER, at, text=digits)
        self._append_token(TokenType.DCOLON, piece.start, piece.end, "::")
        return self._add_pieces(_KEYWORDS[_SUFFIXES[suffix.upper()]], at, text=suffix)

    def _read_symbol(self, at: int) -> int:
        together = self._pieces[at].text
        found: tuple[int, str] | None = (at + 1, together) if together in _KEYWORDS else None
        for index in range(at + 1, min(at + _LONGEST_SYMBOL, len(self._pieces))):
            piece = self._pieces[index]
            if piece.kind is not Kind.SYMBOL or piece.start != self._pieces[index - 1].end:
                break
            together += piece.text
            if together in _KEYWORDS:
                found = index + 1, together
        if found is not None:
            return self._add_pieces(_KEYWORDS[found[1]], at, after=found[0], text=found[1])
        return self._add_pieces(_SINGLE.get(self._pieces[at].text, TokenType.UNKNOWN), at)

    def _add_pieces(
        self, kind: TokenType, at: int, *, after: int | None = None, text: str | None = None
    ) -> int:
        after = at + 1 if after is None else after
        first = self._pieces[at]
        self._append_token(
            kind, first.start, self._pieces[after - 1].end, first.text if text is None else text
        )
        return after

    def _append_token(self, kind: TokenType, start: int, end: int, text: str) -> None:
        line = self._line_at(end - 1)
        column = end - self._lines[line - 1]
        self.tokens.append(Token(kind, text, line, column, start, end - 1, self._waiting))
        self._waiting = []

    def _line_at(self, at: int) -> int:
        return bisect_right(self._lines, at)


class _HintTokens(_SqlglotTokens):
    def _takes_hint(self, before: Token | None) -> bool:
        return False

    def _read_unclosed(self, at: int) -> int:
        return self._add_pieces(TokenType.UNKNOWN, at)

    def _read_command(self, at: int) -> int:
        return at

    def _read_number(self, at: int) -> int:
        return self._add_pieces(TokenType.NUMBER, at)

    def _read_symbol(self, at: int) -> int:
        if self._pieces[at].is_symbol(";"):
            return self._add_pieces(TokenType.UNKNOWN, at)
        return super()._read_symbol(at)


# --- the dialect -------------------------------------------------------------------------------------

_E = TypeVar("_E", bound=exp.Expression)

_SYSTEM_TIME = "system_time"
_PROBLEMS = "problems"
_EXAMPLE = "Write LOOKUP('table' = '<alias of the lookup table>')."
_STRINGS = frozenset({TokenType.STRING, TokenType.RAW_STRING})
_VALUES: Mapping[TokenType, Callable[[str], exp.Expression]] = {
    **dict.fromkeys(_STRINGS, exp.Literal.string),
    TokenType.NUMBER: exp.Literal.number,
    TokenType.TRUE: exp.var,
    TokenType.FALSE: exp.var,
}
_ENDS = frozenset({TokenType.COMMA, TokenType.R_PAREN})
_PARENTHESES = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}
_BRACKETS = {TokenType.L_BRACKET: 1, TokenType.R_BRACKET: -1}
_NOT_NAMES = frozenset(
    {TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.UNKNOWN}
)


class Lookup(exp.Anonymous):
    """``LOOKUP('key' = 'value', ...)``, a hint; or the list of options alone.

    Its ``expressions`` are equalities of two literals (``true`` and ``false`` are variables). It and each
    literal have their places in ``meta``: ``start`` and ``end`` (inclusive) count its characters.
    """

    # A subclass of sqlglot's unknown function: the only suitable class that is an expression in all versions.
    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    name = "LOOKUP"

    @property
    def options(self) -> dict[str, str]:
        return {option.this.name: option.expression.name for option in self.expressions}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Its mistakes of form; with any, some options may be missing."""
        found: tuple[Problem, ...] = self.meta.get(_PROBLEMS, ())
        return found

    @problems.setter
    def problems(self, problems: tuple[Problem, ...]) -> None:
        self.meta[_PROBLEMS] = problems


class OtherHint(exp.Expression):
    """An item of a hint comment that is not LOOKUP. ``this`` is its name, if it has one."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


try:
    OtherHint()
except TypeError as error:
    raise ImportError(
        "lookup_hints extends sqlglot, whose compiled build (sqlglotc) cannot be extended. Run"
        " 'pip uninstall sqlglotc': sqlglot works without it."
    ) from error


class _Items(exp.Expression):
    """All items of a hint comment, right or wrong."""


# The one reader of hints: the planner asks the dialect, so both always agree. (docs/decisions/0132)
def hint_items(text: str, start: int, end: int) -> list[exp.Expression]:
    """The ``Lookup`` and ``OtherHint`` items of the hint comment at ``start``, whose text ends at ``end``.

    Unlike sqlglot's own parser, this keeps invalid items too, with their problems.
    """
    tokens = hint_tokens(text, start, end)
    if not tokens:
        return []
    (items,) = SparkLookup().parser().parse_into(_Items, tokens, text)
    return list(items.expressions) if items is not None else []


def read_options(shown: str, found: Sequence[Piece]) -> Lookup:
    """The options listed in ``found``, as in ``WITH (...)``, with their mistakes.

    ``shown`` is the text that ``found`` was read from, or one of the same length with secrets masked;
    problems quote from it.
    """
    tokens = option_tokens(shown, found)
    (options,) = SparkLookup().parser().parse_into(Lookup, tokens, shown) if tokens else [Lookup()]
    assert isinstance(options, Lookup)
    return options


def place_of(expression: exp.Expression, text: str) -> Span:
    """The place of ``expression``, which was parsed from ``text``."""
    return Span(text, expression.meta["start"], expression.meta["end"] + 1)


class _Tokenizer(Spark.Tokenizer):
    NESTED_COMMENTS = True

    def tokenize(self, sql: str) -> list[Token]:
        return tokens_of(sql)


class _Parser(_SparkParser):
    EXPRESSION_PARSERS: ClassVar[dict[Any, Any]] = {
        **_SparkParser.EXPRESSION_PARSERS,
        _Items: lambda self: self._parse_items(),
        Lookup: lambda self: self._parse_options(),
    }

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        table = super()._parse_table(*args, **kwargs)
        if isinstance(table, exp.Table) and table.alias and not table.args.get("version"):
            table.set("version", self._parse_version())  # it may also follow the alias
        return table

    def _parse_version(self) -> Any:
        if not self._match_text_seq("FOR", "SYSTEM_TIME", "AS", "OF"):
            return super()._parse_version()
        # To other dialects it is a time travel like Spark's own.
        version = exp.Version(this="TIMESTAMP", kind="AS OF", expression=self._parse_bitwise())
        version.meta[_SYSTEM_TIME] = True
        self._add_comments(version)
        return version

    def _parse_hint(self) -> exp.Hint | None:
        found: list[exp.Expression] = []
        while self._match(TokenType.HINT):
            tokens = hint_tokens(self.sql, self._prev.start, self._prev.end - 1)
            if tokens:
                (hint,) = self.dialect.parser().parse_into(exp.Hint, tokens, self.sql)
                found += hint.expressions if hint is not None else []
        return exp.Hint(expressions=found) if found else None

    def _parse_hint_function_call(self) -> Any:
        """One hint; a LOOKUP of a wrong form is an error, with which sqlglot keeps the comment as text."""
        if not (_is_lookup(self._curr) and self._next and self._next.token_type is TokenType.L_PAREN):
            return super()._parse_hint_function_call()
        hint = self._parse_item()
        if isinstance(hint, Lookup) and hint.problems:
            self.raise_error(hint.problems[0].message)
        return hint

    def _parse_items(self) -> _Items:
        found = []
        while self._curr:
            if not self._match(TokenType.COMMA):
                found.append(self._parse_item())
        return _Items(expressions=found)

    def _parse_item(self) -> exp.Expression:
        """The item at this token: a name with its parentheses, or a single token."""
        first: Token = self._curr
        is_name = _is_name(first, self.sql)
        self._advance()
        if is_name and _is_lookup(first):
            if not self._match(TokenType.L_PAREN):
                hint = Lookup()
                hint.problems = (Problem("LOOKUP has no options.", self._span_of(first), tip=_EXAMPLE),)
                return _with_place(hint, first)
            hint = self._parse_options()
            # An open quote swallows the parenthesis: one mistake, not two.
            if not self._match(TokenType.R_PAREN) and not is_unclosed(self._prev):
                problem = Problem("This LOOKUP has no closing parenthesis.", self._span_of(first, self._prev))
                hint.problems += (problem,)
            return _with_place(hint, first, self._prev)
        if is_name and self._match(TokenType.L_PAREN):
            self._parse_up_to()
            self._match(TokenType.R_PAREN)
        item = OtherHint(this=_with_place(exp.Identifier(this=first.text), first) if is_name else None)
        return _with_place(item, first, self._prev)

    def _parse_options(self) -> Lookup:
        """Options up to the parenthesis that closes their list; behind a wrong one the next comma is sought.

        Nothing else is taken: a list that merely looks like options must not become some.
        """
        options: list[exp.EQ] = []
        problems: list[Problem] = []
        is_more = bool(self._curr) and self._curr.token_type is not TokenType.R_PAREN
        while is_more:
            option = self._parse_option()
            if option is None:
                problems.append(self._parse_mistake())
            else:
                options.append(option)
                if self._curr and self._curr.token_type not in _ENDS:
                    if _is_equals(self._next):
                        key = _text_at(place_of(option.this, self.sql))
                        message = f"A comma is missing after the value of {key}."
                        problems.append(Problem(message, self._span_of(self._curr)))
                        continue
                    problems.append(self._parse_mistake())
            is_more = self._match(TokenType.COMMA)
        found = Lookup(expressions=options)
        found.problems = tuple(problems)
        return found

    def _parse_option(self) -> exp.EQ | None:
        """``'key' = literal``, or None: something else begins at this token, which then is the next still."""
        index = self._index
        if self._match_set(_STRINGS):
            key = _with_place(exp.Literal.string(self._prev.text), self._prev)
            if _is_equals(self._curr):
                self._advance()
                if self._match_set(_VALUES):
                    value = _VALUES[self._prev.token_type](self._prev.text)
                    return exp.EQ(this=key, expression=_with_place(value, self._prev))
        self._retreat(index)
        return None

    def _parse_mistake(self) -> Problem:
        """The problem of the text before the next comma, which is not an option."""
        comma = self._prev if self._prev and self._prev.token_type is TokenType.COMMA else self._curr
        found = self._parse_up_to(TokenType.COMMA)
        if not found:
            message = "An option is missing beside this comma."
            return Problem(message, self._span_of(comma), tip="Leave the comma out.")
        first, last = found[0], found[-1]
        if is_unclosed(last):
            return Problem("This quote is never closed.", self._span_of(last))
        key, second = _text_at(self._span_of(first)), found[1] if len(found) > 1 else None
        if second and first.token_type in _STRINGS:
            if not _is_equals(second):
                return Problem(f"A '=' is missing after {key}.", self._span_of(first, last))
            if last is second:
                return Problem(f"The value of {key} is missing.", self._span_of(first, last))
            message = f"The value of {key} is not a literal."
            return Problem(message, self._span_of(found[2], last), tip="Write it in single quotes.")
        if _is_equals(second):
            return Problem(f"The key {key} is not in quotes.", self._span_of(first), tip=f"Write '{key}'.")
        at = self._span_of(first, last)
        return Problem(f"{_text_at(at)} is not an option.", at, tip="Write 'key' = 'value'.")

    def _parse_up_to(self, *ends: TokenType) -> list[Token]:
        """The tokens before one of ``ends`` outside brackets, or before the parenthesis that closes all."""
        found: list[Token] = []
        parentheses = brackets = 0
        while self._curr:
            kind = self._curr.token_type
            is_end = kind in ends and not (parentheses or brackets > 0)
            if is_end or (kind is TokenType.R_PAREN and not parentheses):
                break
            parentheses += _PARENTHESES.get(kind, 0)
            brackets += _BRACKETS.get(kind, 0)
            found.append(self._curr)
            self._advance()
        return found

    def _span_of(self, first: Token, last: Token | None = None) -> Span:
        return Span(self.sql, first.start, (last or first).end + 1)


class _Generator(_SparkGenerator):
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **_SparkGenerator.TRANSFORMS,
        exp.Create: lambda self, tree: self._create_table(tree),
    }

    def _create_table(self, tree: exp.Create) -> Any:
        """A lookup table as it was written; sqlglot gives other temporary tables a file format."""
        return self.create_sql(tree) if _is_lookup_table(tree) else _create_in_spark(self, tree)

    def version_sql(self, expression: exp.Version) -> str:
        if expression.meta.get(_SYSTEM_TIME):
            return f"FOR SYSTEM_TIME AS OF {self.sql(expression, 'expression')}"
        return super().version_sql(expression)

    def with_properties(self, properties: exp.Properties) -> str:
        if _is_lookup_table(properties.parent):
            return self.properties(properties, prefix=self.seg("WITH", sep=""))
        return super().with_properties(properties)


_create_in_spark = _SparkGenerator.TRANSFORMS[exp.Create]


# A dialect, so that formatters and lineage tools read hinted SQL; our pieces are its tokens, as sqlglot's
# settings cannot express Spark's comments. (docs/decisions/0120)
class Spark_Lookup(Spark):  # noqa: N801 - the name that sqlglot knows the dialect by, in lower case
    """Spark's SQL with lookup joins."""

    Tokenizer = _Tokenizer
    Parser: Any = _Parser
    Generator: Any = _Generator


SparkLookup = Spark_Lookup


def _is_name(token: Token, text: str) -> bool:
    first = text[token.start]
    return token.token_type not in _NOT_NAMES and (first in "_`" or first.isalnum())


def _is_lookup(token: Token | None) -> bool:
    return token is not None and token.text.upper() == Lookup.name


def _text_at(at: Span) -> str:
    return at.text[at.start : at.end]


def _is_equals(token: Token | None) -> bool:
    # "==" has the same type.
    return token is not None and token.token_type is TokenType.EQ and token.text == "="


def _with_place(expression: _E, first: Token, last: Token | None = None) -> _E:
    expression.meta.update(start=first.start, end=(last or first).end)
    return expression


def _is_lookup_table(tree: object) -> bool:
    properties = tree.args.get("properties") if isinstance(tree, exp.Create) else None
    return properties is not None and any(
        type(each) is exp.Property and each.name.lower() == "connector" for each in properties.expressions
    )
