"""How connectors say what has changed: exact to the last digit, in any zone, over real servers and files."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.memory import MemoryConnector, put_rows
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import Changes, ChangesRequest, ReportsChanges
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.connectors.test_statistics import locked
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PASSWORD, PostgresServer

MICRO = timedelta(microseconds=1)
KEYS = pa.schema([("id", pa.int64())])
_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"changed {next(_numbers)}"


def told(connector: ReportsChanges, since: Any, kind: pa.DataType, most: int = 10) -> tuple[Any, Any]:
    """The greatest value, and the ids of the rows that have changed since."""
    wanted = None if since is None else pa.scalar(since, kind)
    found: Changes = connector.changes(ChangesRequest("at", wanted, KEYS, most, 60.0))
    assert found.latest.type == kind
    return found.latest.as_py(), None if found.keys is None else sorted(found.keys.column("id").to_pylist())


def table_of(name: str, kind: pa.DataType, **options: str) -> LookupTable:
    return LookupTable(name, pa.schema([*KEYS, ("at", kind)]), ("id",), options=options)


# --- PostgreSQL ------------------------------------------------------------------------------------


def postgres(
    server: PostgresServer, name: str, sql: str, kind: pa.DataType, *values: str
) -> PostgresConnector:
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(values))
    server.execute(f'CREATE TABLE "{name}" (id bigint, at {sql}); INSERT INTO "{name}" VALUES {rows}')
    return PostgresConnector(table_of(name, kind, connector="postgres", url=server.url()))


@pytest.mark.parametrize(
    ("sql", "kind", "values"),
    [
        ("INT UNSIGNED", pa.int64(), [1, 2, 4294967295]),
        ("DATE", pa.date32(), [date(2024, 2, 28), date(2024, 2, 29), date(9999, 12, 31)]),
        ("DATETIME(6)", TIMESTAMP_NTZ, [datetime(2024, 3, 31, 1, 59, 59, each) for each in (1, 2, 999_999)]),
        (
            "TIMESTAMP(6) NULL",
            TIMESTAMP,
            [datetime(2024, 3, 31, 2, 0, 0, each, timezone.utc) for each in (1, 2, 3)],
        ),
    ],
)
def test_mysql_tells_what_is_greater(
    mariadb_server: MariaDbServer, name: str, sql: str, kind: pa.DataType, values: list[Any]
) -> None:
    spelled = [f"'{str(each).partition('+')[0]}'" for each in values]
    rows = ", ".join(f"({number}, {each})" for number, each in enumerate([*spelled, "NULL"]))
    mariadb_server.execute(f"CREATE TABLE `{name}` (id BIGINT, at {sql}); INSERT INTO `{name}` VALUES {rows}")
    options = {"connector": "mysql", **mariadb_server.options(), "table-name": f"`{name}`"}
    connector = MysqlConnector(table_of(name, kind, **options))
    assert told(connector, None, kind) == (values[2], None)
    assert told(connector, values[0], kind) == (values[2], [1, 2])
    assert told(connector, values[2], kind) == (values[2], [])
    assert told(connector, values[0], kind, most=1) == (values[2], None)


MOMENT = datetime(2024, 3, 31, 1, 59, 59, 999_998)


@pytest.mark.parametrize(("sql", "kind"), [("timestamptz", TIMESTAMP), ("timestamp", TIMESTAMP_NTZ)])
def test_postgres_tells_microseconds_apart_in_any_zone(
    postgres_server: PostgresServer, name: str, sql: str, kind: pa.DataType
) -> None:
    zone = timezone.utc if kind.tz else None
    moments = [(MOMENT + number * MICRO).isoformat() for number in range(4)]
    values = [f"'{each}{'+00' if zone else ''}'" for each in moments]
    connector = postgres(postgres_server, name, sql, kind, *values, "NULL")
    last = (MOMENT + 3 * MICRO).replace(tzinfo=zone)
    assert told(connector, None, kind) == (last, None)
    for left in range(4):
        since = (MOMENT + (3 - left) * MICRO).replace(tzinfo=zone)
        assert told(connector, since, kind) == (last, list(range(4 - left, 4)))


@pytest.mark.parametrize("sql", ["bigint", "numeric(30, 0)"])
def test_postgres_tells_the_greatest_numbers_apart(
    postgres_server: PostgresServer, name: str, sql: str
) -> None:
    numbers = [-(2**63), -1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
    connector = postgres(postgres_server, name, sql, pa.int64(), *map(str, numbers))
    for place, since in enumerate(numbers):
        assert told(connector, since, pa.int64()) == (2**63 - 1, list(range(place + 1, 6)))


def test_postgres_tells_small_numbers_and_days(postgres_server: PostgresServer, name: str) -> None:
    small = postgres(postgres_server, name, "smallint", pa.int16(), "1", "32767")
    assert told(small, 1, pa.int16()) == (32767, [1])
    days = postgres(postgres_server, f"{name}d", "date", pa.date32(), "'2024-02-28'", "'2024-02-29'")
    assert told(days, date(2024, 2, 28), pa.date32()) == (date(2024, 2, 29), [1])
    assert told(days, date(1, 1, 1), pa.date32()) == (date(2024, 2, 29), [0, 1])


def test_postgres_counts_no_further_than_is_wanted(postgres_server: PostgresServer, name: str) -> None:
    connector = postgres(postgres_server, name, "bigint", pa.int64(), *map(str, range(9)))
    assert told(connector, 5, pa.int64(), most=3) == (8, [6, 7, 8])
    assert told(connector, 4, pa.int64(), most=3) == (8, None)
    nothing = ChangesRequest("at", pa.scalar(7), pa.schema([]), 0)
    assert connector.changes(nothing).keys is None
    nothing = ChangesRequest("at", pa.scalar(8), pa.schema([]), 0)
    assert connector.changes(nothing).keys is not None


def test_postgres_has_nothing_to_tell_of_an_empty_table(postgres_server: PostgresServer, name: str) -> None:
    connector = postgres(postgres_server, name, "bigint", pa.int64(), "NULL")
    assert told(connector, None, pa.int64()) == (None, None)
    assert told(connector, 1, pa.int64()) == (None, [])


def test_what_postgres_cannot_tell_is_an_error(postgres_server: PostgresServer, name: str) -> None:
    endless = postgres(postgres_server, name, "timestamptz", TIMESTAMP, "'infinity'")
    with pytest.raises(ConnectorError, match=r"column 'at'.*infinity"):
        told(endless, None, TIMESTAMP)
    gone = PostgresConnector(table_of("nowhere", pa.int64(), connector="postgres", url=postgres_server.url()))
    with pytest.raises(ConnectorError, match="no table or view nowhere") as caught:
        told(gone, 1, pa.int64())
    assert PASSWORD not in str(caught.value)


def test_a_lock_on_the_table_takes_no_longer_than_the_time_given(
    postgres_server: PostgresServer, name: str
) -> None:
    connector = postgres(postgres_server, name, "bigint", pa.int64(), "1")
    with locked(postgres_server, f'"{name}"'):
        request = ChangesRequest("at", None, KEYS, 1, 0.2)
        with pytest.raises(ConnectorError, match=r"PostgreSQL named no changes within 0\.2 s"):
            connector.changes(request)


# --- SQLite ----------------------------------------------------------------------------------------


def sqlite(path: Path, declared: str, kind: pa.DataType, *values: object) -> SqliteConnector:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'CREATE TABLE "changed" (id INTEGER PRIMARY KEY, at {declared})')
        connection.executemany('INSERT INTO "changed" VALUES (?, ?)', list(enumerate(values)))
    return SqliteConnector(table_of("changed", kind, connector="sqlite", path=str(path)))


def test_sqlite_compares_moments_however_they_are_spelled(tmp_path: Path) -> None:
    values = [
        "2024-01-01 00:00:00",
        1704067201,
        "2024-01-01T00:00:02",
        "2024-01-01 00:00:02.000001",
        "2024-01-01 01:00:02.000002+01:00",
        "2024-01-01 01:00:02.000003+0100",  # SQLite cannot read this one
        "2024-01-01 00:00:02.999999",
        None,
    ]
    connector = sqlite(tmp_path / "a.db", "TIMESTAMP", TIMESTAMP, *values)
    begin = datetime(2024, 1, 1, tzinfo=timezone.utc)
    two, last = begin + timedelta(seconds=2), begin + timedelta(seconds=2, microseconds=999_999)
    assert told(connector, None, TIMESTAMP) == (last, None)
    steps = [begin, begin + timedelta(seconds=1), two, two + MICRO, two + 2 * MICRO, two + 3 * MICRO, last]
    for place, since in enumerate([begin - MICRO, *steps]):
        assert told(connector, since, TIMESTAMP) == (last, list(range(place, 7))), since


def test_sqlite_compares_moments_without_a_zone_numbers_and_days(tmp_path: Path) -> None:
    plain = sqlite(tmp_path / "a.db", "DATETIME", TIMESTAMP_NTZ, "1969-12-31 23:59:59.5", "1970-01-01")
    first, second = datetime(1969, 12, 31, 23, 59, 59, 500_000), datetime(1970, 1, 1)
    assert told(plain, first, TIMESTAMP_NTZ) == (second, [1])
    assert told(plain, first - MICRO, TIMESTAMP_NTZ) == (second, [0, 1])
    numbers = sqlite(tmp_path / "b.db", "BIGINT", pa.int64(), 2**53, 2**53 + 1, 2**63 - 1, None)
    assert told(numbers, 2**53, pa.int64()) == (2**63 - 1, [1, 2])
    days = sqlite(tmp_path / "c.db", "DATE", pa.date32(), "2024-02-28", "2024-02-29")
    assert told(days, date(2024, 2, 28), pa.date32()) == (date(2024, 2, 29), [1])


def test_sqlite_counts_no_further_than_is_wanted(tmp_path: Path) -> None:
    connector = sqlite(tmp_path / "a.db", "BIGINT", pa.int64(), *range(9))
    assert told(connector, 4, pa.int64(), most=3) == (8, None)
    assert told(connector, 8, pa.int64(), most=3) == (8, [])


def test_what_sqlite_cannot_read_is_an_error(tmp_path: Path) -> None:
    connector = sqlite(tmp_path / "a.db", "TIMESTAMP", TIMESTAMP_NTZ, "2024-01-01 00:00:00", "soon")
    with pytest.raises(ConnectorError, match="'soon'"):
        told(connector, None, TIMESTAMP_NTZ)


# --- memory ----------------------------------------------------------------------------------------


def test_memory_compares_its_rows(name: str) -> None:
    put_rows(name, [{"id": 1, "at": MOMENT}, {"id": 2, "at": MOMENT + MICRO}, {"id": 3, "at": None}])
    connector = MemoryConnector(table_of(name, TIMESTAMP_NTZ, connector="memory"))
    assert told(connector, MOMENT, TIMESTAMP_NTZ) == (MOMENT + MICRO, [2])
    assert told(connector, None, TIMESTAMP_NTZ) == (MOMENT + MICRO, None)
    assert told(connector, MOMENT - MICRO, TIMESTAMP_NTZ, most=1) == (MOMENT + MICRO, None)
