"""The page that people start with: its commands and programs run as it says, against a real PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lookup_connectors.postgres import PostgresConnector

from lookup_hints.errors import ConnectorError, OptionError
from lookup_hints.spi import LookupTable
from tests.servers.postgres import PostgresServer, running_server

pytestmark = pytest.mark.timeout(400)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^[+|].*\n)+", re.MULTILINE)
CUSTOMERS = """
CREATE TABLE customers (id bigint PRIMARY KEY, name text, country text);
INSERT INTO customers VALUES (1, 'Ada', 'GB'), (2, 'Emmy', 'DE');
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    for running in running_server():
        running.execute(CUSTOMERS)
        yield running


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE) if found == kind]


def ran(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def test_the_file_of_sql_shows_the_rows_and_counts_of_the_page(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Its first query, and the one with the hint that asks again."""
    (tmp_path / "first.sql").write_text("\n".join(blocks("sql")), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("lookup-hints")), "run", "first.sql"]
    done = ran(command, tmp_path, CUSTOMERS_DSN=server.url())
    assert done.returncode == 0, done.stderr
    # How long it waits is another figure each time.
    shown, printed = (re.sub(r"waited .*", "waited", text) for text in (blocks("text")[0], done.stdout))
    assert shown in printed
    assert TABLE.findall(printed)[:2] == [TABLE.findall(shown)[0]] * 2


def test_the_program_shows_the_rows_of_the_page(server: PostgresServer, tmp_path: Path) -> None:
    (program,) = blocks("python")
    done = ran([sys.executable, "-c", program], tmp_path, CUSTOMERS_DSN=server.url())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == blocks("text")[1].strip()


def test_the_messages_are_those_of_the_page(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str:
        options = {"connector": "postgres", "url": "${env:CUSTOMERS_DSN}"}
        table = LookupTable(name="customers", schema=pa.schema([]), primary_key=(), options=options)
        with pytest.raises((ConnectorError, OptionError)) as caught:
            PostgresConnector(table).discover()
        assert "secret" not in str(caught.value)
        return str(caught.value)

    monkeypatch.delenv("CUSTOMERS_DSN", raising=False)
    assert message("environment variable") in told()
    monkeypatch.setenv("CUSTOMERS_DSN", "postgresql://reader:secret@127.0.0.1:1/shop")
    assert message("connection") in told()
    server.execute("ALTER TABLE customers RENAME TO clients")
    monkeypatch.setenv("CUSTOMERS_DSN", server.url())
    assert message("no table") in told()


def message(word: str) -> str:
    """The message in the page's table that has ``word``."""
    messages: list[str] = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    return next(each for each in messages if word in each)
