"""A TCP proxy that fails on command: it cuts, refuses, delays, stalls, or cuts after so many bytes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from tests.servers.postgres import free_port


class FaultProxy:
    """Forwards a loopback port to another one until told to misbehave. Runs on a thread of its own.

    Examples:
        >>> with FaultProxy(server.port) as proxy:  # doctest: +SKIP
        ...     proxy.stall()
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.accepted = 0
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._delay = 0.0
        self._bytes_left: int | None = None

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def accept(self) -> None:
        """Take new connections (again)."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        self._on_loop(self._stop_listening)

    def cut(self) -> None:
        """Reset all open connections now."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result()

    def stall(self) -> None:
        """Take connections and bytes, and pass nothing on until ``flow``."""
        self._on_loop(self._open.clear)

    def flow(self) -> None:
        """Pass everything on again: no stall, no delay, no limit."""
        self._delay, self._bytes_left = 0.0, None
        self._on_loop(self._open.set)

    def delay(self, seconds: float) -> None:
        """Hold each piece of an answer for ``seconds``."""
        self._delay = seconds

    def cut_after(self, answered_bytes: int) -> None:
        """Reset a connection once ``answered_bytes`` more have come back from the target."""
        self._bytes_left = answered_bytes

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._pairs)

    def _on_loop(self, action: Callable[[], object]) -> None:
        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _cut_all(self) -> None:
        tasks = list(self._pairs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # a socket is closed one turn of the loop after its transport is

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._pairs[task] = (client_out,)
        try:
            await self._open.wait()
            target_in, target_out = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._pairs[task] = (client_out, target_out)
            await self._forward(client_in, target_out, target_in, client_out)
        except (OSError, asyncio.CancelledError):
            pass  # a line that breaks is what this proxy is for
        finally:
            for writer in self._pairs.pop(task):
                writer.transport.abort()

    async def _forward(
        self,
        client_in: asyncio.StreamReader,
        target_out: asyncio.StreamWriter,
        target_in: asyncio.StreamReader,
        client_out: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes both ways until one side ends."""
        ways = {
            asyncio.ensure_future(self._pass_on(client_in, target_out, answers=False)),
            asyncio.ensure_future(self._pass_on(target_in, client_out, answers=True)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await source.read(65536):
            await self._open.wait()
            if answers:
                await asyncio.sleep(self._delay)
                data = self._within_limit(data)
            sink.write(data)
            await sink.drain()
            if self._bytes_left == 0:
                return

    def _within_limit(self, data: bytes) -> bytes:
        if self._bytes_left is None:
            return data
        data = data[: self._bytes_left]
        self._bytes_left -= len(data)
        return data


@contextlib.contextmanager
def faulty_line(target_port: int) -> Iterator[FaultProxy]:
    """A proxy in front of ``target_port`` for the length of a block."""
    with FaultProxy(target_port) as proxy:
        yield proxy
