"""The installed command starts a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    pass


JOB = """-- a job
CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]');
CREATE OR REPLACE TEMPORARY VIEW visits AS SELECT id, id % 3 AS person FROM range(6);
SELECT /*+ LOOKUP('table'='p', 'capacity'='9') */ p.name, count(*) AS n
FROM visits v LEFT JOIN people p ON v.person = p.id WHERE v.id < :most GROUP BY p.name ORDER BY n DESC, p.name;
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.sql"
    path.write_text(JOB, encoding="utf-8")
    return path


def test_the_installed_command(job: Path) -> None:
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
        cwd=job.parent,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    assert "| Ann|  1|" in done.stdout
