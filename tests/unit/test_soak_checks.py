"""What the soak checks of a stream finds what is wrong with it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes.soak_checks import Gauge, Sink, Versions

BEGAN = 1_800_000_000.0


def versions_at(monkeypatch: pytest.MonkeyPatch, *moments: float) -> Versions:
    """Versions that were written at these seconds, each at once."""
    versions = Versions()
    for moment in moments:
        monkeypatch.setattr("time.time", lambda moment=moment: BEGAN + moment)
        versions.begin()
        versions.end()
    return versions


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sink:
    return Sink(tmp_path, {name: versions_at(monkeypatch, 0, 100, 200) for name in ("pg", "web", "kv")})


def commit(
    sink: Sink, number: int, ids: Sequence[int], at: float, **values: Mapping[int, str | None]
) -> None:
    """Let the stream commit rows that came at second ``at``, half a second later; ``values`` differ from version 1."""
    columns: dict[str, Any] = {"id": ids, "at": [datetime.fromtimestamp(BEGAN + at, timezone.utc)] * len(ids)}
    for name in sink.sources:
        expected = {each: f"{each * 7 % 1000}:1" if each * 7 % 1000 < 900 else None for each in ids}
        expected |= values.get(name, {})
        columns[name] = [expected[each] for each in ids]
    path = sink.folder / f"part-{number}.parquet"
    pq.write_table(pa.table(columns), path)
    log = sink.folder / "_spark_metadata"
    log.mkdir(exist_ok=True)
    entry = log / f"{number}"
    entry.write_text("v1\n" + json.dumps({"path": f"file://{path}"}), encoding="utf-8")
    os.utime(entry, (BEGAN + at + 0.5,) * 2)
    sink.read_new_batches()


def test_rows_that_came_once_with_what_the_sources_held_are_right(sink: Sink) -> None:
    commit(sink, 0, range(150), 150)
    commit(sink, 1, range(150, 300), 160)
    assert sink.faults == []
    assert (sink.rows, sink.misses["kv"]) == (300, 28)


@pytest.mark.parametrize("ids", [[*range(9), 10], [*range(10), 9], range(1, 11)])
def test_a_row_that_is_missing_or_double_is_found(sink: Sink, ids: Sequence[int]) -> None:
    commit(sink, 0, ids, 150)
    assert [fault.partition(" has ")[0] for fault in sink.faults] == ["batch 0"]


@pytest.mark.parametrize(
    ("at", "source", "value", "is_right"),
    [
        (102, "pg", "7:0", False),
        (102, "kv", "7:0", True),  # from a cache
        (107, "kv", "7:0", False),
        (150, "pg", "7:2", False),
        (199.8, "pg", "7:2", True),
        (150, "pg", "14:1", False),
        (150, "pg", None, False),
        (150, "kv", None, False),
    ],
)
def test_a_value_that_no_source_held_is_found(
    sink: Sink, at: float, source: str, value: str | None, is_right: bool
) -> None:
    commit(sink, 0, [0, 1], at, **{source: {1: value}})
    assert (len(sink.faults) == 0) is is_right


def test_each_failure_has_its_letter_and_nothing_else_has_one(sink: Sink) -> None:
    commit(sink, 0, [0, 1, 2], 150, web={1: None})
    sink.check_letters(Counter({(0, 7): 2}))
    sink.check_letters(Counter({(0, 7): 2, (1, 14): 1}))
    assert sink.faults == [], "the second batch was not committed"
    sink.check_letters(Counter({(0, 14): 1}))
    assert sink.faults == [
        "batch 0: the id 7 has neither its row nor a letter",
        "batch 0: the id 14 has its row, and a letter",
    ]


@pytest.mark.parametrize("wrong", ["", "rows_in", "rows_found", "misses", "dead_letters"])
def test_counts_that_are_not_those_of_the_rows_are_found(sink: Sink, wrong: str) -> None:
    commit(sink, 0, range(150), 150, web={1: None})
    counts = {"rows_in": 150, "rows_found": 136, "misses": 14, "dead_letters": 0}
    told = {"pg": counts, "kv": counts, "web": {**counts, "rows_found": 135, "dead_letters": 1}}
    told["pg"] = {**counts, wrong: counts[wrong] - 1} if wrong else counts
    sink.check_counts(0, told, {7: 1})
    assert len(sink.faults) == bool(wrong)


@pytest.mark.parametrize(("leak", "grows"), [(0.0, False), (0.02, True)])
def test_a_slow_leak_is_told_from_what_goes_up_and_down(leak: float, grows: bool) -> None:
    gauge, random = Gauge(most=16), Random(1)
    for moment in range(0, 3600, 5):
        gauge.add(moment, 170 + random.uniform(-8, 8) - 120 * (moment % 300 == 0) + leak * moment)
    assert (gauge.growth(600) > gauge.most) is grows
