"""How fast plain asyncpg looks up a million orders in PostgreSQL: the mark that a lookup join is held to.

``python -m benchmarks.postgres_raw`` starts a server, loads the customers and times each way of asking.
Figures move with the machine's load: compare within one run only. Every way ends with the same Arrow rows:
one for each order, NULLs for a customer that does not exist.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain

import asyncpg
import pyarrow as pa
import pyarrow.compute as pc

from tests.servers.postgres import PostgresServer, running_server

CUSTOMERS = 1_000_000
ORDERS = 1_000_000
IDS = 1_200_000
"""Orders name customers from 1 to this: about 17 % of them do not exist."""

ROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("country", pa.string()), ("zip", pa.string())])
_BY_KEYS = "WHERE id = ANY($1::bigint[])"
_RECORDS = f"SELECT {', '.join(ROW.names)} FROM customers {_BY_KEYS}"
_COLUMNS = f"SELECT {', '.join(f'array_agg({name})' for name in ROW.names)} FROM customers {_BY_KEYS}"
_ONE = f"SELECT {', '.join(ROW.names)} FROM customers WHERE id = $1"

WINDOW = 128 * 1024

AnswerBatch = Callable[[asyncpg.Connection, list[int]], Awaitable[pa.Table]]


@dataclass(frozen=True)
class Timing:
    """How long one way of asking took, and how many orders found their customer."""

    way: str
    orders: int
    found: int
    seconds: float

    def __str__(self) -> str:
        misses = 1 - self.found / self.orders
        rate = self.orders / self.seconds
        return f"{self.way}: {rate:,.0f} rows/s ({self.orders:,} orders, {misses:.0%} misses)"


def load(server: PostgresServer, customers: int = CUSTOMERS) -> None:
    """Fill the table ``customers`` by COPY."""
    server.execute(
        "DROP TABLE IF EXISTS customers;"
        "CREATE UNLOGGED TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, country text NOT NULL,"
        " zip text NOT NULL, balance numeric(12, 2) NOT NULL, since timestamptz NOT NULL)"
    )
    asyncio.run(_copy(server, customers))
    server.execute("VACUUM ANALYZE customers")


async def _copy(server: PostgresServer, customers: int) -> None:
    lines = "".join(
        f"{number}\tcustomer {number}\t{('DE', 'FR', 'US', 'JP')[number % 4]}\t{number % 100_000:05}"
        f"\t{number % 10_000}.{number % 100:02}\t2024-01-01 00:00:{number % 60:02}+00\n"
        for number in range(1, customers + 1)
    )
    connection = await asyncpg.connect(server.url())
    try:
        await connection.copy_to_table("customers", source=_Source(lines.encode()), format="text")
    finally:
        await connection.close()


@contextmanager
def customers_server(customers: int = CUSTOMERS) -> Iterator[PostgresServer]:
    """A server of its own that holds so many customers."""
    with contextmanager(running_server)() as server:
        load(server, customers)
        yield server


class _Source:
    """Bytes as the driver reads a file."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece


def order_keys(orders: int = ORDERS, ids: int = IDS, seed: int = 7) -> list[int]:
    """The customer of each order, uniform over ``ids``."""
    return random.Random(seed).choices(range(1, ids + 1), k=orders)


def skewed_keys(orders: int = ORDERS, ids: int = IDS, seed: int = 7) -> list[int]:
    """The customer of each order, by Zipf's law with exponent 1.1; popular ids are anywhere."""
    chance = random.Random(seed)
    customers = chance.sample(range(1, ids + 1), ids)
    weights = list(accumulate(1 / rank**1.1 for rank in range(1, ids + 1)))
    return chance.choices(customers, cum_weights=weights, k=orders)


def raw_columns(
    server: PostgresServer, keys: Sequence[int], *, connections: int = 4, batch_size: int = 1000
) -> Timing:
    """Batches of orders as they come by ``= ANY``, answered as one row of arrays."""
    return _timed("columns", server, keys, connections, batch_size, _ask_for_columns)


def raw_sorted(
    server: PostgresServer, keys: Sequence[int], *, connections: int = 4, batch_size: int = 4000
) -> Timing:
    """The sorted distinct keys of ``WINDOW`` orders: neighbours in the index are asked together."""
    column = pa.array(keys, pa.int64())
    found, seconds = asyncio.run(_run_windows(server, column, connections, batch_size))
    return Timing("columns, sorted keys", len(keys), found, seconds)


def raw_records(
    server: PostgresServer, keys: Sequence[int], *, connections: int = 4, batch_size: int = 1000
) -> Timing:
    """Batches by ``= ANY``, answered as records."""
    return _timed("records", server, keys, connections, batch_size, _ask_for_records)


def raw_one_by_one(
    server: PostgresServer, keys: Sequence[int], *, connections: int = 4, batch_size: int = 1000
) -> Timing:
    """One query per key, ``batch_size`` keys to an Arrow table."""
    return _timed("one by one", server, keys, connections, batch_size, _ask_one_by_one)


async def _ask_for_columns(connection: asyncpg.Connection, keys: list[int]) -> pa.Table:
    columns = await connection.fetchrow(_COLUMNS, keys)
    return pa.table([column or [] for column in columns], schema=ROW)


async def _ask_for_records(connection: asyncpg.Connection, keys: list[int]) -> pa.Table:
    return _table(await connection.fetch(_RECORDS, keys))


async def _ask_one_by_one(connection: asyncpg.Connection, keys: list[int]) -> pa.Table:
    return _table(list(chain.from_iterable([await connection.fetch(_ONE, key) for key in keys])))


def _table(records: Sequence[asyncpg.Record]) -> pa.Table:
    columns: list[Sequence[object]] = list(zip(*records, strict=True)) if records else [[] for _ in ROW]
    return pa.table(columns, schema=ROW)


def _timed(
    way: str,
    server: PostgresServer,
    keys: Sequence[int],
    connections: int,
    batch_size: int,
    answer: AnswerBatch,
) -> Timing:
    batches = [list(keys[start : start + batch_size]) for start in range(0, len(keys), batch_size)]
    found, seconds = asyncio.run(_run(server, batches, connections, answer))
    return Timing(way, len(keys), found, seconds)


async def _run(
    server: PostgresServer, batches: list[list[int]], connections: int, answer: AnswerBatch
) -> tuple[int, float]:
    todo = iter(batches)

    async def work(connection: asyncpg.Connection) -> int:
        return sum([_found(_enriched(batch, await answer(connection, batch))) for batch in todo])

    opened = [await asyncpg.connect(server.url()) for _ in range(connections)]
    try:
        for connection in opened:  # statements are prepared and types are known before the clock starts
            await answer(connection, batches[0])
        start = time.perf_counter()
        found = sum(await asyncio.gather(*map(work, opened)))
        return found, time.perf_counter() - start
    finally:
        for connection in opened:
            await connection.close()


async def _run_windows(
    server: PostgresServer, keys: pa.Array, connections: int, batch_size: int
) -> tuple[int, float]:
    async def work(connection: asyncpg.Connection) -> None:
        for window, batch in batches:
            window.answers.append(await _ask_for_columns(connection, batch))
            if len(window.answers) == window.batches:
                found.append(_found(window.enriched()))

    found: list[int] = []
    opened = [await asyncpg.connect(server.url()) for _ in range(connections)]
    try:
        for connection in opened:
            await _ask_for_columns(connection, [1])
        start = time.perf_counter()
        batches = _batches(keys, batch_size)
        await asyncio.gather(*map(work, opened))
        return sum(found), time.perf_counter() - start
    finally:
        for connection in opened:
            await connection.close()


class _Window:
    """Orders that are asked for together, and the answers so far."""

    def __init__(self, keys: pa.Array, batches: int) -> None:
        self.keys, self.batches = keys, batches
        self.answers: list[pa.Table] = []

    def enriched(self) -> pa.Table:
        return _rows_of(self.keys, pa.concat_tables(self.answers))


def _batches(keys: pa.Array, batch_size: int) -> Iterator[tuple[_Window, list[int]]]:
    for start in range(0, len(keys), WINDOW):
        orders = keys[start : start + WINDOW]
        distinct = pc.unique(orders)
        ascending = distinct.take(pc.sort_indices(distinct)).to_pylist()
        cuts = range(0, len(ascending), batch_size)
        window = _Window(orders, len(cuts))
        for cut in cuts:
            yield window, ascending[cut : cut + batch_size]


def _enriched(keys: list[int], customers: pa.Table) -> pa.Table:
    return _rows_of(pa.array(keys, pa.int64()), customers)


def _rows_of(keys: pa.Array, customers: pa.Table) -> pa.Table:
    """One row per order, as a LEFT JOIN gives it: NULLs for a customer that does not exist."""
    places = pc.index_in(keys, customers.column("id").combine_chunks())
    return customers.take(places)


def _found(rows: pa.Table) -> int:
    return int(rows.num_rows - rows.column("id").null_count)


def main() -> None:
    """Time all ways and print them."""
    with customers_server() as server:
        keys = order_keys()
        print(raw_columns(server, keys))
        print(raw_sorted(server, keys))
        print(raw_records(server, keys))
        print(raw_one_by_one(server, keys[:100_000]))


if __name__ == "__main__":
    main()
