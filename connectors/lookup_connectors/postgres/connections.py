"""A small pool of connections in which only reading is possible, and how its sessions begin."""

from __future__ import annotations

import asyncio
import math
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import quote, urlencode

import asyncpg

from lookup_connectors.postgres.failures import (
    DRIVER_ERRORS,
    NAME_SCHEMA,
    SEARCH_PATH,
    PostgresFailures,
    SettingRefused,
)
from lookup_connectors.postgres.options import OPTIONS, SEARCH_SETTINGS, checked_target, warn_without_effect
from lookup_connectors.postgres.url import Target
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.logins import connect_by_login
from lookup_hints.errors import ConnectorError, NotAllowed, OptionError
from lookup_hints.spi import LookupTable, reporting
from lookup_hints.spi.secrets import masker

_HAND_BACK_SECONDS = 2.0
_READ_ONLY = "default_transaction_read_only"
# How often the server looks whether its client is still there while a statement runs: a worker that is
# killed says no goodbye, and its statement would run on. Known from PostgreSQL 14 on.
_LIFE_SIGN = "client_connection_check_interval"
# Texts of dates and moments are read here, so their form is ours to choose. Poolers know these two.
_SESSION = {"application_name": "lookup_hints", "datestyle": "ISO", "timezone": "UTC"}
# What else decides how values are written. 2 is as exact as the server's own 1, and shows that it was set:
# poolers may pass over settings without a word.
_WRITING = {"extra_float_digits": "2", "bytea_output": "hex", "intervalstyle": "postgres"}
_IS_WRITING = " AND ".join(f"current_setting('{name}', true) = '{value}'" for name, value in _WRITING.items())
_SESSION_SETTINGS = {_READ_ONLY: "on", _LIFE_SIGN: "1s", **_WRITING}


class _PooledConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that is given back as it is.

    The driver's own reset is a round trip after each statement. Ours leave nothing to reset.
    """

    def get_reset_query(self) -> str:
        return ""


class PostgresEndpoint:
    """Where to connect and how, from the table's options."""

    @classmethod
    async def of(cls, table: LookupTable) -> PostgresEndpoint:
        """The server of ``table``; functions of ``${call:}`` do not keep the event loop from others."""
        return await asyncio.to_thread(cls, table)

    def __init__(self, table: LookupTable) -> None:
        options, secrets = table.read(OPTIONS)
        self._table, self._options = table, options

        def mask(text: str) -> str:
            return masker({*secrets, *table.secrets(OPTIONS)})(text)

        try:
            self._target = checked_target(table, options)
        except NotAllowed:
            raise
        except OptionError as error:
            raise ConnectorError(mask(str(error)), permanent=True) from None
        pinned = {name for name in self._target.session if name.lower() in {*_SESSION, *_SESSION_SETTINGS}}
        warn_without_effect(
            table.name, (*self._target.without_effect, *sorted(pinned - {"application_name"}))
        )
        self._failures = PostgresFailures(table.name, options, self._target, _SESSION_SETTINGS, mask)
        self._statements: int = options["statement-cache-size"]
        if self._target.behind_pooler and "statement-cache-size" not in table.options:
            self._statements = 0
        self._seconds: float | None = options["connect-timeout"]
        if self._target.seconds is not None and "connect-timeout" not in table.options:
            self._seconds = None if math.isinf(self._target.seconds) else self._target.seconds

    async def pool(self) -> PostgresPool:
        """A pool that has made its first connection.

        Sessions are read-only and end with their client. What a server or pooler refuses to set at the start
        of a session, as pgbouncer does, is left out. Without a read-only session there is a read-only
        transaction around each statement instead: two more round trips. So it is where the server's own
        setting decides which server is meant, and for values that are written as settings say.
        """
        wishes, known = dict(_SESSION_SETTINGS), dict(_WRITING)
        if self._target.asks_whether_writable:
            del wishes[_READ_ONLY]
        while True:
            try:
                return await self._open_pool({**_SESSION, **wishes}, known, _READ_ONLY in wishes)
            except SettingRefused as refusal:
                if wishes.pop(refusal.setting, None) is None:
                    raise
                if refusal.is_unknown:
                    known.pop(refusal.setting, None)
                elif refusal.setting in _WRITING:
                    wishes = {name: value for name, value in wishes.items() if name not in _WRITING}

    async def _open_pool(
        self, session: dict[str, str], known: dict[str, str], read_only_session: bool
    ) -> PostgresPool:
        options = self._options
        driver_pool = await asyncpg.create_pool(
            **({"connect": self._connect_anew} if self._table.called else _driver_arguments(self._target)),
            min_size=0,
            max_size=options["pool-size"],
            max_inactive_connection_lifetime=options["idle-timeout"],
            timeout=self._seconds,
            statement_cache_size=self._statements,
            server_settings=_server_settings(session, self._target),
            connection_class=_PooledConnection,
        )
        in_flight = options[MAX_BYTES_IN_FLIGHT.key]
        pool = PostgresPool(driver_pool, self._failures, in_flight, read_only_session=read_only_session)
        pool.search = {name: options[option.key] for name, option in SEARCH_SETTINGS.items()
                       if options[option.key] is not None}  # fmt: skip
        try:
            async with pool.borrowed() as connection:
                if known and not await connection.fetchval(f"SELECT {_IS_WRITING}"):
                    pool.local = known
                wanted = self._target.session.get(SEARCH_PATH)
                if wanted and await connection.fetchval(f"SELECT current_setting('{SEARCH_PATH}')") != wanted:
                    what = f"a pooler in between does not pass on {SEARCH_PATH!r} (or 'schema') of the 'url'"
                    raise self._failures.permanent(what, NAME_SCHEMA)
            return pool
        except BaseException:
            await pool.close()
            raise

    async def _connect_anew(self, *_: Any, **given: Any) -> asyncpg.Connection:
        """A connection with the login that functions give now; a refused one is replaced once."""

        async def connect(target: Target) -> asyncpg.Connection:
            return await asyncpg.connect(**given, **_driver_arguments(target))

        return await connect_by_login(self._table, self._read_target, connect, _is_refused_login)

    def _read_target(self) -> tuple[Target, set[str]]:
        options, secrets = self._table.read(OPTIONS)
        return checked_target(self._table, options), secrets


def _is_refused_login(error: Exception) -> bool:
    return isinstance(error, asyncpg.InvalidAuthorizationSpecificationError)


def _server_settings(ours: Mapping[str, str], target: Target) -> dict[str, str]:
    named = {name: target.session[name] for name in ("application_name",) if name in target.session}
    return {**target.session, **ours, **named}


def _driver_arguments(target: Target) -> dict[str, Any]:
    """What the driver is told of ``target``. It reads the parameters of TLS only in a URL."""
    hosts = random.sample(target.hosts, len(target.hosts)) if target.shuffled else target.hosts
    arguments: dict[str, Any] = {
        "dsn": f"postgresql://?{urlencode(target.driver, quote_via=quote)}" if target.driver else None,
        "host": [host for host, _ in hosts] or None,
        "port": [port for _, port in hosts] or target.port,
        "user": target.user,
        "password": target.password,
        "database": target.database,
        "passfile": target.passfile,
        "target_session_attrs": target.attributes,
        "ssl": _system_authorities(target.driver) if target.system_authorities else None,
        "direct_tls": target.direct_tls or None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def _system_authorities(told: Mapping[str, str]) -> ssl.SSLContext:
    """What trusts the authorities of the system and checks the name, which the driver has no word for."""
    context = ssl.create_default_context()
    if "sslcert" in told:
        context.load_cert_chain(told["sslcert"], told.get("sslkey"), lambda: told.get("sslpassword", ""))
    if "sslcrl" in told:
        context.load_verify_locations(cafile=told["sslcrl"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    for name, bound in (
        ("ssl_min_protocol_version", "minimum_version"),
        ("ssl_max_protocol_version", "maximum_version"),
    ):
        if name in told:
            setattr(context, bound, ssl.TLSVersion[told[name].replace(".", "_")])
    context.set_alpn_protocols(["postgresql"])
    return context


# For sessions that are not read-only: a pooler refuses to set that, or the driver chooses a server by
# `default_transaction_read_only`, which our own setting would falsify. (docs/decisions/0179)
class _Transaction:
    def __init__(self, connection: asyncpg.Connection, settings: Mapping[str, str]) -> None:
        self._connection = connection
        self._settings = settings

    async def start(self) -> None:
        local = (f"SET LOCAL {name} = '{value}'" for name, value in self._settings.items())
        await self._connection.execute("; ".join(["BEGIN READ ONLY", *local]))

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self._connection.execute("ROLLBACK")


class PostgresPool:
    """Connections, lent one at a time; one whose state is in doubt is thrown away."""

    def __init__(
        self, pool: asyncpg.Pool, failures: PostgresFailures, in_flight: int, *, read_only_session: bool
    ) -> None:
        self.in_flight = in_flight
        """Bytes that answers under way may take together."""
        self._pool = pool
        self._failures = failures
        self._read_only_session = read_only_session
        self.local: Mapping[str, str] = {}
        """Settings that the session lacks: each transaction begins with them."""
        self.search: Mapping[str, int] = {}
        """Settings of searches in approximate indexes."""
        self._coming_back: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrowed(self, *, in_transaction: bool = False) -> AsyncIterator[asyncpg.Connection]:
        """A connection for a block, in which only reading is possible; failures come out explained."""
        try:
            connection = await self._acquire_connection()
        except (ConnectorError, OptionError):
            raise  # of a function that gives the password
        except Exception as error:
            # Without its cause: what the driver says of a URL may be a piece of it.
            raise self._failures.explained(error, connecting=True) from None
        transaction = None
        if in_transaction or not self._read_only_session:
            transaction = _Transaction(connection, self.local)
        try:
            if transaction:
                await transaction.start()
            yield connection
            if transaction:
                await transaction.commit()
        except asyncio.CancelledError:
            # Cancelling needs a round trip to a server that may not answer: the caller need not wait.
            self._start_return(connection, transaction)
            raise
        except DRIVER_ERRORS as error:
            # Shielded: a caller that is cancelled while it waits must not end the way back.
            await asyncio.shield(self._start_return(connection, transaction))
            raise self._failures.explained(error) from error
        except BaseException:
            await asyncio.shield(self._start_return(connection, transaction))
            raise
        await self._pool.release(connection)

    async def _acquire_connection(self) -> asyncpg.Connection:
        is_used_up = self._pool.get_size() >= self._pool.get_max_size() and not self._pool.get_idle_size()
        with reporting().waiting("slot") if is_used_up else nullcontext():
            return await self._pool.acquire()

    async def close(self) -> None:
        await asyncio.gather(*self._coming_back)
        try:
            await asyncio.wait_for(self._pool.close(), _HAND_BACK_SECONDS)
        except asyncio.TimeoutError:
            self._pool.terminate()

    def _start_return(
        self, connection: asyncpg.Connection, transaction: _Transaction | None
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._return_broken(connection, transaction))
        self._coming_back.add(task)
        task.add_done_callback(self._coming_back.discard)
        return task

    async def _return_broken(self, connection: asyncpg.Connection, transaction: _Transaction | None) -> None:
        """Return a connection after an error; the driver cancels the statement still running on it."""
        try:
            if transaction:
                await asyncio.wait_for(transaction.rollback(), _HAND_BACK_SECONDS)
        except DRIVER_ERRORS:
            with suppress(*DRIVER_ERRORS):  # it may have gone back by itself, where it is closed already
                connection.terminate()
        # A connection that does not come to rest in time is ended by the pool itself, which then raises.
        with suppress(*DRIVER_ERRORS):
            await self._pool.release(connection, timeout=_HAND_BACK_SECONDS)
