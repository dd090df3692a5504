"""Every n-th call to a socket fails, or a thread cannot start: rows or the cause, and no session of a server stays.

``tests/nth_call.py`` says what fails, and how. With ``EXAMPLES=1000`` in the environment each call fails once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.mysql import MysqlConnector
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector

from lookup_hints.errors import LookupHintsError
from lookup_hints.lookup_spec import LookupSettings, LookupSpec, PartialCache
from lookup_hints.process.open_connectors import LoopThread
from lookup_hints.spi import AsyncLookup, SyncLookup
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.kinds import EXAMPLES
from tests.nth_call import LATER, PROCESSES, SOCKETS, SYSTEM, Survivor, names_cause, survive, worker_in
from tests.servers.connectors.http_asking import use_way
from tests.servers.http_server import Api
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.unit.engine.support import plain

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _table(connector: str, **options: str) -> LookupTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return LookupTable("people", SCHEMA, options={"connector": connector} | given, primary_key=("id",))


@pytest.fixture(scope="module")
def loop() -> LoopThread:
    """The event loop of all workers here: that of a worker ends with its process."""
    return LoopThread()


def _tasks(connector: AsyncLookup | SyncLookup, loop: LoopThread, **settings: Any) -> Callable[[Path], Any]:
    """Two tasks of one worker, the second over connections that the first has left open; then another worker's."""
    is_async = isinstance(connector, AsyncLookup)
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(is_async, timeout=5.0, **settings))

    def run(folder: Path) -> Any:
        found = []
        for tasks in ([1, 2, 3], [3, 700]), ([3, 700],):
            with worker_in(folder, loop):
                found += [_names(spec, ids) for ids in tasks]
        return found

    return run


def _names(spec: LookupSpec, ids: Sequence[int]) -> list[Any]:
    found = plain(look_up(spec, "x", iter([(pa.array(ids, pa.int64()),)]), None))
    return [sorted(name for (name,) in rows or ()) for rows in found]


_LOST = (
    "MySQL server has gone away",
    "Bad file descriptor",
    "connection was lost",
    "connection attempts failed",
)
"""How drivers say it where they keep the cause to themselves."""


def _says_what_broke(error: BaseException) -> bool:
    return names_cause(error) or any(each in str(error) for each in _LOST)


def _path(run: Callable[[Path], Any], elsewhere: Callable[[], Counter[str]]) -> Survivor:
    return Survivor(
        run,
        targets=(*SOCKETS, *PROCESSES),
        errors=LookupHintsError,
        says=_says_what_broke,
        elsewhere=elsewhere,
        excused="leaves threads asyncio",  # of the loop, which finds addresses on them
        of_all=True,
        most_of_a_place=100,
    )


def test_postgres(postgres_server: PostgresServer, loop: LoopThread, tmp_path: Path) -> None:
    postgres_server.execute(
        "DROP TABLE IF EXISTS people; CREATE TABLE people (id bigint PRIMARY KEY, name text);"
        "INSERT INTO people SELECT n, 'n' || n FROM generate_series(0, 9) n"
    )
    url = postgres_server.url(host="localhost", sslmode="disable", application_name="nth")
    connector = PostgresConnector(_table("postgres", url=url, table_name="people"))

    def sessions() -> Counter[str]:
        rows = postgres_server.fetch(
            "SELECT state FROM pg_stat_activity WHERE usename = 'postgres' AND pid <> pg_backend_pid()"
        )
        return Counter("session" for _ in rows)

    survive(_path(_tasks(connector, loop), sessions), tmp_path, most=EXAMPLES).check()


def test_redis(redis_server: RedisServer, loop: LoopThread, tmp_path: Path) -> None:
    for each in range(10):
        redis_server.run("HSET", f"person:{each}", "name", f"n{each}")
    table = _table("redis", url=f"redis://localhost:{redis_server.port}/0", key="person:{id}")

    def sessions() -> Counter[str]:
        lines = redis_server.run("CLIENT", "LIST").decode().splitlines()
        return Counter("session" for each in lines if "cmd=client" not in each)

    survive(_path(_tasks(RedisConnector(table), loop), sessions), tmp_path, most=EXAMPLES).check()


def test_mysql(mariadb_server: MariaDbServer, loop: LoopThread, tmp_path: Path) -> None:
    mariadb_server.execute(
        "CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT);"
        "INSERT INTO people VALUES (1, 'n1'), (2, 'n2'), (3, 'n3')"
    )
    connector = MysqlConnector(_table("mysql", url=mariadb_server.url(host="localhost"), table_name="people"))

    def sessions() -> Counter[str]:
        rows = mariadb_server.fetch(
            "SELECT command FROM information_schema.processlist WHERE id <> connection_id()"
        )
        return Counter("session" for _ in rows)

    survive(_path(_tasks(connector, loop), sessions), tmp_path, most=EXAMPLES).check()


def test_answers_of_http_are_cached_on_disk(api: Api, loop: LoopThread, tmp_path: Path) -> None:
    connector = HttpConnector(_table("http", url=f"http://localhost:{api.port}/people/{{id}}"))
    cached = _tasks(connector, loop, cache=PartialCache(600.0, missing_ttl=30.0, max_bytes=2**26))
    path = replace(
        _path(cached, Counter),
        targets=SYSTEM,
        of_all=False,
        excused=rf"{LATER}|leaves threads asyncio|leaves opened .*\.origin$",
    )
    survive(path, tmp_path, most=EXAMPLES // 2).check()


@pytest.mark.parametrize("way", ["task", "httpx"])
def test_http(way: str, api: Api, loop: LoopThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_way(way, monkeypatch)
    table = _table("http", url=f"http://localhost:{api.port}/people/{{id}}")
    survive(_path(_tasks(HttpConnector(table), loop), Counter), tmp_path, most=EXAMPLES).check()
