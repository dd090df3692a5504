"""The fake source, and lookups without Spark: what authors of connectors and retries test with."""

from __future__ import annotations

import asyncio
import doctest
import threading
import time

import pyarrow as pa
import pytest

from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import AsyncRowLookup, LookupTable, SyncRowLookup
from lookup_hints.spi.request_and_answer import RowRequest, Rows
from lookup_hints.testing import Call, FakeConnector, looked_up
from lookup_hints.testing import fake as fake_module

COLUMNS = {"id": pa.int64(), "name": pa.string()}
ROWS = [(1, "Ada"), (2, "Emmy"), (2, "Emmy again")]
RETRY = FixedDelay(2, 10.0).if_miss().if_exception()
BOTH = pytest.mark.parametrize("asynchronous", [True, False])


@pytest.fixture
def people() -> FakeConnector:
    return FakeConnector(COLUMNS, ROWS, key=["id"])


def test_the_example_is_right() -> None:
    assert doctest.testmod(fake_module).failed == 0


@BOTH
def test_rows_come_in_the_order_of_the_keys(people: FakeConnector, asynchronous: bool) -> None:
    found = looked_up(people, [(2,), (None,), (3,), (1,)], asynchronous=asynchronous)
    assert found.rows == [[(2, "Emmy"), (2, "Emmy again")], [], [], [(1, "Ada")]]
    assert people.calls == [Call(0.0, ((2,), (3,), (1,)))]
    assert (found.metrics.hits, found.metrics.misses, found.seconds) == (2, 1, 0.0)


@BOTH
def test_a_late_row_is_waited_for_without_waiting(people: FakeConnector, asynchronous: bool) -> None:
    people.miss(1, times=2)
    found = looked_up(people, [(1,), (2,)], asynchronous=asynchronous, retry=RETRY)
    assert found.rows == [[(1, "Ada")], [(2, "Emmy"), (2, "Emmy again")]]
    assert found.seconds == pytest.approx(20.0, abs=0.5)
    assert [(call.keys, call.attempt) for call in people.calls] == [
        (((1,), (2,)), 1),
        (((1,),), 2),
        (((1,),), 3),
    ]


@BOTH
def test_a_failure_is_retried_for_its_key_and_told_when_it_stays(
    people: FakeConnector, asynchronous: bool
) -> None:
    people.fail(1, error="busy", times=2)
    assert looked_up(people, [(1,)], asynchronous=asynchronous, retry=RETRY).rows == [[(1, "Ada")]]
    people.fail(1, error=ConnectorError("gone", permanent=True))
    with pytest.raises(ConnectorError, match=r"gone\. .* 1 key \(id = 1\)"):
        looked_up(people, [(1,), (2,)], asynchronous=asynchronous, retry=RETRY)


def test_a_delay_runs_into_the_timeout(people: FakeConnector) -> None:
    people.delay(1, seconds=60.0)
    with pytest.raises(LookupTimeout, match="within the timeout of 5 s"):
        looked_up(people, [(1,)], timeout=5.0)
    people.delay(1, seconds=3.0)
    assert looked_up(people, [(1,)], timeout=5.0).seconds == pytest.approx(3.0)


class Doubled(AsyncRowLookup, SyncRowLookup):
    """A connector of ten lines."""

    async def alookup_row(self, request: RowRequest) -> Rows:
        return self.lookup_row(request)

    def lookup_row(self, request: RowRequest) -> Rows:
        return [{"name": str(2 * request.key["id"])}] if request.key["id"] else []


@BOTH
def test_any_connector_is_asked_as_the_engine_would(asynchronous: bool) -> None:
    doubled = Doubled(LookupTable("doubled", pa.schema(list(COLUMNS.items()))))
    assert looked_up(doubled, [(4,), (0,)], asynchronous=asynchronous).rows == [[(4, "8")], []]


class Elsewhere(AsyncRowLookup):
    """Asks another thread, of which the clock of tests knows nothing."""

    async def aopen(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.05)

    async def alookup_row(self, request: RowRequest) -> Rows:
        return [{"name": "n"}]


def test_a_connector_that_talks_to_something_is_waited_for_when_asked_so() -> None:
    table = LookupTable("elsewhere", pa.schema(list(COLUMNS.items())))
    assert looked_up(Elsewhere(table), [(1,)], waits=True).rows == [[(1, "n")]]
    door = threading.Event()

    class Locked(Elsewhere):
        async def aopen(self) -> None:
            await asyncio.get_running_loop().run_in_executor(None, door.wait, 60)

    try:
        with pytest.raises(AssertionError, match=r"write looked_up\(..., waits=True\)"):
            looked_up(Locked(table), [(1,)])
    finally:
        door.set()
