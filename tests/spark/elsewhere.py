"""Scenarios in a process of their own, as one process holds one Spark; and connectors for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from lookup_hints.spi import TEXT, ConnectorError, Option
from lookup_hints.spi.request_and_answer import LookupRequest
from tests.spark.counting import CountingConnector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
_OUTCOMES = "outcomes.json"


def names_asked() -> set[str]:
    """In a scenario, what ``names_of`` gave."""
    return set(json.loads(os.environ["NAMES"]))


class Steps:
    """The steps of a scenario, run as they are defined; each leaves what it returns, or its error.

    Args:
        optional: steps that are cases of tests, and run only where ``names_of`` has them.
    """

    def __init__(self, optional: Collection[str] = ()) -> None:
        self._left_out = set(optional) - names_asked() if optional else set()
        self._outcomes: dict[str, dict[str, Any]] = {}

    def __call__(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """Run ``step``; a decorator."""
        self.run(step.__name__, step)
        return step

    def run(self, name: str, step: Callable[[], Any]) -> None:
        """Run ``step`` under ``name``, if it is asked for."""
        if name in self._left_out:
            return
        try:
            self._outcomes[name] = {"gave": step()}
        except Exception as error:  # each step is a test of its own, and the next ones still count
            self._outcomes[name] = {"failed": f"{type(error).__name__}: {error}"}

    def tell(self, folder: Path) -> None:
        """Hand the outcomes to ``outcomes_of``, which waits for them in ``folder``."""
        unfinished = folder / "outcomes.part"
        unfinished.write_text(json.dumps(self._outcomes), encoding="utf-8")
        unfinished.rename(folder / _OUTCOMES)


@dataclass(frozen=True)
class Outcomes:
    """What the steps of a scenario left."""

    steps: dict[str, dict[str, Any]]

    def gave(self, step: str) -> Any:
        """What ``step`` returned."""
        assert "gave" in self.steps[step], self.steps[step]["failed"]
        return self.steps[step]["gave"]

    def failed(self, step: str) -> str:
        """The kind and text of the error that ``step`` raised."""
        assert "failed" in self.steps[step], f"{step} gave {self.steps[step]['gave']}"
        return str(self.steps[step]["failed"])


def names_of(request: pytest.FixtureRequest) -> str:
    """The names and steps that tests of this file ask for, as JSON: with ``--share`` they are not all."""
    items = (item for item in request.session.items if item.path == request.path)
    calls = (
        item.callspec.params
        for item in items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )
    return json.dumps(sorted({call[each] for call in calls for each in ("name", "step") if each in call}))


def outcomes_of(module: str, folder: Path, seconds: float, **environment: str) -> Outcomes:
    """Run ``module`` as ``__main__`` with ``folder`` as its argument, and wait for its outcomes.

    They come by a file, and then the scenario is ended with all that it has started: it may take long to stop
    its Spark. What Spark would clean up lies below ``folder``.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    output = folder / "output"
    with output.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": path,
                "SPARK_LOCAL_DIRS": str(folder / "spark"),
                **environment,
            },
            start_new_session=True,  # so that Spark's own processes can be ended with it
        )
    told = folder / _OUTCOMES
    deadline = time.monotonic() + seconds
    try:
        while not told.exists() and process.poll() is None:
            assert time.monotonic() < deadline, (
                f"{module} took more than {seconds} seconds:\n{_end_of(output)}"
            )
            time.sleep(0.1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert told.exists(), f"{module} ended with {process.returncode}:\n{_end_of(output)}"
    return Outcomes(json.loads(told.read_text(encoding="utf-8")))


def _end_of(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")[-5000:]


class OpeningConnector(CountingConnector):
    """Writes down the process in which it is opened."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *CountingConnector.OPTIONS,
        Option("opened", TEXT, "File that takes a line for each opening."),
    )

    def open(self) -> None:
        """Log, then open."""
        self._log_opening()
        super().open()

    async def aopen(self) -> None:
        """Log, then open."""
        self._log_opening()
        await super().aopen()

    def _log_opening(self) -> None:
        with Path(self.table.options["opened"]).open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}\n")


class FailingConnector(CountingConnector):
    """Fails at each lookup, and would tell its password."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *CountingConnector.OPTIONS,
        Option("password", TEXT, "Never shown.", secret=True),
    )

    def lookup(self, request: LookupRequest) -> pa.Table:
        """Fail."""
        raise ConnectorError(f"no answer from app:{self.table.options['password']}@source", permanent=True)

    async def alookup(self, request: LookupRequest) -> pa.Table:
        """Fail."""
        return self.lookup(request)


@contextmanager
def cluster(master: str, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session on a cluster of several processes, stopped at the end."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name).config("spark.ui.enabled", "false")
    builder = builder.config("spark.executor.extraJavaOptions", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
