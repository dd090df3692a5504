"""What ``check`` finds, in each of its formats."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lookup_hints import __version__
from lookup_hints.cli.arguments import FINDING_FORMATS
from lookup_hints.cli.check import FORMATS, Finding, as_github, as_json, as_sarif
from lookup_hints.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent.parent
TABLE = "CREATE TEMPORARY TABLE c (id INT) WITH ('connector' = 'memory', 'rows' = '[]');\n"
MISTAKE = TABLE + "SELECT /*+ LOOKUP('table'='c', 'asink'='true') */ 1 FROM o JOIN c ON o.id = c.id"
TOLD = "No LOOKUP option is called 'asink'. Did you mean 'async'?"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good file, one with a mistake and one without a statement, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    Path("good.sql").write_text(TABLE)
    Path("bad one.sql").write_text(MISTAKE)
    Path("empty.sql").write_text("")


def check(capsys: pytest.CaptureFixture[str], kind: str, *files: str) -> tuple[int, str]:
    code = main(["check", "--format", kind, *files])
    return code, capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_github_is_told_of_each_finding_at_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "github", "good.sql", "bad one.sql", "empty.sql")
    assert code == 1
    assert out.splitlines() == [
        f"::error file=bad one.sql,line=2,col=32,title=lookup-hints::{TOLD}",
        "::notice file=empty.sql,line=1,col=1,title=lookup-hints::the file contains no statements",
    ]


@pytest.mark.usefixtures("files")
def test_nothing_is_written_for_github_where_nothing_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, "github", "good.sql") == (0, "")


def test_what_github_takes_for_the_end_of_a_command_is_escaped() -> None:
    found = {"a,b:c%.sql": [Finding("100 %\nis: all, really", 3, 4)]}
    where = "file=a%2Cb%3Ac%25.sql,line=3,col=4,title=lookup-hints"
    assert as_github(found) == f"::error {where}::100 %25%0Ais: all, really"


@pytest.mark.usefixtures("files")
def test_json_is_a_list_of_findings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "json", "good.sql", "bad one.sql", "empty.sql")
    assert code == 1
    assert json.loads(out) == [
        {"file": "bad one.sql", "line": 2, "column": 32, "severity": "error", "message": TOLD},
        {
            "file": "empty.sql",
            "line": 1,
            "column": 1,
            "severity": "note",
            "message": "the file contains no statements",
        },
    ]
    assert as_json({"good.sql": []}) == "[]"


@pytest.mark.usefixtures("files")
def test_sarif_names_the_tool_the_place_and_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "sarif", "good.sql", "bad one.sql")
    assert code == 1
    log: dict[str, Any] = json.loads(out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert (run["tool"]["driver"]["name"], run["tool"]["driver"]["version"]) == ("lookup-hints", __version__)
    (result,) = run["results"]
    assert result["ruleId"] in [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert (result["level"], result["message"]["text"]) == ("error", TOLD)
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "bad%20one.sql"},
        "region": {"startLine": 2, "startColumn": 32},
    }


def test_sarif_has_a_log_and_absolute_files_where_those_were_named() -> None:
    (run,) = json.loads(as_sarif({"/a/b.sql": [Finding("so", 1)]}))["runs"]
    assert (
        run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///a/b.sql"
    )
    assert json.loads(as_sarif({}))["runs"][0]["results"] == []


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("kind", ["github", "json", "sarif", "text"])
def test_a_file_that_cannot_be_read_is_told_apart_from_the_findings(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--format", kind, "good.sql", "nowhere.sql"]) == 1
    printed = capsys.readouterr()
    assert "There is no file 'nowhere.sql'." in printed.err
    assert "nowhere" not in printed.out


def test_the_hook_of_pre_commit_runs_what_is_there(tmp_path: Path) -> None:
    hook = dict(
        re.findall(r"^[ -] (\w+): (.*)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.MULTILINE)
    )
    program, *arguments = hook["entry"].split()
    assert f'{program} = "lookup_hints.cli.main:main"' in (ROOT / "pyproject.toml").read_text()
    file = tmp_path / "job.sql"
    file.write_text(MISTAKE)
    assert main([*arguments, str(file)]) == 1


def test_each_format_that_can_be_named_can_be_written() -> None:
    assert tuple(FORMATS) == FINDING_FORMATS
