"""Servers that answer one question twice: no key gets the row of another one."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from lookup_connectors.http import HttpConnector

from lookup_hints.errors import AnswerError, ConnectorError
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from tests.servers.connectors import http_asking
from tests.servers.connectors.http_asking import SCHEMA, during, rows_of, table_of
from tests.unit.connectors.asking import request_for


@pytest.fixture(autouse=True, params=http_asking.WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for keys that have a task each, and for keys that are started together."""
    http_asking.use_way(request.param, monkeypatch)


def answer(key: int, head: str = "HTTP/1.1 200 OK") -> bytes:
    """What a server should say of ``key``."""
    body = f'{{"name": "n{key}"}}'
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Hostile:
    """A server that does as its ``way`` says; it counts connections."""

    def __init__(self, way: str) -> None:
        self.connections = 0
        self.port = 0
        self._way = way
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._third = asyncio.Event()
        """Set once key 3 is asked for."""
        self._said = threading.Semaphore(0)

    def run(self) -> None:
        """Serve until ``stop``."""
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._drop_all())
        self._loop.close()

    async def _drop_all(self) -> None:
        """End each connection; its socket is closed one turn of the loop after that."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def wait(self) -> None:
        """Until it serves."""
        assert self._ready.wait(10)

    async def all_said(self) -> None:
        """Until it has said all that it will say of one more key."""
        assert await asyncio.to_thread(self._said.acquire, timeout=60)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        stale: int | None = None
        if self._way == "greeting":
            writer.write(answer(99))
        try:
            while match := re.match(rb"GET /x/(\d+) ", await reader.readline()):
                while (await reader.readline()).strip():
                    pass
                await self._answer(int(match[1]), stale, writer)
                stale = int(match[1])
                self._said.release()
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, key: int, stale: int | None, writer: asyncio.StreamWriter) -> None:
        if self._way.startswith("crossed"):
            await self._answer_crossed(key, stale, writer)
            return
        if self._way == "late, then a pause" and stale is not None:
            writer.write(answer(stale))  # the second one of the question before
            await asyncio.sleep(0.05)
        if self._way == "slowly":
            await asyncio.sleep(0.01)  # as a question takes longer to be answered than to come
        before = answer(stale) if self._way == "late" and stale is not None else b""
        writer.write(before + answer(key))
        if self._way == "at once":
            writer.write(answer(key))
        elif self._way == "its beginning":
            writer.write(answer(key)[:20])
            await asyncio.sleep(0.02)
            writer.write(answer(key)[20:])
        elif self._way in ("slowly", "later"):
            await asyncio.sleep(0.01 if self._way == "slowly" else 0.02)
            writer.write(answer(key))
        elif self._way == "news" and key == 1:
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        elif self._way == "goodbye":
            await asyncio.sleep(0.02)
            writer.write(answer(key, "HTTP/1.1 408 Request Timeout"))
            writer.close()

    async def _answer_crossed(self, key: int, stale: int | None, writer: asyncio.StreamWriter) -> None:
        """Each answer comes twice: to key 2 at once, to others with the next question of the connection."""
        if key == 2:
            await self._third.wait()
            if self._way == "crossed, seen later":
                await asyncio.sleep(0.05)
            writer.write(answer(key) * 2)
            return
        if stale is not None:
            self._third.set()
            if self._way == "crossed, seen first":
                await asyncio.sleep(0.05)
        writer.write(answer(key if stale is None else stale))


@contextmanager
def hostile(way: str) -> Iterator[Hostile]:
    """A server for the length of a block."""
    server = Hostile(way)
    thread = threading.Thread(target=server.run)
    thread.start()
    server.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def table_at(server: Hostile, **options: str) -> LookupTable:
    """A table that ``server`` answers for."""
    url = f"http://127.0.0.1:{server.port}/x/{{id}}"
    return table_of(None, "", **{"url": url, "connections": "2", **options})


def names_of(table: LookupTable, keys: int, pause: Callable[[], Awaitable[None]] | None = None) -> list[str]:
    """What is found for each of ``keys``, one after the other, each after ``pause`` behind the one before."""
    requests = [request_for(SCHEMA, {"id": [key]}) for key in range(1, keys + 1)]
    found = []

    async def ask(connector: HttpConnector) -> None:
        for request in requests:
            found.extend(rows_of(await connector.alookup(request)))
            if pause is not None:
                await pause()

    during(table, ask)
    return [row["name"] for row in found]


WAYS_TO_ANSWER_TWICE = ["at once", "its beginning", "slowly", "later"]


@pytest.mark.parametrize("way", WAYS_TO_ANSWER_TWICE)
def test_no_key_gets_the_answer_of_another_one(way: str) -> None:
    with hostile(way) as server:
        assert names_of(table_at(server), 6, server.all_said) == [f"n{key}" for key in range(1, 7)]


def check_own_or_caught(server: Hostile, requests: list[LookupRequest], **options: str) -> None:
    """Each of ``requests`` gets its own rows, or the question after them fails at the latest.

    A second answer may come when the next question is out, where nobody can tell it from an answer. Once all
    has come, one is too many.
    """
    keys = [key for request in requests for key in request.keys.column(0).to_pylist()]

    async def ask(connector: HttpConnector) -> None:
        found = [row for request in requests for row in rows_of(await connector.alookup(request))]
        if found == [{"id": key, "name": f"n{key}"} for key in keys]:
            return
        for _ in keys:
            await server.all_said()
        rows_of(await connector.alookup(request_for(SCHEMA, {"id": [max(keys) + 1]})))
        raise AssertionError(f"asked again after {found}")

    with suppress(AnswerError):
        during(table_at(server, **options), ask)


@pytest.mark.parametrize("way", WAYS_TO_ANSWER_TWICE)
def test_no_key_is_asked_after_one_that_got_the_answer_of_another(way: str) -> None:
    with hostile(way) as server:
        check_own_or_caught(server, [request_for(SCHEMA, {"id": [key]}) for key in range(1, 7)])


@pytest.mark.parametrize(("way", "waits"), [("late", False), ("late", True), ("late, then a pause", True)])
def test_an_answer_that_comes_after_the_next_question_fails_what_follows(way: str, waits: bool) -> None:
    http_asking.need_kept_connections()
    with hostile(way) as server, pytest.raises(AnswerError) as caught:
        names_of(table_at(server), 6, server.all_said if waits else None)
    assert f"127.0.0.1:{server.port} sent more responses than requests." in str(caught.value)
    assert "'header.Connection' = 'close'" in str(caught.value)


@pytest.mark.parametrize("way", ["at once", "slowly", "late, then a pause"])
def test_keys_asked_together_get_their_own_answers_or_an_error(way: str) -> None:
    with hostile(way) as server:
        check_own_or_caught(server, [request_for(SCHEMA, {"id": list(range(1, 60))})], connections="5")


def test_keys_asked_together_fail_where_a_second_answer_comes_with_the_next() -> None:
    http_asking.need_kept_connections()
    request = request_for(SCHEMA, {"id": list(range(1, 60))})
    with hostile("late") as server, pytest.raises(AnswerError, match="more responses than requests"):
        rows_of(during(table_at(server, connections="5"), lambda each: each.alookup(request)))


@pytest.mark.parametrize("way", ["crossed, seen first", "crossed, seen later"])
def test_what_one_connection_shows_puts_what_came_over_others_in_doubt(way: str) -> None:
    """Key 3 gets the second answer to key 1, and its connection is closed before that could be seen."""
    http_asking.need_kept_connections()

    async def ask(connector: HttpConnector) -> None:
        requests = [request_for(SCHEMA, {"id": [key]}) for key in (1, 2, 3)]
        second = asyncio.ensure_future(connector.alookup(requests[1]))
        assert rows_of(await connector.alookup(requests[0])) == [{"id": 1, "name": "n1"}]
        rows_of(await connector.alookup(requests[2]))
        rows_of(await second)

    with hostile(way) as server, pytest.raises(AnswerError, match="sent more responses than"):
        during(table_at(server), ask)


def test_a_connection_for_each_question_is_safe_whatever_comes_after() -> None:
    with hostile("late") as server:
        table = table_at(server, header__Connection="close")
        assert names_of(table, 6) == [f"n{key}" for key in range(1, 7)]
        assert server.connections == 6


def test_a_server_that_keeps_to_its_questions_keeps_its_connection() -> None:
    http_asking.need_kept_connections()
    with hostile("well") as server:
        assert names_of(table_at(server), 6, server.all_said) == [f"n{key}" for key in range(1, 7)]
        assert server.connections == 1


@pytest.mark.parametrize(("way", "connections"), [("goodbye", 3), ("news", 2)])
def test_what_is_no_answer_costs_a_connection_and_no_query(way: str, connections: int) -> None:
    http_asking.need_kept_connections()
    with hostile(way) as server:
        assert names_of(table_at(server), 3, server.all_said) == ["n1", "n2", "n3"]
        assert server.connections == connections


def test_who_speaks_before_it_is_asked_is_not_asked_twice() -> None:
    http_asking.need_kept_connections()
    refused = pytest.raises(ConnectorError, match=r"more responses than|broke off: the server sent data")
    # On a busy machine what it says may come after the question, where nobody can tell it from an answer.
    with hostile("greeting") as server, refused:
        for _ in range(20):
            names_of(table_at(server), 30, lambda: asyncio.sleep(0.02))


def test_an_answer_that_nobody_waits_for_any_more_is_not_unasked() -> None:
    async def ask(connector: HttpConnector) -> None:
        for key in range(1, 30):
            request = request_for(SCHEMA, {"id": [key]})
            for task in [asyncio.ensure_future(connector.alookup(request)) for _ in range(2)]:
                await asyncio.sleep(0.0005 * (key % 4))
                task.cancel()
            assert rows_of(await connector.alookup(request)) == [{"id": key, "name": f"n{key}"}]

    with hostile("well") as server:
        during(table_at(server), ask)


def test_a_request_given_up_at_any_moment_gives_its_connection_back() -> None:
    """At each turn of the loop, on a new connection and on a kept one."""

    async def ask(connector: HttpConnector) -> None:
        for turns in range(60):
            request = request_for(SCHEMA, {"id": [turns]})
            for _ in range(2):
                task = asyncio.ensure_future(connector.alookup(request))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
            found = await asyncio.wait_for(connector.alookup(request), 10)
            assert rows_of(found) == [{"id": turns, "name": f"n{turns}"}]

    with hostile("well") as server:
        during(table_at(server), ask)
        during(table_at(server, header__Connection="close"), ask)
