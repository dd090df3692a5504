"""The ``postgres`` connector: a table or view of PostgreSQL, asked in batches over a small pool.

An answer comes as one row of arrays, one array per column: half the client's work of as many records.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import asyncpg
import pyarrow as pa

from lookup_connectors.bytes_in_flight import MAX_BYTES_IN_FLIGHT, ByteLease
from lookup_connectors.conversion import convert, is_nested, row_with
from lookup_connectors.postgres_catalog import (
    comments,
    find_relation,
    plans_of,
    primary_key,
    readable_tables,
    types_unchanged,
)
from lookup_connectors.postgres_changes import changed_query, latest_query
from lookup_connectors.postgres_filters import can_filter, filter_of
from lookup_connectors.postgres_health import health_of
from lookup_connectors.postgres_place import TLS, checked_target, origin_of
from lookup_connectors.postgres_reading import (
    BLOCKS,
    copied,
    parsed,
    ranges,
    values_of,
    where_of,
)
from lookup_connectors.postgres_sizes import COPIES, AnswerSizes
from lookup_connectors.postgres_statistics import table_size
from lookup_connectors.postgres_types import (
    PostgresColumn,
    can_order,
    quoted,
    reported_type,
    unheld_character,
    without_characters,
)
from lookup_connectors.postgres_url import FILES, KNOWN, Target
from lookup_connectors.texts import REFUSALS
from lookup_hints.errors import ConnectorError, LookupTimeout, NotAllowed, OptionError, Problem, did_you_mean
from lookup_hints.spi import (
    DURATION,
    FILE,
    TEXT,
    Answer,
    AnswerTooLarge,
    AsyncLookup,
    Changes,
    ChangesRequest,
    Ending,
    Endpoint,
    Filter,
    FilteredScan,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    LookupTable,
    Option,
    OptionType,
    OrderCondition,
    OrderedLookup,
    PlacedRows,
    ReportsChanges,
    ReportsHealth,
    ReportsSchema,
    Statistics,
    TableSize,
    choice,
    integer,
    reporting,
)
from lookup_hints.spi.secrets import has_reference, masker

_PLACE = ("host", "port", "database", "user", "password")
_SERVER = (*_PLACE, "url", *TLS)
_HAND_BACK_SECONDS = 2.0
_LOOKS_AT_TYPES = 3
# asyncio's TimeoutError is a class of its own before Python 3.11.
_DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncio.TimeoutError,
    OSError,
)
_READ_ONLY = "default_transaction_read_only"
_SEARCH_PATH = "search_path"
_NAME_SCHEMA = "Write 'table-name' = 'schema.table' in its place."
# How often the server looks whether its client is still there while a statement runs: a worker that is
# killed says no goodbye, and its statement would run on. Known from PostgreSQL 14 on.
_LIFE_SIGN = "client_connection_check_interval"
# Texts of dates and moments are read here, so their form is ours to choose. Poolers know these two.
_SESSION = {"application_name": "lookup_hints", "datestyle": "ISO", "timezone": "UTC"}
# What else decides how values are written. 2 is as exact as the server's own 1, and shows that it was set:
# poolers may pass over settings without a word.
_WRITING = {"extra_float_digits": "2", "bytea_output": "hex", "intervalstyle": "postgres"}
_IS_WRITING = " AND ".join(f"current_setting('{name}', true) = '{value}'" for name, value in _WRITING.items())
_SESSION_SETTINGS = {_READ_ONLY: "on", _LIFE_SIGN: "1s", **_WRITING}


_log = logging.getLogger("lookup_hints.postgres")


@lru_cache(maxsize=256)
def _warn(table: str, without_effect: tuple[str, ...]) -> None:
    """Say once in a process what of a URL has no effect."""
    if without_effect:
        _log.warning("table %s: without effect in 'url': %s", table, ", ".join(without_effect))


def _ports(text: str) -> str:
    if not all(
        re.fullmatch(r"\s*\d{1,5}\s*", each, re.ASCII) and 0 < int(each) < 65536 for each in text.split(",")
    ):
        raise ValueError("it must be between 1 and 65535; several are separated by commas")
    return text.replace(" ", "")


_PORTS = OptionType("integer, or a list of them", _ports)
_POOL_SIZE = Option("pool-size", integer(1, 1000), "Connections per worker process, at most.", default=4)


class PostgresConnector(
    AsyncLookup, OrderedLookup, FilteredScan, Statistics, ReportsChanges, ReportsHealth, ReportsSchema
):
    """A table or view of PostgreSQL 14 or later, or of what speaks its protocol."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            "url",
            TEXT,
            "Connection URL: postgresql://user:password@host:5432/database; or `key=value` as in libpq.",
            secret=True,
        ),
        Option("host", TEXT, "Server, in place of `url`; several are separated by commas."),
        Option("port", _PORTS, "Port of the server, or one for each.", default="5432"),
        Option("database", TEXT, "Database; the user's name by default."),
        Option("user", TEXT, "Role; the system user's name by default."),
        Option("password", TEXT, "Password of the role.", secret=True),
        Option("table-name", TEXT, "`table` or `schema.table`, as in SQL; the table's own name by default."),
        Option(
            "sslmode",
            choice("disable", "allow", "prefer", "require", "verify_ca", "verify_full"),
            "TLS, as in libpq: verify-full checks the server's certificate and name. Default: prefer.",
        ),
        Option("sslrootcert", FILE, "File of the authorities to trust, or `system`."),
        Option("sslcert", FILE, "File of the client's certificate."),
        Option("sslkey", FILE, "File of the client's private key."),
        _POOL_SIZE,
        Option("idle-timeout", DURATION, "Unused connections are closed after this.", default=60.0),
        Option("connect-timeout", DURATION, "Time to establish one connection.", default=10.0),
        Option(
            "statement-cache-size",
            integer(0, 10_000),
            "Prepared statements kept per connection; 0 behind a pooler in transaction mode.",
            default=100,
        ),
        MAX_BYTES_IN_FLIGHT,
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _OpenPostgres | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def check(self) -> None:
        """Refuse a server that is said twice, or not at all, and a URL of JDBC."""
        given = self.table.options
        twice = [key for key in _PLACE if "url" in given and key in given]
        if twice:
            raise OptionError(Problem(f"table {self.table.name}: {twice[0]!r} is a part of 'url' already."))
        if "url" not in given and "host" not in given:
            raise OptionError(Problem(f"table {self.table.name}: give the server as 'url' or 'host'."))
        if not any(has_reference(text) for key, text in given.items() if key in _SERVER):
            _warn(self.table.name, checked_target(self.table, given).without_effect)

    def key_columns(self) -> frozenset[str]:
        """All columns but ARRAY, MAP and STRUCT ones."""
        return frozenset(column.name for column in self.table.schema if not is_nested(column.type))

    def requests_at_once(self) -> int | None:
        """One for each connection, and one more each, so that none waits for the task's next one."""
        given = self.table.options.get(_POOL_SIZE.key)
        if given and has_reference(given):
            return None
        return 2 * (int(given) if given else _POOL_SIZE.default)

    def origin(self) -> str:
        """The servers, and the user who connects to them."""
        return origin_of(self.table)

    def ending(self, error: Exception) -> Ending:
        """By the code of the server: too many connections and the like are a refusal, shutdowns no answer."""
        cause = error.__cause__
        if isinstance(cause, asyncpg.PostgresError):
            return _ending_of(cause.sqlstate or "")
        return super().ending(error)

    def secrets(self) -> set[str]:
        """The URL, the password, and what references in the options stand for."""
        return self.table.read(self.OPTIONS)[1]

    async def aopen(self) -> None:
        """Connect once, so that a bad setting shows early, and find the columns in the catalog."""
        await self.aclose()
        server = _Server(self.table, self.OPTIONS)
        pool = await server.pool()
        try:
            async with pool.borrowed() as connection:
                relation = await find_relation(connection, self._source, self.table.name)
            plans = plans_of(relation, self.table)
        except BaseException:
            await pool.close()
            raise
        self._live = _OpenPostgres(
            pool, relation.sql, plans, AnswerSizes(server.in_flight, relation.row_bytes or 0.0)
        )

    async def alookup(self, request: LookupRequest) -> Answer:
        """The rows of each key, in one statement."""
        try:
            return await asyncio.wait_for(self._answer(request), request.timeout)
        except asyncio.TimeoutError:
            raise LookupTimeout(
                f"table {self.table.name}: PostgreSQL had no answer within {request.timeout:g} s."
            ) from None

    async def aclose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.pool.close()

    def partitions(self, wanted: int) -> Sequence[str]:
        """Ranges of blocks; one where rows have no place: a view, a foreign table, servers before 14."""
        return ranges(asyncio.run(self._blocks()), wanted)

    def can_order(self, order: OrderCondition) -> bool:
        """Times and exact numbers, by an index on the key and the column where there is one."""
        return can_order(self.table.schema.field(order.column).type)

    def can_filter(self, wanted: Filter) -> bool:
        """Texts by ``=`` and IN alone, as their order depends on a collation."""
        return can_filter(self.table.schema.field(wanted.column).type, wanted)

    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a range of blocks, by COPY."""
        loop = asyncio.new_event_loop()
        batches = self._scanned(schema, partition, filters)
        try:
            while (batch := loop.run_until_complete(anext(batches, None))) is not None:
                yield batch
        finally:
            loop.run_until_complete(batches.aclose())
            loop.close()

    def statistics(self) -> TableSize:
        """What the catalog says since the table was analysed; nothing of a view."""
        return asyncio.run(self._size())

    def changes(self, request: ChangesRequest) -> Changes:
        """The rows in which the column is greater, by an index on it where there is one."""
        try:
            return asyncio.run(asyncio.wait_for(self._changes(request), request.timeout))
        except asyncio.TimeoutError:
            raise LookupTimeout(
                f"table {self.table.name}: PostgreSQL named no changes within {request.timeout:g} s."
            ) from None

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns with their comments, and the key, from the catalog."""
        return asyncio.run(self._discovered())

    def tables(self) -> Sequence[str]:
        """The tables and views that may be read."""
        return asyncio.run(self._tables())

    # Health.

    DRIVERS = ("asyncpg",)
    STEPS = ("login", "table", "columns", "rights")

    def endpoints(self) -> Sequence[Endpoint]:
        """The hosts of the URL; a socket of the file system is none. TLS is asked for at the login."""
        hosts = checked_target(self.table, self.table.read(self.OPTIONS)[0]).hosts
        return [Endpoint(host, port) for host, port in hosts if not host.startswith(("/", "@"))]

    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """Login, table, columns, rights, indexes on the keys, and connections, from the catalog."""
        loop = asyncio.new_event_loop()
        checks = self._health(request)
        try:
            while (check := loop.run_until_complete(anext(checks, None))) is not None:
                yield check
        finally:
            loop.run_until_complete(checks.aclose())
            loop.close()

    def sample(self, columns: Sequence[str], most: int) -> pa.Table:
        """The first rows that the server comes upon."""
        return asyncio.run(self._sample(columns, most))

    def check_of(self, error: Exception) -> str:
        """As the driver or the code of the server say."""
        return error.check if isinstance(error, _PostgresFailure) else ""

    @property
    def _source(self) -> str:
        name = self.table.name
        return self.table.options.get("table-name") or (name if name.isidentifier() else quoted(name))

    async def _answer(self, request: LookupRequest) -> Answer:
        """The rows, read by the types that the columns have at the moment."""
        for _ in range(_LOOKS_AT_TYPES):
            live = self._live
            assert live is not None, "aopen() comes before alookup()"
            with live.sizes.budget.lease() as lease:
                arrays = await self._arrays(live, request, lease)
                if arrays is not None:
                    rows = arrays[: len(request.schema)]
                    found = self._table(live.plans, rows, request.schema, request.key_columns)
                    return (
                        found
                        if request.order is None
                        else PlacedRows(found, pa.array(arrays[-1], pa.int64()))
                    )
        raise ConnectorError(f"table {self.table.name}: the types of its columns keep changing.")

    async def _arrays(
        self, live: _OpenPostgres, request: LookupRequest, lease: ByteLease
    ) -> Sequence[Any] | None:
        """A list of values for each column; None where types had changed, and ``_live`` has new plans."""
        is_shown = any(live.plans[name].depends_on_settings for name in request.columns)
        while True:
            query, bound = live.statement(request)
            if not bound[0]:
                return [()] * (len(request.schema) + 1)
            try:
                is_unchanged, arrays = await self._fetched(live, query, bound, lease, is_shown=is_shown)
            except AnswerTooLarge:
                raise
            except ConnectorError as error:
                if live.has_learned_a_character(error):
                    continue
                # A type that changed may be why: a text has no cast to bigint.
                if error.permanent and await self._has_changed(live):
                    return None
                raise
            if not is_unchanged:
                await self._has_changed(live)
                return None
            return arrays

    async def _fetched(
        self, live: _OpenPostgres, query: str, bound: list[list[Any]], lease: ByteLease, *, is_shown: bool
    ) -> tuple[bool, Sequence[Any]]:
        """Whether the types are the same still, and the arrays; ``lease`` holds room for them.

        ``is_shown``: there are values that the server writes as its settings say.
        """
        keys, sizes = len(bound[0]), live.sizes
        limit = sizes.limit(keys)
        while True:
            if keys > max(1, sizes.fitting()):
                raise self._too_large(keys, sizes.fitting())
            await lease.room(COPIES * limit)
            try:
                apart = is_shown and bool(live.pool.local)
                async with live.pool.borrowed(in_transaction=apart) as connection:
                    is_unchanged, size, *arrays = await connection.fetchrow(query, *bound, limit)
            except _BeyondServer:
                if keys == 1:
                    raise
                raise self._too_large(keys, keys // 2) from None
            sizes.saw(keys, size or 0)
            if size is None or size <= limit or not is_unchanged:
                return is_unchanged, [array or () for array in arrays]
            lease.release()
            limit = size

    def _too_large(self, keys: int, fitting: int) -> AnswerTooLarge:
        message = f"table {self.table.name}: the rows of {keys} keys are too large to be taken at once."
        return AnswerTooLarge(message, keys=fitting)

    async def _has_changed(self, live: _OpenPostgres) -> bool:
        """Look into the catalog, and plan again where the columns are not those of ``live``.

        Raises:
            ConnectorError: a column that changed cannot be read as declared.
        """
        async with live.pool.borrowed() as connection:
            relation = await find_relation(connection, self._source, self.table.name)
        plans = plans_of(relation, self.table, before=live.plans)
        is_same = relation.sql == live.relation and all(
            plan.source == live.plans[name].source for name, plan in plans.items()
        )
        if not is_same and self._live is live:
            self._live = _OpenPostgres(live.pool, relation.sql, plans, live.sizes)
        return not is_same

    def _table(
        self,
        plans: dict[str, PostgresColumn],
        columns: Sequence[Sequence[Any]],
        schema: pa.Schema,
        key: Sequence[str],
    ) -> pa.Table:
        def where(row: int) -> str:
            return row_with(schema, [column[row] for column in columns], key)

        arrays = [
            convert(values, plans[field.name].to_arrow, field, table=self.table.name, where=where)
            for field, values in zip(schema, columns, strict=True)
        ]
        return pa.table(arrays, schema=schema)

    async def _scanned(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        async with self._one_connection(in_transaction=True) as connection:
            relation = await find_relation(connection, self._source, self.table.name)
            plans = plans_of(relation, self.table)
            # From here on the transaction has a lock: types that are the same now are those of the copy.
            await connection.execute(f"SELECT FROM {relation.sql} LIMIT 0")
            if not await connection.fetchval(f"SELECT {types_unchanged(relation.sql, plans.values())}"):
                raise ConnectorError(
                    f"table {self.table.name}: the type of a column changed while it was opened."
                )
            wanted = [plans[name] for name in schema.names]
            selected = ", ".join(plan.selected for plan in wanted)
            encoding = connection.get_settings().server_encoding
            rows_of = where_of(partition, (filter_of(plans[each.column], each, encoding) for each in filters))
            query = f"SELECT {selected} FROM {relation.sql}{rows_of}"  # noqa: S608  quoted
            async with aclosing(copied(connection, query)) as chunks:
                async for chunk in chunks:
                    for batch in self._read(chunk, wanted, schema).to_batches():
                        yield batch

    def _read(self, chunk: bytes, plans: Sequence[PostgresColumn], schema: pa.Schema) -> pa.Table:
        try:
            return pa.table(parsed(chunk, plans), schema=schema)
        except REFUSALS:  # value by value, to name the one
            by_name = {plan.field.name: plan for plan in plans}
            return self._table(by_name, values_of(chunk, plans), schema, self.table.primary_key)

    async def _blocks(self) -> int:
        async with self._one_connection() as connection:
            relation = await find_relation(connection, self._source, self.table.name)
            return await connection.fetchval(BLOCKS, relation.oid) or 0

    async def _size(self) -> TableSize:
        async with self._one_connection() as connection:
            return await table_size(connection, self._source)

    async def _changes(self, request: ChangesRequest) -> Changes:
        async with self._one_connection(in_transaction=True) as connection:
            relation = await find_relation(connection, self._source, self.table.name)
            plans = plans_of(relation, self.table)
            column, keys = plans[request.column], [plans[name] for name in request.schema.names]
            # In this order: a row that becomes visible in between must not be in the greatest value already.
            latest = await connection.fetchval(latest_query(relation.sql, column))
            only = pa.schema([column.field])
            greatest = self._table(plans, [[latest]], only, ()).column(0)[0]
            if request.since is None:
                return Changes(greatest)
            (bound,) = column.bind(pa.chunked_array([pa.repeat(request.since, 1)]))
            query = changed_query(relation.sql, column, keys, request.most)
            count, *arrays = await connection.fetchrow(query, bound)
        if count > request.most:
            return Changes(greatest)
        arrays = [array or () for array in arrays]
        return Changes(greatest, self._table(plans, arrays, request.schema, request.schema.names))

    async def _health(self, request: HealthRequest) -> AsyncGenerator[HealthCheck, None]:
        async with self._one_connection() as connection:
            pool_size: int = self.table.read(self.OPTIONS)[0][_POOL_SIZE.key]
            async for check in health_of(connection, self._source, self.table, request, pool_size):
                yield check

    async def _sample(self, columns: Sequence[str], most: int) -> pa.Table:
        async with self._one_connection(in_transaction=True) as connection:
            relation = await find_relation(connection, self._source, self.table.name)
            plans = plans_of(relation, self.table)
            wanted = ", ".join(f"array_agg({plans[name].selected})" for name in columns)
            query = f"SELECT {wanted} FROM (SELECT * FROM {relation.sql} LIMIT {most}) AS sampled"  # noqa: S608
            arrays = [array or () for array in await connection.fetchrow(query)]
        schema = pa.schema([self.table.schema.field(name) for name in columns])
        return self._table(plans, arrays, schema, ())

    async def _discovered(self) -> tuple[pa.Schema, tuple[str, ...]]:
        async with self._one_connection() as connection:
            relation = await find_relation(connection, self._source, self.table.name)
            key = await primary_key(connection, relation)
            told = await comments(connection, relation)
        about = {name: {"comment": text} for name, text in told.items()}
        columns = relation.columns
        return pa.schema(
            [pa.field(c.name, reported_type(c), metadata=about.get(c.name)) for c in columns]
        ), key

    async def _tables(self) -> list[str]:
        async with self._one_connection() as connection:
            return await readable_tables(connection)

    @asynccontextmanager
    async def _one_connection(self, *, in_transaction: bool = False) -> AsyncIterator[asyncpg.Connection]:
        pool = await _Server(self.table, self.OPTIONS).pool()
        try:
            async with pool.borrowed(in_transaction=in_transaction) as connection:
                yield connection
        finally:
            await pool.close()


@dataclass(frozen=True)
class _OpenPostgres:
    """What an open connector has."""

    pool: _Pool
    relation: str
    plans: dict[str, PostgresColumn]
    sizes: AnswerSizes
    queries: dict[tuple[tuple[str, ...], tuple[str, ...], OrderCondition | None], str] = field(
        default_factory=dict
    )
    strange: set[str] = field(default_factory=set)

    def statement(self, request: LookupRequest) -> tuple[str, list[list[Any]]]:
        """The statement for ``request``, and for each key column the values of the keys to bind.

        Keys that the source's types cannot hold are left out: they are misses, and would fail the batch.
        """
        plans = [self.plans[name] for name in request.key_columns]
        keys, order = request.keys, request.order
        if order is not None:
            keys = keys.append_column(_POSITION, [pa.array(range(keys.num_rows), pa.int64())])
        keys = without_characters(keys, self.strange)
        for plan in plans:
            keys = keys.filter(plan.possible(keys.column(plan.field.name)))
        bound = [plan.bind(keys.column(plan.field.name)) for plan in plans]
        if order is not None:
            bound.append(self.plans[order.column].bind_ordered(keys.column(keys.num_columns - 2)))
            bound.append(keys.column(_POSITION).to_pylist())
        asked = request.columns, request.key_columns, order
        if asked not in self.queries:
            self.queries[asked] = (
                _lookup_query(self, request.columns, plans)
                if order is None
                else _ordered_query(self, request.columns, plans, order)
            )
        return self.queries[asked], bound

    def has_learned_a_character(self, error: ConnectorError) -> bool:
        """Whether ``error`` names a character that is new here, which the server's encoding has not."""
        cause = error.__cause__
        if not isinstance(cause, asyncpg.UntranslatableCharacterError):
            return False
        character = unheld_character(str(cause))
        is_new = bool(character) and character not in self.strange
        self.strange.update(character)
        return is_new


# --- asking ---------------------------------------------------------------------------------------


_POSITION = " position"
"""A column of keys, which no column of a table is called as."""


def _lookup_query(live: _OpenPostgres, columns: Sequence[str], plans: Sequence[PostgresColumn]) -> str:
    """The query for the columns, as arrays, of all rows whose key columns equal a bound key."""
    condition = _one_column(plans[0]) if len(plans) == 1 else _several_columns(plans)
    selected = [live.plans[name].selected for name in columns]
    return _as_arrays(live, columns, selected, f"{live.relation} WHERE {condition}", len(plans) + 1)


def _ordered_query(
    live: _OpenPostgres, columns: Sequence[str], plans: Sequence[PostgresColumn], order: OrderCondition
) -> str:
    """The same of the rows of each key that answer its value, and with each row the position of its key.

    An index on the key and the column gives the nearest row without a sort.
    """
    value, position = len(plans) + 1, len(plans) + 2
    since = live.plans[order.column]
    conditions = [
        f"{plan.compared} = {plan.key.replace('{k}', f'__asked.k{number}')}"
        for number, plan in enumerate(plans, start=1)
    ]
    compared = since.key.replace("{k}", f"__asked.k{value}")
    conditions.append(f"{compared} {order.operator} {since.compared}")
    if order.until is None:
        direction = "DESC" if order.operator in (">=", ">") else "ASC"
        ending = f" ORDER BY {since.compared} {direction} LIMIT 1"
    else:
        until = live.plans[order.until]
        conditions.append(f"({until.compared} IS NULL OR {compared} < {until.compared})")
        ending = ""
    named = ", ".join(f"{live.plans[name].selected} AS c{number}" for number, name in enumerate(columns))
    found = f"SELECT {named} FROM {live.relation} WHERE {' AND '.join(conditions)}{ending}"  # noqa: S608  quoted
    bound = [*(plan.bound for plan in plans), since.bound, "bigint"]
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(bound, start=1))
    names = ", ".join(f"k{number}" for number in range(1, position + 1))
    rows = f"unnest({arrays}) AS __asked({names}) CROSS JOIN LATERAL ({found}) AS __found"
    selected = [*(f"c{number}" for number in range(len(columns))), f"k{position}"]
    return _as_arrays(live, columns, selected, rows, position + 1)


def _as_arrays(
    live: _OpenPostgres, columns: Sequence[str], selected: Sequence[str], rows: str, limit: int
) -> str:
    """The query for what is ``selected`` of ``rows``, as arrays.

    The first value says whether the columns still have the types that the plans are made for, the second how
    many bytes the arrays have. Where these are more than the parameter ``limit`` says, they are left out.
    (An array has its size in its head, and PostgreSQL makes equal aggregates once: no row costs more for it.)
    """
    arrays = [f"array_agg({each})" for each in selected]
    named = ", ".join(f"{array} AS a{number}" for number, array in enumerate(arrays))
    size = " + ".join(f"pg_column_size({array})::bigint" for array in arrays)
    answer = f"SELECT {size} AS size, {named} FROM {rows}"  # noqa: S608  quoted
    kept = ", ".join(f"CASE WHEN size <= ${limit} THEN a{number} END" for number in range(len(arrays)))
    unchanged = types_unchanged(live.relation, [live.plans[name] for name in columns])
    return f"SELECT {unchanged}, size, {kept} FROM ({answer}) AS answer"  # noqa: S608  quoted


def _one_column(plan: PostgresColumn) -> str:
    bound = f"$1::{plan.bound}[]"
    if plan.key != "{k}":
        bound = f"ARRAY(SELECT {plan.key.replace('{k}', 'k1')} FROM unnest({bound}) AS asked(k1))"  # noqa: S608
    return f"{plan.compared} = ANY({bound})"


def _several_columns(plans: Sequence[PostgresColumn]) -> str:
    numbered = list(enumerate(plans, start=1))
    compared = ", ".join(plan.compared for plan in plans)
    keys = ", ".join(plan.key.replace("{k}", f"k{number}") for number, plan in numbered)
    bound = ", ".join(f"${number}::{plan.bound}[]" for number, plan in numbered)
    names = ", ".join(f"k{number}" for number, _ in numbered)
    return f"({compared}) IN (SELECT {keys} FROM unnest({bound}) AS asked({names}))"  # noqa: S608


# --- connections ----------------------------------------------------------------------------------


class _PooledConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that is given back as it is.

    The driver's own reset is a round trip after each statement. Ours leave nothing to reset.
    """

    def get_reset_query(self) -> str:
        return ""


class _Server:
    """Where to connect and how, from the table's options."""

    def __init__(self, table: LookupTable, declared: tuple[Option, ...]) -> None:
        options, secrets = table.read(declared)
        self._options = options
        mask = masker(secrets)
        try:
            self._target = checked_target(table, options)
        except NotAllowed:
            raise
        except OptionError as error:
            raise ConnectorError(mask(str(error)), permanent=True) from None
        pinned = {name for name in self._target.session if name.lower() in {*_SESSION, *_SESSION_SETTINGS}}
        _warn(table.name, (*self._target.without_effect, *sorted(pinned - {"application_name"})))
        self._failures = _Failures(table.name, options, self._target, mask)
        self._statements: int = options["statement-cache-size"]
        if self._target.behind_pooler and "statement-cache-size" not in table.options:
            self._statements = 0
        self._seconds: float | None = options["connect-timeout"]
        if self._target.seconds is not None and "connect-timeout" not in table.options:
            self._seconds = None if math.isinf(self._target.seconds) else self._target.seconds

    @property
    def in_flight(self) -> int:
        """Bytes that answers under way may take together."""
        return int(self._options[MAX_BYTES_IN_FLIGHT.key])

    async def pool(self) -> _Pool:
        """A pool that has made its first connection.

        Sessions are read-only and end with their client. What a server or pooler refuses to set at the start
        of a session, as pgbouncer does, is left out. Without a read-only session there is a read-only
        transaction around each statement instead: two more round trips. So it is where the server's own
        setting decides which server is meant, and for values that are written as settings say.
        """
        wishes, known = dict(_SESSION_SETTINGS), dict(_WRITING)
        if self._target.asks_whether_writable:
            del wishes[_READ_ONLY]
        while True:
            try:
                return await self._connected({**_SESSION, **wishes}, known, _READ_ONLY in wishes)
            except _SettingRefused as refusal:
                if wishes.pop(refusal.setting, None) is None:
                    raise
                if refusal.is_unknown:
                    known.pop(refusal.setting, None)
                elif refusal.setting in _WRITING:
                    wishes = {name: value for name, value in wishes.items() if name not in _WRITING}

    async def _connected(
        self, session: dict[str, str], known: dict[str, str], read_only_session: bool
    ) -> _Pool:
        options = self._options
        driver_pool = await asyncpg.create_pool(
            **_arguments(self._target),
            min_size=0,
            max_size=options["pool-size"],
            max_inactive_connection_lifetime=options["idle-timeout"],
            timeout=self._seconds,
            statement_cache_size=self._statements,
            server_settings=_settings(session, self._target),
            connection_class=_PooledConnection,
        )
        pool = _Pool(driver_pool, self._failures, read_only_session=read_only_session)
        try:
            async with pool.borrowed() as connection:
                if known and not await connection.fetchval(f"SELECT {_IS_WRITING}"):
                    pool.local = known
                wanted = self._target.session.get(_SEARCH_PATH)
                if (
                    wanted
                    and await connection.fetchval(f"SELECT current_setting('{_SEARCH_PATH}')") != wanted
                ):
                    what = f"a pooler in between does not pass on {_SEARCH_PATH!r} (or 'schema') of the 'url'"
                    raise self._failures.permanent(what, _NAME_SCHEMA)
            return pool
        except BaseException:
            await pool.close()
            raise


def _settings(ours: Mapping[str, str], target: Target) -> dict[str, str]:
    """Settings that a session begins with: the user's name for it, and ours of all else."""
    named = {name: target.session[name] for name in ("application_name",) if name in target.session}
    return {**target.session, **ours, **named}


def _arguments(target: Target) -> dict[str, Any]:
    """What the driver is told of ``target``. It reads the parameters of TLS only in a URL."""
    hosts = random.sample(target.hosts, len(target.hosts)) if target.shuffled else target.hosts
    arguments: dict[str, Any] = {
        "dsn": f"postgresql://?{urlencode(target.driver, quote_via=quote)}" if target.driver else None,
        "host": [host for host, _ in hosts] or None,
        "port": [port for _, port in hosts] or target.port,
        "user": target.user,
        "password": target.password,
        "database": target.database,
        "passfile": target.passfile,
        "target_session_attrs": target.attributes,
        "ssl": _system_authorities(target.driver) if target.system_authorities else None,
        "direct_tls": target.direct_tls or None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _system_authorities(told: Mapping[str, str]) -> ssl.SSLContext:
    """What trusts the authorities of the system and checks the name, which the driver has no word for."""
    context = ssl.create_default_context()
    if "sslcert" in told:
        context.load_cert_chain(told["sslcert"], told.get("sslkey"), lambda: told.get("sslpassword", ""))
    if "sslcrl" in told:
        context.load_verify_locations(cafile=told["sslcrl"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    for name, bound in (
        ("ssl_min_protocol_version", "minimum_version"),
        ("ssl_max_protocol_version", "maximum_version"),
    ):
        if name in told:
            setattr(context, bound, ssl.TLSVersion[told[name].replace(".", "_")])
    context.set_alpn_protocols(["postgresql"])
    return context


class _Transaction:
    """A read-only transaction with settings of its own, begun in one round trip."""

    def __init__(self, connection: asyncpg.Connection, settings: Mapping[str, str]) -> None:
        self._connection = connection
        self._settings = settings

    async def start(self) -> None:
        local = (f"SET LOCAL {name} = '{value}'" for name, value in self._settings.items())
        await self._connection.execute("; ".join(["BEGIN READ ONLY", *local]))

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self._connection.execute("ROLLBACK")


class _Pool:
    """Connections, lent one at a time; one whose state is in doubt is thrown away."""

    def __init__(self, pool: asyncpg.Pool, failures: _Failures, *, read_only_session: bool) -> None:
        self._pool = pool
        self._failures = failures
        self._read_only_session = read_only_session
        self.local: Mapping[str, str] = {}
        """Settings that the session lacks: each transaction begins with them."""
        self._coming_back: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrowed(self, *, in_transaction: bool = False) -> AsyncIterator[asyncpg.Connection]:
        """A connection for a block, in which only reading is possible; failures come out explained."""
        try:
            connection = await self._acquired()
        except Exception as error:
            # Without its cause: what the driver says of a URL may be a piece of it.
            raise self._failures.explained(error, connecting=True) from None
        transaction = None
        if in_transaction or not self._read_only_session:
            transaction = _Transaction(connection, self.local)
        try:
            if transaction:
                await transaction.start()
            yield connection
            if transaction:
                await transaction.commit()
        except asyncio.CancelledError:
            # The server must be told, and may not be listening: the one who cancelled need not wait.
            self._hand_back_later(connection, transaction)
            raise
        except _DRIVER_ERRORS as error:
            await self._hand_back(connection, transaction)
            raise self._failures.explained(error) from error
        except BaseException:
            await self._hand_back(connection, transaction)
            raise
        await self._pool.release(connection)

    async def _acquired(self) -> asyncpg.Connection:
        is_used_up = self._pool.get_size() >= self._pool.get_max_size() and not self._pool.get_idle_size()
        with reporting().waiting("slot") if is_used_up else nullcontext():
            return await self._pool.acquire()

    async def close(self) -> None:
        """Disconnect, after what is borrowed has come back or was thrown away."""
        await asyncio.gather(*self._coming_back)
        try:
            await asyncio.wait_for(self._pool.close(), _HAND_BACK_SECONDS)
        except asyncio.TimeoutError:
            self._pool.terminate()

    def _hand_back_later(self, connection: asyncpg.Connection, transaction: _Transaction | None) -> None:
        task = asyncio.get_running_loop().create_task(self._hand_back(connection, transaction))
        self._coming_back.add(task)
        task.add_done_callback(self._coming_back.discard)

    async def _hand_back(self, connection: asyncpg.Connection, transaction: _Transaction | None) -> None:
        """Give back a connection on which something went wrong; the driver cancels what still runs on it."""
        try:
            if transaction:
                await asyncio.wait_for(transaction.rollback(), _HAND_BACK_SECONDS)
        except _DRIVER_ERRORS:
            with suppress(*_DRIVER_ERRORS):  # it may have gone back by itself, where it is closed already
                connection.terminate()
        # A connection that does not come to rest in time is ended by the pool itself, which then raises.
        with suppress(*_DRIVER_ERRORS):
            await self._pool.release(connection, timeout=_HAND_BACK_SECONDS)


# --- failures -------------------------------------------------------------------------------------

# Classes and codes of SQLSTATE for which asking again cannot help. All others may pass: a lost or refused
# connection (08, 53, 57), a deadlock or serialization failure (40), a lock (55), an I/O error (58).
_PERMANENT = re.compile("0A|22|25006|26|28|2F|3D|3F|42|54")
_TIPS = {
    "26000": "Behind a pooler in transaction mode set 'statement-cache-size' = '0'.",
    "28": "Check user and password.",
    "42501": "Grant the role SELECT on the table, and USAGE on its schema.",
    "42602": "Write names as in SQL: special characters need double quotes.",
    "42P05": "Behind a pooler in transaction mode set 'statement-cache-size' = '0'.",
    "53300": "Lower 'pool-size' (it counts per worker process), or put a pooler in front.",
    "54": "Lower 'batch-size'.",
}


_CHECKS = {
    "28": "login",
    "3D": "database",
    "42501": "rights",
    "42P01": "table",
    "3F": "table",
    "42703": "columns",
    "53300": "connections",
}
"""What a doctor calls that which failed, by how SQLSTATEs begin."""
_TOO_MUCH = ("53", "57014")
_GONE = ("08", "57P")
"""How SQLSTATEs begin of a server with too much to do, and of one that is not there, or not for long."""


def _ending_of(state: str) -> Ending:
    if state.startswith(_TOO_MUCH):
        return "refused"
    return "lost" if state.startswith(_GONE) else "unknown"


class _PostgresFailure(ConnectorError):
    """A failure, and in ``check`` what a doctor calls that which failed, if it can be told."""

    check = ""


class _BeyondServer(ConnectorError):
    """An answer is larger than PostgreSQL can make one, which is a gigabyte."""


class _SettingRefused(ConnectorError):
    """A pooler, or a server that does not know it, lets no session begin with one of our settings."""

    def __init__(self, text: str, setting: str) -> None:
        super().__init__(text)
        self.setting = setting
        self.is_unknown = "unrecognized configuration parameter" in text


class _Failures:
    """Turns what the driver raises into what the caller is told."""

    def __init__(
        self, table: str, options: dict[str, Any], target: Target, mask: Callable[[str], str]
    ) -> None:
        self._table, self._options, self._target, self._mask = table, options, target, mask

    def explained(self, error: Exception, *, connecting: bool = False) -> ConnectorError:
        """The error to raise: what failed, and whether asking again can help."""
        if isinstance(error, asyncpg.PostgresError):
            return self._from_server(error, connecting)
        if isinstance(error, asyncio.TimeoutError) and connecting:
            limit = self._options["connect-timeout"]
            return self._error(f"PostgreSQL took no connection within {limit:g} s ('connect-timeout')")
        if isinstance(error, ssl.SSLCertVerificationError):
            tip = "Check 'sslrootcert' and the host's name."
            if self._target.binds_channel:
                tip += " For 'channel_binding' = require it is checked as by sslmode=verify-full."
            what = f"the server's certificate is not trusted: {error.verify_message}"
            return self._error(what, tip, permanent=True, check="tls")
        if isinstance(error, FileNotFoundError | PermissionError):
            files = [text for key, text in self._target.driver.items() if key in FILES]
            tip = f"One of: {', '.join(files)}." if files else ""
            return self._error(f"a file cannot be read: {error.strerror}", tip, permanent=True, check="tls")
        if isinstance(error, asyncpg.ClientConfigurationError):
            tip = (
                "Give the file as 'sslrootcert', or 'sslrootcert' = 'system'."
                if "root cert" in str(error)
                else ""
            )
            said = str(error).partition("\n")[0]
            return self._error(f"the connection options cannot be used: {said}", tip, permanent=True)
        if isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError):
            # The text may be a piece of the URL, and with it of the password.
            tip = "Special characters in a user or password are percent-encoded."
            return self._error("the connection URL cannot be read", tip, permanent=True)
        if "rejected SSL upgrade" in str(error):
            what = "the server has no TLS, and 'sslmode' asks for it"
            return self._error(what, permanent=True, check="tls")
        return self._error(f"the connection to PostgreSQL failed: {error or type(error).__name__}")

    def _from_server(self, error: asyncpg.PostgresError, connecting: bool) -> ConnectorError:
        state = error.sqlstate or ""
        # The driver's own hints are about its own parameters, and long.
        said = str(error).partition("\nHINT:")[0]
        text = f"PostgreSQL says: {said} (SQLSTATE {state})"
        if state == "54000" or "invalid memory alloc request size" in said:
            return _BeyondServer(self._mask(text), permanent=True)
        setting = next((name for name in _SESSION_SETTINGS if connecting and name in str(error)), None)
        if setting is not None:
            return _SettingRefused(text, setting)
        tip = _TIPS.get(state) or _TIPS.get(state[:2], "")
        unknown = re.search(r'parameter:? "?([\w.]+)', said) if connecting else None
        if unknown is not None and unknown[1] == _SEARCH_PATH:
            tip = _NAME_SCHEMA
        elif unknown is not None and unknown[1] in self._target.session:
            near = did_you_mean(unknown[1], KNOWN)
            tip = f"It is a parameter of 'url', and none of libpq. {near}"
        check = next((name for begin, name in _CHECKS.items() if state.startswith(begin)), "")
        return self._error(text, tip, permanent=_PERMANENT.match(state) is not None, check=check)

    def permanent(self, what: str, tip: str) -> ConnectorError:
        """The failure that it is to find ``what``."""
        return self._error(what, tip, permanent=True)

    def _error(self, what: str, tip: str = "", *, permanent: bool = False, check: str = "") -> ConnectorError:
        message = f"table {self._table}: {what}. {tip}".replace("..", ".").rstrip()
        error = _PostgresFailure(self._mask(message), permanent=permanent)
        error.check = check
        return error
