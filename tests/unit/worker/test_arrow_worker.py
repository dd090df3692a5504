"""The functions that Spark calls, over the real loop thread and clock; nothing here waits."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lookup_hints.engine import adaptive_batch_size as request_size
from lookup_hints.engine import input_window
from lookup_hints.errors import (
    AnswerError,
    AnswerTooLarge,
    ConnectorError,
    InternalError,
    LookupTimeout,
    OptionError,
)
from lookup_hints.lookup_spec import LookupName, LookupSettings, LookupSpec
from lookup_hints.metrics.lookup_metrics import BY_SPARK, CountsByKey, LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import OpenedAsync, Process, scanned
from lookup_hints.process.pickled_connector import PickledConnector
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import TEXT, AsyncLookup, Option, ReportsOutcomes, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable, Outcome
from lookup_hints.spi.secrets import Secret, known_secrets, masked
from lookup_hints.worker import arrow_worker
from lookup_hints.worker.arrow_worker import arrow_lookup, look_up, rows_of_join
from lookup_hints.worker.pandas_worker import pandas_lookup, python_values, wrapping
from tests.unit.engine.support import Asked, Clock, VirtualLoop, plain, rows

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("score", pa.float64())])
DSN = "postgres://app:hunter2@db/people"


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Process:
    """Each test has a worker process of its own, as far as the module can tell."""
    fresh = Process()
    monkeypatch.setattr(process, "this_process", fresh)
    return fresh


class People(AsyncLookup, SyncLookup):
    """Answers ``(id, kind, id / 2)`` for even ids, and counts its openings."""

    opened: ClassVar[list[str]] = []
    closed: ClassVar[list[str]] = []

    def __init__(self, name: str = "people") -> None:
        super().__init__(LookupTable(name, SCHEMA, options={"connector": "people"}))

    def open(self) -> None:
        self.opened.append(self.table.name)

    def lookup(self, request: LookupRequest) -> pa.Table:
        found = [key for key in request.keys.to_pylist() if key["id"] % 2 == 0]
        return pa.Table.from_pylist(
            [{"kind": "a", "score": key["id"] / 2, **key} for key in found], schema=request.schema
        )

    def close(self) -> None:
        self.closed.append(self.table.name)

    async def aopen(self) -> None:
        self.open()

    async def alookup(self, request: LookupRequest) -> pa.Table:
        await asyncio.sleep(0)
        return self.lookup(request)

    async def aclose(self) -> None:
        self.close()


@pytest.fixture(autouse=True)
def no_openings() -> None:
    People.opened.clear()
    People.closed.clear()


def people(*, asynchronous: bool, name: str = "people", keys: tuple[str, ...] = ("id",)) -> LookupSpec:
    return LookupSpec(
        People(name),
        keys,
        ("score", "id"),
        LookupSettings(asynchronous),
        name=LookupName(function="lookup_1"),
    )


def packed(spec: LookupSpec) -> LookupSpec:
    return replace(spec, packed=True)


def ids(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


BOTH = pytest.mark.parametrize("asynchronous", [True, False])


# --- keys in, rows out


@BOTH
def test_one_key_column_comes_as_arrays(asynchronous: bool) -> None:
    spec = people(asynchronous=asynchronous)
    found = list(arrow_lookup(spec)(iter([ids(2, 3), ids(), ids(None, 2)])))
    assert all(lists.type == pa.list_(spec.row_type) for lists in found)
    assert plain(found) == [[(1.0, 2)], [], [], [(1.0, 2)]]


@BOTH
def test_several_key_columns_come_as_tuples(asynchronous: bool) -> None:
    lookup = arrow_lookup(people(asynchronous=asynchronous, keys=("kind", "id")))
    batch = (pa.array(["a", None, "b"]), ids(2, 2, 4))
    assert plain(lookup(iter([batch]))) == [[(1.0, 2)], [], [(2.0, 4)]]


@BOTH
def test_packed_keys_come_as_structs(asynchronous: bool) -> None:
    lookup = arrow_lookup(packed(people(asynchronous=asynchronous, keys=("kind", "id"))))
    batch = pa.StructArray.from_arrays([pa.array(["a", None, "b"]), ids(2, 2, 4)], ["kind", "id"])
    assert plain(lookup(iter([batch]))) == [[(1.0, 2)], [], [(2.0, 4)]]


def test_spark_can_tell_the_kinds_of_function_apart() -> None:
    one = get_type_hints(arrow_lookup(people(asynchronous=True)))
    several = get_type_hints(arrow_lookup(people(asynchronous=True, keys=("kind", "id"))))
    assert one == {"columns": Iterator[pa.Array], "return": Iterator[pa.Array]}
    assert several == {"columns": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    one_struct = get_type_hints(arrow_lookup(packed(people(asynchronous=True, keys=("kind", "id")))))
    assert one_struct == {"structs": Iterator[pa.Array], "return": Iterator[pa.Array]}


def test_a_lookup_travels_to_the_worker_pickled() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    lookup = pickle.loads(cloudpickle.dumps(arrow_lookup(people(asynchronous=True))))
    assert plain(lookup(iter([ids(4)]))) == [[(2.0, 4)]]


def test_no_input_gives_no_output() -> None:
    assert list(arrow_lookup(people(asynchronous=True))(iter([]))) == []
    assert list(arrow_lookup(people(asynchronous=True))(iter([ids()]))) == []


def test_a_window_larger_than_all_batches_keeps_every_row() -> None:
    batches = (pa.array(range(start, start + 700), pa.int64()) for start in range(0, 7000, 700))
    found = plain(arrow_lookup(people(asynchronous=True))(batches))
    assert found == [[(key / 2, key)] if key % 2 == 0 else [] for key in range(7000)]


def test_where_a_limit_may_stop_it_spark_sees_ten_thousand_rows_before_more_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_size, "QUICK_SECONDS", math.inf)  # however long an answer takes here
    monkeypatch.setattr(request_size, "SLOW_SECONDS", math.inf)
    spec = LookupSpec(People(), ("id",), ("id",), LookupSettings(True, stops_early=True))
    reports: list[LookupMetrics] = []
    results: Any = arrow_lookup(spec, lambda _, found: reports.append(found))(
        iter([pa.array(range(40_000), pa.int64())])
    )
    seen = 0
    for lists in results:
        seen += len(lists)
        if len(lists) == 0:
            break
    results.close()
    assert seen == 10_000
    assert [(found.keys, found.requests) for found in reports] == [(10_000, 4)]


def test_spark_is_given_less_time_in_each_further_task_of_a_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(arrow_worker, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    monkeypatch.setattr(arrow_worker, "running_statement", lambda: "7")
    spec = LookupSpec(People(), ("id",), ("id",), LookupSettings(False, stops_early=True))
    for _ in range(3):
        list(arrow_lookup(spec)(iter([pa.array(range(10_001), pa.int64())])))
    assert clock.slept == [1.5, 0.75, 0.375]


def test_a_plan_that_the_connector_cannot_run_is_our_defect() -> None:
    class SyncOnly(SyncLookup):
        def lookup(self, request: LookupRequest) -> pa.Table:
            raise NotImplementedError

    spec = LookupSpec(SyncOnly(LookupTable("t", SCHEMA)), ("id",), ("id",), LookupSettings(True))
    with pytest.raises(InternalError, match="SyncOnly was planned to run async, which it cannot"):
        list(arrow_lookup(spec)(iter([ids(1)])))


class Wide(People):
    """Answers a few keys at a time."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        if request.keys.num_rows > 7:
            raise AnswerTooLarge("too large", keys=7)
        return super().lookup(request)


@BOTH
def test_rows_that_are_too_wide_come_in_smaller_answers(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        input_window, "BUFFER_BYTES", 500
    )  # so that the windows behind the oldest one must wait
    spec = LookupSpec(Wide(), ("id",), ("id",), LookupSettings(asynchronous))
    found = plain(arrow_lookup(spec)(iter([pa.array(range(1500), pa.int64())])))
    assert found == [[(key,)] if key % 2 == 0 else [] for key in range(1500)]


# --- metrics


@BOTH
def test_what_happened_is_reported_once(asynchronous: bool) -> None:
    reports: list[tuple[str, LookupMetrics]] = []
    lookup = arrow_lookup(
        people(asynchronous=asynchronous), lambda name, found: reports.append((name, found))
    )
    list(lookup(iter([ids(2, 2, 3, None)])))
    ((name, found),) = reports
    assert name == "lookup_1"
    assert (found.rows_in, found.rows_out, found.null_key_rows) == (4, 2, 1)
    assert (found.keys, found.requests, found.hits, found.misses) == (2, 1, 1, 1)
    assert found.tasks == 1
    assert 0 < found.waited.total <= found.seconds


@BOTH
def test_a_task_that_is_closed_early_reports_too(asynchronous: bool) -> None:
    reports: list[LookupMetrics] = []
    lookup = arrow_lookup(people(asynchronous=asynchronous), lambda _, found: reports.append(found))
    results: Any = lookup(iter([pa.array(range(2000), pa.int64())] * 3))
    next(results)
    results.close()
    assert [found.keys for found in reports] == [1024]
    [(kind, text)] = reports[0].events.told
    assert kind == "stopped"
    assert text.endswith("(people): stopped after 1,024 keys: Spark wants no more rows")


def test_a_password_that_was_replaced_meanwhile_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renewed(People):
        def open(self) -> None:
            os.environ["PEOPLE_PASSWORD"] = "new-secret"

        def lookup(self, request: LookupRequest) -> pa.Table:
            raise ConnectorError("refused old-secret and new-secret")

        def secrets(self) -> set[str]:
            return {os.environ["PEOPLE_PASSWORD"]}

    monkeypatch.setenv("PEOPLE_PASSWORD", "old-secret")
    reports: list[LookupMetrics] = []
    spec = LookupSpec(Renewed("renewed"), ("id",), ("id",), LookupSettings(False, on_error="null"))
    list(arrow_lookup(spec, lambda _, found: reports.append(found))(iter([ids(1)])))
    [(_, text)] = reports[0].events.told
    assert text.endswith("refused *** and ***")


@BOTH
def test_a_watcher_sees_what_the_task_counts_too(asynchronous: bool) -> None:
    seen: list[LookupMetrics] = []
    with arrow_worker.open_connector(
        people(asynchronous=asynchronous), "watched", process.this_process
    ) as opened:
        spec = people(asynchronous=asynchronous).over(opened.connector)
        batches = ((pa.array(range(start, start + 1024), pa.int64()),) for start in range(0, 4096, 1024))
        task = arrow_worker._Task(spec, opened, batches, lambda counts, waiting: seen.append(counts))
        for _ in task.results():
            time.sleep(0.6)
    assert len(seen) >= 2
    assert seen[-1].rows_found > 0
    assert seen[-1].waited.counts["writing"] >= 0.6
    assert all(counts.waited.total <= counts.seconds for counts in seen)


def test_requests_in_flight_are_cancelled_when_sparks_input_fails() -> None:
    asked = threading.Event()
    cancelled: list[int] = []

    class Stuck(People):
        async def alookup(self, request: LookupRequest) -> pa.Table:
            if request.keys.num_rows == 24:  # the end of the first window of 1024 rows
                return self.lookup(request)
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.keys.num_rows)
                raise
            raise AssertionError("nobody wakes it")

    def batches() -> Iterator[tuple[pa.Array]]:
        yield (pa.array(range(1024), pa.int64()),)
        assert asked.wait(60)
        raise EOFError("spark")

    spec = LookupSpec(Stuck(), ("id",), ("id",), LookupSettings(True, batch_size=1000))
    with pytest.raises(EOFError):
        list(look_up(spec, "stuck", batches(), None))
    assert cancelled == [1000]


@pytest.mark.parametrize(("kind", "rows"), [("INNER", 3), ("LEFT", 5), ("LEFT SEMI", 2), ("LEFT ANTI", 2)])
def test_rows_of_the_join_are_counted_by_its_kind(kind: str, rows: int) -> None:
    lists = pa.array([[1, 2], [3], [], None, []], pa.list_(pa.int64()))
    assert rows_of_join(lists, kind) == (3, rows)
    assert rows_of_join(lists[:0], kind) == (0, 0)


@BOTH
def test_rows_of_a_left_join_are_counted(asynchronous: bool) -> None:
    reports: list[LookupMetrics] = []
    spec = replace(people(asynchronous=asynchronous), kind="LEFT")
    list(arrow_lookup(spec, lambda _, found: reports.append(found))(iter([ids(2, 2, 3, None)])))
    assert [(found.rows_out, found.rows_found) for found in reports] == [(4, 2)]


@BOTH
def test_what_spark_takes_its_time_for_is_counted(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(arrow_worker, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))

    def batches() -> Iterator[pa.Array]:
        for _ in range(2):
            clock.sleep(3.0)
            yield pa.array(range(1024), pa.int64())

    reports: list[LookupMetrics] = []
    lookup = arrow_lookup(people(asynchronous=asynchronous), lambda _, found: reports.append(found))
    for _ in lookup(batches()):
        clock.sleep(5.0)
    [found] = reports
    by_spark = {cause: found.waited.counts[cause] for cause in BY_SPARK}
    assert by_spark == {"reading": 6.0, "writing": 10.0}
    assert found.seconds == 16.0


def test_metrics_add_up() -> None:
    one = LookupMetrics(rows_in=1, hits=2, waited=CountsByKey({"source": 0.5}))
    assert one + one == LookupMetrics(rows_in=2, hits=4, waited=CountsByKey({"source": 1.0}))
    assert one + one - one == one


# --- the process


@BOTH
def test_a_connector_is_opened_once_and_shared_by_tasks(asynchronous: bool) -> None:
    for _ in range(3):
        list(arrow_lookup(people(asynchronous=asynchronous))(iter([ids(2)])))
    list(arrow_lookup(people(asynchronous=asynchronous, name="others"))(iter([ids(2)])))
    assert People.opened == ["people", "others"]


@BOTH
def test_a_task_without_keys_opens_nothing(asynchronous: bool) -> None:
    list(arrow_lookup(people(asynchronous=asynchronous))(iter([ids(None)])))
    assert People.opened == []


class TellingPeople(People, ReportsOutcomes):
    """Whatever it is asked on a worker, it says whether it is the one that was opened."""

    is_open = False

    def open(self) -> None:
        self.is_open = True

    def requests_at_once(self) -> int:
        return 7 if self.is_open else 8

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table:
        assert self.is_open, "asked before it was opened"
        said = [{**key, "score": -float(outcome.attempts)} for key in keys.to_pylist()]
        return pa.Table.from_pylist(said, schema=schema)


@BOTH
def test_a_warm_process_tells_outcomes_by_the_connector_that_it_has_opened(asynchronous: bool) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    lookup_of = LookupSpec(TellingPeople(), ("id",), ("score", "id"), LookupSettings(asynchronous))
    shipped = cloudpickle.dumps(arrow_lookup(lookup_of))
    for _ in range(3):
        lookup = pickle.loads(shipped)
        assert plain(lookup(iter([ids(2, 3)]))) == [[(1.0, 2)], [(-1.0, 3)]]


@BOTH
def test_two_tasks_of_one_process_at_once_share_what_is_opened(asynchronous: bool) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    lookup_of = LookupSpec(TellingPeople(), ("id",), ("score", "id"), LookupSettings(asynchronous))
    shipped = cloudpickle.dumps(arrow_lookup(lookup_of))
    tasks = [pickle.loads(shipped)(iter([ids(1, 2), ids(3)])) for _ in range(2)]
    for found in zip(*zip(*tasks, strict=True), strict=True):  # both under way together
        assert plain(found) == [[(-1.0, 1)], [(1.0, 2)], [(-1.0, 3)]]


@BOTH
def test_connectors_that_are_idle_longest_are_closed(asynchronous: bool) -> None:
    names = [f"people_{number}" for number in range(process.IDLE_CONNECTORS + 2)]
    for name in names:
        list(arrow_lookup(people(asynchronous=asynchronous, name=name))(iter([ids(2)])))
    assert People.closed == names[:2]


def test_a_connector_in_use_is_not_closed(fresh_process: Process) -> None:
    with fresh_process.opened("busy", partial(People, "busy"), asynchronous=False) as busy:
        for number in range(process.IDLE_CONNECTORS + 2):
            with fresh_process.opened(str(number), partial(People, str(number)), asynchronous=False):
                pass
        with fresh_process.opened("busy", partial(People, "busy"), asynchronous=False) as same:
            assert same is busy


class Watched(People):
    """While it is asked what opening reads, another task of its process ends."""

    def opened_with(self) -> str:
        with process.this_process.opened("other", partial(People, "other"), asynchronous=False):
            return "the same"


@BOTH
def test_a_connector_that_is_compared_is_not_closed(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = arrow_lookup(replace(people(asynchronous=asynchronous), connector=Watched()))
    assert plain(lookup(iter([ids(2)]))) == [[(1.0, 2)]]
    monkeypatch.setattr(process, "IDLE_CONNECTORS", 0)
    found = lookup(iter([ids(2)]))
    assert next(found).to_pylist() == [[{"score": 1.0, "id": 2}]]
    assert People.opened == ["people"]
    assert People.closed == []
    list(found)
    assert People.closed == ["people"]


def test_a_connector_whose_close_fails_fails_nobody(
    fresh_process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: People) -> None:
        raise OSError("gone")

    monkeypatch.setattr(People, "close", fail)
    monkeypatch.setattr(process, "IDLE_CONNECTORS", 0)
    assert plain(arrow_lookup(people(asynchronous=False))(iter([ids(2)]))) == [[(1.0, 2)]]


@BOTH
def test_an_opening_that_failed_is_tried_again(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def refuse_once(self: People) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("connection refused")

    monkeypatch.setattr(People, "open", refuse_once)
    lookup = arrow_lookup(people(asynchronous=asynchronous))
    with pytest.raises(ConnectorError, match="connection refused"):
        list(lookup(iter([ids(2)])))
    assert plain(lookup(iter([ids(2)]))) == [[(1.0, 2)]]


def test_a_lookup_out_of_time_leaves_the_opening_to_the_others(fresh_process: Process) -> None:
    class SlowToOpen(People):
        async def aopen(self) -> None:
            await asyncio.sleep(5.0)
            self.opened.append(self.table.name)

    loop = VirtualLoop()
    opened = OpenedAsync(SlowToOpen(), fresh_process.loop)
    request = LookupRequest(pa.table({"id": ids(2)}), pa.schema([("id", pa.int64())]))

    async def lookups() -> pa.Table:
        patient = asyncio.create_task(opened.lookup(request))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(opened.lookup(request), 1.0)
        return await patient

    assert loop.call(lookups()).num_rows == 1
    assert People.opened == ["people"]
    assert loop.time() == 5.0
    loop.close()


def test_equal_connectors_have_one_identity_and_others_another() -> None:
    assert PickledConnector.of(People()).identity == PickledConnector.of(People()).identity
    assert PickledConnector.of(People()).identity != PickledConnector.of(People("others")).identity


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_worker_starts_a_loop_of_its_own(fresh_process: Process) -> None:
    async def answer() -> int:
        return os.getpid()

    assert fresh_process.loop.call(answer()) == os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what we test
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)  # whatever happens, this is not a second run of the tests
            is_own = process.this_process is not fresh_process
            is_alive = process.this_process.loop.call(answer()) == os.getpid()
            code = 0 if is_own and is_alive else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# --- secrets


class Guarded(SyncLookup):
    """A connector whose every lookup fails as given, with options that hold secrets."""

    OPTIONS = (Option("url", TEXT, "", secret=True), Option("token", TEXT, ""), Option("user", TEXT, ""))

    def __init__(self, failure: Exception) -> None:
        options = {"connector": "guarded", "url": DSN, "token": "${env:PEOPLE_TOKEN}", "user": "${conf:u}"}
        super().__init__(LookupTable("people", SCHEMA, options=options, conf={"u": Secret("conf-secret")}))
        self.failure = failure

    def lookup(self, request: LookupRequest) -> pa.Table:
        try:
            raise ValueError(f"inner {DSN} t0ken-value")
        except ValueError as cause:
            raise self.failure from cause


def shown(error: BaseException) -> str:
    """All that a log may show of an error, its causes and the arguments of both."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    assert all(one.__context__ is None for one in chain)
    return "".join(traceback.format_exception(error)) + repr([one.args for one in chain])


@pytest.mark.parametrize(
    "failure",
    [
        OSError(f"cannot connect to {DSN} with t0ken-value as conf-secret"),
        ConnectorError("password hunter2 refused", permanent=True),
        ConnectorError("t0ken-value expired"),
        AnswerError("the answer holds t0ken-value"),
        LookupTimeout("hunter2 was too slow"),
    ],
)
def test_no_error_shows_a_secret(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEOPLE_TOKEN", "t0ken-value")
    spec = LookupSpec(Guarded(failure), ("id",), ("id",), LookupSettings(False))
    with pytest.raises(ConnectorError) as raised:
        list(arrow_lookup(spec)(iter([ids(1)])))
    text = shown(raised.value)
    assert "***" in text
    assert not any(secret in text for secret in ("hunter2", "t0ken-value", "conf-secret"))
    assert "ValueError: inner" in text  # the story is told to its end
    assert type(raised.value) in (ConnectorError, AnswerError, LookupTimeout)


def test_a_foreign_error_keeps_its_kind_and_place() -> None:
    try:
        raise ZeroDivisionError("by hunter2")
    except ZeroDivisionError as error:
        clean = masked(error, lambda text: text.replace("hunter2", "***"))
    assert str(clean).startswith("ZeroDivisionError: by *** (at ")
    assert str(clean).endswith(", in test_a_foreign_error_keeps_its_kind_and_place)")


def test_a_group_of_errors_tells_of_each() -> None:
    class Group(Exception):  # as ExceptionGroup, which Python 3.10 lacks
        exceptions = (OSError("one"), ValueError("two"))

    assert str(masked(Group("many"), str)) == "Group: many; OSError: one; ValueError: two"


def test_an_unreadable_reference_is_an_option_error_and_still_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PEOPLE_TOKEN", raising=False)
    connector = Guarded(OSError())
    assert known_secrets(connector) >= {DSN, "conf-secret"}
    spec = LookupSpec(connector, ("id",), ("id",), LookupSettings(False, on_error="null"))
    monkeypatch.setattr(Guarded, "lookup", lambda self, request: self.table.read(self.OPTIONS))
    with pytest.raises(OptionError, match="PEOPLE_TOKEN"):
        list(arrow_lookup(spec)(iter([ids(1)])))


def test_a_missing_driver_is_named_and_never_retried() -> None:
    def answer(request: LookupRequest) -> pa.Table:
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    connector = Asked(answer)
    retry = FixedDelay(3, 1000.0).if_exception()
    spec = LookupSpec(connector, ("id",), ("name",), LookupSettings(True, retry=retry))
    with pytest.raises(
        ConnectorError, match=r"needs the Python module 'asyncpg'.* failed after 1 attempt"
    ) as raised:
        list(arrow_lookup(spec)(iter([ids(1)])))
    assert not isinstance(raised.value, LookupTimeout)


def test_an_error_of_sparks_input_passes_as_it_is() -> None:
    def batches() -> Iterator[pa.Array]:
        yield ids(2)
        raise EOFError("spark")

    with pytest.raises(EOFError, match="spark"):
        list(arrow_lookup(people(asynchronous=True))(batches()))


# --- scans


class Scanned(People, Scan):
    """Gives one batch, then fails as told."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.table = LookupTable("people", SCHEMA, options={"connector": "people", "url": DSN})
        self.failure = failure

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"more": 1, "id": 2, "kind": "a"}])
        if self.failure is not None:
            raise self.failure


def test_a_scan_gives_the_columns_wanted() -> None:
    schema = pa.schema([("kind", pa.string()), ("id", pa.int32())])
    (batch,) = scanned(Scanned(), schema)
    assert batch.schema == schema
    assert batch.to_pylist() == [{"kind": "a", "id": 2}]


def test_a_scan_that_fails_shows_no_secret() -> None:
    with pytest.raises(ConnectorError, match="OSError: cannot reach") as raised:
        list(scanned(Scanned(OSError(f"cannot reach {DSN}")), pa.schema([("id", pa.int64())])))
    assert "hunter2" not in shown(raised.value)


def test_a_scan_without_its_driver_names_it() -> None:
    failure = ModuleNotFoundError("No module named 'adbc'", name="adbc")
    with pytest.raises(ConnectorError, match="needs the Python module 'adbc'"):
        list(scanned(Scanned(failure), pa.schema([("id", pa.int64())])))


# --- pandas


@BOTH
def test_pandas_answers_as_arrow_does(asynchronous: bool) -> None:
    lookup = pandas_lookup(people(asynchronous=asynchronous))
    found = list(lookup(iter([pd.Series(["2", "3"]), pd.Series([None, "2"])])))
    assert [row for series in found for row in series] == [[(1.0, 2)], [], [], [(1.0, 2)]]


def test_pandas_takes_several_key_columns() -> None:
    lookup = pandas_lookup(people(asynchronous=True, keys=("kind", "id")))
    batch = (pd.Series(["a", None]), pd.Series(["2", "2"]))
    assert [row for series in lookup(iter([batch])) for row in series] == [[(1.0, 2)], []]


def test_pandas_takes_packed_keys() -> None:
    lookup = pandas_lookup(packed(people(asynchronous=True, keys=("kind", "id"))))
    batch = pd.DataFrame({"kind": ["a", None], "id": ["2", "2"]})
    assert [row for series in lookup(iter([batch])) for row in series] == [[(1.0, 2)], []]


def test_spark_can_tell_the_kinds_of_pandas_function_apart() -> None:
    one_struct = get_type_hints(pandas_lookup(packed(people(asynchronous=True, keys=("kind", "id")))))
    assert one_struct == {"frames": Iterator[pd.DataFrame], "return": Iterator[pd.Series]}
    several = get_type_hints(pandas_lookup(people(asynchronous=True, keys=("kind", "id"))))
    assert get_type_hints(pandas_lookup(people(asynchronous=True))) == {
        "series": Iterator[pd.Series],
        "return": Iterator[pd.Series],
    }
    assert several == {"series": Iterator[tuple[pd.Series, ...]], "return": Iterator[pd.Series]}


@pytest.mark.parametrize(
    ("kind", "given", "asked"),
    [
        (pa.int64(), "9007199254740993", 2**53 + 1),
        (pa.float64(), "4.9E-324", 5e-324),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.float32(), "3.4028235E38", 3.4028234663852886e38),
        (pa.timestamp("us", "UTC"), "-1", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc)),
        (pa.timestamp("us"), "9999-12-31 23:59:59.1", datetime(9999, 12, 31, 23, 59, 59, 100000)),
        (pa.int32(), 7, 7),
        (pa.date32(), date(1, 1, 1), date(1, 1, 1)),
    ],
)
def test_keys_that_pandas_cannot_hold_travel_as_text(kind: pa.DataType, given: object, asked: object) -> None:
    assert (wrapping(kind) != ("", "")) == isinstance(given, str)
    seen: list[object] = []

    def answer(request: LookupRequest) -> pa.Table:
        seen.extend(request.keys.column("k").to_pylist())
        return rows(schema=schema)

    schema = pa.schema([("k", kind), ("name", pa.string())])
    spec = LookupSpec(Asked(answer, schema), ("k",), ("name",), LookupSettings(False))
    list(pandas_lookup(spec)(iter([pd.Series([given, None], dtype=object)])))
    assert seen == [asked]


def test_values_for_spark_keep_nulls_misses_and_rows_without_columns() -> None:
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    lists = pa.array([[{"a": 1, "b": None}, {"a": 2, "b": "x"}], None, []], kind)
    assert python_values(lists) == [[(1, None), (2, "x")], None, []]
    assert python_values(lists.slice(1)) == [None, []]
    assert python_values(pa.array([[{}, {}], []], pa.list_(pa.struct([])))) == [[(), ()], []]


def test_nested_values_for_spark() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.float64()))), ("n", pa.float32())])
    column = pa.array([{"m": [("k", [float("nan"), None]), ("none", None)], "n": 0.5}, None], kind)
    values = python_values(column)
    assert repr(values) == repr([({"k": [np.float32("nan"), None], "none": None}, 0.5), None])
    assert (
        pa.Array.from_pandas(
            pd.Series([[np.float32("nan"), None]]), type=pa.list_(pa.float64())
        ).values.null_count
        == 1
    )


def test_the_worker_imports_neither_the_planner_nor_spark() -> None:
    code = "import sys, lookup_hints.worker.arrow_worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names = {name.split(".")[0] for name in loaded.stdout.split()}
    assert names.isdisjoint({"sqlglot", "pyspark", "pandas"})
    assert "lookup_hints.plan" not in loaded.stdout
