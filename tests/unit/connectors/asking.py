"""Short ways to ask a connector something in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pyarrow as pa
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError
from lookup_hints.spi import AsyncLookup
from lookup_hints.spi.request_and_answer import Answer, LookupRequest, LookupTable, PlacedRows

Result = TypeVar("Result")
Opened = TypeVar("Opened", bound=AsyncLookup)


def request_for(
    schema: pa.Schema,
    keys: dict[str, list[Any]],
    *,
    columns: list[str] | None = None,
    timeout: float | None = 30,
) -> LookupRequest:
    """A request by ``keys`` for ``columns`` (all by default)."""
    wanted = {*keys, *(schema.names if columns is None else columns)}
    key_schema = pa.schema([schema.field(name) for name in keys])
    asked = pa.schema([field for field in schema if field.name in wanted])
    return LookupRequest(pa.table(keys, schema=key_schema), asked, timeout)


def during(connector: Opened, action: Callable[[Opened], Awaitable[Result]]) -> Result:
    """What ``action`` gives on the opened connector, which is closed afterwards."""

    async def run() -> Result:
        await connector.aopen()
        try:
            return await action(connector)
        finally:
            await connector.aclose()

    return asyncio.run(run())


def ask(
    table: LookupTable,
    keys: dict[str, list[Any]],
    columns: list[str] | None = None,
    connector_type: type[AsyncLookup] = PostgresConnector,
) -> list[dict[str, Any]]:
    """The rows of ``keys``, from PostgreSQL by default."""
    request = request_for(table.schema, keys, columns=columns)
    answer = during(connector_type(table), lambda connector: connector.alookup(request))
    rows: list[dict[str, Any]] = rows_of(answer).to_pylist()
    return rows


def rows_of(answer: Answer) -> pa.Table:
    """The rows of an answer, without the positions of their keys."""
    return answer.rows if isinstance(answer, PlacedRows) else answer


def failure_of(action: Callable[[], object]) -> ConnectorError:
    """The ConnectorError that ``action`` raises."""
    try:
        action()
    except ConnectorError as error:
        return error
    raise AssertionError("no ConnectorError was raised")


async def awaited_failure(awaitable: Awaitable[object]) -> ConnectorError:
    """The ConnectorError that ``awaitable`` raises."""
    try:
        await awaitable
    except ConnectorError as error:
        return error
    raise AssertionError("no ConnectorError was raised")
