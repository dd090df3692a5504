"""What the failure of a lookup says of its source."""

from __future__ import annotations

import asyncio

import asyncpg
import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector
from lookup_connectors.redis import RedisConnector
from redis import exceptions as redis_errors

from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.spi import Ending, LookupTable
from lookup_hints.spi.request_context import ending_of

POSTGRES = PostgresConnector(
    LookupTable(
        "t", pa.schema([("id", pa.int64())]), (), {"connector": "postgres", "url": "postgresql://db/x"}
    )
)
REDIS = RedisConnector(
    LookupTable("t", pa.schema([("id", pa.int64())]), (), {"connector": "redis", "url": "redis://db"})
)


def by(cause: Exception, *, permanent: bool = False) -> ConnectorError:
    error = ConnectorError("it failed", permanent=permanent)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ConnectionResetError(), "lost"),
        (asyncio.TimeoutError(), "lost"),
        (LookupTimeout("late"), "lost"),
        (by(ConnectionRefusedError()), "lost"),
        (by(ConnectionRefusedError(), permanent=True), "unknown"),
        (ConnectorError("wait", retry_after=3.0), "refused"),
        (ConnectorError("wrong"), "unknown"),
        (ValueError(), "unknown"),
    ],
)
def test_what_errors_say_that_no_driver_has_of_its_own(error: Exception, ending: Ending) -> None:
    assert ending_of(error) == ending


@pytest.mark.parametrize(
    ("cause", "ending"),
    [
        (asyncpg.TooManyConnectionsError("too many"), "refused"),
        (asyncpg.QueryCanceledError("statement timeout"), "refused"),
        (asyncpg.AdminShutdownError("shutdown"), "lost"),
        (asyncpg.CannotConnectNowError("starting up"), "lost"),
        (asyncpg.ConnectionDoesNotExistError("gone"), "lost"),
        (ConnectionRefusedError(), "lost"),
        (asyncpg.UndefinedTableError("no table"), "unknown"),
    ],
)
def test_what_postgresql_says(cause: Exception, ending: Ending) -> None:
    assert POSTGRES.ending(by(cause)) == ending


@pytest.mark.parametrize(
    ("cause", "permanent", "ending"),
    [
        (redis_errors.ConnectionError("reset"), False, "lost"),
        (redis_errors.TimeoutError("late"), False, "lost"),
        (redis_errors.ConnectionError("max number of clients reached"), False, "refused"),
        (redis_errors.AuthenticationError("WRONGPASS"), True, "unknown"),
        (redis_errors.ResponseError("WRONGTYPE"), True, "unknown"),
    ],
)
def test_what_redis_says(cause: Exception, permanent: bool, ending: Ending) -> None:
    assert REDIS.ending(by(cause, permanent=permanent)) == ending
