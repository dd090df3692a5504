"""In which parts a table is read, where a source tells them late, wrongly or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Event

import pyarrow as pa
import pytest

from lookup_hints.driver.scan_views import parts_of
from lookup_hints.errors import InternalError
from lookup_hints.process.open_connectors import scanned
from lookup_hints.spi import Connector, Scan
from lookup_hints.spi.request_and_answer import LookupTable

SCHEMA = pa.schema([("id", pa.int64())])
SECRET = "hunter2"
WHOLE = ("",)


class Whole(Connector, Scan):
    """A table that is read whole."""

    def __init__(self) -> None:
        super().__init__(LookupTable("people", SCHEMA, options={"connector": "people"}))

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": 0}], schema)


class Parted(Whole):
    """One in parts, which are told by a function."""

    def __init__(self, tell: Callable[[int], Sequence[str]]) -> None:
        super().__init__()
        self._tell = tell

    def partitions(self, wanted: int) -> Sequence[str]:
        return self._tell(wanted)

    def scan_partition(self, schema: pa.Schema, partition: str) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": int(partition)}], schema)


def failing(_: int) -> Sequence[str]:
    raise OSError(f"cannot reach postgresql://u:{SECRET}@db")


is_over = Event()


@pytest.fixture(autouse=True)
def _over() -> Iterator[None]:
    """Who hangs does so until the test has ended."""
    is_over.clear()
    yield
    is_over.set()


def hanging(_: int) -> Sequence[str]:
    is_over.wait()
    return ("1", "2")


def test_a_source_is_asked_for_its_parts() -> None:
    assert parts_of(Parted(lambda wanted: [str(part) for part in range(wanted)]), 3) == ["0", "1", "2"]


def test_a_source_without_partitions_is_not_asked_for_them() -> None:
    assert parts_of(Whole(), 8) == WHOLE
    assert parts_of(Parted(failing), 1) == WHOLE
    assert parts_of(Parted(lambda _: ()), 8) == WHOLE


@pytest.mark.parametrize(("tell", "why"), [(failing, "OSError"), (hanging, "TimeoutError")])
def test_a_source_that_is_slow_to_give_partitions_is_read_by_one_task_with_a_note(
    caplog: pytest.LogCaptureFixture, tell: Callable[[int], Sequence[str]], why: str
) -> None:
    with caplog.at_level(logging.WARNING, "lookup_hints"):
        assert parts_of(Parted(tell), 8, seconds=0.05) == WHOLE
    (line,) = caplog.messages
    assert f"Table people is read by one task: its parts cannot be known here ({why})" in line
    assert SECRET not in line


def test_what_cannot_be_read_is_a_defect() -> None:
    with pytest.raises(InternalError, match="was planned to be scanned"):
        parts_of(Connector(LookupTable("people", SCHEMA)), 2)


def test_a_worker_reads_the_part_that_it_is_given() -> None:
    def ids(partition: str) -> list[int]:
        batches = scanned(Parted(hanging), SCHEMA, partition)
        return [key for batch in batches for key in batch.column(0).to_pylist()]

    assert (ids("7"), ids("")) == ([7], [0])
