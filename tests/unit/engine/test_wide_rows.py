"""Rows that are large: what a task holds of them, and what it asks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_hints.engine import adaptive_batch_size as request_size
from lookup_hints.engine import input_window
from lookup_hints.engine import request_scheduler as flow_module
from lookup_hints.engine import request_scheduler as next_request
from lookup_hints.engine.arrow import Placed, ordered_keys
from lookup_hints.engine.backlog import Hold, Idle, ScheduledRequest, WaitUntil
from lookup_hints.engine.input_window import Settled
from lookup_hints.engine.request_scheduler import HOLD_SECONDS, RequestScheduler
from lookup_hints.spi import SupportsBackpressure
from lookup_hints.spi.request_and_answer import RowRequest, Rows
from tests.unit.engine.support import ON_MISS, VirtualLoop, asks, handed_back, ids, keys, rows, scheduler
from tests.unit.engine.test_row_runner import People, run

ROW = 1000
"""Bytes of a wide row."""


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for ten wide rows, of which a window should hold two and a portion one."""
    monkeypatch.setattr(input_window, "ROWS_BYTES", 10.5 * ROW)
    monkeypatch.setattr(flow_module, "HOLD_BYTES", 5.5 * ROW)
    monkeypatch.setattr(next_request, "ANSWER_BYTES", 2.5 * ROW)
    for module in (request_size, input_window):
        monkeypatch.setattr(module, "WINDOW_BYTES", 2 * ROW)
    monkeypatch.setattr(input_window, "HAND_OUT_BYTES", 1.5 * ROW)


def wide(*ids: int) -> pa.Table:
    """A wide row for each of ``ids``."""
    return rows(*((key, text(key)) for key in ids))


def text(key: int) -> str:
    return f"{key:>{ROW}}"


def answer(of: RequestScheduler, *found: ScheduledRequest, now: float = 0.0) -> None:
    for ask in found:
        of.answered(ask, wide(*ids(ask)), now)


def ids_of(settled: Sequence[Settled]) -> list[int | None]:
    """The ids of the rows that were handed back; None for one without."""
    return [each[0][0] if each else None for each in handed_back(settled)]


def everything(of: RequestScheduler) -> tuple[list[list[int]], list[int | None]]:
    """What ``of`` asks to its end, each answered at once, and what it hands back."""
    asked, found = [], []
    of.add(None)
    while not of.is_done:
        step = of.next(0.0)
        if isinstance(step, ScheduledRequest):
            asked.append(ids(step))
            answer(of, step)
        found += (settled := ids_of([*of.finished()]))
        assert isinstance(step, ScheduledRequest) or settled or of.is_done
    return asked, found


def test_rows_before_the_first_unsettled_one_are_handed_out_before_the_window_ends() -> None:
    lookup = scheduler(batch_size=1, ordered=False)
    lookup.add(keys(*range(6)))
    first, second, third, fourth, *others = asks(lookup)
    answer(lookup, second, third)
    assert [*lookup.finished()] == []
    answer(lookup, first)
    assert ids_of([*lookup.finished()]) == [0, 1, 2]
    answer(lookup, fourth)
    assert [*lookup.finished()] == []  # not worth it yet
    answer(lookup, *others)
    assert ids_of([*lookup.finished()]) == [3, 4, 5]


def test_narrow_rows_are_handed_out_together() -> None:
    lookup = scheduler(batch_size=1, ordered=False)
    lookup.add(keys(*range(6)))
    *others, last = asks(lookup)
    for ask in others:
        lookup.answered(ask, rows((ids(ask)[0], "x")), 0.0)
    assert [*lookup.finished()] == []
    lookup.answered(last, rows((5, "x")), 0.0)
    assert len([*lookup.finished()]) == 1


def test_much_that_was_found_is_handed_out_in_portions() -> None:
    lookup = scheduler(batch_size=6, ordered=False)
    lookup.add(keys(0, 1, None, 2, 0, 3))
    answer(lookup, *asks(lookup))
    portions = [*lookup.finished()]
    assert [ids_of([each]) for each in portions] == [[0], [1, None], [2], [0], [3]]


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_answer_is_not_copied_for_each_portion(monkeypatch: pytest.MonkeyPatch, turned: bool) -> None:
    copied, filtered = list[int](), Placed.filter

    def counted(self: Placed, mask: pa.Array) -> Placed:
        copied.append((kept := filtered(self, mask)).rows.num_rows)
        return kept

    monkeypatch.setattr(Placed, "filter", counted)
    lookup = scheduler(batch_size=100, ordered=False)
    lookup.add(keys(*range(100)))
    (ask,) = asks(lookup)
    lookup.answered(ask, wide(*(reversed(ids(ask)) if turned else ids(ask))), 0.0)
    portions = [ids_of([each]) for each in lookup.finished()]
    assert portions == [[key] for key in range(100)]
    assert sum(copied) <= 200


def test_a_key_that_later_rows_need_too_is_kept_and_asked_once() -> None:
    lookup = scheduler(batch_size=1, ordered=False)
    lookup.add(keys(0, 1, 2, 3, 0, 2))
    *others, last = asks(lookup)
    answer(lookup, *others)
    assert ids_of([*lookup.finished()]) == [0, 1, 2]
    answer(lookup, last)
    assert ids_of([*lookup.finished()]) == [3, 0, 2]
    assert lookup.metrics.requests == 4


def test_misses_and_skipped_keys_among_wide_rows_keep_their_places() -> None:
    lookup = scheduler(batch_size=1, ordered=False, on_error="skip")
    lookup.add(keys(*range(6)))
    sent = asks(lookup)
    for ask, found in zip(sent, (wide(0), None, rows(), wide(3), wide(4)), strict=False):
        if found is None:
            lookup.failed(ask, OSError("reset"), 0.0)
        else:
            lookup.answered(ask, found, 0.0)
    before = handed_back(lookup.finished())
    assert before == [[(0, text(0))], None, [], [(3, text(3))], [(4, text(4))]]
    answer(lookup, sent[5])
    assert ids_of([*lookup.finished()]) == [5]


def test_keys_of_wide_rows_are_asked_in_the_order_of_the_rows() -> None:
    lookup = scheduler(batch_size=2, ordered=False, capacity=1)
    lookup.add(ordered_keys(pa.table({"id": pa.array([9, 4, 8, 1, 7, 2], pa.int64())})))
    asked, found = everything(lookup)
    assert asked == [[1, 2], [9, 4], [8, 7]]
    assert found == [9, 4, 8, 1, 7, 2]


def test_no_more_keys_are_in_flight_than_their_rows_have_room() -> None:
    lookup = scheduler(batch_size=1, ordered=False)
    lookup.add(keys(0))
    answer(lookup, *asks(lookup))
    [*lookup.finished()]
    lookup.add(keys(*range(1, 50)))
    assert len(asks(lookup)) == 11


@pytest.mark.parametrize("ordered", [True, False])
def test_keys_wait_while_a_late_retry_holds_the_rows_behind_it(ordered: bool) -> None:
    lookup = scheduler(batch_size=1, ordered=ordered, retry=ON_MISS)
    lookup.add(keys(*range(50)))
    head = lookup.next(0.0)
    assert isinstance(head, ScheduledRequest)
    lookup.answered(head, rows(), 0.0)
    while isinstance(ask := lookup.next(0.0), ScheduledRequest):
        answer(lookup, ask)
    assert ask == WaitUntil(10.0)
    assert lookup.metrics.requests == 12
    assert [*lookup.finished()] == []
    (again,) = asks(lookup, now=10.0)
    assert ids(again) == [0]
    answer(lookup, again, now=10.0)
    assert ids_of([*lookup.finished()]) == [*range(12)]
    assert isinstance(lookup.next(10.0), ScheduledRequest)


def test_the_first_row_has_a_slot_though_settled_requests_behind_it_take_all() -> None:
    lookup = scheduler(batch_size=1, ordered=True, capacity=11, retry=ON_MISS)
    lookup.add(keys(*range(50)))
    head, *others = asks(lookup)
    lookup.answered(head, rows(), 0.0)
    answer(lookup, *others)
    answer(lookup, *asks(lookup))
    assert isinstance(lookup.next(10.0), ScheduledRequest)


def test_time_in_which_there_was_no_room_for_a_retry_is_not_its_own() -> None:
    lookup = scheduler(batch_size=1, ordered=False, retry=ON_MISS, timeout=20.0)
    lookup.add(keys(*range(13)))
    first, second, *others = asks(lookup)
    lookup.answered(second, rows(), 0.0)  # due after 10 s
    answer(lookup, *others)
    assert lookup.next(0.0) == Idle()
    assert lookup.next(1000.0) == Idle()  # nobody takes rows for that long
    answer(lookup, first, now=1000.0)
    assert ids_of([*lookup.finished()]) == [0]
    (again,) = asks(lookup, now=1000.0)
    assert ids(again) == [1]


class WidePeople(People):
    """Wide rows; one key takes a minute."""

    def __init__(self, slow: int) -> None:
        super().__init__(lambda key: 60.0 if key == slow else 1.0)

    def lookup_row(self, request: RowRequest) -> Rows:
        found = super().lookup_row(request)
        return [{"name": text(request.key["id"])}] if found else found


def test_a_row_door_starts_no_lookup_that_was_given_out_before_rows_were_known_to_be_wide(
    loop: VirtualLoop,
) -> None:
    people = WidePeople(slow=0)
    found = ids_of([*run(loop, people, keys(*range(60)), capacity=6, ordered=False)])
    assert found == [*range(60)]
    early = [key for time, key in people.asked if time < 59.0]
    assert len(early) <= 10 + 6 + 1
    assert sorted(key for _, key in people.asked) == [*range(60)]


# --- lookups under way


def well_filled(**settings: object) -> tuple[RequestScheduler, list[ScheduledRequest]]:
    """A scheduler that holds much, behind its first row; and what it has asked still."""
    lookup = scheduler(batch_size=1, ordered=False, **settings)
    lookup.add(keys(*range(20)))
    first, *others = asks(lookup)
    answer(lookup, *others[:6])
    return lookup, [first, *others[6:]]


def test_lookups_under_way_are_held_back_while_rows_wait_for_one_of_them() -> None:
    lookup, (first, *others) = well_filled()
    assert lookup.hold(5.0) == Hold(5.0 + HOLD_SECONDS, needs_answer=True)
    answer(lookup, first)
    assert lookup.hold(6.0) == Hold(5.0 + HOLD_SECONDS, needs_answer=False)
    assert ids_of([*lookup.finished()]) == [*range(7)]
    assert lookup.hold(7.0) is None
    answer(lookup, *others[:6])
    assert lookup.hold(8.0) == Hold(8.0 + HOLD_SECONDS, needs_answer=False)


def test_lookups_under_way_are_held_back_while_the_first_row_waits_for_its_retry() -> None:
    lookup, (first, *_) = well_filled(retry=ON_MISS)
    lookup.answered(first, rows(), 0.0)
    assert lookup.hold(0.0) == Hold(HOLD_SECONDS, needs_answer=False)
    (again,) = asks(lookup, now=10.0)
    assert ids(again) == [0]
    assert lookup.hold(10.0) == Hold(HOLD_SECONDS, needs_answer=True)


def test_lookups_under_way_are_needed_where_they_have_the_slot_of_the_first_row() -> None:
    lookup, (first, *_) = well_filled(retry=ON_MISS, capacity=8)
    lookup.answered(first, rows(), 0.0)
    assert lookup.hold(0.0) == Hold(HOLD_SECONDS, needs_answer=False)
    asks(lookup)
    assert lookup.hold(0.0) == Hold(HOLD_SECONDS, needs_answer=True)


def test_lookups_that_were_held_back_for_long_or_have_little_time_go_on() -> None:
    lookup, _ = well_filled()
    assert lookup.hold(0.0) == Hold(HOLD_SECONDS, needs_answer=True)
    assert lookup.hold(HOLD_SECONDS) is None
    lookup, _ = well_filled(timeout=20.0)
    assert lookup.hold(0.0) == Hold(10.0, needs_answer=True)
    assert lookup.hold(10.0) is None


class Obedient(WidePeople, SupportsBackpressure):
    """Answers nothing while it is held back, but for the oldest key where a row waits for it."""

    def __init__(self, slow: int) -> None:
        super().__init__(slow)
        self.tasks: dict[Hashable, bool] = {}
        self.held_back = 0
        self.asking: list[int] = []

    def hold_back(self, task: Hashable, *, needs_answer: bool) -> None:
        self.tasks[task] = needs_answer
        self.held_back += 1

    def go_on(self, task: Hashable) -> None:
        del self.tasks[task]

    async def alookup_row(self, request: RowRequest) -> Rows:
        key = request.key["id"]
        self.asking.append(key)
        found = await super().alookup_row(request)
        while self.tasks and not (all(self.tasks.values()) and key == min(self.asking)):
            await asyncio.sleep(0.5)
        self.asking.remove(key)
        return found


def test_a_connector_is_held_back_and_let_go(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_module, "HOLD_SECONDS", 1000.0)
    people = Obedient(slow=0)
    people.latency = lambda key: 60.0 if key == 0 else 1.0 + key / 10
    seen: list[float] = []
    hold = RequestScheduler.hold

    def watched(self: RequestScheduler, now: float) -> Hold | None:
        seen.append(self._state.held.found_bytes)
        return hold(self, now)

    monkeypatch.setattr(RequestScheduler, "hold", watched)
    found = ids_of([*run(loop, people, keys(*range(60)), capacity=30, ordered=False)])
    assert found == [*range(60)]
    assert people.held_back > 0
    assert people.tasks == {}
    assert max(seen) < 12 * ROW


@pytest.mark.work(19)
@given(
    late=st.dictionaries(st.integers(0, 39), st.sampled_from([0.01, 3.0, 45.0]), max_size=12),
    missing=st.sets(st.integers(0, 39), max_size=4),
    repeated=st.lists(st.integers(0, 39), max_size=10),
    capacity=st.integers(1, 30),
    ordered=st.booleans(),
)
def test_whatever_is_late_all_rows_come_in_their_order(
    late: dict[int, float], missing: set[int], repeated: list[int], capacity: int, ordered: bool
) -> None:
    people = Obedient(slow=-1)
    people.latency = lambda key: late.get(key, 1.0)
    people.missing, people.healed_on = [*missing], 2
    loop = VirtualLoop()
    wanted = [*range(20), *repeated, *range(20, 40)]
    results = run(loop, people, keys(*wanted), capacity=capacity, ordered=ordered, retry=ON_MISS)
    assert ids_of([*results]) == wanted
    assert people.tasks == {}
    loop.close()
