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

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

from lookup_hints.errors import Problem, Span
from lookup_hints.hints.tokens import hint_tokens, tokens_of
from lookup_hints.sql.lexer import Kind, code, pieces
from lookup_hints.sql.option_list import Pair, read_pairs

if TYPE_CHECKING:
    from sqlglot.generator import Generator as _SparkGenerator
    from sqlglot.parser import Parser as _SparkParser
else:
    _SparkParser, _SparkGenerator = Spark.Parser, Spark.Generator

_E = TypeVar("_E", bound=exp.Expression)

_SYSTEM_TIME = "system_time"
_PROBLEMS = "problems"
_EXAMPLE = "Write LOOKUP('table' = '<alias of the lookup table>')."
_NOT_NAMES = frozenset(
    {TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.UNKNOWN}
)


class Lookup(exp.Expression, exp.Func):
    """``LOOKUP('key' = 'value', ...)``, a hint.

    Its ``expressions`` are equalities of two literals (``true`` and ``false`` are variables). It and each
    literal say in ``meta`` where they stand in the statement: ``start`` and ``end`` (inclusive) count
    characters.
    """

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True
    _sql_names: ClassVar[list[str]] = ["LOOKUP"]

    @property
    def options(self) -> dict[str, str]:
        """The values by key, as written; the last one of a key that is given twice."""
        return {pair.this.name: pair.expression.name for pair in self.expressions}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with its form; some options may then be missing."""
        return tuple(self.meta.get(_PROBLEMS, ()))

    def pairs(self, text: str) -> tuple[Pair, ...]:
        """The options in order, with their places in ``text``, which the hint was read from."""
        return tuple(
            Pair(key.name, value.name, place_of(key, text), place_of(value, text))
            for key, value in (option.unnest_operands() for option in self.expressions)
        )


class OtherHint(exp.Expression):
    """An item of a hint comment that is not LOOKUP. ``this`` is its name, if it has one."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


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
        return self.expression(version)

    def _parse_hint(self) -> exp.Hint | None:
        """All hint comments behind a SELECT, as one."""
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
        if is_name and self._match(TokenType.L_PAREN):
            self._skip_to_closing()
        at = Span(self.sql, first.start, self._prev.end + 1)
        if is_name and _is_lookup(first):
            return _lookup(at)
        name = _placed(exp.Identifier(this=first.text), Span(self.sql, first.start, first.end + 1))
        return _placed(OtherHint(this=name if is_name else None), at)

    def _skip_to_closing(self) -> None:
        """Go behind the parenthesis that closes the one before this token, or to the end."""
        depth = 1
        while self._curr and depth:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            self._advance()


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


class SparkLookup(Spark):
    """Spark's SQL with lookup joins."""

    Tokenizer = _Tokenizer
    Parser: Any = _Parser
    Generator: Any = _Generator


def _is_name(token: Token, text: str) -> bool:
    first = text[token.start]
    return token.token_type not in _NOT_NAMES and (first in "_`" or first.isalnum())


def _is_lookup(token: Token | None) -> bool:
    return token is not None and token.text.upper() == Lookup.sql_name()


def _lookup(at: Span) -> Lookup:
    """The LOOKUP that stands at ``at``, as far as it is right."""
    offset = at.start
    found = [replace(piece, start=piece.start + offset) for piece in code(pieces(at.text[offset : at.end]))]
    if len(found) == 1:
        return _with_problems(Lookup(), at, [Problem("LOOKUP has no options.", at, tip=_EXAMPLE)])
    is_closed = found[-1].is_symbol(")")
    pairs, problems = read_pairs(at.text, found[2:-1] if is_closed else found[2:])
    # An open quote swallows the parenthesis: one mistake, not two.
    if not is_closed and found[-1].kind is not Kind.UNCLOSED:
        problems.append(Problem("This LOOKUP has no closing parenthesis.", at))
    return _with_problems(Lookup(expressions=[_option(pair) for pair in pairs]), at, problems)


def _with_problems(hint: Lookup, at: Span, problems: list[Problem]) -> Lookup:
    hint.meta[_PROBLEMS] = problems
    return _placed(hint, at)


def _option(pair: Pair) -> exp.EQ:
    key = _placed(exp.Literal.string(pair.key), pair.key_at)
    return exp.EQ(this=key, expression=_placed(_value(pair), pair.value_at))


def _value(pair: Pair) -> exp.Expression:
    if pair.value_at.text[pair.value_at.end - 1] in "'\"":
        return exp.Literal.string(pair.value)
    return exp.var(pair.value) if pair.value.isalpha() else exp.Literal.number(pair.value)


def _placed(expression: _E, at: Span) -> _E:
    expression.meta.update(start=at.start, end=at.end - 1)
    return expression


def _is_lookup_table(tree: object) -> bool:
    """Whether the tree is a CREATE that names a connector."""
    properties = tree.args.get("properties") if isinstance(tree, exp.Create) else None
    return properties is not None and any(
        type(each) is exp.Property and each.name.lower() == "connector" for each in properties.expressions
    )
