"""Where no JVM starts, one line says why and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookup_hints.cli.main import main
from lookup_hints.runs.java import NoJava, check_java, failed_jvm

OLD = 'openjdk version "11.0.2" 2019-01-15'
OLDER = 'java version "1.8.0_292"'
FULL = "Error occurred during initialization of VM\nCould not reserve enough space for object heap"


def java_that_says(text: str, folder: Path) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{text}\nEOF\n", "utf-8")
    program.chmod(0o755)
    return str(program)


def test_java_is_that_of_java_home_or_of_the_path(tmp_path: Path) -> None:
    java = java_that_says("", tmp_path)
    assert check_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}, 17) == java
    assert check_java({"PATH": str(tmp_path / "bin")}, 17) == java
    with pytest.raises(NoJava, match="Spark needs Java 17 or newer, and there is none"):
        check_java({"PATH": str(tmp_path)}, 17)
    with pytest.raises(NoJava, match="JAVA_HOME is /nowhere, where there is no bin/java"):
        check_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path / "bin")}, 17)


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (
            OLD,
            "Spark needs Java 17 or newer, and {java} is Java 11. Try: apt install openjdk-17-jre-headless",
        ),
        (
            OLDER,
            "Spark needs Java 17 or newer, and {java} is Java 8. Try: apt install openjdk-17-jre-headless",
        ),
        (
            FULL,
            "There is no memory for the JVM of Spark, which asks for 90g. Free some, or ask for less: --conf",
        ),
    ],
)
def test_a_jvm_that_did_not_start_is_asked_why(says: str, line: str, tmp_path: Path) -> None:
    java = java_that_says(says, tmp_path)
    told = str(failed_jvm(java, 17, "90g", ""))
    assert told.startswith(line.format(java=java))
    assert "\n" not in told


def test_what_is_not_javas_fault_is_told_as_it_was(tmp_path: Path) -> None:
    assert (
        failed_jvm(java_that_says('openjdk version "17.0.9"', tmp_path), 17, "1g", "unresolved jar") is None
    )


@pytest.mark.usefixtures("launches")
def test_a_command_without_java_says_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("lookup_hints.runs.start.has_jvm", lambda: False)
    assert main(["run", "-c", "SELECT 1"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: JAVA_HOME is {tmp_path}, where there is no bin/java.")
    assert told.count("\n") == 1
