"""The command line: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lookup_hints.cli import commands
from lookup_hints.cli.main import main
from lookup_hints.runs import progress
from lookup_hints.runs.start import await_server
from lookup_hints.session import LookupSession
from lookup_hints.tables import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def test_run_prints_rows_and_a_line_for_each_lookup(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--param", "most=5", "--conf", "spark.sql.shuffle.partitions=2"]
    assert main(["run", str(job), *few]) == 0
    out = capsys.readouterr().out
    assert "[1/3] line 2: CREATE OR REPLACE TEMPORARY TABLE people" in out
    rows = out.index("| Ann|  2|")
    assert re.search(r"^p: 5 keys asked for, 3 found, 2 missed, waited [\d.]+ \S+$", out[rows:], re.MULTILINE)
    assert "lookup join with" not in out
    assert "rows in" not in out
    assert out.splitlines()[-1].startswith(f"{job}: 3 statements in ")


def test_run_prints_plans_and_all_counts_where_it_is_asked_to(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(job), "-v", "--param", "most=5"]) == 0
    out = capsys.readouterr().out
    for part in (
        "(1) LEFT lookup join with people AS p, line 6",
        "9 requests in flight",
        "| Ann|  2|",
        "lookup  rows in  rows out  keys  requests  hits  misses",
    ):
        assert part in out
    (summary,) = [line for line in out.splitlines() if line.startswith("p  ")]
    assert summary.split()[1:3] == ["5", "5"]


def test_a_join_is_named_by_its_line_in_the_file_however_its_plan_is_shown(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, query = JOB.rsplit("SELECT /*+", 1)
    job.write_text(f"{head}EXPLAIN\nSELECT /*+{query}", encoding="utf-8")
    assert main(["run", str(job), "--param", "most=5"]) == 0
    assert "(1) LEFT lookup join with people AS p, line 7" in capsys.readouterr().out
    job.write_text(JOB, encoding="utf-8")
    assert main(["explain", str(job), "--param", "most=5"]) == 0
    assert "(1) LEFT lookup join with people AS p, line 6" in capsys.readouterr().out


def test_one_statement_shows_its_rows_and_counts_alone(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = """('connector' = 'memory', 'rows' = '[[1, "Ann"]]')"""
    LookupSession(spark).sql(f"CREATE TEMPORARY TABLE one (id BIGINT, name STRING) WITH {rows}")
    query = ["-c", "SELECT count(p.name) FROM range(5) r JOIN one p ON r.id = p.id"]
    assert main(["run", *query]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("+---")
    after_rows = [line.partition(",")[0] for line in out[5:] if line]
    assert after_rows[0] == "p: 5 keys asked for"
    assert re.fullmatch(r"\d+\.\d s", after_rows[1])
    assert len(after_rows) <= 3, "at most what the lookup waited for follows"
    assert main(["run", *query, "--verbose"]) == 0
    told = capsys.readouterr().out
    assert [line.split()[:2] for line in told.splitlines() if "rows in" in line] == [["lookup", "rows"]]
    assert "cached" not in told
    assert main(["run", "-c", "SELECT count(*) FROM one"]) == 0
    assert "\none: read whole, as no equality gives its key\n" in capsys.readouterr().out


def test_run_sums_up_and_logs_a_line_for_each_statement(
    spark: SparkSession,
    job: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "lookup_hints.job"):
        assert main(["run", str(job), "--verbose", "--param", "most=5"]) == 0
    printed = capsys.readouterr()
    end = printed.out[printed.out.index(f"{job}: 3 statements in ") :].splitlines()
    assert end[1].split()[:4] == ["line", "lookup", "rows/s", "rows"]
    assert end[2].split()[:2] == ["5", "p"]
    assert end[2].split()[3:5] == ["5", "5"]
    assert len(end) == 3
    told = [record for record in caplog.records if record.name == "lookup_hints.job"]
    assert [record.getMessage().split(":")[0] for record in told] == [
        *("[1/3] line 2", "[2/3] line 4", "[3/3] line 5")
    ]
    assert ": done in " in told[2].getMessage()
    assert "p: 5 rows in, 5 rows out, " in told[2].getMessage()
    assert " cached" not in told[2].getMessage(), "there is no cache to tell of"
    assert "\r[" not in printed.err, "no bar where there is no terminal"


def test_run_shows_a_bar_on_a_terminal(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, shown, printing = tmp_path / "long.sql", tmp_path / "shown", sys.stderr.write

    def until_shown(number: int) -> int:
        while not shown.exists():
            time.sleep(0.01)
        return number

    def write(text: str) -> int:
        if "tasks" in text:
            shown.touch()
        return printing(text)

    spark.udf.register("until_shown", until_shown, "bigint")
    path.write_text("SELECT count(until_shown(id)) AS n FROM range(0, 4, 1, 4)", encoding="utf-8")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "write", write)
    monkeypatch.setattr(progress, "_EVERY", 0.005)
    assert main(["run", str(path)]) == 0
    printed = capsys.readouterr()
    assert re.search(r"\r\x1b\[J\[=* *\] \d+/\d+ tasks", printed.err)
    assert printed.err.endswith("\r\x1b[J"), "the line is left as if nothing had been there"
    assert "tasks" not in printed.out


def test_run_stops_at_the_first_failure(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "bad.sql"
    path.write_text("SELECT 1 AS one;\n\nSELECT nope FROM range(1);\nSELECT 3 AS three", encoding="utf-8")
    assert main(["run", str(path)]) == 1
    printed = capsys.readouterr()
    assert "error in the statement at line 3" in printed.err
    assert "UNRESOLVED_COLUMN" in printed.err
    assert "line 3, column 8:\nSELECT nope FROM range(1)\n       ^^^^\n" in printed.err
    assert printed.err.count("UNRESOLVED_COLUMN") == 1, "once is enough"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert "org.apache" not in printed.err
    assert ": 1 of 3 statements in " in printed.out
    assert "three" not in printed.out


def test_explain_runs_only_what_sets_the_scene(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(job), "--param", "most=5"]) == 0
    out = capsys.readouterr().out
    assert "== Lookup joins ==" in out
    assert "LATERAL VIEW OUTER inline(lookup_" in out
    assert "Ann" not in out


def test_check_finds_nothing_in_a_good_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(job), "--param", "most=5"]) == 0
    assert capsys.readouterr().out == f"{job}: 0 errors\n"


def test_check_finds_every_mistake_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.sql"
    path.write_text(
        JOB.replace("'capacity'='9'", "'capasity'='9'")
        + "\nCREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'sqlite', 'paht' = 'x');\n"
        "SELECT /*+ LOOKUP('table'='p') */ 1 FROM visits v RIGHT JOIN people p ON v.person = p.id;\n"
        "EXPLAIN SELECT /*+ LOOKUP('table'='p') */ 1 FROM visits v JOIN people p ON v.person > p.id;\n",
        encoding="utf-8",
    )
    assert main(["check", str(path), "--param", "most=5"]) == 1
    out = capsys.readouterr().out
    assert f"{path}:5:32: error: No LOOKUP option is called 'capasity'. Did you mean 'capacity'?" in out
    assert (
        f"{path}:8:65: error: table t: connector 'sqlite' has no option 'paht'. Did you mean 'path'?" in out
    )
    assert f"{path}:9:51: error: The lookup join with p cannot run: a RIGHT JOIN" in out
    assert f"{path}:10:76: error: The lookup join with p has no key" in out
    assert out.endswith("4 errors\n")


def test_check_imports_the_modules_that_register_connectors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    module = tmp_path / "my_capitals.py"
    module.write_text(
        "from lookup_hints import register_connector\n"
        "from lookup_hints.spi import SyncRowLookup\n"
        "class Capitals(SyncRowLookup):\n"
        "    def lookup_row(self, request):\n"
        "        return []\n"
        "register_connector('capitals', Capitals)\n"
    )
    path = tmp_path / "job.sql"
    path.write_text("CREATE TEMPORARY TABLE c (code STRING) WITH ('connector' = 'capitals')")
    assert main(["check", str(path), "--module", str(module)]) == 0
    monkeypatch.setattr(registry, "_registered", {})
    assert main(["check", str(path)]) == 1
    assert "No connector is called 'capitals'" in capsys.readouterr().out
    assert main(["check", str(path), "--module", "my_capitols"]) == 1


@pytest.mark.parametrize(
    ("text", "told", "code"),
    [
        ("", "FILE:1:1: note: the file contains no statements\nFILE: 0 errors\n", 0),
        ("-- a\n/* b */\n;;\n", "FILE:1:1: note: the file contains no statements\nFILE: 0 errors\n", 0),
        (
            "SELECT 1;\nSELECT \0 2",
            "FILE:2:8: error: There is a NUL character here. Is this UTF-8 text?\nFILE: 1 error\n",
            1,
        ),
        (
            "SELECT 1;\nSELECT 'hunter2",
            "FILE:2:8: error: This quote is never closed.\nFILE: 1 error\n",
            1,
        ),
        (
            "/*+ LOOKUP('table'='c') */",
            "FILE:1:5: error: A LOOKUP hint belongs right after SELECT, not here.\n"
            "/*+ LOOKUP('table'='c') */\n    ^^^^^^^^^^^^^^^^^^^\nFILE: 1 error\n",
            1,
        ),
        ("\u200b;\x1b[31m;\x85;SELECT '\u2028'", "FILE: 0 errors\n", 0),
        (
            "SELECT 1; CREATE TEMPORARY TABLE t WITH ('connector'='x', 'password' 'hunter2')",
            "FILE:1:59: error: A '=' is missing after **********.\n"
            "CREATE TEMPORARY TABLE t WITH ('connector'='x', ********** *********)\n"
            "                                                ^^^^^^^^^^^^^^^^^^^^\nFILE: 1 error\n",
            1,
        ),
        (
            "-- c\nSET lookup.transport = air -- sea\n;\n/* c */ EXPLAIN/* c */ SELECT /*+ LOOKUP() */ 1",
            "FILE:2:24: error: 'lookup.transport' cannot be 'air': it must be one of auto, arrow, pandas.\n"
            "SET lookup.transport = air -- sea\n                       ^^^\n"
            "FILE:4:35: error: This LOOKUP hint names no table."
            " Name the alias of the lookup table: 'table' = '...'.\n"
            "EXPLAIN/* c */ SELECT /*+ LOOKUP() */ 1\n                          ^^^^^^^^\nFILE: 2 errors\n",
            1,
        ),
    ],
)
def test_check_of_odd_texts(
    text: str, told: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.sql"
    path.write_text(text, encoding="utf-8")
    assert main(["check", str(path)]) == code
    assert capsys.readouterr().out == told.replace("FILE", str(path))


def test_check_knows_which_tables_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tables.sql"
    path.write_text(
        "CREATE TEMPORARY TABLE T WITH ('connector'='sqlite', 'path'='x');\n"
        "CREATE TEMPORARY TABLE t (id INT) WITH ('connector'='sqlite', 'path'='x');\n"
        "SELECT 1 FROM v JOIN t ON v.id > t.id;\n"
        "CREATE OR REPLACE TEMPORARY TABLE t (id INT) WITH ('connector'='sqlite', 'path'='x');\n"
        "SELECT /*+ LOOKUP('table'='t') */ 1 FROM v JOIN t ON v.id > t.id;\n"
        "DROP TABLE t;\n"
        "SELECT 1 FROM v JOIN t ON v.id > t.id;\n",
        encoding="utf-8",
    )
    assert main(["check", str(path)]) == 1
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith(str(path))]
    expected = [
        "2:1: error: The lookup table 't' exists already.",
        "5:54: error: The lookup join with t has no key",
        " 2 errors",
    ]
    for line, beginning in zip(told, expected, strict=True):
        assert line.startswith(f"{path}:{beginning}")


def test_the_file_is_a_path_whatever_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "SELECT 1"]) == 1
    assert "error: There is no file 'SELECT 1'." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_file_of_comments_runs_nothing(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "comments.sql"
    path.write_text("-- SELECT 1;", encoding="utf-8")
    assert main([command, str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no statement to run\n"


def test_a_column_called_plan_is_shown_like_any_other(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plans.sql"
    path.write_text(
        "SELECT * FROM VALUES ('gold'), ('silver') AS t(plan);\n"
        "SELECT 'x' AS createtab_stmt WHERE false;\n"
        "/* why */ EXPLAIN SELECT 1 AS one;\n",
        encoding="utf-8",
    )
    assert main(["run", str(path)]) == 0
    out = capsys.readouterr().out
    assert "|  gold|" in out
    assert "|silver|" in out
    assert "|createtab_stmt|" in out
    assert "\n== Physical Plan ==\n" in out
    assert "|== Physical" not in out


def test_secrets_in_options_are_not_printed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "secret.sql"
    path.write_text(
        "CREATE OR REPLACE TEMPORARY TABLE t (id INT) WITH ('connector'='postgres', 'host'='h', 'password'='hunter2');\n"
        "SHOW CREATE TABLE t;\n"
        "CREATE TEMPORARY TABL t WITH ('connector'='postgres', 'host'='h', 'password'='hunter2');\n",
        encoding="utf-8",
    )
    assert main(["run", str(path)]) == 1
    printed = capsys.readouterr()
    head = "CREATE OR REPLACE TEMPORARY TABLE t (id INT) WITH ('connector'='postgres', 'host'='h', 'pa"
    assert f"[1/3] line 1: {head}" in printed.out
    assert "\nCREATE TEMPORARY TABLE `t` (\n" in printed.out
    assert "TABL is not understood" in printed.err
    assert "hunter2" not in printed.out + printed.err


def test_explain_never_writes_a_table_whatever_its_name(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "write.sql"
    path.write_text("CREATE TABLE temp USING parquet AS SELECT 1 AS one", encoding="utf-8")
    assert main(["explain", str(path)]) == 0
    assert not spark.catalog.tableExists("temp")


def test_check_does_not_miss_what_only_spark_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TEMPORARY TABLE a (id INT) WITH ('connector' = 'memory', 'rows' = '[]',"
        " 'lookup.max-concurrency' = '1');\n"
        "SELECT 1 FROM t JOIN a ON t.id = a.id"
    )
    assert main(["check", str(path)]) == 0
    assert not capsys.readouterr().err


def test_check_touches_no_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "postgres.sql"
    path.write_text(
        "CREATE TEMPORARY TABLE a (id INT) WITH ('connector'='postgres', 'url'='${env:NO_SUCH_DSN}');\n"
        "CREATE TEMPORARY TABLE b WITH ('connector'='sqlite', 'path'='${conf:my.path}');\n"
        "SET table.exec.async-lookup.buffer-capacity = 3;\n"
        "SELECT 1 FROM visits v JOIN a ON v.id = a.id JOIN b ON v.id = b.id;\n",
        encoding="utf-8",
    )
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"{path}:4:1: note: columns not checked: b takes them from its source; give it a column list\n"
        f"{path}: 0 errors, 1 statement not fully checked\n"
    )
    assert main(["check", "--strict", str(path)]) == 1


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.sql"]) == 1
    assert "nowhere.sql" in capsys.readouterr().err


GEO = """
from lookup_hints import register_connector, register_retry_predicate
from lookup_hints.spi import SyncRowLookup
class Geo(SyncRowLookup):
    def lookup_row(self, request):
        return [{"town": f"town {request.key['id']}"}]
register_connector("GEO", Geo)
register_retry_predicate("no-town", lambda rows: not rows)
"""


def test_run_and_explain_take_modules_of_ones_own(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_predicates", {})
    (tmp_path / "cli_geo.py").write_text(GEO.replace("GEO", "cli-geo"), encoding="utf-8")
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE OR REPLACE TEMPORARY TABLE g (id BIGINT, town STRING) WITH ('connector' = 'cli-geo');\n"
        "SELECT /*+ LOOKUP('table'='g', 'retry-predicate'='no-town',"
        " 'retry-strategy'='fixed-delay', 'fixed-delay'='1ms', 'max-attempts'='1') */ g.town"
        " FROM range(1, 2) r JOIN g ON r.id = g.id;\n"
    )
    module = ["--module", str(tmp_path / "cli_geo.py")]
    for command in ("run", "explain", "check"):
        assert main([command, str(path), *module]) == 0
    assert "|town 1|" in capsys.readouterr().out


def test_an_unknown_connector_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_start_spark", lambda *_: pytest.fail("Spark is not started"))
    path = tmp_path / "job.sql"
    path.write_text(
        "SELECT 1;\n\nCREATE TEMPORARY TABLE g (id INT) WITH ('connector' = 'postgers');\n"
        "CREATE TEMPORARY TABLE h (id INT) WITH ('connector' = 'my:Own');\n"
    )
    for command in ("run", "explain"):
        assert main([command, str(path)]) == 1
        told = capsys.readouterr().err
        assert f"error: {path}, line 3: No connector is called 'postgers'. Did you mean 'postgres'?" in told
        assert "my:Own" not in told


def test_check_takes_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("a", "SELECT 1"), ("b", "SELEC 1"), ("c", "SUMMON t")):
        (tmp_path / f"{name}.sql").write_text(text)
    a, b, c = (str(tmp_path / f"{name}.sql") for name in "abc")
    assert main(["check", a, "nowhere.sql", b, c]) == 1
    printed = capsys.readouterr()
    assert printed.out == (
        f"{a}: 0 errors\n"
        f"{b}:1:1: error: No statement begins with SELEC. Did you mean SELECT?\nSELEC 1\n^^^^^\n{b}: 1 error\n"
        f"{c}:1:1: note: not checked: no statement of Spark's own begins with SUMMON\n"
        f"{c}: 0 errors, 1 statement not fully checked\n"
    )
    assert "There is no file 'nowhere.sql'" in printed.err
    assert main(["check", a, c]) == 0
    assert main(["check", "--strict", a, c]) == 1
    assert main(["check", "--strict", a]) == 0


def test_check_finds_parameters_without_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.sql"
    path.write_text("SELECT :day;\nSELECT v:field FROM t WHERE n < :most")
    assert main(["check", str(path), "--param", "most=1"]) == 1
    out = capsys.readouterr().out
    assert f"{path}:1:8: error: The parameter :day has no value. Give it: --param day=VALUE.\n" in out
    assert out.endswith("1 error\n")
    assert main(["check", str(path), "--param", "most=1", "--param", "day='2013-01-01'"]) == 0


@pytest.mark.parametrize("name", ["LOKUP", "lookups", "LOOK_UP", "LOOKPU"])
def test_check_finds_a_misspelt_hint(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.sql"
    path.write_text(f"SELECT /*+ BROADCAST(x), {name}('table'='c') */ 1 FROM x")
    assert main(["check", str(path)]) == 1
    assert f"{path}:1:26: error: There is no hint {name}. Did you mean LOOKUP?" in capsys.readouterr().out


def test_check_finds_a_stream_without_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.sql"
    insert = "INSERT INTO {} SELECT * FROM STREAM s;\n"
    path.write_text(
        insert.format("parquet.`/out`")
        + insert.format("some_table")
        + insert.format("console")
        + insert.format("some_table WITH ('checkpointLocation' = '/c')")
        + "SET lookup.stream.checkpoint = '/c/1';\n"
        + insert.format("parquet.`/out`")
    )
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.count("has no checkpoint: after a restart its rows would be doubled. SET lookup.stream.") == 2
    assert f"{path}:1:13: error: The query that writes to parquet.`/out` has no checkpoint" in out
    assert f"{path}:2:13: error: The query that writes to some_table has no checkpoint" in out
    assert main(["check", str(path), "--conf", "lookup.stream.checkpoint=/c"]) == 0


def test_check_imports_nothing_but_what_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_trap.py").write_text(
        "from pathlib import Path\nfrom lookup_connectors.memory import MemoryConnector\n"
        f"Path({str(tmp_path / 'imported')!r}).touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'cli_trap:MemoryConnector', 'rows' = '[]')"
    )
    assert main(["check", str(path)]) == 1
    assert main(["submit", str(path), "--dry-run"]) == 1
    assert not (tmp_path / "imported").exists()
    assert (
        "Connector 'cli_trap:MemoryConnector': check imports no module that is not named by --module."
        " Add --module cli_trap." in capsys.readouterr().out
    )
    assert main(["check", str(path), "--module", "cli_trap"]) == 0


def test_check_keeps_to_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'http', 'url' = 'https://evil.net/{id}')"
    )
    assert main(["check", str(path)]) == 0
    assert main(["check", str(path), "--conf", "spark.lookup.security.allowed-hosts=ok.net"]) == 1
    monkeypatch.setenv("LOOKUP_SECURITY_ALLOWED_CONNECTORS", "postgres")
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "the host 'evil.net:443' is not allowed here" in out
    assert "the connector 'http' is not allowed here" in out


@pytest.mark.parametrize("command", [["run"], ["explain"], ["check"], ["submit"]])
@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("lookup.cluster-tsks=3", "No session option is called 'lookup.cluster-tsks'. Did you mean 'lookup."),
        ("spark.lookup.transport=air", "'spark.lookup.transport' cannot be 'air'"),
        (
            "spark.lookup.security.allowed-host=*",
            "There is no security switch 'lookup.security.allowed-host'.",
        ),
    ],
)
def test_configuration_of_ours_is_checked(
    command: list[str], conf: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.sql"
    path.write_text("SELECT 1")
    assert main([*command, str(path), "--conf", conf]) == 2
    assert f"lookup-hints: --conf: {said}" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr(commands, "await_server", partial(await_server, patience=0.2))
    path = tmp_path / "job.sql"
    path.write_text("SELECT 1")
    assert main(["run", str(path), "--remote", "sc://127.0.0.1:9"]) == 1
    told = capsys.readouterr().err
    assert "waiting for the Spark Connect server at 127.0.0.1:9, up to 0.2 s\n" in told
    assert "error: No Spark Connect server answers at 127.0.0.1:9 within 0.2 s." in told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["fly"], "lookup-hints: there is no command 'fly'\n"),
        (["runn", "a.sql"], "lookup-hints: there is no command 'runn'. Did you mean 'run'?\n"),
        (["a.sql"], "lookup-hints: there is no command 'a.sql'. Write: lookup-hints run a.sql\n"),
        (["--versoin"], "lookup-hints: unrecognized arguments: --versoin. Did you mean '--version'?\n"),
        (["run", "--formt"], "lookup-hints run: unrecognized arguments: --formt. Did you mean '--format'?\n"),
        (["run", "--format", "cvs"], ". Did you mean 'csv'?\n"),
        (["run", "--rows", "-3"], ": a number of rows from 0 is needed, not '-3'\n"),
        (["check"], "lookup-hints check: the following arguments are required: FILE.sql\n"),
    ],
)
def test_wrong_use_says_what_was_meant(
    wrong: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2
    head, _, rest = capsys.readouterr().err.partition("All options: ")
    assert head.endswith(told)
    assert rest == f"lookup-hints{' ' + wrong[0] if wrong[0] in ('run', 'check') else ''} --help\n"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["run", "."], "lookup-hints: The file '.' cannot be read: Is a directory.\n"),
        (["run", "-c", "SELECT 1", "--master", "sc://h"], "Write --remote sc://...\n"),
        (["demo", "--folder", "/proc/none"], "lookup-hints: /proc/none: No such file or directory\n"),
        (
            ["import", "nowhere.json"],
            "lookup-hints: nowhere.json cannot be read: No such file or directory\n",
        ),
    ],
)
def test_what_cannot_be_read_or_made_is_said_in_a_line(
    wrong: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(wrong) == 2
    said = capsys.readouterr().err
    assert said.endswith(told)
    assert said.count("\n") == 1


def test_the_command_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    assert "run each statement of a file and show its rows" in capsys.readouterr().out


def test_nothing_to_run_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert main(["run"]) == 2
    assert "Nothing to run. Name a file" in capsys.readouterr().err


def test_a_connect_server_is_no_master(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(job), "--param", "most=2", "--master", "sc://host"]) == 2
    assert "--master names no Spark Connect server. Write --remote sc://..." in capsys.readouterr().err
