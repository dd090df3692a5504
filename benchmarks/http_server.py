"""An API for benchmarks, in its own process, some milliseconds late.

`GET /people/<id>`, `GET /people?ids=<id>,<id>` and `POST /people` with `[<id>,<id>]`. As little work as can
be, because it shares the machine with what it measures: on uvloop, and without a look at most of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil
import uvloop

LATENCY = 0.002


class _Api(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, rest = self._held.split(b"\r\n\r\n", 1)
            size = _body_size(head)
            if len(rest) < size:
                return
            self._held = rest[size:]
            self._loop.call_later(LATENCY, self._answer, head.split(b" ", 2)[1], rest[:size])

    def _answer(self, target: bytes, asked: bytes) -> None:
        if b"?ids=" in target:
            asked = target.rpartition(b"=")[2].replace(b"%2C", b",")
        if asked:
            body = b"[" + b",".join(map(_person, asked.strip(b"[]").split(b","))) + b"]"
        else:
            body = _person(target.rpartition(b"/")[2])
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        if not self._transport.is_closing():
            self._transport.write(head + body)


def _body_size(head: bytes) -> int:
    if not head.startswith(b"POST"):
        return 0
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def _person(key: bytes) -> bytes:
    return b'{"id":%s,"name":"name %s","country":"DE"}' % (key, key)


@dataclass(frozen=True)
class Api:
    """A running server."""

    url: str
    pid: int


def seconds_of(pid: int) -> float:
    """Processor seconds that a process has taken so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def running_api() -> Iterator[Api]:
    """A server that lives for the length of a block."""
    process = subprocess.Popen([sys.executable, Path(__file__)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Api(f"http://127.0.0.1:{process.stdout.readline().strip()}", process.pid)
    finally:
        process.terminate()
        process.wait()


async def _main() -> None:
    server = await asyncio.get_running_loop().create_server(_Api, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main())
