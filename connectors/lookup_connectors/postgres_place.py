"""Where the options of a table of PostgreSQL lead, checked before the driver is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lookup_connectors.postgres_url import (
    FILES,
    PORT,
    NotUnderstood,
    Target,
    parameters_of,
    target_of,
    with_service,
)
from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi import LookupTable
from lookup_hints.spi.place import origin_text, resolved

_OPTIONS = {"host": "host", "port": "port", "database": "dbname", "user": "user", "password": "password"}
"""Options, and what they are as parameters."""
TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that are parameters, too."""


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
        given = _given(options)
        if "service" in given and (table.restricts_hosts or table.restricts_files):
            raise NotUnderstood("'service' may not stand in it where hosts or files are restricted")
        target = target_of(with_service(given))
    except NotUnderstood as error:
        raise _wrong(
            table, "url" if url else "host", error
        ) from None  # its parts may be pieces of a password
    for name in FILES if url else ():
        if name in given and given[name] != "system":
            table.check_file(given[name], option="url")
    if table.restricts_hosts and not target.hosts:
        raise _wrong(table, "url", NotUnderstood("it names no host; where hosts are restricted, write it"))
    for host, port in target.hosts:
        table.check_host(host, port, option="url" if url else "host")
    return target


def _given(options: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that ``options`` give, in a URL and beside it.

    Raises:
        NotUnderstood: one is given twice, or the URL cannot be read.
    """
    tls = {name: str(options[name]).replace("_", "-") if name == "sslmode" else options[name] for name in TLS
           if options.get(name)}  # fmt: skip
    if not options.get("url"):
        parts = {name: str(options[key]) for key, name in _OPTIONS.items() if options.get(key)}
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
        given = {key: resolved(table, key) for key in ("url", "host", "port", "user")}
        target = target_of(with_service(_given(given)))
        port = target.port or PORT
        by_default = [(name, port) for name in (os.environ.get("PGHOST") or "localhost").split(",")]
        hosts = sorted(f"{_bracketed(host)}:{port}" for host, port in target.hosts or by_default)
        return origin_text(",".join(hosts), target.user or os.environ.get("PGUSER"))
    return ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _wrong(table: LookupTable, option: str, error: NotUnderstood) -> OptionError:
    return OptionError(Problem(f"table {table.name}: option {option!r}: {error}.", tip=error.tip))
