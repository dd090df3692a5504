"""Ctrl-C and SIGTERM end a lookup that runs on a terminal, in order and without a stack."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pexpect
import pytest

JOB = """
CREATE TEMPORARY TABLE c (id BIGINT, n STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]');
SELECT /*+ LOOKUP('table'='c') */ count(c.n) FROM range(2000000000) b LEFT JOIN c ON b.id = c.id;
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_lookup_that_runs_on_a_terminal(ending: signal.Signals, tmp_path: Path) -> None:
    job, temporary = tmp_path / "job.sql", tmp_path / "temporary"
    job.write_text(JOB, encoding="utf-8")
    temporary.mkdir()
    command = pexpect.spawn(
        str(Path(sys.executable).with_name("lookup-hints")),
        ["run", str(job), "--master", "local[1]", "--conf", "spark.ui.enabled=false"],
        encoding="utf-8",
        timeout=200,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(temporary),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        },
    )
    try:
        command.expect(r"\d running")
        began = time.monotonic()
        if ending is signal.SIGINT:
            command.sendintr()
            command.sendintr()  # an impatient user
        else:
            command.kill(ending)
        # What it has started has the terminal open, too: its end is that of all of them.
        command.expect(pexpect.EOF)
        print(f"it took {time.monotonic() - began:.1f} s")
    finally:
        command.close(force=True)
    told = str(command.before)
    assert (command.exitstatus, command.signalstatus) == (128 + ending, None), told
    assert f"stopped by {ending.name}" in told
    assert "Traceback" not in told
    assert not list(temporary.glob("lookup-hints*"))
    assert not list(temporary.glob("spark-*"))
