"""A few connections to one database, each used by one thread at a time.

ADBC blocks the thread that asks. Each request has a thread of its own: that costs less than a millisecond,
and one that hangs in a driver holds nobody back, not even the end of the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from adbc_driver_manager import dbapi

from lookup_connectors.adbc.drivers import DUCKDB, POSTGRES, SQLITE, find_library
from lookup_connectors.adbc.failures import DRIVER_ERRORS, DriverFailure, explained
from lookup_connectors.adbc.options import check_options, database_options
from lookup_connectors.shared.logins import connect_by_login
from lookup_connectors.shared.source_query import VIEW, query_of
from lookup_hints.errors import ConnectorError
from lookup_hints.spi import LookupTable, Option, reporting
from lookup_hints.spi.secrets import masker

Result = TypeVar("Result")
Action = Callable[[dbapi.Connection], Result]

_READ_ONLY = "-c default_transaction_read_only=on"
_LIFE_SIGN = "-c client_connection_check_interval=1s"
# How values are cast to texts, which roles may set otherwise. 3 is as exact as the server's own 1, and shows
# that it was set.
_CASTS = {
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    "datestyle": "ISO",
    "timezone": "UTC",
}
_CASTING = " ".join(f"-c {name}={value}" for name, value in _CASTS.items())
_CASTS_NOW = f"SELECT lower(name), setting FROM pg_settings WHERE lower(name) IN {tuple(_CASTS)}"  # noqa: S608
# What sessions of PostgreSQL should begin with. Poolers refuse it, and servers before 14 know half of it.
_SESSION_SETTINGS = (f"{_READ_ONLY} {_LIFE_SIGN} {_CASTING}", f"{_READ_ONLY} {_CASTING}", _READ_ONLY, "")
# Variables that libpq makes settings of, which count more than ours; and what takes each back.
_OF_THE_ENVIRONMENT = {"PGTZ": "SET timezone = UTC", "PGDATESTYLE": "SET datestyle = ISO"}
# DuckDB takes bound lists for a row or two, and would compare each value of an ASOF JOIN with all rows.
_ASOF_SORTS = "SET GLOBAL asof_loop_join_threshold = 0"
_REFUSALS = ("startup parameter", "unrecognized configuration parameter")


@dataclass(frozen=True, repr=False)
class AdbcServer:
    """How to connect, from the options of a table, with references resolved on this machine."""

    table: LookupTable
    declared: tuple[Option, ...]
    options: Mapping[str, Any]
    secrets: frozenset[str]
    local: WeakKeyDictionary[dbapi.Connection, str] = field(default_factory=WeakKeyDictionary, init=False)
    """The statements that begin a transaction with those settings; none where the whole session has them."""

    @classmethod
    def of(cls, table: LookupTable, declared: tuple[Option, ...]) -> AdbcServer:
        """The server of ``table``; what is not allowed is refused here, before anything is loaded."""
        options, secrets = table.read(declared)
        given = {
            key: table.resolve(text, option=key, known=secrets, calling=True)
            for key, text in table.options.items()
        }
        check_options(table, given)
        return cls(table, declared, options, frozenset(secrets))

    def connected(self) -> dbapi.Connection:
        """A new database and a connection to it, by the login that functions give now, if any do; blocks."""
        if not self.table.called:
            return self._open_database()

        async def connect(server: AdbcServer) -> dbapi.Connection:
            return server._open_database()

        return asyncio.run(connect_by_login(self.table, self._read_anew, connect, _is_refused_login))

    def _read_anew(self) -> tuple[AdbcServer, set[str]]:
        server = self.of(self.table, self.declared)
        return server, {*server.secrets}

    def _open_database(self) -> dbapi.Connection:
        library = find_library(self.options["driver"], self.options["entrypoint"], self.table.name)
        database = database_options(self.table, self.options)
        entry_point = {"entrypoint": library.entry_point} if library.entry_point else {}
        last: DriverFailure | None = None
        for settings in _SESSION_SETTINGS if self.options["driver"] == POSTGRES else ("",):
            told = _with_settings(database, settings)
            try:
                connection = dbapi.connect(
                    driver=library.path,
                    db_kwargs={**told, **entry_point},
                    conn_kwargs=self.options["adbc.connection."],
                    autocommit=True,
                )
                if self.options["driver"] == POSTGRES:
                    _restore_environment(connection)
                if self.options["driver"] == SQLITE:
                    self._create_view(connection)
                if self.options["driver"] == DUCKDB:
                    with suppress(*DRIVER_ERRORS):  # versions without it always sort
                        _run_script(connection, _ASOF_SORTS)
                return connection
            except DRIVER_ERRORS as error:
                last = self.explained(error)
                if not any(each in str(error) for each in _REFUSALS):
                    break
        assert last is not None
        raise last

    # SQLite's driver tells no types of a query; a view of this connection alone has those of its columns.
    def _create_view(self, connection: dbapi.Connection) -> None:
        query = query_of(self.table)
        if query is not None:
            _run_script(connection, f'CREATE TEMP VIEW "{VIEW}" AS {query}\n')

    @contextmanager
    def casting(self, connection: dbapi.Connection) -> Iterator[None]:
        """A block in which PostgreSQL casts to texts alike, whatever the role sets.

        A pooler may refuse the settings of our session, or ignore them without a word. It may also give each
        transaction another session. So they are set for a transaction, in the round trip that begins it.
        """
        if self.options["driver"] != POSTGRES:
            yield
            return
        begin = self.local.get(connection)
        if begin is None:
            begin = self.local[connection] = _missing_settings(connection)
        if begin:
            _run_script(connection, begin)
        try:
            yield
        except ConnectorError:
            raise  # the connection is closed; a rollback would first read the rest of the answer
        except Exception:
            with suppress(*DRIVER_ERRORS):
                if begin:
                    _run_script(connection, "ROLLBACK")
            raise
        if begin:
            _run_script(connection, "COMMIT")

    def explained(self, error: Exception) -> DriverFailure:
        return explained(error, self.table.name, masker({*self.secrets, *self.table.secrets(self.declared)}))


def _is_refused_login(error: Exception) -> bool:
    return isinstance(error, DriverFailure) and error.is_refused_login


def _missing_settings(connection: dbapi.Connection) -> str:
    """Statements that begin a transaction with our settings; none where the session has them already."""
    with connection.cursor() as cursor:
        cursor.execute(_CASTS_NOW)
        found = dict(cursor.fetchall())
    if all(setting.split(",")[0] == _CASTS[name] for name, setting in found.items()):  # ISO, MDY
        return ""
    return "; ".join(["BEGIN READ ONLY", *(f"SET LOCAL {name} = '{_CASTS[name]}'" for name in found)])


def _run_script(connection: dbapi.Connection, script: str) -> None:
    with connection.cursor() as cursor:
        cursor.executescript(script)


def _restore_environment(connection: dbapi.Connection) -> None:
    with connection.cursor() as cursor:
        for name, statement in _OF_THE_ENVIRONMENT.items():
            if os.environ.get(name):
                cursor.execute(statement)


def _with_settings(database: dict[str, str], settings: str) -> dict[str, str]:
    """``database`` whose sessions begin with ``settings``, behind those that the URL has itself."""
    uri = database.get("uri", "")
    if re.search("[?&]target_session_attrs=read-", uri):
        settings = settings.replace(_READ_ONLY, "").strip()  # the server's own setting is asked for
    if not settings:
        return database
    told = quote(settings, safe="")
    ours = re.search(r"(?<=[?&]options=)[^&]*", uri)
    if ours is not None:
        return {**database, "uri": f"{uri[: ours.end()]}%20{told}{uri[ours.end() :]}"}
    return {**database, "uri": f"{uri}&options={told}"}


# Some drivers cannot be cancelled, and ADBC blocks. A daemon thread per request costs under a millisecond,
# and one that hangs holds up neither the others nor the process's end. (docs/decisions/0157)
class Connections:
    """Up to ``size`` connections, lent one at a time; one on which something failed is closed."""

    def __init__(self, server: AdbcServer, size: int) -> None:
        self._server = server
        self._slots = asyncio.Semaphore(size)
        self._idle: list[dbapi.Connection] = []
        self._shared: dbapi.Connection | None = None
        self._opening = threading.Lock()
        self._is_closed = False

    async def ask(self, action: Action[Result], seconds: float | None) -> Result:
        """What ``action`` returns, run on a thread with a connection.

        Raises:
            TimeoutError: of asyncio: it took longer than ``seconds``; waiting for a connection counts.
            ConnectorError: the database failed.
        """
        return await asyncio.wait_for(self._run_in_slot(action), seconds)

    # A connection that was cancelled, failed or timed out is closed and never lent again; cancelling and
    # closing share one lock, without which a test run ended in a segmentation fault. (docs/decisions/0157)
    async def _run_in_slot(self, action: Action[Result]) -> Result:
        with reporting().waiting("slot") if self._slots.locked() else nullcontext():
            await self._slots.acquire()
        call = _ConnectionUse(self, action)
        try:
            return await _in_thread(call.run)
        except asyncio.CancelledError:
            threading.Thread(target=call.abandon, daemon=True).start()
            raise
        finally:
            self._slots.release()

    def borrow(self) -> dbapi.Connection:
        """A free connection, or a new one; called on the thread that will use it."""
        with suppress(IndexError):
            return self._idle.pop()
        if self._server.options["driver"] != DUCKDB:
            return self._server.connected()
        with self._opening:  # a database of DuckDB has a cache and threads of its own: one for all
            if self._shared is None:
                self._shared = self._server.connected()
            return self._shared.adbc_clone()

    def hand_back(self, connection: dbapi.Connection) -> None:
        if self._is_closed:
            _close_quietly(connection)
        else:
            self._idle.append(connection)

    def explained(self, error: Exception) -> DriverFailure:
        return self._server.explained(error)

    async def close(self) -> None:
        """Disconnect; a connection in use is closed when it is handed back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        shared, self._shared = self._shared, None
        for connection in (*idle, *([shared] if shared else [])):
            await _in_thread(partial(_close_quietly, connection))


class _ConnectionUse:
    def __init__(self, connections: Connections, action: Action[Any]) -> None:
        self._connections, self._action = connections, action
        self._used = threading.Lock()  # a connection may not be closed while it is cancelled
        self._connection: dbapi.Connection | None = None
        self._is_abandoned = False

    def run(self) -> Any:
        """On a thread of its own."""
        connection = self._connections.borrow()
        with self._used:
            self._connection = connection
        is_in_order = False
        try:
            result = None if self._is_abandoned else self._action(connection)
            is_in_order = True
        except DRIVER_ERRORS as error:
            raise self._connections.explained(error) from None
        finally:
            with self._used:
                self._connection = None
            if is_in_order and not self._is_abandoned:
                self._connections.hand_back(connection)
            else:
                _close_quietly(connection)
        return result

    def abandon(self) -> None:
        """Give up waiting: cancel the statement if the driver can, else let it end."""
        self._is_abandoned = True
        with self._used, suppress(*DRIVER_ERRORS, RuntimeError):
            if self._connection is not None:
                self._connection.adbc_cancel()


def _close_quietly(connection: dbapi.Connection) -> None:
    with suppress(*DRIVER_ERRORS, RuntimeError):
        connection.close()


async def _in_thread(work: Callable[[], Result]) -> Result:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, daemon=True, name="lookup-hints-adbc").start()
    return await future
