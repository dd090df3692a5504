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

from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

from lookup_hints.hints.tokens import HINT_MARK, tokens_of

if TYPE_CHECKING:
    from sqlglot.generator import Generator as _SparkGenerator
    from sqlglot.parser import Parser as _SparkParser
else:
    _SparkParser, _SparkGenerator = Spark.Parser, Spark.Generator

_SYSTEM_TIME = "system_time"


class Lookup(exp.Expression, exp.Func):
    """``LOOKUP('key' = 'value', ...)``, a hint.

    Its ``expressions`` are equalities of two literals. Each literal says in its ``meta`` where it stands in
    the statement: ``start`` and ``end`` (inclusive) count characters.
    """

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}
    is_var_len_args = True
    _sql_names: ClassVar[list[str]] = ["LOOKUP"]

    @property
    def options(self) -> dict[str, str]:
        """The values by key, as written; the last one of a key that is given twice."""
        return {pair.this.name: pair.expression.name for pair in self.expressions}


class _Tokenizer(Spark.Tokenizer):
    NESTED_COMMENTS = True

    def tokenize(self, sql: str) -> list[Token]:
        return tokens_of(sql)


class _Parser(_SparkParser):
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
            tokens = _inside(self._prev)
            if tokens:
                (hint,) = self.dialect.parser().parse_into(exp.Hint, tokens, self.sql)
                found += hint.expressions if hint is not None else []
        return exp.Hint(expressions=found) if found else None

    def _parse_hint_function_call(self) -> Any:
        is_lookup = self._curr and self._curr.text.upper() == Lookup.sql_name()
        if not (is_lookup and self._next and self._next.token_type is TokenType.L_PAREN):
            return super()._parse_hint_function_call()
        self._advance(2)
        pairs = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return self.expression(Lookup(expressions=pairs))

    def _parse_option(self) -> Any:
        key = self._parse_literal()
        if not self._match(TokenType.EQ):
            self.raise_error("Expected = behind the key of an option")
        return self.expression(exp.EQ(this=key, expression=self._parse_literal()))

    def _parse_literal(self) -> Any:
        token = self._curr
        literal = self._parse_primary()
        if token is None or not isinstance(literal, (exp.Literal, exp.Boolean)):
            self.raise_error("Expected a literal")
            return None
        literal.meta.update(line=token.line, col=token.col, start=token.start, end=token.end)
        return literal


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


def _inside(hint: Token) -> list[Token]:
    """The tokens in a hint comment, placed as in the whole statement."""
    tokens = tokens_of(hint.text[len(HINT_MARK) : -2])
    for token in tokens:
        token.start += hint.start + len(HINT_MARK)
        token.end += hint.start + len(HINT_MARK)
    return tokens


def _is_lookup_table(tree: object) -> bool:
    """Whether the tree is a CREATE that names a connector."""
    properties = tree.args.get("properties") if isinstance(tree, exp.Create) else None
    return properties is not None and any(
        type(each) is exp.Property and each.name.lower() == "connector" for each in properties.expressions
    )
