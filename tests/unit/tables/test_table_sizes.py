"""Sizes of tables are asked for in a second, and remembered for a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Event

import pyarrow as pa
import pytest

from lookup_hints.driver.table_sizes import TableSizes
from lookup_hints.spi import Connector, LookupTable, Statistics, TableSize

SECRET = "hunter2"


def people() -> LookupTable:
    return LookupTable("People", pa.schema([("id", pa.int64())]), options={"connector": "people"})


class Sized(Connector, Statistics):
    """A connector that tells the size by a function, and counts how often it was asked."""

    def __init__(self, tell: Callable[[], TableSize], table: LookupTable) -> None:
        super().__init__(table)
        self._tell = tell
        self.asked = 0

    def statistics(self) -> TableSize:
        self.asked += 1
        return self._tell()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_size_is_remembered_for_a_minute() -> None:
    clock, table = Clock(), people()
    sizes, connector = TableSizes(clock=clock), Sized(lambda: TableSize(7, None, "told"), table)
    asked = []
    for clock.now in (0.0, 59.0, 60.0, 61.0):
        assert sizes.of(connector).rows == 7
        asked.append(connector.asked)
    assert asked == [1, 1, 2, 2]


def test_a_table_that_was_created_anew_is_asked_for_anew() -> None:
    sizes = TableSizes(clock=Clock())
    before, after = (Sized(partial(TableSize, rows, None, "told"), people()) for rows in (1, 2))
    assert [sizes.of(before).rows, sizes.of(after).rows] == [1, 2]


def test_an_exact_size_is_asked_for_each_time() -> None:
    connector = Sized(lambda: TableSize(7, None, "counted", exact=True), people())
    sizes = TableSizes(clock=Clock())
    assert [sizes.of(connector).rows, sizes.of(connector).rows, connector.asked] == [7, 7, 2]


def failing() -> TableSize:
    raise OSError(f"cannot reach postgresql://u:{SECRET}@db")


is_over = Event()


@pytest.fixture(autouse=True)
def _over() -> Iterator[None]:
    """Who hangs does so until the test has ended."""
    is_over.clear()
    yield
    is_over.set()


def hanging() -> TableSize:
    is_over.wait()
    return TableSize(7, None, "too late")


@pytest.mark.parametrize(
    ("tell", "why"),
    [(failing, "the source did not say it (OSError)"), (hanging, "the source did not say it within 0.05 s")],
)
def test_who_does_not_say_it_in_time_is_not_asked_again_soon(tell: Callable[[], TableSize], why: str) -> None:
    sizes, connector = TableSizes(0.05, Clock()), Sized(tell, people())
    assert [sizes.of(connector), sizes.of(connector)] == [TableSize(None, source=why)] * 2
    assert connector.asked == 1


def test_a_connector_without_statistics_says_so() -> None:
    told = TableSizes().of(Connector(people()))
    assert told == TableSize(None, source="connector 'people' has no statistics")


@pytest.mark.parametrize(("rows", "size"), [(-1, None), (None, -1)])
def test_no_table_has_fewer_than_no_rows(rows: int | None, size: int | None) -> None:
    with pytest.raises(ValueError, match="a table cannot have"):
        TableSize(rows, size)
