"""`'query' = 'SELECT ...'`: a query of PostgreSQL, MariaDB or SQLite is asked, read, discovered and explained like a table."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.errors import ConnectorError, OptionError
from lookup_hints.spi import Filter, HealthCheck, HealthRequest
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer
from tests.unit.connectors.asking import during, request_for, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("total", pa.int64())])
PLAIN = "SELECT c.id, upper(c.name) AS name, o.total FROM people c JOIN orders o ON o.person = c.id WHERE o.total > 5"
GROUPED = "SELECT id, max(name) AS name, count(*) AS total FROM people GROUP BY id"
LIMITED = "SELECT id, name, id AS total FROM people ORDER BY id LIMIT 50"
WINDOW = "SELECT id, name, row_number() OVER (ORDER BY id) AS total FROM people"
UNION = "SELECT id, name, 1 AS total FROM people UNION ALL SELECT id, name, 2 AS total FROM people"
TABLES = """
CREATE TABLE people (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (person bigint, total bigint);
CREATE INDEX orders_by_person ON orders (person);
"""
Source = Callable[..., Any]


@pytest.fixture(scope="module")
def in_postgres(postgres_server: PostgresServer) -> Source:
    postgres_server.execute("DROP TABLE IF EXISTS people, orders CASCADE")
    postgres_server.execute(
        f"""{TABLES}
        INSERT INTO people SELECT n, 'name ' || n FROM generate_series(1, 20000) AS n;
        INSERT INTO orders SELECT n, n % 10 FROM generate_series(1, 20000) AS n; ANALYZE people; ANALYZE orders"""
    )

    def make(query: str, schema: pa.Schema = SCHEMA, **more: str) -> PostgresConnector:
        options = {
            "connector": "postgres",
            "url": postgres_server.url(sslmode="disable"),
            "query": query,
            **more,
        }
        return PostgresConnector(LookupTable("people", schema, ("id",), options))

    return make


@pytest.fixture(scope="module")
def in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    path = tmp_path_factory.mktemp("queries") / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLES)
        connection.executemany(
            "INSERT INTO people VALUES (?, ?)", ((n, f"name {n}") for n in range(1, 20001))
        )
        connection.executemany("INSERT INTO orders VALUES (?, ?)", ((n, n % 10) for n in range(1, 20001)))
    connection.close()
    before = path.read_bytes()

    def make(query: str, schema: pa.Schema = SCHEMA, **more: str) -> SqliteConnector:
        options = {"connector": "sqlite", "path": str(path), "query": query, **more}
        return SqliteConnector(LookupTable("people", schema, ("id",), options))

    yield make
    assert path.read_bytes() == before, "the file stays as it is"


@pytest.fixture(scope="module")
def in_mariadb(mariadb_server: MariaDbServer) -> Source:
    mariadb_server.execute("DROP TABLE IF EXISTS people, orders")
    mariadb_server.execute(
        f"""{TABLES.replace("text", "varchar(40)")}
        INSERT INTO people SELECT seq, CONCAT('name ', seq) FROM seq_1_to_20000;
        INSERT INTO orders SELECT seq, seq % 10 FROM seq_1_to_20000; ANALYZE TABLE people; ANALYZE TABLE orders"""
    )

    def make(query: str, schema: pa.Schema = SCHEMA, **more: str) -> MysqlConnector:
        options = {"connector": "mysql", "url": mariadb_server.url(), "query": query, **more}
        return MysqlConnector(LookupTable("people", schema, ("id",), options))

    return make


@pytest.fixture(params=["mariadb", "postgres", "sqlite"])
def source(request: pytest.FixtureRequest) -> Source:
    made: Source = request.getfixturevalue(f"in_{request.param}")
    return made


def ask(
    connector: MysqlConnector | PostgresConnector | SqliteConnector, ids: list[int]
) -> list[dict[str, Any]]:
    connector.check()
    request = request_for(SCHEMA, {"id": ids})
    if not isinstance(connector, SqliteConnector):
        answer = during(connector, lambda opened: opened.alookup(request))
    else:
        connector.open()
        try:
            answer = connector.lookup(request)
        finally:
            connector.close()
    rows: list[dict[str, Any]] = rows_of(answer).to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["total"]))


def index_of(connector: MysqlConnector | PostgresConnector | SqliteConnector) -> HealthCheck:
    checks = list(connector.health(HealthRequest((("id",),))))
    return next(check for check in checks if check.name == "index")


def test_a_join_of_the_source_is_asked_as_a_table(source: Source) -> None:
    assert ask(source(PLAIN), [3, 7, 8, 99999]) == [
        {"id": 7, "name": "NAME 7", "total": 7},
        {"id": 8, "name": "NAME 8", "total": 8},
    ]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (GROUPED, [{"id": 7, "name": "name 7", "total": 1}]),
        (LIMITED, [{"id": 7, "name": "name 7", "total": 7}]),
        (WINDOW, [{"id": 7, "name": "name 7", "total": 7}]),
        (UNION, [{"id": 7, "name": "name 7", "total": 1}, {"id": 7, "name": "name 7", "total": 2}]),
        (f"WITH p AS ({GROUPED}) SELECT * FROM p -- a comment", [{"id": 7, "name": "name 7", "total": 1}]),
        ("SELECT id, '; ) {x}' AS name, 1 AS total FROM people", [{"id": 7, "name": "; ) {x}", "total": 1}]),
    ],
)
def test_any_select_gives_its_rows(source: Source, query: str, rows: list[dict[str, Any]]) -> None:
    assert ask(source(query), [7, 99999]) == rows


@pytest.mark.parametrize("query", [PLAIN, GROUPED])
def test_it_is_read_whole_with_filters(source: Source, query: str) -> None:
    connector = source(query)
    (part,) = connector.partitions(4)
    wanted = [Filter("id", "<=", (20,))]
    found = pa.Table.from_batches(list(connector.scan_filtered(SCHEMA, part, wanted)), SCHEMA)
    among = [row for row in found.to_pylist() if row["id"] <= 20]
    assert sorted(row["id"] for row in among) == (
        [6, 7, 8, 9, 16, 17, 18, 19] if query is PLAIN else [*range(1, 21)]
    )
    assert connector.statistics().rows is None
    assert connector.statistics().source == "a query, whose rows nobody has counted"


def test_the_source_tells_the_columns(source: Source) -> None:
    schema, key = source("SELECT id, name FROM people", pa.schema([("id", pa.int64())])).discover()
    assert schema == pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert key == ()


def test_the_key_is_looked_for_inside_a_plain_query(source: Source) -> None:
    check = index_of(source(PLAIN))
    assert check.verdict == "ok", check
    assert "id is looked for inside the query" in check.what
    assert re.search("people|search c|range of c by PRIMARY, ref of o by orders_by_person", check.what)
    assert not source(PLAIN).remarks()


@pytest.mark.parametrize(("query", "word"), [(LIMITED, "LIMIT"), (WINDOW, "a window")])
def test_where_it_cannot_be_doctor_and_explain_say_so(source: Source, query: str, word: str) -> None:
    check = index_of(source(query))
    assert check.verdict == "warn", check
    assert check.what == "id is compared with the rows of the query: each request runs all of it"
    assert source(query).remarks() == (
        f"the query of people has {word}: the database may run all of it for each request, which lookup-hints"
        " doctor tells; 'access' = 'scan' runs it once",
    )


def test_postgresql_looks_inside_groups_by_the_key_and_unions(in_postgres: Source) -> None:
    assert index_of(in_postgres(GROUPED)).verdict == "ok"
    assert index_of(in_postgres(UNION)).verdict == "ok"
    assert len(in_postgres(UNION).remarks()) == 1, "only the database knows"


def test_mariadb_looks_inside_by_an_index_alone_and_behind_no_group_or_union(in_mariadb: Source) -> None:
    for query in (GROUPED, UNION, "SELECT id + 1 AS id, name, 1 AS total FROM people"):
        assert index_of(in_mariadb(query)).verdict == "warn"
    inside = "SELECT p.id, p.name, o.total FROM people p JOIN ({}) o ON o.person = p.id"
    by_person = "SELECT person, sum(total) AS total FROM orders GROUP BY person"
    assert index_of(in_mariadb(inside.format(by_person))).verdict == "ok", "it is asked for each person"
    by_total = "SELECT max(person) AS person, total FROM orders GROUP BY total"
    assert index_of(in_mariadb(inside.format(by_total))).verdict == "warn", (
        "it is made whole for each request"
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT id, nmae FROM people", "line 1, character 12 ('nmae FROM people')"),
        ("SELECT id,\n  name FORM people", "line 2, character"),
        ("SELECT id FROM\n  poeple", "line 2, character 3 ('poeple')"),
        ("SELECT id, name AS id FROM people", "'query' gives two columns 'id'. Name them by AS."),
    ],
)
def test_what_is_wrong_with_it_is_said_with_its_place(source: Source, query: str, said: str) -> None:
    with pytest.raises(ConnectorError) as raised:
        ask(source(query), [1])
    assert raised.value.permanent
    assert said in str(raised.value)
    assert "table people: 'query'" in str(raised.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT 1; DROP TABLE people",
            "'query', line 1, character 9 ('; DROP TABLE people'): a ';' ends a statement.",
        ),
        (
            "DELETE FROM people",
            "'query', line 1, character 1 ('DELETE FROM people'): 'DELETE' begins no query.",
        ),
        ("SELECT 1) AS x, (SELECT 2", "this ')' closes nothing"),
        ("SELECT (1", "'query' ends too early"),
        ("", "'query' ends too early"),
        ("SELECT 'a", "this quote or comment is never closed"),
        ("SELECT 1 /* a", "this quote or comment is never closed"),
        ("SELECT '${env:HOME}'", "'query' may hold no reference"),
    ],
)
def test_only_one_select_is_taken(source: Source, query: str, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        source(query).check()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'a\\'' ; DROP TABLE people -- '",
        "SELECT 1 # '\n ; DROP TABLE people #'",
        "SELECT 1--1 ; DROP TABLE people",
        "SELECT 1 AS $a$ ; DROP TABLE people; SELECT 1 AS $a$",
        "SELECT 1 /*! ; DROP TABLE people */",
        "SELECT 1 /*M!100000 ) AS x, (SELECT 1 */",
        'SELECT "a\\"" ; DROP TABLE people -- "',
    ],
)
def test_mariadbs_own_strings_and_comments_hide_nothing(in_mariadb: Source, query: str) -> None:
    with pytest.raises(OptionError, match=r"a ';' ends a statement|the server runs this comment"):
        in_mariadb(query).check()


def test_mariadbs_own_strings_and_comments_are_read(in_mariadb: Source) -> None:
    query = """SELECT id, 'it\\'s ; # )' AS name, 3--2 AS total # it's ; a comment
    FROM people -- so is ) this"""
    assert ask(in_mariadb(query), [7]) == [{"id": 7, "name": "it's ; # )", "total": 5}]


def test_a_place_for_a_value_is_refused(in_mariadb: Source) -> None:
    with pytest.raises(ConnectorError) as raised:
        ask(in_mariadb("SELECT id, name, 1 AS total FROM people WHERE id = ?"), [7])
    assert "'query', line 1, character 52 ('?'): nothing is bound in it. Write a value" in str(raised.value)


def test_mariadb_tells_the_types_of_a_query_as_of_a_table(
    in_mariadb: Source, mariadb_server: MariaDbServer
) -> None:
    mariadb_server.execute(
        """CREATE TABLE typed (
        a TINYINT(1), b BIGINT UNSIGNED, c DECIMAL(30, 10), d FLOAT, e DOUBLE, f YEAR, g BIT(9), h DATE,
        i DATETIME(3), j TIMESTAMP(6) NULL, k TIME, l CHAR(3), m VARCHAR(10) CHARACTER SET latin1, n TEXT,
        o LONGBLOB, p JSON, q ENUM('a', 'b'), r SET('x', 'y'), s BINARY(4), t UUID, u INET6, v MEDIUMINT UNSIGNED,
        w SMALLINT, x VARBINARY(8), y DECIMAL(9, 0) UNSIGNED, z POINT)"""
    )
    options = {"url": mariadb_server.url(), "table-name": "typed"}
    of_table, _ = MysqlConnector(LookupTable("typed", SCHEMA, options=options)).discover()
    of_query, _ = in_mariadb("SELECT * FROM typed").discover()
    assert of_query == of_table
    of_both, _ = in_mariadb(
        "SELECT a + 1 AS a, sum(b) OVER () AS b, now(6) AS c, count(*) AS d FROM typed"
    ).discover()
    assert of_both.types == [pa.int32(), pa.decimal128(38, 0), pa.timestamp("us"), pa.int64()]


def test_a_key_that_the_columns_characters_cannot_hold_is_a_miss(
    in_mariadb: Source, mariadb_server: MariaDbServer
) -> None:
    mariadb_server.execute(
        "CREATE TABLE western (id VARCHAR(10) CHARACTER SET latin1 PRIMARY KEY, name TEXT, total BIGINT);"
        "INSERT INTO western VALUES ('?', 'mark', 1), ('é', 'accent', 2)"
    )
    schema = pa.schema([("id", pa.string()), ("name", pa.string()), ("total", pa.int64())])
    connector = in_mariadb("SELECT * FROM western", schema)
    request = request_for(schema, {"id": ["é", "Ж", "E"]})
    answer = during(connector, lambda opened: opened.alookup(request))
    assert rows_of(answer).column("name").to_pylist() == ["accent"]


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        (pa.bool_(), "TINYINT"), (pa.decimal128(9, 2), "DECIMAL(9, 2)"), (pa.string(), "VARCHAR(9)"),
        (pa.date32(), "DATE"), (pa.timestamp("us"), "DATETIME"), (pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (pa.duration("us"), "TIME"), (pa.float64(), "DOUBLE"), (pa.binary(), "VARBINARY(9)"),
    ],
)  # fmt: skip
def test_doctor_asks_by_each_kind_of_key(
    in_mariadb: Source, mariadb_server: MariaDbServer, kind: pa.DataType, sql: str
) -> None:
    mariadb_server.execute(f"CREATE OR REPLACE TABLE keyed (id {sql}, KEY by_id (id))")
    check = index_of(in_mariadb("SELECT id FROM keyed", pa.schema([("id", kind)])))
    assert check.verdict == "ok", check
    assert "of keyed by" in check.what


def test_mariadb_does_not_run_a_query_to_describe_it(in_mariadb: Source) -> None:
    slow = "SELECT id, max(sleep(60)) AS name, 1 AS total FROM people WHERE id > sleep(60) GROUP BY id"
    schema, _ = in_mariadb(slow).discover()
    assert schema.names == ["id", "name", "total"]


def test_a_table_beside_it_is_refused(source: Source) -> None:
    with pytest.raises(OptionError, match="'query' and 'table-name' exclude each other"):
        source(PLAIN, **{"table-name": "people"}).check()


def test_a_type_that_changes_is_seen(in_postgres: Source, postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE TABLE changing AS SELECT 1::int AS id, 'a' AS name, 5::int AS total")
    connector = in_postgres("SELECT * FROM changing")

    async def ask_twice(opened: PostgresConnector) -> list[Any]:
        request = request_for(SCHEMA, {"id": [1]})
        found = [rows_of(await opened.alookup(request))]
        change = "ALTER TABLE changing ALTER total TYPE bigint USING total + 1"
        await asyncio.to_thread(postgres_server.execute, change)
        found.append(rows_of(await opened.alookup(request)))
        return pa.concat_tables(found).column("total").to_pylist()  # type: ignore[no-any-return]

    assert during(connector, ask_twice) == [5, 6]


# --- adbc -----------------------------------------------------------------------------------------


@pytest.fixture(params=["duckdb", "postgres", "sqlite"])
def over_adbc(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, tmp_path: Path
) -> Callable[[str], AdbcConnector]:
    driver = request.param
    if driver == "duckdb":
        uri = str(tmp_path / "shop.duckdb")
        with duckdb.connect(uri) as connection:
            connection.execute(TABLES)
            connection.execute("INSERT INTO people SELECT n, 'name ' || n FROM range(1, 20001) AS r(n)")
            connection.execute("INSERT INTO orders SELECT n, n % 10 FROM range(1, 20001) AS r(n)")
    elif driver == "sqlite":
        uri = request.getfixturevalue("in_sqlite")(PLAIN).table.options["path"]
    else:
        request.getfixturevalue("in_postgres")
        uri = postgres_server.url(sslmode="disable")
    given = {
        "duckdb": "adbc_driver_duckdb",
        "postgres": "adbc_driver_postgresql",
        "sqlite": "adbc_driver_sqlite",
    }

    def make(query: str) -> AdbcConnector:
        options = {"connector": "adbc", "driver": given[driver], "uri": uri, "query": query}
        return AdbcConnector(LookupTable("people", SCHEMA, ("id",), options))

    return make


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (PLAIN, [{"id": 7, "name": "NAME 7", "total": 7}]),
        (GROUPED, [{"id": 7, "name": "name 7", "total": 1}]),
        (f"{LIMITED} -- a comment", [{"id": 7, "name": "name 7", "total": 7}]),
    ],
)
def test_adbc_takes_it_too(
    over_adbc: Callable[[str], AdbcConnector], query: str, rows: list[dict[str, Any]]
) -> None:
    connector = over_adbc(query)
    connector.check()
    request = request_for(SCHEMA, {"id": [7, 99999]})
    assert rows_of(during(connector, lambda opened: opened.alookup(request))).to_pylist() == rows
    found = pa.Table.from_batches(list(over_adbc(query).scan(SCHEMA)), SCHEMA)
    assert rows[0] in found.to_pylist()
    assert over_adbc(query).statistics().rows is None
    assert bool(over_adbc(query).remarks()) == (query is not PLAIN)


def test_adbc_says_which_word_is_wrong(over_adbc: Callable[[str], AdbcConnector]) -> None:
    connector = over_adbc("SELECT id, nmae AS name, 1 AS total FROM people")
    with pytest.raises(ConnectorError, match="nmae"):
        during(connector, lambda opened: opened.alookup(request_for(SCHEMA, {"id": [7]})))
