"""A minute of lookups while each login ends after five seconds; half of one in CI."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread

from lookup_connectors.http import HttpConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector

from lookup_hints.spi import AsyncLookup
from tests.servers.postgres import running_server
from tests.servers.redis import running_redis
from tests.servers.short_logins import Issuer, http_table, look_up_for, postgres_table, redis_table

SECONDS = 30.0 if os.environ.get("CI") else 60.0


def has_renewed(issuer: Issuer) -> bool:
    """Whether it has given as many logins as that time needs."""
    return len(issuer.given) >= SECONDS / 6


def test_no_lookup_fails_while_logins_end() -> None:
    failures: dict[str, list[Exception]] = {}
    for postgres in running_server():
        with (
            running_redis() as redis,
            postgres_table(postgres) as (in_postgres, postgres_issuer),
            redis_table(redis) as (in_redis, redis_issuer),
            http_table() as (in_http, http_issuer),
        ):

            def look_up(
                connector: AsyncLookup, issuer: Issuer, between: Callable[[], object] = lambda: None
            ) -> None:
                failures[type(connector).__name__] = look_up_for(
                    SECONDS, connector, between, at_least=100, is_enough=lambda: has_renewed(issuer)
                )

            def disconnect() -> None:
                redis.run("CLIENT", "KILL", "USER", in_redis.options["username"])

            threads = [
                Thread(target=look_up, args=(PostgresConnector(in_postgres), postgres_issuer)),
                Thread(target=look_up, args=(RedisConnector(in_redis), redis_issuer, disconnect)),
                Thread(target=look_up, args=(HttpConnector(in_http), http_issuer)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert failures == {"PostgresConnector": [], "RedisConnector": [], "HttpConnector": []}
    assert all(map(has_renewed, (postgres_issuer, redis_issuer, http_issuer)))
