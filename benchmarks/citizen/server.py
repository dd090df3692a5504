"""An API that bounds what it takes, in its own process; it can die and come back, and logs what it saw.

`GET /people/<id>`. As little work as can be, because it shares the machine with what it measures: on uvloop,
and without a look at most of a request. It obeys lines on its input, answers each with a line, and ends when
its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

import uvloop

from benchmarks.citizen.log import Log

ROOT = Path(__file__).resolve().parents[2]
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Manners:
    """How a server answers: each request after ``delay`` seconds, and what it bounds."""

    delay: float
    at_once: int | None = None
    """More requests than this at once are refused by 429."""
    retry_after: int | None = None
    """What ``Retry-After`` says then; None leaves the header out."""
    per_second: float | None = None
    """More requests than this wait for their turn."""


class CitizenServer:
    """A running server, as the harness sees it."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder
        self.port = int(self._read())
        self.url = f"http://127.0.0.1:{self.port}/people/{{id}}"

    def requests(self) -> int:
        """How many requests have arrived."""
        return int(self._told("requests"))

    def die(self) -> float:
        """Abort all connections and listen no more; the moment of it."""
        return float(self._told("die"))

    def reset(self) -> float:
        """Abort all connections, and each new one as soon as it is accepted; the moment of it."""
        return float(self._told("reset"))

    def come_back(self) -> float:
        """Serve again, at the same port; the moment of it."""
        return float(self._told("return"))

    def log(self) -> Log:
        """What it saw so far."""
        path = self._folder / "log.json"
        self._told(f"log {path}")
        return Log(**json.loads(path.read_text(encoding="ascii")))

    def _told(self, command: str) -> str:
        stdin = cast("IO[str]", self._process.stdin)
        stdin.write(f"{command}\n")
        stdin.flush()
        return self._read()

    def _read(self) -> str:
        return cast("IO[str]", self._process.stdout).readline().strip()


@contextlib.contextmanager
def citizen_server(manners: Manners, folder: Path) -> Iterator[CitizenServer]:
    """A server that lives for the length of a block and keeps its log in ``folder``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.citizen.server", json.dumps(asdict(manners))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield CitizenServer(process, folder)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            cast("IO[str]", pipe).close()


# --- in the process of the server -----------------------------------------------------------------


class _Api:
    """What all connections of the server share."""

    def __init__(self, manners: Manners) -> None:
        self.manners, self.log = manners, Log()
        self.at_work = 0
        self.open: set[_Connection] = set()
        self.resets = False
        self._turn = 0.0
        self._server: asyncio.Server | None = None

    def turn(self, now: float) -> float:
        """When a request that came at ``now`` is answered."""
        due = now + self.manners.delay
        if self.manners.per_second is not None:
            due = max(due, self._turn + 1 / self.manners.per_second)
        self._turn = due
        return due

    @property
    def is_listening(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    async def listen(self, port: int) -> int:
        """Listen, until ``close``."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=1000)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def abort_all(self) -> None:
        """Abort each connection, with what is at work on it."""
        for each in list(self.open):
            each.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, api: _Api) -> None:
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._held = b""
        self._answers: set[asyncio.TimerHandle] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._api.log.connects.append(time.monotonic())
        self._api.open.add(self)
        if self._api.resets:
            self.abort()

    def connection_lost(self, _: Exception | None) -> None:
        now = time.monotonic()
        self._api.open.discard(self)
        self._api.at_work -= len(self._answers)
        self._api.log.lost.extend(now for _ in self._answers)
        for answer in self._answers:
            answer.cancel()
        self._answers.clear()

    def abort(self) -> None:
        """Close by a reset, as a process that is killed does."""
        connection = cast("socket.socket", self._transport.get_extra_info("socket"))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, self._held = self._held.split(b"\r\n\r\n", 1)
            self._take(int(head.split(b" ", 2)[1].rpartition(b"/")[2]))

    def _take(self, key: int) -> None:
        api, now = self._api, time.monotonic()
        api.log.requests.append((now, key))
        if api.manners.at_once is not None and api.at_work >= api.manners.at_once:
            self._write(429, key, _refusal(api.manners.retry_after))
            return
        api.at_work += 1
        answer: asyncio.TimerHandle = self._loop.call_later(
            api.turn(now) - now, lambda: self._finish(key, answer)
        )
        self._answers.add(answer)

    def _finish(self, key: int, answer: asyncio.TimerHandle) -> None:
        self._answers.discard(answer)
        self._api.at_work -= 1
        self._write(200, key, _person(key))

    def _write(self, status: int, key: int, answer: bytes) -> None:
        self._api.log.answers.append((time.monotonic(), status, key))
        self._transport.write(answer)


def _refusal(retry_after: int | None) -> bytes:
    told = "" if retry_after is None else f"Retry-After: {retry_after}\r\n"
    return f"HTTP/1.1 429 Too Many Requests\r\n{told}Content-Length: 0\r\n\r\n".encode()


def _person(key: int) -> bytes:
    body = b'{"id":%d,"name":"name %d"}' % (key, key)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


async def _obeyed(api: _Api, port: int, command: str) -> str:
    name, _, rest = command.partition(" ")
    if name == "requests":
        return str(len(api.log.requests))
    if name == "log":
        Path(rest).write_text(json.dumps(asdict(api.log)), encoding="ascii")
        return "written"
    if name == "return":
        api.resets = False
        if not api.is_listening:
            await api.listen(port)
    elif name == "die":
        api.close()
        api.abort_all()
    elif name == "reset":
        api.resets = True
        api.abort_all()
    return str(time.monotonic())


async def _main(manners: Manners) -> None:
    api = _Api(manners)
    port = await api.listen(0)
    print(port, flush=True)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async for line in commands:
        print(await _obeyed(api, port, line.decode().strip()), flush=True)


if __name__ == "__main__":
    uvloop.run(_main(Manners(**json.loads(sys.argv[1]))))
