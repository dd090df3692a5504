"""%%lookup_sql and %lookup_tables in an IPython shell of this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from lookup_hints.errors import QueryError
from lookup_hints.notebook.magics import _OPTIONS, CellFailed, LookupMagics, find_spark, load, values_for
from lookup_hints.pyspark_internals import give_up_call
from lookup_hints.session import LookupSession
from lookup_hints.sql.sql_text import SqlText

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = """
CREATE OR REPLACE TEMPORARY TABLE people (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'memory', 'rows' = '[[1, "Ann"], [2, "<b>Bob</b>"]]');
"""
QUERY = "SELECT r.id, p.name FROM range(0, 4, 1, 1) r LEFT JOIN people p ON r.id = p.id WHERE r.id < :most ORDER BY r.id"


Shell = Any  # InteractiveShell, whose methods have no types


@pytest.fixture
def shell(spark: SparkSession) -> Iterator[Shell]:
    config = Config()
    config.HistoryManager.enabled = False
    shell: Shell = InteractiveShell.instance(config=config)
    load(shell)
    shell.user_ns["spark"] = spark
    yield shell
    InteractiveShell.clear_instance()


Cell = Callable[..., Any]


@pytest.fixture
def cell(shell: Shell) -> Cell:
    """Runs a cell; gives what it displays."""

    def run(text: str, line: str = "") -> Any:
        with capture_output() as captured:
            shell.run_cell_magic("lookup_sql", line, text)
        return captured.outputs[-1].data

    return run


def test_rows_counts_and_plan_are_shown(shell: Shell, cell: Cell) -> None:
    shell.user_ns["most"] = 3
    shown = cell(TABLE + QUERY)
    rows = re.findall(r"^ *(\d) +(\S+)$", shown["text/plain"], re.MULTILINE)
    assert rows == [("0", "NULL"), ("1", "Ann"), ("2", "<b>Bob</b>")]
    told = r"^3 rows, .*\np: 3 keys asked for, 2 found, 1 missed, waited [\d.]+ \S+$"
    assert re.search(told, shown["text/plain"], re.MULTILINE)
    html = shown["text/html"]
    assert "&lt;b&gt;Bob&lt;/b&gt;" in html
    assert "<b>Bob" not in html
    assert ">rows out</th>" in html[html.index("how it ran: 1 lookup") :]
    assert_well_formed(html)
    assert not re.search(r"(src|href)\s*=|url\(|@import", html), "nothing is loaded from anywhere"


def test_a_parameter_of_the_cell_comes_before_a_variable(shell: Shell, cell: Cell) -> None:
    shell.user_ns["most"] = 3
    assert "1 row, " in cell(TABLE + QUERY, "--param most=1")["text/plain"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("SELECT id FROM range(9) -- all", "9 rows, "),
        ("--limit 2 SELECT id FROM range(9)", "the first 2 rows, "),
        ("--param least=5 --limit=3 SELECT id FROM range(9) WHERE id > :least", "3 rows, "),
        ("--into kept SELECT '--limit 1' AS x", "kept: DataFrame[x string]"),
        ("", "The cell contains no statements."),
    ],
)
def test_a_line_of_sql_runs_too(shell: Shell, line: str, shown: str) -> None:
    with capture_output() as captured:
        shell.run_line_magic("lookup_sql", line)
    assert shown in captured.outputs[-1].data["text/plain"]


def test_an_unknown_option_of_a_line_is_told(shell: Shell) -> None:
    with pytest.raises(CellFailed, match=r"unrecognized arguments: --limti 2\. Did you mean '--limit'\?"):
        shell.run_line_magic("lookup_sql", "--limti 2 SELECT 1")


def test_the_options_that_are_told_are_those_there_are() -> None:
    assert {f"[{option}" for option in _OPTIONS} == {
        part.split()[0].rstrip("]")
        for part in re.findall(r"\[--[^\]]*", LookupMagics.lookup_sql.parser.format_usage())
    }


def test_limit_shows_fewer_rows(cell: Cell) -> None:
    text = cell("SELECT id FROM range(9)", "--limit 2")["text/plain"]
    assert "the first 2 rows, " in text


def test_into_keeps_a_lazy_frame(shell: Shell, cell: Cell) -> None:
    shown = cell(TABLE + QUERY, "--into named --param most=2")
    assert shown["text/plain"] == "named: DataFrame[id bigint, name string]"
    assert [tuple(row) for row in shell.user_ns["named"].collect()] == [(0, None), (1, "Ann")]


def test_analyze_runs_the_statement_and_draws_what_was_measured(cell: Cell) -> None:
    shown = cell(TABLE + QUERY, "--analyze --param most=3")
    assert "  measured\n    rows      3 in, 2 found, 3 out\n" in shown["text/plain"]
    html = shown["text/html"]
    assert "<svg" in html
    assert "3 asked, 2 found (67 %), 1 missed" in html.partition("<details")[0], "in the picture itself"
    assert "== Lookup joins ==" in html
    assert_well_formed(html)


def test_analyze_of_a_statement_without_a_lookup_says_so(cell: Cell) -> None:
    assert "no lookup join; " in cell("SELECT 1", "--analyze")["text/plain"]


def test_explain_draws_the_lookups(cell: Cell) -> None:
    shown = cell(TABLE + QUERY, "--explain --param most=2")
    html = shown["text/html"]
    for part in (
        "LEFT people",
        "id = r.id",
        "people AS p",
        "memory, async, 100 in flight",
        "result: id, name",
    ):
        assert part in html
    assert "== Lookup joins ==" in shown["text/plain"]
    assert_well_formed(html)


def test_text_is_shown_as_text(cell: Cell) -> None:
    shown = cell(TABLE + "SHOW CREATE TABLE people")
    assert shown["text/plain"].startswith("CREATE TEMPORARY TABLE `people` (\n")
    assert "<pre" in shown["text/html"]


def test_a_cell_without_a_statement_says_so(cell: Cell) -> None:
    assert cell("-- nothing")["text/plain"] == "The cell contains no statements."


def test_tables_are_listed(shell: Shell, cell: Cell) -> None:
    cell(TABLE)
    with capture_output() as captured:
        shell.run_line_magic("lookup_tables", "")
    text = captured.outputs[-1].data["text/plain"]
    assert re.search(r"^people +memory +id +id BIGINT, name STRING$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (
            "",
            TABLE
            + "SELECT /*+ LOOKUP('table'='p','capasity'='1') */ 1 FROM range(1) r JOIN people p ON r.id = p.id",
            "in the statement at line 4: line 4, column 31: No LOOKUP option is called 'capasity'."
            " Did you mean 'capacity'?\n"
            "SELECT /*+ LOOKUP('table'='p','capasity'='1') */ 1 FROM range(1) r JOIN people p ON r.id = p.id\n"
            f"{' ' * 30}{'^' * 10}",
        ),
        (
            "",
            "SELECT\n  nope FROM range(1)",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot"
            " be resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703\n"
            "line 2, column 3:\n  nope FROM range(1)\n  ^^^^",
        ),
        (
            "",
            "SELECT :nowhere",
            "line 1, column 8: The marker :nowhere has no value."
            " Give --param nowhere=..., or make a variable nowhere.\nSELECT :nowhere\n       ^^^^^^^^",
        ),
        (
            "",
            "SELECT 1;\n  SELECT\n  nope FROM range(1)",
            "in the statement at line 2: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter"
            " with name `nope` cannot be resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703\n"
            "line 3, column 3:\n  nope FROM range(1)\n  ^^^^",
        ),
        (
            "--limti 5",
            "SELECT 1",
            "lookup_sql: unrecognized arguments: --limti 5. Did you mean '--limit'?"
            " The options: --param NAME=VALUE, --into NAME, --limit N, --analyze, --explain.",
        ),
        (
            "--limit many",
            "SELECT 1",
            "lookup_sql: argument --limit: invalid int value: 'many'."
            " The options: --param NAME=VALUE, --into NAME, --limit N, --analyze, --explain.",
        ),
        ("--into 1x", "SELECT 1", "--into 1x: a name of a variable is expected."),
        ("--param x", "SELECT 1", "The parameter 'x' is not name=value. Write it as in n=5."),
    ],
)
def test_errors_are_short_and_show_the_place(
    shell: Shell, capfd: pytest.CaptureFixture[str], line: str, text: str, said: str
) -> None:
    with pytest.raises(CellFailed) as failed:
        shell.run_cell_magic("lookup_sql", line, text)
    assert str(failed.value) == said
    assert failed.value.__cause__ is not None
    lines = failed.value._render_traceback_()
    assert lines[0] == f"\x1b[31m{said.splitlines()[0]}\x1b[0m"
    assert lines[1:] == said.splitlines()[1:]
    assert "org.apache.spark" not in capfd.readouterr().err


def test_a_failure_on_a_worker_is_its_cause_and_its_join(cell: Cell) -> None:
    with pytest.raises(CellFailed) as failed:
        cell(
            "CREATE OR REPLACE TEMPORARY TABLE gone (id BIGINT, name STRING)"
            " WITH ('connector' = 'sqlite', 'path' = '/no/such/file.sqlite');\n"
            "SELECT g.name FROM range(3) r JOIN gone g ON r.id = g.id"
        )
    cause, *place = str(failed.value).splitlines()
    assert cause.startswith("in the statement at line 2: ")
    assert "/no/such/file.sqlite" in cause
    assert place == [
        "line 2, column 31:",
        "SELECT g.name FROM range(3) r JOIN gone g ON r.id = g.id",
        "                              ^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "notebook.md"


def test_the_cells_of_the_page_run(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(
        r"^```(?:python)?\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    cells = [block for block in blocks if not block.startswith("pip ")]
    assert sum(block.startswith("%%lookup_sql") for block in cells) == 5
    for block in cells:
        result = shell.run_cell(block)
        assert result.success, block
    out = capfd.readouterr().out
    assert "the first 5 rows" in out
    assert "named: DataFrame[id bigint, name string]" in out
    assert re.search(r"^ 8 +64$", out, re.MULTILINE)


# --- the session and the values --------------------------------------------------------------------


def test_the_session_is_the_variable_or_the_active_one(spark: SparkSession) -> None:
    other = spark.newSession()
    assert find_spark({"spark": other}) is other
    assert find_spark({"spark": "a string"}) is not None


def test_a_session_is_found_where_none_is_active(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(find_spark, {}).result(60) is not None
    give_up_call()  # as an interrupt does
    assert find_spark({}) is not None


def test_values_of_the_notebook_are_plain_values() -> None:
    numpy = pytest.importorskip("numpy")
    assert values_for(SqlText("SELECT :a, :b"), {"a": 1}, {"a": 2, "b": numpy.int64(3)}) == {"a": 1, "b": 3}
    with pytest.raises(
        QueryError, match="The variable a is a object, which cannot be used as a SQL parameter"
    ):
        values_for(SqlText("SELECT :a"), {}, {"a": object()})


def test_a_session_without_tables_says_so(spark: SparkSession) -> None:
    assert LookupSession(spark.newSession()).tables() == ()


class _Balance(HTMLParser):
    """Whether every element is closed where it must be."""

    VOID = ("br", "hr", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_well_formed(html: str) -> None:
    balance = _Balance()
    balance.feed(html)
    balance.close()
    assert not balance.open
