"""The budget of bytes, on a loop whose time is made up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT, ByteLease, BytesInFlight, Usual

from lookup_hints.testing.fake import FakeLoop


@pytest.fixture
def loop() -> Iterator[FakeLoop]:
    loop = FakeLoop()
    yield loop
    loop.close()


@pytest.fixture
def budget() -> BytesInFlight:
    return BytesInFlight(100)


def turn(loop: FakeLoop) -> None:
    """Let what is ready run."""
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))


def end(loop: FakeLoop, lease: ByteLease) -> None:
    """A lookup ends, and those that waited for it go on."""
    lease.release()
    turn(loop)


def waiting(loop: FakeLoop, lease: ByteLease, size: int) -> asyncio.Task[None]:
    """A lookup that waits for ``size`` bytes."""
    task = loop.create_task(lease.room(size))
    turn(loop)
    return task


def test_what_fits_does_not_wait_and_comes_back_at_the_end(loop: FakeLoop, budget: BytesInFlight) -> None:
    with budget.lease() as lease:
        assert waiting(loop, lease, 60).done()
        assert (budget.held, lease.held) == (60, 60)
        lease.take(-10)
        assert budget.held == 50
    assert budget.held == 0


def test_who_waits_goes_on_when_another_ends_and_the_oldest_first(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    first, second, third, fourth = (budget.lease() for _ in range(4))
    first.take(100)
    young, old = waiting(loop, third, 10), waiting(loop, second, 95)
    assert [old.done(), young.done()] == [False, False]
    end(loop, first)
    assert (old.done(), young.done()) == (True, False), "the small one does not overtake the old one"
    youngest = waiting(loop, fourth, 5)
    assert not youngest.done(), "there is room for it, and one waits that is older"
    end(loop, second)
    assert (young.done(), youngest.done()) == (True, True)
    assert budget.held == 15


def test_an_answer_larger_than_the_budget_passes_alone(loop: FakeLoop, budget: BytesInFlight) -> None:
    large, other = budget.lease(), budget.lease()
    assert waiting(loop, large, 1000).done()
    small = waiting(loop, other, 1)
    assert not small.done()
    end(loop, large)
    assert small.done()


def test_where_all_that_hold_bytes_wait_too_one_goes_on(loop: FakeLoop, budget: BytesInFlight) -> None:
    first, second = budget.lease(), budget.lease()
    first.take(50)
    second.take(50)
    young = waiting(loop, second, 20)
    assert not young.done(), "the first one moves on"
    old = waiting(loop, first, 20)
    assert (old.done(), young.done()) == (True, False), "nobody moved: the oldest goes on"
    end(loop, first)
    assert young.done()


def test_who_waits_for_a_thing_that_others_hold_counts_as_waiting(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    first, second = budget.lease(), budget.lease()
    first.take(100)
    one = waiting(loop, second, 20)
    assert not one.done()
    with first.idle():
        turn(loop)
        assert one.done()


def test_while_a_task_hands_out_rows_nobody_takes_bytes(loop: FakeLoop, budget: BytesInFlight) -> None:
    first, second = budget.lease(), budget.lease()
    budget.hold_back("task", needs_answer=False)
    waits = [waiting(loop, lease, 10) for lease in (first, second)]
    assert [each.done() for each in waits] == [False, False]
    budget.go_on("another task")
    assert not waits[0].done()
    budget.go_on("task")
    turn(loop)
    assert [each.done() for each in waits] == [True, True]


def test_where_a_row_needs_an_answer_the_oldest_lookup_goes_on_alone(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    oldest, other = budget.lease(), budget.lease()
    budget.hold_back("task", needs_answer=True)
    young = waiting(loop, other, 10)
    assert not young.done(), "the oldest waits for its server, and will come"
    assert waiting(loop, oldest, 200).done()
    oldest.release()
    again = waiting(loop, other, 10)
    turn(loop)
    assert (young.done(), again.done()) == (True, True), "now it is the oldest"


def test_a_lookup_that_asks_again_is_older_than_those_that_ask_first(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    first = budget.lease()
    first.take(100)
    other = waiting(loop, budget_lease := budget.lease(), 60)
    again = budget.lease(again=True)
    retry = waiting(loop, again, 60)
    end(loop, first)
    assert (retry.done(), other.done()) == (True, False)
    end(loop, again)
    assert other.done()
    assert budget_lease.held == 60


def test_nobody_waits_for_an_oldest_lookup_that_waits_for_what_others_hold(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    oldest, other = budget.lease(), budget.lease()
    budget.hold_back("task", needs_answer=True)
    with oldest.idle():
        assert waiting(loop, other, 10).done()


def test_a_lookup_that_is_cancelled_takes_nothing_and_stops_nobody(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    first, second, third = budget.lease(), budget.lease(), budget.lease()
    first.take(100)
    cancelled, other = waiting(loop, second, 50), waiting(loop, third, 60)
    cancelled.cancel()
    turn(loop)
    end(loop, first)
    assert other.done()
    assert budget.held == 60


def test_what_is_expected_is_taken_first_and_the_rest_comes_back(
    loop: FakeLoop, budget: BytesInFlight
) -> None:
    lease = budget.lease()
    loop.run_until_complete(lease.expect(40))
    lease.take(10)
    loop.run_until_complete(lease.room(10))
    assert budget.held == 40
    lease.settle()
    assert budget.held == 20
    loop.run_until_complete(lease.expect(5))
    lease.take(50)
    lease.settle()
    assert budget.held == 70


def test_a_lease_that_is_forgotten_comes_back_on_any_thread(loop: FakeLoop, budget: BytesInFlight) -> None:
    held = [budget.lease()]
    held[0].take(100)
    other = budget.lease()
    task = waiting(loop, other, 30)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    turn(loop)
    assert task.done()
    assert budget.held == 30


def test_the_time_of_waiting_is_known(loop: FakeLoop) -> None:
    async def lookup() -> list[float]:
        budget = BytesInFlight(10)
        first, second = budget.lease(), budget.lease()
        first.take(10)
        asyncio.get_running_loop().call_later(3.0, first.release)
        begun = loop.time()
        task = asyncio.ensure_future(second.room(5))
        await asyncio.sleep(1.0)
        meanwhile = second.waited(loop.time())
        await task
        await asyncio.sleep(7.0)
        return [meanwhile, second.waited(loop.time()), loop.time() - begun]

    assert loop.run_until_complete(lookup()) == [1.0, 3.0, 10.0]


def test_what_is_usual_follows_what_comes() -> None:
    usual = Usual()
    assert usual.size == 0
    usual.saw(800)
    assert usual.size == 800
    for _ in range(100):
        usual.saw(8)
    assert usual.size < 20


@pytest.mark.parametrize(
    ("text", "size"),
    [("100", 100), ("256 mb", 2**28), ("64KB", 2**16), ("1 gb", 2**30), (" 5 m ", 5 * 2**20)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert MAX_BYTES_IN_FLIGHT.type.parse(text) == size


@pytest.mark.parametrize(
    ("text", "told"), [("0", "at least 1 byte"), ("5 tb", "a unit, as in"), ("-1", "a unit")]
)
def test_other_sizes_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MAX_BYTES_IN_FLIGHT.type.parse(text)
