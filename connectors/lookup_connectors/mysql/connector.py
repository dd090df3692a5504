"""The ``mysql`` connector: looks up rows of MariaDB or MySQL in batches, over a small pool."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.mysql.catalog import (
    MysqlRelation,
    find_relation,
    health_of,
    indexes_of,
    login_check,
    plans_of,
    primary_key,
    readable_tables,
    table_size,
)
from lookup_connectors.mysql.columns import (
    MysqlColumn,
    described_column,
    explain_refusal,
    holds_all,
    is_zero_date,
    quoted,
    reported_type,
    without_characters,
)
from lookup_connectors.mysql.connections import Found, MysqlConnection, MysqlPool
from lookup_connectors.mysql.failures import MysqlFailure
from lookup_connectors.mysql.lookup_sql import (
    MysqlStatements,
    database_and_name,
    filter_of,
    latest_query,
    range_conditions,
    ranges,
)
from lookup_connectors.mysql.options import OPTIONS, check_server, checked_server, origin_of
from lookup_connectors.shared.answer_sizes import COPIES, AnswerSizes
from lookup_connectors.shared.conversion import ToArrow, convert, row_with
from lookup_connectors.shared.options import POOL_SIZE, option_error
from lookup_connectors.shared.pooled_sql import PooledSqlConnector
from lookup_connectors.shared.source_query import MYSQL_PIECE, check_query
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import (
    Answer,
    AnswerTooLarge,
    Changes,
    ChangesRequest,
    Ending,
    Endpoint,
    Filter,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    Option,
    PlacedRows,
    TableSize,
)
from lookup_hints.spi.secrets import has_reference

_LOOKS_AT_TYPES = 3
# Rows that are read at once of a whole table: few first, then as many as make a batch of so many bytes.
_FIRST_ROWS, _MOST_ROWS, _CHUNK_BYTES = 16, 10_000, 4 * 1024 * 1024


@dataclass(frozen=True)
class _OpenMysql:
    pool: MysqlPool
    relation: MysqlRelation
    statements: MysqlStatements
    sizes: AnswerSizes
    held: dict[str, set[str]] = field(default_factory=dict)
    """By character set, the characters that are known to be in it."""


class _ColumnsChanged(Exception):
    """A column has another type than it is planned for."""


class MysqlConnector(PooledSqlConnector[_OpenMysql, MysqlConnection]):
    """A table or view of MariaDB or MySQL."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS
    SERVER = "the server"
    PIECE = MYSQL_PIECE
    DRIVERS = ("asyncmy",)

    def can_ask_null(self, column: str) -> bool:
        """Not by dates and moments: those that are no dates of the calendar may be read as NULL."""
        kind = self.table.schema.field(column).type
        return not (types.is_date(kind) or types.is_timestamp(kind))

    def check(self) -> None:
        """Refuse a server given twice or not at all, a URL that cannot be read, and what names no table."""
        check_server(self.table)
        check_query(self.table, self.PIECE)
        if not has_reference(self._source_table):
            try:
                database_and_name(self._source_table)
            except ValueError as error:
                raise option_error(self.table, f"option 'table-name': {error}") from None

    def origin(self) -> str:
        """The server, and the user who connects to it."""
        return origin_of(self.table)

    def ending(self, error: Exception) -> Ending:
        """By the number of the error: too many connections and the like are a refusal."""
        return error.ending if isinstance(error, MysqlFailure) else super().ending(error)

    # The whole table.

    def partitions(self, wanted: int) -> Sequence[str]:
        """Ranges of the first column of the key, if that has whole numbers; one for views."""
        return self._run_alone(lambda connection: self._find_ranges(connection, wanted))

    # Health.

    def endpoints(self) -> Sequence[Endpoint]:
        """The server. TLS is negotiated at the login."""
        server = checked_server(self.table, self.table.read(self.OPTIONS)[0])
        return [Endpoint(server.host, server.port)]

    def check_of(self, error: Exception) -> str:
        """As the number of the error says."""
        return error.check if isinstance(error, MysqlFailure) else ""

    # Inside.

    async def _open_pool(self) -> MysqlPool:
        pool = await MysqlPool.of(self.table)
        self._database = pool.database
        async with pool.borrowed():
            return pool

    async def _open_table(self, pool: MysqlPool) -> _OpenMysql:
        async with pool.borrowed() as connection:
            relation = await self._find_relation(connection)
            _, row_bytes = await table_size(connection, relation)
        statements = MysqlStatements(relation.sql, plans_of(relation, self.table))
        return _OpenMysql(pool, relation, statements, AnswerSizes(pool.in_flight, row_bytes))

    async def _find_relation(self, connection: MysqlConnection) -> MysqlRelation:
        return await find_relation(connection, self._source_table, self.table, self._database)

    async def _look_up_rows(self, request: LookupRequest) -> Answer:
        for _ in range(_LOOKS_AT_TYPES):
            live = self._live
            assert live is not None, "aopen() comes before alookup()"
            try:
                return await self._answer_once(live, request)
            except _ColumnsChanged:
                await self._plans_have_changed(live)
            except AnswerTooLarge:
                raise
            except ConnectorError as error:
                # A column that changed may be why: it is called otherwise, or has another character set.
                if not (error.permanent and await self._plans_have_changed(live)):
                    raise
        raise ConnectorError(f"table {self.table.name}: the types of its columns keep changing.")

    async def _answer_once(self, live: _OpenMysql, request: LookupRequest) -> Answer:
        keys = request.keys
        if request.order is not None:
            keys = keys.append_column(" position", [pa.array(range(keys.num_rows), pa.int64())])
        for name in request.key_columns:
            keys = keys.filter(live.statements.plans[name].possible(keys.column(name)))
        fitting, sizes = live.sizes.fitting(), live.sizes
        if keys.num_rows > fitting:
            raise self._too_large_error(keys.num_rows, fitting)
        with sizes.budget.lease() as lease:
            async with live.pool.borrowed() as connection:
                keys = await self._drop_unheld_keys(live, connection, request.key_columns, keys)
                count = keys.num_rows
                expected = COPIES * sizes.limit(max(count, 1))
                if live.statements.is_wide(request.columns) and request.order is None:
                    expected = COPIES * await self._large_bytes(live, connection, request, keys)
                await lease.room(expected)
                parts = await self._fetch_parts(live, connection, request, keys) if count else []
            plans, schema, by = live.statements.plans, request.schema, request.key_columns
            tables = [self._to_table(plans, schema, found, by) for found, _ in parts]
            found = pa.concat_tables([request.schema.empty_table(), *tables])
            if count:
                sizes.saw(count, found.nbytes)
        if request.order is None:
            return found
        return _place_rows(
            found, [places for _, places in parts], keys.column(" position"), request.order.until is None
        )

    async def _large_bytes(
        self, live: _OpenMysql, connection: MysqlConnection, request: LookupRequest, keys: pa.Table
    ) -> int:
        """How many bytes the large values of the answer have; the driver reads all that the server sends."""
        size, most = 0, live.sizes.largest
        for question in live.statements.sizes_of(request, keys) if keys.num_rows else ():
            size += int((await connection.ask(question.sql, question.values)).rows[0][0])
        if size > most and keys.num_rows > 1:
            live.sizes.saw(keys.num_rows, size)
            raise self._too_large_error(keys.num_rows, max(1, keys.num_rows * most // size))
        return size

    async def _fetch_parts(
        self, live: _OpenMysql, connection: MysqlConnection, request: LookupRequest, keys: pa.Table
    ) -> list[tuple[Found, list[int]]]:
        """The rows of each statement; of those by order the numbers of their keys stand apart."""
        statements, parts = live.statements, []
        asked = keys if request.order is None else keys.drop_columns([" position"])
        expected = [statements.plans[name].wire for name in request.columns]
        for question in statements.of(request, asked):
            found = await connection.ask(question.sql, question.values)
            places: list[int] = []
            if request.order is not None:
                places = [question.begin + row[0] for row in found.rows]
                found = Found(found.fields[1:], [row[1:] for row in found.rows])
            if [described_column(each).wire for each in found.fields[: len(expected)]] != expected:
                raise _ColumnsChanged
            parts.append((found, places))
        return parts

    def _to_table(
        self, plans: Mapping[str, MysqlColumn], schema: pa.Schema, found: Found, key: Sequence[str] = ()
    ) -> pa.Table:
        """``found`` as declared; an error names a row by the columns ``key``."""
        names = schema.names
        columns: list[Sequence[Any]] = (
            [*zip(*found.rows, strict=True)] if found.rows else [()] * len(found.fields)
        )
        values = dict(zip(names, columns, strict=False))
        odd = [name for name in names if plans[name].odd_date()]
        for name, texts in zip(odd, columns[len(names) :], strict=False):
            if any(texts):
                values[name] = [
                    value if text is None or (plans[name].reads_zero_as_null and is_zero_date(text)) else text
                    for value, text in zip(values[name], texts, strict=True)
                ]
        return self._convert_columns(plans, schema, values, key, MysqlColumn.to_arrow)

    def _convert_columns(
        self,
        plans: Mapping[str, MysqlColumn],
        schema: pa.Schema,
        values: Mapping[str, Sequence[Any]],
        key: Sequence[str],
        to_arrow: Any,
    ) -> pa.Table:
        def where(row: int) -> str:
            return row_with(schema, [values[name][row] for name in schema.names], key)

        arrays = []
        for each in schema:
            plan = plans[each.name]
            read: ToArrow = lambda column, plan=plan: to_arrow(plan, column)  # type: ignore[misc]  # noqa: E731
            try:
                arrays.append(convert(values[each.name], read, each, table=self.table.name, where=where))
            except ConnectorError as error:
                raise explain_refusal(error, plan) from None
        return pa.table(arrays, schema=schema)

    async def _plans_have_changed(self, live: _OpenMysql) -> bool:
        """Read the catalog, and plan again if the columns differ from those of ``live``; whether they did."""
        async with live.pool.borrowed() as connection:
            relation = await self._find_relation(connection)
        plans = plans_of(relation, self.table)
        is_same = relation.sql == live.relation.sql and plans == live.statements.plans
        if not is_same and self._live is live:
            statements = MysqlStatements(relation.sql, plans)
            self._live = _OpenMysql(live.pool, relation, statements, live.sizes)
        return not is_same

    # One such key fails the whole request, and CONVERT makes `?` of it, which may be another row's.
    # (docs/decisions/0244)
    async def _drop_unheld_keys(
        self, live: _OpenMysql, connection: MysqlConnection, names: Sequence[str], keys: pa.Table
    ) -> pa.Table:
        """``keys`` without texts that the column's character set cannot hold: they are misses."""
        for name in names:
            plan = live.statements.plans[name]
            charset = plan.source.charset
            if charset is None or holds_all(charset) or not types.is_string(plan.field.type):
                continue
            held = live.held.setdefault(charset, set())
            strange = set("".join(keys.column(name).to_pylist())) - held
            if not strange:
                continue
            # The server knows: its tables are not those of Python's codecs.
            asked = sorted(strange)
            sql = f"SELECT CONVERT(CONVERT(? USING {charset}) USING utf8mb4)"
            answers = [(await connection.ask(sql, [each])).rows[0][0] for each in asked]
            held.update(each for each, answer in zip(asked, answers, strict=True) if each == answer)
            if strange - held:
                fresh = await self._find_relation(connection)
                if plans_of(fresh, self.table) != live.statements.plans:  # it may have another one by now
                    raise _ColumnsChanged
                keys = keys.filter(without_characters(keys.column(name), strange - held))
        return keys

    # The whole table.

    async def _find_ranges(self, connection: MysqlConnection, wanted: int) -> tuple[str, ...]:
        relation = await self._find_relation(connection)
        key = primary_key(await indexes_of(connection, relation))
        first = next((each for each in relation.columns if each.name in key[:1]), None)
        if first is None or first.wire != "integer":
            return ("",)
        column = quoted(first.name)
        ((least, most),) = await connection.rows(f"SELECT MIN({column}), MAX({column}) FROM {relation.sql}")  # noqa: S608
        return ("",) if least is None else ranges(first.name, least, most, wanted)

    async def _scan_table(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async with self._one_pool() as pool, pool.borrowed(in_transaction=True) as connection:
            relation = await self._find_relation(connection)
            # From here on the transaction holds a lock, so the columns cannot change any more.
            await connection.rows(f"SELECT 1 FROM {relation.sql} LIMIT 0")  # noqa: S608  quoted
            plans = plans_of(await self._find_relation(connection), self.table)
            conditions = [
                *range_conditions(partition),
                *(filter_of(plans[each.column], each) for each in filters),
            ]
            where = " AND ".join(filter(None, conditions))
            selected = ", ".join(plans[name].in_text() for name in schema.names) or "1"
            query = f"SELECT {selected} FROM {relation.sql}{' WHERE ' if where else ''}{where}"  # noqa: S608  quoted
            key = self.table.primary_key
            cursor, size = await connection.open_stream(query), _FIRST_ROWS
            while rows := await cursor.fetchmany(size):
                values = dict(zip(schema.names, zip(*rows, strict=True), strict=False))
                found = self._convert_columns(plans, schema, values, key, MysqlColumn.from_text)
                size = max(1, min(2 * size, _MOST_ROWS, _CHUNK_BYTES * len(rows) // max(found.nbytes, 1)))
                for batch in found.to_batches():
                    yield batch

    async def _read_size(self, connection: MysqlConnection) -> TableSize:
        return (await table_size(connection, await self._find_relation(connection)))[0]

    async def _read_changes(self, connection: MysqlConnection, request: ChangesRequest) -> Changes:
        relation = await self._find_relation(connection)
        plans = plans_of(relation, self.table)
        column = plans[request.column]
        # In this order: a row that becomes visible in between must not be in the greatest value already.
        latest = await connection.ask(latest_query(relation.sql, column))
        greatest = self._to_table(plans, pa.schema([column.field]), latest).column(0)[0]
        if request.since is None:
            return Changes(greatest)
        bound = column.bind_ordered(pa.chunked_array([pa.repeat(request.since, 1)]))
        above = f"WHERE {column.selected()} > ? LIMIT {request.most + 1}"
        count, changed = await self._some_rows(connection, plans, relation, request.schema, above, bound)
        return Changes(greatest, changed if count <= request.most else None)

    async def _sample_rows(self, connection: MysqlConnection, columns: Sequence[str], most: int) -> pa.Table:
        relation = await self._find_relation(connection)
        schema = pa.schema([self.table.schema.field(name) for name in columns])
        plans = plans_of(relation, self.table)
        return (await self._some_rows(connection, plans, relation, schema, f"LIMIT {most}", []))[1]

    async def _some_rows(
        self,
        connection: MysqlConnection,
        plans: Mapping[str, MysqlColumn],
        relation: MysqlRelation,
        schema: pa.Schema,
        ending: str,
        bound: Sequence[object],
    ) -> tuple[int, pa.Table]:
        """How many rows a SELECT with this ``ending`` gives, and those, which are few."""
        odd = [plans[name].odd_date() for name in schema.names if plans[name].odd_date()]
        selected = ", ".join([*(plans[name].selected() for name in schema.names), *odd]) or "NULL"
        found = await connection.ask(f"SELECT {selected} FROM {relation.sql} {ending}", bound)  # noqa: S608  quoted
        return len(found.rows), self._to_table(plans, schema, found)

    async def _discover_columns(self, connection: MysqlConnection) -> tuple[pa.Schema, tuple[str, ...]]:
        relation = await self._find_relation(connection)
        fields = [
            pa.field(
                each.name, reported_type(each), metadata={"comment": each.comment} if each.comment else None
            )
            for each in relation.columns
        ]
        return pa.schema(fields), primary_key(await indexes_of(connection, relation))

    async def _list_tables(self, connection: MysqlConnection) -> list[str]:
        return await readable_tables(connection)

    async def _check_health(self, request: HealthRequest) -> AsyncGenerator[HealthCheck, None]:
        async with self._one_pool() as pool, pool.borrowed() as connection:
            yield await login_check(connection)
            relation = await self._find_relation(connection)
            pool_size: int = self.table.read(self.OPTIONS)[0][POOL_SIZE.key]
            async for check in health_of(connection, relation, self.table, request, pool_size):
                yield check


def _place_rows(
    found: pa.Table, places: Sequence[list[int]], positions: pa.ChunkedArray, is_one: bool
) -> PlacedRows:
    """``found`` with the positions of their keys; ``is_one``: one row answers a key."""
    numbers = pa.array([place for each in places for place in each], pa.int64())
    if is_one:
        numbered = pa.table({"key": numbers, "row": pa.array(range(len(numbers)), pa.int64())})
        first = numbered.group_by("key").aggregate([("row", "min")]).column("row_min")
        found, numbers = found.take(first), numbers.take(first)
    is_asked = pc.less(numbers, len(positions))
    found, numbers = found.filter(is_asked), pc.filter(numbers, is_asked)
    at = positions.take(numbers)
    return PlacedRows(found, at.combine_chunks() if isinstance(at, pa.ChunkedArray) else at)
