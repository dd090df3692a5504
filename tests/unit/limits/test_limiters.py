"""Whole lookups of one task before a source that refuses, or is down, on a clock that waits in no time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine.permits import UNLIMITED, limiter_of
from lookup_hints.errors import ConnectorError, LookupTimeout, TooManyRequests
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import LimitStores
from lookup_hints.lookup_spec import Budget, LookupSettings, LookupSpec
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import (
    AsyncLookup,
    AsyncRowLookup,
    Connector,
    LookupRequest,
    LookupTable,
    RowRequest,
    Rows,
    SyncLookup,
)
from lookup_hints.testing import looked_up

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
REMOTE = {"connector": "mine", "url": "mine://crm:99"}
RETRIED = FixedDelay(3, 1.0).if_exception()
KEYS = [(key,) for key in range(400)]


class Outage:
    """Whether a source is down, by the clock of the loop."""

    def __init__(
        self, begin: float, end: float, error: Callable[[], Exception] = ConnectionRefusedError
    ) -> None:
        self.begin, self.end, self.error = begin, end, error
        self.tries = 0

    async def check(self) -> None:
        if self.begin <= asyncio.get_running_loop().time() < self.end:
            self.tries += 1
            raise self.error()
        await asyncio.sleep(0.05)


class ByTable(AsyncLookup):
    """A source that is asked for many keys at once, and has all."""

    def __init__(self, outage: Outage, options: dict[str, str] = REMOTE) -> None:
        super().__init__(LookupTable("people", SCHEMA, options=options))
        self._outage = outage

    async def alookup(self, request: LookupRequest) -> pa.Table:
        await self._outage.check()
        keys = request.keys.column("id").to_pylist()
        return pa.table({"id": keys, "name": [f"n{key}" for key in keys]}, schema=SCHEMA)


class ByRow(AsyncRowLookup):
    """The same, asked for one key at a time."""

    def __init__(self, outage: Outage, options: dict[str, str] = REMOTE) -> None:
        super().__init__(LookupTable("people", SCHEMA, options=options))
        self._outage = outage

    async def alookup_row(self, request: RowRequest) -> Rows:
        await self._outage.check()
        return [{"name": f"n{request.key['id']}"}]


BOTH = pytest.mark.parametrize("source", [ByTable, ByRow])
Source = Callable[[Outage], Connector]


def found(source: Connector, **settings: Any) -> Any:
    return looked_up(source, KEYS, **{"retry": RETRIED, "batch_size": 1, "timeout": 120.0, **settings})


@BOTH
def test_an_outage_shorter_than_the_timeout_costs_no_attempt(source: Source) -> None:
    outage = Outage(0.1, 30.0)
    answered = found(source(outage))
    assert answered.rows == [[(key, f"n{key}")] for (key,) in KEYS]
    assert answered.seconds <= 42
    assert outage.tries <= 110
    assert answered.metrics.outages == 0, "counted by the limiter, and reported by the task"
    assert answered.metrics.waited.counts["outage"] > 20


@BOTH
def test_a_longer_outage_fails_and_says_how_long_it_lasts(source: Source) -> None:
    with pytest.raises(ConnectorError, match=r"crm:99 has not answered for \d+ s|ConnectionRefusedError"):
        found(source(Outage(0.1, 1e6)), timeout=20.0)


@BOTH
def test_where_failures_are_null_a_longer_outage_is_waited_for_once(source: Source) -> None:
    answered = found(source(Outage(0.1, 1e6)), timeout=20.0, on_error="null", capacity=10)
    assert answered.rows.count([]) >= 350
    assert answered.seconds <= 60


def test_without_retries_the_first_failure_is_final() -> None:
    with pytest.raises(ConnectorError, match=r"^ConnectionRefusedError.* failed after 1 attempt"):
        looked_up(ByTable(Outage(0.0, 1.0)), KEYS, batch_size=1)


def test_requests_fail_at_once_if_on_open_is_fail() -> None:
    outage = Outage(0.1, 1e6)
    with pytest.raises(ConnectorError, match=r"'lookup\.on-open' = 'wait' waits for that"):
        found(ByTable(outage), budget=Budget(on_open="fail"))
    assert outage.tries <= 110


def test_who_does_not_want_to_wait_has_the_other_keys_at_once_without_rows() -> None:
    outage = Outage(0.1, 1e6)
    answered = found(ByTable(outage), budget=Budget(on_open="fail"), on_error="null", timeout=1000.0)
    assert answered.rows.count([]) >= 350
    assert answered.seconds <= 30


def test_waiting_for_a_turn_does_not_count_towards_the_timeout() -> None:
    slow = Budget(rate=1.0, task_rate=1.0)
    answered = looked_up(ByTable(Outage(0, 0)), KEYS[:30], batch_size=1, timeout=2.5, budget=slow)
    assert answered.rows == [[(key, f"n{key}")] for (key,) in KEYS[:30]]
    by_row = looked_up(ByRow(Outage(0, 0)), KEYS[:30], timeout=2.5, budget=slow)
    assert by_row.rows == answered.rows
    assert by_row.seconds == pytest.approx(29, abs=1.0)


@BOTH
def test_no_request_is_sent_above_the_limit_of_a_statement(source: Source) -> None:
    with pytest.raises(
        TooManyRequests, match=r"this statement has sent 7 requests, and 'lookup\.max-requests' = 7"
    ):
        found(source(Outage(0, 0)), budget=Budget(max_requests=7), on_error="null")


@pytest.mark.work(4)
def test_a_source_that_says_how_long_to_wait_is_not_asked_until_then() -> None:
    outage = Outage(0.0, 3.0, lambda: ConnectorError("busy", retry_after=3.0))
    answered = found(ByTable(outage))
    assert answered.rows == [[(key, f"n{key}")] for (key,) in KEYS]
    assert outage.tries <= 100
    assert answered.metrics.waited.counts["throttle"] > 1.0


def test_a_timeout_is_still_one() -> None:
    class Silent(ByTable):
        async def alookup(self, request: LookupRequest) -> pa.Table:
            await asyncio.sleep(1e6)
            raise AssertionError

    with pytest.raises(LookupTimeout, match="no answer within 5 s"):
        looked_up(Silent(Outage(0, 0)), KEYS[:1], timeout=5.0)


class AtOnce(SyncLookup):
    """A source that answers without a loop, or fails."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__(LookupTable("people", SCHEMA, options=REMOTE))
        self._fails = fails

    def lookup(self, request: LookupRequest) -> pa.Table:
        if self._fails:
            raise ConnectionRefusedError
        return pa.table({"id": request.keys.column("id"), "name": ["n"]}, schema=SCHEMA)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "source",
    [
        lambda fails: AtOnce(fails=fails),
        lambda fails: ByTable(Outage(0, math.inf if fails else 0)),
        lambda fails: ByRow(Outage(0, math.inf if fails else 0)),
    ],
    ids=["sync", "async", "by row"],
)
def test_each_run_gives_its_share_back(
    source: Callable[[bool], Connector], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[OriginLimiter] = []
    monkeypatch.setattr(OriginLimiter, "close", lambda limiter: closed.append(limiter))
    with pytest.raises(ConnectorError) if fails else nullcontext():
        looked_up(source(fails), KEYS[:1])
    assert len(closed) == 1


def limiter(connector: Connector, tmp_path: Path | None = None, **budget: Any) -> Any:
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(True, budget=Budget(**budget)))
    return limiter_of(spec, LimitStores(), tmp_path)


def test_without_a_server_or_a_limit_nothing_bounds_requests() -> None:
    local = ByTable(Outage(0, 0), {"connector": "mine"})
    assert limiter(local) is UNLIMITED
    assert isinstance(limiter(local, concurrency=3), OriginLimiter)
    assert isinstance(limiter(local, max_requests=3), OriginLimiter)
    assert isinstance(limiter(ByTable(Outage(0, 0))), OriginLimiter)


def test_origins_share_a_file_by_their_name(tmp_path: Path) -> None:
    one = ByTable(Outage(0, 0))
    other = ByTable(Outage(0, 0), {"connector": "mine", "url": "mine://erp:99"})
    limiters = [limiter(one, tmp_path), limiter(one, tmp_path), limiter(other, tmp_path)]
    assert len(list(tmp_path.iterdir())) == 2
    limiters += [limiter(one, tmp_path, name="all"), limiter(other, tmp_path, name="all")]
    assert len(list(tmp_path.iterdir())) == 3


def test_executors_of_unknown_number_share_nothing(tmp_path: Path) -> None:
    limiter(ByTable(Outage(0, 0)), tmp_path, executors=None, task_rate=3.0)
    assert list(tmp_path.iterdir()) == []
