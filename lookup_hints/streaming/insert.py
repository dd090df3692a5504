"""Parse a streaming INSERT, a statement that Spark does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from lookup_hints.errors import OptionError, Problem, QueryError, Span
from lookup_hints.spi.option_values import Conf, Place, Trigger, bad_value, in_force, options_at
from lookup_hints.sql.cursor import Cursor, Unreadable
from lookup_hints.sql.lexer import Kind, blanked, quoted
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit
from lookup_hints.sql.tokens import Tokens
from lookup_hints.sql.with_options import read_option_list
from lookup_hints.sql.words import CLAUSE_WORDS, INSERTED_QUERY_WORDS
from lookup_hints.streaming.restart_strategy import RestartStrategy, restart_strategy
from lookup_hints.streaming.stream_options import RESTART_OPTIONS, STREAM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Words after a stream that are no alias.
_AFTER_STREAM = (*CLAUSE_WORDS, "FOR")


@dataclass(frozen=True)
class StreamInsert:
    """A streaming INSERT.

    Args:
        text: the statement.
        sink: the parts of the sink's name, without backquotes: a table, ``format`` and ``path``, or a format.
        sink_at: the place of the sink.
        options: the options in ``WITH (...)`` as written, by key.
        columns: the sink's columns that receive the query's columns, in order; None: all.
        by_name: whether columns are matched by name.
        query: the query at its place in ``text``, with blanks before it.
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


def _words_stream(found: Tokens) -> Iterator[int]:
    """The index of each word STREAM that says that a stream is read."""
    for at in found.places("STREAM", 1, len(found) - 2):
        names_one = found.is_word(at - 1, "FROM", "JOIN") and found.is_word(at, "STREAM")
        if names_one and (found[at + 1].is_name or found.is_symbol(at + 1, "(")):
            yield at


# Spark reads streams in SQL but starts none outside of its pipelines, so the statement is ours.
# (docs/decisions/0045)
def read_insert(text: SqlText) -> StreamInsert:
    """Parse a streaming INSERT.

    Raises:
        QueryError: it has a clause that no stream supports (OVERWRITE, PARTITION, ...), or cannot be read.
        OptionError: its ``WITH (...)`` is malformed.
    """
    try:
        return _InsertReader(text).insert()
    except Unreadable as unreadable:
        raise QueryError(unreadable.problem) from None


@dataclass(frozen=True)
class StreamSource:
    """A ``STREAM name WITH (...)`` in a query.

    Args:
        name: the parts of the name, without backquotes.
        options: the options in ``WITH (...)``.
        start: its first offset in the text.
        end: its end.
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
    try:
        return [_InsertReader(text, at).source() for at in _words_stream(text.code)]
    except Unreadable as unreadable:
        raise QueryError(unreadable.problem) from None


def shown_insert(text: SqlText) -> str:
    """``text`` as it may be shown: the values of options of an INSERT are starred, places stay true."""
    shown: str = text
    if not text.starts_with("INSERT"):
        return shown
    inside = False
    for before, piece in pairwise(text.code):
        if before.is_word("WITH") and piece.is_symbol("("):
            inside = True
        elif piece.is_word(*INSERTED_QUERY_WORDS) and not piece.is_word("WITH"):
            return shown
        elif inside and piece.kind in (Kind.STRING, Kind.UNCLOSED) and before.text not in ("(", ","):
            shown = blanked(shown, piece.start, piece.end, "*")
    return shown


class _InsertReader(Cursor):
    def __init__(self, text: SqlText, at: int = 0) -> None:
        super().__init__(shown_insert(text), text.code, len(text))
        self._text, self._at = text, at

    def insert(self) -> StreamInsert:
        self.words("INSERT")
        if self.is_word("OVERWRITE"):
            self._refuse_clause("INSERT OVERWRITE", "A stream adds rows: write INSERT INTO.")
        if not self.words("INTO"):
            self.fail_missing("INTO")
        self.words("TABLE")
        sink = self.dotted_name("The name of the sink")
        options = self._read_options()
        if self.is_word("PARTITION", "IF", "REPLACE"):
            tip = "Give the partition column in the query; each row goes to the partition of its value."
            self._refuse_clause(self.peek().text.upper(), tip)
        by_name = self.words("BY", "NAME")
        columns = self._read_columns()
        if not self._is_query():
            self.fail_missing("The query")
        return StreamInsert(
            text=self._text,
            sink=tuple(part.name for part in sink),
            sink_at=self.span(sink),
            options=MappingProxyType(options),
            columns=columns,
            by_name=by_name,
            query=self._text.blank_before(self.peek().start),
        )

    def source(self) -> StreamSource:
        """The stream whose word STREAM comes next."""
        first = self.take()
        in_parentheses = self.symbol("(")
        name = self.dotted_name("The name of the stream")
        if in_parentheses:
            self.expect(")", "after the name of the stream")
        options = self._read_options()
        return StreamSource(
            name=tuple(part.name for part in name),
            options=MappingProxyType(options),
            start=first.start,
            end=self.tokens[self._at - 1].end,
            has_alias=self.peek().is_name and not self.is_word(*_AFTER_STREAM),
        )

    def _read_options(self) -> dict[str, str]:
        if not (self.is_word("WITH") and self.is_symbol("(", 1)):
            return {}
        self._at += 2
        options: dict[str, str] = {}
        for given in read_option_list(self):
            key, value = given.key, given.value
            if value.kind not in (Kind.STRING, Kind.NUMBER) and not value.is_word("TRUE", "FALSE"):
                at = self.span([value])
                raise OptionError(Problem(f"The value of {key!r} must be a literal.", at))
            if key.lower() in (other.lower() for other in options):
                at = self.span(given.key_pieces)
                raise OptionError(Problem(f"The option {key!r} is given twice.", at))
            options[key] = given.text
        return options

    def _read_columns(self) -> tuple[str, ...] | None:
        if not self.is_symbol("(") or self._is_query(1):
            return None
        self.take()
        names = [self.name("The name of a column").name]
        while not self.symbol(")"):
            self.expect(",", "between columns")
            names.append(self.name("The name of a column").name)
        return tuple(names)

    def _is_query(self, ahead: int = 0) -> bool:
        piece = self.peek(ahead)
        return piece.is_word(*INSERTED_QUERY_WORDS) or piece.is_symbol("(")

    def _refuse_clause(self, what: str, tip: str) -> NoReturn:
        self.fail(f"{what} cannot stand in an INSERT that reads a stream.", tip=tip)


# --- options ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenOptions:
    """The options of ``WITH (...)``: ours, typed and by key, and the others, for the sink itself."""

    ours: Mapping[str, object]
    others: Mapping[str, str]


def written_options(insert: StreamInsert) -> WrittenOptions:
    """The options of the statement, ours separated from those of the sink.

    Raises:
        OptionError: ours have invalid values (all at once).
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
        written: the options of the statement.
        conf: the session's configuration.
        keeps_rows: whether its sink keeps rows. One that does not (console) takes a checkpoint only from the
            statement, as the session's belongs to the session's main query.

    Raises:
        OptionError: the session sets an option to an invalid value.
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
