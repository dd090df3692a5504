"""The ``sqlite`` connector: a table or view of an SQLite file that every worker can read.

The file is opened read-only. SQLite stores whatever it is given in any column, so values are checked
against the declared types as they come: one that does not fit is an error that names it.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lookup_connectors.shared.conversion import convert, row_with
from lookup_connectors.shared.options import check_file_exists
from lookup_connectors.shared.source_query import (
    QUERY,
    UNCOUNTED,
    VIEW,
    check_names,
    check_query,
    place_of_word,
    pushed_keys_check,
    query_of,
    remarks_on,
)
from lookup_connectors.shared.sql_parts import can_order, quoted
from lookup_connectors.shared.sqlite_types import (
    ANALYSED,
    affinity,
    analysed_size,
    arrow_type,
    has_one_spelling,
    never_fits,
    reader,
)
from lookup_connectors.sqlite.lookup_sql import (
    MAX_VARIABLES,
    bound_keys,
    bound_of,
    can_filter,
    changed_since,
    fits,
    latest_query,
    listed,
    lookup_query,
    ordered_query,
    parts,
    ranges,
    where_of,
)
from lookup_hints.errors import ConnectorError, LookupTimeout, OptionError, Problem, nearest
from lookup_hints.spi import (
    DURATION,
    FILE,
    TEXT,
    Answer,
    Changes,
    ChangesRequest,
    Endpoint,
    Filter,
    FilteredScan,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    LookupTable,
    NullSafeLookup,
    Option,
    OrderCondition,
    OrderedLookup,
    PlacedRows,
    ReportsChanges,
    ReportsHealth,
    ReportsSchema,
    Statistics,
    SyncLookup,
    TableSize,
)

_BATCH_ROWS = 10_000
_STEPS_BETWEEN_LOOKS = 1000  # virtual machine steps between two looks at the clock

_ROW_NUMBERS = ("rowid", "_rowid_", "oid")  # a column of that name hides the row's number
_IS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
)
# Its columns hold no NULL, and are as few as can be.
_UNIQUE_INDEX = """
SELECT part.name FROM pragma_index_info((
  SELECT i.name FROM pragma_index_list(:table) AS i, pragma_index_info(i.name) AS p
  LEFT JOIN pragma_table_info(:table) AS c ON c.name = p.name
  WHERE i."unique" AND NOT i.partial
  GROUP BY i.name HAVING count(c.name) = count(*) AND min(c."notnull") = 1
  ORDER BY count(*), i.name LIMIT 1)) AS part ORDER BY part.seqno
"""
# So few are read as fast without an index.
_FEW_ROWS = 1000


@dataclass(frozen=True)
class _RowNumbers:
    """Numbers of a table's rows: the column that has them, the first and the last."""

    column: str
    first: int
    last: int


def _refused_url(path: str) -> str | None:
    """What to say of a URL in place of a path: its parameters would mean nothing."""
    is_url = re.match(r"(file|sqlite\w*|jdbc):", path, re.IGNORECASE) is not None
    return (
        "'path' is a URL. Write the path of the file, which is opened for reading alone." if is_url else None
    )


class SqliteConnector(
    SyncLookup,
    OrderedLookup,
    NullSafeLookup,
    FilteredScan,
    Statistics,
    ReportsChanges,
    ReportsHealth,
    ReportsSchema,
):
    """A table of an SQLite file."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("path", FILE, "The database file, as each worker sees it.", required=True),
        Option("table-name", TEXT, "The table or view in the file; the table's own name by default."),
        QUERY,
        Option("busy-timeout", DURATION, "How long to wait for a lock that a writer holds.", default=5.0),
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._connection: sqlite3.Connection | None = None
        self._busy_timeout = 0.0
        self._checked_version = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def check(self) -> None:
        if (text := _refused_url(self.table.options.get("path", ""))) is not None:
            raise OptionError(Problem(f"table {self.table.name}: {text}"))
        check_query(self.table)

    def remarks(self) -> Sequence[str]:
        return remarks_on(self.table)

    def key_columns(self) -> frozenset[str]:
        """Columns whose equal values have one spelling in SQLite.

        A moment or a decimal number has several ('2024-01-01', '2024-01-01 00:00:00', 1704067200), of
        which an equality in SQLite finds one; FLOAT is rounded on the way.
        """
        return frozenset(column.name for column in self.table.schema if has_one_spelling(column.type))

    picks_known_rows = True

    def can_ask_null(self, column: str) -> bool:
        return True

    def can_order(self, order: OrderCondition) -> bool:
        """Integers and dates, whose values have one spelling each."""
        kind = self.table.schema.field(order.column).type
        return can_order(kind) and has_one_spelling(kind)

    def can_filter(self, wanted: Filter) -> bool:
        """Not by a DECIMAL, which may be kept as a float; texts by ``=`` and IN alone."""
        return can_filter(self.table.schema.field(wanted.column).type, wanted)

    def place(self) -> str:
        return self.table.options["path"]

    # Life.

    def open(self) -> None:
        """Open the file and check that the table has the declared columns."""
        self.close()
        options = self.table.read(self.OPTIONS)[0]
        self._busy_timeout = options["busy-timeout"]
        connection = self._open_file(options)
        try:
            self._checked_version = self._schema_version(connection)
            self._check_columns(self._stored_columns(connection))
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Lookups.

    def lookup(self, request: LookupRequest) -> Answer:
        assert self._connection is not None, "open() comes before lookup()"
        keys, order, schema = request.keys, request.order, request.schema
        if order is not None:
            # What is compared is read, too: a value that does not fit is an error.
            read = {*request.columns, *order.columns}
            schema = pa.schema([column for column in self.table.schema if column.name in read])
            keys = keys.append_column("position", [pa.array(range(keys.num_rows), pa.int64())])
        rows: list[tuple[Any, ...]] = []
        with (
            self._failures_explained(),
            _interrupt_after(self._connection, request.timeout, self._busy_timeout),
        ):
            for part in parts(keys):
                query = (
                    lookup_query(self._source_table, request.columns, part, request.nulls)
                    if order is None
                    else ordered_query(self._source_table, schema.names, part, order)
                )
                rows += self._connection.execute(query, bound_keys(part)).fetchall()
            version = self._schema_version(self._connection)
        if version != self._checked_version:  # a column may have another type than when it was checked
            self._check_columns(self._stored_columns(self._connection))
            self._checked_version = version
        if order is None:
            return self._rows_to_arrow(rows, request.schema, request.key_columns)
        found = self._rows_to_arrow([row[1:] for row in rows], schema, request.key_columns)
        return PlacedRows(found.select(request.columns), pa.array([row[0] for row in rows], pa.int64()))

    # The whole table.

    def partitions(self, wanted: int) -> Sequence[str]:
        """Conditions on the row's number; one for a view, a table WITHOUT ROWID, and a small one."""
        with closing(self._open_file(self.table.read(self.OPTIONS)[0])) as connection:
            numbers = self._row_numbers(connection)
        return ranges(numbers.column, numbers.first, numbers.last, wanted) if numbers else ("",)

    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        with closing(self._open_file(self.table.read(self.OPTIONS)[0])) as connection:
            stored = self._stored_columns(connection)
            self._check_columns(stored)
            declared = {name.lower(): kind for name, kind, _ in stored}
            usable = [each for each in filters if fits(affinity(declared[each.column.lower()]), each)]
            if len(bound_of(usable)) > MAX_VARIABLES:
                usable = []
            rows_of = where_of(partition, usable)
            query = f"SELECT {listed(schema.names)} FROM {quoted(self._source_table)}{rows_of}"  # noqa: S608  quoted
            with self._failures_explained():
                cursor = connection.execute(query, bound_of(usable))
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    yield from self._rows_to_arrow(rows, schema, self.table.primary_key).to_batches()

    def statistics(self) -> TableSize:
        """What ANALYZE found; else the row numbers, of which there are no fewer than rows."""
        with closing(self._open_file(self.table.read(self.OPTIONS)[0])) as connection:
            try:
                told = connection.execute(ANALYSED, (self._source_table,)).fetchall()
            except sqlite3.OperationalError:  # no statistics in this file
                told = []
            numbers = None if told else self._row_numbers(connection)
        if query_of(self.table) is not None:
            return UNCOUNTED
        if told:
            return analysed_size(told)
        if numbers is None:
            return TableSize(None, source="never analysed, and without numbered rows")
        return TableSize(numbers.last - numbers.first + 1, source="row numbers, an upper estimate")

    def changes(self, request: ChangesRequest) -> Changes:
        """The rows in which the column is greater; those of moments are compared here, by their value."""
        column = self.table.schema.field(request.column)
        options = self.table.read(self.OPTIONS)[0]
        with closing(self._open_file(options)) as connection:
            self._check_columns(self._stored_columns(connection))
            with (
                self._failures_explained(),
                _interrupt_after(connection, request.timeout, options["busy-timeout"]),
            ):
                query = latest_query(quoted(self._source_table), quoted(column.name), column.type)
                only = pa.schema([column])
                latest = pc.max(self._rows_to_arrow(connection.execute(query).fetchall(), only, ()).column(0))
                keys = (
                    None
                    if request.since is None
                    else self._read_changed_keys(connection, request, request.since)
                )
        return Changes(latest, keys)

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns, from their declared types, and the primary key or a unique index."""
        with closing(self._open_file(self.table.read(self.OPTIONS)[0])) as connection:
            stored = self._stored_columns(connection)
            key = [name for _, name in sorted((place, name) for name, _, place in stored if place)]
            if not key:
                key = [name for (name,) in connection.execute(_UNIQUE_INDEX, {"table": self._source_table})]
        schema = pa.schema([(name, self._reported_type(name, declared)) for name, declared, _ in stored])
        return schema, tuple(key)

    def tables(self) -> Sequence[str]:
        connection = self._open_file(self.table.read(self.OPTIONS)[0])
        with closing(connection), self._failures_explained():
            return [name for (name,) in connection.execute(_TABLES)]

    # Health.

    STEPS = ("file", "table", "columns")

    def endpoints(self) -> Sequence[Endpoint]:
        return ()

    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """File, table, columns, and an index that begins with a column of each key."""
        options = self.table.read(self.OPTIONS)[0]
        with closing(self._open_file(options)) as connection:
            yield HealthCheck("file", "ok", options["path"])
            stored = self._stored_columns(connection)
            yield HealthCheck("table", "ok", "its query" if query_of(self.table) else self._source_table)
            self._check_columns(stored)
            yield HealthCheck("columns", "ok", f"{len(self.table.schema)} as declared")
            for by in request.keys:
                yield self._index_check(connection, by)

    # Inside.

    def _read_changed_keys(
        self, connection: sqlite3.Connection, request: ChangesRequest, since: pa.Scalar
    ) -> pa.Table | None:
        wanted = pa.schema([self.table.schema.field(request.column), *request.schema])
        condition, bound = changed_since(quoted(request.column), since)
        query = f"SELECT {listed(wanted.names)} FROM {quoted(self._source_table)} WHERE {condition}"  # noqa: S608  quoted
        cursor = connection.execute(query, (bound,))
        found = [wanted.empty_table()]
        while rows := cursor.fetchmany(_BATCH_ROWS):
            table = self._rows_to_arrow(rows, wanted, self.table.primary_key)
            found.append(table.filter(pc.greater(table.column(0), since)))
            if sum(each.num_rows for each in found) > request.most:
                return None
        return pa.table(pa.concat_tables(found).columns[1:], schema=request.schema)

    def _index_check(self, connection: sqlite3.Connection, by: Sequence[str]) -> HealthCheck:
        """Whether SQLite searches by an index of the table; its own plan says so."""
        keys = pa.table([pa.nulls(1, self.table.schema.field(name).type) for name in by], names=list(by))
        query = lookup_query(self._source_table, by, keys)
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bound_keys(keys))]
        names = ", ".join(by)
        if query_of(self.table) is not None:
            return _pushed_keys_check(names, plan)
        searched = next((step for step in plan if "SEARCH found" in step and "AUTOMATIC" not in step), None)
        if searched is not None:
            return HealthCheck("index", "ok", searched.removeprefix("SEARCH found USING ").lower())
        rows = self._row_numbers(connection)
        if rows is not None and rows.last - rows.first < _FEW_ROWS:
            return HealthCheck("index", "ok", f"none on {names}; so few rows need none")
        what = f"no index begins with {names}: each request reads the whole table"
        cure = f"CREATE INDEX by_key ON {quoted(self._source_table)} ({', '.join(map(quoted, by))})."
        return HealthCheck("index", "warn", what, cure)

    def _row_numbers(self, connection: sqlite3.Connection) -> _RowNumbers | None:
        """Those of the first and the last row; None for views, tables WITHOUT ROWID and empty ones."""
        names = {name.lower() for name, _, _ in self._stored_columns(connection)}
        column = next((name for name in _ROW_NUMBERS if name not in names), None)
        is_table = connection.execute(_IS_TABLE, (self._source_table,)).fetchone()
        if column is None or is_table is None:
            return None
        # Each by itself is one step in the table's tree; both in one SELECT read all of it.
        ends = (f"(SELECT {end}({column}) FROM {quoted(self._source_table)})" for end in ("min", "max"))  # noqa: S608
        try:
            first, last = connection.execute(f"SELECT {', '.join(ends)}").fetchone()
        except sqlite3.OperationalError:  # WITHOUT ROWID
            return None
        return None if first is None else _RowNumbers(column, first, last)

    @property
    def _source_table(self) -> str:
        return self.table.options.get("table-name", self.table.name) if query_of(self.table) is None else VIEW

    def _open_file(self, options: dict[str, Any]) -> sqlite3.Connection:
        if (text := _refused_url(options["path"])) is not None:
            raise self._table_error(text, permanent=True)
        path = Path(options["path"]).absolute()
        check_file_exists(self.table, path)
        with self._failures_explained():
            connection = sqlite3.connect(
                f"{path.as_uri()}?mode=ro",
                uri=True,
                timeout=options["busy-timeout"],
                check_same_thread=False,  # one call at a time is promised, one thread is not
            )
        query = query_of(self.table)
        if query is not None:
            try:
                self._create_view(connection, query)
            except BaseException:
                connection.close()
                raise
        return connection

    # A view of this connection alone: the file stays as it is. Its columns have the declared types of theirs.
    def _create_view(self, connection: sqlite3.Connection, query: str) -> None:
        try:
            connection.execute(f"CREATE TEMP VIEW {quoted(VIEW)} AS {query}\n")
            told = connection.execute(f"SELECT * FROM {quoted(VIEW)} LIMIT 0").description  # noqa: S608  quoted
        except sqlite3.Error as error:
            raise self._query_error(query, error) from error
        check_names(self.table, [name.partition(":")[0] for name, *_ in told])

    def _query_error(self, query: str, error: sqlite3.Error) -> ConnectorError:
        """What is wrong with the query, and where: SQLite names the word, or the column."""
        named = re.search(r'near "(.+?)"|no such (?:column|table|function): (?:main\.)?(\S+)', str(error))
        where = place_of_word(query, next(filter(None, named.groups()), "") if named else "")
        return self._table_error(f"'query'{where}: SQLite says: {error}.", permanent=True)

    def _schema_version(self, connection: sqlite3.Connection) -> int:
        """A number that changes with every change of a table's columns."""
        with self._failures_explained():
            [version] = connection.execute("PRAGMA schema_version").fetchone()
        return int(version)

    def _stored_columns(self, connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
        with self._failures_explained():
            columns = connection.execute(
                "SELECT name, type, pk FROM pragma_table_xinfo(?)", [self._source_table]
            ).fetchall()
            if not columns:
                known = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
                tip = nearest(self._source_table, [name for (name,) in known])
                raise self._table_error(
                    f"the file has no table or view {self._source_table!r}. {tip}", permanent=True
                )
        return columns

    def _check_columns(self, stored: list[tuple[str, str, int]]) -> None:
        declared = {name.lower(): kind for name, kind, _ in stored}
        for column in self.table.schema:
            if column.name.lower() not in declared:
                tip = nearest(column.name, [name for name, _, _ in stored])
                raise self._table_error(
                    f"{self._source_table!r} has no column {column.name!r}. {tip}", permanent=True
                )
            problem = never_fits(declared[column.name.lower()], column.type)
            if problem:
                raise self._table_error(f"column {column.name!r}: {problem}", permanent=True)

    def _reported_type(self, column: str, declared: str) -> pa.DataType:
        kind = arrow_type(declared)
        if kind is None:
            raise self._table_error(
                f"the declared type {declared!r} of column {column!r} does not say what it holds. "
                "Give a column list.",
                permanent=True,
            )
        return kind

    def _rows_to_arrow(self, rows: list[tuple[Any, ...]], schema: pa.Schema, key: Sequence[str]) -> pa.Table:
        values = zip(*rows, strict=True) if rows else [()] * len(schema)
        columns = [
            convert(
                column_values,
                reader(field.type),
                field,
                table=self.table.name,
                where=lambda row: row_with(schema, rows[row], key),
            )
            for field, column_values in zip(schema, values, strict=True)
        ]
        return pa.table(columns, schema=schema)

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain_error(error) from error

    def _explain_error(self, error: sqlite3.Error) -> ConnectorError:
        text = str(error)
        if text == "interrupted":
            return LookupTimeout(f"table {self.table.name}: SQLite had no answer in the time given.")
        if "locked" in text or "busy" in text:
            return self._table_error(
                f"{text}. A writer holds the file; 'busy-timeout' says how long to wait."
            )
        # All else is a file that is damaged, no database, unreadable, or of another shape by now.
        return self._table_error(f"SQLite says: {text}.", permanent=True)

    def _table_error(self, message: str, *, permanent: bool = False) -> ConnectorError:
        return ConnectorError(f"table {self.table.name}: {message}", permanent=permanent)


def _pushed_keys_check(names: str, plan: Sequence[str]) -> HealthCheck:
    """Whether SQLite looks for keys inside the query, by its own plan."""
    is_whole = any(re.match(r"(MATERIALIZE|CO-ROUTINE) (found|lookup query)", step) for step in plan)
    searched = [step for step in plan if step.startswith("SEARCH") and "AUTOMATIC" not in step]
    return pushed_keys_check(names, "" if is_whole else "; ".join(searched).lower())


@contextmanager
def _interrupt_after(
    connection: sqlite3.Connection, seconds: float | None, busy_timeout: float
) -> Iterator[None]:
    """Interrupt what runs on ``connection`` after ``seconds``; waiting for a lock counts."""
    if seconds is None:
        yield
        return
    end = time.monotonic() + seconds
    # The progress handler does not run while SQLite waits for a lock, so that wait is cut itself.
    _set_busy_timeout(connection, min(seconds, busy_timeout))
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        _set_busy_timeout(connection, busy_timeout)


def _set_busy_timeout(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}").close()
