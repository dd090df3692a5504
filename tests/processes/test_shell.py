"""The shell on a terminal of its own: typed, completed, coloured, cancelled and left."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect

PROMPT = "lookup>"
COLOUR = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")


def test_a_session_at_a_terminal(tmp_path: Path) -> None:
    init = tmp_path / "init.sql"
    init.write_text(
        "CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)\n"
        "WITH ('connector' = 'memory', 'rows' = '[[1, \"Ann\"]]');",
        encoding="utf-8",
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    environment.pop("NO_COLOR", None)
    typed = [
        "-m",
        "lookup_hints.cli.main",
        "shell",
        "--init",
        str(init),
        "--conf",
        "spark.ui.enabled=false",
    ]
    shell = pexpect.spawn(
        sys.executable, typed, env=environment, encoding="utf-8", timeout=60, dimensions=(40, 160)
    )
    try:
        shell.expect(r"Starting Spark \.\.\. \d+ s")
        shell.expect(r"Spark started in \d+\.\d s. It logs to (\S+)-spark\.log\r\n")
        log = Path(f"{shell.match[1]}-spark.log")
        shell.expect(PROMPT)
        assert "WARN" not in shell.before, "what Spark logs is no business of the terminal"
        assert "log4j" in log.read_text(encoding="utf-8")
        shell.send("SELECT r.id, p.name\rFROM range(3) r LEFT JOIN peo")
        shell.expect("people")  # offered below the line
        shell.send("\t p ON r.id = p.id;\r")
        shell.expect(r"\|  1\| Ann\|")
        shell.expect("waited")
        shell.expect(PROMPT)
        shell.send("SELECT count(*) FROM range(0, 300000000000, 1, 8) WHERE id % 7 = 3;\r")
        shell.expect(r"\d+/\d+ tasks")
        shell.sendintr()
        shell.expect("cancelled")
        shell.expect(PROMPT)
        shell.send("SELECT 41 + 1 AS answer;\r")
        shell.expect(r"\|    42\|")
        assert COLOUR.search(shell.before), "words of SQL have colours"
        shell.expect(PROMPT)
        shell.send("exit\r")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert shell.exitstatus == 0
    assert not log.exists()
    assert "SELECT 41 + 1" in (tmp_path / ".lookup_hints_history").read_text(encoding="utf-8")
