"""How large connectors say that their tables are: real servers, with and without statistics and rights."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.memory import MemoryConnector, put_rows
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.driver.table_sizes import TableSizes
from lookup_hints.spi import TableSize
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.connectors.adbc_tables import DuckDbSource, PostgresAdbcSource, SqliteFileSource
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer

SCHEMA = pa.schema([("id", pa.int64())])
_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"sized_{next(_numbers)}"


def postgres(server: PostgresServer, name: str) -> PostgresConnector:
    return PostgresConnector(LookupTable(name, SCHEMA, options={"url": server.url()}))


def bytes_of(server: PostgresServer, name: str) -> int:
    (found,) = server.fetch("SELECT pg_relation_size($1::text::regclass) AS bytes", name)
    size: int = found["bytes"]
    return size


# --- PostgreSQL ------------------------------------------------------------------------------------


def test_postgres_knows_a_table_since_it_was_analysed(postgres_server: PostgresServer, name: str) -> None:
    postgres_server.execute(
        f"CREATE TABLE {name} AS SELECT g AS id FROM generate_series(1, 5000) g; ANALYZE {name}"
    )
    size = postgres(postgres_server, name).statistics()
    assert size == TableSize(5000, bytes_of(postgres_server, name), "pg_class", distinct={"id": 5000})


def test_postgres_knows_that_a_table_has_grown_since(postgres_server: PostgresServer, name: str) -> None:
    postgres_server.execute(
        f"CREATE TABLE {name} AS SELECT g AS id FROM generate_series(1, 20000) g; ANALYZE {name};"
        f"INSERT INTO {name} SELECT g FROM generate_series(20001, 400000) g"
    )
    rows = postgres(postgres_server, name).statistics().rows
    assert rows is not None
    assert 200_000 < rows < 500_000


def test_postgres_tells_only_the_bytes_of_what_was_never_analysed(
    postgres_server: PostgresServer, name: str
) -> None:
    postgres_server.execute(f"CREATE TABLE {name} AS SELECT g AS id FROM generate_series(1, 5000) g")
    size = postgres(postgres_server, name).statistics()
    assert size == TableSize(
        None, bytes_of(postgres_server, name), "never analysed: ANALYZE lets PostgreSQL know its rows"
    )


def test_postgres_knows_an_empty_table_without_statistics(postgres_server: PostgresServer, name: str) -> None:
    postgres_server.execute(f"CREATE TABLE {name} (id bigint)")
    assert postgres(postgres_server, name).statistics() == TableSize(0, None, "pg_class")


def test_postgres_knows_nothing_of_a_view_and_all_of_a_materialized_one(
    postgres_server: PostgresServer, name: str
) -> None:
    postgres_server.execute(
        f"CREATE VIEW {name} AS SELECT g AS id FROM generate_series(1, 5000) g;"
        f"CREATE MATERIALIZED VIEW {name}_kept AS SELECT * FROM {name}; ANALYZE {name}_kept"
    )
    assert postgres(postgres_server, name).statistics() == TableSize(None, source="a view has no statistics")
    assert postgres(postgres_server, f"{name}_kept").statistics().rows == 5000


def test_postgres_adds_up_the_parts_of_a_partitioned_table(
    postgres_server: PostgresServer, name: str
) -> None:
    postgres_server.execute(
        f"CREATE TABLE {name} (id bigint) PARTITION BY RANGE (id);"
        f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (1000);"
        f"CREATE TABLE {name}_2 PARTITION OF {name} FOR VALUES FROM (1000) TO (9000) PARTITION BY RANGE (id);"
        f"CREATE TABLE {name}_3 PARTITION OF {name}_2 FOR VALUES FROM (1000) TO (9000);"
        f"INSERT INTO {name} SELECT g FROM generate_series(0, 4999) g; ANALYZE {name}_1"
    )
    size = postgres(postgres_server, name).statistics()
    assert (size.rows, size.source.split(":")[0]) == (None, "never analysed")
    postgres_server.execute(f"ANALYZE {name}_3")
    assert postgres(postgres_server, name).statistics().rows == 5000


def test_postgres_is_asked_in_vain_for_a_table_that_is_not_there(
    postgres_server: PostgresServer, name: str
) -> None:
    assert postgres(postgres_server, name).statistics().rows is None


def test_a_role_without_the_right_gets_no_size_and_no_error(
    postgres_server: PostgresServer, name: str
) -> None:
    postgres_server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'pass'")
    postgres_server.execute(f"CREATE DATABASE {name}")
    locked_down = f"REVOKE SELECT ON pg_catalog.pg_class FROM PUBLIC; CREATE TABLE {name} (id bigint)"
    asyncio.run(_executed(postgres_server.url(database=name, sslmode="disable"), locked_down))
    url = postgres_server.url(database=name, user=name, password="pass")
    size = TableSizes().of(PostgresConnector(LookupTable(name, SCHEMA, options={"url": url})))
    assert size == TableSize(None, source="the source did not say it (InsufficientPrivilegeError)")


async def _executed(url: str, script: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(script)
    finally:
        await connection.close()


def test_who_waits_for_a_lock_is_given_up_after_a_second(postgres_server: PostgresServer, name: str) -> None:
    postgres_server.execute(f"CREATE TABLE {name} (id bigint)")
    with locked(postgres_server, name):
        started = time.monotonic()
        size = TableSizes().of(postgres(postgres_server, name))
        assert time.monotonic() - started > 0.9
    assert size == TableSize(None, source="the source did not say it within 1 s")


@contextmanager
def locked(server: PostgresServer, name: str) -> Iterator[None]:
    """While nobody but the lock's owner may look at the table."""
    is_locked, is_done = Event(), Event()

    async def hold() -> None:
        connection = await asyncpg.connect(server.url(sslmode="disable"))
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            is_locked.set()
            await asyncio.to_thread(is_done.wait, 30)
        await connection.close()

    holder = Thread(target=asyncio.run, args=(hold(),))
    holder.start()
    assert is_locked.wait(10)
    try:
        yield
    finally:
        is_done.set()
        holder.join()


# --- MariaDB ---------------------------------------------------------------------------------------


def mysql(server: MariaDbServer, name: str) -> MysqlConnector:
    return MysqlConnector(LookupTable(name, SCHEMA, options={"url": server.url()}))


@pytest.mark.parametrize("partitions", ["", "PARTITION BY HASH (id) PARTITIONS 4"])
def test_mariadb_knows_rows_bytes_and_values_of_indexed_columns(
    mariadb_server: MariaDbServer, name: str, partitions: str
) -> None:
    mariadb_server.execute(
        f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, kind INT, KEY (kind, id)) {partitions};"
        f"INSERT INTO {name} SELECT seq, seq % 10 FROM seq_1_to_20000; ANALYZE TABLE {name}"
    )
    size = mysql(mariadb_server, name).statistics()
    assert size.rows == pytest.approx(20_000, rel=0.1)
    assert size.bytes is not None
    assert 20_000 * 12 < size.bytes < 20_000 * 200
    assert size.source == "information_schema"
    assert size.distinct["id"] == pytest.approx(20_000, rel=0.1)
    assert size.distinct["kind"] <= 100


def test_mariadb_knows_that_a_table_has_grown(mariadb_server: MariaDbServer, name: str) -> None:
    mariadb_server.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
    assert mysql(mariadb_server, name).statistics().rows == 0
    mariadb_server.execute(f"INSERT INTO {name} SELECT seq FROM seq_1_to_20000")
    assert mysql(mariadb_server, name).statistics().rows == pytest.approx(20_000, rel=0.1)


def test_mariadb_knows_nothing_of_a_view(mariadb_server: MariaDbServer, name: str) -> None:
    mariadb_server.execute(f"CREATE VIEW {name} AS SELECT 1 AS id")
    assert mysql(mariadb_server, name).statistics() == TableSize(None, source="a view has no statistics")


# --- SQLite ----------------------------------------------------------------------------------------


def sqlite(file: Path, *statements: str) -> TableSize:
    connection = sqlite3.connect(file)
    connection.executescript(";".join(statements))
    connection.close()
    return SqliteConnector(LookupTable("t", SCHEMA, options={"path": str(file)})).statistics()


ROWS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
    " INSERT INTO t SELECT i FROM n"
)
UPPER = "row numbers, an upper estimate"


@pytest.mark.parametrize(
    ("statements", "size"),
    [
        (("CREATE TABLE t (id BIGINT)", ROWS), TableSize(300, source=UPPER)),
        (("CREATE TABLE t (id BIGINT)", ROWS, "DELETE FROM t WHERE id < 200"), TableSize(101, source=UPPER)),
        (("CREATE TABLE t (id BIGINT)", ROWS, "DELETE FROM t WHERE id % 300"), TableSize(1, source=UPPER)),
        (("CREATE TABLE t (id BIGINT)", ROWS, "ANALYZE"), TableSize(300, source="sqlite_stat1")),
        (
            ("CREATE TABLE t (id BIGINT)", ROWS, "CREATE INDEX few ON t (id) WHERE id > 290", "ANALYZE"),
            TableSize(300, source="sqlite_stat1"),
        ),
        (
            ("CREATE TABLE t (id BIGINT PRIMARY KEY) WITHOUT ROWID", ROWS),
            TableSize(None, source="never analysed, and without numbered rows"),
        ),
        (
            ("CREATE TABLE t (id BIGINT PRIMARY KEY) WITHOUT ROWID", ROWS, "ANALYZE"),
            TableSize(300, source="sqlite_stat1", distinct={"id": 300}),
        ),
        (
            (
                "CREATE TABLE t (id BIGINT, n GENERATED ALWAYS AS (id % 3))",
                "CREATE INDEX by_n ON t (n, id)",
                "CREATE INDEX few ON t (n) WHERE id > 290",
                ROWS,
                "ANALYZE",
            ),
            TableSize(300, source="sqlite_stat1", distinct={"n": 3}),
        ),
        (
            ("CREATE TABLE u (id BIGINT)", "CREATE VIEW t AS SELECT * FROM u"),
            TableSize(None, source="never analysed, and without numbered rows"),
        ),
    ],
)
def test_sqlite_tells_what_it_knows_without_reading(
    tmp_path: Path, statements: tuple[str, ...], size: TableSize
) -> None:
    assert sqlite(tmp_path / "t.db", *statements) == size


def test_a_file_that_is_not_here_gives_no_size_and_no_error(tmp_path: Path) -> None:
    connector = SqliteConnector(LookupTable("t", SCHEMA, options={"path": str(tmp_path / "no.db")}))
    assert TableSizes().of(connector).rows is None


# --- ADBC ------------------------------------------------------------------------------------------


def test_duckdb_tells_the_rows_of_its_tables(tmp_path: Path) -> None:
    source = DuckDbSource(tmp_path / "t.duckdb")
    source.execute(
        "CREATE TABLE t AS SELECT range AS id FROM range(300); CREATE VIEW v AS FROM t; CREATE SCHEMA s;"
        "CREATE TABLE s.t AS SELECT range AS id FROM range(70); CREATE TABLE e (id BIGINT)"
    )
    told = [
        AdbcConnector(source.table("x", SCHEMA, table_name=name)).statistics()
        for name in ["T", "s.t", "e", "v"]
    ]
    assert [size.rows for size in told] == [300, 70, 0, None]
    assert told[0].source == "duckdb_tables()"
    assert 250 < told[0].distinct["id"] < 350  # it keeps an estimate
    assert [dict(size.distinct) for size in told[2:]] == [{}, {}]


@pytest.mark.parametrize(
    ("statements", "size"),
    [
        ((ROWS,), TableSize(300, source=UPPER)),
        ((ROWS, "ANALYZE"), TableSize(300, source="sqlite_stat1")),
        (
            ("DROP TABLE t", "CREATE VIEW t AS SELECT 1"),
            TableSize(None, source="never analysed, and without numbered rows"),
        ),
    ],
)
def test_sqlite_tells_the_same_by_adbc(tmp_path: Path, statements: tuple[str, ...], size: TableSize) -> None:
    source = SqliteFileSource(tmp_path / "t.db")
    source.execute(";".join(("CREATE TABLE t (id BIGINT)", *statements)))
    assert AdbcConnector(source.table("t", SCHEMA)).statistics() == size


def test_postgres_tells_the_same_by_adbc(postgres_server: PostgresServer, name: str) -> None:
    source = PostgresAdbcSource(postgres_server)
    source.execute(f"CREATE TABLE {name} AS SELECT g AS id FROM generate_series(1, 5000) g; ANALYZE {name}")
    source.execute(f"CREATE VIEW {name}_view AS SELECT * FROM {name}")
    for each in (name, f"{name}_view", "nowhere"):
        by_adbc = AdbcConnector(source.table(each, SCHEMA)).statistics()
        assert by_adbc == postgres(postgres_server, each).statistics()
    with locked(postgres_server, name):
        size = TableSizes(seconds=5).of(AdbcConnector(source.table(name, SCHEMA)))
    assert size.source.startswith("the source did not say it ("), (
        "the server ends the statement after a second"
    )


# --- memory ----------------------------------------------------------------------------------------


def test_memory_counts_its_rows(name: str) -> None:
    put_rows(name, [{"id": 1}, {"id": 2}])
    table = LookupTable(name, SCHEMA, options={"connector": "memory"})
    assert MemoryConnector(table).statistics() == TableSize(2, 16, "counted", exact=True)
