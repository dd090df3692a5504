"""The fast client between taking a question and sending it: its server runs on the same loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest
from lookup_connectors.bytes_in_flight import BytesInFlight
from lookup_connectors.http.answer import KeptConnectionLost
from lookup_connectors.http.engine import Connecting, Peek
from lookup_connectors.http.engine_fast import FastClient
from lookup_connectors.http.request import Request

from lookup_hints.errors import AnswerError


class Server(asyncio.Protocol):
    """Answers each question with its path, and keeps what it was asked."""

    def __init__(self, asked: list[str], connections: list[asyncio.Transport]) -> None:
        self._asked, self._connections = asked, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.append(transport)

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        self._asked.append(path.decode())
        self._transport.write(answer(path))


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class Talk:
    """A client, its server, and what the server sees."""

    def __init__(self, client: FastClient, url: str) -> None:
        self.client = client
        self.asked: list[str] = []
        self.connections: list[asyncio.Transport] = []
        self._url = url

    async def ask(self, path: str) -> str:
        """The answer to ``path``, over a fresh connection where a kept one was lost."""
        request = Request("GET", self._url + path)
        with BytesInFlight(10**6).lease() as lease:
            try:
                response = await self.client.send(request, 10.0, lease, fresh=False)
            except KeptConnectionLost:
                response = await self.client.send(request, 10.0, lease, fresh=True)
            return response.body.decode()


def talking(talk: Callable[[Talk], Awaitable[None]]) -> None:
    """Run ``talk`` with a client and a server."""

    async def run() -> None:
        asked: list[str] = []
        connections: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(asked, connections), "127.0.0.1", 0)
        client = FastClient(Connecting("t", 10, 10.0, 10.0, 10**6, ssl.create_default_context(), None, False))
        both = Talk(client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        both.asked, both.connections = asked, connections
        try:
            await talk(both)
        finally:
            await client.close()
            for connection in connections:
                connection.abort()
            server.close()
            await server.wait_closed()

    asyncio.run(run())


async def taken(talk: Talk, path: str) -> asyncio.Task[str]:
    """A question that has its connection, and is not sent yet."""
    task = asyncio.ensure_future(talk.ask(path))
    await asyncio.sleep(0)
    return task


def test_questions_of_one_turn_of_the_loop_go_out_after_all_are_taken() -> None:
    async def talk(both: Talk) -> None:
        await asyncio.gather(both.ask("/1"), both.ask("/2"))
        first, second = asyncio.ensure_future(both.ask("/3")), asyncio.ensure_future(both.ask("/4"))
        await asyncio.sleep(0)
        arrived = [Peek(each.get_extra_info("socket")) for each in both.connections]
        assert [each.waiting() for each in arrived] == [None, None]
        assert (await first, await second) == ("/3", "/4")
        assert len(both.connections) == 2, "both were kept"

    talking(talk)


@pytest.mark.parametrize("stray", [answer(b"/stray"), b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_what_comes_before_its_question_is_sent_is_never_its_answer(stray: bytes) -> None:
    async def talk(both: Talk) -> None:
        assert await both.ask("/1") == "/1"
        task = await taken(both, "/2")
        both.connections[0].write(stray)
        assert await task == "/2"
        assert both.asked == ["/1", "/2"], "it is sent over a new connection alone"
        assert len(both.connections) == 2

    talking(talk)


def test_what_comes_unasked_after_several_questions_fails_what_follows() -> None:
    async def talk(both: Talk) -> None:
        for path in ("/1", "/2"):
            assert await both.ask(path) == path
        task = await taken(both, "/3")
        both.connections[0].write(answer(b"/stray"))
        with pytest.raises(AnswerError, match="more responses than requests"):
            await task

    talking(talk)


def test_a_connection_that_ends_before_its_question_is_sent_costs_nothing() -> None:
    async def talk(both: Talk) -> None:
        assert await both.ask("/1") == "/1"
        task = await taken(both, "/2")
        both.connections[0].abort()
        assert await task == "/2"

    talking(talk)


def test_a_question_that_is_given_up_before_it_is_sent_is_never_sent() -> None:
    async def talk(both: Talk) -> None:
        assert await both.ask("/1") == "/1"
        task = await taken(both, "/2")
        task.cancel()
        assert await both.ask("/3") == "/3"
        assert both.asked == ["/1", "/3"]
        assert task.cancelled()

    talking(talk)
