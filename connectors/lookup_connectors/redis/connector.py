"""The connector: ``commands_and_replies`` decides what is asked, and the clients of redis-py carry it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, TypeVar

from redis import exceptions as errors

from lookup_connectors.redis.commands_and_replies import Commands, Reading, Steps, answer, reading_of
from lookup_connectors.redis.connections import OPTIONS, RedisEndpoint, code_of, origin_of
from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.spi import (
    Answer,
    AsyncLookup,
    Ending,
    Endpoint,
    HealthCheck,
    HealthRequest,
    LookupRequest,
    LookupTable,
    Option,
    ReportsHealth,
    SyncLookup,
    connections_check,
    reporting,
)

_T = TypeVar("_T")


class RedisConnector(AsyncLookup, SyncLookup, ReportsHealth):
    """Values of Redis 6 or later, Valkey, or what speaks their protocol."""

    OPTIONS: ClassVar[tuple[Option, ...]] = OPTIONS

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _OpenRedis | None = None
        self._async_live: _OpenAsyncRedis | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None, "_async_live": None}

    def check(self) -> None:
        RedisEndpoint.check(self.table)
        reading_of(self.table)

    def key_columns(self) -> frozenset[str]:
        return frozenset(reading_of(self.table).template.columns)

    def required_keys(self) -> frozenset[str]:
        """All of them: Redis finds whole keys only."""
        return self.key_columns()

    def request_columns(self) -> frozenset[str]:
        return self.key_columns()

    def origin(self) -> str:
        return origin_of(self.table)

    def ending(self, error: Exception) -> Ending:
        """A lost connection is no answer, and a server that takes no more of them refuses."""
        cause = error.__cause__
        if isinstance(error, ConnectorError) and error.permanent:
            return "unknown"
        if "max number of clients" in str(cause):
            return "refused"
        is_lost = isinstance(cause, errors.ConnectionError | errors.TimeoutError)
        return "lost" if is_lost else super().ending(error)

    # Life.

    def open(self) -> None:
        """Connect, so that a bad setting shows early."""
        self.close()
        live = _OpenRedis(self.table)
        try:
            live.connect()
        except BaseException:
            live.close()
            raise
        self._live = live

    async def aopen(self) -> None:
        await self.aclose()
        live = _OpenAsyncRedis(self.table, await asyncio.to_thread(RedisEndpoint.of, self.table))
        try:
            await live.connect()
        except BaseException:
            await live.close()
            raise
        self._async_live = live

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()

    async def aclose(self) -> None:
        live, self._async_live = self._async_live, None
        if live is not None:
            await live.close()

    # Lookups.

    def lookup(self, request: LookupRequest) -> Answer:
        live = self._live
        assert live is not None, "open() comes before lookup()"
        return live.drive(answer(live.reading, request, together=live.server.is_single))

    async def alookup(self, request: LookupRequest) -> Answer:
        live = self._async_live
        assert live is not None, "aopen() comes before alookup()"
        steps = answer(live.reading, request, together=live.server.is_single)
        try:
            return await asyncio.wait_for(live.drive(steps), request.timeout)
        except asyncio.TimeoutError:
            raise LookupTimeout(
                f"table {self.table.name}: Redis had no answer within {request.timeout:g} s."
            ) from None

    # Health.

    DRIVERS = ("redis",)
    STEPS = ("login",)

    def endpoints(self) -> Sequence[Endpoint]:
        return [RedisEndpoint.of(self.table).endpoint()]

    def health(self, request: HealthRequest) -> Iterator[HealthCheck]:
        """Login, and connections where the user may see how many there are."""
        live = _OpenRedis(self.table)
        try:
            live.connect()
            yield HealthCheck("login", "ok", f"{live.server.place} answers PING")
            yield connections_check(request, live.server.pool_size, live.clients())
        finally:
            live.close()

    def check_of(self, error: Exception) -> str:
        """A refused user, command or database, by the reply."""
        if "DB index" in str(error.__cause__):
            return "database"
        named = {"NOAUTH": "login", "WRONGPASS": "login", "NOPERM": "rights"}
        return named.get(code_of(error.__cause__), "")


class _OpenRedis:
    def __init__(self, table: LookupTable) -> None:
        self.server = RedisEndpoint.of(table)
        self.reading = _resolve_reading(table)
        self._client = self.server.client()

    def connect(self) -> None:
        with self.server.failures_explained():
            self._log_in(self._client.ping)

    def _log_in(self, ask: Callable[[], _T]) -> _T:
        """What ``ask`` gives; where the login of a new connection is refused, once more with a fresh one."""
        try:
            return ask()
        except errors.AuthenticationError:
            if not self.server.forget_login():
                raise
            return ask()

    def clients(self) -> dict[str, tuple[int, int]] | None:
        """How many clients the server may have, and has; None where the user may not know."""
        try:
            info = self._client.info("clients")
            return {"maxclients": (int(info["maxclients"]), int(info["connected_clients"]))}
        except (errors.RedisError, KeyError, TypeError):  # TypeError: a cluster tells it of each node
            return None

    def drive(self, steps: Steps[_T]) -> _T:
        commands: Commands = ()
        replies: Any = None
        while True:
            try:
                commands = self.server.handed_over(commands, replies, steps)
            except StopIteration as stop:
                result: _T = stop.value
                return result
            with self.server.failures_explained():
                replies = self._log_in(partial(_execute_pipeline, self._client, commands))

    def close(self) -> None:
        self._client.close()


class _OpenAsyncRedis:
    def __init__(self, table: LookupTable, server: RedisEndpoint) -> None:
        self.server = server
        self.reading = _resolve_reading(table)
        self._client = self.server.async_client()
        # Where all connections are taken redis-py fails; here a lookup waits for one.
        self._slots = asyncio.Semaphore(self.server.pool_size)

    async def connect(self) -> None:
        with self.server.failures_explained():
            await self._log_in(self._client.ping)

    async def _log_in(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """What ``ask`` gives; where the login of a new connection is refused, once more with a fresh one."""
        try:
            return await ask()
        except errors.AuthenticationError:
            if not await asyncio.to_thread(self.server.forget_login):
                raise
            return await ask()

    async def drive(self, steps: Steps[_T]) -> _T:
        commands: Commands = ()
        replies: Any = None
        with reporting().waiting("slot") if self._slots.locked() else nullcontext():
            await self._slots.acquire()
        try:
            while True:
                try:
                    commands = self.server.handed_over(commands, replies, steps)
                except StopIteration as stop:
                    result: _T = stop.value
                    return result
                with self.server.failures_explained():
                    replies = await self._log_in(partial(_execute_pipeline, self._client, commands))
        finally:
            self._slots.release()

    async def close(self) -> None:
        await self._client.aclose()


def _execute_pipeline(client: Any, commands: Commands) -> Any:
    """The replies to ``commands``, sent together by ``client``; of an asynchronous one, an awaitable."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return pipeline.execute(raise_on_error=False)


def _resolve_reading(table: LookupTable) -> Reading:
    return reading_of(table).resolved(lambda text: table.resolve(text, option="key", known=set()))
