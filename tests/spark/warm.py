"""Statements run again and again, in workers that are warm; and sources with hits, misses and failures.

A worker process outlives a statement, and so do the connectors that it has opened. What holds in a fresh worker
and not in a warm one shows at the second run only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from lookup_hints import LookupSession, register_retry_predicate
from lookup_hints.metrics.lookup_metrics import CountsByKey, Events, Latencies, LookupMetrics, MaxGauge
from tests.spark.own import FAILING, FOUND, nothing_found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = 3

Row = tuple[Any, ...]
Calls = Callable[[], Counter[Any]]


# --- runs -------------------------------------------------------------------------------------------


def thrice(session: LookupSession, query: str | Callable[[], DataFrame], calls: Calls = Counter) -> list[Row]:
    """The rows of ``query``, sorted as text; it is run three times, and must give and ask the same each time.

    Args:
        session: counts what is asked; it may ask in more or fewer requests, as time has it.
        query: a statement, or what makes its frame.
        calls: how often the source was asked for each thing so far, where the source itself tells.
    """
    runs = [_run(session, query, calls) for _ in range(RUNS)]
    assert runs == [runs[0]] * RUNS
    return runs[0][0]


def _run(
    session: LookupSession, query: str | Callable[[], DataFrame], calls: Calls
) -> tuple[list[Row], LookupMetrics, Counter[Any]]:
    counted, called = _counted(session), calls()
    frame = session.sql(query) if isinstance(query, str) else query()
    rows = sorted(map(tuple, frame.collect()), key=repr)
    return rows, replace(_counted(session) - counted, **_BY_TIME), calls() - called


_BY_TIME: dict[str, Any] = {
    "requests": 0,
    "buffer_full": 0,
    "seconds": 0.0,
    "bytes_out": 0,
    "bytes_in": 0,
    "waited": CountsByKey(),
    "events": Events(),
    "latency": Latencies(),
    "most_in_flight": MaxGauge(0),
    "limit": MaxGauge(0),
}
"""What a slow machine may change, and events: equal ones of two runs are one."""


def _counted(session: LookupSession) -> LookupMetrics:
    return sum(session.metrics().values(), LookupMetrics())


@contextmanager
def small_session(spark: SparkSession, workers: str) -> Iterator[LookupSession]:
    """A session for statements over a few rows, with worker processes of its own.

    Spark gives a task any worker that is idle, and other tests leave many: a lookup would hardly come into the
    same one again. It keeps those of each environment apart, so that here there are no more than tasks at once
    need: one for each lookup of a chain. ``workers`` names the environment.
    """
    with patch.dict(spark.sparkContext.environment, LOOKUP_HINTS_TESTS=workers):
        session = LookupSession(spark.newSession())
        # One task for a few rows, and none of the code that is generated to be fast over many.
        session.spark.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
        session.spark.conf.set("spark.sql.shuffle.partitions", "1")
        session.spark.conf.set("spark.sql.codegen.wholeStage", "false")
        register_retry_predicate("nothing_found", nothing_found)
        yield session


# --- sources: those in FOUND are there, 7 fails, all others are missing ---------------------------------


@dataclass(frozen=True)
class Source:
    """A table of that content.

    Args:
        options: what stands in its ``WITH``.
        tells: further options, with which it tells how lookups ended in columns of that name.
        fails: whether 7 fails, and nothing with it.
        heals: whether it has what is different when it is asked again: see ``own``.
    """

    options: dict[str, str]
    tells: dict[str, str] | None = None
    fails: bool = True
    heals: bool = False

    def create(self, session: LookupSession, name: str, *, tells: bool = False) -> None:
        """Create it as ``name``, with columns that tell outcomes where it should tell."""
        columns = "id BIGINT, name STRING" + (", outcome STRING, error STRING" if tells else "")
        given = {**self.options, **((tells and self.tells) or {})}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        session.sql(f"CREATE OR REPLACE TEMPORARY TABLE {name} ({columns}) WITH ({listed})")


OWN = ("OwnSync", "OwnAsync", "OwnSyncRow", "OwnAsyncRow")
TELLING = ("http", *OWN)
"""They can tell in rows how a lookup ended."""
FAILING_ALONE = ("sqlite", "redis", "postgres", *TELLING)
"""With them 7 fails, and nothing with it."""
SOURCES = ("memory", "http of many keys", *FAILING_ALONE)


@contextmanager
def running_sources(folder: Path) -> Iterator[dict[str, Source]]:
    """All sources by their names; what they write lies in ``folder``."""
    with ExitStack() as stack:
        yield {
            "memory": _memory(),
            "sqlite": _sqlite(folder / "warm.db"),
            **stack.enter_context(_http()),
            "redis": stack.enter_context(_redis()),
            "postgres": stack.enter_context(_postgres()),
            **{name: own(name, folder / f"{name}.log") for name in OWN},
        }


def own(name: str, log: Path) -> Source:
    """One of the connectors of ``tests.spark.own``, which tells its use in ``log``."""
    options = {"connector": f"tests.spark.own:{name}", "log": str(log)}
    return Source(options, tells={"tells": "true"}, heals=True)


def _memory() -> Source:
    rows = ", ".join(f'[{key}, "{name}"]' for key, name in FOUND.items())
    return Source({"connector": "memory", "rows": f"[{rows}]"}, fails=False)


def _sqlite(file: Path) -> Source:
    """7 has bytes for a name."""
    import sqlite3

    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [*FOUND.items(), (FAILING, b"\xff")])
    return Source({"connector": "sqlite", "path": str(file), "table-name": "people"})


@contextmanager
def _http() -> Iterator[dict[str, Source]]:
    """One key or many in a request; 7 alone is a server error."""
    from tests.servers.http_server import running_api

    with running_api() as api:
        api.script(f"/people/{FAILING}", {"status": 500, "repeat": True})
        one = {"connector": "http", "url": f"{api.url}/people/{{id}}"}
        many = {"url": f"{api.url}/people?ids={{id}}", "rows": "data", "keys-per-request": "16"}
        tells = {"outcome-rows": "true", "path.outcome": "$outcome", "path.error": "$error"}
        yield {
            "http": Source(one, tells),
            "http of many keys": Source({**one, **many}, fails=False),
        }


@contextmanager
def _redis() -> Iterator[Source]:
    """7 is not a hash."""
    from tests.servers.redis import running_redis

    with running_redis() as server:
        for key, name in FOUND.items():
            server.run("HSET", f"person:{key}", "name", name)
        server.run("RPUSH", f"person:{FAILING}", "a list")
        yield Source({"connector": "redis", "url": server.url, "key": "person:{id}"})


@contextmanager
def _postgres() -> Iterator[Source]:
    """The name of 7 cannot be computed."""
    from tests.servers.postgres import running_server

    names = ", ".join(f"({key}, '{name}')" for key, name in FOUND.items())
    with contextmanager(running_server)() as server:
        server.execute(f"""
            CREATE TABLE stored (id bigint PRIMARY KEY, name text);
            INSERT INTO stored VALUES {names}, ({FAILING}, 'no number');
            CREATE VIEW people AS
              SELECT id, CASE id WHEN {FAILING} THEN name::int::text ELSE name END AS name FROM stored
        """)
        yield Source({"connector": "postgres", "url": server.url(), "table-name": "people"})
