"""A lookup join over HTTP in a Spark of its own process, ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measuring import ROOT, spark_session
from lookup_hints import LookupSession
from lookup_hints.runs.statement_run import brief

_ENDS_WITHIN = 30.0
"""Seconds that Spark may take to stop once the job has ended."""


@dataclass(frozen=True)
class Job:
    """``keys`` keys, equally many in each of ``tasks`` partitions, looked up one per request."""

    master: str
    tasks: int
    keys: int
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the table beside its URL."""
    only: str = "true"
    """Which of the keys are asked, as a condition on ``id``."""
    asked: int | None = None
    """How many these are; all by default."""

    @property
    def keys_per_task(self) -> int:
        """Keys of a partition."""
        return self.keys // self.tasks

    @property
    def rows(self) -> int:
        """How many rows are due."""
        return self.keys if self.asked is None else self.asked


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    error: str = ""
    ended: float = float("nan")
    """When, by the machine's monotonic clock."""
    rows: int = 0
    right: int = 0
    requests: int = 0
    """As ``session.metrics()`` counts them."""


class RunningJob:
    """A job that was started."""

    def __init__(self, process: subprocess.Popen[bytes], result: Path, limit: float) -> None:
        self._process, self._result = process, result
        self._limit = limit
        self._started = time.monotonic()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None and time.monotonic() < self._started + self._limit

    def outcome(self) -> Outcome:
        """Wait for its end, until its limit of time at the longest."""
        while self.is_running and not self._result.exists():
            time.sleep(0.05)
        if self._result.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN)
            return Outcome(**json.loads(self._result.read_text(encoding="utf-8")))
        if self._process.poll() is None:
            return Outcome(f"did not end in {self._limit:g} s")
        return Outcome(f"the job's process ended with {self._process.returncode}")

    def worker_connected_to(self, port: int) -> psutil.Process | None:
        """One of its workers that is connected to ``port`` of this machine."""
        own = {each.pid: each for each in self._family()}
        peers = (one.pid for one in psutil.net_connections("tcp") if one.raddr and one.raddr.port == port)
        return next((own[pid] for pid in peers if pid in own), None)

    def end(self) -> None:
        """End it, with all processes that it started."""
        for each in self._family():
            with contextlib.suppress(psutil.Error):
                each.kill()
        self._process.wait()

    def _family(self) -> list[psutil.Process]:
        try:
            first = psutil.Process(self._process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


@contextlib.contextmanager
def running_job(job: Job, url: str, folder: Path, limit: float) -> Iterator[RunningJob]:
    """``job`` asking ``url``, for the length of a block; ``folder`` takes its result."""
    result = folder / "outcome.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.citizen.job", json.dumps(asdict(job)), url, result],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    running = RunningJob(process, result, limit)
    try:
        yield running
    finally:
        running.end()


# --- in the process of the job --------------------------------------------------------------------


def _run(job: Job, url: str) -> Outcome:
    with spark_session(job.master, spark_executor_memory="1g") as spark:
        session = LookupSession(spark)
        try:
            rows, right = _counted(session, job, url)
        except Exception as error:
            return Outcome(brief(error), time.monotonic(), requests=_requests(session))
        return Outcome("", time.monotonic(), rows, right, _requests(session))


def _counted(session: LookupSession, job: Job, url: str) -> tuple[int, int]:
    """How many rows the join has, and how many of them have the right name."""
    options = {"connector": "http", "url": url, **job.options}
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    session.sql(f"CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ({given})")
    orders = f"SELECT id FROM range(0, {job.keys}, 1, {job.tasks}) WHERE {job.only}"
    joined = f"SELECT o.id, p.name FROM ({orders}) o LEFT JOIN people p ON o.id = p.id"
    [row] = session.sql(
        f"SELECT count(*) AS found, count_if(name = concat('name ', id)) AS right_ones FROM ({joined})"
    ).collect()
    return row.found, row.right_ones


def _requests(session: LookupSession) -> int:
    return sum(counts.requests for counts in session.metrics().values())


def _main(job: dict[str, Any], url: str, result: Path) -> None:
    outcome = _run(Job(**job), url)
    unfinished = result.with_suffix(".part")
    unfinished.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    unfinished.rename(result)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
