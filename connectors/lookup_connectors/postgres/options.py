"""The options of the ``postgres`` connector, and the target that they name, checked before connecting."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from lookup_connectors.postgres.inet_and_cidr import ADDRESS_COLUMN, NETWORK_COLUMN
from lookup_connectors.postgres.url import (
    FILES,
    PORT,
    NotUnderstood,
    Target,
    parameters_of,
    target_of,
    with_service,
)
from lookup_connectors.shared.bytes_in_flight import MAX_BYTES_IN_FLIGHT
from lookup_connectors.shared.options import POOL_SIZE, option_error, server_problems
from lookup_connectors.shared.source_query import QUERY
from lookup_hints.errors import OptionError
from lookup_hints.spi import DURATION, FILE, TEXT, LookupTable, Option, OptionType, choice, integer
from lookup_hints.spi.address import origin_text, resolved
from lookup_hints.spi.secrets import has_reference


def _parse_ports(text: str) -> str:
    if not all(
        re.fullmatch(r"\s*\d{1,5}\s*", each, re.ASCII) and 0 < int(each) < 65536 for each in text.split(",")
    ):
        raise ValueError("it must be between 1 and 65535; several are separated by commas")
    return text.replace(" ", "")


_PORTS = OptionType("integer, or a list of them", _parse_ports)

SEARCH_SETTINGS = {
    "hnsw.ef_search": Option(
        "nearest.ef-search",
        integer(1, 1000),
        "Candidates of a search in an HNSW index, for APPROX NEAREST: more find more of the nearest rows."
        " Default: the server's.",
    ),
    "ivfflat.probes": Option(
        "nearest.probes",
        integer(1, 32_768),
        "Lists that a search in an IVFFlat index reads, for APPROX NEAREST. Default: the server's.",
    ),
}
"""By setting of pgvector the option for it."""

OPTIONS: tuple[Option, ...] = (
    Option(
        "url",
        TEXT,
        "Connection URL: postgresql://user:password@host:5432/database; or `key=value` as in libpq.",
        secret=True,
        may_call=True,
    ),
    Option("host", TEXT, "Server, in place of `url`; several are separated by commas."),
    Option("port", _PORTS, "Port of the server, or one for each.", default="5432"),
    Option("database", TEXT, "Database; the user's name by default."),
    Option("user", TEXT, "Role; the system user's name by default."),
    Option("password", TEXT, "Password of the role.", secret=True, may_call=True),
    Option("table-name", TEXT, "`table` or `schema.table`, as in SQL; the table's own name by default."),
    QUERY,
    Option(
        "sslmode",
        choice("disable", "allow", "prefer", "require", "verify_ca", "verify_full"),
        "TLS, as in libpq: verify-full checks the server's certificate and name. Default: prefer.",
    ),
    Option("sslrootcert", FILE, "File of the authorities to trust, or `system`."),
    Option("sslcert", FILE, "File of the client's certificate."),
    Option("sslkey", FILE, "File of the client's private key."),
    POOL_SIZE,
    Option("idle-timeout", DURATION, "Unused connections are closed after this.", default=60.0),
    Option("connect-timeout", DURATION, "Time to establish one connection.", default=10.0),
    Option(
        "statement-cache-size",
        integer(0, 10_000),
        "Prepared statements kept per connection; 0 behind a pooler in transaction mode.",
        default=100,
    ),
    NETWORK_COLUMN,
    ADDRESS_COLUMN,
    *SEARCH_SETTINGS.values(),
    MAX_BYTES_IN_FLIGHT,
)

# Options, and what they are as parameters.
_PARAMETERS = {"host": "host", "port": "port", "database": "dbname", "user": "user", "password": "password"}
TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that are parameters, too."""
_SERVER = (*_PARAMETERS, "url", *TLS)

_log = logging.getLogger("lookup_hints.postgres")


@lru_cache(maxsize=256)
def warn_without_effect(table: str, without_effect: tuple[str, ...]) -> None:
    """Warn once in a process about parameters of a URL without effect."""
    if without_effect:
        _log.warning("table %s: without effect in 'url': %s", table, ", ".join(without_effect))


def check_server(table: LookupTable) -> None:
    """Refuse a server given twice or not at all, and a JDBC URL."""
    for problem in server_problems(table, _PARAMETERS):
        raise option_error(table, problem)
    if not any(has_reference(text) for key, text in table.options.items() if key in _SERVER):
        warn_without_effect(table.name, checked_target(table, table.options).without_effect)


def checked_target(table: LookupTable, options: Mapping[str, Any]) -> Target:
    """Where ``options`` lead to; they are without references.

    The driver is told hosts and files besides its URL: so it connects to what was checked.

    Raises:
        NotAllowed: a host or a file is not allowed on this machine.
        OptionError: something in them is not understood, or they do not say where they lead and hosts are
            restricted.
    """
    url = options.get("url")
    try:
        given = _given_parameters(options)
        if "service" in given and (table.restricts_hosts or table.restricts_files):
            raise NotUnderstood("'service' may not stand in it where hosts or files are restricted")
        target = target_of(with_service(given))
    except NotUnderstood as error:
        raise _wrong_option(
            table, "url" if url else "host", error
        ) from None  # its parts may be pieces of a password
    for name in FILES if url else ():
        if name in given and given[name] != "system":
            table.check_file(given[name], option="url")
    if table.restricts_hosts and not target.hosts:
        raise _wrong_option(
            table, "url", NotUnderstood("it names no host; where hosts are restricted, write it")
        )
    for host, port in target.hosts:
        table.check_host(host, port, option="url" if url else "host")
    return target


def _given_parameters(options: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that ``options`` give, in a URL and beside it."""
    tls = {name: str(options[name]).replace("_", "-") if name == "sslmode" else options[name] for name in TLS
           if options.get(name)}  # fmt: skip
    if not options.get("url"):
        parts = {name: str(options[key]) for key, name in _PARAMETERS.items() if options.get(key)}
        if parts.get("host", "").count(":") == 1:
            raise NotUnderstood(
                "it is a name and no more", "Write the port in 'port', as in '5432' or '5432,5433'."
            )
        return {**parts, **tls}
    given = parameters_of(options["url"])
    twice = next((name for name, value in tls.items() if given.get(name, value) != value), None)
    if twice is not None:
        raise NotUnderstood(f"the option {twice!r} says something else", "Leave one of them out.")
    return {**given, **tls}


def origin_of(table: LookupTable) -> str:
    """The servers that the options of ``table`` name and the user, as the driver finds them here.

    Empty where a reference cannot be resolved here, or a URL cannot be read.
    """
    with suppress(OptionError, ValueError):
        target = _target_here(table)
        port = target.port or PORT
        by_default = [(name, port) for name in (os.environ.get("PGHOST") or "localhost").split(",")]
        hosts = sorted(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in target.hosts or by_default
        )
        return origin_text(",".join(hosts), target.user or os.environ.get("PGUSER"))
    return ""


def database_of(table: LookupTable) -> str:
    """The database that the options of ``table`` name, as the driver finds it; empty if it cannot be told."""
    with suppress(OptionError, ValueError):
        target = _target_here(table)
        return (
            target.database or os.environ.get("PGDATABASE") or target.user or os.environ.get("PGUSER") or ""
        )
    return ""


def _target_here(table: LookupTable) -> Target:
    given = {key: resolved(table, key) for key in ("url", "host", "port", "database", "user")}
    return target_of(with_service(_given_parameters(given)))


def _wrong_option(table: LookupTable, option: str, error: NotUnderstood) -> OptionError:
    return option_error(table, f"option {option!r}: {error}", error.tip)
