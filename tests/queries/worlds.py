"""Worlds: the same tables in Spark sessions that differ only in which of them are lookup tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from lookup_connectors.memory import put_rows

from lookup_hints import LookupSession
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.sql.lexer import quoted, string_literal
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.statements import split_statements
from lookup_hints.tables.registry import register_connector
from tests.spark.answers import Answer, require_equal
from tests.spark.counting import Calls, CountingConnector
from tests.spark.oracle import OUR_WORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

register_connector("counting", CountingConnector)
_numbers = itertools.count()

Args = dict[str, Any] | list[Any] | None

NOT_COMPILED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
QUICK = {**NOT_COMPILED, "spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
"""For small data and many statements: what is compiled or planned again at run time costs more than it saves.

One partition, too: a key that is asked for twice was asked for by Spark's plan, not by two tasks."""


_DISTANCE = re.compile(r"BY (DISTANCE|SIMILARITY) (.+?) /\* key (.+?) \*/")


def with_ties_by_key(text: str) -> str:
    """``text`` with equally near rows in the order of the key that a comment names; Spark takes either.

    >>> with_ties_by_key("p EXACT NEAREST 2 BY DISTANCE abs(x - p.y) /* key p.id */")
    'p EXACT NEAREST 2 BY DISTANCE if((abs(x - p.y)) IS NULL, NULL, struct((abs(x - p.y)), p.id))'
    """

    def ranked(match: re.Match[str]) -> str:
        by, distance, key = match.groups()
        ties = key if by == "DISTANCE" else f"-{key}"
        return f"BY {by} if(({distance}) IS NULL, NULL, struct(({distance}), {ties}))"

    return _DISTANCE.sub(ranked, text)


@dataclass(frozen=True)
class Data:
    """A table's rows, its primary key where it has one, and options of its WITH.

    ``times`` is how often the source of the lookup table holds each row, where its options leave one.
    """

    rows: pa.Table
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    times: int = 1


@dataclass
class World:
    """A session in which some tables are lookup tables."""

    session: LookupSession
    logs: dict[str, Path]

    def calls(self, name: str) -> Calls:
        """What a lookup table was asked since ``forget``."""
        return Calls.read(self.logs[name])

    def forget(self) -> None:
        """Empty the logs."""
        for log in self.logs.values():
            log.unlink(missing_ok=True)


@dataclass
class Worlds:
    """A set of tables in a plain session, and in one session for each choice of lookup tables."""

    spark: SparkSession
    folder: Path
    tables: Mapping[str, Data]
    conf: Mapping[str, str] = field(default_factory=lambda: QUICK)
    connector: str = "counting"
    views: Mapping[str, str] = field(default_factory=dict)
    """Queries of views that each session has, in an order in which they can be made."""
    is_small: bool = False
    """Whether the ordinary tables are rows in the plan, in one partition: nothing is read then, nor shuffled."""
    _worlds: dict[tuple[frozenset[str], frozenset[str]], World] = field(default_factory=dict)
    _answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    _plain: SparkSession | None = None

    @property
    def plain(self) -> SparkSession:
        """The session in which every table is an ordinary one."""
        if self._plain is None:
            for name, data in self.tables.items():
                pq.write_table(data.rows, self.folder / f"{name}.parquet")
                put_rows(self._data(name), pa.concat_tables([data.rows] * data.times))
            self._plain = self._new_session(self.tables)
            self._create_views(self._plain)
        return self._plain

    def world(self, lookups: frozenset[str], read: frozenset[str] = frozenset()) -> World:
        """The session in which ``lookups`` are lookup tables, and those of them in ``read`` are never asked."""
        if (lookups, read) not in self._worlds:
            assert self.plain is not None, "it writes the files"
            session = LookupSession(self._new_session(self.tables.keys() - lookups))
            logs = {name: self._create(session, name, is_read=name in read) for name in sorted(lookups)}
            self._worlds[lookups, read] = World(session, logs)
            self._create_views(session)
        return self._worlds[lookups, read]

    def answer(self, text: str, args: Args = None) -> Answer:
        """What Spark itself answers; asked once for each text."""
        known = (text, repr(args))
        if known not in self._answers:
            self._answers[known] = Answer.of(last_frame(self.plain, self.plain_text(text), args))
        return self._answers[known]

    def check(self, text: str, lookups: frozenset[str], args: Args = None, *, ordered: bool = False) -> None:
        """Run ``text`` with ``lookups`` as lookup tables; it must give what Spark's own joins give."""
        expected = self.answer(text, args)
        Answer.of(last_frame(self.world(lookups).session, text, args)).require(
            expected, text, ordered=ordered
        )

    def check_all(self, texts: Iterable[str], lookups: frozenset[str]) -> list[Answer]:
        """``check`` for several queries in one job; values are compared as texts."""
        return require_equal(
            (text, self.plain.sql(self.plain_text(text)), self.world(lookups).session.sql(text))
            for text in texts
        )

    def plain_text(self, text: str) -> str:
        """What Spark is asked in place of ``text``, which may have words and calls of ours."""
        return values_by_case(OUR_WORDS.sub("", with_ties_by_key(text)), self.tables)

    def _new_session(self, names: Mapping[str, Data] | set[str]) -> SparkSession:
        spark = self.spark.newSession()
        for key, value in self.conf.items():
            spark.conf.set(key, value)
        for name in names:
            if self.is_small:
                frame = spark.sql(_values(self.tables[name].rows)).coalesce(1)
            else:
                frame = spark.read.parquet(str(self.folder / f"{name}.parquet"))
            frame.createOrReplaceTempView(quoted(name))
        return spark

    def _create_views(self, session: LookupSession | SparkSession) -> None:
        for name, query in self.views.items():
            session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")

    def _data(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _create(self, session: LookupSession, name: str, *, is_read: bool) -> Path:
        data = self.tables[name]
        log = self.folder / f"{name}_{next(_numbers)}.log"
        columns = [f"{quoted(column.name)} {sql_type(column.type)}" for column in data.rows.schema]
        if data.key:
            columns.append(f"PRIMARY KEY ({', '.join(data.key)}) NOT ENFORCED")
        options = {"connector": self.connector, "data": self._data(name), **data.options}
        if is_read:
            options["lookup.access"] = "scan"
        if self.connector == "counting":
            options["log"] = str(log)
        given = ", ".join(
            f"{string_literal(key)} = {string_literal(value)}" for key, value in options.items()
        )
        session.sql(f"CREATE TEMPORARY TABLE {quoted(name)} ({', '.join(columns)}) WITH ({given})")
        return log


def values_by_case(text: str, tables: Mapping[str, Data]) -> str:
    """``text`` with a CASE over the rows of the table in place of each lookup_get."""
    code = SqlText(text).code
    calls = [at for at, piece in enumerate(code) if piece.is_word("LOOKUP_GET")]
    if not calls:
        return text
    first, last = calls[-1], code.closing(calls[-1] + 1)  # the last one holds no other
    table, column, key, *default = (part.of(text).strip() for part in code.parts(first + 2, last - 1))
    data = tables[table.strip("'").lower()]
    made = _case_of_rows(data, column.strip("'").lower(), key, default[0] if default else "NULL")
    name = ""
    if first and code.is_word(first - 1, "SELECT") and code.is_word(last + 1, "FROM"):
        name = f" AS {quoted(text[code[first].start : code[last].end])}"
    return values_by_case(text[: code[first].start] + made + name + text[code[last].end :], tables)


def _case_of_rows(data: Data, column: str, key: str, default: str) -> str:
    pieces = SqlText(key).code
    opening = int(pieces.is_word(0, "STRUCT"))
    is_struct = pieces.is_symbol(opening, "(") and pieces.closing(opening) == len(pieces) - 1
    parts = [each.of(key) for each in pieces.parts(opening + 1, len(pieces) - 2)] if is_struct else [key]
    rows = ""
    for row in data.rows.to_pylist():
        typed = {
            each.name: f"CAST({_literal(row[each.name])} AS {sql_type(each.type)})"
            for each in data.rows.schema
        }
        same = (f"{part} = {typed[name]}" for part, name in zip(parts, data.key, strict=True))
        rows += f" WHEN {' AND '.join(same)} THEN {typed[column]}"
    return f"(CASE{rows} ELSE {default} END)"


def _values(rows: pa.Table) -> str:
    """A query that gives rows of numbers and texts."""
    listed = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in rows.to_pylist())
    columns = (
        f"CAST({quoted(each.name)} AS {sql_type(each.type)}) AS {quoted(each.name)}" for each in rows.schema
    )
    names = ", ".join(map(quoted, rows.schema.names))
    return f"SELECT {', '.join(columns)} FROM VALUES {listed} AS t({names})"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else string_literal(str(value))


def last_frame(session: LookupSession | SparkSession, text: str, args: Args) -> DataFrame:
    """Run the statements of ``text`` one after the other; the frame of the last one."""
    frames = [session.sql(statement.text, args) for statement in split_statements(text)]
    return frames[-1]
