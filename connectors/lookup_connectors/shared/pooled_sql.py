"""A table or view of a database server that is asked over a small pool of connections.

Such connectors share their life, timeouts, ways of reading, and what they tell the driver. Each fills in how
it connects, and what it asks on a connection.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from lookup_connectors.shared.answer_sizes import AnswerSizes
from lookup_connectors.shared.conversion import is_nested
from lookup_connectors.shared.options import pooled_requests, source_name
from lookup_connectors.shared.source_query import PIECE, remarks_on
from lookup_connectors.shared.sql_parts import can_filter, can_order
from lookup_hints.errors import LookupTimeout, counted
from lookup_hints.spi import (
    Answer,
    AnswerTooLarge,
    AsyncLookup,
    Changes,
    ChangesRequest,
    Filter,
    FilteredScan,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    LookupTable,
    NullSafeLookup,
    OrderCondition,
    OrderedLookup,
    ReportsChanges,
    ReportsHealth,
    ReportsSchema,
    Statistics,
    TableSize,
)

_T = TypeVar("_T")
_Connection = TypeVar("_Connection")
_Lent = TypeVar("_Lent", covariant=True)


class Pool(Protocol[_Lent]):
    """Connections, lent one at a time."""

    def borrowed(self, *, in_transaction: bool = False) -> AbstractAsyncContextManager[_Lent]:
        """A connection for a block, in which only reading is possible; failures come out explained."""

    async def close(self) -> None:
        """Close the connections."""


class OpenTable(Protocol):
    """What is open while a table is asked."""

    @property
    def pool(self) -> Pool[Any]:
        """The connections."""

    @property
    def sizes(self) -> AnswerSizes:
        """What answers may take."""


_Live = TypeVar("_Live", bound=OpenTable)


class PooledSqlConnector(
    AsyncLookup,
    NullSafeLookup,
    OrderedLookup,
    FilteredScan,
    Statistics,
    ReportsChanges,
    ReportsHealth,
    ReportsSchema,
    Generic[_Live, _Connection],
):
    """A table or view of a database server."""

    SERVER: ClassVar[str]
    """What the server is called in messages."""
    STEPS = ("login", "table", "columns", "rights")
    picks_known_rows = True
    PIECE: ClassVar = PIECE
    """A piece of its SQL."""

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _Live | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def key_columns(self) -> frozenset[str]:
        return frozenset(column.name for column in self.table.schema if not is_nested(column.type))

    def can_ask_null(self, column: str) -> bool:
        return not self.required_keys()

    def can_order(self, order: OrderCondition) -> bool:
        """Times and exact numbers, by an index on the key and the column where there is one."""
        return can_order(self.table.schema.field(order.column).type) and not self.required_keys()

    def can_filter(self, wanted: Filter) -> bool:
        """Texts by ``=`` and IN alone, as their order depends on a collation."""
        return can_filter(self.table.schema.field(wanted.column).type, wanted)

    def remarks(self) -> Sequence[str]:
        return remarks_on(self.table, self.PIECE)

    def requests_at_once(self) -> int | None:
        """One for each connection, and one more each, so that none waits for the task's next one."""
        return pooled_requests(self.table)

    # Life.

    async def aopen(self) -> None:
        """Connect once, so that a bad setting shows early, and find the columns in the catalog."""
        await self.aclose()
        pool = await self._open_pool()
        try:
            self._live = await self._open_table(pool)
        except BaseException:
            await pool.close()
            raise

    async def aclose(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            await live.pool.close()

    # Lookups.

    async def alookup(self, request: LookupRequest) -> Answer:
        return await self._answer_within(request.timeout, self._look_up_rows(request), "had no answer")

    # The whole table.

    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one of ``partitions``."""
        return _iterate_async(self._scan_table(schema, partition, filters))

    def statistics(self) -> TableSize:
        """The size as the catalog has it; unknown for a view."""
        return self._run_alone(self._read_size)

    def changes(self, request: ChangesRequest) -> Changes:
        """The rows in which the column is greater, by an index on it where there is one."""

        async def read(connection: _Connection) -> Changes:
            return await self._read_changes(connection, request)

        reading = self._on_connection(read, in_transaction=True)
        return asyncio.run(self._answer_within(request.timeout, reading, "named no changes"))

    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns with their comments, and the key, from the catalog."""
        return self._run_alone(self._discover_columns)

    def tables(self) -> Sequence[str]:
        return self._run_alone(self._list_tables)

    # Health.

    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """Login, table, columns, rights, indexes on the keys, and connections, from the catalog."""
        return _iterate_async(self._check_health(request))

    def sample(self, columns: Sequence[str], most: int) -> pa.Table:
        async def read(connection: _Connection) -> pa.Table:
            return await self._sample_rows(connection, columns, most)

        return self._run_alone(read, in_transaction=True)

    # What each fills in.

    @abstractmethod
    async def _open_pool(self) -> Pool[_Connection]:
        """A pool that has made its first connection."""

    @abstractmethod
    async def _open_table(self, pool: Any) -> _Live:
        """The table, found over ``pool``."""

    @abstractmethod
    async def _look_up_rows(self, request: LookupRequest) -> Answer:
        """The rows, read by the types that the columns have at the moment."""

    @abstractmethod
    def _scan_table(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> AsyncGenerator[pa.RecordBatch, None]: ...

    @abstractmethod
    def _check_health(self, request: HealthRequest) -> AsyncGenerator[HealthCheck, None]: ...

    @abstractmethod
    async def _read_size(self, connection: _Connection) -> TableSize: ...

    @abstractmethod
    async def _read_changes(self, connection: _Connection, request: ChangesRequest) -> Changes: ...

    @abstractmethod
    async def _discover_columns(self, connection: _Connection) -> tuple[pa.Schema, tuple[str, ...]]: ...

    @abstractmethod
    async def _list_tables(self, connection: _Connection) -> list[str]: ...

    @abstractmethod
    async def _sample_rows(self, connection: _Connection, columns: Sequence[str], most: int) -> pa.Table: ...

    # What they use.

    @property
    def _source_table(self) -> str:
        return source_name(self.table)

    def _run_alone(
        self, action: Callable[[_Connection], Awaitable[_T]], *, in_transaction: bool = False
    ) -> _T:
        """What ``action`` gives for a connection of its own, on an event loop of its own."""
        return asyncio.run(self._on_connection(action, in_transaction=in_transaction))

    async def _on_connection(
        self, action: Callable[[_Connection], Awaitable[_T]], *, in_transaction: bool = False
    ) -> _T:
        async with self._one_pool() as pool, pool.borrowed(in_transaction=in_transaction) as connection:
            return await action(connection)

    @asynccontextmanager
    async def _one_pool(self) -> AsyncIterator[Any]:
        pool = await self._open_pool()
        try:
            yield pool
        finally:
            await pool.close()

    async def _answer_within(self, seconds: float | None, action: Awaitable[_T], what: str) -> _T:
        try:
            return await asyncio.wait_for(action, seconds)
        except asyncio.TimeoutError:
            raise LookupTimeout(
                f"table {self.table.name}: {self.SERVER} {what} within {seconds:g} s."
            ) from None

    def _too_large_error(self, keys: int, fitting: int) -> AnswerTooLarge:
        message = (
            f"table {self.table.name}: the rows of {counted(keys, 'key')} are too large to be taken at once."
        )
        return AnswerTooLarge(message, keys=fitting)


def _iterate_async(found: AsyncGenerator[_T, None]) -> Iterator[_T]:
    """Iterate over ``found`` on an event loop of its own."""
    loop = asyncio.new_event_loop()
    try:
        while (each := loop.run_until_complete(anext(found, None))) is not None:
            yield each
    finally:
        loop.run_until_complete(found.aclose())
        loop.close()
