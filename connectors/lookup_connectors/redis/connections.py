"""Whom to ask: clients of redis-py made from the options, and what their errors mean."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import redis
import redis.asyncio
from redis import exceptions as errors
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.retry import Retry

from lookup_connectors.redis.commands_and_replies import READING, Commands, NotPermitted, Steps
from lookup_connectors.shared.options import server_problems
from lookup_hints.errors import ConnectorError, OptionError, Problem
from lookup_hints.spi import BOOLEAN, DURATION, FILE, TEXT, Endpoint, LookupTable, Option, integer
from lookup_hints.spi.address import origin_text, resolved, split_url
from lookup_hints.spi.secrets import has_reference

CONNECTING: tuple[Option, ...] = (
    Option(
        "url", TEXT, "redis://user:password@host:6379/0, or rediss:// for TLS.", secret=True, may_call=True
    ),
    Option("host", TEXT, "Server, in place of `url`."),
    Option("port", integer(1, 65535), "Port of the server.", default=6379),
    Option("database", integer(0), "Number of the database.", default=0),
    Option("username", TEXT, "User, where the server knows more than one."),
    Option("password", TEXT, "Password.", secret=True, may_call=True),
    Option("tls", BOOLEAN, "Whether to speak TLS; `rediss://` says it, too.", default=False),
    Option("tls-ca", FILE, "File of the authorities to trust; those of the system by default."),
    Option("tls-cert", FILE, "File of the client's certificate."),
    Option("tls-key", FILE, "File of the client's private key."),
    Option("cluster", BOOLEAN, "Whether the server is a node of a Redis Cluster.", default=False),
    Option(
        "pool-size",
        integer(1, 1000),
        "Lookups at once per worker process, at most; each has a connection.",
        default=4,
    ),
    Option("connect-timeout", DURATION, "Time to establish one connection.", default=10.0),
    Option("request-timeout", DURATION, "Time for one reply.", default=10.0),
)

OPTIONS = (*CONNECTING, *READING)

_IN_URL = ("host", "port", "database", "username", "password", "tls")
_URL = (
    "Write redis://user:password@host:6379/0, or rediss:// for TLS; what is special in them percent-encoded."
)
_SCHEMES = ("redis", "rediss")
# For parameters that other clients know, what to write instead.
_PARAMETERS = {
    "db": " (a database is the path: redis://host:6379/2)",
    "password": " (a password goes before the host: redis://:password@host)",
    "ssl_cert_reqs": " (certificates are always checked: see 'tls-ca')",
    "ssl_ca_certs": " ('tls-ca')",
    "ssl_certfile": " ('tls-cert')",
    "ssl_keyfile": " ('tls-key')",
    "max_connections": " ('pool-size')",
    "socket_timeout": " ('request-timeout')",
    "socket_connect_timeout": " ('connect-timeout')",
    "timeout": " ('request-timeout')",
}
_OTHER_SCHEMES = {
    "valkey": "Valkey is asked as redis://.",
    "valkeys": "Valkey with TLS is asked as rediss://.",
    "unix": "Sockets of files are not supported.",
    "redis+socket": "Sockets of files are not supported.",
    "redis+sentinel": "Sentinels are not asked: name the server.",
    "redis-sentinel": "Sentinels are not asked: name the server.",
    "sentinel": "Sentinels are not asked: name the server.",
}
_MAY_PASS = ("LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "OOM", "UNBLOCKED")
_TIPS = {
    "NOAUTH": "Give 'password' (and 'username').",
    "WRONGPASS": "Check 'username' and 'password'.",
    "NOPERM": "Give the user the right to read these keys. GET does for strings, HMGET with HLEN for hashes.",
    "MOVED": "The server is a node of a cluster: set 'cluster' = 'true'.",
    "ASK": "The server is a node of a cluster: set 'cluster' = 'true'.",
    "CROSSSLOT": "The server is a node of a cluster: set 'cluster' = 'true'.",
}
_E = TypeVar("_E", bound=BaseException)


class ChangingLogin(CredentialProvider):
    """The login that the options of ``table`` give at the moment when a connection is made."""

    def __init__(self, table: LookupTable) -> None:
        self._table = table
        self._used: set[str] = set()

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        options, self._used = self._table.read(OPTIONS)
        where = _arguments_of(self._table.name, options)
        user, password = where.get("username"), where["password"]
        return (user, password) if user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return await asyncio.to_thread(self.get_credentials)

    def forget(self) -> bool:
        """Call for another one next time; blocks."""
        return self._table.forget_called(self._used)


@dataclass(frozen=True)
class RedisEndpoint:
    """A server, or a cluster, and how to connect.

    Args:
        table: the table's name, for messages.
        place: where it is, for messages.
        settings: arguments of redis-py.
        is_cluster: whether it is a cluster.
        pool_size: connections at once.
        check_node: refuses a node of a cluster that is not allowed.
        login: what gives the login of each connection, where functions are called for it.
    """

    table: str
    place: str
    settings: Mapping[str, Any] = field(repr=False)
    is_cluster: bool
    pool_size: int
    check_node: Callable[[str, int], None]
    login: ChangingLogin | None = field(default=None, repr=False)

    @staticmethod
    def check(table: LookupTable) -> None:
        """Refuse a server that is said twice, or not at all; on the driver.

        Raises:
            OptionError: all that is wrong.
        """
        given, problems = table.options, server_problems(table, _IN_URL)
        if "tls-key" in given and "tls-cert" not in given:
            problems.append("'tls-key' is of no use without 'tls-cert'")
        if "username" in given and "password" not in given:
            problems.append("'username' is of no use without 'password'")
        if problems:
            raise OptionError([Problem(f"table {table.name}: {problem}.") for problem in problems])
        _check_plain_url(table)
        _check_plain_host(table)

    @classmethod
    def of(cls, table: LookupTable) -> RedisEndpoint:
        """The server that the options of ``table`` name, on the machine that connects."""
        options, _ = table.read(OPTIONS)
        where = _arguments_of(table.name, options)
        login = ChangingLogin(table) if table.called else None
        if login is not None:
            where = {name: value for name, value in where.items() if name not in ("username", "password")}
            where["credential_provider"] = login
        is_tls = where.pop("ssl", False)
        if not is_tls and any(options[key] for key in ("tls-ca", "tls-cert")):
            raise _permanent_error(
                table.name, "'tls-ca' and 'tls-cert' need TLS: rediss:// or 'tls' = 'true'"
            )
        if options["cluster"] and where.get("db"):
            raise _permanent_error(table.name, "Redis Cluster supports database 0 only")
        settings = {
            **where,
            **(_tls_arguments(options) if is_tls else {}),
            "socket_timeout": options["request-timeout"],
            "socket_connect_timeout": options["connect-timeout"],
            "protocol": 2,
        }
        check_node = partial(table.check_host, option="url" if options["url"] else "host")
        check_node(where["host"], where["port"])
        place = f"{where['host']}:{where['port']}"
        return cls(table.name, place, settings, options["cluster"], options["pool-size"], check_node, login)

    def forget_login(self) -> bool:
        """After a refused login: whether the next connection asks functions for a fresh one."""
        return self.login is not None and self.login.forget()

    @property
    def is_single(self) -> bool:
        """Whether one command may hold many keys, which live in many nodes of a cluster."""
        return not self.is_cluster

    def endpoint(self) -> Endpoint:
        """Whom a client connects to first."""
        where, tls = self.settings, None
        if where.get("ssl"):
            tls = ssl.create_default_context(cafile=where["ssl_ca_certs"])
            if where["ssl_certfile"]:
                tls.load_cert_chain(where["ssl_certfile"], where["ssl_keyfile"])
        return Endpoint(where["host"], where["port"], tls)

    def client(self) -> Any:
        """A client for one caller at a time.

        What fails is not tried again behind our back, but in a cluster, whose keys may have moved meanwhile.
        """
        if self.is_cluster:
            with self.failures_explained():
                return redis.RedisCluster(**self._cluster_arguments)
        return redis.Redis(**self.settings, retry=Retry(NoBackoff(), 0))

    def async_client(self) -> Any:
        """A client for many callers at once."""
        if self.is_cluster:
            return redis.asyncio.RedisCluster(**self._cluster_arguments)
        return redis.asyncio.Redis(**self.settings, retry=AsyncRetry(NoBackoff(), 0))

    @property
    def _cluster_arguments(self) -> dict[str, Any]:
        settings = {name: value for name, value in self.settings.items() if name != "db"}
        return {**settings, "address_remap": self._checked_node}

    def _checked_node(self, node: tuple[str, int]) -> tuple[str, int]:
        self.check_node(*node)
        return node

    # Failures.

    @contextmanager
    def failures_explained(self) -> Iterator[None]:
        """Let errors of redis-py and of the line be ConnectorErrors."""
        try:
            yield
        except (errors.RedisError, OSError) as error:
            raise self.explained(error) from error

    def checked(self, commands: Commands, replies: list[Any]) -> list[Any]:
        """``replies``; that one key holds another type of value is the only error that may be among them.

        Raises:
            NotPermitted: the user may not run a command.
            ConnectorError: there is another error, or what is no reply to its command.
        """
        for command, reply in zip(commands, replies, strict=True):
            if not _is_reply_to(command, reply):
                what = f"a list of {len(reply)}" if isinstance(reply, list) else type(reply).__name__
                raise self._redis_error(
                    f"{what} came in reply to {command[0]} with {len(command) - 1} arguments. Something"
                    " between here and the server mixes up replies, or it is no Redis."
                )
            if isinstance(reply, errors.NoPermissionError):
                raise NotPermitted(str(self.explained(reply)), permanent=True) from reply
            is_of_a_key = code_of(reply) == "WRONGTYPE" and command[0] in _OF_ONE_KEY
            if isinstance(reply, Exception) and not is_of_a_key:
                raise self.explained(reply) from reply
        return replies

    def handed_over(self, commands: Commands, replies: list[Any] | None, steps: Steps[Any]) -> Commands:
        """The commands that ``steps`` want next, after ``replies`` to ``commands``; None begins.

        A NotPermitted is raised inside of ``steps``.
        """
        try:
            checked = self.checked(commands, replies) if replies is not None else None
        except NotPermitted as error:
            return steps.throw(error)
        return steps.send(checked)  # type: ignore[arg-type]

    def explained(self, error: Exception) -> ConnectorError:
        """What ``error`` means, and whether it may pass."""
        certificate = _find_cause(error, ssl.SSLCertVerificationError)
        if certificate is not None:
            text = f"the certificate of {self.place} is not trusted: {certificate.verify_message}"
            return _permanent_error(self.table, f"{text}. Check 'tls-ca'")
        code = code_of(error)
        said = str(error) or type(error).__name__
        if isinstance(error, errors.TimeoutError):
            return self._redis_error(
                f"no answer in time: {said}. See 'connect-timeout' and 'request-timeout'."
            )
        is_refused = isinstance(error, errors.AuthenticationError | errors.AuthorizationError)
        is_reply = isinstance(error, errors.ResponseError)
        permanent = is_refused or (is_reply and code not in _MAY_PASS)
        return self._redis_error(f"{said}. {_TIPS.get(code, '')}".rstrip(), permanent=permanent)

    def _redis_error(self, text: str, *, permanent: bool = False) -> ConnectorError:
        message = f"table {self.table}: Redis at {self.place}: {text}".replace("..", ".")
        return ConnectorError(message, permanent=permanent)


_TEXTS = frozenset({bytes, type(None)})
_OF_ONE_KEY = ("GET", "HMGET", "HLEN")


def _is_reply_to(command: tuple[Any, ...], reply: Any) -> bool:
    """Whether ``reply`` has the form of a reply to ``command``, or is an error."""
    if isinstance(reply, Exception):
        return True
    if command[0] in ("EXISTS", "HLEN"):
        return isinstance(reply, int)
    if command[0] == "GET":
        return type(reply) in _TEXTS
    wanted = len(command) - (1 if command[0] == "MGET" else 2)
    return isinstance(reply, list) and len(reply) == wanted and _TEXTS.issuperset(map(type, reply))


def origin_of(table: LookupTable) -> str:
    """Host, port and user that the options of ``table`` name; empty where they cannot be told here."""
    with suppress(OptionError, ConnectorError, ValueError):
        url = resolved(table, "url")
        if url:
            where = _arguments_from_url(table.name, url)
        else:
            where = {key: resolved(table, key) for key in ("host", "port", "username")}
        host = f"[{where['host']}]" if ":" in where["host"] else where["host"]
        return origin_text(f"{host}:{where['port'] or 6379}", where.get("username"))
    return ""


def _check_plain_url(table: LookupTable) -> None:
    """Refuse, on the driver, a URL that cannot be read and that no reference hides."""
    url = table.options.get("url", "")
    if not url or has_reference(url):
        return
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in _SCHEMES:
        text = f"table {table.name}: 'url' must begin with redis:// or rediss://."
        raise OptionError(Problem(text, tip=_OTHER_SCHEMES.get(scheme, "")))
    try:
        _arguments_from_url(table.name, url)
    except ConnectorError as error:
        raise OptionError(Problem(str(error))) from None


def _check_plain_host(table: LookupTable) -> None:
    """Refuse, on the driver, a host that is not allowed and that no reference hides."""
    url, host, port = (table.options.get(key, "") for key in ("url", "host", "port"))
    if url and not has_reference(url):
        where = _arguments_from_url(table.name, url)
        table.check_host(where["host"], where["port"], option="url")
    elif host and not has_reference(host) and not has_reference(port):
        table.check_host(host, int(port or 6379), option="host")


def _arguments_from_url(table: str, url: str) -> dict[str, Any]:
    """What ``url`` says, as arguments of redis-py; nothing of it is passed over."""
    wrong = partial(_permanent_error, table)
    try:
        parts = split_url(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # Without its cause: the message of a parser may hold the password.
        raise wrong(f"'url' cannot be read. {_URL}") from None
    if parts.scheme not in _SCHEMES:
        raise wrong("'url' must begin with redis:// or rediss://")
    if parts.query:
        name = parts.query.partition("=")[0][:40]
        raise wrong(f"'url' takes no parameters: write options of the table{_PARAMETERS.get(name, '')}")
    if "#" in url:
        raise wrong("'url' holds a '#', which ends an address; in a password it is %23")
    if "," in (host or ""):
        raise wrong("'url' names several servers: write one; of a cluster any, with 'cluster' = 'true'")
    if not re.fullmatch(r"/?|/\d{1,9}", parts.path, re.ASCII):
        raise wrong("the path of 'url' is not the number of a database, as in redis://host:6379/0")
    if parts.username and parts.password is None:
        raise wrong(
            "'url' names a user without a password: a password alone is written redis://:password@host"
        )
    who = {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    return {
        "host": unquote(host) if host else "localhost",
        "port": port or 6379,
        "db": int(parts.path.strip("/") or 0),
        "ssl": parts.scheme == "rediss",
        **{name: value for name, value in who.items() if value is not None},
    }


def _arguments_of(table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return _arguments_from_url(table, options["url"]) if options["url"] else _arguments_from_parts(options)


def _arguments_from_parts(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {"host": "host", "port": "port", "database": "db", "tls": "ssl"}
    given = {own: options[key] for key, own in names.items()}
    return {**given, "username": options["username"], "password": options["password"]}


def _tls_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ssl": True,
        "ssl_ca_certs": options["tls-ca"],
        "ssl_certfile": options["tls-cert"],
        "ssl_keyfile": options["tls-key"],
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
    }


def _permanent_error(table: str, text: str) -> ConnectorError:
    return ConnectorError(f"table {table}: {text}.".replace("..", "."), permanent=True)


def code_of(error: BaseException | None) -> str:
    """The first word of a reply, by which Redis tells errors apart; redis-py cuts it off for some."""
    for kind, code in (
        (errors.AuthenticationError, "NOAUTH" if "required" in str(error) else "WRONGPASS"),
        (errors.BusyLoadingError, "LOADING"),
        (errors.ReadOnlyError, "READONLY"),
        (errors.NoPermissionError, "NOPERM"),
        (errors.MovedError, "MOVED"),
        (errors.AskError, "ASK"),
        (errors.ClusterCrossSlotError, "CROSSSLOT"),
        (errors.TryAgainError, "TRYAGAIN"),
        (errors.ClusterDownError, "CLUSTERDOWN"),
    ):
        if isinstance(error, kind):
            return code
    return str(error).partition(" ")[0]


def _find_cause(error: BaseException | None, kind: type[_E]) -> _E | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error
