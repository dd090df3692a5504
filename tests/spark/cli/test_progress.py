"""How far a statement is: what Spark says, what is drawn."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from lookup_hints.metrics.readable_summary import Moment
from lookup_hints.runs import progress
from lookup_hints.runs.progress import LiveLines, Progress, TerminalBar, following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_statement_is_followed_to_its_last_tasks(spark: SparkSession, tmp_path: Path) -> None:
    told: list[Progress] = []

    def show(news: Progress) -> None:
        told.append(news)
        if news.running:
            Path(door).touch()

    door = str(tmp_path / "open")

    def wait_for_the_door(number: int) -> int:
        deadline = time.monotonic() + 60
        while not Path(door).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return number

    spark.udf.register("wait_for_the_door", wait_for_the_door, "bigint")
    with following(spark, show):
        assert spark.sql("SELECT sum(wait_for_the_door(id)) FROM range(0, 8, 1, 4)").collect()[0][0] == 28
    assert 4 <= told[-1].tasks <= 5, "four tasks, and one for the sum"
    assert any(one.running for one in told)
    assert all(one.done <= one.tasks for one in told)
    assert not [thread for thread in threading.enumerate() if thread.name == "lookup-progress"]


@dataclass(frozen=True)
class Stage:
    """What a Connect server says of a stage."""

    stage_id: int
    num_tasks: int
    num_completed_tasks: int


class ConnectSession:
    """A Connect session as far as progress is concerned: it tells what the test gives it."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 (Spark's name)
        """Keeps it."""
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 (Spark's name)
        """Lets it go."""
        self.handlers.remove(handler)

    def tell(self, running: int, *stages: tuple[int, int, int]) -> None:
        """A message of the server; each stage by number, tasks and tasks done."""
        for handler in self.handlers:
            handler(
                stages=[Stage(*stage) for stage in stages],
                inflight_tasks=running,
                operation_id="",
                done=False,
            )


ConnectSession.__module__ = "pyspark.sql.connect.made_up"


def test_stages_that_spark_skips_are_not_counted_though_they_were_seen() -> None:
    """The messages of a real statement of three jobs: the second and third begin with stages that are skipped."""
    told: list[Progress] = []
    session = ConnectSession()
    with following(cast("SparkSession", session), told.append):
        session.tell(4, (0, 4, 0))
        session.tell(0, (0, 4, 4), (1, 4, 0), (2, 1, 0))
        session.tell(1, (0, 4, 4), (1, 4, 0), (2, 1, 1), (3, 4, 0), (4, 1, 0), (5, 1, 0))
        session.tell(0, (0, 4, 4), (1, 4, 0), (2, 1, 1), (3, 4, 0), (4, 1, 0), (5, 1, 1))
    assert (told[1].done, told[1].tasks) == (4, 9), "nobody can know yet that stage 1 is skipped"
    assert (told[-1].done, told[-1].tasks) == (6, 6)
    assert not session.handlers


def test_nothing_is_told_of_a_statement_without_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SILENT", 3600.0)  # however long a busy machine plans
    told: list[Progress] = []
    with following(spark, told.append):
        spark.sql("SELECT 1 AS one")
    assert told == []


def test_a_statement_that_has_no_tasks_yet_is_planned(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SILENT", 0.0)
    told: list[Progress] = []
    is_told = threading.Event()

    def show(news: Progress) -> None:
        told.append(news)
        is_told.set()

    with following(spark, show):
        assert is_told.wait(60)
    assert str(told[0]).startswith("planning, ")


def test_a_bar_is_drawn_over_itself_and_goes_away() -> None:
    terminal = io.StringIO()
    bar = TerminalBar(terminal)
    bar.draw(Progress(done=10, tasks=40, running=2, seconds=100.0))
    bar.draw(Progress(done=40, tasks=40, running=0, seconds=101.0))
    bar.clear()
    bar.clear()
    first, second, gone = terminal.getvalue().split("\r\x1b[J")[1:]
    assert first == f"[{'=' * 8}{' ' * 22}] 10/40 tasks, 2 running, 100 s"
    assert second == f"[{'=' * 30}] 40/40 tasks, 101 s"
    assert gone == ""


def test_lookups_have_a_line_each_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = io.StringIO()
    bar = TerminalBar(terminal)
    bar.draw(Progress(1, 2, 1, 1.0, ("c: 10 keys/s", "p: " + "long " * 20)))
    bar.draw(Progress(2, 2, 0, 2.0))
    lines = terminal.getvalue().split("\n")
    assert lines[1] == "c: 10 keys/s"
    assert lines[2].startswith("p: long ")
    drawn, _, after = lines[2].partition("\r\x1b[2A\x1b[J")
    assert len(drawn) == 39, "a line that wraps would be two"
    assert after.startswith("[===")


def test_the_pace_is_that_of_the_last_looks() -> None:
    name, other = LookupName("customers", "c"), LookupName("prices", "p")
    counted = [100, 100, 300, 300, 500]
    looks = iter(
        {name: Moment(LookupMetrics(rows_in=keys, misses=keys), 7, float(second))}
        for second, keys in enumerate(counted)
    )
    lines = LiveLines([name, other], lambda: next(looks))
    assert [lines() for _ in counted[1:]] == [
        (),
        ("c: 200 keys/s, 0 % found, 7 keys wait for a retry",),
        ("c: 100 keys/s, 0 % found, 7 keys wait for a retry",),
        ("c: 133 keys/s, 0 % found, 7 keys wait for a retry",),
    ]


def test_a_bar_before_the_first_task_is_empty() -> None:
    assert Progress(0, 0, 0, 0.0).share == 0
