"""An observer is told of each request once, with its time and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from lookup_hints.engine.permits import UNLIMITED, BlockingRequests, with_permits_async
from lookup_hints.errors import ConnectorError
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.task_recorder import TaskRecorder
from lookup_hints.spi import HttpExchange, reporting
from lookup_hints.spi.request_and_answer import LookupRequest, RowRequest
from lookup_hints.spi.request_context import UNTOLD, reporting_to
from tests.unit.engine.support import Asked, Clock, names_of, never_late

SCHEMA = pa.schema([("id", pa.int64())])


class Diary:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def begin(self, keys: int) -> int:
        self.told.append(("begin", keys))
        return len(self.told)

    def end(self, begun: int, seconds: float, error: type[BaseException] | None) -> None:
        self.told.append(("end", begun, seconds, error and error.__name__))

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        self.told.append((method, url))
        return UNTOLD

    def task_ended(self, counts: LookupMetrics) -> None:
        self.told.append(("task", counts))


def request(keys: int, timeout: float | None = 10.0) -> LookupRequest:
    return LookupRequest(pa.table({"id": list(range(keys))}), SCHEMA, timeout)


@pytest.fixture
def diary() -> Iterator[Diary]:
    made = Diary()
    with reporting_to(TaskRecorder(observer=made)):
        yield made


def test_a_request_is_told_with_its_keys_and_its_time(diary: Diary, clock: Clock) -> None:
    def lookup(request: LookupRequest) -> pa.Table:
        clock.sleep(0.25)
        return request.keys

    keys = request(3)
    requests = BlockingRequests(lookup, Asked(names_of()), UNLIMITED, clock, diary)
    assert requests.send(keys, never_late) is keys.keys
    assert diary.told == [("begin", 3), ("end", 1, 0.25, None)]


def test_a_request_that_fails_is_told_with_the_kind_of_its_error(diary: Diary, clock: Clock) -> None:
    def lookup(_: LookupRequest) -> pa.Table:
        raise ConnectorError("hunter2")

    with pytest.raises(ConnectorError):
        BlockingRequests(lookup, Asked(names_of()), UNLIMITED, clock, diary).send(request(1), never_late)
    assert diary.told == [("begin", 1), ("end", 1, 0.0, "ConnectorError")]


def test_each_key_of_a_row_door_is_a_request(diary: Diary, clock: Clock) -> None:
    async def lookup(_: RowRequest) -> int:
        return 7

    assert (
        asyncio.run(
            _result(
                with_permits_async(lookup, Asked(names_of()), UNLIMITED, clock, diary)(
                    RowRequest({"id": 1}, SCHEMA)
                )
            )
        )
        == 7
    )
    assert diary.told == [("begin", 1), ("end", 1, 0.0, None)]


@pytest.mark.parametrize(("seconds", "error"), [(10.0, "LookupTimeout"), (9.0, "CancelledError")])
def test_a_request_that_is_cancelled_ran_out_of_time_or_its_task_ended(
    diary: Diary, clock: Clock, seconds: float, error: str
) -> None:
    async def lookup(_: LookupRequest) -> pa.Table:
        clock.sleep(seconds)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(
            _result(with_permits_async(lookup, Asked(names_of()), UNLIMITED, clock, diary)(request(2)))
        )
    assert diary.told == [("begin", 2), ("end", 1, seconds, error)]


async def _result(awaitable: object) -> object:
    return await awaitable  # type: ignore[misc]


def test_what_is_not_observed_is_asked_directly() -> None:
    async def alookup(request: LookupRequest) -> pa.Table:
        return request.keys

    assert with_permits_async(alookup, Asked(names_of()), UNLIMITED, time.monotonic) is alookup


def test_http_requests_of_a_connector_are_observed(diary: Diary) -> None:
    with reporting().http("GET", "http://api/people/1") as told:
        assert dict(told.headers) == {}
        told.answered(200)
    assert diary.told == [("GET", "http://api/people/1")]
