"""Text -> what a streaming INSERT says. Spark has no such statement, so its parts are read here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

from lookup_hints.errors import OptionError, Problem, QueryError, Span
from lookup_hints.spi.option_values import Conf, Place, Trigger, bad_value, in_force, options_at
from lookup_hints.sql.lexer import Kind, Piece, quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit
from lookup_hints.streaming.restart_strategy import RestartStrategy, restart_strategy
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What may follow a relation that has no alias.
_AFTER_A_RELATION = (
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL", "LATERAL", "ON", "USING"),
    *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW"),
    *("UNION", "EXCEPT", "MINUS", "INTERSECT", "TABLESAMPLE", "PIVOT", "UNPIVOT", "SELECT", "INSERT", "FOR"),
)
_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")


@dataclass(frozen=True)
class StreamInsert:
    """A streaming INSERT.

    Args:
        text: the statement.
        sink: the parts of the sink's name, without backquotes: a table, ``format`` and ``path``, or a format.
        sink_at: where the sink stands.
        options: what stands in ``WITH (...)``, in its own spelling, by key.
        columns: the columns of the sink that the query's columns go to, in order; None: all of them.
        by_name: whether columns find each other by name.
        query: the query, at its place in ``text``: all before it is blank.
    """

    text: SqlText = field(repr=False)
    sink: tuple[str, ...]
    sink_at: Span
    options: Mapping[str, str] = field(repr=False)  # may hold secrets of a sink
    columns: tuple[str, ...] | None
    by_name: bool
    query: SqlText = field(repr=False)

    @property
    def shown_sink(self) -> str:
        return self.text[self.sink_at.start : self.sink_at.end]


def names_a_stream(text: SqlText) -> bool:
    """Whether ``text`` is an INSERT that reads FROM (or JOINs) ``STREAM name`` or ``STREAM(...)``.

    >>> names_a_stream(SqlText("INSERT INTO t SELECT stream FROM STREAM s"))
    True
    >>> names_a_stream(SqlText("INSERT INTO t SELECT stream FROM s"))
    False
    """
    return text.starts_with("INSERT") and any(_words_stream(text.code))


def _words_stream(found: Sequence[Piece]) -> Iterator[int]:
    """The index of each word STREAM that says that a stream is read."""
    for at, (before, piece, after) in enumerate(zip(found, found[1:], found[2:], strict=False), 1):
        names_one = before.is_word("FROM", "JOIN") and piece.is_word("STREAM")
        if names_one and (after.is_name or after.is_symbol("(")):
            yield at


def read_insert(text: SqlText) -> StreamInsert:
    """What a streaming INSERT says.

    Raises:
        QueryError: it asks for what a stream cannot do (OVERWRITE, PARTITION, ...), or cannot be read.
        OptionError: its ``WITH (...)`` is malformed.
    """
    return _InsertReader(text).insert()


@dataclass(frozen=True)
class StreamSource:
    """A ``STREAM name WITH (...)`` in a query.

    Args:
        name: the parts of the name, without backquotes.
        options: what stands in ``WITH (...)``.
        start: where it begins in the text.
        end: where it ends.
        has_alias: whether an alias follows.
    """

    name: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    start: int
    end: int
    has_alias: bool


def stream_sources(text: SqlText) -> list[StreamSource]:
    """Each ``STREAM name`` or ``STREAM(name)`` that a query reads FROM or JOINs, in order.

    >>> text = SqlText("SELECT 1 FROM STREAM a.b AS x JOIN STREAM(c) USING (k)")
    >>> [source.name for source in stream_sources(text)]
    [('a', 'b'), ('c',)]
    """
    return list(_InsertReader(text).sources())


def shown_insert(text: SqlText) -> str:
    """``text`` as it may be shown: the values of options of an INSERT are starred, places stay true."""
    shown: str = text
    if not text.starts_with("INSERT"):
        return shown
    inside = False
    for before, piece in pairwise(text.code):
        if before.is_word("WITH") and piece.is_symbol("("):
            inside = True
        elif piece.is_word(*_QUERY_WORDS) and not piece.is_word("WITH"):
            return shown
        elif inside and piece.kind in (Kind.STRING, Kind.UNCLOSED) and before.text not in ("(", ","):
            stars = re.sub(r"[^\r\n]", "*", piece.text)
            shown = shown[: piece.start] + stars + shown[piece.end :]
    return shown


class _InsertReader:
    def __init__(self, text: SqlText) -> None:
        self._text = text
        self._found = text.code
        self._at = 0

    def insert(self) -> StreamInsert:
        self._take("INSERT")
        if self._next().is_word("OVERWRITE"):
            raise self._cannot("INSERT OVERWRITE", "A stream adds rows: write INSERT INTO.")
        self._take("INTO")
        self._skip("TABLE")
        sink, sink_at = self._sink()
        options = self._options()
        if self._next().is_word("PARTITION", "IF", "REPLACE"):
            tip = "Give the partition column in the query; each row goes to the partition of its value."
            raise self._cannot(self._next().text.upper(), tip)
        by_name = self._skip("BY") and self._skip("NAME")
        columns = self._columns()
        query = self._next()
        is_query = query.is_word(*_QUERY_WORDS) or query.is_symbol("(")
        if not is_query:
            raise self._problem("A query is expected here.", query)
        return StreamInsert(
            text=self._text,
            sink=sink,
            sink_at=sink_at,
            options=MappingProxyType(options),
            columns=columns,
            by_name=by_name,
            query=self._text.blank_before(query.start),
        )

    def sources(self) -> Iterator[StreamSource]:
        for stream in _words_stream(self._found):
            self._at = stream + 1
            in_parentheses = self._next().is_symbol("(")
            self._at += in_parentheses
            name, _ = self._sink()
            if in_parentheses:
                self._take_symbol(")")
            options = self._options()
            after = self._next()
            yield StreamSource(
                name=name,
                options=MappingProxyType(options),
                start=self._found[stream].start,
                end=self._found[self._at - 1].end,
                has_alias=after.is_name and not after.is_word(*_AFTER_A_RELATION),
            )

    def _sink(self) -> tuple[tuple[str, ...], Span]:
        first = self._name()
        parts = [first]
        while self._next().is_symbol("."):
            self._at += 1
            parts.append(self._name())
        return tuple(part.name for part in parts), Span(shown_insert(self._text), first.start, parts[-1].end)

    def _options(self) -> dict[str, str]:
        """``WITH ('key' = 'value', ...)`` as Spark writes it after the name of a table."""
        if not (self._next().is_word("WITH") and self._is_symbol(self._at + 1, "(")):
            return {}
        self._at += 2
        options: dict[str, str] = {}
        while not self._next().is_symbol(")"):
            key, at = self._key()
            if self._next().text in ("=", "=="):
                self._at += 1
            value = self._taken()
            if value.kind not in (Kind.STRING, Kind.NUMBER) and not value.is_word("TRUE", "FALSE"):
                raise OptionError(Problem(f"The value of {key!r} must be a literal.", self._span(value)))
            if key.lower() in (other.lower() for other in options):
                raise OptionError(Problem(f"The option {key!r} is given twice.", at))
            options[key] = value.value if value.kind is Kind.STRING else value.text
            if not self._next().is_symbol(")"):
                self._take_symbol(",")
        self._take_symbol(")")
        return options

    def _key(self) -> tuple[str, Span]:
        first = self._taken()
        if first.kind is Kind.STRING:
            return first.value, self._span(first)
        self._at -= 1
        names, at = self._sink()
        return ".".join(names), at

    def _columns(self) -> tuple[str, ...] | None:
        if not self._next().is_symbol("(") or self._found_word(self._at + 1):
            return None
        self._at += 1
        names = [self._name().name]
        while not self._next().is_symbol(")"):
            self._take_symbol(",")
            names.append(self._name().name)
        self._at += 1
        return tuple(names)

    def _found_word(self, index: int) -> bool:
        piece = self._found[index] if index < len(self._found) else None
        return piece is not None and (piece.is_word(*_QUERY_WORDS) or piece.is_symbol("("))

    # --- pieces ------------------------------------------------------------------------------------

    def _next(self) -> Piece:
        if self._at < len(self._found):
            return self._found[self._at]
        return Piece(Kind.SYMBOL, "", len(self._text))

    def _taken(self) -> Piece:
        piece = self._next()
        self._at += 1
        return piece

    def _is_symbol(self, index: int, symbol: str) -> bool:
        return index < len(self._found) and self._found[index].is_symbol(symbol)

    def _skip(self, word: str) -> bool:
        is_there = self._next().is_word(word)
        self._at += is_there
        return is_there

    def _take(self, word: str) -> None:
        if not self._skip(word):
            raise self._problem(f"{word} is expected here.", self._next())

    def _take_symbol(self, symbol: str) -> None:
        if not self._taken().is_symbol(symbol):
            raise self._problem(
                f"{symbol!r} is expected here.", self._found[min(self._at, len(self._found)) - 1]
            )

    def _name(self) -> Piece:
        piece = self._taken()
        if not piece.is_name:
            raise self._problem("A name is expected here.", piece)
        return piece

    def _cannot(self, what: str, tip: str) -> QueryError:
        message = f"{what} cannot stand in an INSERT that reads a stream."
        return QueryError(Problem(message, self._span(self._next()), tip))

    def _problem(self, message: str, piece: Piece) -> QueryError:
        return QueryError(Problem(message, self._span(piece)))

    def _span(self, piece: Piece) -> Span:
        return Span(shown_insert(self._text), piece.start, piece.end)


# --- options ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenOptions:
    """The options of ``WITH (...)``: ours, typed and by key, and the others, for the sink itself."""

    ours: Mapping[str, object]
    others: Mapping[str, str]


def written_options(insert: StreamInsert) -> WrittenOptions:
    """The options that the statement gives, ours apart from those of the sink.

    Raises:
        OptionError: ours have values that they cannot have (all at once).
    """
    known = {key.lower(): option for key, option in options_at(Place.INSERT, STREAM_OPTIONS).items()}
    ours: dict[str, object] = {}
    others: dict[str, str] = {}
    problems: list[Problem] = []
    for key, text in insert.options.items():
        option = known.get(key.lower())
        if option is None:
            others[key] = text
            continue
        try:
            ours[option.key] = option.type.parse(text)
        except ValueError as error:
            problems.append(replace(bad_value(option, key, text, error), at=insert.sink_at))
    if problems:
        raise OptionError(problems)
    return WrittenOptions(ours, others)


SINCE = (4, 1)
"""The first Spark whose SQL has ``FROM STREAM``."""


def with_views(query: SqlText, spark: SparkSession, name: Callable[[StreamSource], str]) -> SqlText:
    """``query`` over views of its streams, as a Spark before ``SINCE`` can parse it."""
    edits = []
    for source in stream_sources(query):
        relation = ".".join(map(quoted, source.name))
        if "/" not in source.name[-1]:  # a path: Spark has never read a stream there
            view = name(source)
            spark.readStream.options(**source.options).table(relation).createOrReplaceTempView(view)
            relation = quoted(view) if source.has_alias else f"{quoted(view)} AS {quoted(source.name[-1])}"
        edits.append(Edit(Cut(source.start, source.end), (relation,)))
    return query.edited(edits)


ROOT = "spark.sql.streaming.checkpointLocation"
"""Spark's own key: a folder that holds the checkpoints of all queries that have a name."""


@dataclass(frozen=True)
class StreamSettings:
    """How one streaming query runs.

    Args:
        checkpoint: folder of its checkpoint; None: it has none that outlives it.
        trigger: when it looks for new rows; None: as soon as the last batch is done.
        output_mode: ``append``, ``update`` or ``complete``.
        name: the query's name, or None.
        sync: whether the statement waits for its end.
        strategy: when it starts again.
        failover: ``region`` or ``full``.
        sink_options: options for the sink.
    """

    checkpoint: str | None
    trigger: Trigger | None
    output_mode: str
    name: str | None
    sync: bool
    strategy: RestartStrategy
    failover: str
    sink_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def stream_settings(written: WrittenOptions, conf: Conf, *, keeps_rows: bool) -> StreamSettings:
    """The settings in force for a statement.

    Args:
        written: the options that it gives.
        conf: the session.
        keeps_rows: whether its sink keeps what is written. One that does not (console) takes a checkpoint
            from the statement alone: the session's is that of the query that the session is about.

    Raises:
        OptionError: the session gives an option a value that it cannot have.
    """
    given = {Place.INSERT: written.ours}
    values = {option.key: in_force(option, conf, given).value for option in STREAM_OPTIONS}
    restart = {option.key: in_force(option, conf).value for option in RESTART_OPTIONS}
    name, checkpoint = values["name"], values["checkpoint"]
    if not keeps_rows:
        checkpoint = written.ours.get("checkpoint")
    root = conf(ROOT)
    if checkpoint is None and root and name is not None:
        checkpoint = f"{root.rstrip('/')}/{name}"
    return StreamSettings(
        checkpoint=checkpoint,
        trigger=values["trigger"],
        output_mode=values["output-mode"],
        name=name,
        sync=values["sync"],
        strategy=restart_strategy(restart, has_checkpoint=checkpoint is not None),
        failover=restart["execution.failover-strategy"],
        sink_options=written.others,
    )
