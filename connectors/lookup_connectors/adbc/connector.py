"""The ``adbc`` connector's class: binds batches of keys, and reads the driver's Arrow stream."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_manager import dbapi
from pyarrow import types

from lookup_connectors.adbc.catalog import plan_sqlite, table_size, told_by_sqlite
from lookup_connectors.adbc.columns import (
    AdbcColumn,
    in_text_if_huge,
    plan_columns,
    read_column,
    refused_row,
    reported_type,
)
from lookup_connectors.adbc.connections import AdbcServer, Connections
from lookup_connectors.adbc.drivers import DUCKDB, POSTGRES, SQLITE, dialect_of
from lookup_connectors.adbc.failures import DRIVER_ERRORS, DriverFailure
from lookup_connectors.adbc.lookup_sql import (
    MARK,
    AdbcStatements,
    Question,
    check_dialect,
    identifier,
    orders_rows,
    relation,
    schema_and_name,
    select,
    select_none,
    typing_row,
)
from lookup_connectors.adbc.nearest_sql import can_measure
from lookup_connectors.adbc.options import (
    OPTIONS,
    check_driver,
    check_options,
    file_of,
    origin_of,
    place_of,
    wrong,
)
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.conversion import is_nested, row_with
from lookup_connectors.shared.options import pooled_requests, source_name
from lookup_connectors.shared.postgres_server import unheld_character, without_characters
from lookup_connectors.shared.source_query import (
    UNCOUNTED,
    VIEW,
    check_names,
    check_query,
    derived_table,
    query_of,
    remarks_on,
)
from lookup_connectors.shared.sql_parts import can_order
from lookup_connectors.shared.sqlite_types import has_one_spelling
from lookup_connectors.shared.text_values import REFUSALS
from lookup_hints.errors import ConnectorError, LookupTimeout, counted
from lookup_hints.spi import (
    Answer,
    AnswerTooLarge,
    AsyncLookup,
    Ending,
    LookupRequest,
    LookupTable,
    NearestCondition,
    NearestLookup,
    NullSafeLookup,
    Option,
    OrderCondition,
    OrderedLookup,
    PlacedRows,
    ReportsSchema,
    Scan,
    Statistics,
    TableSize,
)
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.request_and_answer import identity_of_file
from lookup_hints.spi.secrets import has_reference

_SQLITE_BATCH = {"adbc.sqlite.query.batch_rows": 16_384}
_LOOKS_AT_TYPES = 3


class AdbcConnector(
    AsyncLookup, OrderedLookup, NearestLookup, NullSafeLookup, Scan, Statistics, ReportsSchema
):
    """A table or view of any database that has an ADBC driver."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _OpenAdbc | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def check(self) -> None:
        """Refuse a driver or place that is not allowed, an unknown dialect, and what names no table."""
        given = self.table.options
        check_query(self.table)
        for key in ("driver", "dialect", "table-name"):
            if has_reference(given.get(key, "")):
                raise wrong(self.table, key, "it may hold no reference")
        check_driver(self.table, given["driver"])
        if not has_reference(given.get("uri", "")):
            check_options(self.table, given)
        try:
            check_dialect(self._dialect)
        except ValueError as error:
            raise wrong(self.table, "dialect", str(error)) from None
        _ = self._relation

    def key_columns(self) -> frozenset[str]:
        """All but nested columns; with SQLite, those whose equal values have one spelling there."""
        can_ask = has_one_spelling if self._driver == SQLITE else lambda kind: not is_nested(kind)
        return frozenset(column.name for column in self.table.schema if can_ask(column.type))

    picks_known_rows = True

    def can_ask_null(self, column: str) -> bool:
        return True

    def can_order(self, order: OrderCondition) -> bool:
        """Exact numbers, dates and moments; with SQLite, those of them that have one spelling there."""
        kind = self.table.schema.field(order.column).type
        is_comparable = can_order(kind) and (self._driver != SQLITE or has_one_spelling(kind))
        return is_comparable and orders_rows(self._dialect)

    def can_find_nearest(self, nearest: NearestCondition, *, among: tuple[str, ...]) -> bool:
        """With DuckDB, among the rows of a key: it has no index that finds them among all."""
        return (
            self._driver == DUCKDB
            and self._dialect == "duckdb"
            and bool(among)
            and can_measure(nearest, self.table.schema)
        )

    def nearest_search(self, nearest: NearestCondition) -> str:
        return "asked of DuckDB, which compares all rows of a key"

    def remarks(self) -> Sequence[str]:
        return remarks_on(self.table)

    def requests_at_once(self) -> int | None:
        """One for each connection, and one more each, so that none waits for the task's next one."""
        return pooled_requests(self.table)

    def opened_with(self) -> Hashable:
        """What the default covers, and the database file."""
        return super().opened_with(), identity_of_file(file_of(self.table))

    def place(self) -> str:
        """The file, or the hosts of the URL."""
        return place_of(self.table)

    def origin(self) -> str:
        """The hosts of the URL and the user; none for a file."""
        return origin_of(self.table)

    def ending(self, error: Exception) -> Ending:
        """The state of the database by the driver's code and the SQLSTATE."""
        return error.ending if isinstance(error, DriverFailure) else super().ending(error)

    # Life.

    async def aopen(self) -> None:
        """Connect once, so that a bad setting shows early, and look at the columns."""
        await self.aclose()
        server = await asyncio.to_thread(AdbcServer.of, self.table, self.OPTIONS)  # functions may block
        connections = Connections(server, server.options["pool-size"])
        limit = server.options[MAX_BYTES_IN_FLIGHT.key] // server.options["pool-size"]
        try:
            plans = await connections.ask(self._plan_columns, server.options["connect-timeout"])
        except asyncio.TimeoutError:
            await connections.close()
            seconds = server.options["connect-timeout"]
            raise self._table_error(f"no connection within {seconds:g} s ('connect-timeout').") from None
        except BaseException:
            await connections.close()
            raise
        self._live = _OpenAdbc(server, connections, plans, limit)

    async def aclose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.connections.close()

    # Lookups.

    async def alookup(self, request: LookupRequest) -> Answer:
        live = self._live
        assert live is not None, "aopen() comes before alookup()"
        try:
            return await live.connections.ask(
                partial(self._answer_with_fresh_types, live, request), request.timeout
            )
        except asyncio.TimeoutError:
            raise LookupTimeout(
                f"table {self.table.name}: the database had no answer within {request.timeout:g} s."
            ) from None

    # The whole table.

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows, as the driver streams them."""
        server = AdbcServer.of(self.table, self.OPTIONS)
        with server.connected() as connection:
            try:
                plans = self._plan_columns(connection)
                wanted = [plans[name] for name in schema.names]
                write = typing_row if self._driver == SQLITE else select
                with _casting_if_text(server, connection, wanted), self._open_cursor(connection) as cursor:
                    cursor.execute(write(self._relation, wanted, self._dialect))
                    for batch, _ in self._check_types(cursor.fetch_record_batch(), wanted):
                        yield from self._read_batch(
                            batch, wanted, schema, self.table.primary_key
                        ).to_batches()
            except _TypesChanged:
                raise self._table_error("the type of a column changed while it was opened.") from None
            except DRIVER_ERRORS as error:
                raise server.explained(error) from None

    def statistics(self) -> TableSize:
        """What the catalog of PostgreSQL, DuckDB or SQLite says; nothing of other databases."""
        if query_of(self.table) is not None:
            return UNCOUNTED
        with AdbcServer.of(self.table, self.OPTIONS).connected() as connection:
            return table_size(connection, self._relation, self._driver)

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns with the driver's types, and the primary key if the driver knows it."""
        server = AdbcServer.of(self.table, self.OPTIONS)
        with server.connected() as connection:
            try:
                if self._driver == SQLITE:
                    return told_by_sqlite(connection, self._relation, self.table.name)
                source = self._source_schema(connection)
                key = self._primary_key(connection)
            except DRIVER_ERRORS as error:
                raise server.explained(error) from None
        return pa.schema([(each.name, reported_type(each)) for each in source]), key

    def tables(self) -> Sequence[str]:
        """Those that the driver names, without the database's own."""
        server = AdbcServer.of(self.table, self.OPTIONS)
        with server.connected() as connection:
            try:
                told = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
            except DRIVER_ERRORS as error:
                raise server.explained(error) from None
        return [
            ".".join(name if name.isidentifier() else f'"{name}"' for name in (schema, table) if name)
            for catalog in told
            if catalog["catalog_name"] not in ("system", "temp")
            for schema, tables in (
                (each["db_schema_name"], each["db_schema_tables"])
                for each in catalog["catalog_db_schemas"] or ()
            )
            if schema not in ("information_schema", "pg_catalog")
            for table in sorted(each["table_name"] for each in tables or ())
        ]

    # Inside.

    def _answer_with_fresh_types(
        self, live: _OpenAdbc, request: LookupRequest, connection: dbapi.Connection
    ) -> Answer:
        """The rows, read by the types that the columns have at the moment."""
        looks = 0
        while looks < _LOOKS_AT_TYPES:
            try:
                return self._ask_once(live, request, connection)
            except _TypesChanged:
                live.plans = self._plan_columns(connection)
                looks += 1
            except DRIVER_ERRORS as error:
                character = unheld_character(str(error)) if "22P05" in str(error) else ""
                if not character or character in live.strange:
                    live.is_outdated = True  # a column may be gone, or be called otherwise
                    raise
                live.strange.add(character)
        raise self._table_error("the types of its columns keep changing.")

    def _ask_once(self, live: _OpenAdbc, request: LookupRequest, connection: dbapi.Connection) -> Answer:
        if live.is_outdated:
            live.plans, live.is_outdated = self._plan_columns(connection), False
        order, nearest, keys, compared = request.order, request.nearest, request.keys, request.schema
        by_value = order or nearest
        if by_value is not None:
            # What is compared is read, too: a type that has changed, and a value that does not fit, show.
            compared = pa.schema(
                [each for each in self.table.schema if each.name in {*request.columns, *by_value.columns}]
            )
            keys = keys.append_column(MARK, [pa.array(range(keys.num_rows), pa.int64())])
        keys = without_characters(self._drop_unheld_texts(keys), live.strange)
        wanted = [live.plans[name] for name in compared.names]
        by = [live.plans[name] for name in request.key_columns]
        nulls = [live.plans[name] for name in request.nulls]
        statements = AdbcStatements(self._relation, wanted, by, self._dialect, nulls)
        if nearest is not None:
            asked: Iterable[Question] = (statements.nearest_to(keys, nearest, live.plans),)
        else:
            asked = statements.of(keys) if order is None else statements.in_order(keys, order, live.plans)
        room = _Room(live.limit, request.keys.num_rows, self.table.name)
        parts, positions = [compared.empty_table()], [pa.array([], pa.int64())]
        with _casting_if_text(live.server, connection, (*wanted, *by)):
            for question in asked if keys.num_rows else ():
                rows, marks = self._fetch_rows(connection, question, wanted, compared, request, room)
                is_whole = by_value is not None or question.keys.num_rows == keys.num_rows
                parts.append(rows if is_whole else _drop_other_keys(rows, question))
                positions += marks
        found = pa.concat_tables(parts)
        if by_value is None:
            return found
        return PlacedRows(found.select(request.columns), pa.chunked_array(positions).combine_chunks())

    def _fetch_rows(
        self,
        connection: dbapi.Connection,
        question: Question,
        wanted: Sequence[AdbcColumn],
        schema: pa.Schema,
        request: LookupRequest,
        room: _Room,
    ) -> tuple[pa.Table, list[pa.Array]]:
        """The rows of ``question``, and the positions of their keys where it asks for them."""
        with self._open_cursor(connection) as cursor:
            cursor.execute(question.sql, parameters=question.bound)
            tables, positions = [schema.empty_table()], list[pa.Array]()
            for batch, marks in self._check_types(cursor.fetch_record_batch(), wanted):
                room.take(batch.nbytes)
                tables.append(self._read_batch(batch, wanted, schema, request.key_columns))
                positions += [] if marks is None else [marks]
        return pa.concat_tables(tables), positions

    def _drop_unheld_texts(self, keys: pa.Table) -> pa.Table:
        """``keys`` without texts that PostgreSQL cannot hold: they are misses, and would fail the batch."""
        if self._driver != POSTGRES:
            return keys
        for name in keys.column_names:
            if types.is_string(keys.schema.field(name).type):
                keys = keys.filter(pc.invert(pc.match_substring(keys.column(name), "\0")))
        return keys

    def _open_cursor(self, connection: dbapi.Connection) -> dbapi.Cursor:
        return connection.cursor(adbc_stmt_kwargs=_SQLITE_BATCH if self._driver == SQLITE else None)

    def _check_types(
        self, reader: pa.RecordBatchReader, wanted: Sequence[AdbcColumn]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
        """The batches of ``reader`` with their marks, without the row that only says types to SQLite."""
        told = [each for each in reader.schema if each.name != MARK]
        if not all(plan.is_still(each) for plan, each in zip(wanted, told, strict=True)):
            raise _TypesChanged
        for batch in reader:
            marks = None
            if MARK in batch.schema.names:
                at = batch.schema.get_field_index(MARK)
                batch = batch.filter(pc.greater_equal(batch.column(at), 0))
                marks = batch.column(at).cast(pa.int64())
            if batch.num_rows:
                yield batch.select([each.name for each in told]), marks

    def _read_batch(
        self, batch: pa.RecordBatch, wanted: Sequence[AdbcColumn], schema: pa.Schema, key: Sequence[str]
    ) -> pa.Table:
        arrays = []
        for column, plan in zip(batch.columns, wanted, strict=True):
            try:
                arrays.append(read_column(column, plan))
            except REFUSALS:
                raise self._misfit_error(batch, column, plan, schema, key) from None
        return pa.table(arrays, schema=schema)

    def _misfit_error(
        self, batch: pa.RecordBatch, column: pa.Array, plan: AdbcColumn, schema: pa.Schema, key: Sequence[str]
    ) -> ConnectorError:
        at = refused_row(column, plan)
        row = row_with(schema, [_value_for_error(each, at) for each in batch.columns], key)
        return self._table_error(
            f"column {plan.field.name!r} of the row {row}: {_value_for_error(column, at)!r:.60} does not fit"
            f" {sql_type(plan.field.type)}. Correct the value in the source, or declare the column with a"
            " type that holds it.",
            permanent=True,
        )

    def _plan_columns(self, connection: dbapi.Connection) -> dict[str, AdbcColumn]:
        if self._driver == SQLITE:
            return plan_sqlite(connection, self.table, self._relation)
        source = self._source_schema(connection)
        check_names(self.table, source.names)
        shown = "its query" if query_of(self.table) else self._relation
        plans = plan_columns(source, self.table.schema, self.table.name, shown)
        return (
            {name: in_text_if_huge(plan) for name, plan in plans.items()} if self._driver == DUCKDB else plans
        )

    def _source_schema(self, connection: dbapi.Connection) -> pa.Schema:
        with self._open_cursor(connection) as cursor:
            cursor.execute(select_none(self._relation))
            return cursor.fetch_record_batch().schema

    def _primary_key(self, connection: dbapi.Connection) -> tuple[str, ...]:
        """The primary key; empty for a query, and for the many drivers that do not know it."""
        if query_of(self.table) is not None:
            return ()
        with suppress(*DRIVER_ERRORS, AttributeError, KeyError, TypeError):
            schema, name = schema_and_name(self._relation, self._dialect)
            schema = schema or connection.adbc_current_db_schema
            reader = connection.adbc_get_objects(depth="all", db_schema_filter=schema, table_name_filter=name)
            found = [
                tuple(constraint["constraint_column_names"])
                for catalog in reader.read_all().to_pylist()
                for each in catalog["catalog_db_schemas"] or ()
                for told in each["db_schema_tables"] or ()
                for constraint in told["table_constraints"] or ()
                if each["db_schema_name"] == schema
                and told["table_name"] == name
                and constraint["constraint_type"] == "PRIMARY KEY"
            ]
            return found[0] if len(found) == 1 else ()
        return ()

    @property
    def _driver(self) -> str:
        return self.table.options["driver"]

    @property
    def _dialect(self) -> str:
        return self.table.options.get("dialect") or dialect_of(self._driver)

    @property
    def _relation(self) -> str:
        query = query_of(self.table)
        if query is not None:
            return identifier(VIEW, self._dialect) if self._driver == SQLITE else derived_table(query)
        try:
            return relation(source_name(self.table), self._dialect)
        except ValueError as error:
            raise wrong(self.table, "table-name", str(error)) from None

    def _table_error(self, message: str, *, permanent: bool = False) -> ConnectorError:
        return ConnectorError(f"table {self.table.name}: {message}", permanent=permanent)


@dataclass
class _OpenAdbc:
    server: AdbcServer
    connections: Connections
    plans: dict[str, AdbcColumn]
    limit: int
    is_outdated: bool = field(default=False)
    strange: set[str] = field(default_factory=set)


def _casting_if_text(
    server: AdbcServer, connection: dbapi.Connection, plans: Sequence[AdbcColumn]
) -> AbstractContextManager[None]:
    return server.casting(connection) if any(plan.as_text for plan in plans) else nullcontext()


class _TypesChanged(Exception):
    """A column of the source has another type than it was planned for."""


class _Room:
    """How many bytes the answer to one request may have."""

    def __init__(self, limit: int, keys: int, table: str) -> None:
        self._limit, self._keys, self._table = limit, keys, table
        self._taken = 0

    def take(self, size: int) -> None:
        self._taken += size
        if self._taken > self._limit and self._keys > 1:
            keys = counted(self._keys, "key")
            message = f"table {self._table}: the rows of {keys} are too large to be taken at once."
            raise AnswerTooLarge(message, keys=max(1, self._keys * self._limit // self._taken // 2))


def _drop_other_keys(rows: pa.Table, question: Question) -> pa.Table:
    """``rows`` without those of other keys: where 'a' equals 'A', two statements would give one row twice."""
    own = set(_rows_as_tuples(question.keys))
    found = _rows_as_tuples(rows.select(question.keys.column_names))
    is_own = [key in own or any(value != value for value in key) for key in found]  # NaN equals NaN in SQL
    return rows.filter(pa.array(is_own, pa.bool_()))


def _rows_as_tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _value_for_error(column: pa.Array, row: int) -> object:
    try:
        return column[row].as_py()
    except (ValueError, OverflowError):  # a day or moment that Python has not
        return column[row].value
