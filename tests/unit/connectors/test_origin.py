"""What the budgets of a source belong to: tables of one server and user share an origin, and it has no secret."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.memory import MemoryConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from lookup_connectors.sqlite import SqliteConnector

from lookup_hints.spi import Connector, LookupTable

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOOKUP_TEST_DSN", f"postgresql://crm:{SECRET}@db/crm")
    monkeypatch.setenv("LOOKUP_TEST_API", "https://api.example.com")


def origin(kind: type[Connector], **options: str) -> str:
    given = {name.replace("_", "-"): text for name, text in options.items()}
    return kind(LookupTable("t", pa.schema([("id", pa.int64())]), options=given)).origin()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "https://API.example.com/people/{id}?a=b@c"}, "https://api.example.com:443"),
        ({"url": "http://[::1]:81/{id}"}, "http://[::1]:81"),
        ({"url": "${env:LOOKUP_TEST_API}/people/{id}"}, "https://api.example.com:443"),
        ({"url": "${env:LOOKUP_NO_SUCH_NAME}/people/{id}"}, ""),
        (
            {"url": "https://a/{id}", "username": "crm", "password": SECRET},
            "https://a:443 user crm",
        ),
        (
            {"url": "https://a/{id}", "oauth2_client_id": "job", "oauth2_client_secret": SECRET},
            "https://a:443 user job",
        ),
        ({"url": "https://a/{id}", "api_key": SECRET, "token": SECRET}, "https://a:443"),
        ({"url": f"https://a/{{id}}?token={SECRET}"}, "https://a:443"),
    ],
)
def test_that_of_an_api_is_scheme_host_port_and_user(options: dict[str, str], expected: str) -> None:
    assert origin(HttpConnector, **options) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": f"postgresql://crm:{SECRET}@DB/x"}, "db:5432 user crm"),
        ({"url": f"postgresql://c%40m:{SECRET}@db:5433/x?sslmode=require"}, "db:5433 user c@m"),
        ({"url": f"postgresql://two:1,one:2/x?user=crm&password={SECRET}"}, "one:2,two:1 user crm"),
        ({"url": "postgresql://crm@[::1]:5433/x"}, "[::1]:5433 user crm"),
        ({"url": "postgresql:///x?host=one,two&port=7"}, "one:7,two:7"),
        ({"url": "postgresql:///x"}, "localhost:5432"),
        ({"host": "db", "user": "crm", "password": SECRET}, "db:5432 user crm"),
        ({"host": "db", "port": "7"}, "db:7"),
        ({"url": "${env:LOOKUP_TEST_DSN}"}, "db:5432 user crm"),
        ({"url": "${env:LOOKUP_NO_SUCH_NAME}"}, ""),
        ({"host": "db", "port": "${env:LOOKUP_TEST_API}"}, ""),
        ({"url": "postgresql://me:12/34@db"}, ""),
        ({"url": "postgresql://me:12?34@db"}, ""),
        ({"url": f"postgresql://me:{SECRET}/x@db:5432/x"}, ""),
    ],
)
def test_that_of_postgresql_is_hosts_ports_and_user(options: dict[str, str], expected: str) -> None:
    assert origin(PostgresConnector, **options) == expected


def test_postgresql_has_its_user_and_host_from_the_environment_as_the_driver_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGUSER", "me")
    monkeypatch.setenv("PGHOST", "there")
    assert origin(PostgresConnector, url="postgresql:///x") == "there:5432 user me"
    assert origin(PostgresConnector, url="postgresql://crm@db/x") == "db:5432 user crm"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": f"redis://crm:{SECRET}@Cache/0"}, "cache:6379 user crm"),
        ({"url": f"rediss://:{SECRET}@cache:7/0"}, "cache:7"),
        ({"url": "redis://[::1]:7"}, "[::1]:7"),
        ({"host": "cache", "username": "crm", "password": SECRET}, "cache:6379 user crm"),
        ({"host": "cache", "port": "7", "password": "${env:LOOKUP_NO_SUCH_NAME}"}, "cache:7"),
        ({"url": "${env:LOOKUP_NO_SUCH_NAME}"}, ""),
        ({"url": "redis://me:12/34@cache"}, ""),
        ({"url": f"unix://{SECRET}"}, ""),
    ],
)
def test_that_of_redis_is_host_port_and_user(options: dict[str, str], expected: str) -> None:
    assert origin(RedisConnector, key="k:{id}", **options) == expected


def test_what_is_asked_without_a_server_has_none() -> None:
    assert origin(MemoryConnector, rows="[]") == ""
    assert origin(SqliteConnector, path="/data/x.db") == ""


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (PostgresConnector, {"url": f"postgresql://crm:{SECRET}@DB/x"}, ("postgres://db:5432", "x.public.t")),
        (
            PostgresConnector,
            {"host": "db", "user": "crm", "password": SECRET, "table_name": "sales.people"},
            ("postgres://db:5432", "crm.sales.people"),
        ),
        (
            HttpConnector,
            {"url": f"https://me:{SECRET}@api.example.com/people/{{id}}?token={SECRET}"},
            ("https://api.example.com:443", "/people/{id}"),
        ),
        (RedisConnector, {"url": f"redis://:{SECRET}@cache"}, ("redis://cache:6379", "t")),
        (
            SqliteConnector,
            {"path": "/data/crm.db", "table_name": "people"},
            ("sqlite:///data/crm.db", "people"),
        ),
        (MemoryConnector, {}, ("memory", "t")),
    ],
)
def test_a_data_set_is_named_as_openlineage_does_and_without_secrets(
    kind: type[Connector], options: dict[str, str], expected: tuple[str, str]
) -> None:
    given = {name.replace("_", "-"): text for name, text in options.items()}
    given["connector"] = kind.__name__.removesuffix("Connector").lower()
    table = LookupTable("t", pa.schema([("id", pa.int64())]), options=given)
    assert kind(table).dataset() == expected
