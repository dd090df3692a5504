"""What connectors tell of their requests while they work on them, and what is counted of it."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.metrics.task_recorder import TaskRecorder
from lookup_hints.spi import (
    AsyncLookup,
    AsyncRowLookup,
    LookupRequest,
    LookupTable,
    RowRequest,
    Rows,
    SyncLookup,
    Wait,
    reporting,
)
from lookup_hints.spi.request_context import NOBODY, reporting_to
from lookup_hints.testing import FakeClock, looked_up
from tests.unit.engine.support import SCHEMA, keys, names_of, scheduler

TABLE = LookupTable("people", SCHEMA, options={"connector": "telling"})
BOTH = pytest.mark.parametrize("asynchronous", [True, False])


class Telling(AsyncLookup, SyncLookup):
    """Waits before it sends, for ``seconds`` of each wait, and then takes a second for the answer."""

    def __init__(self, *waits: tuple[Wait, float]) -> None:
        super().__init__(TABLE)
        self.waits = waits
        self.clock = FakeClock()

    def lookup(self, request: LookupRequest) -> pa.Table:
        reports = reporting()
        for wait, seconds in self.waits:
            with reports.waiting(wait):
                self.clock.sleep(seconds)
        self.clock.sleep(1.0)
        return self._told(request)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        for wait, seconds in self.waits:
            with reporting().waiting(wait):
                await asyncio.sleep(seconds)
        await asyncio.sleep(1.0)
        return await asyncio.create_task(self._in_a_task_of_its_own(request))

    async def _in_a_task_of_its_own(self, request: LookupRequest) -> pa.Table:
        return self._told(request)

    def _told(self, request: LookupRequest) -> pa.Table:
        reporting().throttled()
        reporting().sent(100)
        reporting().received(1000)
        return names_of()(request)


@BOTH
def test_bytes_and_waits_that_a_connector_reports_are_counted(asynchronous: bool) -> None:
    connector = Telling()
    found = looked_up(connector, [(1,), (2,), (3,)], batch_size=1, asynchronous=asynchronous)
    counted = found.metrics
    assert (counted.bytes_out, counted.bytes_in, counted.throttled) == (300, 3000, 3)


@BOTH
def test_bytes_of_arrow_tables_count_if_a_connector_reports_none(asynchronous: bool) -> None:
    class Silent(Telling):
        def _told(self, request: LookupRequest) -> pa.Table:
            return names_of()(request)

    counted = looked_up(Silent(), [(1,), (2,), (2,)], asynchronous=asynchronous).metrics
    answer = pa.table({"id": [1, 2], "name": ["n1", "n2"]}, schema=SCHEMA)
    assert (counted.bytes_out, counted.bytes_in) == (16, answer.nbytes)


WAITS: tuple[tuple[Wait, float], ...] = (("throttle", 5.0), ("budget", 3.0), ("slot", 2.0))
WAITED = pytest.approx({"throttle": 5.0, "budget": 3.0, "slot": 2.0, "source": 1.0})


def test_waits_inside_a_connector_do_not_count_as_waits_for_the_source() -> None:
    found = looked_up(Telling(*WAITS), [(1,)], asynchronous=True)
    assert found.metrics.waited.counts == WAITED
    assert found.metrics.waited.total == pytest.approx(found.seconds)


def test_waits_inside_a_sync_call_do_not_count_as_waits_for_the_source() -> None:
    connector, run = Telling(*WAITS), scheduler()
    clock = connector.clock
    list(run_sync(run, iter([keys(1)]), connector.lookup, clock=clock, sleep=clock.sleep))
    assert run.metrics.waited.counts == WAITED


def test_the_wait_of_a_few_requests_is_not_that_of_the_task() -> None:
    class OfSome(Telling):
        async def alookup(self, request: LookupRequest) -> pa.Table:
            key = request.keys.column(0)[0].as_py()
            if key == 1:
                with reporting().waiting("throttle"):
                    await asyncio.sleep(5.0)
            else:
                await asyncio.sleep(2.0 if key < 4 else 4.0)
            return self._told(request)

    found = looked_up(OfSome(), [(1,), (2,), (3,), (4,)], batch_size=1)
    # Of four one waits; two answers come after 2 s, the third after 4 s.
    assert found.metrics.waited.counts == pytest.approx({"source": 2.0, "throttle": 3.0})


def test_lookups_of_single_keys_report_their_bytes_too() -> None:
    class ByRow(AsyncRowLookup):
        async def alookup_row(self, request: RowRequest) -> Rows:
            with reporting().waiting("throttle"):
                await asyncio.sleep(5.0)
            reporting().sent(10)
            await asyncio.sleep(1.0)
            return []

    found = looked_up(ByRow(TABLE), [(key,) for key in range(4)], capacity=2)
    waited = found.metrics.waited.counts
    assert found.metrics.bytes_out == 40
    assert waited["throttle"] == pytest.approx(10.0, abs=0.1)
    assert waited["slot"] + waited["source"] == pytest.approx(2.0, abs=0.1)


def test_a_full_capacity_is_counted_by_row() -> None:
    class Slow(AsyncRowLookup):
        async def alookup_row(self, request: RowRequest) -> Rows:
            await asyncio.sleep(1.0)
            return []

    found = looked_up(Slow(TABLE), [(key,) for key in range(6)], capacity=2)
    assert found.metrics.waited.counts == pytest.approx({"slot": 2.0, "source": 1.0}, abs=0.1)


@BOTH
def test_what_outlives_a_lookup_does_not_hold_its_run(asynchronous: bool) -> None:
    seen: list[object] = []

    class Lingering(Telling):
        def _told(self, request: LookupRequest) -> pa.Table:
            seen.append(reporting())
            return super()._told(request)

    looked_up(Lingering(), [(1,)], asynchronous=asynchronous)
    [listener] = seen
    assert isinstance(listener, TaskRecorder)
    assert listener.pending_waits.on_change is None


def test_bytes_of_opening_a_connector_count_for_no_lookup() -> None:
    listening: list[object] = []

    class Opening(Telling):
        async def aopen(self) -> None:
            listening.append(reporting())

    from lookup_hints.process.open_connectors import LoopThread, OpenedAsync

    loop = LoopThread()
    opened = OpenedAsync(Opening(), loop)

    async def ask() -> None:
        with reporting_to(TaskRecorder()):
            await opened.lookup(LookupRequest(pa.table({"id": [1]}), SCHEMA))

    loop.call(ask())
    assert listening == [NOBODY]


def test_reports_without_a_listener_do_nothing() -> None:
    assert reporting() is NOBODY
    with reporting().waiting("slot"):
        reporting().sent(1)
        reporting().received(1)
        reporting().throttled()
