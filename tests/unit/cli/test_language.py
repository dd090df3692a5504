"""What an editor shows of a script: what stands at a place, and how it can go on there."""

from __future__ import annotations

import sys

import pytest

from lookup_hints.cli.language_server import EditedScript
from lookup_hints.cli.main import main

TABLE = (
    "CREATE TEMPORARY TABLE crm.x (id INT) USING csv;\n"
    "CREATE TEMPORARY TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)\n"
    "WITH ('url' = 'postgresql://me:hush@host/db', 'connector' = 'postgres', 'lookup.async' = 'true');\n"
)
QUERY = "SELECT /*+ LOOKUP('table' = 'c', 'capacity' = '2') */ c.name, q.x FROM orders AS o JOIN customers AS c ON o.c = c.id"
HTTP = "CREATE TEMPORARY TABLE t (id INT) WITH ('connector' = 'http', 'url' = 'http://h/{id}', 'header.X-Key' = 'hush')"


@pytest.mark.parametrize(
    ("text", "at", "place", "begins"),
    [
        (TABLE, "'url'", "'url'", "**url** ("),
        (TABLE, "'postgresql:", "'postgresql://me:hush@host/db'", "**url** ("),
        (TABLE, "'postgres'", "'postgres'", "**postgres**: A table or view of PostgreSQL"),
        (TABLE, "'lookup.async'", "'lookup.async'", "**lookup.async** (boolean"),
        (TABLE + QUERY, "'capacity'", "'capacity'", "**capacity** ("),
        (TABLE + QUERY, "'2'", "'2'", "**capacity** ("),
        (TABLE + QUERY, "'c'", "'c'", "**customers**: lookup table, connector `postgres`\n\n- `id` BIGINT"),
        (TABLE + QUERY, "c.name", "c", "**customers**:"),
        (TABLE + QUERY, "customers AS", "customers", "**customers**:"),
        (HTTP, "'header.X-Key'", "'header.X-Key'", "**header.X-Key** ("),
        (HTTP, "'hush'", "'hush'", "**header.X-Key** ("),
        (
            "SET lookup.cluster-tasks = 3",
            "lookup.cluster-tasks",
            "lookup.cluster-tasks",
            "**lookup.cluster-tasks** (",
        ),
        (
            "SET 'lookup.cluster-tasks' = '3'",
            "lookup.cluster-tasks",
            "lookup.cluster-tasks",
            "**lookup.cluster-tasks** (",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH ('connector' = 'sqlite')",
            "t WITH",
            "t",
            "**t**: lookup table, connector `sqlite`; its columns are",
        ),
        (
            "CREATE TEMPORARY TABLE t WITH ('connector' = 'x:Y')",
            "'x:Y'",
            "'x:Y'",
            "Connector 'x:Y' cannot be imported",
        ),
    ],
)
def test_what_stands_at_a_place_is_told(text: str, at: str, place: str, begins: str) -> None:
    found = EditedScript(text).hover(text.rindex(at) + 1 if len(place) > 1 else text.rindex(at))
    assert found is not None
    told, where = found
    assert where.of(text) == place
    assert told.startswith(begins)
    assert "hush" not in told


@pytest.mark.parametrize("at", ["SELECT", "q.x", "orders", "JOIN", "ON o", ") */"])
def test_other_words_have_no_hover(at: str) -> None:
    assert EditedScript(QUERY).hover(QUERY.index(at)) is None


def test_a_file_that_is_being_typed_is_no_trouble() -> None:
    for text in ("", ";", "SELECT 'a", "CREATE TEMPORARY TABLE t (id INT WITH (", "SET ", "/*+ LOOKUP("):
        for at in range(len(text) + 1):
            EditedScript(text).hover(at)
            EditedScript(text).candidates(at)


def test_completion_knows_the_tables_of_the_file_and_its_statement_alone() -> None:
    text = TABLE + "SELECT c. FROM orders o JOIN customers c ON o.c = c.id;\nSELECT 1 FROM nowhere AS c"
    assert [each.text for each in EditedScript(text).candidates(text.index("c. FROM") + 2)] == ["id", "name"]
    text = "CREATE TEMPORARY VIEW Current AS SELECT 1;" + TABLE + "SELECT 1 FROM cu"
    assert [each.text for each in EditedScript(text).candidates(len(text))] == ["Current", "customers"]
    text = TABLE + "SELECT /*+ LOOKUP('table' = 'c', 'capa"
    assert [each.text for each in EditedScript(text).candidates(len(text))] == ["capacity' = '"]


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "lookup_hints.cli.language_server", raising=False)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    assert main(["lsp"]) == 2
    assert "is missing. Try: pip install 'lookup-hints[lsp]'" in capsys.readouterr().err
