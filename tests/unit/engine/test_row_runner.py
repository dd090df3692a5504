"""The row door: many keys in flight, each with an outcome of its own, on a loop of virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine.arrow import Keys, Placed
from lookup_hints.engine.async_runner import CANCEL_SECONDS, run_async
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.permits import UNLIMITED, RequestLimiter
from lookup_hints.engine.request_scheduler import RequestScheduler
from lookup_hints.engine.row_runner import RowRunner
from lookup_hints.engine.sync_runner import run_sync
from lookup_hints.errors import (
    AnswerError,
    ConnectorError,
    LookupTimeout,
    OptionError,
    Problem,
    TooManyRequests,
)
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.limits.shared_limits import Rules, in_memory
from lookup_hints.spi import AsyncRowLookup, OrderCondition, ReportsOutcomes, SyncRowLookup, TakeRows
from lookup_hints.spi.request_and_answer import (
    LookupRequest,
    LookupTable,
    Miss,
    Outcome,
    Outcomes,
    RowRequest,
    Rows,
)
from tests.unit.engine.support import (
    ON_ERROR,
    ON_MISS,
    SCHEMA,
    Clock,
    VirtualLoop,
    asks,
    handed_back,
    keys,
    rows,
    scheduler,
    spec,
)


class People(AsyncRowLookup, SyncRowLookup, ReportsOutcomes):
    """Answers ``n<id>`` after a latency given per key; keys may be missing or fail."""

    def __init__(
        self,
        latency: Callable[[int], float] = lambda _: 1.0,
        missing: Sequence[int] = (),
        failing: Sequence[int] = (),
        healed_on: int = 99,
        tells: bool = False,
    ) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "people"}))
        self.latency, self.missing, self.failing = latency, missing, failing
        self.healed_on, self.tells = healed_on, tells
        self.asked: list[tuple[float, int]] = []
        self.in_flight = self.most_in_flight = 0
        self.cancelled: list[int] = []

    async def alookup_row(self, request: RowRequest) -> Rows:
        key = request.key["id"]
        self.asked.append((asyncio.get_running_loop().time(), key))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency(key))
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise
        finally:
            self.in_flight -= 1
        return self.lookup_row(request)

    def lookup_row(self, request: RowRequest) -> Rows:
        key = request.key["id"]
        if request.attempt < self.healed_on:
            if key in self.failing:
                raise ConnectorError(f"no luck with {key}")
            if key in self.missing:
                return Miss(f"nobody {key}")
        return [{"name": f"n{key}"}]

    def row_starter(self, take: TakeRows) -> Starter | None:
        is_plain = type(self).alookup_row is People.alookup_row
        return Starter(self, take) if STARTS and is_plain else None

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table | None:
        if not self.tells:
            return None
        told = [str(outcome.error or note) + f" after {outcome.attempts}" for note in outcome.notes]
        return pa.table({"id": keys.column("id"), "name": told})


class Starter:
    """Starts keys of ``people`` that are asked for the first time, ``STARTS`` of them under way at once.

    What comes at one time is told together. A key that fails goes on as a coroutine, for half a second more.
    """

    def __init__(self, people: People, take: TakeRows) -> None:
        self.people, self.take = people, take
        self.came: list[StartedPerson] = []
        self.under_way = 0

    def start(self, requests: Sequence[RowRequest]) -> Sequence[StartedPerson]:
        if requests[0].attempt > 1:
            return ()
        return [StartedPerson(self, request) for request in requests[: STARTS - self.under_way]]

    def hand_over(self) -> None:
        came, self.came = self.came, []
        self.take([(person, person.outcome()) for person in came])


class StartedPerson:
    def __init__(self, starter: Starter, request: RowRequest) -> None:
        self.starter, self.request, self.key = starter, request, request.key["id"]
        people = starter.people
        loop = asyncio.get_running_loop()
        people.asked.append((loop.time(), self.key))
        people.in_flight += 1
        people.most_in_flight = max(people.most_in_flight, people.in_flight)
        starter.under_way += 1
        self.timer = loop.call_later(people.latency(self.key), self.comes)

    def comes(self) -> None:
        if not self.starter.came:
            asyncio.get_running_loop().call_soon(self.starter.hand_over)
        self.starter.came.append(self)

    def ends(self) -> None:
        self.starter.under_way -= 1
        self.starter.people.in_flight -= 1

    def outcome(self) -> Rows | Coroutine[Any, Any, Rows]:
        self.ends()
        try:
            return self.starter.people.lookup_row(self.request)
        except ConnectorError:
            return self.go_on()

    async def go_on(self) -> Rows:
        await asyncio.sleep(0.5)
        return self.starter.people.lookup_row(self.request)

    def cancel(self) -> None:
        self.ends()
        self.timer.cancel()
        if self in self.starter.came:
            self.starter.came.remove(self)
        self.starter.people.cancelled.append(self.key)


STARTS = 0


@pytest.fixture(
    autouse=True, params=[0, 2, 1000], ids=["each has a task", "two are started", "all are started"]
)
def _starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether keys are started together or have a task each is nothing that shows in what comes of them."""
    monkeypatch.setattr("tests.unit.engine.test_row_runner.STARTS", request.param)


def runner_of(people: AsyncRowLookup, limiter: RequestLimiter = UNLIMITED, **settings: Any) -> RowRunner:
    lookup = spec(people, asynchronous=True, **settings)
    assert lookup.by_row
    return RowRunner(
        RequestScheduler(lookup, Random(1), limiter=limiter),
        people,
        people.alookup_row,
        lookup.settings.capacity,
        people.row_starter,
    )


def run(loop: VirtualLoop, people: AsyncRowLookup, *inputs: Keys, **settings: Any) -> Iterator[Settled]:
    return run_async(runner_of(people, **settings), iter(inputs), loop.call)


def named(*ids: int) -> list[Any]:
    return [[(key, f"n{key}")] for key in ids]


def test_lookups_of_single_keys_get_no_order_condition() -> None:
    lookup = replace(spec(People(), asynchronous=True), order=OrderCondition("name"))
    assert lookup.by_row
    assert not replace(lookup, order_asked=True).by_row


def test_capacity_counts_keys_and_key_columns_are_filled_in(loop: VirtualLoop) -> None:
    people = People()
    runner = runner_of(people, capacity=5)
    assert handed_back(run_async(runner, iter([keys(*range(20))]), loop.call)) == named(*range(20))
    assert people.most_in_flight == runner._most_in_flight == 5
    assert runner._in_flight == 0
    assert loop.time() == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_leave_in_input_order_and_no_slot_waits_for_a_slow_key(loop: VirtualLoop, ordered: bool) -> None:
    people = People(lambda key: 4.0 if key == 0 else 1.0)
    found = handed_back(run(loop, people, keys(*range(9)), capacity=3, ordered=ordered))
    assert found == named(*range(9))
    assert loop.time() == pytest.approx(4.0, abs=0.1)


def test_a_failing_key_is_asked_again_alone(loop: VirtualLoop) -> None:
    people = People(failing=[3], healed_on=2)
    assert handed_back(run(loop, people, keys(*range(6)), retry=ON_ERROR)) == named(*range(6))
    assert [key for _, key in people.asked] == [*range(6), 3]
    assert loop.time() == pytest.approx(12.0, abs=1.0)


def test_misses_are_asked_again_alone_while_others_go_on(loop: VirtualLoop) -> None:
    people = People(missing=[0], healed_on=3)
    inputs = [keys(0, 1), keys(2, 3)]
    assert handed_back(run(loop, people, *inputs, retry=ON_MISS, capacity=1)) == named(0, 1, 2, 3)
    assert [key for _, key in people.asked] == [0, 1, 2, 3, 0, 0]


@pytest.mark.parametrize(("policy", "outcome"), [("null", []), ("skip", None)])
def test_on_error_touches_the_failing_key_alone(loop: VirtualLoop, policy: str, outcome: Any) -> None:
    people = People(failing=[1])
    found = handed_back(run(loop, people, keys(0, 1, 2), on_error=policy))
    assert found == [[(0, "n0")], outcome, [(2, "n2")]]


def test_a_failure_names_its_key_and_cancels_the_others(loop: VirtualLoop) -> None:
    people = People(lambda key: 1.0 if key == 1 else 50.0, failing=[1])
    with pytest.raises(
        ConnectorError, match=r"^no luck with 1\. .*1 key \(id = 1\).* failed after 1 attempt"
    ):
        list(run(loop, people, keys(0, 1, 2)))
    assert sorted(people.cancelled) == [0, 2]
    assert loop.time() < 2.0


@pytest.mark.parametrize("error", [ConnectorError("no luck"), TooManyRequests("no more than 5")])
def test_answers_that_come_with_the_failure_of_a_task_are_learned(
    loop: VirtualLoop, error: Exception
) -> None:
    class Refused(People):
        def lookup_row(self, request: RowRequest) -> Rows:
            if request.key["id"] in (1, 3):
                raise error
            return super().lookup_row(request)

    learned: list[tuple[list[int], list[str]]] = []

    def learn(keys: pa.Table, found: Placed, *_: object) -> None:
        learned.append((keys["id"].to_pylist(), found.rows["name"].to_pylist()))

    people = Refused()
    lookup = spec(people, asynchronous=True, capacity=9)
    runner = RowRunner(RequestScheduler(lookup, Random(1), learn=learn), people, people.alookup_row, 9)
    loop.call(runner.feed(keys(0, 1, 2)))
    loop.call(runner.feed(keys(3, 4)))
    with pytest.raises(type(error), match=str(error)):
        loop.call(runner.progress())
    loop.call(runner.close())
    assert learned == [([0, 2], ["n0", "n2"]), ([4], ["n4"])]


def test_an_answer_is_as_old_as_the_request_for_its_own_key(loop: VirtualLoop) -> None:
    learned: list[tuple[list[int], float]] = []

    def learn(keys: pa.Table, found: Placed, missing: pa.Array, asked: float) -> None:
        learned.append((keys["id"].to_pylist(), asked))

    store = in_memory()
    rules = Rules("people", concurrency=None, rate=0.5, adapts=False, timeout=60.0)
    limiter = OriginLimiter(store, rules, clock=loop.time)
    people = People(lambda _: 1.0)
    lookup = spec(people, asynchronous=True, capacity=1, timeout=60.0)
    lookups = RequestScheduler(lookup, Random(1), learn=learn, limiter=limiter)
    runner = RowRunner(lookups, people, people.alookup_row, 1, people.row_starter)
    assert handed_back(run_async(runner, iter([keys(0, 1, 2)]), loop.call)) == [*named(0, 1, 2)]
    assert learned == [([key], at) for at, key in people.asked]
    # Those that are started together take no permits here.
    assert [at for at, _ in people.asked] == ([0.0, 1.0, 2.0] if STARTS else [0.0, 2.0, 4.0])


def test_only_the_slow_key_runs_out_of_time(loop: VirtualLoop) -> None:
    people = People(lambda key: 99.0 if key == 1 else 1.0)
    found = handed_back(run(loop, people, keys(0, 1, 2), timeout=5.0, on_error="null", capacity=2))
    assert found == [[(0, "n0")], [], [(2, "n2")]]
    assert people.cancelled == [1]


def test_keys_that_wait_for_a_slot_run_out_of_time_too(loop: VirtualLoop) -> None:
    people = People(lambda _: 99.0)
    with pytest.raises(LookupTimeout, match="no final outcome within the timeout of 5 s"):
        list(run(loop, people, keys(0, 1, 2), timeout=5.0, capacity=1))
    found = handed_back(run(loop, people, keys(0, 1, 2), timeout=5.0, capacity=1, on_error="null"))
    assert found == [[], [], []]


def test_a_row_that_is_no_row_fails_its_key_alone_and_says_why(loop: VirtualLoop) -> None:
    class Odd(People):
        def lookup_row(self, request: RowRequest) -> Rows:
            return [{"nmae": "x"}] if request.key["id"] == 1 else [{"name": 5 if request.key["id"] else "a"}]

    found = handed_back(run(loop, Odd(), keys(0, 1, 2), on_error="null"))
    assert found == [[(0, "a")], [], []]
    with pytest.raises(ConnectorError, match=r"a row has 'nmae', which is not a column. Did you mean 'name'"):
        list(run(loop, Odd(), keys(1)))
    with pytest.raises(ConnectorError, match=r"column 'name' of the row .*: 5 \(int\) does not fit STRING"):
        list(run(loop, Odd(), keys(2)))


def test_a_run_that_is_given_up_leaves_nothing_in_flight(loop: VirtualLoop) -> None:
    people = People(lambda key: float(key))
    runner = runner_of(people, capacity=20)
    given_up = run_async(runner, iter([keys(1), keys(2)]), loop.call)
    next(given_up)
    loop.call(runner.feed(keys(*range(50, 90))))
    loop.call(asyncio.sleep(0.1))
    assert people.in_flight == 20
    given_up.close()  # type: ignore[attr-defined]
    assert people.in_flight == 0
    assert runner._scheduler.recorder.total.latency.total == len(people.asked), (
        "those that were given up are counted, too"
    )


def test_outcome_rows_are_requested_once_the_outcome_is_final(loop: VirtualLoop) -> None:
    people = People(missing=[1], failing=[2], tells=True)
    found = handed_back(run(loop, people, keys(0, 1, 2), on_error="null", retry=ON_MISS))
    assert found == [[(0, "n0")], [(1, "nobody 1 after 4")], [(2, "no luck with 2 after 1")]]


def test_the_sync_row_door_has_the_same_outcomes() -> None:
    people = People(missing=[1], failing=[2], tells=True)
    lookup = spec(people, asynchronous=False, on_error="null", retry=ON_MISS)
    clock = Clock()
    run_of = run_sync(
        RequestScheduler(lookup, Random(1)),
        iter([keys(0, 1, 2)]),
        people.lookup,
        clock=clock,
        sleep=clock.sleep,
    )
    assert handed_back(run_of) == [[(0, "n0")], [(1, "nobody 1 after 4")], [(2, "no luck with 2 after 1")]]


def test_the_two_row_doors_answer_a_whole_request_alike() -> None:
    people = People(missing=[1], failing=[2])
    request = LookupRequest(pa.table({"id": [0, 1, 2]}), SCHEMA)
    for answer in (people.lookup(request), asyncio.run(People(lambda _: 0.0, [1], [2]).alookup(request))):
        assert isinstance(answer, Outcomes)
        assert answer.rows.to_pylist() == [{"id": 0, "name": "n0"}]
        assert answer.positions == pa.array([0], pa.int32())
        assert (list(answer.failures), answer.notes) == ([2], {1: "nobody 1"})


# --- outcomes of single keys in a batch


def test_a_batch_answer_may_fail_some_keys_and_settle_the_others() -> None:
    lookup = scheduler(on_error="null", retry=ON_ERROR)
    lookup.add(keys(1, 2, 3, 4))
    (ask,) = asks(lookup)
    trouble = ConnectorError("busy")
    found = Outcomes(rows((4, "d"), (1, "a")), pa.array([3, 0]), {1: trouble, 2: trouble})
    lookup.answered(ask, found, 0.0)
    assert lookup.metrics.errors == 1
    (again,) = asks(lookup, 11.0)
    assert again.request.keys.column("id").to_pylist() == [2, 3]
    assert again.request.attempt == 2
    lookup.answered(again, rows((2, "b")), 11.0)
    assert handed_back(lookup.finished()) == [[(1, "a")], [(2, "b")], [], [(4, "d")]]


def test_a_batch_answer_may_fail_every_key() -> None:
    lookup = scheduler(on_error="null")
    lookup.add(keys(1, 2))
    (ask,) = asks(lookup)
    found = Outcomes(rows(), pa.array([], pa.int32()), dict.fromkeys((0, 1), ConnectorError("busy")))
    lookup.answered(ask, found, 0.0)
    assert handed_back(lookup.finished()) == [[], []]


def test_a_failure_of_a_key_that_was_not_asked_breaks_the_contract() -> None:
    lookup = scheduler()
    lookup.add(keys(1, 2))
    (ask,) = asks(lookup)
    found = Outcomes(rows(), pa.array([], pa.int32()), {7: ConnectorError("busy")})
    with pytest.raises(AnswerError, match="failed key 7; it was asked 2 keys"):
        lookup.answered(ask, found, 0.0)


@pytest.mark.parametrize("policy", ["fail", "null"])
def test_a_connector_that_fails_to_open_reports_its_own_error(loop: VirtualLoop, policy: str) -> None:
    class Closed(People):
        async def alookup_row(self, request: RowRequest) -> Rows:
            raise OptionError(Problem("option 'url': the environment variable 'A' cannot be read."))

        def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
            raise AssertionError("open() comes first")

    with pytest.raises(OptionError, match="the environment variable 'A' cannot be read"):
        list(run(loop, Closed(), keys(1, 2), on_error=policy))


@pytest.mark.parametrize("on_error", ["fail", "null"])
def test_a_key_that_ignores_its_cancellation_does_not_block_others(loop: VirtualLoop, on_error: str) -> None:
    class Stubborn(People):
        async def alookup_row(self, request: RowRequest) -> Rows:
            if request.key["id"] != 1:
                return await super().alookup_row(request)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000.0)
            await asyncio.sleep(60.0)
            return [{"name": "comes too late to be anybody's"}]

    began = loop.time()
    run_once = partial(run, loop, Stubborn(), keys(0, 1, 2), timeout=3.0, capacity=2, on_error=on_error)
    if on_error == "null":
        assert handed_back(run_once()) == [[(0, "n0")], [], [(2, "n2")]]
    else:
        with pytest.raises(LookupTimeout, match="within the timeout of 3 s"):
            list(run_once())
    assert 3.0 <= loop.time() - began <= 4.1
    loop.call(asyncio.sleep(60.0))


def test_a_key_that_ends_just_before_it_is_given_up_has_one_outcome(loop: VirtualLoop) -> None:
    class JustInTime(People):
        def row_starter(self, take: TakeRows) -> Starter | None:
            return None

        async def alookup_row(self, request: RowRequest) -> Rows:
            let_go = loop.create_future()

            def work_for_too_long() -> None:
                let_go.set_result(None)
                loop._skipping.now += 0.02  # what ends the key and what gives it up come in one round

            loop.call_later(3.0 + CANCEL_SECONDS - 0.01, work_for_too_long)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(1000.0)
            await let_go
            raise asyncio.CancelledError

    found = handed_back(run(loop, JustInTime(), keys(0, 1), timeout=3.0, on_error="null"))
    assert found == [[], []]


def test_a_key_that_hands_back_after_its_time_is_not_cancelled_again_by_the_end(loop: VirtualLoop) -> None:
    handed_over: list[int] = []

    class HandsBack(People):
        async def alookup_row(self, request: RowRequest) -> Rows:
            try:
                return await super().alookup_row(request)
            finally:
                if request.key["id"] == 1:  # the other one fails the run meanwhile
                    await asyncio.sleep(0.5)
                    handed_over.append(1)

    with pytest.raises(LookupTimeout):
        list(run(loop, HandsBack(lambda _: 1000.0), keys(1, 2), timeout=3.0))
    assert handed_over == [1]
    assert loop.time() == 3.5


def test_a_key_whose_permit_came_late_has_its_whole_time(loop: VirtualLoop) -> None:
    class OwnTask(People):
        def row_starter(self, take: TakeRows) -> Starter | None:
            return None

    store = in_memory()
    rules = Rules("people", concurrency=None, rate=1.25, adapts=False, timeout=1.0)
    own, of_another_task = (OriginLimiter(store, rules, clock=loop.time) for _ in range(2))
    assert of_another_task.try_acquire() == 1
    people = OwnTask(lambda _: 0.7)
    runner = runner_of(people, own, timeout=1.0)
    assert handed_back(run_async(runner, iter([keys(1)]), loop.call)) == [[(1, "n1")]]
    assert people.asked == [(0.8, 1)]
