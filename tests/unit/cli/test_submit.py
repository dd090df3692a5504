"""lookup-hints submit and its siblings: the command that is run, the archive, and what is refused."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from zipfile import ZipFile

import pytest

from lookup_hints import __version__
from lookup_hints.cli.archive import build_archive, find_module
from lookup_hints.cli.main import main
from lookup_hints.cli.submit import SCRIPT, Submission, _run_process, command_text, divided
from lookup_hints.tables import registry
from tests.spark.bare_python import bare_python

OURS = {"--param": True, "--dry-run": False}


@pytest.mark.parametrize(
    ("line", "mine", "sparks"),
    [
        ("a.sql --master local", "a.sql", "--master local"),
        ("--master local a.sql", "a.sql", "--master local"),
        ("--verbose a.sql --param n=1 -v", "a.sql --param n=1", "--verbose -v"),
        ("--supervise --dry-run a.sql --jars x.jar", "--dry-run a.sql", "--supervise --jars x.jar"),
        ("--master=local[2] --param=n=1 a.sql", "--param=n=1 a.sql", "--master local[2]"),
        ("--conf spark.a=1 --conf=spark.b=2 a.sql", "a.sql", "--conf spark.a=1 --conf spark.b=2"),
        ("--conf lookup.transport=pandas a.sql", "--conf lookup.transport=pandas a.sql", ""),
        ("a.sql --name", "a.sql", "--name"),
        ("a.sql --brand-new-option 3 --kill 7", "a.sql", "--brand-new-option 3 --kill 7"),
        ("a.sql --param", "a.sql --param", ""),
    ],
)
def test_our_options_are_separated_from_those_of_spark_submit(line: str, mine: str, sparks: str) -> None:
    assert divided(line.split(), OURS) == (mine.split(), sparks.split())


def submission(*spark: str, file: str = "jobs/a.sql") -> Submission:
    return Submission(file, ("--rows", "5"), spark, ())


def test_the_command_ships_the_archive_and_names_the_application() -> None:
    assert submission("--master", "spark://m:7077").command("spark-submit", "/tmp/ours.zip") == [
        *("spark-submit", "--master", "spark://m:7077", "--py-files", "/tmp/ours.zip", "--name", "a.sql"),
        *(str(SCRIPT), "jobs/a.sql", "--rows", "5"),
    ]


def test_archives_of_ones_own_stay_and_a_name_too() -> None:
    command = submission("--py-files", "mine.zip", "--name", "nightly").command("spark-submit", "ours.zip")
    assert command[1:5] == ["--py-files", "mine.zip,ours.zip", "--name", "nightly"]


def test_a_driver_in_the_cluster_gets_the_file_laid_beside_it() -> None:
    command = submission("--deploy-mode", "cluster", "--files", "x.txt").command("spark-submit", "ours.zip")
    assert command[command.index("--files") + 1] == "x.txt,jobs/a.sql"
    assert command[command.index(str(SCRIPT)) + 1] == "a.sql"


def test_the_file_of_init_is_named_to_the_script_and_shipped_to_a_driver_in_the_cluster() -> None:
    here = Submission("a.sql", (), ("--master", "yarn"), (), "jobs/tables.sql")
    assert here.command("spark-submit", "ours.zip")[-2:] == ["--conf", "spark.lookup.init=jobs/tables.sql"]
    there = Submission("a.sql", (), ("--deploy-mode", "cluster"), (), "jobs/tables.sql")
    command = there.command("spark-submit", "ours.zip")
    assert command[command.index("--files") + 1] == "a.sql,jobs/tables.sql"
    assert command[-2:] == ["--conf", "spark.lookup.init=tables.sql"]
    function = Submission("a.sql", (), ("--deploy-mode", "cluster"), (), "my_tables:create")
    command = function.command("spark-submit", "ours.zip")
    assert command[command.index("--files") + 1] == "a.sql"
    assert command[-2:] == ["--conf", "spark.lookup.init=my_tables:create"]


def test_the_driver_is_this_python_unless_something_else_is_said() -> None:
    this = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    assert submission("--master", "yarn").environment({}) == this
    assert submission("--master", "local[2]").environment({}) == {**this, "PYSPARK_PYTHON": sys.executable}
    assert submission("--deploy-mode", "cluster").environment({}) == {}
    assert submission("--conf", "spark.pyspark.python=/opt/python").environment({}) == {}
    said = {"PYSPARK_DRIVER_PYTHON": "/opt/python"}
    assert submission().environment(said) == said
    assert submission("--remote", "sc://h").environment({}) == {**this, "SPARK_REMOTE": "sc://h"}


def test_a_shown_command_can_be_typed_and_holds_no_secret() -> None:
    remote = ["spark-submit", "--remote", "sc://host:1/;use_ssl=true;token=hunter2;x=y"]
    assert command_text(remote) == "spark-submit --remote 'sc://host:1/;use_ssl=true;token=***;x=y'"
    command = ["spark-submit", "--conf", "spark.hadoop.password=hunter2", "--param", "name=O'Hara Ann"]
    assert command_text(command) == (
        "spark-submit --conf 'spark.hadoop.password=***' --param 'name=O'\"'\"'Hara Ann'"
    )


def test_a_dry_run_prints_the_command_and_what_each_statement_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_geo.py").write_text(
        "from lookup_hints import register_connector\n"
        "from lookup_connectors.memory import MemoryConnector\n"
        "register_connector('geo', MemoryConnector)\n"
    )
    job = tmp_path / "job.sql"
    job.write_text(
        "CREATE TEMPORARY TABLE p (id BIGINT, name STRING) WITH ('connector' = 'geo', 'rows' = '[]');\n"
        "SELECT 1 AS one;\n"
        "SELECT p.name FROM range(3) r LEFT JOIN p ON r.id = p.id WHERE r.id < :most;\n"
        "INSERT INTO noop WITH (checkpointLocation = '/c') SELECT * FROM STREAM s;\n"
    )
    arguments = [
        "submit",
        str(job),
        "--master",
        "yarn",
        "--module",
        str(tmp_path / "own_geo.py"),
        "--dry-run",
    ]
    assert main([*arguments, "--param", "most=2"]) == 0
    out = capsys.readouterr().out
    folder, ships, command, rest = out.split("\n", 3)
    made = Path.cwd() / f"lookup_hints-{__version__}.zip"
    assert folder == f"(cd {Path.cwd()} &&"
    assert ships.endswith(f" archive --output {made} --module {tmp_path / 'own_geo.py'} &&")
    assert f"spark-submit --master yarn --py-files {made} --name job.sql" in command
    assert command.endswith(f"{job} --param most=2 --rows 20 --module own_geo)")
    assert "[1/4] line 1: CREATE TEMPORARY TABLE p" in rest
    assert "    handled by lookup_hints\n" in rest
    assert "    handed to Spark as it is\n" in rest
    assert "    (1) LEFT lookup join with p, line 3\n" in rest
    assert "    starts a streaming query into noop\n" in rest


def test_a_dry_run_knows_the_retry_predicates_of_a_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_predicates", {})
    (tmp_path / "own_predicates.py").write_text(
        "from lookup_hints import register_retry_predicate\n"
        "register_retry_predicate('no-name', lambda rows: not rows)\n"
    )
    job = tmp_path / "job.sql"
    job.write_text(
        "CREATE TEMPORARY TABLE p (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]');\n"
        "SELECT /*+ LOOKUP('table'='p', 'retry-predicate'='no_name', 'retry-strategy'='fixed_delay',"
        " 'fixed-delay'='1s', 'max-attempts'='2') */ 1 FROM range(3) r JOIN p ON r.id = p.id"
    )
    assert main(["submit", str(job), "--dry-run"]) == 1
    assert "No retry predicate is called 'no_name'." in capsys.readouterr().err
    assert main(["submit", str(job), "--dry-run", "--module", str(tmp_path / "own_predicates.py")]) == 0
    assert "retry        no_name, fixed_delay 1 s, max-attempts 2 (hint)" in capsys.readouterr().out


def test_a_dry_run_shows_mistakes_first_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.sql"
    job.write_text(
        "CREATE TEMPORARY TABLE p (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]');\n"
        "SELECT /*+ LOOKUP('table'='p', 'capasity'='1') */ 1 FROM range(3) r JOIN p ON r.id = p.id"
    )
    monkeypatch.setattr("sys.stdout", sys.stderr)
    assert main(["submit", str(job), "--dry-run"]) == 1
    shown = capsys.readouterr().err
    first, rest = shown.split("(cd ", 1)
    assert first.startswith("error: line 2, column 32: ")
    assert "Did you mean 'capacity'?" in first
    assert "[2/2] line 2: " in rest
    assert rest.endswith("    does not run: its error is above\n")


def test_each_mistake_of_a_dry_run_has_its_own_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tables.sql").write_text(TABLE, encoding="utf-8")
    job = tmp_path / "job.sql"
    job.write_text(
        "SELECT /*+ LOOKUP('table'='p', 'capasity'='1', 'timeout'='x') */ 1 FROM range(3) r JOIN p ON r.id = p.id;\n"
        "SELEC 1",
        encoding="utf-8",
    )
    assert main(["submit", str(job), "--dry-run", "--init", str(tmp_path / "tables.sql")]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("error:", "line"))]
    assert [line[:24] for line in said] == [
        *("error: line 1, column 32", "error: line 1, column 58", "error: line 2, column 1:")
    ]


def test_a_dry_run_knows_the_tables_of_init(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tables.sql").write_text(TABLE, encoding="utf-8")
    Path("job.sql").write_text("SELECT p.id FROM range(3) r JOIN p ON r.id = p.id", encoding="utf-8")
    assert main(["submit", "job.sql", "--dry-run", "--init", "tables.sql"]) == 0
    out = capsys.readouterr().out
    assert f"--conf spark.lookup.init={tmp_path}/tables.sql)" in out
    assert "    (1) INNER lookup join with p, line 1\n" in out
    Path("tables.sql").write_text(TABLE.replace("BIGINT", "BIGNT"), encoding="utf-8")
    assert main(["submit", "job.sql", "--dry-run", "--init", "tables.sql"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: lookup.init: tables.sql, line 1, column 30: Column 'id': The type is missing"
    )


TABLE = "CREATE TEMPORARY TABLE p (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]')"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit", "JOB", "--init", "nowhere.sql"], "--init: there is no file 'nowhere.sql'."),
        (["submit", "nowhere.sql"], "There is no file 'nowhere.sql'."),
        (["submit", "JOB", "--param", "x"], "The parameter 'x' is not name=value."),
        (["submit", "JOB", "--conf", "lookup.x"], "--conf needs KEY=VALUE, not 'lookup.x'"),
        (
            ["submit", "JOB", "--master", "spark://m:7077", "--deploy-mode", "cluster"],
            "the master spark://m:7077 runs no driver of Python in the cluster; YARN and",
        ),
        (["submit", "JOB", "--module", "no_such_module"], "There is no module 'no_such_module' to ship."),
        (["submit", "JOB", "--modul", "geo.py"], "There is no option --modul. Did you mean --module?"),
        (
            ["submit", "JOB", "--deploy-mod=client"],
            "There is no option --deploy-mod. Did you mean --deploy-mode",
        ),
        (["archive", "--output", "ours.whl"], "--output must end with .zip"),
        (["run", "nowhere.sql"], "There is no file 'nowhere.sql'."),
        (["run", "JOB", "--conf", "x"], "--conf needs KEY=VALUE"),
    ],
)
def test_wrong_use_is_said_with_exit_code_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.sql"
    job.write_text("SELECT 1")
    assert main([str(job) if each == "JOB" else each for each in arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_spark_submit_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.sql").write_text("SELECT 1")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert main(["submit", str(tmp_path / "job.sql")]) == 2
    assert "spark-submit is missing. Set SPARK_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["submit", "submit a.sql --rows many"])
def test_a_malformed_line_ends_with_exit_code_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert "usage: lookup-hints submit FILE.sql" in capsys.readouterr().err


def test_the_exit_code_is_that_of_spark_submit() -> None:
    assert _run_process([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7
    assert _run_process([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"], os.environ) == 128 + 15


def test_a_signal_is_handed_on(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)"
    )

    before = signal.getsignal(signal.SIGTERM)

    def terminate() -> None:
        deadline = time.monotonic() + 50
        while not ready.exists() or signal.getsignal(signal.SIGTERM) is before:
            if time.monotonic() > deadline:
                return  # the child's own end fails the test
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=terminate)
    killer.start()
    assert _run_process([sys.executable, "-c", code], os.environ) == 3
    killer.join()
    assert signal.getsignal(signal.SIGTERM) is before


DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "submit.md"
EXAMPLES = [
    line.removeprefix("lookup-hints ")
    for line in PAGE.read_text(encoding="utf-8").replace(" \\\n ", "").splitlines()
    if line.startswith("lookup-hints submit ")
]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_of_the_page_can_be_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text("SELECT :day")
    Path("my_geo.py").write_text("")
    Path("tables.sql").write_text(TABLE)
    assert main([*line.split(), "--dry-run"]) == 0
    assert "handed to Spark as it is" in capsys.readouterr().out


def test_the_task_of_airflow_has_what_a_dry_run_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "airflow.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^lookup-hints (submit .*)$", page, re.MULTILINE)
    (code,) = re.findall(r"```py\n.*?\n\n(enrich = .*?)```", page, re.DOTALL)
    call = ast.parse(code).body[0]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    given = {each.arg: eval(ast.unparse(each.value)) for each in call.value.keywords}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/srv/venv/bin/python")
    Path("job.sql").write_text("SELECT :day")
    Path("tables.sql").write_text(TABLE)
    assert main(line.split()) == 0
    printed = capsys.readouterr().out.partition("\n\n")[0].replace(str(tmp_path), "/srv/jobs")
    words = shlex.split(printed.strip("()").replace("\n", " "))
    program = next(at for at, word in enumerate(words) if word.endswith("/spark-submit"))
    script = words.index(str(SCRIPT))
    options = dict(zip(words[program + 1 : script : 2], words[program + 2 : script : 2], strict=True))
    variables = dict(word.split("=", 1) for word in words[words.index("env") + 1 : program])
    variables.pop("SPARK_HOME", None)  # that of this Python's own spark-submit
    assert options.pop("--master") == "yarn"
    assert dict([options.pop("--conf").split("=")]) == given["conf"]
    assert {key[2:].replace("-", "_"): value for key, value in options.items()} == {
        key: given[key] for key in ("py_files", "name", "executor_memory")
    }
    assert given["application"].endswith("/lookup_hints/cli/scripts/" + SCRIPT.name)
    assert given["application_args"] == words[script + 1 :]
    assert given["env_vars"] == variables


# --- the archive -----------------------------------------------------------------------------------


def test_a_python_without_the_library_runs_from_the_archive(tmp_path: Path) -> None:
    module = tmp_path / "elsewhere" / "my_geo.py"
    module.parent.mkdir()
    module.write_text("from lookup_hints.spi import SyncLookup\nHERE = __file__\n")
    archive = build_archive(tmp_path / "ours.zip", [find_module(str(module))])
    code = (
        "import lookup_hints, sqlglot, my_geo\n"
        "from lookup_hints.tables.registry import connector_names\n"
        "print(lookup_hints.__file__, sqlglot.__file__, my_geo.HERE, *connector_names())"
    )
    run = subprocess.run(
        [bare_python(tmp_path / "bare"), "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
    )
    assert run.returncode == 0, run.stderr
    ours, sqlglot, own, *connectors = run.stdout.split()
    assert ours == f"{archive}/lookup_hints/__init__.py"
    assert sqlglot == f"{archive}/sqlglot/__init__.py"
    assert own == f"{archive}/my_geo.py"
    assert {"memory", "sqlite", "postgres", "http"} <= set(connectors)


def test_the_same_content_makes_the_same_archive(tmp_path: Path) -> None:
    one, two = build_archive(tmp_path / "1.zip"), build_archive(tmp_path / "2.zip")
    assert one.read_bytes() == two.read_bytes()
    names = ZipFile(one).namelist()
    assert "lookup_connectors/memory.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".so", ".pyc"))]


def test_a_package_is_shipped_whole(tmp_path: Path) -> None:
    package = tmp_path / "geo"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "data.json").write_text("{}")
    assert [name for name, _ in find_module(str(package)).files()] == [
        "geo/__init__.py",
        "geo/inner/data.json",
    ]


def test_compiled_code_is_not_shipped(tmp_path: Path) -> None:
    package = tmp_path / "fast"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "core.so").write_bytes(b"")
    with pytest.raises(Exception, match=r"holds compiled code \(core.so\).* Install it there"):
        find_module(str(package))


def test_the_script_stands_alone_in_its_folder() -> None:
    """Python puts its folder first on the path, where our `types` would hide Python's."""
    assert [path.name for path in SCRIPT.parent.iterdir() if path.name != "__pycache__"] == [SCRIPT.name]


def test_a_driver_without_the_library_is_told_what_to_do(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "a.sql"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 1
    assert f"The Python of the driver ({sys.executable}) does not have the module" in run.stderr
    assert "--py-files $(lookup-hints archive)" in run.stderr
