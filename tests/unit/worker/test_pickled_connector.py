"""A worker process reads a connector once, and has it for all its tasks."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.process.open_connectors import OPEN_SECONDS
from lookup_hints.spi import AsyncLookup
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.worker.arrow_worker import arrow_lookup
from tests.unit.engine.support import Clock, plain

cloudpickle = pytest.importorskip("pyspark.cloudpickle")
pytestmark = pytest.mark.usefixtures("worker")
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
NOTEBOOK = """
from lookup_hints.spi import {base}Lookup

client = None

class Mine({base}Lookup):
    openings = 0

    {a}def {o}open(self):
        global client
        client = self.table.name
        type(self).openings += 1

    {a}def {o}lookup(self, request):
        said = f"{{client}} {{self.openings}}"
        return request.keys.append_column("name", [[said] * request.keys.num_rows])
"""
BOTH = pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])


def shipped(asynchronous: bool, name: str = "people") -> bytes:
    """A lookup by a connector whose class was written in a notebook."""
    notebook = ModuleType("__main__")
    words = {"base": "Async", "a": "async ", "o": "a"} if asynchronous else {"base": "Sync", "a": "", "o": ""}
    exec(NOTEBOOK.format(**words), vars(notebook))
    connector = notebook.Mine(LookupTable(name, SCHEMA, options={"connector": "mine"}))
    spec = LookupSpec(connector, ("id",), ("id", "name"), LookupSettings(asynchronous))
    return bytes(cloudpickle.dumps(arrow_lookup(spec)))


def found(function: bytes) -> Any:
    """What a task finds that reads its function as Spark's workers do."""
    return plain(pickle.loads(function)(iter([pa.array([1], pa.int64())])))


@BOTH
def test_what_a_class_of_a_notebook_was_opened_with_is_there_for_each_task(asynchronous: bool) -> None:
    function = shipped(asynchronous)
    assert [found(function) for _ in range(3)] == [[[(1, "people 1")]]] * 3


@BOTH
def test_what_is_open_for_too_long_is_read_anew(asynchronous: bool, clock: Clock) -> None:
    function = shipped(asynchronous)
    for _ in range(3):
        assert found(function)[0][0][1].startswith("people ")
        clock.sleep(OPEN_SECONDS)


def test_two_tables_of_a_process_are_read_once_each() -> None:
    functions = [shipped(True, "people"), shipped(True, "others")]
    for _ in range(3):
        assert [found(function) for function in functions] == [[[(1, "people 1")]], [[(1, "others 1")]]]


class Counting(AsyncLookup):
    """Counts its lookups in an accumulator."""

    def __init__(self, counter: Any) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "counting"}))
        self.counter = counter

    async def alookup(self, request: Any) -> pa.Table:
        self.counter.add(1)
        return SCHEMA.empty_table()


@pytest.mark.parametrize("place", ["nowhere", "before", "behind"])
def test_an_accumulator_counts_for_the_task_that_runs(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    from pyspark import accumulators

    registry: dict[int, Any] = {}
    monkeypatch.setattr(accumulators, "_accumulatorRegistry", registry)
    counter = accumulators.Accumulator(4711, 0, accumulators.AddingAccumulatorParam(0))
    spec = LookupSpec(Counting(counter), ("id",), ("id", "name"), LookupSettings(True))
    function, other = cloudpickle.dumps(arrow_lookup(spec)), cloudpickle.dumps(counter)
    for _ in range(3):
        registry.clear()  # as a worker does at the start of a task
        others = [pickle.loads(other)] if place == "before" else []
        lookup = pickle.loads(function)
        others += [pickle.loads(other)] if place == "behind" else []
        for each in others:
            each.add(10)
        assert plain(lookup(iter([pa.array([1], pa.int64())]))) == [[]]
        assert [each._value for each in registry.values()] == [1 + 10 * len(others)]
