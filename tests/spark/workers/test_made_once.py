"""What a session or an application keeps is made once, and changed by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lookup_hints.driver import functions, statement_scope
from lookup_hints.driver.invalidation import InvalidationLog
from lookup_hints.driver.made_once import MadeOnce
from lookup_hints.errors import DdlError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.tables import catalog
from lookup_hints.tables.ddl import CreateLookupTable, parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A second thread can be seen to get through, but not to be held up: it is given so long.
MOMENT = 0.5


class SecondThread:
    """Does ``work`` on a thread of its own in the middle of what the first thread does."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._work = work
        self._ended = Event()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Called where the first thread has looked, and not yet written; a second call does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()
            self._ended.wait(MOMENT)

    def _run(self) -> None:
        try:
            self.outcome = self._work()
        except Exception as error:
            self.outcome = error
        self._ended.set()

    def ends(self) -> Any:
        """What came of it."""
        assert self._ended.wait(60)
        return self.outcome


def before(second: SecondThread, make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any, **options: Any) -> Any:
        second.begin()
        return make(*arguments, **options)

    return made


def test_two_threads_that_open_a_session_first_share_its_tables(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark.newSession()
    second = SecondThread(lambda: statement_scope.state_of(session))
    monkeypatch.setattr(statement_scope, "LookupCatalog", before(second, catalog.LookupCatalog))
    first = statement_scope.state_of(session)
    assert second.ends() is first


def test_two_threads_that_are_the_first_of_an_application_share_its_counts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "_applications", type(functions._applications)())
    second = SecondThread(lambda: functions._application_of(spark))
    monkeypatch.setattr(functions, "_Application", before(second, functions._Application))
    first = functions._application_of(spark)
    assert second.ends() is first


def test_what_could_not_be_made_is_made_at_the_next_call() -> None:
    made, key = MadeOnce[int](), SecondThread(int)

    def fail() -> int:
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        made.of(key, fail)
    assert made.of(key, lambda: 7) == 7
    assert made.of(key, fail) == 7


def no_setting(_: str) -> None:
    return None


def create(text: str) -> CreateLookupTable:
    ddl = parse_ddl(
        SqlText(f"CREATE TEMPORARY TABLE {text} (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]')")
    )
    assert isinstance(ddl, CreateLookupTable)
    return ddl


@pytest.mark.parametrize("text", ["c", "IF NOT EXISTS c"])
def test_two_threads_that_create_a_table_make_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = catalog.LookupCatalog()
    second = SecondThread(lambda: tables.create(create(text), no_setting))
    monkeypatch.setattr(catalog, "build_connector", before(second, catalog.build_connector))
    try:
        first: Any = tables.create(create(text), no_setting)
    except DdlError as error:
        first = error
    there = tables.find("c")
    outcomes = [first, second.ends()]
    assert any(each is there for each in outcomes)
    for each in outcomes:
        assert each is there or (text == "c" and "exists already" in str(each))
    assert text != "c" or outcomes[0] is not outcomes[1]


def test_a_table_that_another_thread_has_dropped_is_no_error() -> None:
    tables = catalog.LookupCatalog()
    tables.create(create("c"), no_setting)
    tables.drop("c")
    tables.drop("c")
    assert tables.find("c") is None


def test_two_threads_that_take_answers_back_lose_none() -> None:
    table = LookupTable("c", pa.schema([("id", pa.int64())]), ("id",), {})
    second = SecondThread(lambda: log.invalidate(table, ("id",), ((2,),)))

    def clock() -> float:
        second.begin()
        return 0.0

    log = InvalidationLog(clock)
    log.invalidate(table, ("id",), ((1,),))
    second.ends()
    assert sorted(each.keys for each in log.of(table, 60.0)) == [((1,),), ((2,),)]
