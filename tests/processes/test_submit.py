"""Files of SQL through spark-submit, on a cluster of processes whose executors do not have this library."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import jvm
from tests.servers.spark_cluster import SPARK_HOME, connect_server, standalone_cluster
from tests.spark.bare_python import bare_python
from tests.spark.versions import needs_connect_server

pytestmark = pytest.mark.timeout(600)

OWN_MODULE = '''
import os
import time
import pyarrow as pa
from lookup_hints import register_connector
from lookup_hints.spi import SyncLookup

class Whereabouts(SyncLookup):
    """Each key, who answered, and whether that has this library installed."""

    def lookup(self, request):
        import lookup_hints
        time.sleep(0.2)  # so that no executor runs all tasks before the other has begun
        keys = request.keys.column("n").to_pylist()
        rows = {"n": keys, "daemon": [os.getppid()] * len(keys), "place": [lookup_hints.__file__] * len(keys)}
        return pa.table({name: rows[name] for name in request.schema.names}, request.schema)

register_connector("whereabouts", Whereabouts)
'''

JOB = """-- who answers, and from where
CREATE TEMPORARY TABLE whereabouts (n BIGINT, daemon BIGINT, place STRING) WITH ('connector' = 'whereabouts');
CREATE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "Bob"]]');
INSERT OVERWRITE DIRECTORY USING parquet OPTIONS (path '{out}')
SELECT r.id, p.name, w.daemon, w.place FROM range(0, 40, 1, 8) r
JOIN whereabouts w ON r.id = w.n LEFT JOIN people p ON r.id = p.id;
SELECT /*+ LOOKUP('table'='p') */ p.name, :day AS day
FROM range(0, 4, 1, 2) r JOIN people p ON r.id = p.id ORDER BY p.name;
"""
WITHOUT_OWN = """
CREATE TEMPORARY TABLE people (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"]]');
SELECT p.name, :day AS day FROM range(0, 4, 1, 2) r JOIN people p ON r.id = p.id;
"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of workers, which does not have this library."""
    return bare_python(tmp_path_factory.mktemp("worker") / "bare")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Run]:
    """Runs a command with the cluster's URL in place of MASTER; its executors run a bare Python."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": jvm.options(),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": "",
    }

    def command(cwd: Path, *arguments: str, seconds: float = 240) -> Ended:
        out, err = cwd / "out.txt", cwd / "err.txt"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [url if each == "MASTER" else each for each in arguments],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout=seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    with standalone_cluster(folder, workers=2, seconds=120) as url:
        yield command


LOOKUP_HINTS = str(Path(sys.executable).parent / "lookup-hints")
SPARK_SUBMIT = str(SPARK_HOME / "bin" / "spark-submit")
SIZES = [
    *("--master", "MASTER", "--executor-memory", "512m", "--driver-memory", "512m"),
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
    # Tasks wait until both executors are there; a standalone master's driver must know how many cores those have.
    *("--conf", "spark.cores.max=2", "--conf", "spark.scheduler.minRegisteredResourcesRatio=1"),
    *("--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=60s"),
    *("--conf", "spark.task.maxFailures=1"),
    *("--conf", f"spark.executor.extraJavaOptions={jvm.options()}"),
]


def printed(*arguments: str) -> str:
    """What a command of ours prints."""
    done = subprocess.run([LOOKUP_HINTS, *arguments], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_submit_ships_the_library_and_modules_of_ones_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my_geo.py").write_text(OWN_MODULE, encoding="utf-8")
    (tmp_path / "job.sql").write_text(JOB.format(out=tmp_path / "rows"), encoding="utf-8")

    ended = run(
        tmp_path,
        *(LOOKUP_HINTS, "submit", *SIZES, "job.sql", "--module", "my_geo.py", "--param", "day=2013-01-01"),
    )

    assert ended.code == 0, ended.err
    rows = pq.read_table(tmp_path / "rows").sort_by("id").to_pydict()
    assert rows["id"] == list(range(40))
    assert rows["name"] == [None, "Ann", "Bob", *[None] * 37]
    assert len(set(rows["daemon"])) == 2, "both executors have asked"
    assert all("lookup_hints-" in place and ".zip" in place for place in rows["place"]), "from the archive"
    assert "| Ann|2013-01-01|" in ended.out
    assert "\nw: 40 keys asked for, 40 found, 0 missed, waited " in ended.out
    assert "job.sql: 4 statements in" in ended.out
    logged = re.findall(r"INFO lookup_hints.job: (.*)", ended.out)  # spark-submit makes one stream of both
    assert len(logged) == 4
    assert re.match(
        r"\[3/4\] line 5: INSERT OVERWRITE .*: done in .* s; w: 40 rows in, 40 rows out,", logged[2]
    )
    assert "\r" not in ended.out, "no bar where there is no terminal"


@needs_connect_server
def test_a_connect_server_gets_the_library_and_modules_of_ones_own(
    run: Run, python: str, tmp_path: Path
) -> None:
    (tmp_path / "my_geo.py").write_text(OWN_MODULE, encoding="utf-8")
    (tmp_path / "job.sql").write_text(JOB.format(out=tmp_path / "rows"), encoding="utf-8")
    tables = (
        "CREATE TEMPORARY TABLE known (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '[]')"
    )
    (tmp_path / "tables.sql").write_text(tables, encoding="utf-8")
    with (tmp_path / "job.sql").open("a", encoding="utf-8") as job:
        job.write(
            "SELECT count(k.id) AS found, count(*) AS here FROM range(3) r LEFT JOIN known k ON r.id = k.id;"
        )

    with connect_server(tmp_path, python, seconds=120) as url:
        ended = run(
            tmp_path,
            *(LOOKUP_HINTS, "submit", "job.sql", "--remote", url),
            *("--module", "my_geo.py", "--param", "day=2013-01-01", "--init", "tables.sql"),
        )

    assert ended.code == 0, ended.out + ended.err
    assert "|    0|   3|" in ended.out
    rows = pq.read_table(tmp_path / "rows").sort_by("id").to_pydict()
    assert rows["id"] == list(range(40))
    assert rows["name"] == [None, "Ann", "Bob", *[None] * 37]
    assert all("lookup_hints-" in place and ".zip" in place for place in rows["place"]), "from the archive"
    assert "| Ann|2013-01-01|" in ended.out
    assert "no counts of" not in ended.out


def test_spark_submit_runs_the_script(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text(WITHOUT_OWN, encoding="utf-8")
    archive = printed("archive", "--output", str(tmp_path / "ours.zip"))

    ended = run(
        tmp_path,
        *(SPARK_SUBMIT, *SIZES, "--py-files", archive, printed("submit-script"), "job.sql"),
        *("--param", "day=2013-01-01"),
    )

    assert ended.code == 0, ended.err
    assert "| Ann|2013-01-01|" in ended.out


def test_what_a_dry_run_prints_runs_in_a_bare_shell(tmp_path: Path) -> None:
    create, select = WITHOUT_OWN.split(";", 1)
    (tmp_path / "tables.sql").write_text(create, encoding="utf-8")
    (tmp_path / "job.sql").write_text(select, encoding="utf-8")
    typed = [LOOKUP_HINTS, "submit", "job.sql", "--dry-run", "--master", "local[1]"]
    typed += ["--init", "tables.sql", "--param", "day=2013-01-01"]
    dry = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=True)
    pasted = dry.stdout.partition("\n\n")[0]
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ran = subprocess.run(["bash"], input=pasted, cwd="/", env=bare, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "| Ann|2013-01-01|" in ran.stdout


def test_what_a_worker_lacks_is_said_and_the_exit_code_is_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text(WITHOUT_OWN, encoding="utf-8")

    ended = run(tmp_path, *(SPARK_SUBMIT, *SIZES, printed("submit-script"), "job.sql", "--param", "day=x"))

    assert ended.code == 1
    said = ended.out[ended.out.index("error in the statement at line 3") :]
    assert "does not have lookup_hints" in said.splitlines()[0], said
    assert "job.sql: 1 of 2 statements in" in ended.out


def test_wrong_use_is_exit_code_2(run: Run, tmp_path: Path) -> None:
    ended = run(tmp_path, SPARK_SUBMIT, "--master", "MASTER", printed("submit-script"), "nowhere.sql")

    assert ended.code == 2
    assert "There is no file 'nowhere.sql'." in ended.out
