"""What users of plain `spark.sql` see: the driver's Python on the workers, and errors that begin with the cause."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCENARIO = Path(__file__).parent / "plain_spark_scenario.py"

CAUSE = (
    r"lookup_hints\.errors\.ConnectorError: OSError: no route to db1 as \*\*\*\. The lookup of 1 key \(id = 7\) in"
    r" table away failed after 1 attempt \(connector away, function lookup_\w+\)\."
)
_SPARKS_OWN = re.compile(
    r"An exception was thrown from the Python worker|Please see the stack trace|Traceback \(most recent|^$"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The scenario, where the path leads to a bare Python and nothing names another."""
    bare = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=120)
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    environment["PATH"] = os.pathsep.join([str(bare / "bin"), environment["PATH"]])
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, str(SCENARIO)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture(scope="module")
def told(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What it said."""
    assert run.returncode == 0, run.stderr
    printed: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    return printed


def test_workers_of_a_local_spark_run_the_drivers_python(told: dict[str, str]) -> None:
    assert told["rows"] == sys.executable


@pytest.mark.parametrize("way", ["plain", "frame", "pandas"])
def test_an_error_begins_with_table_connector_key_and_cause(told: dict[str, str], way: str) -> None:
    lines = told[way].strip().splitlines()
    ours = next(line for line in lines if not _SPARKS_OWN.search(line))
    assert re.match(CAUSE, ours), told[way]
    assert "File " not in told[way]
    assert lines.index(ours) <= 2


def test_the_whole_traceback_is_in_the_log_without_secrets(run: subprocess.CompletedProcess[str]) -> None:
    assert 'raise OSError("no route to db1 as ***")' in run.stderr
    assert "in lookup_row" in run.stderr
    assert "t0ken" not in run.stdout + run.stderr
