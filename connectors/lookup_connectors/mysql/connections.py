"""A small pool of connections in which only reading is possible, with the statements prepared on each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import asyncmy
from asyncmy.cursors import SSCursor
from asyncmy.errors import MySQLError

from lookup_connectors.mysql.failures import ACCESS_DENIED, DRIVER_ERRORS, MysqlFailures
from lookup_connectors.mysql.options import OPTIONS, MysqlServer, checked_server
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.logins import connect_by_login
from lookup_hints.errors import ConnectorError, NotAllowed, OptionError
from lookup_hints.spi import LookupTable, reporting
from lookup_hints.spi.secrets import masker

# Moments are shown in the session's zone, and no mode of the server may change what SQL means. A reader may
# be slow. Lists of keys are searched by ranges of the index, however long they are. MySQL tells sizes of now.
_SESSION = (
    "SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600"
    "/*M!100300 , in_predicate_conversion_threshold = 0 */"
    "/*!80003 , range_optimizer_max_mem_size = 0, information_schema_stats_expiry = 0 */;"
    " SET SESSION TRANSACTION READ ONLY"
)
_MOST_STATEMENTS = 64
_HAND_BACK_SECONDS = 2.0


class Found(NamedTuple):
    """Rows, and the driver's descriptions of their columns."""

    fields: Sequence[Any]
    rows: Sequence[tuple[Any, ...]]


class MysqlConnection:
    """A connection with its prepared statements."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.rests_since = 0.0
        self._statements: dict[str, Any] = {}

    @property
    def is_usable(self) -> bool:
        """Whether the server has not closed it, as far as is known here; a ping would be a round trip."""
        return bool(self.driver.connected and not self.driver._stream_broken)

    # The driver's own cache of statements falls back to values in the text without a word.
    async def ask(self, sql: str, values: Sequence[object] = ()) -> Found:
        """The rows of a statement, which is prepared once; ``values`` are bound."""
        statement = self._statements.pop(sql, None) or await self.driver.prepare(sql)
        self._statements[sql] = statement
        if len(self._statements) > _MOST_STATEMENTS:
            await self._statements.pop(next(iter(self._statements))).close()
        result = await statement.execute(values)
        return Found(result.fields, result.rows)

    async def ask_once(self, sql: str, values: Sequence[object] = ()) -> Found:
        """The rows of a statement that is not kept."""
        async with await self.driver.prepare(sql) as statement:
            result = await statement.execute(values)
            return Found(result.fields, result.rows)

    async def rows(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a query of the catalog."""
        return (await self.ask_once(sql, values)).rows

    async def count_places(self, sql: str) -> int:
        """How many values are to be bound in a statement, which the server reads and does not run."""
        async with await self.driver.prepare(sql) as statement:
            return int(statement.parameter_count)

    async def open_stream(self, sql: str) -> Any:
        """A cursor over the rows of ``sql``, which come as texts and bytes, as fast as they are taken."""
        cursor = self.driver.cursor(SSCursor)
        await cursor.execute(sql)
        return cursor


def _is_refused_login(error: Exception) -> bool:
    return isinstance(error, MySQLError) and error.args[0] == ACCESS_DENIED


class MysqlPool:
    """Connections, lent one at a time; one whose state is in doubt is thrown away."""

    @classmethod
    async def of(cls, table: LookupTable) -> MysqlPool:
        """The pool for ``table``; functions of ``${call:}`` do not keep the event loop from others."""
        return await asyncio.to_thread(cls, table)

    def __init__(self, table: LookupTable) -> None:
        options, secrets = table.read(OPTIONS)
        self._table = table

        def mask(text: str) -> str:
            return masker({*secrets, *table.secrets(OPTIONS)})(text)

        try:
            self._server = checked_server(table, options)
        except NotAllowed:
            raise
        except OptionError as error:
            raise ConnectorError(mask(str(error)), permanent=True) from None
        self.database = self._server.database
        self.in_flight: int = options[MAX_BYTES_IN_FLIGHT.key]
        self._seconds: float = options["connect-timeout"]
        self._idle_seconds: float = options["idle-timeout"]
        self._failures = MysqlFailures(table.name, self._seconds, mask)
        self._slots = asyncio.Semaphore(options["pool-size"])
        self._idle: list[MysqlConnection] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrowed(self, *, in_transaction: bool = False) -> AsyncIterator[MysqlConnection]:
        """A connection for a block; failures come out explained.

        ``in_transaction``: what is read is as of one moment, and the columns cannot change meanwhile.
        """
        with reporting().waiting("slot") if self._slots.locked() else nullcontext():
            await self._slots.acquire()
        try:
            try:
                connection = self._take_idle() or await self._open_connection()
            except (*DRIVER_ERRORS, RuntimeError) as error:  # a way to log in that the driver does not have
                raise self._failures.explained(error, connecting=True) from error
            try:
                if in_transaction:
                    await connection.driver.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                yield connection
                if in_transaction:
                    await connection.driver.query("COMMIT")
            except DRIVER_ERRORS as error:
                connection.driver.close()
                raise self._failures.explained(error) from error
            except Exception:
                connection.driver.close()
                raise
            except BaseException:  # the statement may run still, and nobody waits for it
                connection.driver.close()
                self._kill_later(connection)
                raise
            self._keep_idle(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Close the connections that rest."""
        if self._sweep is not None:
            self._sweep.cancel()
        await asyncio.gather(*self._ending)
        while self._idle:
            with suppress(*DRIVER_ERRORS):
                await asyncio.wait_for(self._idle.pop().driver.ensure_closed(), _HAND_BACK_SECONDS)

    # Inside.

    async def _open_connection(self) -> MysqlConnection:
        """A connection with the login that functions give now, if any do; a refused one is replaced once."""
        if not self._table.called:
            return await self._connect_to(self._server)
        return await connect_by_login(self._table, self._read_server, self._connect_to, _is_refused_login)

    def _read_server(self) -> tuple[MysqlServer, set[str]]:
        options, secrets = self._table.read(OPTIONS)
        return checked_server(self._table, options), secrets

    async def _connect_to(self, server: MysqlServer) -> MysqlConnection:
        driver = await asyncio.wait_for(
            asyncmy.connect(
                host=server.host,
                port=server.port,
                user=server.user,
                password=server.password.encode(),
                database=server.database,
                ssl=server.tls_context(),
                charset="utf8mb4",
                conv={},
                autocommit=True,  # else a connection sees the rows of its first statement for ever
                init_command=_SESSION,
                program_name="lookup_hints",
                connect_timeout=max(1, int(self._seconds)),
            ),
            self._seconds,
        )
        return MysqlConnection(driver)

    def _take_idle(self) -> MysqlConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.driver.close()
        return None

    def _keep_idle(self, connection: MysqlConnection) -> None:
        connection.rests_since = time.monotonic()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_seconds, self._close_unused)

    def _close_unused(self) -> None:
        """Close those that have rested for too long, which are the first ones."""
        self._sweep = None
        end = time.monotonic() - self._idle_seconds
        while self._idle and self._idle[0].rests_since <= end:
            self._idle.pop(0).driver.close()
        if self._idle:
            rest = self._idle[0].rests_since - end
            self._sweep = asyncio.get_running_loop().call_later(rest, self._close_unused)

    def _kill_later(self, connection: MysqlConnection) -> None:
        """End the statement of a connection that was left: the server does not see that nobody waits."""
        task = asyncio.get_running_loop().create_task(self._kill_query(connection.driver.thread_id()))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _kill_query(self, thread: int) -> None:
        with suppress(*DRIVER_ERRORS):  # it may have ended by itself
            other = await asyncio.wait_for(self._open_connection(), _HAND_BACK_SECONDS)
            try:
                await asyncio.wait_for(other.driver.query(f"KILL QUERY {int(thread)}"), _HAND_BACK_SECONDS)
            finally:
                other.driver.close()
