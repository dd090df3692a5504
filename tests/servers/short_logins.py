"""Logins that end after seconds, on real servers, and lookups under them for a while."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from secrets import token_urlsafe
from types import ModuleType

import pyarrow as pa
from redis.exceptions import ResponseError

from lookup_hints.spi import AsyncLookup
from lookup_hints.spi.request_and_answer import LookupTable, Outcomes, PlacedRows
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.unit.connectors.asking import request_for

LIFE = 5.0
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYS = 20
TOKEN_USES = 10 * KEYS
"""More than the requests that are out at once, so that a new token is never used up by others first."""
_numbers = count()


class Issuer:
    """What gives logins: each is good for ``life`` seconds, or until the next one is given.

    Every second one is said to live longer than it does, as if a clock were wrong.
    """

    def __init__(self, grant: Callable[[str, float], None], life: float = LIFE) -> None:
        self.grant, self._life = grant, life
        self._at_work = threading.Lock()
        self.given: list[str] = []

    def __call__(self) -> tuple[str, float]:
        assert self._at_work.acquire(blocking=False), "one call at a time in a process"
        try:
            token = token_urlsafe()
            self.grant(token, self._life)
            self.given.append(token)
            return token, self._life * (1.6 if len(self.given) % 2 == 0 else 1.0)
        finally:
            self._at_work.release()


@contextmanager
def function_of(issuer: Callable[[], object]) -> Iterator[str]:
    """A reference to ``issuer``, as options write it."""
    name = f"short_logins_{next(_numbers)}"
    module = ModuleType(name)
    module.login = issuer  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        yield f"${{call:{name}:login}}"
    finally:
        del sys.modules[name]


@contextmanager
def postgres_table(server: PostgresServer, life: float = LIFE) -> Iterator[tuple[LookupTable, Issuer]]:
    """A table whose role has a password that ends; connections are closed as soon as they are idle."""
    role = f"short_{next(_numbers)}"
    server.execute(
        f"""CREATE TABLE IF NOT EXISTS short_people AS SELECT n::bigint AS id, 'name ' || n AS name
            FROM generate_series(0, {KEYS - 1}) AS n;
            CREATE ROLE {role} LOGIN; GRANT SELECT ON short_people TO {role}"""
    )

    def grant(token: str, seconds: float) -> None:
        until = f"SELECT format('ALTER ROLE {role} PASSWORD %L VALID UNTIL %L', $1::text, now() + $2)"
        server.execute(server.fetch(until, token, timedelta(seconds=seconds))[0][0])

    issuer = Issuer(grant, life)
    with function_of(issuer) as reference:
        options = {
            "connector": "postgres",
            "url": f"postgresql://{role}:{reference}@127.0.0.1:{server.port}/postgres?sslmode=disable",
            "table-name": "short_people",
            "idle-timeout": "100 ms",
        }
        yield LookupTable("people", SCHEMA, ("id",), options), issuer


@contextmanager
def mysql_table(server: MariaDbServer, life: float = LIFE) -> Iterator[tuple[LookupTable, Issuer]]:
    """The same for a user of MariaDB, whose passwords are replaced by one that nobody knows."""
    user = f"short_{next(_numbers)}"
    people = ", ".join(f"({key}, 'name {key}')" for key in range(KEYS))
    server.execute(
        f"CREATE OR REPLACE TABLE short_people (id BIGINT PRIMARY KEY, name TEXT);"
        f"INSERT INTO short_people VALUES {people}; CREATE USER {user}@'127.0.0.1'; GRANT SELECT ON short_people TO {user}@'127.0.0.1'"
    )

    def change(token: str) -> None:
        server.execute(f"ALTER USER {user}@'127.0.0.1' IDENTIFIED BY '{token}'")

    ends: list[threading.Timer] = []

    def grant(token: str, seconds: float) -> None:
        change(token)
        ends.append(threading.Timer(seconds, lambda: change(token_urlsafe())))
        ends[-1].start()

    issuer = Issuer(grant, life)
    with function_of(issuer) as reference:
        options = {"connector": "mysql", "url": f"mysql://{user}:{reference}@127.0.0.1:{server.port}/shop"}
        options |= {"table-name": "short_people", "idle-timeout": "100 ms"}
        try:
            yield LookupTable("people", SCHEMA, ("id",), options), issuer
        finally:
            for end in ends:
                end.cancel()
                end.join()


@contextmanager
def redis_table(server: RedisServer, life: float = LIFE) -> Iterator[tuple[LookupTable, Issuer]]:
    """The same for a user of Redis, whose passwords are taken away."""
    user = f"short_{next(_numbers)}"
    for key in range(KEYS):
        server.run("HSET", f"short:{key}", "name", f"name {key}")

    def grant(token: str, seconds: float) -> None:
        server.run("ACL", "SETUSER", user, "on", "resetpass", f">{token}", "~*", "+@read", "+@connection")
        ends.append(threading.Timer(seconds, lambda: take_away(token)))
        ends[-1].start()

    def take_away(token: str) -> None:
        with suppress(ResponseError):  # it was taken away with all others, as the next one was given
            server.run("ACL", "SETUSER", user, f"<{token}")

    ends: list[threading.Timer] = []
    issuer = Issuer(grant, life)
    with function_of(issuer) as reference:
        options = {"connector": "redis", "host": "127.0.0.1", "port": str(server.port), "username": user}
        options |= {"password": reference, "key": "short:{id}"}
        try:
            yield LookupTable("people", SCHEMA, ("id",), options), issuer
        finally:
            for end in ends:
                end.cancel()
                end.join()


@contextmanager
def http_table(life: float = LIFE) -> Iterator[tuple[LookupTable, Issuer]]:
    """The same for an API whose tokens end, each after ``TOKEN_USES`` requests: a slow machine changes nothing."""
    left: dict[str, int] = {}
    counting = threading.Lock()

    def use(token: str) -> bool:
        with counting:
            left[token] = left.get(token, 0) - 1
            return left[token] >= 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            is_good = use(token)
            key = self.path.rpartition("/")[2]
            body = f'{{"id": {key}, "name": "name {key}"}}' if is_good else '{"error": "token expired"}'
            self.send_response(200 if is_good else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # all keys of four requests connect at once

    def grant(token: str, _: float) -> None:
        left[token] = TOKEN_USES

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    issuer = Issuer(grant, life)
    try:
        with function_of(issuer) as reference:
            url = f"http://127.0.0.1:{server.server_port}/people/{{id}}"
            options = {"connector": "http", "url": url, "token": reference}
            yield LookupTable("people", SCHEMA, ("id",), options), issuer
    finally:
        server.shutdown()
        server.server_close()


def look_up_for(
    seconds: float,
    connector: AsyncLookup,
    between: Callable[[], object] = lambda: None,
    at_least: int = 12,
    is_enough: Callable[[], bool] = lambda: True,
) -> list[Exception]:
    """What failed of lookups that are made for so many seconds, four at once, and of ``at_least`` that many.

    Until ``is_enough``, they go on for four times as long: on a busy machine, less happens in a second.
    """
    request = request_for(SCHEMA, {"id": list(range(KEYS))})
    expected = [{"id": key, "name": f"name {key}"} for key in range(KEYS)]
    failures: list[Exception] = []

    async def ask() -> None:
        try:
            answer = await connector.alookup(request)
        except Exception as error:
            failures.append(error)
            return
        if isinstance(answer, Outcomes) and answer.failures:
            failures.extend(answer.failures.values())
            return
        rows = answer.rows if isinstance(answer, Outcomes | PlacedRows) else answer
        assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == expected

    async def run() -> None:
        asked, end = 0, time.monotonic() + seconds
        await connector.aopen()
        try:
            while (
                asked < at_least
                or time.monotonic() < end
                or (not is_enough() and time.monotonic() < end + 3 * seconds)
            ):
                await asyncio.gather(*(ask() for _ in range(4)))
                asked += 4
                await asyncio.sleep(0.2)  # connections end meanwhile
                between()
        finally:
            await connector.aclose()

    asyncio.run(run())
    return failures
