"""The pause after the first rows of a join that a LIMIT may stop, on a clock that only the test moves."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lookup_hints.engine.adaptive_batch_size import (
    OUTPUT_BUFFER,
    PAUSE_SECONDS,
    STATEMENTS,
    LimitPause,
    LimitPauses,
    after_pause,
    filling,
)
from tests.unit.engine.support import Clock


def first_look(rows: int) -> LimitPause:
    """A look of all of its time."""
    return LimitPause(rows, lambda: PAUSE_SECONDS)


def read_all(look: LimitPause, clock: Clock, sizes: list[int], seconds: float = 0.0) -> list[float]:
    """When each window is read, where one of so many rows is handed out ``seconds`` after its reading."""
    read: list[float] = []

    def windows() -> Iterator[int]:
        for size in sizes:
            read.append(clock.now)
            yield size

    for size in after_pause(windows(), look, clock=clock, sleep=clock.sleep):
        clock.now += seconds
        look.is_due_after(size, clock.now)
    return read


def test_reading_waits_once_when_the_first_rows_were_handed_out() -> None:
    clock = Clock()
    assert read_all(first_look(1000), clock, [500, 500, 500, 500]) == [0.0, 0.0, PAUSE_SECONDS, PAUSE_SECONDS]
    assert clock.slept == [PAUSE_SECONDS]


def test_fewer_rows_are_not_waited_for() -> None:
    clock = Clock()
    assert read_all(first_look(1000), clock, [300, 300, 300]) == [0.0, 0.0, 0.0]
    assert clock.slept == []


def test_time_that_passes_anyway_is_not_waited_for_again() -> None:
    clock = Clock()
    look = first_look(10)
    assert look.is_due_after(10, clock.now)
    clock.now = PAUSE_SECONDS / 2
    assert look.wait(clock.now) == pytest.approx(PAUSE_SECONDS / 2)
    clock.now = PAUSE_SECONDS
    assert look.wait(clock.now) == 0.0


def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    assert not first_look(0).is_due_after(10, clock.now)
    read_all(first_look(0), clock, [10_000] * 3)
    assert clock.slept == []


def test_a_statement_is_looked_at_for_less_time_in_each_further_task_of_a_worker() -> None:
    clock, looks = Clock(), LimitPauses()
    for _ in range(3):
        read_all(LimitPause(10, lambda: looks.next_seconds("7")), clock, [10, 10])
    assert clock.slept == [PAUSE_SECONDS, PAUSE_SECONDS / 2, PAUSE_SECONDS / 4]


def test_all_looks_of_a_worker_at_one_statement_take_no_more_than_two_of_its_first() -> None:
    looks = LimitPauses()
    assert sum(looks.next_seconds("7") for _ in range(1000)) <= 2 * PAUSE_SECONDS


def test_a_task_that_ends_before_its_look_takes_no_time_from_the_next_one() -> None:
    clock, looks = Clock(), LimitPauses()
    for sizes in ([9], [10, 10], [9], [10, 10]):
        read_all(LimitPause(10, lambda: looks.next_seconds("7")), clock, sizes)
    assert clock.slept == [PAUSE_SECONDS, PAUSE_SECONDS / 2]


@pytest.mark.parametrize("other", ["8", None])
def test_another_statement_has_all_of_the_time(other: str | None) -> None:
    looks = LimitPauses()
    seconds = [looks.next_seconds(statement) for statement in ("7", other, "7")]
    assert seconds == [PAUSE_SECONDS, PAUSE_SECONDS, PAUSE_SECONDS / 2]


def test_the_statements_of_a_long_life_are_forgotten() -> None:
    looks = LimitPauses()
    for statement in range(STATEMENTS + 1):
        looks.next_seconds(str(statement))
    assert [looks.next_seconds("0"), looks.next_seconds(str(STATEMENTS))] == [
        PAUSE_SECONDS,
        PAUSE_SECONDS / 2,
    ]


def test_where_no_statement_is_known_none_is_taken_for_the_last_one() -> None:
    looks = LimitPauses()
    assert [looks.next_seconds(None), looks.next_seconds(None)] == [PAUSE_SECONDS] * 2


@pytest.mark.parametrize("columns", [0, 1, 50])
def test_arrays_without_rows_push_out_what_pyspark_holds_back(columns: int) -> None:
    kind = pa.list_(pa.struct([(f"c{number}", pa.string()) for number in range(columns)]))
    socket = Socket()
    held = io.BufferedWriter(socket, OUTPUT_BUFFER)
    rows = pa.RecordBatch.from_arrays([pa.array([[], []], kind)], ["_0"])
    with pa.ipc.new_stream(held, rows.schema) as stream:
        stream.write_batch(rows)
        assert socket.sent == 0
        for nothing in filling(kind):
            assert len(nothing) == 0
            stream.write_batch(pa.RecordBatch.from_arrays([nothing], ["_0"]))
        assert socket.sent >= rows.schema.serialize().size + pa.ipc.get_record_batch_size(rows)


class Socket(io.RawIOBase):
    """Counts what is written to it."""

    sent = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sent += len(data)
        return len(data)
