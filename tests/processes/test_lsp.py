"""``lookup-hints lsp`` as an editor talks to it: a process, and messages over its standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from lsprotocol.types import Position
from pygls.workspace import PositionCodec

from lookup_hints.cli.language_server import Places

# Line 2 has a character that UTF-16 writes in two: what follows it is one further right for an editor.
SCRIPT = (
    "CREATE TEMPORARY TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)\r\n"
    "WITH ('connector' = 'memory', 'rows' = '[]');\r\n"
    "SELECT '🚀' AS mood, /* it is */ c.nam\r\n"
    "FROM orders o JOIN customers c ON o.id = c.id;\r\n"
    "SELECT /*+ LOOKUP('table' = 'c', 'capacity' = '2') */ c.name FROM orders o JOIN customers c ON o.id = c.id;\r\n"
)
URI = "file:///jobs/a.sql"


class Editor:
    """Speaks JSON-RPC with a language server.

    Args:
        process: the server.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from, self._ids = process.stdin, process.stdout, count(1)

    def notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> Any:
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        answer = self._next(lambda message: message.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def diagnostics(self) -> list[dict[str, Any]]:
        """Those of the next message that has some."""
        message = self._next(lambda each: each.get("method") == "textDocument/publishDiagnostics")
        found: list[dict[str, Any]] = message["params"]["diagnostics"]
        return found

    def at(self, line: int, character: int) -> dict[str, Any]:
        return {"textDocument": {"uri": URI}, "position": {"line": line, "character": character}}

    def change(self, version: int, text: str) -> None:
        document = {"uri": URI, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._to.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._to.flush()

    def _next(self, is_wanted: Any) -> dict[str, Any]:
        while True:
            headers = b"".join(iter(self._from.readline, b"\r\n")).decode()
            assert headers.startswith("Content-Length: "), headers
            message: dict[str, Any] = json.loads(self._from.read(int(headers.split()[1])))
            if is_wanted(message):
                return message


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    """An editor that has opened SCRIPT; the server has a module of the user's that prints as it is imported."""
    (tmp_path / "mine.py").write_text("print('hello')")
    command = [
        sys.executable,
        "-m",
        "lookup_hints.cli.main",
        "lsp",
        "--module",
        str(tmp_path / "mine.py"),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            editor = Editor(process)
            editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
            editor.notify("initialized", {})
            document = {"uri": URI, "languageId": "sql", "version": 1, "text": SCRIPT}
            editor.notify("textDocument/didOpen", {"textDocument": document})
            yield editor
            editor.ask("shutdown", None)
            editor.notify("exit", None)
            assert process.wait(30) == 0
        finally:
            process.kill()


def range_of(line: int, start: int, end: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}


def test_an_editor_sees_mistakes_what_things_are_and_how_to_go_on(editor: Editor) -> None:
    (mistake,) = editor.diagnostics()
    assert mistake["message"] == "The table customers has no column 'nam'. Did you mean 'name'?"
    assert mistake["range"] == range_of(2, 35, 38)
    assert mistake["severity"] == 1

    hint = editor.ask("textDocument/hover", editor.at(4, 37))
    assert hint["range"] == range_of(4, 33, 43)
    assert "**capacity**" in hint["contents"]["value"]
    table = editor.ask("textDocument/hover", editor.at(4, 29))
    assert table["contents"]["value"].splitlines() == [
        "**customers**: lookup table, connector `memory`",
        "",
        "- `id` BIGINT",
        "- `name` STRING",
        "",
        "primary key: `id`",
    ]
    assert editor.ask("textDocument/hover", editor.at(2, 33))["range"] == range_of(2, 33, 34)
    connector = editor.ask("textDocument/hover", editor.at(1, 22))
    assert "`rows`" in connector["contents"]["value"]
    assert editor.ask("textDocument/hover", editor.at(3, 1)) is None

    offered = editor.ask("textDocument/completion", editor.at(2, 37))
    assert [(each["label"], each["textEdit"]["range"]) for each in offered] == [("name", range_of(2, 35, 37))]

    # Of two changes in a row only the last is checked.
    editor.change(2, "SELEC")
    editor.change(3, SCRIPT.replace("'2'", "'many'").replace("c.nam\r", "c.name\r"))
    (mistake,) = editor.diagnostics()
    assert "'capacity'" in mistake["message"]
    assert mistake["range"]["start"]["line"] == 4

    # A table whose columns only its source knows.
    unlisted = "CREATE TEMPORARY TABLE c WITH ('connector' = 'postgres', 'url' = '${env:SHOP}');\n"
    editor.change(4, unlisted + "SELECT c.name FROM o JOIN c ON o.id >> = c.id;")
    (mistake,) = editor.diagnostics()
    assert mistake["message"] == "This condition of a lookup join cannot be parsed."
    assert mistake["range"] == range_of(1, 31, 45)

    editor.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert editor.diagnostics() == []


@pytest.mark.parametrize(("encoding", "rocket"), [("utf-8", 4), ("utf-16", 2), ("utf-32", 1)])
def test_places_are_those_of_the_editor(encoding: str, rocket: int) -> None:
    text = "a🚀b\r\n\u2028c\rd\n"
    places = Places(text, PositionCodec(encoding).client_num_units)
    separator = 3 if encoding == "utf-8" else 1  # U+2028 ends no line in an editor
    for at, line, character in (
        (0, 0, 0),
        (2, 0, 1 + rocket),
        (3, 0, 2 + rocket),
        (6, 1, separator),
        (8, 2, 0),
        (10, 3, 0),
    ):
        assert places.position(at) == Position(line, character)
        assert places.offset(Position(line, character)) == at
    assert places.offset(Position(0, 99)) == 3
    assert places.offset(Position(9, 9)) == len(text)


@pytest.mark.parametrize(
    "uri",
    ["file:///c%3A/work/a.sql", "file:///jobs/a%20b.sql", "file:///jobs/%C3%A4.sql", "untitled:Untitled-1"],
)
def test_a_file_is_checked_whatever_its_uri_is(editor: Editor, uri: str) -> None:
    editor.diagnostics()
    text = "\ufeffCREATE TEMPORARY TABLE c (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]');\nSELECT c.x FROM c"
    document = {"uri": uri, "languageId": "sql", "version": 7, "text": text}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    [mistake] = editor.diagnostics()
    assert mistake["range"] == range_of(1, 9, 10)
    mend = {
        "textDocument": {"uri": uri, "version": 8},
        "contentChanges": [{"text": text.replace("c.x", "c.id")}],
    }
    editor.notify("textDocument/didChange", mend)
    assert editor.diagnostics() == []


def test_a_message_longer_than_any_ends_the_server_in_a_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "lookup_hints.cli.main", "lsp"],
        input=b"Content-Length: 99999999999999999999\r\n\r\n{}",
        capture_output=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr.decode().splitlines() == [
        "lookup-hints: The editor announces a message of 99,999,999,999,999,999,999 bytes, and 268,435,456 are"
        " read at most. Restart the language server in it."
    ]


def test_a_file_that_is_not_open_is_read_from_disk_or_answered_with_nothing(
    editor: Editor, tmp_path: Path
) -> None:
    there, no_text = tmp_path / "there.sql", tmp_path / "no-text.sql"
    there.write_text(SCRIPT, newline="")
    no_text.write_bytes(b"SELECT '\xff'")
    at = editor.at(4, 29)["position"]
    for uri in (
        f"file://{tmp_path}/gone.sql",
        no_text.as_uri(),
        "untitled:Untitled-1",
        "file://[",
        f"file://{tmp_path}",
    ):
        asked = {"textDocument": {"uri": uri}, "position": at}
        assert editor.ask("textDocument/hover", asked) is None
        assert editor.ask("textDocument/completion", asked) == []
    asked = {"textDocument": {"uri": there.as_uri()}, "position": at}
    assert editor.ask("textDocument/hover", asked) == editor.ask("textDocument/hover", editor.at(4, 29))
    assert editor.ask("textDocument/completion", asked)
