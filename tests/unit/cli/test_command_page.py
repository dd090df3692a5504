"""What the page on the command line shows is what the command line writes."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from lookup_hints.cli.arguments import parser
from lookup_hints.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHECK = r"^```sh\n(lookup-hints check [^\n]*)\n```\n\n```\n(.*?)^```$"
CHECKS = re.findall(CHECK, PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), CHECKS, ids=str)
def test_checks_write_what_the_page_shows(
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.sql").write_text(next(block for kind, block in BLOCKS if kind == "sql"), encoding="utf-8")
    program, *arguments = command.split()
    assert program == "lookup-hints"
    assert main(arguments) == 1
    assert capsys.readouterr().out == shown


def test_the_commands_of_the_page_are_understood() -> None:
    lines = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    typed = [arguments for line in lines for arguments in _arguments(line)]
    known = {"demo", "run", "shell", "check", "doctor", "import", "completion"}
    assert {first for first, *_ in typed} == known
    for arguments in typed:
        parser().parse_args(arguments)


def _arguments(line: str) -> list[list[str]]:
    """What follows the command in a line of a shell, if it stands there."""
    tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
    tokens.whitespace_split = True
    words = list(tokens)
    if "lookup-hints" not in words[:-1] or "install" in words:
        return []
    after = words[words.index("lookup-hints") + 1 :]
    return [list(takewhile(lambda word: word not in (")", "|"), after))]


def test_the_page_shows_checks_in_three_formats() -> None:
    assert len(CHECKS) == 3


def test_the_page_names_the_hook_of_pre_commit() -> None:
    (config,) = [block for kind, block in BLOCKS if kind == "yaml"]
    assert re.findall(r"- id: (.*)", config) == re.findall(
        r"- id: (.*)", (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ask", "0"], "argument --ask: a number of keys such as 100 is needed, not '0'"),
        (["--ask", "many"], "argument --ask: a number of keys such as 100 is needed, not 'many'"),
        (["--sample", "2"], "argument --sample: a share such as 1% or 0.01 is needed, not '2'"),
    ],
)
def test_wrong_options_of_an_estimate_are_told_before_anything_starts(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "no_such_file.sql", "--estimate", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
