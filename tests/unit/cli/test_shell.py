"""The shell: what it completes, when Enter runs, what the history keeps, and what Ctrl-C cancels."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import ColorDepth, DummyOutput

from lookup_hints.cli.completion import candidates, relations
from lookup_hints.cli.main import main
from lookup_hints.cli.shell import is_complete
from lookup_hints.cli.shell_prompt import masked, prompt
from lookup_hints.spi.lookup_options import LOOKUP_OPTIONS
from lookup_hints.spi.option_values import Place, options_at
from lookup_hints.sql.sql_text import SqlText


class Shop:
    """Two tables."""

    TABLES: dict[str, list[str]] = {  # noqa: RUF012
        "customers": ["id", "name", "country"],
        "orders": ["id", "customer_id", "total"],
    }

    def tables(self) -> list[str]:
        return list(self.TABLES)

    def columns(self, table: str) -> list[str]:
        return self.TABLES.get(table.lower(), [])


def completed(marked: str, *, asked: bool = True) -> list[str]:
    """What is offered where ``|`` stands, written out to the whole word."""
    text, at = marked.replace("|", ""), marked.index("|")
    offered = candidates(text, at, Shop(), asked=asked)
    assert all(text[at - each.typed : at].lower() == each.text[: each.typed].lower() for each in offered)
    return [each.text for each in offered]


JOINED = "FROM orders AS o JOIN customers c ON o.customer_id = c.id"
HINT_KEYS = list(options_at(Place.HINT, LOOKUP_OPTIONS))


@pytest.mark.parametrize(
    ("marked", "offered"),
    [
        ("SEL|", ["SELECT"]),
        ("sel|", ["select"]),
        ("SELECT 1; SEL|", ["SELECT"]),
        ("EXPLAIN EST|", ["ESTIMATE"]),
        ("explain s|", ["select", "set", "show", "start"]),
        ("EXPLAIN ESTIMATE SEL|", ["SELECT"]),
        ("SELECT * FROM |", ["customers", "orders"]),
        ("SELECT * FROM cu|", ["customers"]),
        ("DESCRIBE o|", ["orders"]),
        (f"SELECT c.| {JOINED}", ["id", "name", "country"]),
        (f"SELECT C.na| {JOINED}", ["name"]),
        (f"SELECT tot| {JOINED}", ["total"]),
        ("SELECT x.| FROM orders o", []),
        ("SELECT /*+ LO| */ 1", ["LOOKUP('table' = '"]),
        ("SELECT /*+ EX| */ 1", ["EXTERNAL_LOOKUP("]),
        (f"SELECT /*+ EXTERNAL_LOOKUP(|) */ 1 {JOINED}", ["o", "c"]),
        (f"SELECT /*+ BROADCAST(o), EXTERNAL_LOOKUP(o, c|) */ 1 {JOINED}", []),
        ("SELECT /*+ LOOKUP('ca|", ["capacity' = '", "cache' = '"]),
        ("SELECT /*+ LOOKUP('ca|'", ["capacity", "cache"]),
        ("SELECT /*+ LOOKUP(|", [f"'{key}' = '" for key in HINT_KEYS]),
        (
            "SELECT /*+ LOOKUP('table'='c', |",
            [f"'{key}' = '" for key in HINT_KEYS if key != "table"],
        ),
        (f"SELECT /*+ LOOKUP('table'='|') */ 1 {JOINED}", ["o", "c"]),
        ("SELECT /*+ LOOKUP('async'=|", ["'true'", "'false'"]),
        ("SELECT /*+ LOOKUP('retry-strategy' = 'f|", ["fixed_delay'"]),
        ("SELECT /*+ LOOKUP('retry-predicate' = 'lookup|", ["lookup_miss'"]),
        ("SELECT /*+ LOOKUP('no such option' = '|", []),
        ("SELECT /*+ LOOKUP('table'='c') |", []),
        ("SELECT /*+ BROADCAST(|", []),
        ("CREATE TEMPORARY TABLE t WITH ('connector' = 'sqli|", ["sqlite'"]),
        ("CREATE TEMPORARY TABLE t WITH ('connector' = 'sqlite', 'pa|", ["path' = '"]),
        ("CREATE TEMPORARY TABLE t WITH ('lookup.asy|", ["lookup.async' = '"]),
        ("SET table.exec.async-lookup.t|", ["table.exec.async-lookup.timeout"]),
        ("SELECT 'SEL|", []),
        ("SELECT 1 -- SEL|", []),
        ("SELECT /* SEL|", []),
        ("SELECT `SEL|", []),
    ],
)
def test_what_can_stand_at_the_cursor(marked: str, offered: list[str]) -> None:
    assert completed(marked) == offered


def test_nothing_is_offered_unasked_where_nothing_is_typed() -> None:
    assert completed("SELECT |", asked=False) == []
    assert {"DISTINCT", "CASE"} <= set(completed("SELECT |"))
    assert completed("SELECT * FROM |", asked=False) == ["customers", "orders"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1 FROM a, b AS x JOIN `c d` ON 1", [("a", "a"), ("x", "b"), ("c d", "c d")]),
        ("FROM o JOIN c FOR SYSTEM_TIME AS OF o.t AS x ON ", [("o", "o"), ("x", "c")]),
        ("SELECT a, b FROM (SELECT 1) x", []),
        ("FROM ", []),
        ("FROM a WHERE f(x, y)", [("a", "a")]),
    ],
)
def test_relations_are_found_before_the_statement_is_whole(text: str, found: list[tuple[str, str]]) -> None:
    assert relations(SqlText(text)) == found


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';'", False),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("BEGIN SELECT 1;", False),
        ("BEGIN SELECT 1; END;", True),
        ("exit", True),
        ("QUIT;", True),
        ("help", True),
    ],
)
def test_enter_runs_a_complete_statement(text: str, runs: bool) -> None:
    assert is_complete(text) is runs


# --- at the prompt ---------------------------------------------------------------------------------


@pytest.fixture
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        yield keyboard


def test_a_statement_may_take_lines_and_the_history_keeps_no_secret(
    keyboard: PipeInput, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    ask = prompt(Shop(), history)
    table = (
        "CREATE TEMPORARY TABLE t WITH\r('connector' = 'postgres', 'url' = 'postgresql://u:hunter2@h/d');\r"
    )
    keyboard.send_text(table)
    assert ask() == table.strip("\r").replace("\r", "\n")
    keyboard.send_text("SET spark.my.password = hunter2;\r")
    assert ask() == "SET spark.my.password = hunter2;"
    kept = history.read_text(encoding="utf-8")
    assert "'connector' = 'postgres'" in kept
    assert "hunter2" not in kept
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    keyboard.send_text("\x1b[A\x1b[A\r")
    assert "hunter2" in ask(), "until the shell ends, a statement can be run again"


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        ("SELECT 1 FROM cu\t;\r", "SELECT 1 FROM customers;"),
        ("SELECT 1 FROM cu\t\t;\r", "SELECT 1 FROM customers;"),
        ("SELECT 1 FROM nowhere\t;\r", "SELECT 1 FROM nowhere;"),
    ],
)
def test_tab_takes_the_only_candidate(keyboard: PipeInput, tmp_path: Path, typed: str, taken: str) -> None:
    keyboard.send_text(typed)
    assert prompt(Shop(), tmp_path / "history")() == taken


def test_text_that_cannot_be_split_is_masked_too() -> None:
    assert masked("SELECT 'postgresql://u:hunter2@h/d") == "SELECT 'postgresql://u:***@h/d"


def test_ctrl_c_drops_what_is_typed_and_ctrl_d_leaves(keyboard: PipeInput, tmp_path: Path) -> None:
    ask = prompt(Shop(), tmp_path / "history")
    keyboard.send_text("SELECT 1\x03")
    with pytest.raises(KeyboardInterrupt):
        ask()
    keyboard.send_text("\x04")
    with pytest.raises(EOFError):
        ask()


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert ColorDepth.from_env() is ColorDepth.DEPTH_1_BIT


def test_a_pipe_is_sent_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell"]) == 2
    assert "The shell needs a terminal." in capsys.readouterr().err


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "lookup_hints.cli.shell_prompt", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    assert main(["shell"]) == 2
    assert "prompt_toolkit is missing. Try: pip install 'lookup-hints[shell]'" in capsys.readouterr().err
