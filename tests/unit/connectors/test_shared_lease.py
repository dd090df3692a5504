"""One lease for the answers of many keys that were started together."""

from __future__ import annotations

import asyncio

from lookup_connectors.shared.bytes_in_flight import BytesInFlight


def test_a_shared_lease_holds_what_is_expected_of_the_keys_under_way() -> None:
    budget = BytesInFlight(100)
    shared = budget.lease(shared=True)
    assert shared.has_room(60)
    shared.expect_now(60)
    assert budget.held == 60
    shared.take(20)
    assert budget.held == 60, "it was expected"
    shared.keep(30)
    assert (budget.held, shared.has_room(70), shared.has_room(71)) == (30, True, False)
    shared.keep(0)
    assert budget.held == 0


def test_an_answer_that_may_wait_has_a_lease_of_its_own() -> None:
    budget = BytesInFlight(100)
    shared, alone = budget.lease(shared=True), budget.lease()
    assert shared.own() is not shared
    assert alone.own() is alone


def test_a_shared_lease_is_never_the_oldest_for_which_others_wait() -> None:
    budget = BytesInFlight(10)
    shared, oldest = budget.lease(shared=True), budget.lease()
    budget.hold_back("task", needs_answer=True)

    async def ask() -> bool:
        return oldest.request(50) is None

    assert asyncio.run(ask()), "it may go on at once"
    assert not shared.held
