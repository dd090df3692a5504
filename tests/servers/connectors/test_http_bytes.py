"""Large answers of HTTP, many at once: the budget bounds what they hold, and fails nobody."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from lookup_connectors.http import HttpConnector

from lookup_hints.spi.request_and_answer import LookupTable, RowRequest
from tests.servers.connectors.http_asking import SCHEMA, during, rows_of, table_of
from tests.servers.http_server import Api
from tests.unit.connectors.asking import request_for

LARGE = {"status": 200, "body": {"name": "n", "more": "x" * 300_000}}


def large(api: Api, keys: int, *, delay: float = 0.0, **options: str) -> LookupTable:
    """A table whose first keys have large answers."""
    for key in range(keys):
        api.script(f"/large/{key}", {**LARGE, "delay": delay})
    return table_of(api, "/large/{id}", **options)


async def name_of(connector: HttpConnector, key: int) -> str:
    """What was found for ``key``; it is let go at once, as by the engine."""
    rows = await connector.alookup_row(RowRequest({"id": key}, SCHEMA))
    assert not hasattr(rows, "note"), "a miss"
    return str(rows[0].row["name"])


def held_at_most(table: LookupTable, keys: int) -> int:
    """The most bytes that were counted while ``keys`` were asked together."""

    async def ask(connector: HttpConnector) -> int:
        budget = connector._opened_source.client.budget
        tasks = [asyncio.ensure_future(name_of(connector, key)) for key in range(keys)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, budget.held)
            await asyncio.sleep(0)
        assert [task.result() for task in tasks] == ["n"] * keys
        assert budget.held == 0
        return most

    return during(table, ask)


def test_answers_together_hold_no_more_than_the_budget_and_one_of_them(api: Api) -> None:
    text, parsed = 300_000, 8 * 300_000
    bounded = large(api, 30, delay=0.3, max_bytes_in_flight="1 mb")
    assert held_at_most(bounded, 30) <= 1024 * 1024 + text + parsed


def test_requests_wait_when_their_answers_are_known_to_be_large(api: Api) -> None:
    table = large(api, 6, delay=0.4, max_bytes_in_flight="500 kb", request_timeout="1500 ms")

    async def ask(connector: HttpConnector) -> None:
        await name_of(connector, 0)
        await asyncio.gather(*(name_of(connector, key) for key in range(1, 6)))

    during(table, ask)
    times = [each["time"] for each in api.asked()]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) > 0.3, "one after the other, and the wait is not a part of 'request-timeout'"


@pytest.mark.parametrize("many", [False, True])
def test_a_request_of_many_keys_never_waits_for_itself(api: Api, many: bool) -> None:
    table = large(api, 8, max_bytes_in_flight="1 kb")
    if many:
        rows = [{"id": key, "name": "n", "more": "x" * 300_000} for key in range(8)]
        api.script("/large/0,1,2,3,4,5,6,7", {"status": 200, "body": rows})
        table = table_of(api, "/large/{id}", max_bytes_in_flight="1 kb", keys_per_request="8")

    async def ask(connector: HttpConnector) -> list[dict[str, Any]]:
        return rows_of(await connector.alookup(request_for(SCHEMA, {"id": list(range(8))})))

    assert during(table, ask) == [{"id": key, "name": "n"} for key in range(8)]


def test_who_is_cancelled_gives_back_what_it_held(api: Api) -> None:
    table = large(api, 6, max_bytes_in_flight="200 kb")
    api.script("/large/9", {"hang": True})

    async def ask(connector: HttpConnector) -> int:
        budget = connector._opened_source.client.budget
        tasks = [asyncio.ensure_future(name_of(connector, key)) for key in (9, 0, 1, 2, 3)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await name_of(connector, 5) == "n"
        return budget.held

    assert during(table, ask) == 0
