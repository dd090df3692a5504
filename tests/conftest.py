"""One Spark for all tests that need one, and a worker process for each."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from tests import jvm, kinds
from tests.unit.engine.support import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

# Spark hands this to the JVM of a driver: that of all tests, those of scenarios, notebooks and spark-submit.
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm.options())

# A machine that is busy elsewhere is not a reason to fail. CI runs the same examples each time, so that a change is
# judged by itself; runs by hand draw new ones.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=kinds.EXAMPLES
)
settings.register_profile("ci", settings.get_profile("tests"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a share of the cases, and of the files, run."""
    parser.addoption("--share", type=int, default=1, help="run one of so many cases of each test")
    parser.addoption("--files", type=int, default=1, help="run one of so many files")
    parser.addoption("--part", type=int, default=0, help="which of the shares and of the files is run")


def pytest_configure(config: pytest.Config) -> None:
    """Measure tests by kind; let old Sparks warn about themselves: our own warnings are errors on the newest."""
    config.addinivalue_line("markers", "work(seconds): this unit test may work for so long (tests/kinds.py)")
    share, part, files = map(config.getoption, ("share", "part", "files"))
    config.pluginmanager.register(kinds.Budget(share, part, files))
    version = tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2]))
    if version < (4, 3):
        for kind in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"ignore::{kind}")


@pytest.fixture
def clock() -> Clock:
    """The time of ``worker``."""
    return Clock()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Process]:
    """A worker process of the test's own, as far as the library can tell; what it opened is closed."""
    fresh = Process(clock)
    monkeypatch.setattr(process, "this_process", fresh)
    yield fresh
    for shared in fresh._shared.values():
        shared.opened.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark of all tests."""
    for session in local_spark(tmp_path_factory.mktemp("warehouse")):
        _shared.append(session)
        yield session
        _shared.clear()


_shared: list[SparkSession] = []


@pytest.fixture(scope="module", autouse=True)
def _tables_end_with_their_file() -> Iterator[None]:
    """Which files share a Spark, and in which order, is chance: none finds tables or settings of another."""
    yield
    for session in _shared:
        session.createDataFrame([], "n INT")  # makes it the active session, whose settings reach others
        from lookup_hints.driver.statement_scope import _states  # which imports Spark

        made = _states._made.get(session)  # which no test of policies may find made by another
        if made is not None:
            for table in made.catalog.tables():
                made.catalog.drop(table.name)


def local_spark(warehouse: Path) -> Iterator[SparkSession]:
    """A local Spark with two task slots, whose workers run this Python and can import the tests."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lookup-hints-tests")
        .config("spark.ui.enabled", "false")
        # Sorting and grouping take whole pages, of which most would stay empty; queries that ran would be remembered.
        .config("spark.buffer.pageSize", "1m")
        .config("spark.sql.ui.retainedExecutions", "10")
        .config("spark.ui.retainedJobs", "10")
        .config("spark.ui.retainedStages", "10")
        .config("spark.ui.retainedTasks", "100")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.default.parallelism", "2")
        # As Spark does by itself from 4.0 on: old dates are written and read as they are.
        .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
        .config("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
