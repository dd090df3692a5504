"""Slots for connections, on a loop of virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from lookup_connectors.http.client import ConnectionSlots
from lookup_connectors.shared.bytes_in_flight import ByteLease, BytesInFlight

from lookup_hints.testing.fake import FakeLoop


@pytest.fixture
def loop() -> Iterator[FakeLoop]:
    loop = FakeLoop()
    yield loop
    loop.close()


@pytest.fixture
def lease() -> ByteLease:
    return BytesInFlight(100).lease()


def turn(loop: FakeLoop) -> None:
    """Let what is ready run."""
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))


def waiting(loop: FakeLoop, slots: ConnectionSlots, lease: ByteLease) -> asyncio.Task[None]:
    """A request that waits for a slot."""
    task = loop.create_task(slots.wait(lease))
    turn(loop)
    return task


def test_there_are_so_many_and_no_more() -> None:
    slots = ConnectionSlots(2)
    assert [slots.take() for _ in range(3)] == [True, True, False]
    slots.release()
    assert [slots.take() for _ in range(2)] == [True, False]


def test_who_has_waited_longest_is_next_and_nobody_overtakes(loop: FakeLoop, lease: ByteLease) -> None:
    slots = ConnectionSlots(1)
    assert slots.take()
    first, second = waiting(loop, slots, lease), waiting(loop, slots, lease)
    slots.release()
    assert not slots.take(), "it is the first one's already"
    turn(loop)
    assert (first.done(), second.done()) == (True, False)
    slots.release()
    turn(loop)
    assert second.done()
    slots.release()
    assert slots.take()


def test_who_gives_up_takes_no_slot(loop: FakeLoop, lease: ByteLease) -> None:
    slots = ConnectionSlots(1)
    assert slots.take()
    gone, other = waiting(loop, slots, lease), waiting(loop, slots, lease)
    gone.cancel()
    turn(loop)
    slots.release()
    turn(loop)
    assert other.done()


def test_a_slot_that_comes_just_when_its_request_gives_up_goes_to_the_next(
    loop: FakeLoop, lease: ByteLease
) -> None:
    slots = ConnectionSlots(1)
    assert slots.take()
    gone, other = waiting(loop, slots, lease), waiting(loop, slots, lease)
    slots.release()
    gone.cancel()
    turn(loop)
    assert gone.cancelled()
    assert other.done()
    slots.release()
    assert slots.take()


def test_while_a_request_waits_others_may_take_its_bytes(loop: FakeLoop) -> None:
    budget, slots = BytesInFlight(100), ConnectionSlots(1)
    waits, wants = budget.lease(), budget.lease()
    waits.take(100)
    room = loop.create_task(wants.room(10))
    turn(loop)
    assert slots.take()
    assert not room.done()
    task = waiting(loop, slots, waits)
    assert room.done(), "nobody who holds bytes moves any more"
    slots.release()
    turn(loop)
    assert task.done()
