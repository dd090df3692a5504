"""The options of the ``mysql`` connector, and the server that they name, checked before connecting."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.options import POOL_SIZE, option_error, server_problems
from lookup_connectors.shared.source_query import QUERY
from lookup_hints.errors import OptionError, did_you_mean
from lookup_hints.spi import DURATION, FILE, TEXT, LookupTable, Option, choice, integer
from lookup_hints.spi.address import origin_text, resolved, split_url
from lookup_hints.spi.secrets import has_reference

ZERO_DATES = Option(
    "zero-dates",
    choice("error", "null"),
    "What a date or time with month 0 or day 0, as 0000-00-00, is read as.",
    default="error",
)
OPTIONS: tuple[Option, ...] = (
    Option(
        "url", TEXT, "Connection URL: mysql://user:password@host:3306/database.", secret=True, may_call=True
    ),
    Option("host", TEXT, "Server, in place of `url`."),
    Option("port", integer(1, 65535), "Port of the server.", default=3306),
    Option("database", TEXT, "Database; needed where `table-name` does not name one."),
    Option("user", TEXT, "User; needed where `url` does not name one."),
    Option("password", TEXT, "Password of the user.", secret=True, may_call=True),
    Option("table-name", TEXT, "`table` or `database.table`, as in SQL; the table's own name by default."),
    QUERY,
    Option(
        "sslmode",
        choice("disable", "require", "verify_ca", "verify_full"),
        "TLS, as in libpq: verify-full checks the server's certificate and name. Default: verify-full, and"
        " disable for this machine.",
    ),
    Option("sslrootcert", FILE, "File of the authorities to trust; those of the system by default."),
    Option("sslcert", FILE, "File of the client's certificate."),
    Option("sslkey", FILE, "File of the client's private key."),
    ZERO_DATES,
    POOL_SIZE,
    Option("idle-timeout", DURATION, "Unused connections are closed after this.", default=60.0),
    Option("connect-timeout", DURATION, "Time to establish one connection.", default=10.0),
    MAX_BYTES_IN_FLIGHT,
)
_PARTS = ("host", "port", "database", "user", "password")
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_SCHEMES = re.compile(r"(mysql|mariadb)(\+\w+)?")
# Names that clients of MySQL and MariaDB have for options of TLS, and their words for `sslmode`.
_ALIASES = {"ssl-mode": "sslmode", "ssl-ca": "sslrootcert", "ssl-cert": "sslcert", "ssl-key": "sslkey"}
_MODES = {"disabled": "disable", "required": "require", "verify-identity": "verify-full"}


@dataclass(frozen=True)
class MysqlServer:
    """Where to connect, and as whom.

    Args:
        host: its name, or its address.
        port: its port.
        user: who connects.
        password: the password, if any.
        database: the database that names without one are looked for in.
        tls: the options of TLS.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str | None
    tls: Mapping[str, str]

    @property
    def mode(self) -> str:
        """How TLS is used: nobody stands between a machine and itself."""
        return self.tls.get("sslmode") or ("disable" if _is_here(self.host) else "verify-full")

    def tls_context(self) -> ssl.SSLContext | None:
        """What the driver trusts; None without TLS.

        Raises:
            OSError: a file cannot be read.
        """
        if self.mode == "disable":
            return None
        context = ssl.create_default_context(cafile=self.tls.get("sslrootcert"))
        context.check_hostname = self.mode == "verify-full"
        if self.mode == "require":
            context.verify_mode = ssl.CERT_NONE
        if "sslcert" in self.tls:
            context.load_cert_chain(self.tls["sslcert"], self.tls.get("sslkey"))
        return context


def check_server(table: LookupTable) -> None:
    """Refuse a server given twice or not at all, and a URL that cannot be understood."""
    for problem in server_problems(table, _PARTS):
        raise option_error(table, problem)
    if not any(has_reference(text) for key, text in table.options.items() if key in (*_PARTS, *_TLS, "url")):
        checked_server(table, {"port": 3306, **table.options})


def checked_server(table: LookupTable, options: Mapping[str, Any]) -> MysqlServer:
    """The server that ``options`` name, which are without references.

    Raises:
        NotAllowed: the host or a file is not allowed on this machine.
        OptionError: something in them is not understood.
    """
    option = "url" if options.get("url") else "host"
    if option == "url":
        server = _server_of_url(table, options)
    else:
        host, user, password = (options.get(key) or "" for key in ("host", "user", "password"))
        tls = _tls_options(options)
        server = MysqlServer(host, int(options["port"]), user, password, options.get("database"), tls)
    if not server.user:
        raise option_error(table, f"option {option!r}: it names no user", "Give the user.")
    table.check_host(server.host, server.port, option=option)
    return server


def _server_of_url(table: LookupTable, options: Mapping[str, Any]) -> MysqlServer:
    def wrong(what: str, tip: str = "") -> OptionError:
        return option_error(table, f"option 'url': {what}", tip)

    # No message holds a part of it, which may be one of the password.
    tip = "Write mysql://user:password@host:3306/database; special characters are percent-encoded."
    try:
        parts = split_url(options["url"])
        host, port = parts.hostname, parts.port or 3306
    except ValueError:
        raise wrong("it cannot be read", tip) from None
    if not _SCHEMES.fullmatch(parts.scheme) or not host or parts.fragment:
        raise wrong("it cannot be read", tip)
    if "," in host:
        raise wrong("it names several servers", "Write one.")
    tls = _tls_options(options)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        own = name.lower().replace("_", "-")
        own = _ALIASES.get(own, own)
        if own == "charset":
            continue  # ours is always utf8mb4
        if own not in _TLS:
            raise wrong(f"{name[:40]!r} is no parameter of it", did_you_mean(own, _TLS))
        if tls.get(own, value) != value:
            raise wrong(f"the option {own!r} says something else", "Leave one of them out.")
        if own != "sslmode":
            table.check_file(value, option="url")
        tls |= _tls_options({own: value})
    modes = ("disable", "require", "verify-ca", "verify-full")
    if tls.get("sslmode", modes[0]) not in modes:
        raise wrong(f"'sslmode' is not one of {', '.join(modes)}", did_you_mean(tls["sslmode"], modes))
    database = unquote(parts.path.lstrip("/")) or None
    return MysqlServer(
        host, port, unquote(parts.username or ""), unquote(parts.password or ""), database, tls
    )


def _tls_options(options: Mapping[str, Any]) -> dict[str, str]:
    given = {name: str(options[name]) for name in _TLS if options.get(name)}
    if "sslmode" in given:
        mode = given["sslmode"].lower().replace("_", "-")
        given["sslmode"] = _MODES.get(mode, mode)
    return given


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def origin_of(table: LookupTable) -> str:
    """The server and the user; empty where they cannot be told here."""
    with suppress(OptionError, ValueError, KeyError):
        given = {key: resolved(table, key) for key in ("url", "host", "port", "user")}
        server = checked_server(table, {**given, "port": given["port"] or 3306})
        host = f"[{server.host}]" if ":" in server.host else server.host
        return origin_text(f"{host}:{server.port}", server.user)
    return ""
