"""The demo: its data, what it tells, and that its wheel brings all of it."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from lookup_hints.cli import demo
from lookup_hints.cli.arguments import WrongUse
from lookup_hints.cli.main import main
from tests.spark.bare_python import bare_python

ROOT = Path(__file__).resolve().parent.parent.parent


def test_an_earlier_demo_makes_room(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo.prepare(folder)
    (folder / "orders" / "4.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")
    demo.prepare(folder)
    assert sorted(path.name for path in (folder / "orders").iterdir()) == ["1.json", "2.json", "3.json"]
    assert (folder / "notes.txt").read_text() == "mine"
    with closing(sqlite3.connect(folder / "customers.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM customers").fetchone() == (5,)


def test_nothing_of_others_is_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders").mkdir()
    assert main(["demo", "--folder", str(tmp_path)]) == 2
    assert "not from a demo. Name another with --folder." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["orders"]
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongUse, match="not from a demo"):
        demo.prepare(tmp_path / "file")


def test_a_folder_that_sql_would_write_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="Name another --folder"):
        demo.prepare(tmp_path / "it's")
    assert not (tmp_path / "it's").exists()


def test_its_file_of_sql_is_without_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = demo.prepare(tmp_path / "demo")
    assert main(["check", str(script)]) == 0
    assert capsys.readouterr().out == f"{script}: 0 errors\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel, in a virtual environment of its own; what the wheel needs is that of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], check=True)
    python = bare_python(folder / "env")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
    return Path(python).parent / "lookup-hints"


def test_the_wheel_shows_three_statements_and_what_to_type_next(installed: Path, tmp_path: Path) -> None:
    kept = ("HOME", "JAVA_HOME", "LANG", "SPARK_SUBMIT_OPTS")
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **{k: os.environ[k] for k in kept if k in os.environ},
    }
    java = [str(Path(os.environ["JAVA_HOME"]) / "bin")] if "JAVA_HOME" in os.environ else []
    environment["PATH"] = os.pathsep.join([*java, environment["PATH"]])
    began = time.monotonic()
    ran = subprocess.run([installed, "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    print(f"the demo took {time.monotonic() - began:.1f} s")
    assert ran.returncode == 0, ran.stderr
    first, second, stream = re.split(r"== \d\. .* ==", ran.stdout)[1:]
    assert "12 rows came, and the source was asked for 6 keys in 1 request:" in first
    assert "|105|99.90| NULL|   NULL|" in first
    assert "|105|99.90| Mary|     GB|" in second
    assert "Customer 6 was missed at first." in second
    assert [line.split()[1:5] for line in stream.splitlines() if line.startswith("enriched batch")] == [
        ["batch", f"{number}:", "4", "rows,"] for number in range(3)
    ]
    assert f"12 rows are in {tmp_path}/lookup-hints-demo/enriched, each of them once." in stream

    typed = [line.strip() for line in stream.split("Next, type:")[1].splitlines() if line.startswith("  ")]
    commands = [line for line in typed if line.startswith((str(installed), "echo"))]
    assert len(commands) == 4
    check = next(line for line in commands if " check " in line)
    checked = subprocess.run(shlex.split(check), cwd="/", env=environment, capture_output=True, text=True)
    assert checked.stdout.endswith("demo.sql: 0 errors\n")
    subprocess.run(next(line for line in commands if line.startswith("echo")), shell=True, check=True)
    assert (tmp_path / "lookup-hints-demo" / "orders" / "4.json").read_text().startswith('{"id": 113')
