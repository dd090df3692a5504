"""Spark's SQL with lookup joins, as a dialect of sqlglot: ``spark_lookup``.

With it sqlglot, and what stands on it (formatters, linters, lineage), reads LOOKUP hints,
``FOR SYSTEM_TIME AS OF`` and ``CREATE TEMPORARY TABLE ... WITH (...)``, and writes them as they were:

>>> import sqlglot
>>> query = sqlglot.parse_one("SELECT /*+ LOOKUP('table'='c') */ 1", dialect="spark_lookup")
>>> query.find(Lookup).options
{'table': 'c'}
>>> query.sql(dialect="spark_lookup")
"SELECT /*+ LOOKUP('table' = 'c') */ 1"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

from lookup_hints.errors import Problem, Span
from lookup_hints.hints.sqlglot_tokens import hint_tokens, is_unclosed, option_tokens, tokens_of
from lookup_hints.sql.lexer import Piece

if TYPE_CHECKING:
    from sqlglot.generator import Generator as _SparkGenerator
    from sqlglot.parser import Parser as _SparkParser
else:
    _SparkParser, _SparkGenerator = Spark.Parser, Spark.Generator

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
    literal say in ``meta`` where they stand in the statement: ``start`` and ``end`` (inclusive) count
    characters.
    """

    # To sqlglot it is a function that nobody knows: the one kind that is an expression in all its versions.
    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    name = "LOOKUP"

    @property
    def options(self) -> dict[str, str]:
        return {option.this.name: option.expression.name for option in self.expressions}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with its form; some options may then be missing."""
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


def hint_items(text: str, start: int, end: int) -> list[exp.Expression]:
    """The ``Lookup`` and ``OtherHint`` items of the hint comment at ``start``, whose text ends at ``end``.

    Unlike sqlglot's own reading of a statement, this keeps whatever stands there, with its problems.
    """
    tokens = hint_tokens(text, start, end)
    if not tokens:
        return []
    (items,) = SparkLookup().parser().parse_into(_Items, tokens, text)
    return list(items.expressions) if items is not None else []


def read_options(shown: str, found: Sequence[Piece]) -> Lookup:
    """The options that ``found`` lists, as in ``WITH (...)``, with what is wrong among them.

    ``shown`` is the text that ``found`` was read from, or one of the same length with secrets masked:
    whatever a problem quotes is taken from it.
    """
    tokens = option_tokens(shown, found)
    (options,) = SparkLookup().parser().parse_into(Lookup, tokens, shown) if tokens else [Lookup()]
    assert isinstance(options, Lookup)
    return options


def place_of(expression: exp.Expression, text: str) -> Span:
    """Where ``expression``, which was read from ``text`` and keeps its place, stands."""
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
            table.set("version", self._parse_version())  # which may stand behind the alias, too
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
        """What begins at this token: a name with what its parentheses hold, or a single token."""
        first: Token = self._curr
        is_name = _is_name(first, self.sql)
        self._advance()
        if is_name and _is_lookup(first):
            return self._parse_lookup(first)
        if is_name and self._match(TokenType.L_PAREN):
            self._parse_up_to()
            self._match(TokenType.R_PAREN)
        item = OtherHint(this=_placed(exp.Identifier(this=first.text), first) if is_name else None)
        return _placed(item, first, self._prev)

    def _parse_lookup(self, name: Token) -> Lookup:
        if not self._match(TokenType.L_PAREN):
            hint = Lookup()
            hint.problems = (Problem("LOOKUP has no options.", self._span(name), tip=_EXAMPLE),)
            return _placed(hint, name)
        hint = self._parse_options()
        # An open quote swallows the parenthesis: one mistake, not two.
        if not self._match(TokenType.R_PAREN) and not is_unclosed(self._prev):
            problem = Problem("This LOOKUP has no closing parenthesis.", self._span(name, self._prev))
            hint.problems += (problem,)
        return _placed(hint, name, self._prev)

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
                        key = _quote(place_of(option.this, self.sql))
                        message = f"A comma is missing after the value of {key}."
                        problems.append(Problem(message, self._span(self._curr)))
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
            key = _placed(exp.Literal.string(self._prev.text), self._prev)
            if _is_equals(self._curr):
                self._advance()
                if self._match_set(_VALUES):
                    value = _VALUES[self._prev.token_type](self._prev.text)
                    return exp.EQ(this=key, expression=_placed(value, self._prev))
        self._retreat(index)
        return None

    def _parse_mistake(self) -> Problem:
        """What is wrong with that which stands before the next comma, and is no option."""
        comma = self._prev if self._prev and self._prev.token_type is TokenType.COMMA else self._curr
        found = self._parse_up_to(TokenType.COMMA)
        if not found:
            message = "An option is missing beside this comma."
            return Problem(message, self._span(comma), tip="Leave the comma out.")
        first, last = found[0], found[-1]
        if is_unclosed(last):
            return Problem("This quote is never closed.", self._span(last))
        key, second = _quote(self._span(first)), found[1] if len(found) > 1 else None
        if second and first.token_type in _STRINGS:
            if not _is_equals(second):
                return Problem(f"A '=' is missing after {key}.", self._span(first, last))
            if last is second:
                return Problem(f"The value of {key} is missing.", self._span(first, last))
            message = f"The value of {key} is not a literal."
            return Problem(message, self._span(found[2], last), tip="Write it in single quotes.")
        if _is_equals(second):
            return Problem(f"The key {key} is not in quotes.", self._span(first), tip=f"Write '{key}'.")
        at = self._span(first, last)
        return Problem(f"{_quote(at)} is not an option.", at, tip="Write 'key' = 'value'.")

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

    def _span(self, first: Token, last: Token | None = None) -> Span:
        return Span(self.sql, first.start, (last or first).end + 1)


class _Generator(_SparkGenerator):
    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **_SparkGenerator.TRANSFORMS,
        exp.Create: lambda self, tree: self._create(tree),
    }

    def _create(self, tree: exp.Create) -> Any:
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


def _quote(at: Span) -> str:
    return at.text[at.start : at.end]


def _is_equals(token: Token | None) -> bool:
    # "==" has the same type.
    return token is not None and token.token_type is TokenType.EQ and token.text == "="


def _placed(expression: _E, first: Token, last: Token | None = None) -> _E:
    expression.meta.update(start=first.start, end=(last or first).end)
    return expression


def _is_lookup_table(tree: object) -> bool:
    properties = tree.args.get("properties") if isinstance(tree, exp.Create) else None
    return properties is not None and any(
        type(each) is exp.Property and each.name.lower() == "connector" for each in properties.expressions
    )
