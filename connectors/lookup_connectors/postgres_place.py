"""Whom a URL of PostgreSQL leads to and which files it names, checked before the driver reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi import LookupTable
from lookup_hints.spi.place import origin_text, resolved, split_url

_PORT = 5432
_FILES = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl")
_PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>\d+))?")


def checked_place(table: LookupTable, options: Mapping[str, Any]) -> dict[str, Any]:
    """The servers that ``options`` name, as arguments for the driver; empty where all hosts are allowed.

    The driver is told them besides its URL: so it connects to what was checked, however it reads that.

    Args:
        table: whose options they are.
        options: ``url``, or ``host`` and ``port``, without references.

    Raises:
        NotAllowed: a host or a file is not allowed on this machine.
        OptionError: hosts are restricted, and the URL cannot be read or does not say which it means.
    """
    url = options.get("url")
    if url is None:
        table.check_host(options["host"], int(options.get("port") or _PORT), option="host")
        return {}
    if not (table.restricts_hosts or table.restricts_files):
        return {}
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query, keep_blank_values=True)
        places = _places(parts.netloc.rpartition("@")[2], query)
    except ValueError:
        raise _wrong(table, "it cannot be read") from None  # without its cause, which may hold a password
    _check_files(table, query)
    if not table.restricts_hosts:
        return {}
    if not places:
        raise _wrong(table, "it names no host; where hosts are restricted, write it")
    for host, port in places:
        table.check_host(host, port, option="url")
    return {"host": [host for host, _ in places], "port": [port for _, port in places]}


def origin_of(table: LookupTable) -> str:
    """The servers that the options of ``table`` name and the user, as the driver finds them here.

    Empty where a reference cannot be resolved here, or a URL cannot be read.
    """
    with suppress(OptionError, ValueError):
        url = resolved(table, "url")
        places, user = _in_url(url) if url else _in_options(table)
        hosts = sorted(f"{_bracketed(host)}:{port}" for host, port in places)
        return origin_text(",".join(hosts), user or os.environ.get("PGUSER"))
    return ""


def _in_url(url: str) -> tuple[list[tuple[str, int]], str]:
    parts = split_url(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    places = _places(parts.netloc.rpartition("@")[2], query)
    by_default = _places(os.environ.get("PGHOST", "localhost"), query)
    return places or by_default, unquote(parts.username or query.get("user", [""])[-1])


def _in_options(table: LookupTable) -> tuple[list[tuple[str, int]], str]:
    port = int(resolved(table, "port") or _PORT)
    return [(resolved(table, "host"), port)], resolved(table, "user")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _places(hosts: str, query: Mapping[str, list[str]]) -> list[tuple[str, int]]:
    """Host and port of each server of a URL: ``h1:5433,h2`` or ``?host=h1,h2&port=5433``.

    Raises:
        ValueError: one of them is none.
    """
    in_query = query.get("host", [""])[-1]
    texts = [unquote(each) for each in hosts.split(",")] if hosts else in_query.split(",")
    ports = [int(each) for each in query.get("port", [str(_PORT)])[-1].split(",")]
    if len(ports) not in (1, len(texts)):
        raise ValueError("so many hosts have other ports")
    places = []
    for at, text in enumerate(texts):
        match = _PLACE.fullmatch(text)
        if text.startswith("/"):
            places.append((text, ports[at % len(ports)]))
        elif match is None:
            raise ValueError("no host")
        elif match["host"]:
            port = int(match["port"]) if match["port"] else ports[at % len(ports)]
            places.append((match["host"].strip("[]"), port))
    return places


def _check_files(table: LookupTable, query: Mapping[str, list[str]]) -> None:
    """Refuse files that are not allowed; a file of services may name hosts and files, so it is one, too."""
    if "service" in query:
        raise _wrong(table, "'service' may not stand in it where hosts or files are restricted")
    for name in _FILES:
        for path in query.get(name, ()):
            table.check_file(path, option="url")


def _wrong(table: LookupTable, what: str) -> OptionError:
    return OptionError(Problem(f"table {table.name}: option 'url': {what}."))
