"""Executors that lack a package or carry another version: the message says what is missing where."""

from __future__ import annotations

import platform
import socket
import sys
from pathlib import Path

import pytest

import lookup_hints
from tests.processes.executors_scenario import COMPLETE, WITHOUT_THE_LIBRARY
from tests.spark.elsewhere import Outcomes, names_of, outcomes_of

pytestmark = pytest.mark.timeout(600)
OURS = lookup_hints.__version__


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("executors")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, folder: Path) -> Outcomes:
    return outcomes_of("tests.processes.executors_scenario", folder, seconds=540, NAMES=names_of(request))


def here(folder: Path, environment: str) -> str:
    """How a worker calls itself."""
    python = folder / environment / "bin" / "python"
    return f"worker on {socket.gethostname()} (Python {platform.python_version()}, {python})"


@pytest.mark.parametrize("step", WITHOUT_THE_LIBRARY)
def test_a_worker_without_the_library(outcomes: Outcomes, folder: Path, step: str) -> None:
    error = outcomes.failed(step)
    assert f"{here(folder, 'lacking')} does not have lookup_hints {OURS}, which runs lookups there." in error
    assert "Install it for that Python on every worker, or ship it: --py-files with spark-submit" in error
    assert "Or name one that has it in PYSPARK_PYTHON before Spark starts" in error
    assert "ModuleNotFoundError" not in error


def test_a_worker_without_a_driver(outcomes: Outcomes, folder: Path) -> None:
    error = outcomes.failed("without_a_driver")
    assert f"{here(folder, 'driverless')} does not have the module 'asyncpg', which the lookup needs" in error
    assert "a driver (pip install 'lookup-hints[postgres]') or the place where" in error
    assert "hunter2" not in error


def test_a_doctor_names_the_library_that_workers_lack(outcomes: Outcomes, folder: Path) -> None:
    report = outcomes.gave("a_doctor_of_workers_without_the_library")
    line = next(line for line in report.splitlines() if line.startswith("  fail    start       driver: "))
    assert f"{here(folder, 'lacking')} does not have lookup_hints {OURS}" in line
    assert report.endswith("broken: workers; 1 warning"), "no executor was seen"


def test_a_doctor_names_the_driver_that_workers_lack(outcomes: Outcomes, folder: Path) -> None:
    report = outcomes.gave("a_doctor_of_workers_without_a_driver")
    python = folder / "driverless" / "bin" / "python"
    assert (
        f"  fail    driver      1 executor: {python} on {socket.gethostname()} has no module 'asyncpg'."
        in report
    )
    assert "Install it for that Python on every worker, and start Spark again (pip install" in report
    assert "  fail    tcp         driver: 127.0.0.1 port 1 is closed: nothing listens there." in report
    assert "  warn    versions    1 executor: asyncpg missing; the driver has asyncpg " in report
    assert "  ok      lookup      1 executor: by id: 10 lookups of keys of the table, 10 found" in report
    assert report.endswith("broken: remote; 1 warning")
    assert "hunter2" not in report


@pytest.mark.parametrize("package", ["pyarrow", "pandas"])
def test_a_worker_without_what_spark_needs(outcomes: Outcomes, folder: Path, package: str) -> None:
    error = outcomes.failed(f"without_{package}")
    assert f"{here(folder, f'no_{package}')} does not have {package}, which Spark needs for lookups." in error
    assert (
        "Install it for that Python on every worker, or name one that has it in PYSPARK_PYTHON before Spark starts (on"
        f" Spark Connect, before the server starts); the driver's is {sys.executable}."
    ) in error
    assert "--py-files" not in error
    assert "Traceback" not in error


def test_a_worker_with_another_version(outcomes: Outcomes, folder: Path) -> None:
    error = outcomes.failed("with_another_version_of_the_library")
    assert f"{here(folder, 'otherwise')} has lookup_hints 9.{OURS} (" in error
    assert f"and the driver has {OURS}: they must be the same." in error


def test_a_worker_without_the_users_module(outcomes: Outcomes, folder: Path) -> None:
    error = outcomes.failed("without_the_users_module")
    assert f"{here(folder, 'moduleless')} does not have the module 'my_own_connectors'" in error
    assert "the place where a connector, a function or a predicate is defined." in error


@pytest.mark.parametrize("step", COMPLETE)
def test_a_worker_that_has_all_or_is_sent_it(outcomes: Outcomes, step: str) -> None:
    assert outcomes.gave(step) == [[0, None], [1, "Ann"], [2, None], [3, None]]
