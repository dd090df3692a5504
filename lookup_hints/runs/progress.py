"""Progress of a running statement: Spark's counts of its tasks, and a bar on a terminal."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.readable_summary import Moment, live_text
from lookup_hints.runs.show_meanwhile import showing_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between two looks.
_EVERY = 0.25

# Seconds without tasks after which "planning" is shown: a cold Spark takes ten.
_SILENT = 1.0


@dataclass(frozen=True)
class Progress:
    """How far a statement is.

    Args:
        done: tasks that have ended.
        tasks: tasks that are known; more may follow, as Spark plans stages when it needs them.
        running: tasks that run now.
        seconds: since the statement began.
        lookups: a line about each of its lookups.
    """

    done: int
    tasks: int
    running: int
    seconds: float
    lookups: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.done / self.tasks if self.tasks else 0.0

    def __str__(self) -> str:
        if not self.tasks:
            return f"planning, {self.seconds:.0f} s"
        running = f", {self.running} running" if self.running else ""
        return f"{self.done}/{self.tasks} tasks{running}, {self.seconds:.0f} s"


Show = Callable[[Progress], None]
"""Takes each news of a statement; called from any thread."""


Lines = Callable[[], tuple[str, ...]]
"""Gives the lines about the lookups of a statement."""

Watch = Callable[[Lines], AbstractContextManager[None]]
"""Makes a context that shows the progress of a statement; takes the lines about its lookups."""


class LiveLines:
    """A line about each lookup of a statement that runs, with its pace over the last seconds."""

    def __init__(self, names: Sequence[LookupName], look: Callable[[], Mapping[LookupName, Moment]]) -> None:
        self._names, self._look = names, look
        self._began = look()
        self._seen: deque[Mapping[LookupName, Moment]] = deque(maxlen=_PACE_LOOKS)

    def __call__(self) -> tuple[str, ...]:
        now = self._look()
        since = {name: self._counts_since(name, now[name]) for name in self._names if name in now}
        self._seen.append(since)
        before = self._seen[0]
        return tuple(
            live_text(name.alias, moment, before.get(name, moment))
            for name, moment in since.items()
            if moment.counts.rows_in
        )

    def _counts_since(self, name: LookupName, now: Moment) -> Moment:
        before = self._began.get(name)
        return now if before is None else replace(now, counts=now.counts - before.counts)


# The pace is that since this many looks ago.
_PACE_LOOKS = 9


@contextmanager
def following(spark: SparkSession, show: Show, lookups: Lines = tuple) -> Iterator[None]:
    """Report the progress of this thread's statements inside the block to ``show``.

    A progress bar is no reason to fail: if Spark reports nothing, nothing is shown.
    """

    def with_lookups(progress: Progress) -> None:
        show(replace(progress, lookups=lookups()))

    if is_connect(spark):
        with _follow_by_messages(spark, with_lookups):
            yield
    else:
        with _follow_by_polling(spark, with_lookups):
            yield


# --- classic Spark: ask from time to time ----------------------------------------------------------


@contextmanager
def _follow_by_polling(spark: SparkSession, show: Show) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    # Streaming queries run in job groups of their own, and are not of this statement.
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")

    def look(over: threading.Event) -> None:
        seen = _StagesSeen()
        with suppress(Exception):  # Spark is going away: whoever waits for the statement says so
            others = set(tracker.getActiveJobsIds())
            while not over.wait(_EVERY):
                jobs = set(tracker.getJobIdsForGroup(group)) & set(tracker.getActiveJobsIds()) - others
                active = set(tracker.getActiveStageIds())
                stages = [stage for job in jobs for stage in _stages_of(tracker, job, active)]
                is_known = seen.add((one.stageId, one.numTasks, one.numCompletedTasks) for one in stages)
                if is_known or seen.seconds >= _SILENT:
                    show(seen.progress(sum(one.numActiveTasks for one in stages)))

    with showing_meanwhile(look, "lookup-progress"):
        yield


def _stages_of(tracker: Any, job: int, active: set[int]) -> Iterator[Any]:
    """The stages of a job that run now: of the others, Spark skips some whose rows are there already."""
    info = tracker.getJobInfo(job)
    for number in () if info is None else active.intersection(info.stageIds):
        stage = tracker.getStageInfo(number)
        if stage is not None:
            yield stage


# --- Spark Connect: receives progress --------------------------------------------------------------


@contextmanager
def _follow_by_messages(spark: Any, show: Show) -> Iterator[None]:
    seen = _StagesSeen()

    def told(stages: Iterable[Any] | None, inflight_tasks: int, **_: Any) -> None:
        known = list(stages or ())
        # Spark skips the stages that have done nothing while later ones have.
        last = max((one.stage_id for one in known if one.num_completed_tasks), default=-1)
        skipped = {one.stage_id for one in known if one.stage_id < last and not one.num_completed_tasks}
        seen.forget(skipped)
        running = (one for one in known if one.stage_id not in skipped)
        if seen.add((one.stage_id, one.num_tasks, one.num_completed_tasks) for one in running):
            show(seen.progress(inflight_tasks))

    register = getattr(spark, "registerProgressHandler", None)  # from 4.0 on
    if register is None:
        yield
        return
    register(told)
    try:
        yield
    finally:
        spark.removeProgressHandler(told)


class _StagesSeen:
    """The stages seen so far; one that is no longer reported has ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._tasks: dict[int, int] = {}
        self._done: dict[int, int] = {}

    def add(self, stages: Iterable[tuple[int, int, int]]) -> bool:
        """Add the current state by stage (number, tasks, tasks done); whether anything is known yet."""
        now = {number: (tasks, done) for number, tasks, done in stages}
        for number, tasks in self._tasks.items():
            if number not in now:
                self._done[number] = tasks
        for number, (tasks, done) in now.items():
            self._tasks[number], self._done[number] = tasks, done
        return bool(self._tasks)

    def forget(self, stages: Iterable[int]) -> None:
        """These stages do not run, though they were seen: only later ones showed that Spark skips them."""
        for number in stages:
            self._tasks.pop(number, None)
            self._done.pop(number, None)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def progress(self, running: int) -> Progress:
        return Progress(sum(self._done.values()), sum(self._tasks.values()), running, self.seconds)


# --- on a terminal ---------------------------------------------------------------------------------

_WIDTH = 30


# Forty lines; rich would be an extra, so both ways would have to be kept. (docs/decisions/0166)
class TerminalBar:
    """Says on a terminal how far a statement is, with a line for each lookup; goes away when it has ended.

    Examples:
        >>> with TerminalBar(sys.stderr).over(spark):
        ...     frame.collect()
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lines = 0

    @contextmanager
    def over(self, spark: SparkSession, lookups: Lines = tuple) -> Iterator[None]:
        try:
            with following(spark, self.draw, lookups):
                yield
        finally:
            self.clear()

    def draw(self, progress: Progress) -> None:
        full = round(progress.share * _WIDTH)
        width = shutil.get_terminal_size().columns - 1
        lines = (f"[{'=' * full}{' ' * (_WIDTH - full)}] {progress}", *progress.lookups)
        self._write_terminal(self._erase_sequence() + "\n".join(line[:width] for line in lines))
        self._lines = len(lines)

    def clear(self) -> None:
        if self._lines:
            self._write_terminal(self._erase_sequence())
            self._lines = 0

    def _erase_sequence(self) -> str:
        """Goes to the first line that was drawn, and takes away all from there."""
        up = f"\x1b[{self._lines - 1}A" if self._lines > 1 else ""
        return f"\r{up}\x1b[J"

    def _write_terminal(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()
