"""Connection strings of PostgreSQL as hosting services and libpq's manual write them: kept, named, or refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.postgres.url import NotUnderstood, Target, parameters_of, target_of, with_service

from lookup_hints.errors import OptionError
from lookup_hints.spi.request_and_answer import LookupTable
from tests.servers.certificates import Certificates
from tests.servers.pooler import strict_pooler
from tests.servers.postgres import PASSWORD, PostgresServer, free_port
from tests.servers.tls import tls_front
from tests.unit.connectors.asking import ask, during, failure_of, request_for, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SECRET = "hidden-pass"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGSERVICEFILE"):
        monkeypatch.delenv(name, raising=False)


def target(text: str) -> Target:
    return target_of(with_service(parameters_of(text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://", {}),
        ("postgres://localhost", {"hosts": (("localhost", 5432),)}),
        ("postgresql://localhost:5433", {"hosts": (("localhost", 5433),)}),
        ("postgresql://localhost/mydb", {"hosts": (("localhost", 5432),), "database": "mydb"}),
        ("postgresql://user:secret@localhost", {"user": "user", "password": "secret"}),
        ("postgresql://other@localhost/otherdb?connect_timeout=10&application_name=myapp",
         {"user": "other", "seconds": 10.0, "session": {"application_name": "myapp"}}),
        ("postgresql://host1:123,host2:456/somedb?target_session_attrs=any&application_name=myapp",
         {"hosts": (("host1", 123), ("host2", 456)), "attributes": "any"}),
        ("postgresql://h1,h2:7/x", {"hosts": (("h1", 5432), ("h2", 7))}),
        ("postgresql:///mydb?host=localhost&port=5433", {"hosts": (("localhost", 5433),), "database": "mydb"}),
        ("postgresql:///x?host=a,b&port=1,2", {"hosts": (("a", 1), ("b", 2))}),
        ("postgresql:///x?port=5433", {"hosts": (), "port": 5433}),
        ("postgresql://[2001:db8::1234]/database", {"hosts": (("2001:db8::1234", 5432),)}),
        ("postgresql://[::1]:7,b/x", {"hosts": (("::1", 7), ("b", 5432))}),
        ("postgresql:///dbname?host=/var/lib/postgresql", {"hosts": (("/var/lib/postgresql", 5432),)}),
        ("postgresql://%2Fvar%2Flib%2Fpostgresql/dbname", {"hosts": (("/var/lib/postgresql", 5432),)}),
        ("postgresql://m%40e:p%3Aw%2F%23%25@h/d%20b", {"user": "m@e", "password": "p:w/#%", "database": "d b"}),
        ("postgresql://me:p:w@h", {"password": "p:w"}),
        ("postgresql://me:a+b@h", {"password": "a+b"}),
        ("postgresql://h/x?user=me@srv&password=a+b", {"user": "me@srv", "password": "a+b"}),
        ("postgresql://h/x?ssl=true", {"driver": {"sslmode": "require"}}),
        ("postgresql://h/x?ssl=true&sslmode=verify-full", {"driver": {"sslmode": "verify-full"}}),
        ("postgresql://h/x?schema=public", {"session": {"search_path": "public"}}),
        ("postgresql://h/x?schema=My%20own", {"session": {"search_path": '"My own"'}}),
        ("postgresql://h/x?currentSchema=a,b", {"session": {"search_path": "a,b"}}),
        ("postgresql://h/x?pgbouncer=1", {"behind_pooler": True}),
        ("postgresql://h/x?pgbouncer=0", {"behind_pooler": False}),
        ("postgresql://h/x?sslmode=verify_ca", {"driver": {"sslmode": "verify-ca"}}),
        ("postgresql://h/x?options=-c%20geqo%3Doff", {"session": {"options": "-c geqo=off"}}),
        ("postgresql://h/x?options=endpoint%3Dep-cool-1", {"session": {"options": "endpoint=ep-cool-1"}}),
        ("postgresql://h/x?search_path=sales", {"session": {"search_path": "sales"}}),
        ("postgresql://h/x?fallback_application_name=fb", {"session": {"application_name": "fb"}}),
        ("postgresql://h/x?fallback_application_name=fb&application_name=a",
         {"session": {"application_name": "a"}}),
        ("postgresql://h/x?connect_timeout=0", {"seconds": float("inf")}),
        ("postgresql://h/x?gssencmode=disable&client_encoding=UTF8&channel_binding=prefer&sslcompression=0",
         {"without_effect": (), "session": {}}),
        ("postgresql://h/x?keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=5"
         "&tcp_user_timeout=100&client_encoding=latin1",
         {"without_effect": ("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
                             "tcp_user_timeout", "client_encoding"), "session": {}}),
        ("postgresql://h/x?load_balance_hosts=random", {"shuffled": True}),
        ("postgresql://h/x?sslmode=require&sslnegotiation=direct", {"direct_tls": True}),
        # Supabase's pooler and Prisma; Neon; Heroku; Azure; CockroachDB; Aiven; DigitalOcean.
        ("postgresql://postgres.abc:pw@aws-0-eu.pooler.supabase.com:6543/postgres?pgbouncer=true&connection_limit=1",
         {"behind_pooler": True, "without_effect": ("connection_limit",), "user": "postgres.abc"}),
        ("postgres://default:pw@ep-x-pooler.eu.aws.neon.tech/neondb?sslmode=require&channel_binding=require",
         {"driver": {"sslmode": "verify-full"}, "system_authorities": True, "binds_channel": True}),
        ("postgres://u:pw@ec2-1.compute.amazonaws.com:5432/d1?sslmode=require", {"driver": {"sslmode": "require"}}),
        ("postgresql://me%40srv:pw@srv.postgres.database.azure.com:5432/postgres?sslmode=require",
         {"user": "me@srv"}),
        ("host=srv.postgres.database.azure.com port=5432 dbname={db} user=me@srv password='a b' sslmode=require",
         {"database": "{db}", "user": "me@srv", "password": "a b"}),
        ("postgresql://u:pw@c.cockroachlabs.cloud:26257/defaultdb?sslmode=verify-full&options=--cluster%3Dc-1",
         {"session": {"options": "--cluster=c-1"}}),
        ("postgres://avnadmin:pw@pg.aivencloud.com:12691/defaultdb?sslmode=require", {"database": "defaultdb"}),
        ("postgresql://h/x?sslrootcert=system", {"driver": {"sslmode": "verify-full"}, "system_authorities": True}),
        # key = value
        ("host=localhost port=5432 dbname=mydb connect_timeout=10", {"seconds": 10.0, "database": "mydb"}),
        (r"user = me password = 'it\'s \\ x' host = ''", {"password": r"it's \ x", "hosts": ()}),
        ("host=a,b port=1,2 password=a://b", {"hosts": (("a", 1), ("b", 2)), "password": "a://b"}),
        ("host=db.internal hostaddr=10.0.0.7 sslmode=require", {"hosts": (("10.0.0.7", 5432),)}),
    ],
)  # fmt: skip
def test_what_hosts_of_databases_write_is_kept(text: str, expected: dict[str, Any]) -> None:
    found = target(text)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hidden@pass@h/x", "it cannot be read. It contains a second '@'"),
        ("postgresql://me:hidden/pass@h/x", "It contains a second '@', or one after a '/'"),
        ("postgresql://me:hidden#pass@h/x", "# is %23"),
        ("postgresql://me:hidden?pass@h/x", "percent-encoded"),
        ("postgresql://me:hidden%pass@h/x", "A '%' is not followed by two hexadecimal digits."),
        ("postgresql://me:hidden pass@h/x", "It holds a '#' or a blank."),
        ("postgresql://me:%FF@h/x", "not UTF-8"),
        ("postgresql://h:hidden-pass/x", "a port is a number"),
        ("postgresql://::1:5432/x", "IPv6 in brackets"),
        ("postgresql://h:99999/x", "A port is a number up to 65535."),
        ("jdbc:postgresql://h/x", "it is a URL of JDBC. Write postgresql://"),
        ("cockroachdb://h/x", "it does not begin with postgresql://"),
        ("psql 'postgresql://u:hidden-pass@h/x'", "it is neither a URL nor key = value"),
        ("h:5432/x", "does not begin with postgresql://"),
        ("host=a password='hidden-pass", "it cannot be read. Write key=value"),
        ("host=a password=x hidden=pass@", "it holds a parameter that libpq does not know. A value that holds"),
        ("host=a sslmod=require", "it holds a parameter that libpq does not know. Did you mean 'sslmode'?"),
        ("Server=h;Database=x;Port=5432;User Id=u;Password=hidden-pass;Ssl Mode=Require;", "of .NET, ODBC or PDO"),
        ("pgsql:host=h;dbname=x;password=hidden-pass", "of .NET, ODBC or PDO"),
        ("host=a host=b", "it gives 'host' twice"),
        ("postgresql://a/x?host=b", "it gives 'host' twice"),
        ("postgresql://me@a/x?user=you", "it gives 'user' twice"),
        ("postgresql://a/x?sslmode=require&sslmode=disable", "it gives 'sslmode' twice"),
        ("host=a,b port=1,2,3", "'port' has neither one port nor one for each host"),
        ("postgresql://h/x?sslmode=no-verify", "'sslmode' is not one of disable, allow"),
        ("postgresql://h/x?sslmode=verify-ful", "Did you mean 'verify-full'?"),
        ("postgresql://h/x?target_session_attrs=master", "'target_session_attrs' is not one of any, read-write"),
        ("postgresql://h/x?connect_timeout=10s", "'connect_timeout' is not a number of seconds"),
        ("postgresql://h/x?gssencmode=require", "'gssencmode' cannot be kept: GSS encryption is not spoken"),
        ("postgresql://h/x?channel_binding=require&sslmode=disable", "'channel_binding' = require needs TLS"),
        ("postgresql://h/x?sslrootcert=system&sslmode=require", "'sslrootcert' = system needs 'sslmode'"),
        ("postgresql://h/x?sslnegotiation=direct", "'sslnegotiation' = direct needs 'sslmode'"),
        ("postgresql://h/x?require_auth=scram-sha-256", "'require_auth' cannot be kept"),
        ("postgresql:///x?host=/run&requirepeer=postgres", "'requirepeer' cannot be kept"),
        ("postgresql://h/x?schema=a&search_path=b", "it gives 'search_path' twice"),
        ("postgresql://h/x?ssl=true&sslmode=prefer", "it gives 'sslmode' twice"),
        ("postgresql://h/x?pgbouncer=yes", "'pgbouncer' is not one of true, false"),
        ("postgresql://h/x?ssl=no-verify", "'ssl' cannot be kept: write sslmode=require"),
        ("postgresql://h/x?sslaccept=strict", "'sslaccept' cannot be kept: write sslmode=verify-full"),
        ("postgresql://h/x?sslcrldir=/x", "'sslcrldir' cannot be kept"),
        ("host=h hostaddr=10.0.0.7 sslmode=verify-full", "'hostaddr' cannot be kept with 'sslmode' = verify-full"),
        ("host=@sock", "abstract sockets"),
        ("service=nowhere", "there is no service of this name"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name_and_not_shown(text: str, shown: str) -> None:
    table = LookupTable("people", SCHEMA, options={"url": text})
    with pytest.raises(OptionError) as raised:
        PostgresConnector(table).check()
    said = str(raised.value)
    assert shown.lower() in said.lower()
    assert said.startswith("table people: option 'url': ")
    assert "hidden" not in said
    assert "pass@" not in said
    error = failure_of(lambda: ask(table, {"id": [1]}))
    assert error.permanent
    assert shown.lower() in str(error).lower()
    assert "hidden" not in str(error)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg2", "postgresql+asyncpg", "postgres+psycopg"])
def test_a_url_of_sqlalchemy_is_read(scheme: str) -> None:
    assert target(f"{scheme}://u:p@h:6432/x") == target("postgresql://u:p@h:6432/x")


def test_a_service_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "services"
    file.write_text(
        "[crm]\nhost=a,b\nport=1,2\ndbname=crm\nsslmode=require\nkeepalives=0\n", encoding="utf-8"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    found = target("postgresql:///other?service=crm")
    assert (found.hosts, found.database) == ((("a", 1), ("b", 2)), "other")
    assert (dict(found.driver), found.without_effect) == ({"sslmode": "require"}, ("keepalives",))
    with pytest.raises(NotUnderstood, match="there is no service"):
        target("service=cmr")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"host": "a,b", "port": "1,2,3"}, "'port' has neither one port nor one for each host"),
        ({"host": "a:5432"}, "Write the port in 'port', as in '5432' or '5432,5433'."),
        (
            {"url": "postgresql://h/x?sslmode=require", "sslmode": "disable"},
            "the option 'sslmode' says something else",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(options: dict[str, str], shown: str) -> None:
    with pytest.raises(OptionError) as raised:
        PostgresConnector(LookupTable("people", SCHEMA, options=options)).check()
    assert shown in str(raised.value)


# --- a real server --------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def _people(postgres_server: PostgresServer) -> None:
    postgres_server.execute("""
        CREATE SCHEMA url_tests;
        CREATE TABLE url_tests.url_people AS SELECT 1::bigint AS id, 'Ada' AS name;
        CREATE VIEW url_tests.sessions AS SELECT 1::bigint AS id, concat_ws(' ',
            current_setting('application_name'), current_setting('search_path'),
            current_setting('default_transaction_read_only'),
            current_setting('transaction_read_only'), current_setting('work_mem')) AS name;
        CREATE VIEW url_tests.prepared AS SELECT 1::bigint AS id,
            (SELECT count(*) FROM pg_prepared_statements WHERE statement NOT LIKE '%pg_type%')::text AS name
    """)


def name_of(url: str, table: str = "url_tests.url_people", **options: str) -> Any:
    given = {"url": url, "table-name": table, **options}
    [row] = ask(LookupTable("people", SCHEMA, ("id",), given), {"id": [1]})
    return row["name"]


def test_what_only_tunes_is_named_in_one_warning(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres_server.url(sslmode="disable", gssencmode="disable", keepalives="1", connect_timeout="7",
                              tcp_user_timeout="8", load_balance_hosts="random", channel_binding="prefer",
                              fallback_application_name="fb", datestyle="German")  # fmt: skip
    table = LookupTable("tuned", SCHEMA, ("id",), {"url": url, "table-name": "url_tests.url_people"})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert ask(table, {"id": [1]}) == [{"id": 1, "name": "Ada"}]
    assert [each.getMessage() for each in caplog.records if "tuned" in each.getMessage()] == [
        "table tuned: without effect in 'url': keepalives, tcp_user_timeout, datestyle"
    ]


def test_a_session_begins_as_the_url_says_and_stays_read_only(postgres_server: PostgresServer) -> None:
    url = postgres_server.url(sslmode="disable", application_name="mine")
    options = quote("-c search_path=url_tests -c work_mem=5MB -c default_transaction_read_only=off")
    assert name_of(f"{url}&options={options}", "sessions") == "mine url_tests on on 5MB"
    assert name_of(f"{url}&search_path=url_tests", "sessions").startswith("mine url_tests on on")


@pytest.mark.parametrize("wanted", ["read-write", "primary", "any", "prefer-standby"])
def test_a_primary_is_found_by_what_it_must_be(postgres_server: PostgresServer, wanted: str) -> None:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{postgres_server.port}"
    url = postgres_server.url(sslmode="disable", target_session_attrs=wanted)
    url = url.replace(f"127.0.0.1:{postgres_server.port}", hosts)
    assert name_of(url, "url_tests.sessions").split()[-2] == "on", "no transaction can write"


@pytest.mark.parametrize("wanted", ["read-only", "standby"])
def test_a_primary_is_no_standby_because_our_sessions_are_read_only(
    postgres_server: PostgresServer, wanted: str
) -> None:
    url = postgres_server.url(sslmode="disable", target_session_attrs=wanted)
    assert "target" in str(failure_of(lambda: name_of(url)))


def test_hosts_and_ports_may_be_lists_beside_each_other(postgres_server: PostgresServer) -> None:
    options = {
        "host": "127.0.0.1,127.0.0.1",
        "port": f"{free_port()},{postgres_server.port}",
        "user": "postgres",
        "password": PASSWORD,
        "database": "postgres",
        "sslmode": "disable",
        "table-name": "url_tests.url_people",
    }
    table = LookupTable("people", SCHEMA, ("id",), options)
    PostgresConnector(table).check()
    assert ask(table, {"id": [1]}) == [{"id": 1, "name": "Ada"}]


def test_keys_and_values_are_a_connection_string(postgres_server: PostgresServer) -> None:
    text = f"host=127.0.0.1 port={postgres_server.port} user=postgres dbname=postgres sslmode=disable"
    assert name_of(f"{text} password='{PASSWORD}'") == "Ada"


def test_a_pooler_that_the_url_tells_of_gets_no_prepared_statements(postgres_server: PostgresServer) -> None:
    async def count_after_two(connector: PostgresConnector) -> int:
        for _ in range(2):
            answer = await connector.alookup(request_for(SCHEMA, {"id": [1]}))
        return int(rows_of(answer).column("name")[0].as_py())

    url = postgres_server.url(sslmode="disable", pgbouncer="true")
    options = {"url": url, "table-name": "url_tests.prepared", "pool-size": "1"}
    assert during(PostgresConnector(LookupTable("p", SCHEMA, ("id",), options)), count_after_two) == 0


@pytest.mark.parametrize("name", ["schema", "currentSchema", "search_path"])
def test_a_table_is_looked_for_where_the_url_says(postgres_server: PostgresServer, name: str) -> None:
    postgres_server.execute(
        """CREATE TABLE IF NOT EXISTS public.url_people AS SELECT 1::bigint AS id, 'no' AS name"""
    )
    url = f"{postgres_server.url(sslmode='disable')}&{name}=url_tests"
    assert name_of(url, "url_people") == "Ada"
    assert name_of(url, "public.url_people") == "no"


@pytest.mark.parametrize(
    ("passes_over", "shown"), [(True, "does not pass on 'search_path'"), (False, "search_path")]
)
def test_a_pooler_between_hides_no_table_of_another_schema(
    postgres_server: PostgresServer, passes_over: bool, shown: str
) -> None:
    with strict_pooler(postgres_server.port, passes_over=passes_over) as port:
        url = postgres_server.url(port=port, schema="url_tests")
        error = failure_of(lambda: name_of(url, "url_people"))
    assert shown in str(error)
    assert "Write 'table-name' = 'schema.table' in its place." in str(error)


def test_a_parameter_that_nobody_knows_is_named_with_the_nearest_one(postgres_server: PostgresServer) -> None:
    error = failure_of(lambda: name_of(postgres_server.url(sslmode="disable", conect_timeout="3")))
    assert error.permanent
    assert 'unrecognized configuration parameter "conect_timeout"' in str(error)
    assert "It is a parameter of 'url', and none of libpq. Did you mean 'connect_timeout'?" in str(error)


@pytest.mark.parametrize("parameters", ["sslmode=require&channel_binding=require", "sslrootcert=system"])
def test_the_authorities_of_the_system_are_trusted(
    postgres_server: PostgresServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    parameters: str,
) -> None:
    with tls_front(postgres_server.port, certificates) as port:
        url = f"{postgres_server.url(host='localhost', port=port)}?{parameters}"
        error = failure_of(lambda: name_of(url))
        assert error.permanent
        assert "the server's certificate is not trusted" in str(error)
        assert ("channel_binding" in str(error)) == ("channel_binding" in parameters)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
        assert name_of(url) == "Ada"
        bare = postgres_server.url(host="localhost", port=port)
        assert name_of(bare, sslrootcert="system") == "Ada"
        listed = f"{bare}?sslrootcert=system&sslcrl="
        assert name_of(f"{listed}{certificates.no_revocations}") == "Ada"
        assert "revoked" in str(failure_of(lambda: name_of(f"{listed}{certificates.server_revoked}")))


def test_a_missing_root_certificate_says_what_to_give(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    error = failure_of(lambda: name_of(postgres_server.url(sslmode="verify-full")))
    assert error.permanent
    assert "Give the file as 'sslrootcert', or 'sslrootcert' = 'system'." in str(error)
