"""Logins that functions give and that end after seconds: lookups go on, and nothing shows them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import unquote, urlsplit

import pytest
from lookup_connectors.adbc import AdbcConnector
from lookup_connectors.http import HttpConnector
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import known_secrets
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.short_logins import (
    SCHEMA,
    Issuer,
    function_of,
    http_table,
    look_up_for,
    mysql_table,
    postgres_table,
    redis_table,
)
from tests.unit.connectors.asking import ask, failure_of, request_for

SECONDS = 7.0
"""More than one life of a login; tests/processes does it for a minute."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def logins(server: PostgresServer) -> int:
    return int(server.fetch("SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'")[0][0])


def test_postgres_goes_on_while_passwords_end(postgres_server: PostgresServer, stack: ExitStack) -> None:
    table, issuer = stack.enter_context(postgres_table(postgres_server))
    before = logins(postgres_server)
    assert not look_up_for(SECONDS, PostgresConnector(table))
    assert len(issuer.given) >= 2
    assert logins(postgres_server) - before > 10, "connections were made all the time"


def test_mysql_goes_on_while_passwords_end(mariadb_server: MariaDbServer, stack: ExitStack) -> None:
    table, issuer = stack.enter_context(mysql_table(mariadb_server))
    assert not look_up_for(SECONDS, MysqlConnector(table))
    assert len(issuer.given) >= 2


def test_adbc_asks_for_a_new_password_when_the_old_one_is_refused(
    postgres_server: PostgresServer, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    of_postgres, issuer = stack.enter_context(postgres_table(postgres_server, life=3600))
    login = urlsplit(of_postgres.options["url"])
    assert login.username
    options = {"connector": "adbc", "driver": "adbc_driver_postgresql", "table-name": "short_people"}
    options |= {"username": login.username, "password": unquote(login.password or "")}
    options |= {"uri": f"postgresql://127.0.0.1:{postgres_server.port}/postgres?sslmode=disable"}
    table = LookupTable("people", SCHEMA, ("id",), options)
    AdbcConnector(table).check()
    for given in (1, 2):
        assert not look_up_for(0, AdbcConnector(table))
        assert len(issuer.given) == given
        postgres_server.execute(f"ALTER ROLE {login.username} PASSWORD 'an0ther'")
    stack.enter_context(caplog.at_level(logging.DEBUG))
    issuer.grant = lambda token, seconds: None
    error = failure_of(lambda: look_up_for(0, AdbcConnector(table)))
    assert "password authentication failed" in str(error)
    assert len(issuer.given) == 3
    assert set(issuer.given) <= known_secrets(AdbcConnector(table))
    assert not [token for token in issuer.given if token in f"{error!r} {caplog.text} {table!r}"]


def test_redis_goes_on_while_passwords_end(redis_server: RedisServer, stack: ExitStack) -> None:
    table, issuer = stack.enter_context(redis_table(redis_server))

    def disconnect() -> None:
        redis_server.run("CLIENT", "KILL", "USER", table.options["username"])

    assert not look_up_for(SECONDS, RedisConnector(table), disconnect)
    assert len(issuer.given) >= 2


def test_http_goes_on_while_tokens_end(stack: ExitStack) -> None:
    table, issuer = stack.enter_context(http_table())
    assert not look_up_for(SECONDS, HttpConnector(table))
    assert len(issuer.given) >= 2


def test_redis_logs_in_with_the_sync_client_too(redis_server: RedisServer, stack: ExitStack) -> None:
    table, issuer = stack.enter_context(redis_table(redis_server))
    connector = RedisConnector(table)
    connector.open()
    try:
        redis_server.run("ACL", "SETUSER", table.options["username"], "resetpass")
        redis_server.run("CLIENT", "KILL", "USER", table.options["username"])
        connector.lookup(request_for(SCHEMA, {"id": [1]}))
    finally:
        connector.close()
    assert len(issuer.given) == 2, "the refused one was replaced once"


def test_a_login_that_is_always_refused_is_asked_for_once_more_and_not_shown(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(lambda token, seconds: None)
    with function_of(issuer) as reference:
        url = f"postgresql://postgres:{reference}@127.0.0.1:{postgres_server.port}/postgres?sslmode=disable"
        table = LookupTable("people", SCHEMA, options={"connector": "postgres", "url": url})
        with caplog.at_level(logging.DEBUG):
            error = failure_of(lambda: ask(table, {"id": [1]}))
        assert error.permanent
        assert "password authentication failed" in str(error)
        assert len(issuer.given) == 2
        known = known_secrets(PostgresConnector(table))
        assert set(issuer.given) <= known
        assert not [token for token in issuer.given if token in f"{error!r} {caplog.text} {table!r}"]


def test_what_a_function_raises_may_pass(postgres_server: PostgresServer) -> None:
    def away() -> str:
        raise OSError("the vault is sealed")

    with function_of(away) as reference:
        url = f"postgresql://postgres:{reference}@127.0.0.1:{postgres_server.port}/postgres?sslmode=disable"
        table = LookupTable("people", SCHEMA, options={"connector": "postgres", "url": url})
        error = failure_of(lambda: ask(table, {"id": [1]}))
    assert isinstance(error, ConnectorError)
    assert not error.permanent
    assert "raised OSError: the vault is sealed" in str(error)


def test_the_whole_url_may_come_from_a_function(postgres_server: PostgresServer) -> None:
    postgres_server.execute("CREATE TABLE whole_url AS SELECT 1::bigint AS id, 'one' AS name")
    with function_of(lambda: postgres_server.url(sslmode="disable")) as reference:
        options = {"connector": "postgres", "url": reference, "table-name": "whole_url"}
        table = LookupTable("people", SCHEMA, options=options)
        PostgresConnector(table).check()
        assert ask(table, {"id": [1]}) == [{"id": 1, "name": "one"}]
