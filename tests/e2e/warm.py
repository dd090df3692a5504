"""Statements run again and again, in workers that are warm; and sources with hits, misses and failures.

A worker process outlives a statement, and so do the connectors that it has opened. What holds in a fresh worker
and not in a warm one shows at the second run only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lookup_hints import LookupSession

RUNS = 3

Row = tuple[Any, ...]


def thrice(session: LookupSession, query: str) -> list[Row]:
    """The rows of ``query``, sorted as text; it is run three times, and must give the same each time."""
    runs = [sorted(map(tuple, session.sql(query).collect()), key=repr) for _ in range(RUNS)]
    assert runs == [runs[0]] * RUNS
    return runs[0]


# --- sources: 1, 2 and 3 are there, 7 fails, all others are missing -----------------------------------

FOUND = {1: "n1", 2: "n2", 3: "n3"}
MISSING = (5000, 5001)
FAILING = 7
COLUMNS = "id BIGINT, name STRING"


@dataclass(frozen=True)
class Source:
    """A table of that content.

    Args:
        options: what stands in its ``WITH``.
        runners: whether it is asked async, sync, or either.
        tells: further columns that say how a lookup ended, with ``outcome-rows`` where that is an option.
    """

    options: dict[str, str]
    runners: Sequence[str] = ("true", "false")
    tells: dict[str, str] = field(default_factory=dict)

    def create(self, session: LookupSession, name: str, **more: str) -> None:
        """Create it as ``name``, with the columns that tell outcomes where ``more`` wishes so."""
        columns = ", ".join([COLUMNS, *(f"{each} STRING" for each in self.tells if more)])
        given = {**self.options, **more}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        session.sql(f"CREATE OR REPLACE TEMPORARY TABLE {name} ({columns}) WITH ({listed})")


def memory() -> Source:
    """The ``memory`` connector."""
    rows = ", ".join(f'[{key}, "{name}"]' for key, name in FOUND.items())
    return Source({"connector": "memory", "rows": f"[{rows}]"})


def sqlite(folder: Path) -> Source:
    """The ``sqlite`` connector; 7 has bytes for a name."""
    import sqlite3
    from contextlib import closing

    file = folder / "warm.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [*FOUND.items(), (FAILING, b"\xff")])
    return Source({"connector": "sqlite", "path": str(file), "table-name": "people"}, ("false",))


@contextmanager
def http() -> Iterator[dict[str, Source]]:
    """The ``http`` connector over each of its engines; 7 is a server error."""
    from tests.servers.http_server import running_api

    with running_api() as api:
        api.script(f"/people/{FAILING}", {"status": 500, "repeat": True})
        options = {"connector": "http", "url": f"{api.url}/people/{{id}}"}
        tells = {"outcome": "", "error": ""}
        yield {
            f"http {engine}": Source({**options, "engine": engine}, tells=tells)
            for engine in ("fast", "httpx")
        }
