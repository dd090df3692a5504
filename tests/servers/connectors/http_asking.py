"""Short ways to ask an HTTP API something in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
import pytest
from lookup_connectors.http import HttpConnector
from lookup_connectors.http import connector as connector_module
from lookup_connectors.http.client_httptools import HttptoolsClient
from lookup_connectors.http.client_httpx import HttpxClient
from lookup_connectors.http.request import Request

from lookup_hints.errors import ConnectorError
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.spi import AsyncRowLookup
from lookup_hints.spi.connector import StartedRow, StartedRows
from lookup_hints.spi.request_and_answer import (
    Answer,
    LookupRequest,
    LookupTable,
    Outcomes,
    PlacedRows,
    RowRequest,
    Rows,
)
from lookup_hints.spi.request_context import NOBODY, reporting_to
from tests.servers.http_server import Api
from tests.unit.connectors import asking
from tests.unit.connectors.asking import Result, request_for

WAYS = ("task", "started", "httpx")
"""A key has a task of its own, or it is started over an open connection, as the engine starts many together.

With httpx it has a task and a connection of its own.
"""


def use_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for keys in one of ``WAYS`` from now on."""
    if way == "started":
        monkeypatch.setattr(HttpConnector, "_look_up_each", _each_started)
    if way == "httpx":
        monkeypatch.setattr(connector_module, "client_of", HttpxClient)


def is_started() -> bool:
    """Whether keys are started over connections that were opened for them."""
    return HttpConnector._look_up_each is _each_started


def is_httpx() -> bool:
    """Whether httpx sends the requests."""
    return connector_module.client_of is HttpxClient


def need_kept_connections() -> None:
    """Skip a test of connections that are kept, where none is."""
    if is_httpx():
        pytest.skip("with httpx each request has a connection of its own")


async def _each_started(connector: HttpConnector, request: LookupRequest, _: object) -> Outcomes:
    """The rows of each key, which starts over a connection where one can be opened for it."""
    came: dict[StartedRow, asyncio.Future[Any]] = {}

    def take(outcomes: StartedRows) -> None:
        for row, outcome in outcomes:
            came.pop(row).set_result(outcome)

    starter = connector.row_starter(take)

    async def outcome(row: RowRequest) -> Rows:
        if starter is None or not await _has_connection(connector, row):
            return await connector.alookup_row(row)
        started = starter.start([row])
        if not started:
            return await connector.alookup_row(row)
        came[started[0]] = future = asyncio.get_running_loop().create_future()
        try:
            found = await future
        except asyncio.CancelledError:
            started[0].cancel()
            raise
        return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]

    each: Callable[[RowRequest], Awaitable[Rows]] = outcome
    return await AsyncRowLookup._look_up_each(connector, request, each)


async def _has_connection(connector: HttpConnector, row: RowRequest) -> bool:
    """Whether a connection is open for ``row``; else one is opened, if it can be."""
    live = connector._opened_source
    client = cast(HttptoolsClient, live.client)
    try:
        request: Request = next(iter(live.requests_of([row])))

        origin, _ = client._origin_and_path(request.url)
        if not client._idle[origin.url]:
            now = asyncio.get_running_loop().time()
            client._keep_idle(origin, await client._open_connection(origin, now + 5.0))
    except Exception:  # as a lookup may fail that finds out by itself
        return False
    return True


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def table_of(api: Api | None, path: str, schema: pa.Schema = SCHEMA, **options: str) -> LookupTable:
    """A table over ``path`` of ``api``; in option names ``__`` is a dot and ``_`` a hyphen."""
    base = "http://127.0.0.1:9" if api is None else api.url
    given = {_option(key): value for key, value in options.items()}
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
    with reporting_to(NOBODY, limiter.permits()):
        yield


def ask(
    table: LookupTable, keys: dict[str, list[Any]], *, one_by_one: bool = False, timeout: float | None = 30
) -> list[dict[str, Any]]:
    """The rows of ``keys``; the first failure is raised."""
    each = [dict(zip(keys, values, strict=True)) for values in zip(*keys.values(), strict=True)]
    asked = [{name: [value] for name, value in key.items()} for key in each] if one_by_one else [keys]

    async def lookups(connector: HttpConnector) -> list[dict[str, Any]]:
        requests = [request_for(table.schema, some, timeout=timeout) for some in asked]
        return [row for request in requests for row in rows_of(await connector.alookup(request))]

    return during(table, lookups)


def rows_of(answer: Answer) -> list[dict[str, Any]]:
    """The rows of an answer; the first failure is raised."""
    if isinstance(answer, Outcomes):
        for failure in answer.failures.values():
            raise failure
    table = answer.rows if isinstance(answer, PlacedRows) else answer
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def failure(table: LookupTable, *, timeout: float | None = 30, **keys: Any) -> ConnectorError:
    """The error of asking for one key."""
    try:
        ask(table, {name: [value] for name, value in (keys or {"id": 1}).items()}, timeout=timeout)
    except ConnectorError as error:
        return error
    raise AssertionError("no ConnectorError was raised")
