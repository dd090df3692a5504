"""A minute of lookups while each login ends after five seconds."""

from __future__ import annotations

from threading import Thread

from lookup_connectors.http import HttpConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector

from tests.servers.postgres import running_server
from tests.servers.redis import running_redis
from tests.servers.short_logins import http_table, look_up_for, postgres_table, redis_table

SECONDS = 60.0


def test_no_lookup_fails_in_a_minute() -> None:
    found: dict[str, tuple[int, list[Exception]]] = {}
    for postgres in running_server():
        with (
            running_redis() as redis,
            postgres_table(postgres) as (in_postgres, postgres_issuer),
            redis_table(redis) as (in_redis, redis_issuer),
            http_table() as (in_http, http_issuer),
        ):

            def disconnect() -> None:
                redis.run("CLIENT", "KILL", "USER", in_redis.options["username"])

            threads = [
                Thread(
                    target=lambda: found.update(postgres=look_up_for(SECONDS, PostgresConnector(in_postgres)))
                ),
                Thread(
                    target=lambda: found.update(
                        redis=look_up_for(SECONDS, RedisConnector(in_redis), disconnect)
                    )
                ),
                Thread(target=lambda: found.update(http=look_up_for(SECONDS, HttpConnector(in_http)))),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert {name: failures for name, (_, failures) in found.items()} == {
        "postgres": [],
        "redis": [],
        "http": [],
    }
    assert all(asked > 100 for asked, _ in found.values())
    assert all(len(issuer.given) >= 10 for issuer in (postgres_issuer, redis_issuer, http_issuer))
