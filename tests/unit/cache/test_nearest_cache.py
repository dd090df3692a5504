"""Nearest rows as Spark's workers look them up: in a table that is kept whole, from caches, and from the source."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lookup_hints.cache import full_cache, open_caches
from lookup_hints.engine.arrow import whole
from lookup_hints.engine.nearest_rows import NearestRows
from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import (
    FullCache,
    Invalidation,
    LookupSettings,
    LookupSpec,
    PartialCache,
    PeriodicReload,
)
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.retry import FixedDelay
from lookup_hints.spi import Answer, NearestCondition, PlacedRows, Scan, SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.unit.engine.support import plain

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "shop": pa.string(),
        "at": pa.int64(),
        "x": pa.float64(),
        "y": pa.float64(),
        "v": pa.list_(pa.float32()),
    }
)
FOR_RUN = FullCache(PeriodicReload(inf), max_bytes=2**26)
FULL = FullCache(PeriodicReload(600.0), max_bytes=2**26)
VECTOR = NearestCondition(("v",), "l2", 1, ties=("id",))
POINT = NearestCondition(("x", "y"), "euclidean", 2, ties=("id",))
NUMBER = NearestCondition(("at",), "difference", 2, ties=("id",))
ROWS = [
    (1, "a", 10, 0.0, 0.0, [1.0, 0.0]),
    (2, "a", 20, 1.0, 0.0, [0.0, 1.0]),
    (3, "b", 20, 5.0, 5.0, [3.0, 3.0]),
    (4, "b", None, None, 1.0, [None, 3.0]),
    (5, "a", 30, 9.0, 9.0, None),
]


class Things(SyncLookup, Scan):
    """A table that counts how often it is read and asked."""

    def __init__(self, rows: list[tuple[Any, ...]] = ROWS) -> None:
        super().__init__(LookupTable("things", SCHEMA, ("id",), {"connector": "things"}))
        self.rows, self.reads, self.failures = rows, 0, 0
        self.requests: list[LookupRequest] = []

    def table_of(self, schema: pa.Schema) -> pa.Table:
        columns = [list(column) for column in zip(*self.rows, strict=True)]
        return pa.table(columns, schema=SCHEMA).select(schema.names)

    def lookup(self, request: LookupRequest) -> Answer:
        self.requests.append(request)
        if self.failures:
            self.failures -= 1
            raise ConnectorError("it is busy")
        if request.nearest is None:
            keys = request.keys.column(0).to_pylist()
            return pa.concat_tables(
                self.table_of(SCHEMA).filter(pa.array([row[1] == key for row in self.rows])) for key in keys
            ).select(request.schema.names)
        searched = NearestRows(
            self.table_of(SCHEMA), np.zeros(len(self.rows), np.int64), request.nearest, "t"
        )
        found = searched.answering(np.zeros(len(request.keys), np.int64), whole(request.keys.columns[-1]))
        counts = np.diff(found.ends.to_numpy(), prepend=0)
        rows = self.table_of(request.schema).take(found.rows)
        return PlacedRows(rows, pa.array(np.repeat(np.arange(len(counts)), counts), pa.int32()))

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        yield from self.table_of(schema).to_batches(max_chunksize=2)


@pytest.fixture(autouse=True)
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Process) -> Path:
    """The folder of an executor, in which this process is a worker of the run 1."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(open_caches, "running_part", lambda: "1")
    return tmp_path


def run(
    things: Things,
    order: NearestCondition,
    *values: Any,
    by: list[str] | None = None,
    asked: bool = False,
    **settings: Any,
) -> tuple[list[list[int]], LookupMetrics]:
    """The ids that a task finds for ``values``, and what it counted."""
    reports: list[LookupMetrics] = []
    spec = LookupSpec(
        things,
        ("shop",) if by is not None else (),
        ("id",),
        LookupSettings(False, **settings),
        order=order,
        order_asked=asked,
    )
    kind = spec.argument_schema.types[-1]
    if pa.types.is_struct(kind):
        values = tuple(value and dict(zip("xy", value, strict=True)) for value in values)
    arguments = ([pa.array(by, pa.string())] if by is not None else []) + [pa.array(values, kind)]
    found = plain(look_up(spec, "it", iter([arguments]), lambda _, counts: reports.append(counts)))
    return [sorted(each for (each,) in rows or ()) for rows in found], reports[0]


def test_a_table_that_is_kept_whole_is_searched_for_each_value_once() -> None:
    things = Things()
    found, counts = run(things, VECTOR, [1.0, 0.1], None, [2.0, 3.0], [1.0, 0.1], [1.0, None], whole=FOR_RUN)
    assert found == [[1], [], [3], [1], []]
    assert (counts.cache_loads, counts.requests, counts.cache_hits, counts.rows_found) == (1, 0, 2, 3)
    assert run(things, POINT, (0.4, 0.0), (None, 0.0), None, (8.0, 8.0), whole=FOR_RUN)[0] == [
        [1, 2],
        [],
        [],
        [3, 5],
    ]
    assert run(things, NUMBER, 15, 21, 15, whole=FOR_RUN)[0] == [[1, 2], [2, 3], [1, 2]]
    assert things.reads == 3
    process.this_process = Process()
    assert run(things, NUMBER, 20, whole=FOR_RUN)[0] == [[2, 3]]
    assert things.reads == 3


def test_a_full_cache_is_searched_until_it_is_invalidated() -> None:
    things = Things()
    for _ in range(2):
        assert run(things, VECTOR, [0.0, 2.0], whole=FULL)[0] == [[2]]
    assert things.reads == 1
    things.rows = [(9, "a", 1, 1.0, 1.0, [0.0, 2.0]), *ROWS]
    told = (Invalidation("s", 1, ("id",), ((9,),)),)
    assert run(things, VECTOR, [0.0, 2.0], whole=FULL, invalidations=told)[0] == [[9]]
    assert things.reads == 2


def test_few_values_are_searched_for_at_once_where_many_rows_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_cache, "WINDOW_BYTES", 2000)
    things = Things([(number, "a", number, 0.0, 0.0, [1.0, 2.0]) for number in range(100)])
    order = NearestCondition(("at",), "difference", 50, ties=("id",))
    found, counts = run(things, order, *range(40), whole=FOR_RUN)
    assert [len(each) for each in found] == [50] * 40
    assert counts.rows_found == 2000


def test_a_table_that_cannot_be_read_or_searched_fails_the_task() -> None:
    things = Things()
    with pytest.raises(
        ConnectorError, match=r"^table things: v has a vector of 2 numbers, and is compared with"
    ):
        run(things, VECTOR, [1.0, 2.0, 3.0], whole=FOR_RUN)
    things.rows = [(1, "a", "no number", 0.0, 0.0, None)]
    with pytest.raises(
        ConnectorError, match=r"things could not be read whole, for the nearest rows that are"
    ):
        run(things, NUMBER, 1, whole=FULL)


def test_all_rows_of_a_key_are_cached_and_the_worker_chooses() -> None:
    for settings in ({"cache": PartialCache(600.0)}, {"whole": FULL}):
        things = Things()
        found, _ = run(things, POINT, (0.0, 0.0), (5.0, 5.0), (0.0, 0.0), by=["a", "a", "b"], **settings)
        assert found == [[1, 2], [2, 5], [3]]
        again, counts = run(things, POINT, (9.0, 9.0), by=["a"], **settings)
        assert again == [[2, 5]]
        assert (counts.requests, counts.cache_hits) == (0, 1)


@pytest.mark.parametrize(
    ("order", "values", "due"),
    [
        (VECTOR, ([1.0, 0.1], [0.0, 1.0], [1.0, 0.1], None, [None, 0.0]), [[1], [2], [1], [], []]),
        (POINT, ((1.0, 1.0), None, (6.0, 6.0), (1.0, 1.0), (1.0, None)), [[1, 2], [], [3, 5], [1, 2], []]),
        (NUMBER, (15, 20, 15), [[1, 2], [2, 3], [1, 2]]),
    ],
)
def test_the_source_is_asked_for_each_value_once_and_its_answers_are_cached(
    order: NearestCondition, values: tuple[Any, ...], due: list[list[int]]
) -> None:
    things = Things()
    cached: dict[str, Any] = {"cache": PartialCache(600.0, missing_ttl=600.0)}
    assert run(things, order, *values, asked=True, **cached)[0] == due
    (request,) = things.requests
    assert request.nearest == order
    assert request.order is None
    assert request.keys.num_rows == 2
    assert request.key_columns == ()
    found, counts = run(things, order, *values, asked=True, **cached)
    assert found == due
    assert (counts.requests, counts.cache_hits) == (0, 2)
    more = NearestCondition(order.columns, order.metric, 3, ties=("id",))
    assert len(run(things, more, *values, asked=True, **cached)[0][0]) == 3


def test_a_request_for_nearest_rows_is_tried_again_after_a_miss_and_a_failure() -> None:
    things = Things()
    things.failures = 1
    retry = FixedDelay(3, 0.01).if_exception()
    found, counts = run(things, VECTOR, [1.0, 0.1], asked=True, retry=retry)
    assert found == [[1]]
    assert (counts.requests, counts.retried_keys) == (2, 1)
    things.rows = [(4, "b", 1, 1.0, 1.0, None)]
    found, counts = run(things, VECTOR, [1.0, 0.1], asked=True, retry=FixedDelay(3, 0.01).if_miss())
    assert found == [[]]
    assert (counts.requests, counts.misses) == (4, 1)
