"""Connection strings of PostgreSQL: URLs and `key = value`, as libpq's manual and services write them.

Each parameter is kept, or refused by name where leaving it out would change safety or meaning, or named as
one that has no effect here. Nothing is passed over. Messages hold no values: each may be part of a password.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

from lookup_hints.errors import did_you_mean

PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
FILES = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl")
"""Parameters that name files."""

# Parameters that the driver reads in its URL.
_DRIVERS = (
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "krbsrvname", "gsslib"),
)
_OWN = (
    *("host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "servicefile"),
    *("connect_timeout", "target_session_attrs", "load_balance_hosts", "channel_binding", "sslnegotiation"),
    *("application_name", "fallback_application_name", "options", "pgbouncer"),
)
# Names that others have for a parameter; Prisma and JDBC say with the last two where tables are.
_ALIASES = {"database": "dbname", "username": "user", "schema": "search_path", "currentSchema": "search_path"}
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_CHOICES: Mapping[str, Sequence[str]] = {
    "sslmode": SSL_MODES,
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "load_balance_hosts": ("disable", "random"),
    "channel_binding": ("disable", "prefer", "require"),
    "sslnegotiation": ("postgres", "direct"),
    "gssencmode": ("disable", "prefer", "require"),
    "pgbouncer": ("true", "false", "1", "0"),
}
# Values that request the behaviour that we have anyway.
_AS_HERE: Mapping[str, Sequence[str]] = {
    "gssencmode": ("disable", "prefer"),
    "client_encoding": ("auto", "utf8", "utf-8", "unicode"),
    "sslcertmode": ("allow",),
    "sslcompression": ("0",),
    "sslsni": ("1",),
    "gssdelegation": ("0",),
    "requiressl": ("0",),
    "replication": ("false", "off", "no", "0"),
    "min_protocol_version": ("3.0",),
    "max_protocol_version": ("3.0", "latest"),
}
# Parameters that only tune, and that the driver cannot heed.
_WITHOUT_EFFECT = (
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
    *("client_encoding", "sslcompression", "sslsni", "sslkeylogfile", "max_protocol_version", "authtype"),
    *("tty", "supa", "workaround", "uselibpqcompat"),
    *("connection_limit", "pool_timeout", "socket_timeout", "statement_cache_size"),  # Prisma
)
_VERIFY = "leave it out, and write sslmode=verify-full, so that it is the right server"
# Parameters that change safety or meaning, or that belong to others, and what to write instead.
_REFUSED = {
    "gssencmode": "GSS encryption is not spoken: write gssencmode=prefer, and an sslmode that encrypts",
    "require_auth": f"the driver answers any way of login: {_VERIFY}",
    "requirepeer": "the owner of a socket is not looked at: connect by TCP with sslmode=verify-full",
    "sslcertmode": "a certificate is shown where there is one: leave it out",
    "sslcrldir": "folders of revoked certificates are not read: write sslcrl",
    "gssdelegation": "credentials are not delegated: leave it out",
    "requiressl": "write sslmode=require",
    "replication": "tables are asked: leave it out",
    "min_protocol_version": "the driver speaks 3.0: leave it out",
    "scram_client_key": "write 'password'",
    "scram_server_key": "write 'password'",
    "oauth_issuer": "the driver has no OAuth: write 'password'",
    "oauth_client_id": "the driver has no OAuth: write 'password'",
    "oauth_client_secret": "the driver has no OAuth: write 'password'",
    "oauth_scope": "the driver has no OAuth: write 'password'",
    "ssl": "write sslmode=require, or sslmode=verify-full",
    "sslaccept": "write sslmode=verify-full to check the certificate, or sslmode=require",
    "sslidentity": "write sslcert and sslkey",
    "sslfactory": "write sslmode and sslrootcert",
    "prepareThreshold": "write 'statement-cache-size'",
    "ApplicationName": "write application_name",
    "loginTimeout": "write connect_timeout",
    "connectTimeout": "write connect_timeout",
    "socketTimeout": "write 'timeout'",
}
KNOWN = (*_DRIVERS, *_OWN, *_WITHOUT_EFFECT, *_REFUSED)

_ENCODE = (
    "Special characters in a user, a password or a name are percent-encoded: @ is %40, # is %23, / is %2F,"
    " ? is %3F, % is %25."
)
_WRITE = "Write postgresql://user:password@host:5432/database."
_SCHEME = re.compile(r"\s*([A-Za-z][\w+.-]*):")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]]*)(?::(?P<port>\d*))?")
_WITH_SEMICOLONS = re.compile(r"\s*(pgsql:)?\w[\w ]*=[^;'\s]*;\s*\w[\w ]*=", re.IGNORECASE)
_PAIRS = re.compile(r"\s*\w+\s*=")
_PAIR = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?=\s|$)\s*", re.DOTALL)


class NotUnderstood(ValueError):
    """A connection string, or a parameter of one, that cannot be kept: what is wrong, and what to try."""

    def __init__(self, what: str, tip: str = "") -> None:
        super().__init__(what)
        self.tip = tip


@dataclass(frozen=True)
class Target:
    """Where to connect and how.

    Args:
        hosts: with their ports, in the order in which they are tried; where there are none, the driver knows.
        port: where no host is given.
        user, password, database, passfile: as given.
        driver: what the driver reads in its URL.
        session: settings that the session begins with.
        attributes: what the server must be, as libpq names it.
        seconds: to connect; infinite where there is no limit, None where nothing is said.
        shuffled: hosts are tried in any order.
        direct_tls: TLS begins without asking for it.
        behind_pooler: a pooler is between, which gives each transaction another connection.
        system_authorities: those of the system are trusted.
        binds_channel: nobody may stand between.
        without_effect: names of parameters that have no effect here.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    passfile: str | None = None
    driver: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: Mapping[str, str] = field(default_factory=dict, repr=False)
    attributes: str | None = None
    seconds: float | None = None
    shuffled: bool = False
    direct_tls: bool = False
    behind_pooler: bool = False
    system_authorities: bool = False
    binds_channel: bool = False
    without_effect: tuple[str, ...] = ()

    @property
    def asks_whether_writable(self) -> bool:
        """Whether the server's own setting decides, which a read-only session would hide."""
        return self.attributes in ("read-write", "read-only")


# --- from text to parameters ----------------------------------------------------------------------


def parameters_of(text: str) -> dict[str, str]:
    """The parameters that a connection string gives, as libpq names them; hosts and ports are lists.

    Raises:
        NotUnderstood: it cannot be read, or says one thing twice.
    """
    scheme = _SCHEME.match(text)
    if _WITH_SEMICOLONS.match(text):
        tip = (
            "Write postgresql://user:password@host:5432/database, or host=... dbname=... without semicolons."
        )
        raise NotUnderstood("it is a connection string of .NET, ODBC or PDO", tip)
    if _PAIRS.match(text):
        return _Parameters().read_pairs(text)
    if scheme is None:
        raise NotUnderstood("it is neither a URL nor key = value", _WRITE)
    name = scheme[1].lower().partition("+")[0]  # SQLAlchemy's own drivers are named behind it
    if name == "jdbc":
        raise NotUnderstood("it is a URL of JDBC", _WRITE)
    if name not in ("postgresql", "postgres") or not text[scheme.end() :].startswith("//"):
        raise NotUnderstood("it does not begin with postgresql://", _WRITE)
    return _Parameters().read_url(text.strip()[text.strip().index("//") + 2 :])


# asyncpg takes what it does not know for a setting of the session; so we read strings as libpq does.
# (docs/decisions/0179)
class _Parameters:
    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def read_pairs(self, text: str) -> dict[str, str]:
        """``host=a password='b c'``."""
        end = 0
        while end < len(text.rstrip()):
            pair = _PAIR.match(text, end)
            if pair is None:
                raise NotUnderstood(
                    "it cannot be read", "Write key=value, or key='value' with \\' for a quote in it."
                )
            if _ALIASES.get(pair[1], pair[1]) not in KNOWN:  # not shown: it may be a part of a password
                tip = f"{did_you_mean(pair[1], KNOWN)} A value that holds a blank is written as in key='a b'."
                raise NotUnderstood("it holds a parameter that libpq does not know", tip.lstrip())
            value = pair[2][1:-1] if pair[2].startswith("'") else pair[2]
            self._put_parameter(pair[1], re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
            end = pair.end()
        return self._found

    def read_url(self, rest: str) -> dict[str, str]:
        """What follows ``postgresql://``."""
        if "#" in rest or re.search(r"[\s\x00-\x1f]", rest):
            raise NotUnderstood("it cannot be read", f"It holds a '#' or a blank. {_ENCODE}")
        authority = re.split("[/?]", rest, maxsplit=1)[0]
        path, _, query = rest[len(authority) :].partition("?")
        if authority.count("@") > 1 or "@" in path:
            why = "It contains a second '@', or one after a '/', so the host is ambiguous."
            raise NotUnderstood("it cannot be read", f"{why} {_ENCODE}")
        who, _, hosts = authority.rpartition("@")
        user, has_password, password = who.partition(":")
        self._put_parameter("user", _decode_percent(user))
        if has_password:
            self._put_parameter("password", _decode_percent(password))
        self._put_hosts(hosts)
        self._put_parameter("dbname", _decode_percent(path[1:]))
        has_tls = False
        for pair in query.split("&") if query else ():
            name, equals, value = pair.partition("=")
            if not equals:
                raise NotUnderstood("it cannot be read", f"A parameter has no '='. {_ENCODE}")
            if name == "port" and self._found.get("port"):
                by_default, ports = _decode_percent(value), self._found["port"].split(",")
                self._found["port"] = ",".join(port or by_default for port in ports)
            elif (name, value) == ("ssl", "true"):
                has_tls = True
            else:
                self._put_parameter(_decode_percent(name), _decode_percent(value))
        if has_tls and self._found.get("sslmode", "").replace("_", "-") not in _ENCRYPTED:
            self._put_parameter("sslmode", "require")
        return self._found

    def _put_hosts(self, hosts: str) -> None:
        names, ports = [], []
        for text in hosts.split(",") if hosts else ():
            match = _HOST.fullmatch(text)
            if match is None:
                tip = "A host is a name or an address, IPv6 in brackets, and a port is a number. "
                raise NotUnderstood("it cannot be read", tip + _ENCODE)
            names.append(_decode_percent(match["host"]).strip("[]"))
            ports.append(match["port"] or "")
        self._put_parameter("host", ",".join(names))
        if any(ports):
            self._put_parameter("port", ",".join(ports))

    def _put_parameter(self, name: str, value: str) -> None:
        if not value:
            return
        if name == "schema" and not re.fullmatch("[a-z_][a-z0-9_$]*", value):
            value = '"{}"'.format(value.replace('"', '""'))  # one schema, by its exact name
        name = _ALIASES.get(name, name)
        if self._found.setdefault(name, value) != value:
            raise NotUnderstood(f"it gives {name!r} twice", "Leave one of them out.")


# A raw @ or # is an error: readers of URLs do not agree where a password with one ends, and one of them would
# be another host. (docs/decisions/0179)
def _decode_percent(text: str) -> str:
    """``text`` without percent-encoding; a plus is a plus."""
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise NotUnderstood(
            "it cannot be read", f"A '%' is not followed by two hexadecimal digits. {_ENCODE}"
        )
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise NotUnderstood("it cannot be read", "What is percent-encoded is not UTF-8.") from None


# --- from parameters to a target ------------------------------------------------------------------


def target_of(given: Mapping[str, str]) -> Target:
    """The target that ``given``, parameters as libpq names them, describe.

    Raises:
        NotUnderstood: one of them cannot be kept.
    """
    given = {name: value for name, value in given.items() if value}
    given |= {"sslmode": given["sslmode"].replace("_", "-")} if "sslmode" in given else {}
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            tip = (
                "Write sslmode=require." if given[name] == "no-verify" else did_you_mean(given[name], choices)
            )
            raise NotUnderstood(f"{name!r} is not one of {', '.join(choices)}", tip)
    refused = next((name for name in given if name in _REFUSED and not _is_as_here(name, given[name])), None)
    if refused is not None:
        raise NotUnderstood(f"{refused!r} cannot be kept: {_REFUSED[refused]}")
    tls = _tls_parameters(given)
    known = {*_OWN, *_DRIVERS, *_WITHOUT_EFFECT, *_REFUSED}
    session = {name: value for name, value in given.items() if name not in known}
    session |= {"options": given["options"]} if "options" in given else {}
    application = given.get("application_name") or given.get("fallback_application_name")
    session |= {"application_name": application} if application else {}
    return Target(
        hosts=_hosts_and_ports(given, tls.get("sslmode")),
        port=int(given["port"]) if given.get("port", "").isdigit() else None,
        user=given.get("user"),
        password=given.get("password"),
        database=given.get("dbname"),
        passfile=given.get("passfile"),
        driver={name: value for name, value in tls.items() if value != "system"},
        session=session,
        attributes=given.get("target_session_attrs"),
        seconds=_connect_timeout(given.get("connect_timeout")),
        shuffled=given.get("load_balance_hosts") == "random",
        direct_tls=given.get("sslnegotiation") == "direct",
        behind_pooler=given.get("pgbouncer") in ("true", "1"),
        system_authorities=tls.get("sslrootcert") == "system",
        binds_channel=given.get("channel_binding") == "require",
        without_effect=tuple(
            name for name, value in given.items() if name in _WITHOUT_EFFECT and not _is_as_here(name, value)
        ),
    )


def _is_as_here(name: str, value: str) -> bool:
    return value.lower() in _AS_HERE.get(name, ())


# asyncpg has no channel binding; what it is for, that nobody stands between, a checked certificate ensures,
# too. (docs/decisions/0179)
def _tls_parameters(given: Mapping[str, str]) -> dict[str, str]:
    """The parameters for the driver's URL."""
    tls = {name: given[name] for name in _DRIVERS if name in given}
    if given.get("channel_binding") == "require":
        if tls.get("sslmode") == "disable":
            raise NotUnderstood("'channel_binding' = require needs TLS, and 'sslmode' is disable")
        tls = {"sslrootcert": "system", **tls, "sslmode": "verify-full"}
    if tls.get("sslrootcert") == "system" and tls.setdefault("sslmode", "verify-full") != "verify-full":
        raise NotUnderstood("'sslrootcert' = system needs 'sslmode' = verify-full")
    mode = tls.get("sslmode", "prefer")
    if given.get("sslnegotiation") == "direct" and SSL_MODES.index(mode) < SSL_MODES.index("require"):
        raise NotUnderstood("'sslnegotiation' = direct needs 'sslmode' = require, verify-ca or verify-full")
    return tls


# hostaddr with verify-full is refused: the driver checks the name that it connects to. (docs/decisions/0179)
def _hosts_and_ports(given: Mapping[str, str], mode: str | None) -> tuple[tuple[str, int], ...]:
    names = given["host"].split(",") if "host" in given else []
    addresses = given["hostaddr"].split(",") if "hostaddr" in given else []
    if addresses:
        if names and len(names) != len(addresses):
            raise NotUnderstood("'host' and 'hostaddr' are lists of the same length")
        if mode == "verify-full" and names != addresses:
            tip = "Leave it out: the driver checks the name that it connects to."
            raise NotUnderstood("'hostaddr' cannot be kept with 'sslmode' = verify-full", tip)
        names = [address or name for address, name in zip(addresses, names or addresses, strict=True)]
    by_default = os.environ.get("PGPORT", "")
    default = int(by_default) if by_default.isdigit() else PORT
    ports = given.get("port", "").split(",")
    if not all(re.fullmatch(r"\d{0,5}", port, re.ASCII) and int(port or PORT) <= 65535 for port in ports):
        raise NotUnderstood("it cannot be read", "A port is a number up to 65535.")
    if len(ports) not in (1, max(1, len(names))):
        raise NotUnderstood("'port' has neither one port nor one for each host")
    if any(name.startswith("@") for name in names):
        raise NotUnderstood(
            "abstract sockets, as in @name, are not supported", "Write the folder of the socket."
        )
    return tuple(
        (name.strip("[]") or "localhost", int(ports[at % len(ports)] or default))
        for at, name in enumerate(names)
    )


def _connect_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"\s*-?\d{1,9}\s*", text, re.ASCII):
        raise NotUnderstood("'connect_timeout' is not a number of seconds")
    return float(text) if int(text) > 0 else float("inf")


def with_service(given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with what the file of services says besides, if they name a service."""
    name = given.get("service")
    own = {key: value for key, value in given.items() if key not in ("service", "servicefile")}
    if not name:
        return own
    file = given.get("servicefile") or os.environ.get("PGSERVICEFILE") or Path.home() / ".pg_service.conf"
    system = Path(os.environ.get("PGSYSCONFDIR", "/etc/postgresql-common")) / "pg_service.conf"
    for path in (Path(file), system):
        services = configparser.RawConfigParser(strict=False)
        try:
            services.read(path, encoding="utf-8")
        except configparser.Error:
            raise NotUnderstood(f"the file of services {path} cannot be read") from None
        if services.has_section(name):
            return {**{_ALIASES.get(key, key): value for key, value in services.items(name)}, **own}
    raise NotUnderstood(f"there is no service of this name in {file} on this machine")
