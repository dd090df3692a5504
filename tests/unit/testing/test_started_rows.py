"""The contract notices a connector whose keys end otherwise where they are started together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.spi import (
    AsyncRowLookup,
    ConnectorError,
    LookupRequest,
    LookupTable,
    RowRequest,
    Rows,
    TakeRows,
)
from lookup_hints.testing.row_checks import check_started_rows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TABLE = LookupTable("people", SCHEMA, options={"connector": "people"})
REQUEST = LookupRequest(pa.table({"id": [1, 2, 3, 4, 5]}), SCHEMA, timeout=10.0)


class People(AsyncRowLookup):
    """Key 3 fails, key 4 has two rows and 5 none; ``MOST`` are started at once, and 2 goes on as a coroutine."""

    MOST = 4

    async def alookup_row(self, request: RowRequest) -> Rows:
        return self.rows(request)

    def rows(self, request: RowRequest) -> list[dict[str, Any]]:
        key = request.key["id"]
        if key == 3:
            raise ConnectorError(f"no luck with {key}")
        return [{"name": f"n{key}"}] * {4: 2, 5: 0}.get(key, 1)

    def row_starter(self, take: TakeRows) -> Starter | None:
        return Starter(self, take)


class Starter:
    def __init__(self, people: People, take: TakeRows) -> None:
        self.people, self.take = people, take

    def start(self, requests: Sequence[RowRequest]) -> Sequence[Started]:
        return [Started(self, request) for request in requests[: self.people.MOST]]


class Started:
    def __init__(self, starter: Starter, request: RowRequest) -> None:
        self.starter, self.request = starter, request
        self.handle = asyncio.get_running_loop().call_soon(self.comes)

    def comes(self) -> None:
        people = self.starter.people
        goes_on = self.request.key["id"] == 2
        try:
            outcome: Any = people.alookup_row(self.request) if goes_on else people.rows(self.request)
        except ConnectorError as error:
            outcome = error
        self.starter.take([(self, outcome)])

    def cancel(self) -> None:
        self.handle.cancel()


def test_a_connector_that_keeps_to_it_is_told_how_many_it_started() -> None:
    assert check_started_rows(People(TABLE), REQUEST) >= 12


def test_a_connector_that_starts_none_is_fine() -> None:
    class Waiting(People):
        MOST = 0

    assert check_started_rows(Waiting(TABLE), REQUEST) == 0


class Other(Started):
    """Gives the row of the key before."""

    def comes(self) -> None:
        key = self.request.key["id"]
        self.starter.take([(self, [{"name": f"n{max(key - 1, 1)}"}])])


class Twice(Started):
    """Tells each key twice."""

    def comes(self) -> None:
        super().comes()
        super().comes()


class Forgetful(Started):
    """Loses an error."""

    def comes(self) -> None:
        if self.request.key["id"] == 3:
            self.starter.take([(self, [])])
        else:
            super().comes()


class Undead(Started):
    """Tells of a key that was cancelled."""

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("started", [Other, Twice, Forgetful, Undead])
def test_a_connector_that_does_not_is_found_out(
    started: type[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.testing.test_started_rows.Started", started)
    with pytest.raises(AssertionError):
        check_started_rows(People(TABLE), REQUEST)
