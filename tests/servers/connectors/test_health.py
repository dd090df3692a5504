"""What a doctor finds of broken set-ups: each is called by its name, with what to try."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.spi import HealthCheck, HealthRequest, LookupTable
from lookup_hints.tables.catalog import build_connector
from lookup_hints.worker.doctor_checks import checks_of
from tests.servers.certificates import Certificates
from tests.servers.http_server import Api
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PASSWORD, PostgresServer, free_port
from tests.servers.redis import RedisServer, running_redis
from tests.servers.tls import tls_front

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
BROKEN = ("warn", "fail")


@pytest.fixture(scope="module", autouse=True)
def _shop(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        f"""
        CREATE SCHEMA health;
        CREATE TABLE health.customers (id bigint PRIMARY KEY, name text, token uuid);
        INSERT INTO health.customers SELECT n, 'name ' || n FROM generate_series(1, 50000) AS n;
        CREATE TABLE health.secret AS SELECT 1::bigint AS id, 'x' AS name;
        CREATE TABLE health.unlogged_in (id bigint, name text);
        CREATE VIEW health.seen AS SELECT id, name FROM health.customers;
        CREATE ROLE few LOGIN CONNECTION LIMIT 7 PASSWORD '{PASSWORD}';
        GRANT USAGE ON SCHEMA health TO few;
        GRANT SELECT ON health.customers, health.seen TO few;
        """
    )


def looked_at(
    options: dict[str, str],
    *,
    schema: pa.Schema = SCHEMA,
    keys: tuple[tuple[str, ...], ...] = (("id",),),
    processes: int | None = 1,
    given: dict[str, str] | None = None,
    timeout: float = 20.0,
) -> list[HealthCheck]:
    connector = build_connector(LookupTable("customers", schema, options=options))
    request = HealthRequest(keys, processes=processes, timeout=timeout)
    found = checks_of(connector, request, given)
    assert "hunter2" not in str(found), "no secret is told"
    assert PASSWORD not in str(found)
    return found


def verdicts(found: list[HealthCheck]) -> list[tuple[str, str]]:
    return [(check.name, check.verdict) for check in found]


def wrong(found: list[HealthCheck]) -> HealthCheck:
    """The one thing that is not well."""
    (one,) = [check for check in found if check.verdict in BROKEN]
    return one


def postgres(
    server: PostgresServer, *, sslmode: str = "disable", table: str = "", **url: Any
) -> dict[str, str]:
    where = server.url(**{"user": "few", "sslmode": sslmode, **url})
    return {"connector": "postgres", "url": where, "table-name": table or "health.customers"}


def mysql(server: MariaDbServer, table: str = "customers", **url: Any) -> dict[str, str]:
    where = server.url(**{"database": "health", "user": "few", "password": "pw", **url})
    return {"connector": "mysql", "url": where, "table-name": table}


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port that answers nobody: its queue is full, and the system drops what comes."""
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            one = opened.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


# --- all is well ----------------------------------------------------------------------------------


def test_a_table_of_postgres_that_is_well(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server))
    names = ("dns", "tcp", "login", "table", "columns", "rights", "index", "connections", "lookup")
    assert verdicts(found) == [(name, "ok") for name in names]
    by_name = {check.name: check for check in found}
    assert by_name["login"].what.startswith("as few in database postgres, PostgreSQL ")
    assert by_name["index"].what == "customers_pkey (id) serves id"
    assert "1 worker processes x 4 connections = 4; " in by_name["connections"].what
    assert by_name["lookup"].what == "by id: 10 lookups of keys of the table, 10 found"
    assert len(by_name["lookup"].seconds) == 10


@pytest.fixture
def mysql_shop(mariadb_server: MariaDbServer) -> MariaDbServer:
    mariadb_server.execute(
        """
        CREATE OR REPLACE DATABASE health; USE health;
        CREATE TABLE customers (id BIGINT PRIMARY KEY, name VARCHAR(99) NOT NULL, note VARCHAR(99));
        INSERT INTO customers SELECT seq, CONCAT('name ', seq), REPEAT('x', 90) FROM seq_1_to_30000;
        ANALYZE TABLE customers;
        CREATE VIEW seen AS SELECT * FROM customers;
        CREATE TABLE secret AS SELECT * FROM customers;
        CREATE OR REPLACE USER few@'127.0.0.1' IDENTIFIED BY 'pw';
        GRANT SELECT ON health.customers TO few@'127.0.0.1'; GRANT SELECT ON health.seen TO few@'127.0.0.1';
        GRANT INSERT ON health.secret TO few@'127.0.0.1';
        """
    )
    return mariadb_server


def test_a_table_of_mysql_is_looked_at_step_by_step(mysql_shop: MariaDbServer) -> None:
    found = looked_at(mysql(mysql_shop))
    names = ("dns", "tcp", "login", "table", "columns", "rights", "index", "connections", "lookup")
    assert verdicts(found) == [(name, "ok") for name in names]
    by_name = {check.name: check for check in found}
    assert by_name["login"].what.startswith("as few@127.0.0.1 in database health, 10.")
    assert by_name["index"].what == "PRIMARY (id) serves id"
    assert by_name["lookup"].what == "by id: 10 lookups of keys of the table, 10 found"
    slow = wrong(looked_at(mysql(mysql_shop), keys=(("name",),)))
    assert slow.what == "no valid index begins with name: each request reads the whole table"
    assert slow.cure == "CREATE INDEX by_key ON `health`.`customers` (`name`)."
    text = pa.schema([("id", pa.string()), ("name", pa.string())])
    assert wrong(looked_at(mysql(mysql_shop), schema=text)).cure == "Declare it BIGINT."
    view = {check.name: check for check in looked_at(mysql(mysql_shop, "seen"))}
    assert view["index"].verdict == "skipped"
    crowd = wrong(looked_at(mysql(mysql_shop), processes=100))
    assert (crowd.name, crowd.verdict) == ("connections", "fail")


@pytest.mark.parametrize(
    ("table", "change", "name", "told"),
    [
        ("customers", {"password": "hunter2"}, "login", "Access denied for user 'few'@'127.0.0.1'"),
        ("customers", {"database": "nowhere"}, "database", "Access denied for user"),
        ("custommers", {}, "table", "shows this user no table or view custommers in health"),
        ("secret", {}, "rights", "SELECT command denied"),
        ("customers", {"sslmode": "require"}, "tls", "the server has no TLS"),
    ],
)
def test_what_is_wrong_with_a_table_of_mysql_is_named(
    mysql_shop: MariaDbServer, table: str, change: dict[str, str], name: str, told: str
) -> None:
    found = wrong(looked_at(mysql(mysql_shop, table, **change)))
    assert found.name == name
    assert told in found.what


def test_nothing_is_written_and_no_connection_is_left(postgres_server: PostgresServer) -> None:
    before = "SELECT count(*) FROM health.customers UNION ALL SELECT n_tup_ins + n_tup_upd FROM pg_stat_all_tables WHERE relname = 'secret'"
    then = postgres_server.fetch(before)
    looked_at(postgres(postgres_server))
    assert postgres_server.fetch(before) == then
    left = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'few'"
    for _ in range(1000):
        if postgres_server.fetch(left)[0][0] == 0:
            return
    raise AssertionError("a connection is left")


def test_a_view_is_read_and_its_index_is_not_judged(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, table="health.seen"))
    assert [check.name for check in found if check.verdict == "skipped"] == ["index"]
    assert found[-1].what.endswith("10 found")


def test_redis_that_is_well(redis_server: RedisServer) -> None:
    redis_server.run("HSET", "c:1", "name", "Ann")
    found = looked_at({"connector": "redis", "url": redis_server.url, "key": "c:{id}"}, given={"id": "1"})
    assert verdicts(found) == [(name, "ok") for name in ("dns", "tcp", "login", "connections", "lookup")]
    assert found[-1].what == "by id: 10 lookups of the key that is given, 10 found"


def test_an_api_that_is_well_is_asked_for_a_key_that_is_made_up(api: Api) -> None:
    schema = pa.schema([("id", pa.string()), ("name", pa.string())])
    found = looked_at({"connector": "http", "url": f"{api.url}/people/{{id}}"}, schema=schema)
    assert verdicts(found) == [(name, "ok") for name in ("dns", "tcp", "connections", "lookup")]
    assert found[-1].what == "by id: 10 lookups of a key that is made up, 0 found"
    assert api.targets() == {"/people/lookup-hints-doctor": 11}


def test_a_table_of_memory_is_asked_for_its_own_keys() -> None:
    found = looked_at({"connector": "memory", "rows": '[[1, "Ann"], [null, "Nobody"]]'})
    assert found[-1].what == "by id: 10 lookups of keys of the table, 10 found"


# --- the line -------------------------------------------------------------------------------------


def test_a_driver_of_adbc_that_is_not_there() -> None:
    found = looked_at({"connector": "adbc", "driver": "adbc_driver_nope", "uri": "x"})
    assert verdicts(found) == [("driver", "fail")]
    assert found[0].cure == "Install it: pip install adbc-driver-nope."


def test_an_unknown_host() -> None:
    found = looked_at({"connector": "postgres", "url": "postgresql://app:hunter2@nowhere.invalid/x"})
    assert verdicts(found) == [("dns", "fail")]
    assert found[0].what.startswith("the name nowhere.invalid is not known here")


def test_one_of_two_hosts_that_is_away_is_a_warning(postgres_server: PostgresServer) -> None:
    options = postgres(postgres_server)
    options["url"] = options["url"].replace("127.0.0.1", f"127.0.0.1:{free_port()},127.0.0.1")
    found = looked_at(options)
    assert wrong(found).name == "tcp"
    assert found[-1].verdict == "ok"


def test_a_closed_port() -> None:
    port = free_port()
    found = looked_at({"connector": "redis", "url": f"redis://:hunter2@127.0.0.1:{port}", "key": "{id}"})
    assert wrong(found).what == f"127.0.0.1 port {port} is closed: nothing listens there"


def test_a_port_that_drops_what_is_sent() -> None:
    with black_hole() as port:
        found = looked_at({"connector": "http", "url": f"http://127.0.0.1:{port}/{{id}}"}, timeout=1)
    assert verdicts(found) == [("dns", "ok"), ("tcp", "fail")]
    assert (
        wrong(found).what
        == f"127.0.0.1 port {port} did not answer within 1 s: a firewall may drop what is sent"
    )


def test_a_server_that_takes_connections_and_never_answers() -> None:
    with silent_server() as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/x?sslmode=disable"
        found = looked_at({"connector": "postgres", "url": url}, timeout=1)
    assert verdicts(found) == [("dns", "ok"), ("tcp", "ok"), ("login", "fail")]
    assert found[-1].what == "the source gave no answer in time"


# --- TLS ------------------------------------------------------------------------------------------


def test_a_server_of_postgres_without_tls(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, sslmode="require"))
    assert verdicts(found)[-1] == ("tls", "fail")
    assert found[-1].what == "the server has no TLS, and 'sslmode' asks for it"


def test_a_server_of_postgres_whose_authority_is_unknown(
    postgres_server: PostgresServer, certificates: Certificates
) -> None:
    with tls_front(postgres_server.port, certificates) as port:
        options = postgres(postgres_server, sslmode="verify-full", host="localhost", port=port)
        found = looked_at({**options, "sslrootcert": str(certificates.other_authority)})
    assert verdicts(found)[-1] == ("tls", "fail")
    assert "is not trusted" in found[-1].what
    assert "'sslrootcert'" in found[-1].cure


@pytest.mark.parametrize(
    ("host", "trusted", "expired", "told"),
    [
        ("localhost", False, False, "is signed by an authority that is not known here"),
        ("127.0.0.1", True, False, "is for another name"),
        ("localhost", True, True, "has expired, or is not valid yet"),
    ],
)
@pytest.mark.parametrize("connector", ["http", "redis"])
def test_a_certificate_that_is_not_taken(
    redis_server: RedisServer, certificates: Certificates,
    connector: str, host: str, trusted: bool, expired: bool, told: str,
) -> None:  # fmt: skip
    authority = certificates.authority if trusted else certificates.other_authority
    with tls_front(redis_server.port, certificates, asked_first=False, expired=expired) as port:
        options = {
            "http": {"url": f"https://{host}:{port}/{{id}}"},
            "redis": {"url": f"rediss://{host}:{port}", "key": "{id}"},
        }[connector]
        found = looked_at({"connector": connector, **options, "tls-ca": str(authority)})
    assert verdicts(found)[-1] == ("tls", "fail")
    assert found[-1].what.startswith(f"the certificate of {host} port {port} {told} (")


def test_a_port_without_tls(api: Api, redis_server: RedisServer) -> None:
    for port in (api.port, redis_server.port):  # the one hangs up, the other one waits for more
        found = looked_at({"connector": "http", "url": f"https://127.0.0.1:{port}/{{id}}"}, timeout=2)
        assert verdicts(found)[-1] == ("tls", "fail")
        assert "that does, or a URL without TLS" in found[-1].cure or "port speaks TLS" in found[-1].cure


# --- login and rights -----------------------------------------------------------------------------


def test_a_wrong_password_of_postgres(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, password="hunter2"))
    assert verdicts(found)[-1] == ("login", "fail")
    assert "password authentication failed" in found[-1].what
    assert found[-1].cure == "Check user and password."


def test_a_database_that_redis_does_not_have(redis_server: RedisServer) -> None:
    url = redis_server.url.rpartition("/")[0] + "/99"
    found = looked_at({"connector": "redis", "url": url, "key": "{id}"})
    assert verdicts(found)[-1] == ("database", "fail")
    assert "DB index is out of range" in found[-1].what
    assert found[-1].cure == "Check which database the table names."


def test_a_wrong_password_of_redis() -> None:
    with running_redis() as server:
        server.run("CONFIG", "SET", "requirepass", "needed-pass")
        options = {"connector": "redis", "url": f"redis://:hunter2@127.0.0.1:{server.port}", "key": "{id}"}
        found = looked_at(options)
    assert verdicts(found)[-1] == ("login", "fail")
    assert found[-1].cure == "Check 'username' and 'password'."


def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, database="nothing"))
    assert verdicts(found)[-1] == ("database", "fail")


@pytest.mark.parametrize("status", [401, 403])
def test_a_status_that_refuses_the_login(api: Api, status: int) -> None:
    api.script("/people/0", {"status": status, "repeat": True})
    found = looked_at({"connector": "http", "url": f"{api.url}/people/{{id}}"})
    assert verdicts(found)[-1] == ("login", "fail")
    assert f"answered {status}" in found[-1].what


def test_a_page_where_to_log_in(api: Api) -> None:
    page = {
        "status": 200,
        "body": "<html><title>Sign in</title></html>",
        "headers": {"Content-Type": "text/html"},
    }
    api.script("/people/0", {**page, "repeat": True})
    found = looked_at({"connector": "http", "url": f"{api.url}/people/{{id}}"})
    assert verdicts(found)[-1] == ("login", "fail")
    assert "not JSON" in found[-1].what + found[-1].cure


def test_a_made_up_key_that_is_refused_says_how_to_name_a_real_one(api: Api) -> None:
    api.script("/people/0", {"status": 400, "repeat": True})
    found = looked_at({"connector": "http", "url": f"{api.url}/people/{{id}}"})
    assert verdicts(found)[-1] == ("lookup", "warn")
    assert found[-1].cure == "Name a key that there is: --key id=..."
    found = looked_at({"connector": "http", "url": f"{api.url}/people/{{id}}"}, given={"id": "0"})
    assert verdicts(found)[-1] == ("lookup", "fail")


def test_a_table_that_the_role_may_not_read(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, table="health.secret"))
    assert verdicts(found)[-1] == ("rights", "fail")
    assert found[-1].what == "few may not read health.secret"
    assert found[-1].cure.startswith('GRANT SELECT ON health.secret TO "few"')


# --- table, columns, index ------------------------------------------------------------------------


@pytest.mark.parametrize("connector", ["postgres", "sqlite"])
def test_a_table_that_is_not_there(postgres_server: PostgresServer, tmp_path: Path, connector: str) -> None:
    found = looked_at(
        postgres(postgres_server, table="health.custommers")
        if connector == "postgres"
        else {"connector": "sqlite", "path": sqlite_file(tmp_path), "table-name": "custommers"}
    )
    assert verdicts(found)[-1] == ("table", "fail")
    assert found[-1].cure.startswith("Did you mean ")


@pytest.mark.parametrize("connector", ["postgres", "sqlite"])
def test_a_column_that_is_not_there(postgres_server: PostgresServer, tmp_path: Path, connector: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("naem", pa.string())])
    where = {
        "postgres": postgres(postgres_server),
        "sqlite": {"connector": "sqlite", "path": sqlite_file(tmp_path)},
    }
    found = looked_at(where[connector], schema=schema)
    assert verdicts(found)[-1] == ("columns", "fail")
    assert "'naem'" in found[-1].what


def test_a_key_without_an_index_in_postgres(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server), keys=(("id",), ("name",)))
    assert wrong(found).name == "index"
    assert wrong(found).cure == 'CREATE INDEX ON health.customers ("name").'
    assert [check.verdict for check in found if check.name == "lookup"] == ["ok", "ok"]


def test_a_key_that_is_compared_as_another_type(postgres_server: PostgresServer) -> None:
    schema = pa.schema([("id", pa.string()), ("name", pa.string())])
    found = looked_at(postgres(postgres_server), schema=schema)
    assert wrong(found).name == "index"
    assert wrong(found).cure.startswith("Declare it BIGINT, or CREATE INDEX ON health.customers ((")


def test_a_key_without_an_index_in_sqlite(tmp_path: Path) -> None:
    found = looked_at({"connector": "sqlite", "path": sqlite_file(tmp_path)}, keys=(("id",), ("name",)))
    assert wrong(found).name == "index"
    assert wrong(found).cure == 'CREATE INDEX by_key ON "customers" ("name").'


def sqlite_file(folder: Path) -> str:
    with contextlib.closing(sqlite3.connect(folder / "shop.sqlite")) as connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO customers VALUES (?, ?)", [(n, f"name {n}") for n in range(2000)])
        connection.commit()
    return str(folder / "shop.sqlite")


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "verdict", "told"),
    [
        (2, "fail", "2 worker processes x 4 connections = 8, and CONNECTION LIMIT of the role leaves 7"),
        (1, "ok", "1 worker processes x 4 connections = 4; "),
        (
            None,
            "skipped",
            "4 for each worker process; SET lookup.cluster-tasks says how many processes there are",
        ),
    ],
)
def test_connections_that_tasks_will_open(
    postgres_server: PostgresServer, processes: int | None, verdict: str, told: str
) -> None:
    found = looked_at(postgres(postgres_server), processes=processes)
    (check,) = [check for check in found if check.name == "connections"]
    assert check.verdict == verdict
    assert check.what.startswith(told)
    assert found[-1].name == "lookup", "it is asked all the same"


def test_connections_that_are_taken_by_others_now(postgres_server: PostgresServer) -> None:
    found = looked_at(postgres(postgres_server, user="postgres"), processes=10)
    (check,) = [check for check in found if check.name == "connections"]
    assert check.verdict == "warn"
    assert " of 40 are free now (max_connections)" in check.what


def test_clients_that_redis_does_not_take() -> None:
    with running_redis("--maxclients", "50") as server:
        found = looked_at({"connector": "redis", "url": server.url, "key": "{id}"}, processes=20)
    assert wrong(found).name == "connections"
    assert wrong(found).what == "20 worker processes x 4 connections = 80, and maxclients leaves 50"
