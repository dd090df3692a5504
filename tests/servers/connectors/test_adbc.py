"""The connector `adbc`: values, equality, failures and what it may use, over DuckDB, SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.adbc.connections import AdbcServer
from lookup_connectors.adbc.lookup_sql import relation

from lookup_hints.errors import AnswerTooLarge, ConnectorError, LookupTimeout, NotAllowed, OptionError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import known_secrets
from lookup_hints.spi.security_policy import Policy
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables.catalog import LookupCatalog, build_connector
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl
from tests.servers.connectors.adbc_tables import (
    DuckDbSource,
    PostgresAdbcSource,
    SqliteFileSource,
    adbc_table,
)
from tests.servers.pooler import strict_pooler
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.proxy import FaultProxy
from tests.unit.connectors.asking import during, failure_of, request_for, rows_of

TEXT = pa.schema([("k", pa.string()), ("v", pa.int64())])
Source = DuckDbSource | SqliteFileSource | PostgresAdbcSource
HOSTILE = ["it's", "'; DROP TABLE odd; --", '"', "?", "$1", "\\", "a\nb", "%_", "", " ", "é", "e\u0301"]


@pytest.fixture
def duck(tmp_path: Path) -> DuckDbSource:
    return DuckDbSource(tmp_path / "t.duckdb")


@pytest.fixture
def lite(tmp_path: Path) -> SqliteFileSource:
    return SqliteFileSource(tmp_path / "t.db")


@pytest.fixture
def pg(postgres_server: PostgresServer) -> PostgresAdbcSource:
    return PostgresAdbcSource(postgres_server)


@pytest.fixture
def line(postgres_server: PostgresServer) -> Iterator[FaultProxy]:
    with FaultProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture(params=["duck", "lite", "pg"])
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.getfixturevalue(request.param)
    return found


def ask(table: LookupTable, keys: dict[str, list[Any]], timeout: float | None = 30) -> list[dict[str, Any]]:
    request = request_for(table.schema, keys, timeout=timeout)
    answer = during(AdbcConnector(table), lambda connector: connector.alookup(request))
    rows: list[dict[str, Any]] = rows_of(answer).to_pylist()
    return rows


def read(table: LookupTable) -> list[dict[str, Any]]:
    batches = AdbcConnector(table).scan(table.schema)
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, table.schema).to_pylist()
    return rows


# --- keys -----------------------------------------------------------------------------------------


def test_keys_are_bound_and_never_part_of_the_sql(source: Source) -> None:
    source.execute('DROP TABLE IF EXISTS odd; CREATE TABLE odd ("k" TEXT, v BIGINT);')
    for number, text in enumerate(HOSTILE):
        escaped = text.replace("'", "''")
        source.execute(f"INSERT INTO odd VALUES ('{escaped}', {number})")
    table = source.table("odd", TEXT)
    found = ask(table, {"k": [*HOSTILE, "x' OR '1'='1"]})
    assert sorted(row["v"] for row in found) == list(range(len(HOSTILE)))
    assert ask(table, {"k": HOSTILE[:1], "v": [0]}) == [{"k": "it's", "v": 0}]


def test_names_of_tables_and_columns_are_quoted(source: Source) -> None:
    source.execute(
        'DROP TABLE IF EXISTS "odd ""t"""; CREATE TABLE "odd ""t""" ("a ""b" BIGINT, "select" TEXT);'
    )
    source.execute('INSERT INTO "odd ""t""" VALUES (1, ' + "'x')")
    schema = pa.schema([('a "b', pa.int64()), ("select", pa.string())])
    row = {'a "b': 1, "select": "x"}
    table = source.table('odd "t"', schema)
    assert (ask(table, {'a "b': [1, 2]}), read(table)) == ([row], [row])


def test_a_text_with_nul_is_a_key_like_any_other(source: Source) -> None:
    source.execute(
        "DROP TABLE IF EXISTS nul; CREATE TABLE nul (k TEXT, v BIGINT); INSERT INTO nul VALUES ('a', 1)"
    )
    assert ask(source.table("nul", TEXT), {"k": ["a\0b", "a"]}) == [{"k": "a", "v": 1}]


def test_rows_come_once_where_the_sources_own_equality_ignores_case(duck: DuckDbSource) -> None:
    duck.execute("CREATE TABLE t (k VARCHAR COLLATE NOCASE, v BIGINT)")
    duck.execute("INSERT INTO t SELECT 'K' || range, range FROM range(2000)")
    keys = [f"{letter}{number}" for letter in "kK" for number in range(2000)]
    for options in ({}, {"dialect": "trino"}):
        found = [row for row in ask(duck.table("t", TEXT, **options), {"k": keys}) if row["k"] in set(keys)]
        assert sorted(row["v"] for row in found) == list(range(2000))


def test_collations_of_sqlite_do_not_blur_keys(lite: SqliteFileSource) -> None:
    lite.execute("CREATE TABLE t (k TEXT COLLATE NOCASE, v BIGINT); INSERT INTO t VALUES ('A', 1)")
    assert ask(lite.table("t", TEXT), {"k": ["a", "A"]}) == [{"k": "A", "v": 1}]


def test_padded_texts_of_postgresql_are_found_as_they_are_read(pg: PostgresAdbcSource) -> None:
    pg.execute(
        "DROP TABLE IF EXISTS padded; CREATE TABLE padded (k CHAR(4), v BIGINT); INSERT INTO padded VALUES ('ab', 1)"
    )
    table = pg.table("padded", TEXT)
    assert read(table) == [{"k": "ab  ", "v": 1}]
    assert ask(table, {"k": ["ab  "]}) == [{"k": "ab  ", "v": 1}]


def test_zeros_and_nan_are_found(duck: DuckDbSource, pg: PostgresAdbcSource) -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    for source in (duck, pg):
        source.execute("DROP TABLE IF EXISTS f; CREATE TABLE f (k FLOAT8, v BIGINT);")
        source.execute("INSERT INTO f VALUES (0.0, 1), ('-0.0', 2), ('nan', 3)")
        found = ask(source.table("f", schema), {"k": [0.0, float("nan")]})
        assert sorted(row["v"] for row in found) == [1, 2, 3]


# --- values ---------------------------------------------------------------------------------------

VALUES = pa.schema(
    [
        ("i", pa.int32()),
        ("d", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("bin", pa.binary()),
        ("u", pa.string()),
        ("l", pa.list_(pa.int32())),
    ]
)
ROW = {
    "i": 7,
    "d": Decimal("1.25"),
    "day": date(2024, 2, 29),
    "ts": datetime(2024, 1, 1, 12, 0, 0, 5),
    "tz": datetime(2024, 1, 1, 11, tzinfo=timezone.utc),
    "b": True,
    "bin": b"\0x",
    "u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "l": [1, 2],
}


def test_values_of_many_types_are_read_and_asked_by(duck: DuckDbSource, pg: PostgresAdbcSource) -> None:
    columns = (
        "i INT, d NUMERIC(10,2), day DATE, ts TIMESTAMP, tz TIMESTAMPTZ, b BOOLEAN, bin {}, u UUID, l INT[]"
    )
    values = (
        "7, 1.25, '2024-02-29', '2024-01-01 12:00:00.000005', '2024-01-01 12:00:00+01', true, {},"
        " 'f81d4fae-7dec-11d0-a765-00a0c91e6bf6', {}"
    )
    for source, kind, binary, items in (
        (duck, "BLOB", r"'\x00x'::BLOB", "[1, 2]"),
        (pg, "BYTEA", r"'\x0078'", "ARRAY[1, 2]"),
    ):
        source.execute(f"DROP TABLE IF EXISTS vals; CREATE TABLE vals ({columns.format(kind)})")
        source.execute(f"INSERT INTO vals VALUES ({values.format(binary, items)})")
        source.execute("INSERT INTO vals (i) VALUES (NULL)")
        table = source.table("vals", VALUES)
        assert read(table) == [ROW, dict.fromkeys(VALUES.names)]
        for name in VALUES.names[:-1]:
            assert ask(table, {name: [ROW[name]]}) == [ROW], name
        told, _ = AdbcConnector(table).discover()
        assert told == VALUES


def test_integers_without_a_sign_are_told_as_the_next_wider_type(duck: DuckDbSource) -> None:
    duck.execute("CREATE TABLE u (a UTINYINT, b USMALLINT, c UINTEGER, d UBIGINT)")
    told, _ = AdbcConnector(duck.table("u", pa.schema([]))).discover()
    assert told.types == [pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0)]


def test_values_of_sqlite_are_typed_however_late_they_come(lite: SqliteFileSource) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("n", pa.string()),
            ("x", pa.float64()),
            ("d", pa.decimal128(10, 2)),
            ("ok", pa.bool_()),
        ]
    )
    lite.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT, x REAL, d DECIMAL(10,2), ok BOOLEAN)")
    lite.execute(
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 30000)"
        " INSERT INTO t SELECT i, iif(i > 20000, 'n' || i, NULL), iif(i > 20000, i + 0.5, NULL),"
        " iif(i > 20000, 1.1, NULL), iif(i > 20000, i % 2, NULL) FROM r"
    )
    rows = read(lite.table("t", schema))
    assert (len(rows), rows[0]) == (30_000, {"id": 1, "n": None, "x": None, "d": None, "ok": None})
    last = {"id": 30_000, "n": "n30000", "x": 30_000.5, "d": Decimal("1.10"), "ok": False}
    assert rows[-1] == last
    found = ask(lite.table("t", schema), {"id": [30_000, 1]})
    assert sorted(found, key=lambda row: row["id"]) == [rows[0], last]
    assert AdbcConnector(lite.table("t", schema)).discover() == (schema, ("id",))


@pytest.mark.parametrize(
    ("kind", "value", "declared", "said"),
    [
        ("BIGINT", "300", pa.int8(), "column 'v' of the row k = 'a': 300 does not fit TINYINT"),
        ("TEXT", "'x'", pa.int64(), "cannot be read as BIGINT. Declare it STRING."),
        ("TIMESTAMP", "'infinity'", pa.timestamp("us"), "does not fit TIMESTAMP_NTZ"),
        ("DATE", "'infinity'", pa.date32(), "does not fit DATE"),
        ("NUMERIC(10, 3)", "1.125", pa.decimal128(10, 2), "does not fit DECIMAL(10,2)"),
        ("DOUBLE PRECISION", "1.5", pa.int64(), "cannot be read as BIGINT. Declare it DOUBLE."),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error_that_names_it(
    duck: DuckDbSource, pg: PostgresAdbcSource, kind: str, value: str, declared: pa.DataType, said: str
) -> None:
    schema = pa.schema([("k", pa.string()), ("v", declared)])
    for source in (duck, pg):
        source.execute(f"DROP TABLE IF EXISTS misfit; CREATE TABLE misfit (k TEXT, v {kind})")
        source.execute(f"INSERT INTO misfit VALUES ('a', {value})")
        table = replace(source.table("misfit", schema), primary_key=("k",))
        for way in (lambda: ask(table, {"k": ["a"]}), lambda: read(table)):  # noqa: B023
            error = failure_of(way)
            assert error.permanent
            assert said.split(" of the row")[-1] in str(error), str(error)
            assert "'v'" in str(error)


def test_a_value_of_another_class_in_sqlite_is_an_error(lite: SqliteFileSource) -> None:
    lite.execute("CREATE TABLE t (k TEXT, v INTEGER); INSERT INTO t VALUES ('a', 'many')")
    error = failure_of(lambda: ask(lite.table("t", TEXT), {"k": ["a"]}))
    assert "column 'v' of the row k = 'a'" in str(error)
    assert error.permanent


def test_money_is_not_a_number(pg: PostgresAdbcSource) -> None:
    pg.execute(
        "DROP TABLE IF EXISTS dear; CREATE TABLE dear (k TEXT, v MONEY); INSERT INTO dear VALUES ('a', 1)"
    )
    assert "Declare it STRING" in str(failure_of(lambda: read(pg.table("dear", TEXT))))
    as_text = pa.schema([("k", pa.string()), ("v", pa.string())])
    assert ask(pg.table("dear", as_text), {"v": ["$1.00"]}) == [{"k": "a", "v": "$1.00"}]


def test_a_column_that_changes_its_type_is_read_by_the_new_one(pg: PostgresAdbcSource) -> None:
    pg.execute(
        "DROP TABLE IF EXISTS turned; CREATE TABLE turned (k VARCHAR(9), v INT); INSERT INTO turned VALUES ('1', 1)"
    )
    table = pg.table("turned", TEXT)
    request = request_for(TEXT, {"k": ["1"]})

    async def asked_around_a_change(connector: AdbcConnector) -> list[Any]:
        before = await connector.alookup(request)
        await asyncio.to_thread(
            pg.execute, "ALTER TABLE turned ALTER v TYPE BIGINT, ALTER k TYPE INT USING k::int"
        )
        with pytest.raises(ConnectorError):  # a text is compared with a number now
            await connector.alookup(request)
        return [rows_of(each).to_pylist() for each in (before, await connector.alookup(request))]

    assert during(AdbcConnector(table), asked_around_a_change) == [[{"k": "1", "v": 1}]] * 2


# --- tables ---------------------------------------------------------------------------------------


def test_the_primary_key_is_told_where_the_driver_knows_it(
    pg: PostgresAdbcSource, lite: SqliteFileSource
) -> None:
    for source in (pg, lite):
        source.execute(
            "DROP TABLE IF EXISTS keyed; CREATE TABLE keyed (k TEXT, v BIGINT, PRIMARY KEY (v, k))"
        )
        assert {*AdbcConnector(source.table("keyed", pa.schema([]))).discover()[1]} == {"v", "k"}


def test_a_table_of_another_schema_is_named_as_in_sql(pg: PostgresAdbcSource, duck: DuckDbSource) -> None:
    for source in (pg, duck):
        source.execute("CREATE SCHEMA IF NOT EXISTS crm; DROP TABLE IF EXISTS crm.people;")
        source.execute("CREATE TABLE crm.people (k TEXT, v BIGINT); INSERT INTO crm.people VALUES ('a', 1)")
        assert read(source.table("p", TEXT, table_name="crm.people")) == [{"k": "a", "v": 1}]


@pytest.mark.parametrize("text", ["read_csv('/etc/passwd')", "a.b.c.d.e", "@stage"])
def test_what_names_no_table_is_refused(text: str) -> None:
    table = adbc_table("t", TEXT, driver="duckdb", table_name=text)
    with pytest.raises(OptionError, match="option 'table-name': write"):
        AdbcConnector(table).check()


def test_sql_in_the_name_of_a_table_is_a_name() -> None:
    assert relation("t; DROP TABLE t", "postgres") == '"t; DROP TABLE t"'
    assert relation("(SELECT 1)", "duckdb") == '"(SELECT 1)"'


def test_a_scan_that_is_left_early_leaves_nothing_behind(source: Source) -> None:
    source.execute("DROP TABLE IF EXISTS many; CREATE TABLE many (k TEXT, v BIGINT);")
    source.execute(
        "INSERT INTO many WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 50000) SELECT 'k', i FROM r"
    )
    batches = AdbcConnector(source.table("many", TEXT)).scan(TEXT)
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    source.execute("DROP TABLE many")


def test_an_answer_that_is_too_large_is_asked_for_fewer_keys(source: Source) -> None:
    source.execute("DROP TABLE IF EXISTS long_texts; CREATE TABLE long_texts (k TEXT, v BIGINT);")
    for number in range(20):
        source.execute(f"INSERT INTO long_texts VALUES ('{'x' * 5000}{number}', {number})")
    table = source.table("long_texts", TEXT, max_bytes_in_flight="80 kb")
    error = failure_of(lambda: ask(table, {"v": list(range(20))}))
    assert isinstance(error, AnswerTooLarge)
    assert 1 <= error.keys < 20
    assert len(ask(table, {"v": [3]})) == 1


# --- failures -------------------------------------------------------------------------------------


def test_a_driver_that_is_not_installed_says_how_to_install_it() -> None:
    table = adbc_table("t", TEXT, driver="snowflake", uri="u:p4ssw0rd@acme/db")
    error = failure_of(lambda: ask(table, {"k": ["a"]}))
    assert str(error).endswith("Install it: pip install adbc-driver-snowflake.")
    assert error.permanent


def test_a_module_that_is_no_driver_says_so() -> None:
    table = LookupTable("t", TEXT, options={"connector": "adbc", "driver": "json"})
    assert "the module 'json' is not an ADBC driver" in str(failure_of(lambda: ask(table, {"k": ["a"]})))


def test_the_library_of_a_driver_can_be_named_by_its_path(lite: SqliteFileSource) -> None:
    import adbc_driver_sqlite

    lite.execute("CREATE TABLE t (k TEXT, v BIGINT); INSERT INTO t VALUES ('a', 1)")
    given = {"connector": "adbc", "driver": adbc_driver_sqlite._driver_path(), "uri": str(lite.path)}
    assert ask(LookupTable("t", TEXT, options=given), {"k": ["a"]}) == [{"k": "a", "v": 1}]


def test_a_file_that_is_not_there_is_named_and_not_made(lite: SqliteFileSource, duck: DuckDbSource) -> None:
    for source in (lite, duck):
        error = failure_of(lambda: ask(source.table("t", TEXT), {"k": ["a"]}))  # noqa: B023
        assert f"there is no file {source.path} on this machine" in str(error)
        assert not source.path.exists()


def test_files_are_opened_for_reading_alone(lite: SqliteFileSource, duck: DuckDbSource) -> None:
    for source in (lite, duck):
        source.execute("CREATE TABLE t (k TEXT, v BIGINT)")
        server = AdbcServer.of(source.table("t", TEXT), AdbcConnector.OPTIONS)
        refused = pytest.raises(Exception, match=r"read-?only")
        with server.connected() as connection, connection.cursor() as cursor, refused:
            cursor.execute("INSERT INTO t VALUES ('b', 2)")


def test_sessions_of_postgresql_are_read_only(pg: PostgresAdbcSource) -> None:
    server = AdbcServer.of(pg.table("t", TEXT), AdbcConnector.OPTIONS)
    refused = pytest.raises(Exception, match="read-only transaction")
    with server.connected() as connection, connection.cursor() as cursor, refused:
        cursor.execute("CREATE TABLE forbidden (i INT)")


def test_options_in_a_url_of_postgresql_do_not_make_its_sessions_writable(pg: PostgresAdbcSource) -> None:
    uri = pg.server.url(options="-c work_mem=5MB", connect_timeout="9", keepalives="1").replace("+", "%20")
    with (
        AdbcServer.of(pg.table("t", TEXT, uri=uri), AdbcConnector.OPTIONS).connected() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT current_setting('work_mem'), current_setting('transaction_read_only')")
        assert cursor.fetchall() == [("5MB", "on")]


@pytest.mark.parametrize(("wanted", "is_found"), [("read-write", True), ("read-only", False)])
def test_a_primary_of_postgresql_is_found_by_what_it_must_be(
    pg: PostgresAdbcSource, wanted: str, is_found: bool
) -> None:
    table = pg.table("t", TEXT, uri=pg.server.url(target_session_attrs=wanted))
    if is_found:
        AdbcServer.of(table, AdbcConnector.OPTIONS).connected().close()
    else:
        error = failure_of(AdbcServer.of(table, AdbcConnector.OPTIONS).connected)
        assert "session is not read-only" in str(error)


def test_a_uri_of_sqlite_is_read_only_and_none_of_its_parameters_is_passed_over(
    lite: SqliteFileSource,
) -> None:
    lite.execute("CREATE TABLE t (k TEXT, v BIGINT); INSERT INTO t VALUES ('a', 1)")
    for uri in (f"file:{lite.path}", f"file:{lite.path}?cache=private"):
        table = adbc_table("t", TEXT, driver="sqlite", uri=uri)
        assert ask(table, {"k": ["a"]}) == [{"k": "a", "v": 1}]
        refused = pytest.raises(Exception, match=r"read-?only")
        server = AdbcServer.of(table, AdbcConnector.OPTIONS)
        with server.connected() as connection, connection.cursor() as cursor, refused:
            cursor.execute("INSERT INTO t VALUES ('b', 2)")
    for rest, named in (("?mod=ro", "'mod'"), ("#x", "'#'")):
        table = adbc_table("t", TEXT, driver="sqlite", uri=f"file:{lite.path}{rest}")
        with pytest.raises(OptionError, match=f"{named} in it means nothing to SQLite"):
            AdbcConnector(table).check()


@pytest.mark.parametrize("option", [{}, {"password": "hunter2hunter2"}])
def test_a_refused_password_is_permanent_and_shown_nowhere(
    pg: PostgresAdbcSource, option: dict[str, str]
) -> None:
    uri = pg.server.url(password="" if option else "hunter2hunter2").replace(":@", "@")
    error = failure_of(lambda: ask(pg.table("t", TEXT, uri=uri, **option), {"k": ["a"]}))
    assert error.permanent
    assert "Check user and password." in str(error)
    assert "hunter2" not in str(error)


def test_a_password_may_stand_beside_the_url(pg: PostgresAdbcSource) -> None:
    pg.execute("DROP TABLE IF EXISTS beside; CREATE TABLE beside (k TEXT, v BIGINT)")
    uri = f"postgresql://127.0.0.1:{pg.server.port}/postgres"
    assert read(pg.table("beside", TEXT, uri=uri, username="postgres", password=PASSWORD)) == []


def test_a_url_that_cannot_be_read_shows_no_piece_of_its_password(pg: PostgresAdbcSource) -> None:
    uri = "postgresql://u:p4ss%zzw0rd@127.0.0.1/x"
    error = failure_of(lambda: ask(pg.table("t", TEXT, uri=uri), {"k": ["a"]}))
    assert error.permanent
    assert "p4ss" not in str(error)
    assert "w0rd" not in str(error)


def test_options_of_the_driver_are_passed_on_and_never_shown(duck: DuckDbSource) -> None:
    duck.execute("CREATE TABLE t (k TEXT, v BIGINT); INSERT INTO t VALUES ('a', 1)")
    assert read(duck.table("t", TEXT, **{"adbc.db.threads": "1"})) == [{"k": "a", "v": 1}]
    table = duck.table("t", TEXT, **{"adbc.db.nosuch": "hunter2hunter2"})
    assert "nosuch" in str(failure_of(lambda: ask(table, {"k": ["a"]})))
    assert "hunter2hunter2" in known_secrets(AdbcConnector(table))
    catalog = LookupCatalog()
    statement = (
        "CREATE TEMPORARY TABLE t (k STRING) WITH ('connector' = 'adbc', 'driver' = 'adbc_driver_duckdb'"
    )
    ddl = parse_ddl(SqlText(f"{statement}, 'adbc.db.token' = 'hunter2')"))
    assert isinstance(ddl, CreateLookupTable)
    assert "hunter2" not in repr(catalog.create(ddl, lambda _: None))


def test_a_right_that_is_missing_says_what_to_grant(pg: PostgresAdbcSource) -> None:
    pg.execute("DROP ROLE IF EXISTS nobody_much; CREATE ROLE nobody_much LOGIN PASSWORD 'pw12345'")
    pg.execute("DROP TABLE IF EXISTS hidden; CREATE TABLE hidden (k TEXT, v BIGINT)")
    uri = pg.server.url(user="nobody_much", password="pw12345")
    error = failure_of(lambda: ask(pg.table("hidden", TEXT, uri=uri), {"k": ["a"]}))
    assert "(SQLSTATE 42501)" in str(error)
    assert "Grant the user SELECT" in str(error)
    assert error.permanent


def test_a_timeout_ends_the_statement_and_the_next_lookup_is_answered(pg: PostgresAdbcSource) -> None:
    pg.execute(
        "DROP TABLE IF EXISTS slow_of; CREATE TABLE slow_of (k TEXT, v BIGINT); INSERT INTO slow_of VALUES ('a', 1)"
    )
    pg.execute("CREATE OR REPLACE VIEW slow AS SELECT k, v FROM slow_of WHERE pg_sleep(v * 5) IS NOT NULL")
    pg.execute("INSERT INTO slow_of VALUES ('b', 0)")

    async def run(connector: AdbcConnector) -> Any:
        with pytest.raises(LookupTimeout, match=r"no answer within 0\.5 s"):
            await connector.alookup(request_for(TEXT, {"k": ["a"]}, timeout=0.5))
        return rows_of(await connector.alookup(request_for(TEXT, {"k": ["b"]}, timeout=20))).to_pylist()

    assert during(AdbcConnector(pg.table("slow", TEXT)), run) == [{"k": "b", "v": 0}]


def test_a_server_that_goes_away_is_lost_and_found_again(pg: PostgresAdbcSource, line: FaultProxy) -> None:
    pg.execute(
        "DROP TABLE IF EXISTS far; CREATE TABLE far (k TEXT, v BIGINT); INSERT INTO far VALUES ('a', 1)"
    )
    table = pg.table("far", TEXT, uri=pg.server.url(port=line.port))
    request = request_for(TEXT, {"k": ["a"]})

    async def run(connector: AdbcConnector) -> Any:
        await connector.alookup(request)
        await asyncio.to_thread(line.refuse)
        await asyncio.to_thread(line.cut)
        for _ in range(2):
            with pytest.raises(ConnectorError) as caught:
                await connector.alookup(request)
            assert not caught.value.permanent
            assert connector.ending(caught.value) == "lost"
        await asyncio.to_thread(line.accept)
        return rows_of(await connector.alookup(request)).to_pylist()

    assert during(AdbcConnector(table), run) == [{"k": "a", "v": 1}]


def test_a_server_that_stalls_is_a_timeout(pg: PostgresAdbcSource, line: FaultProxy) -> None:
    pg.execute("DROP TABLE IF EXISTS stalled; CREATE TABLE stalled (k TEXT, v BIGINT)")
    table = pg.table("stalled", TEXT, uri=pg.server.url(port=line.port))

    async def run(connector: AdbcConnector) -> None:
        await asyncio.to_thread(line.stall)
        with pytest.raises(LookupTimeout):
            await connector.alookup(request_for(TEXT, {"k": ["a"]}, timeout=0.5))
        await asyncio.to_thread(line.cut)

    during(AdbcConnector(table), run)


# --- where it is, and what SQL may use ------------------------------------------------------------


def test_place_and_origin_tell_no_password() -> None:
    server = adbc_table("t", TEXT, driver="postgresql", uri="postgresql://me:hunter2@DB:5432/crm")
    assert AdbcConnector(server).place() == "DB:5432"
    assert AdbcConnector(server).origin() == "db:5432 user me"
    assert AdbcConnector(adbc_table("t", TEXT, driver="sqlite", uri="/x.db")).origin() == ""


def test_a_file_that_is_replaced_is_opened_anew(lite: SqliteFileSource) -> None:
    connector = AdbcConnector(lite.table("t", TEXT))
    lite.execute("CREATE TABLE t (k TEXT)")
    before = connector.opened_with()
    lite.path.unlink()
    lite.execute("CREATE TABLE t (k TEXT, v BIGINT)")
    assert connector.opened_with() != before


CODE = Policy(
    connectors=(
        ("adbc", "adbc:adbc_driver_sqlite", "adbc:adbc_driver_postgresql", "adbc:adbc_driver_duckdb"),
    )
)
PLACES = CODE & Policy(references=(("file:/data/*",),), hosts=(("ok.example",),))


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        (CODE, {"driver": "evil_module"}, "the code 'adbc:evil_module' is not allowed here"),
        (
            CODE,
            {"driver": "evil_module", "uri": "${env:X}"},
            "the code 'adbc:evil_module' is not allowed here",
        ),
        (CODE, {"driver": "/tmp/evil.so"}, "the code 'adbc:/tmp/evil.so' is not allowed here"),
        (
            CODE,
            {
                "driver": "adbc_driver_sqlite",
                "uri": "/data/x",
                "adbc.connection.adbc.sqlite.load_extension.path": "/e",
            },
            "a driver may load code or files by it",
        ),
        (PLACES, {"driver": "adbc_driver_sqlite", "uri": "/etc/x.db"}, "the file '/etc/x.db' is not allowed"),
        (
            PLACES,
            {"driver": "adbc_driver_sqlite", "uri": "file:/etc/x.db"},
            "the file 'file:/etc/x.db' is not",
        ),
        (
            PLACES,
            {"driver": "adbc_driver_duckdb", "uri": "data.duckdb"},
            "the file 'data.duckdb' is not allowed here",
        ),
        *(
            (PLACES, {"driver": "adbc_driver_postgresql", "uri": f"postgresql://{rest}"}, said)
            for rest, said in (
                ("evil.net/db", "the host 'evil.net:5432' is not allowed"),
                ("ok.example,evil.net:1/db", "the host 'evil.net:1' is not allowed"),
                ("u:p@evil.net,x@ok.example/db", "write it without @"),
                ("ok.example/db?hostaddr=1.2.3.4", "'hostaddr' is not allowed in it"),
                ("ok.example/db?sslkey=/root/k", "'sslkey' is not allowed in it"),
                ("ok.example/db?service=x", "'service' is not allowed in it"),
            )
        ),
        *(
            (
                Policy(hosts=(("ok.example",),)),
                {"driver": "adbc_driver_duckdb", "uri": uri},
                "write the path of a file",
            )
            for uri in ("md:x", "https://evil.net/x.duckdb")
        ),
        (
            Policy(hosts=(("ok.example",),)),
            {"driver": "adbc_driver_flightsql", "uri": "grpc://x"},
            "is not known",
        ),
    ],
    ids=str,
)
def test_what_is_not_allowed_is_refused_on_the_driver(
    policy: Policy, options: dict[str, str], said: str
) -> None:
    table = LookupTable("t", TEXT, options={"connector": "adbc", **options}, policy=policy)
    with pytest.raises((NotAllowed, OptionError)) as caught:
        build_connector(table)
    assert said in str(caught.value)
    assert "evil_module" not in sys.modules


def test_a_uri_that_only_the_worker_knows_is_checked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADBC_URI", "postgresql://evil.net/db")
    allowed = replace(PLACES, references=(("file:/data/*", "env:ADBC_URI"),))
    options = {"connector": "adbc", "driver": "adbc_driver_postgresql", "uri": "${env:ADBC_URI}"}
    table = LookupTable("t", TEXT, options=options, policy=allowed)
    build_connector(table)
    with pytest.raises(NotAllowed, match=r"evil\.net"):
        ask(table, {"k": ["a"]})


def test_duckdb_reads_no_other_files_where_these_are_restricted(tmp_path: Path, duck: DuckDbSource) -> None:
    (tmp_path / "other.csv").write_text("k,v\na,1\n", encoding="utf-8")
    duck.execute("CREATE TABLE t (k TEXT, v BIGINT)")
    table = duck.table("t", TEXT, table_name=f'"{tmp_path}/other.csv"')
    assert read(table) == [{"k": "a", "v": 1}]
    allowed = Policy(references=((f"file:{tmp_path}/t.duckdb",),))
    assert failure_of(lambda: read(replace(table, policy=allowed))).permanent


WRITTEN = {
    "f": ("float8", "0.30000000000000004", "0.30000000000000004"),
    "b": ("bytea", "ab", r"\x6162"),
    "t": ("timestamptz", "2024-02-29 12:00+00", "2024-02-29 12:00:00+00"),
    "d": ("date", "2024-02-29", "2024-02-29"),
    "i": ("interval", "1 mon 2 days", "1 mon 2 days"),
    "fs": ("float8[]", "{0.30000000000000004}", "{0.30000000000000004}"),
}


@pytest.fixture(scope="module")
def strange_role(postgres_server: PostgresServer) -> str:
    """A role whose sessions cast to texts in other ways."""
    postgres_server.execute("""
        CREATE ROLE strange LOGIN PASSWORD 'pw' SUPERUSER;
        ALTER ROLE strange SET extra_float_digits = 0; ALTER ROLE strange SET bytea_output = escape;
        ALTER ROLE strange SET datestyle = 'German, DMY'; ALTER ROLE strange SET timezone = 'Asia/Tokyo';
        ALTER ROLE strange SET intervalstyle = iso_8601""")
    return "strange"


@pytest.mark.parametrize("way", ["straight", "refusing", "silent"])
def test_texts_of_postgresql_do_not_depend_on_settings_of_the_role_or_the_environment(
    pg: PostgresAdbcSource, strange_role: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, values, texts = zip(*WRITTEN.values(), strict=True)
    declared = ", ".join(f"{name} {kind}" for name, kind in zip(WRITTEN, columns, strict=True))
    pg.execute(f"DROP TABLE IF EXISTS written; CREATE TABLE written (id int, {declared})")
    pg.execute(f"INSERT INTO written VALUES (1, {str(values)[1:-1]})")
    expected = {"id": 1, **dict(zip(WRITTEN, texts, strict=True))}
    schema = pa.schema([("id", pa.int32()), *((name, pa.string()) for name in WRITTEN)])
    environment = {"PGTZ": "Asia/Tokyo", "PGDATESTYLE": "German"}
    if way != "refusing":
        environment["PGOPTIONS"] = "-c bytea_output=escape"
    with contextlib.ExitStack() as fronts:
        port = pg.server.port
        if way != "straight":
            port = fronts.enter_context(strict_pooler(port, passes_over=way == "silent"))
        table = pg.table("written", schema, uri=pg.server.url(user=strange_role, password="pw", port=port))
        for variables in ({}, environment):
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            assert (ask(table, {"id": [1]}), read(table)) == ([expected], [expected])
            assert ask(table, dict(zip(WRITTEN, ([text] for text in texts), strict=True))) == [expected]


def test_texts_stay_alike_behind_a_pooler_where_a_statement_is_asked_again(
    pg: PostgresAdbcSource, strange_role: str
) -> None:
    pg.execute("CREATE DATABASE adbc_pooled ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    alter = partial(pg.server.execute, database="adbc_pooled")
    alter("CREATE TABLE t (k text, n int, v float8); INSERT INTO t VALUES ('a', 1, 0.30000000000000004)")
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.string())])
    request = request_for(schema, {"k": ["€", "a"]})

    async def asked_around_a_change(connector: AdbcConnector) -> list[Any]:
        before = await connector.alookup(request)  # the server's encoding lacks one of the keys
        await asyncio.to_thread(alter, "ALTER TABLE t ALTER n TYPE bigint")
        return [rows_of(each).to_pylist() for each in (before, await connector.alookup(request))]

    with strict_pooler(pg.server.port, passes_over=True) as port:
        url = pg.server.url(user=strange_role, password="pw", port=port, database="adbc_pooled")
        connector = AdbcConnector(pg.table("t", schema, uri=url, pool_size="1"))
        found = during(connector, asked_around_a_change)
    assert found == [[{"k": "a", "n": 1, "v": "0.30000000000000004"}]] * 2


def test_integers_of_duckdb_that_no_decimal_holds_are_refused(duck: DuckDbSource) -> None:
    huge, most = 2**127 - 1, 2**128 - 1
    for sql_type, number, kind in (
        ("HUGEINT", huge, pa.decimal128(38, 0)),
        ("UHUGEINT", most, pa.decimal128(38, 0)),
        ("UHUGEINT", most, pa.int64()),
        ("HUGEINT[]", f"[{huge}]", pa.list_(pa.decimal128(38, 0))),
        ("DECIMAL(38,0)", 10**30, pa.decimal128(38, 18)),
        ("TIMESTAMP_S", "'294000-01-01'", pa.timestamp("us")),
    ):
        duck.execute(f"DROP TABLE IF EXISTS wide; CREATE TABLE wide (k INT, v {sql_type})")
        duck.execute(f"INSERT INTO wide VALUES (1, {number})")
        table = duck.table("wide", pa.schema([("k", pa.int32()), ("v", kind)]))
        assert "does not fit" in str(failure_of(partial(ask, table, {"k": [1]}))), sql_type
    duck.execute("DROP TABLE wide; CREATE TABLE wide (k INT, v UHUGEINT); INSERT INTO wide VALUES (1, 7)")
    table = duck.table("wide", pa.schema([("k", pa.int32()), ("v", pa.decimal128(38, 0))]))
    assert ask(table, {"v": [Decimal(7)]}) == read(table) == [{"k": 1, "v": Decimal(7)}]


def test_nanoseconds_of_duckdb_are_cut_and_asked_by_as_they_are_read(duck: DuckDbSource) -> None:
    duck.execute("CREATE TABLE fine (k INT, v TIMESTAMP_NS)")
    duck.execute(
        "INSERT INTO fine VALUES (1, '2024-01-01 00:00:00.123456789'), (2, '1969-12-31 23:59:59.9999999')"
    )
    table = duck.table("fine", pa.schema([("k", pa.int32()), ("v", pa.timestamp("us"))]))
    values = [datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(1969, 12, 31, 23, 59, 59, 999999)]
    rows = [{"k": number, "v": value} for number, value in enumerate(values, start=1)]
    assert read(table) == rows
    assert sorted(ask(table, {"v": values}), key=lambda row: row["k"]) == rows


@pytest.mark.parametrize(("encoding", "known"), [("LATIN1", "é"), ("EUC_JP", "漢"), ("SQL_ASCII", "é")])
def test_texts_are_those_of_a_server_of_another_encoding_and_what_it_has_not_is_a_miss(
    pg: PostgresAdbcSource, encoding: str, known: str
) -> None:
    database = f"adbc_in_{encoding.lower()}"
    pg.execute(f"CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    pg.server.execute(
        f"CREATE TABLE t (k text, v int); INSERT INTO t VALUES ('{known}', 1), ('a', 2)", database
    )
    table = pg.table("t", TEXT, uri=pg.server.url(database=database, client_encoding="LATIN1"))
    rows = [{"k": known, "v": 1}, {"k": "a", "v": 2}]
    for keys, found in ((["€", known, "a€", "👋", "a", "]👋"], rows), (["€"], []), ([known], rows[:1])):
        ask = partial(AdbcConnector.alookup, request=request_for(TEXT, {"k": keys}))
        assert rows_of(during(AdbcConnector(table), ask)).to_pylist() == found
    assert [row for batch in AdbcConnector(table).scan(TEXT) for row in batch.to_pylist()] == rows
