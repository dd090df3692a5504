"""What bash completes, asked of bash itself; of the other shells, the script is read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lookup_hints.cli.arguments import SHELLS
from lookup_hints.cli.main import main

ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={at} COMP_LINE='{line}' COMP_POINT={length}
{function} lookup-hints '{last}' ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Path]:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out, encoding="utf-8")
    return {shell: tmp_path / shell for shell in SHELLS}


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["ch"], {"check"}),
        (["demo", "--po"], {"--postgres"}),
        (["run", "--for"], {"--format"}),
        (["run", "--format", "js"], {"json", "jsonl"}),
        (["check", "--format", "sa"], {"sarif"}),
        (["import", "--sa"], {"--sample"}),
        (["run", "job"], {"job.sql"}),
    ],
    ids=lambda words: " ".join(sorted(words)),
)
def test_bash_completes(typed: list[str], completed: set[str], scripts: dict[str, Path]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (scripts["bash"].parent / "job.sql").write_text("")
    script = scripts["bash"].read_text(encoding="utf-8")
    function = next(line.split()[-2] for line in script.splitlines() if line.startswith("complete "))
    line = " ".join(["lookup-hints", *typed])
    ask = ASK.format(
        script=scripts["bash"],
        words=line,
        at=len(typed),
        line=line,
        length=len(line),
        function=function,
        last=typed[-1],
    )
    asked = subprocess.run([bash, "-c", ask], cwd=scripts["bash"].parent, capture_output=True, text=True)
    assert set(asked.stdout.split()) == completed, asked.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_the_commands(shell: str, scripts: dict[str, Path]) -> None:
    text = scripts[shell].read_text(encoding="utf-8")
    for word in ("demo", "run", "check", "lsp", "jsonl", "sarif"):
        assert word in text


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'lookup-hints[shell]'" in capsys.readouterr().err
