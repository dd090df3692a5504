"""A real MariaDB for tests: its own data directory, a free loopback port, and passwords.

The programs come from Debian's packages, which are fetched once and unpacked below the user's cache folder;
nothing is installed. Where they cannot be had, the tests that need the server are skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import asyncmy
import pytest

from tests.servers.certificates import Certificates
from tests.servers.postgres import ServerAccount, free_port

SUPERUSER = "root"
PASSWORD = "s3cret-pässword"
DATABASE = "shop"

_PACKAGES = ("mariadb-server-core", "mariadb-client-core", "mariadb-common", "liburing2", "libnuma1")
_LIBAIO = ("libaio1", "libaio1t64")
"""A library's names in releases of Debian and Ubuntu."""
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lookup-hints-tests" / "mariadb"
_T = TypeVar("_T")


class MariaDbServer:
    """A MariaDB server below ``directory``; ``start`` and ``stop`` may alternate, the port stays."""

    def __init__(self, directory: Path, programs: Path, *settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self._account = ServerAccount.for_servers()
        self._root = self._account.reachable(programs, directory)
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the data directory, with a password for ``root`` and a database."""
        self._account.own(self.directory)
        self._temporary.mkdir()
        self._account.own(self._temporary)
        arguments = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        finished = subprocess.run(
            [self._root / "usr/bin/mariadb-install-db", *self._base, *arguments],
            capture_output=True,
            text=True,
            check=False,
            **self._popen,
        )
        if finished.returncode:
            raise RuntimeError(f"mariadb-install-db failed: {finished.stdout} {finished.stderr}")
        self.start(password=b"")
        self.execute(f"CREATE DATABASE {DATABASE}", password=b"", database=None)
        self.execute(f"SET PASSWORD = PASSWORD('{PASSWORD}')", password=b"")

    def start(self, password: bytes = PASSWORD.encode()) -> None:
        """Start the server and wait until it takes connections."""
        arguments = [
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.directory / 'socket'}",
        ]
        arguments += ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--max-connections=60"]
        # Without io_uring: the server ends itself where a kernel refuses it one of its calls.
        arguments += ["--innodb-use-native-aio=0"]
        arguments += ["--skip-name-resolve", f"--pid-file={self.directory / 'pid'}", *self._settings]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._root / "usr/sbin/mariadbd", *self._base, *arguments],
                stdout=log,
                stderr=log,
                **self._popen,
            )
        deadline = time.monotonic() + 120
        while True:
            try:
                self.execute("SELECT 1", password=password, database=None)
            except asyncmy.errors.OperationalError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"MariaDB did not start: {self._log_end()}") from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """Stop the server, dropping its clients; nothing when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, as a crash does; ``start`` then recovers what it held."""
        self._end(signal.SIGKILL)

    def url(
        self,
        *,
        user: str = SUPERUSER,
        password: str = PASSWORD,
        host: str = "127.0.0.1",
        port: int | None = None,
        database: str = DATABASE,
        **parameters: str,
    ) -> str:
        """The connection URL, of this server or through the proxy that listens on ``port``."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"mysql://{user}:{quote(password, safe='')}@{host}:{port or self.port}/{database}{query}"

    @property
    def pid(self) -> int:
        """The number of the server's process, which runs."""
        assert self._process is not None
        return self._process.pid

    def options(self) -> dict[str, str]:
        """The same as options of a table."""
        given = {"host": "127.0.0.1", "port": str(self.port), "database": DATABASE}
        return {**given, "user": SUPERUSER, "password": PASSWORD}

    def execute(
        self, script: str, *, database: str | None = DATABASE, password: bytes = PASSWORD.encode()
    ) -> None:
        """Run statements, separated by semicolons, as the superuser."""

        async def run(connection: asyncmy.Connection) -> None:
            async with connection.cursor() as cursor:
                await cursor.execute(script)
                while await cursor.nextset():
                    pass

        self._connected(run, database, password)

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of ``query``, asked by the superuser."""

        async def run(connection: asyncmy.Connection) -> list[tuple[Any, ...]]:
            async with connection.cursor() as cursor:
                await cursor.execute(query)
                return list(await cursor.fetchall())

        return self._connected(run)

    def insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Put ``rows`` into ``table``, a name as SQL writes it."""

        async def run(connection: asyncmy.Connection) -> None:
            async with connection.cursor() as cursor:
                places = ", ".join(["%s"] * len(rows[0]))
                await cursor.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

        if rows:
            self._connected(run)

    def _connected(
        self,
        action: Callable[[asyncmy.Connection], Awaitable[_T]],
        database: str | None = DATABASE,
        password: bytes = PASSWORD.encode(),
    ) -> _T:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(
                f"MariaDB ended by itself with code {self._process.returncode}: {self._log_end()}"
            )

        async def run() -> _T:
            connection = await asyncmy.connect(
                host="127.0.0.1",
                port=self.port,
                user=SUPERUSER,
                password=password,
                database=database,
                autocommit=True,
                init_command="SET time_zone = '+00:00'",
            )
            try:
                return await action(connection)
            finally:
                await connection.ensure_closed()

        return asyncio.run(run())

    def _log_end(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def _temporary(self) -> Path:
        return self.directory / "temporary"

    @property
    def _base(self) -> list[str]:
        messages = self._root / "usr/share/mysql"
        return [
            "--no-defaults",
            f"--basedir={self._root / 'usr'}",
            f"--lc-messages-dir={messages}",
            f"--character-sets-dir={messages / 'charsets'}",
            f"--datadir={self.data}",
            # Not the system's folder: a server that starts removes the tables that another one has there.
            f"--tmpdir={self._temporary}",
            "--innodb-log-file-size=16M",
        ]

    @property
    def _popen(self) -> dict[str, Any]:
        libraries = os.pathsep.join(map(str, self._root.glob("*/lib/*-linux-gnu"))) + os.pathsep
        libraries += os.pathsep.join(map(str, self._root.glob("lib/*-linux-gnu")))
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        return {"env": environment, "cwd": self.directory, **self._account.popen}


def mariadb_programs() -> Path:
    """The folder with MariaDB's programs, which are fetched if they are not there yet.

    Raises:
        RuntimeError: they cannot be had on this machine.
    """
    if _CACHE.exists():
        return _CACHE
    _CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE.parent) as made:
        downloads, root = Path(made) / "packages", Path(made) / "root"
        downloads.mkdir()
        try:
            _download_packages(downloads)
            for package in downloads.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, root], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or b""
            raise RuntimeError(f"{error} {said.decode(errors='replace')}".strip()) from None
        if not _CACHE.exists():  # another process may have made it meanwhile
            root.rename(_CACHE)
    return _CACHE


def _download_packages(folder: Path) -> None:
    if not any(_are_downloaded(library, folder) for library in _LIBAIO):
        # A fresh machine may have no lists of packages.
        subprocess.run(["apt-get", "update"], check=True, capture_output=True)
        if not any(_are_downloaded(library, folder) for library in _LIBAIO):
            raise OSError(f"not to be downloaded: {', '.join(_PACKAGES)}")


def _are_downloaded(library: str, folder: Path) -> bool:
    command = ["apt-get", "download", *_PACKAGES, library]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode == 0


def running_mariadb(*settings: str) -> Iterator[MariaDbServer]:
    """A server of its own in a temporary directory, stopped and removed at the end.

    Without MariaDB's programs the test is skipped.
    """
    try:
        programs = mariadb_programs()
    except RuntimeError as error:
        pytest.skip(f"MariaDB cannot be had here: {error}")
    # pytest's own directories are closed to other accounts, and root runs the server as another one.
    directory = Path(tempfile.mkdtemp(prefix="lookup-hints-mariadb-"))
    directory.chmod(0o755)
    server = MariaDbServer(directory, programs, *settings)
    try:
        server.create()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def _mariadb_server() -> Iterator[MariaDbServer]:
    yield from running_mariadb()


@pytest.fixture(scope="module")
def mariadb_server(_mariadb_server: MariaDbServer) -> MariaDbServer:
    """One MariaDB for the whole run, without tables when a file of tests begins: names may be those of others."""
    _mariadb_server.execute(f"DROP DATABASE {DATABASE}; CREATE DATABASE {DATABASE}", database=None)
    return _mariadb_server


@pytest.fixture(scope="session")
def mariadb_with_tls(certificates: Certificates) -> Iterator[MariaDbServer]:
    """The same, with a certificate."""
    key, certificate = map(Path, (certificates.server_key, certificates.server_certificate))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copies = [Path(folder) / each.name for each in (key, certificate)]
        for source, copy in zip((key, certificate), copies, strict=True):
            copy.write_bytes(source.read_bytes())
            copy.chmod(0o644)
        yield from running_mariadb(f"--ssl-key={copies[0]}", f"--ssl-cert={copies[1]}")
