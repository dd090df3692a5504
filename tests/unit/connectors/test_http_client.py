"""The client between taking a question and sending it, its server on the same loop; and where an answer ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from lookup_connectors.http.client_httptools import HttptoolsClient
from lookup_connectors.http.client_httpx import HttpxClient
from lookup_connectors.http.connection import BrokenOff, DesyncGuard, HttpConnection, Peek
from lookup_connectors.http.connector import client_of
from lookup_connectors.http.network import Connecting, HttpOrigin
from lookup_connectors.http.request import Request
from lookup_connectors.http.response import KeptConnectionLost, Response
from lookup_connectors.shared.bytes_in_flight import BytesInFlight

from lookup_hints.errors import AnswerError

CONNECTING = Connecting("t", 10, 10.0, 10.0, 10**6, ssl.create_default_context(), None, False)


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

    def __init__(self, client: HttptoolsClient, url: str) -> None:
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
        client = HttptoolsClient(CONNECTING, BytesInFlight(10**6))
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


# --- where an answer ends -------------------------------------------------------------------------


class _Transport(asyncio.Transport):
    """Sends nothing."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair()
        super().__init__({"socket": self._socket})

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self._socket.close()
        self._other.close()


@contextmanager
def asked_connection() -> Iterator[tuple[HttpConnection, asyncio.Future[Response]]]:
    """A connection whose question is sent, and what takes its answer."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def asked() -> tuple[HttpConnection, asyncio.Future[Response]]:
        origin = HttpOrigin(CONNECTING, "http://api.example")
        connection = HttpConnection(CONNECTING, origin, DesyncGuard("t"), {})
        connection.connection_made(_Transport())
        sink: asyncio.Future[Response] = loop.create_future()
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", loop.time() + 10, BytesInFlight(10**6).lease(), sink)
        connection.send()
        return connection, sink

    connection, sink = loop.run_until_complete(asked())
    try:
        yield connection, sink
    finally:
        connection.abort()
        asyncio.set_event_loop(None)
        loop.close()


WHOLE = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    "no body": (b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", b""),
    "empty": (b"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", b""),
    "news": (b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"a"),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
        b"abc",
    ),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", b"a"),
}


@pytest.mark.parametrize(("whole", "body"), WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_the_end_of_an_answer_is_found_wherever_it_is_cut(whole: bytes, body: bytes, step: int) -> None:
    with asked_connection() as (connection, sink):
        for start in range(0, len(whole), step):
            assert not sink.done()
            connection.data_received(whole[start : start + step])
        assert sink.result().body == body
        assert connection.is_reusable
        connection.data_received(b"HTTP/1.1 200")
        assert not connection.is_reusable, "that is nobody's"


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
        b"no http",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nabc",
    ],
)
def test_an_answer_that_has_no_end_is_none(endless: bytes) -> None:
    with asked_connection() as (connection, sink):
        connection.data_received(endless)
        connection.connection_lost(None)
        assert isinstance(sink.exception(), BrokenOff)
        assert not connection.is_reusable


def test_an_answer_of_unknown_length_ends_with_its_connection() -> None:
    with asked_connection() as (connection, sink):
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nabc")
        assert not sink.done()
        connection.connection_lost(None)
        assert sink.result().body == b"abc"


def test_httpx_is_the_client_where_httptools_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(client_of(CONNECTING, BytesInFlight(10**6)), HttptoolsClient)
    monkeypatch.delitem(sys.modules, "lookup_connectors.http.client_httptools")
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, "lookup_connectors.http.connection")
    assert isinstance(client_of(CONNECTING, BytesInFlight(10**6)), HttpxClient)
