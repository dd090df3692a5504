"""What a session has invalidated, and which of it a plan carries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lookup_hints.driver.invalidation import (
    MOST_KEYS,
    MOST_NOTED,
    InvalidationLog,
    invalidation_spec,
    keys_of,
)
from lookup_hints.errors import QueryError
from lookup_hints.lookup_spec import Invalidation
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.tables.catalog import build_connector
from tests.unit.plan.planning import TABLES, context, planned

TABLE = LookupTable("people", pa.schema([("id", pa.int64()), ("day", pa.date32())]), primary_key=("id",))
LONGEST = 600.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(log: InvalidationLog, table: LookupTable = TABLE) -> list[tuple[int, Any]]:
    return [(each.number, each.keys) for each in log.of(table, LONGEST)]


def test_a_plan_carries_invalidations_of_answers_that_may_still_be_cached() -> None:
    clock = Clock()
    log = InvalidationLog(clock)
    assert told(log) == []
    log.invalidate(TABLE, ("id",), ((1,),))
    clock.now += 400
    log.invalidate(TABLE, ("id",), ((2,), (3,)))
    log.invalidate(replace(TABLE, name="others"))
    log.invalidate(TABLE, ("id",), ())
    assert told(log) == [(1, ((1,),)), (2, ((2,), (3,)))]
    clock.now += 400
    assert told(log, replace(TABLE, name="PEOPLE")) == [(2, ((2,), (3,)))]
    log.invalidate(TABLE)
    assert told(log) == [(4, ())]
    clock.now += 601
    assert told(log) == []


def test_of_many_keys_it_carries_the_whole_table() -> None:
    log = InvalidationLog(Clock())
    log.invalidate(TABLE, ("id",), tuple((each,) for each in range(MOST_KEYS)))
    assert len(log.of(TABLE, LONGEST)[0].keys) == MOST_KEYS
    log.invalidate(TABLE, ("id",), ((-1,),))
    assert told(log) == [(2, ())]
    log.invalidate(TABLE, ("id",), ((-2,),))
    assert told(log) == [(2, ()), (3, ((-2,),))]


def test_a_lookup_with_a_cache_hears_of_it() -> None:
    customers = TABLES["customers"]
    taken = (Invalidation("s", 1),)

    def settings(cache: str) -> Any:
        table = replace(customers, options={**customers.options, "lookup.cache": cache})
        using = replace(
            context(tables={**TABLES, "customers": table}),
            invalidations=lambda of, longest: taken if (of.name, longest) == ("customers", 600.0) else (),
        )
        plan = planned("SELECT 1 FROM orders o JOIN customers c ON o.id = c.id", using)
        return plan.joins[0].function.settings

    assert settings("PARTIAL").invalidations == taken
    assert settings("NONE").invalidations == ()


def test_executors_hear_of_it_for_the_cache_that_the_table_has() -> None:
    every, log = TABLES["customers"], InvalidationLog(Clock())
    options = {**every.options, "connector": "memory", "rows": "[]"}
    whole = {"lookup.cache": "FULL", "lookup.full-cache.periodic-reload.interval": "1 d"}
    log.invalidate(every, ("id",), ((1,),))
    for more, is_whole in (
        (whole, True),
        ({"lookup.cache": "PARTIAL"}, False),
        ({"lookup.cache": "FULL"}, False),
    ):
        connector = build_connector(replace(every, options={**options, **more}))
        settings = invalidation_spec(connector, log, lambda _: None).settings
        assert (settings.whole is not None, settings.cache is None) == (is_whole, is_whole)
        assert [each.keys for each in settings.invalidations] == [((1,),)]


def test_keys_are_values_of_the_primary_key() -> None:
    assert keys_of(TABLE, [1, (2,), [2], None]) == ((1,), (2,))
    pair = replace(TABLE, primary_key=("id", "day"))
    assert keys_of(pair, [(1, None)]) == ()
    for wrong in (["secret"], [(1, 2)], [2**70], "1", b"abc", {"id": 1}, 4, pd.DataFrame({"id": [1]})):
        with pytest.raises(QueryError, match="Invalid keys for table people") as error:
            keys_of(TABLE, wrong)  # type: ignore[arg-type]
        assert "secret" not in str(error.value)
    with pytest.raises(QueryError, match="one has 1 values"):
        keys_of(pair, [1])
    with pytest.raises(QueryError, match="Declare PRIMARY KEY"):
        keys_of(replace(TABLE, primary_key=()), [1])


def test_a_text_is_no_list_of_texts() -> None:
    named = replace(TABLE, schema=pa.schema([("id", pa.string())]))
    assert keys_of(named, ["abc"]) == (("abc",),)
    with pytest.raises(QueryError, match=r"Invalid keys for table people: str is not a list of keys\."):
        keys_of(named, "abc")


def test_bytes_that_can_change_are_a_key() -> None:
    binary = replace(TABLE, schema=pa.schema([("id", pa.binary())]))
    assert keys_of(binary, [bytearray(b"ab"), b"ab"]) == ((b"ab",),)


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of this process is the parameter."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


IN_NEW_YORK = pytest.mark.parametrize("zone", ["America/New_York"], indirect=True)
IN_UTC = pytest.mark.parametrize("zone", ["UTC"], indirect=True)


@IN_NEW_YORK
@pytest.mark.usefixtures("zone")
def test_a_time_without_a_zone_is_one_of_this_process() -> None:
    at = replace(TABLE, schema=pa.schema([("id", pa.timestamp("us", "UTC"))]))
    twice = datetime(2025, 11, 2, 1, 30)
    (first,), (second,) = keys_of(at, [twice, twice.replace(fold=1)])
    assert [first, second] == [
        datetime(2025, 11, 2, 5, 30, tzinfo=timezone.utc),
        datetime(2025, 11, 2, 6, 30, tzinfo=timezone.utc),
    ]
    without = replace(TABLE, schema=pa.schema([("id", pa.timestamp("us"))]))
    assert keys_of(without, [twice]) == ((twice,),)


@IN_NEW_YORK
@pytest.mark.usefixtures("zone")
def test_times_of_pandas_and_at_the_ends_of_the_calendar() -> None:
    at = replace(TABLE, schema=pa.schema([("id", pa.timestamp("us", "UTC"))]))
    noon = datetime(2025, 6, 1, 16, tzinfo=timezone.utc)
    assert keys_of(at, [pd.Timestamp(2025, 6, 1, 12), pd.NaT, pd.Timestamp(noon)]) == ((noon,),)
    without = replace(TABLE, schema=pa.schema([("id", pa.timestamp("us"))]))
    assert keys_of(without, [pd.NaT, pd.Timestamp(2025, 6, 1)]) == ((datetime(2025, 6, 1),),)
    with pytest.raises(QueryError, match="Invalid keys for table people"):
        keys_of(at, [datetime(9999, 12, 31, 23)])


@IN_UTC
@pytest.mark.usefixtures("zone")
def test_the_ends_of_the_calendar_are_keys_in_utc() -> None:
    at = replace(TABLE, schema=pa.schema([("id", pa.timestamp("us", "UTC"))]))
    ends = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)]
    assert keys_of(at, ends) == tuple((each.replace(tzinfo=timezone.utc),) for each in ends)


def test_a_session_that_takes_back_keys_for_days_notes_no_more_of_them() -> None:
    clock = Clock()
    log = InvalidationLog(clock)
    for number in range(5 * MOST_NOTED // 100):
        log.invalidate(TABLE, ("id",), tuple((100 * number + each,) for each in range(100)))
        clock.now += 10
    noted = log._noted["people"]
    assert sum(len(each.taken.keys) for each in noted) <= MOST_NOTED
    assert [each.taken.keys for each in noted if not each.taken.columns] == [()], "the older ones, as one"
    assert len(log.of(TABLE, LONGEST)) == LONGEST // 10
    (everything,) = log.of(TABLE, 1e9)
    assert everything.keys == ()
