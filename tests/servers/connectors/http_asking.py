"""Short ways to ask an HTTP API something in a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from lookup_connectors.http import HttpConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.limits.limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules
from lookup_hints.limits.store import in_memory
from lookup_hints.spi.model import Answer, LookupTable, Outcomes, PlacedRows
from lookup_hints.spi.reporting import taking
from tests.servers.http_server import Api
from tests.unit.connectors import asking
from tests.unit.connectors.asking import Result, request_for

ENGINE = "auto"
"""What sends the requests of tables made here; tests run over each."""

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def table_of(api: Api | None, path: str, schema: pa.Schema = SCHEMA, **options: str) -> LookupTable:
    """A table over ``path`` of ``api``; in option names ``__`` is a dot and ``_`` a hyphen."""
    base = "http://127.0.0.1:9" if api is None else api.url
    given = {"engine": ENGINE, **{_option(key): value for key, value in options.items()}}
    return LookupTable("people", schema, (), {"connector": "http", "url": f"{base}{path}", **given})


def _option(key: str) -> str:
    name, dot, rest = key.partition("__")
    return (
        name.replace("_", "-") + ("." if dot else "") + (rest if name == "path" else rest.replace("_", "-"))
    )


def connector_of(table: LookupTable) -> HttpConnector:
    """A checked connector."""
    connector = HttpConnector(table)
    connector.check()
    return connector


def during(table: LookupTable, action: Callable[[HttpConnector], Awaitable[Result]]) -> Result:
    """What ``action`` gives on the opened connector of ``table``, which is closed afterwards."""
    with taking_turns():
        return asking.during(connector_of(table), action)


@contextmanager
def taking_turns() -> Iterator[None]:
    """A block in which requests take their turns as those of a task do."""
    limiter = OriginLimiter(in_memory(), Rules())
    with taking(limiter.permits()):
        yield


def ask(
    table: LookupTable, keys: dict[str, list[Any]], *, sync: bool = False, timeout: float | None = 30
) -> list[dict[str, Any]]:
    """The rows of ``keys``; the first failure is raised."""
    request = request_for(table.schema, keys, timeout=timeout)
    if not sync:
        return rows_of(during(table, lambda connector: connector.alookup(request)))
    connector = connector_of(table)
    connector.open()
    try:
        with taking_turns():
            return rows_of(connector.lookup(request))
    finally:
        connector.close()


def rows_of(answer: Answer) -> list[dict[str, Any]]:
    """The rows of an answer; the first failure is raised."""
    if isinstance(answer, Outcomes):
        for failure in answer.failures.values():
            raise failure
    table = answer.rows if isinstance(answer, PlacedRows) else answer
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def failure(
    table: LookupTable, *, sync: bool = False, timeout: float | None = 30, **keys: Any
) -> ConnectorError:
    """The error of asking for one key."""
    try:
        ask(table, {name: [value] for name, value in (keys or {"id": 1}).items()}, sync=sync, timeout=timeout)
    except ConnectorError as error:
        return error
    raise AssertionError("no ConnectorError was raised")
