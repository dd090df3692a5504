"""An API for benchmarks, in its own process: `/people/<id>` and `/people?ids=...`, some milliseconds late.

As little work as can be, because it shares the machine with what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LATENCY = 0.002


class _Api(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while b"\r\n\r\n" in self._held:
            head, self._held = self._held.split(b"\r\n\r\n", 1)
            target = head.split(b" ", 2)[1]
            self._loop.call_later(LATENCY, self._answer, target)

    def _answer(self, target: bytes) -> None:
        if b"?ids=" in target:
            ids = target.rpartition(b"=")[2].replace(b"%2C", b",").split(b",")
            body = b"[" + b",".join(map(_person, ids)) + b"]"
        else:
            body = _person(target.rpartition(b"/")[2])
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        if not self._transport.is_closing():
            self._transport.write(head + body)


def _person(key: bytes) -> bytes:
    return b'{"id":%s,"name":"name %s","country":"DE"}' % (key, key)


@contextlib.contextmanager
def running_api() -> Iterator[str]:
    """The URL of a server that lives for the length of a block."""
    process = subprocess.Popen([sys.executable, Path(__file__)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait()


async def _main() -> None:
    server = await asyncio.get_running_loop().create_server(_Api, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
