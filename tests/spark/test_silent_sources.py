"""A lookup whose source says nothing fails when its time is up, whatever its connector does meanwhile."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lookup_hints import LookupSession
from lookup_hints.spi import AsyncLookup, AsyncRowLookup, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, RowRequest, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILENCE = 40.0
"""Then the source answers after all: a lookup that waited for it has not failed."""


def answer(request: LookupRequest) -> pa.Table:
    names = pa.array(["late"] * len(request.keys))
    return pa.table([*request.keys.columns, names], schema=request.schema)


async def silence() -> None:
    """As what a driver does that ignores that it is cancelled."""
    end = time.monotonic() + SILENCE
    while (left := end - time.monotonic()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


class Blocks(SyncLookup):
    def lookup(self, request: LookupRequest) -> pa.Table:
        time.sleep(SILENCE)
        return answer(request)


class BlocksWhenItOpens(SyncLookup):
    def open(self) -> None:
        time.sleep(SILENCE)

    def lookup(self, request: LookupRequest) -> pa.Table:
        return answer(request)


class IsNotCancelled(AsyncLookup):
    async def alookup(self, request: LookupRequest) -> pa.Table:
        await silence()
        return answer(request)


class RowIsNotCancelled(AsyncRowLookup):
    async def alookup_row(self, request: RowRequest) -> Rows:
        await silence()
        return [{"name": "late"}]


@pytest.mark.parametrize("connector", [Blocks, BlocksWhenItOpens, IsNotCancelled, RowIsNotCancelled])
def test_it_fails_before_the_source_answers(spark: SparkSession, connector: type) -> None:
    session = LookupSession(spark.newSession())
    session.sql(
        "CREATE TEMPORARY TABLE c (id BIGINT, name STRING) WITH ("
        f"'connector' = '{__name__}:{connector.__name__}', 'timeout' = '1s')"
    )
    with pytest.raises(Exception, match="no final outcome within the timeout of 1 s"):
        session.sql("SELECT r.id, c.name FROM range(50) r LEFT JOIN c ON r.id = c.id").collect()
