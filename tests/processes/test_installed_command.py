"""The installed command starts a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.cli.test_cli import JOB


def test_the_installed_command(tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text(JOB, encoding="utf-8")
    command = Path(sys.executable).with_name("lookup-hints")
    done = subprocess.run(
        [
            command,
            "run",
            job,
            "--param",
            "most=2",
            "--master",
            "local[1]",
            "--conf",
            "spark.ui.enabled=false",
        ],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert "| Ann|  1|" in done.stdout


def test_a_reader_that_goes_away_is_no_trouble(tmp_path: Path) -> None:
    script = tmp_path / "job.sql"
    script.write_text("SELECT 1;", encoding="utf-8")
    reads, writes = os.pipe()
    os.close(reads)
    command = [
        *map(str, (Path(sys.executable).with_name("lookup-hints"), "check", script)),
        "--format",
        "sarif",
    ]
    try:
        run = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=100)
    finally:
        os.close(writes)
    assert (run.returncode, run.stderr) == (141, "")
