"""The ``postgres`` connector: looks up rows of a table or view in batches, over a small pool.

An answer is one row, in which the server has packed each column: a third of the work of reading arrays.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import ClassVar

import asyncpg
import pyarrow as pa

from lookup_connectors.postgres.catalog import (
    CatalogRelation,
    comments,
    find_relation,
    health_of,
    plans_of,
    primary_key,
    readable_tables,
    table_size,
)
from lookup_connectors.postgres.columns import PostgresColumn, reported_type
from lookup_connectors.postgres.connections import PostgresEndpoint, PostgresPool
from lookup_connectors.postgres.copy_and_sizes import (
    BLOCKS,
    IN_RANGE,
    ONE_MOMENT,
    REWRITTEN,
    blocks_of,
    copied,
    csv_columns,
    ranges,
    read_ranges,
)
from lookup_connectors.postgres.failures import BeyondServer, PostgresFailure
from lookup_connectors.postgres.inet_and_cidr import address_column, check_networks
from lookup_connectors.postgres.lookup_sql import (
    PostgresStatements,
    changed_rows,
    filter_of,
    latest_row,
    types_unchanged,
)
from lookup_connectors.postgres.nearest_sql import EXTENSIONS, OPERATORS, can_find_nearest
from lookup_connectors.postgres.options import (
    OPTIONS,
    SEARCH_SETTINGS,
    check_server,
    checked_target,
    database_of,
    origin_of,
)
from lookup_connectors.postgres.packed_columns import (
    PackedColumn,
    in_declared_type,
    packed_query,
    unpacked,
    values_of,
)
from lookup_connectors.shared.answer_sizes import COPIES, AnswerSizes
from lookup_connectors.shared.bytes_in_flight import ByteLease
from lookup_connectors.shared.conversion import convert, row_with
from lookup_connectors.shared.options import POOL_SIZE
from lookup_connectors.shared.pooled_sql import PooledSqlConnector
from lookup_connectors.shared.postgres_server import ending_of
from lookup_connectors.shared.source_query import check_query
from lookup_connectors.shared.text_values import REFUSALS
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
    NearestCondition,
    NearestLookup,
    Option,
    PlacedRows,
    TableSize,
)

_LOOKS_AT_TYPES = 3


@dataclass(frozen=True)
class _OpenPostgres:
    pool: PostgresPool
    statements: PostgresStatements
    sizes: AnswerSizes


class PostgresConnector(PooledSqlConnector[_OpenPostgres, asyncpg.Connection], NearestLookup):
    """A table or view of PostgreSQL 14 or later, or of another server with its protocol."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS
    SERVER = "PostgreSQL"

    def check(self) -> None:
        """Refuse a server given twice or not at all, a JDBC URL, and a missing column of networks."""
        check_server(self.table)
        check_networks(self.table)
        check_query(self.table)

    def required_keys(self) -> frozenset[str]:
        """The column of addresses, where there is one: no row has a value of it."""
        asked = address_column(self.table)
        return frozenset() if asked is None else frozenset({asked})

    def request_columns(self) -> frozenset[str]:
        return self.required_keys()

    def origin(self) -> str:
        """The servers, and the user who connects to them."""
        return origin_of(self.table)

    def dataset(self) -> tuple[str, str]:
        """``postgres://host:port``, and database, schema and table."""
        namespace, name = super().dataset()
        path = name if "." in name else f"public.{name}"
        return namespace, f"{database_of(self.table)}.{path}"

    def ending(self, error: Exception) -> Ending:
        """By the code of the server: too many connections and the like are a refusal, shutdowns no answer."""
        cause = error.__cause__
        if isinstance(cause, asyncpg.PostgresError):
            return ending_of(cause.sqlstate or "")
        return super().ending(error)

    def can_find_nearest(self, nearest: NearestCondition, *, among: tuple[str, ...]) -> bool:
        """By extensions of PostgreSQL, and by plain SQL; not in a table of networks."""
        return not self.required_keys() and can_find_nearest(nearest, self.table.schema)

    def nearest_search(self, nearest: NearestCondition) -> str:
        if nearest.metric not in OPERATORS:
            needed = EXTENSIONS.get(nearest.metric, "").partition(" ")[0]
            return f"asked of PostgreSQL, with {needed}" if needed else "asked of PostgreSQL"
        if nearest.exact:
            return "asked of PostgreSQL, which compares all rows of a key"
        given = {name: self.table.options.get(option.key) for name, option in SEARCH_SETTINGS.items()}
        told = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
        return f"asked of pgvector; approximate where it has an index{told and f' ({told})'}"

    # The whole table.

    # Found on the driver, so that each part means the same to all tasks, also to one that is repeated.
    # (docs/decisions/0146)
    def partitions(self, wanted: int) -> Sequence[str]:
        """Ranges of blocks; one where rows have no place: a view, a foreign table, servers before 14."""
        return ranges(self._run_alone(self._count_blocks), wanted)

    # Health.

    DRIVERS = ("asyncpg",)

    def endpoints(self) -> Sequence[Endpoint]:
        """The hosts of the URL, without Unix sockets. TLS is negotiated at the login."""
        hosts = checked_target(self.table, self.table.read(self.OPTIONS)[0]).hosts
        return [Endpoint(host, port) for host, port in hosts if not host.startswith(("/", "@"))]

    def check_of(self, error: Exception) -> str:
        """As the driver or the code of the server say."""
        return error.check if isinstance(error, PostgresFailure) else ""

    # Inside.

    async def _open_pool(self) -> PostgresPool:
        server = await PostgresEndpoint.of(self.table)
        return await server.pool()

    async def _open_table(self, pool: PostgresPool) -> _OpenPostgres:
        async with pool.borrowed() as connection:
            relation = await find_relation(connection, self._source_table, self.table)
            is_unicode = _is_unicode(connection)
        sizes = AnswerSizes(pool.in_flight, relation.row_bytes or 0.0)
        plans = plans_of(relation, self.table)
        statements = PostgresStatements(relation.sql, plans, is_unicode, relation.is_wide, pool.search)
        return _OpenPostgres(pool, statements, sizes)

    async def _look_up_rows(self, request: LookupRequest) -> Answer:
        for _ in range(_LOOKS_AT_TYPES):
            live = self._live
            assert live is not None, "aopen() comes before alookup()"
            with live.sizes.budget.lease() as lease:
                parts = await self._parts(live, request, lease)
                if parts is not None:
                    statements, schema = live.statements, request.schema
                    columns = self._unpack_columns(statements.plans, schema, parts)
                    found = self._arrays_to_table(statements.plans, columns, schema, request.key_columns)
                    return self._place_rows(found, parts[2 * len(columns) :], request)
        raise ConnectorError(f"table {self.table.name}: the types of its columns keep changing.")

    def _unpack_columns(
        self, plans: Mapping[str, PostgresColumn], schema: pa.Schema, parts: Sequence[bytes]
    ) -> list[pa.Array]:
        return self._unpack([plans[name].wire for name in schema.names], parts)

    def _unpack(self, wires: Sequence[str], parts: Sequence[bytes]) -> list[pa.Array]:
        """The columns of these types of the wire: two of ``parts`` are one."""
        pairs = (parts[2 * number : 2 * number + 2] for number in range(len(wires)))
        try:
            columns = [unpacked(wire, *pair) for wire, pair in zip(wires, pairs, strict=True)]
            if len(set(map(len, columns))) > 1:
                raise ValueError(f"columns have {', '.join(str(len(each)) for each in columns)} rows")
        except ValueError as error:
            raise ConnectorError(
                f"table {self.table.name}: the answer does not fit together: {error}. Something between here"
                " and the server changes it, or it is no PostgreSQL."
            ) from error
        return columns

    def _place_rows(self, found: pa.Table, positions: Sequence[bytes], request: LookupRequest) -> Answer:
        """``found`` with the positions of its keys, where these are asked for."""
        if not positions:
            return found
        (at,) = self._unpack(["bigint"], positions)
        for name in self.required_keys():
            column = found.schema.get_field_index(name)
            found = found.set_column(column, found.field(column), request.keys.column(name).take(at))
        return PlacedRows(found, at)

    async def _parts(
        self, live: _OpenPostgres, request: LookupRequest, lease: ByteLease
    ) -> Sequence[bytes] | None:
        """The packed columns; None where types had changed, and ``_live`` has new plans."""
        is_shown = any(live.statements.plans[name].depends_on_settings for name in request.columns)
        while True:
            query, keys, bound = live.statements.of(request)
            if not keys:
                is_placed = request.order or request.nearest or self.required_keys()
                return [b""] * 2 * (len(request.schema) + bool(is_placed))
            try:
                is_unchanged, parts = await self._fetch_within_budget(
                    live, query, keys, bound, lease, is_shown=is_shown
                )
            except AnswerTooLarge:
                raise
            except ConnectorError as error:
                if live.statements.has_learned_a_character(error):
                    continue
                # A type that changed may be why: a text has no cast to bigint.
                if error.permanent and await self._plans_have_changed(live):
                    return None
                if request.nearest is not None and isinstance(error.__cause__, asyncpg.PostgresError):
                    raise _nearest_error(error, request.nearest) from error.__cause__
                raise
            if not is_unchanged:
                await self._plans_have_changed(live)
                return None
            return parts

    async def _fetch_within_budget(
        self,
        live: _OpenPostgres,
        query: str,
        keys: int,
        bound: Sequence[str],
        lease: ByteLease,
        *,
        is_shown: bool,
    ) -> tuple[bool, Sequence[bytes]]:
        """Whether the types are the same still, and the packed columns; ``lease`` holds room for them.

        ``is_shown``: there are values that the server writes as its settings say.
        """
        sizes = live.sizes
        limit = sizes.limit(keys)
        while True:
            if keys > max(1, sizes.fitting()):
                raise self._too_large_error(keys, sizes.fitting())
            await lease.room(COPIES * limit)
            try:
                apart = is_shown and bool(live.pool.local)
                async with live.pool.borrowed(in_transaction=apart) as connection:
                    is_unchanged, size, *parts = await connection.fetchrow(query, *bound, limit)
            except BeyondServer:
                if keys == 1:
                    raise
                raise self._too_large_error(keys, keys // 2) from None
            sizes.saw(keys, size)
            if size <= limit or not is_unchanged:
                return is_unchanged, [part or b"" for part in parts]
            lease.release()
            limit = size

    async def _plans_have_changed(self, live: _OpenPostgres) -> bool:
        """Read the catalog, and plan again if the columns differ from those of ``live``; whether they did."""
        async with live.pool.borrowed() as connection:
            relation = await find_relation(connection, self._source_table, self.table)
        plans = plans_of(relation, self.table, before=live.statements.plans)
        is_same = relation.sql == live.statements.relation and all(
            plan.source == live.statements.plans[name].source for name, plan in plans.items()
        )
        if not is_same and self._live is live:
            statements = replace(
                live.statements, relation=relation.sql, plans=plans, is_wide=relation.is_wide
            )
            self._live = _OpenPostgres(live.pool, statements, live.sizes)
        return not is_same

    def _arrays_to_table(
        self,
        plans: Mapping[str, PostgresColumn],
        columns: Sequence[pa.Array],
        schema: pa.Schema,
        key: Sequence[str],
    ) -> pa.Table:
        """``columns``, in their types of the wire, as declared."""
        wanted = [plans[name] for name in schema.names]
        try:
            return pa.table([*map(in_declared_type, columns, wanted)], schema=schema)
        except REFUSALS:  # value by value, to name the one
            rows = [*map(values_of, columns, wanted)]

        def where(row: int) -> str:
            return row_with(schema, [column[row] for column in rows], key)

        arrays = [
            convert(values, plan.to_arrow, plan.field, table=self.table.name, where=where)
            for values, plan in zip(rows, wanted, strict=True)
        ]
        return pa.table(arrays, schema=schema)

    async def _scan_table(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async with self._one_pool() as pool:
            async with pool.borrowed() as connection:
                relation = await find_relation(connection, self._source_table, self.table)
                has_places = await connection.fetchval(BLOCKS, relation.oid) is not None
            plans = plans_of(relation, self.table)
            async with pool.borrowed(in_transaction=True) as connection:
                if has_places:
                    await connection.execute(ONE_MOMENT)
                # From here on the transaction holds a lock, so the columns cannot change any more.
                await connection.execute(f"SELECT FROM {relation.sql} LIMIT 0")
                if not await connection.fetchval(f"SELECT {types_unchanged(relation.sql, plans.values())}"):
                    raise ConnectorError(
                        f"table {self.table.name}: the type of a column changed while it was opened."
                    )
                encoding = connection.get_settings().server_encoding
                conditions = [filter_of(plans[each.column], each, encoding) for each in filters]
                read = self._in_ranges if has_places else self._copied
                arrays = read(connection, relation, plans, schema, partition, conditions)
                async with aclosing(arrays) as found:
                    async for columns in found:
                        for batch in self._arrays_to_table(
                            plans, columns, schema, self.table.primary_key
                        ).to_batches():
                            yield batch

    async def _in_ranges(
        self,
        connection: asyncpg.Connection,
        relation: CatalogRelation,
        plans: Mapping[str, PostgresColumn],
        schema: pa.Schema,
        partition: str,
        conditions: Sequence[str],
    ) -> AsyncGenerator[list[pa.Array], None]:
        """The columns of a range of blocks, packed."""
        if await connection.fetchval(REWRITTEN, relation.oid):
            raise ConnectorError(f"table {self.table.name}: it was written anew while it was opened.")
        query = packed_query(
            "rows",
            [PackedColumn(plans[name].wire, plans[name].selected) for name in schema.names],
            f"{relation.sql} WHERE {' AND '.join([IN_RANGE, *filter(None, conditions)])}",
            is_unicode=_is_unicode(connection),
            is_wide=relation.is_wide,
            limit="$3::bigint",
        )
        # What is read is older than the size is.
        begin, end = blocks_of(partition, await connection.fetchval(BLOCKS, relation.oid) or 0)
        async with aclosing(read_ranges(connection, query, begin, end)) as ranges_read:
            async for parts in ranges_read:
                yield self._unpack_columns(plans, schema, parts)

    async def _copied(
        self,
        connection: asyncpg.Connection,
        relation: CatalogRelation,
        plans: Mapping[str, PostgresColumn],
        schema: pa.Schema,
        partition: str,
        conditions: Sequence[str],
    ) -> AsyncGenerator[list[pa.Array], None]:
        """The columns of rows that have no places, by COPY: there is no other way to read them bit by bit."""
        if partition:
            raise ConnectorError(f"table {self.table.name}: it had ranges of blocks, and has none any more.")
        wanted = [plans[name] for name in schema.names]
        selected = ", ".join(plan.selected for plan in wanted)
        found = " AND ".join(filter(None, conditions))
        query = f"SELECT {selected} FROM {relation.sql}{' WHERE ' if found else ''}{found}"  # noqa: S608  quoted
        async with aclosing(copied(connection, query)) as chunks:
            async for chunk in chunks:
                yield csv_columns(chunk, wanted)

    async def _count_blocks(self, connection: asyncpg.Connection) -> int:
        relation = await find_relation(connection, self._source_table, self.table)
        return await connection.fetchval(BLOCKS, relation.oid) or 0

    async def _read_size(self, connection: asyncpg.Connection) -> TableSize:
        return await table_size(connection, self._source_table, self.table)

    async def _read_changes(self, connection: asyncpg.Connection, request: ChangesRequest) -> Changes:
        relation = await find_relation(connection, self._source_table, self.table)
        plans = plans_of(relation, self.table)
        column, keys = plans[request.column], [plans[name] for name in request.schema.names]
        # In this order: a row that becomes visible in between must not be in the greatest value already.
        only = pa.schema([column.field])
        _, found = await self._rows_of(connection, plans, only, latest_row(relation.sql, column))
        greatest = found.column(0)[0]
        if request.since is None:
            return Changes(greatest)
        (bound,) = column.bind(pa.chunked_array([pa.repeat(request.since, 1)])).to_pylist()
        rows = changed_rows(relation.sql, column, keys, request.most)
        count, changed = await self._rows_of(connection, plans, request.schema, rows, bound)
        return Changes(greatest, changed if count <= request.most else None)

    async def _check_health(self, request: HealthRequest) -> AsyncGenerator[HealthCheck, None]:
        async with self._one_pool() as pool, pool.borrowed() as connection:
            pool_size: int = self.table.read(self.OPTIONS)[0][POOL_SIZE.key]
            async for check in health_of(connection, self._source_table, self.table, request, pool_size):
                yield check

    async def _sample_rows(
        self, connection: asyncpg.Connection, columns: Sequence[str], most: int
    ) -> pa.Table:
        relation = await find_relation(connection, self._source_table, self.table)
        plans = plans_of(relation, self.table)
        schema = pa.schema([self.table.schema.field(name) for name in columns])
        rows = f"(SELECT * FROM {relation.sql} LIMIT {most}) AS sampled"  # noqa: S608  quoted
        _, found = await self._rows_of(connection, plans, schema, rows)
        return found

    async def _rows_of(
        self,
        connection: asyncpg.Connection,
        plans: Mapping[str, PostgresColumn],
        schema: pa.Schema,
        rows: str,
        *bound: str,
    ) -> tuple[int, pa.Table]:
        """How many ``rows`` there are, and those, which are few."""
        selected = [PackedColumn(plans[name].wire, plans[name].selected) for name in schema.names]
        query = packed_query("rows", selected, rows, is_unicode=_is_unicode(connection))
        count, _, *parts = await connection.fetchrow(query, *bound)
        columns = self._unpack_columns(plans, schema, [part or b"" for part in parts])
        return count, self._arrays_to_table(plans, columns, schema, schema.names if bound else ())

    async def _discover_columns(self, connection: asyncpg.Connection) -> tuple[pa.Schema, tuple[str, ...]]:
        relation = await find_relation(connection, self._source_table, self.table)
        key = await primary_key(connection, relation)
        told = await comments(connection, relation)
        about = {name: {"comment": text} for name, text in told.items()}
        fields = [
            pa.field(each.name, reported_type(each), metadata=about.get(each.name))
            for each in relation.columns
            if each.name not in self.required_keys()
        ]
        return pa.schema([*(pa.field(name, pa.string()) for name in self.required_keys()), *fields]), key

    async def _list_tables(self, connection: asyncpg.Connection) -> list[str]:
        return await readable_tables(connection)


def _nearest_error(error: ConnectorError, nearest: NearestCondition) -> ConnectorError:
    """``error`` of a search, with what is compared, and what its distance needs."""
    what = f"The search is by {nearest.metric} of {', '.join(nearest.columns)}."
    needed = EXTENSIONS.get(nearest.metric)
    if needed and isinstance(error.__cause__, asyncpg.UndefinedFunctionError):
        what += f" CREATE EXTENSION {needed} in a schema of the search_path,"
        what += " or set 'cache' = 'full': workers then hold all rows and compare them."
    return ConnectorError(f"{error} {what}", permanent=error.permanent)


def _is_unicode(connection: asyncpg.Connection) -> bool:
    return str(connection.get_settings().server_encoding).upper() in ("UTF8", "UTF-8")
