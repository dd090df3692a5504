"""Where a source is, as it may be shown: without passwords, paths and queries."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import cycle
from urllib.parse import SplitResult, urlsplit

from lookup_hints.errors import OptionError
from lookup_hints.spi.request_and_answer import LookupTable

_HOSTS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?(?:,(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?)*")


def place_of(table: LookupTable) -> str:
    """The hosts that the options ``url``, or ``host`` and ``port``, name; empty where they cannot be told.

    >>> import pyarrow as pa
    >>> def options(**given):
    ...     return LookupTable("t", pa.schema([]), options=given)
    >>> place_of(options(url="postgresql://me:secret@db:5432/crm")), place_of(options(host="db", port="6379"))
    ('db:5432', 'db:6379')
    >>> place_of(options(url="redis://me:pass/word@db:6379"))
    ''
    """
    with suppress(OptionError, ValueError):
        url, host, port = (resolved(table, key) for key in ("url", "host", "port"))
        hosts = split_url(url).netloc.rpartition("@")[2] if url else _join_hosts_and_ports(host, port)
        return hosts if _HOSTS.fullmatch(hosts) else ""
    return ""


def _join_hosts_and_ports(host: str, port: str) -> str:
    """The hosts with their ports; both may be lists."""
    hosts, ports = host.split(","), port.split(",") if port else [""]
    return ",".join(name + (each and f":{each}") for name, each in zip(hosts, cycle(ports), strict=False))


def origin_of(table: LookupTable) -> str:
    """The hosts of ``place_of`` and the option ``user`` or ``username``; empty where they cannot be told.

    >>> import pyarrow as pa
    >>> origin_of(LookupTable("t", pa.schema([]), options={"url": "crm://DB:5432/x", "user": "crm"}))
    'db:5432 user crm'
    """
    with suppress(OptionError, ValueError):
        return origin_text(place_of(table), resolved(table, "user") or resolved(table, "username"))
    return ""


def origin_text(place: str, user: str | None) -> str:
    """How an origin is written: hosts, whose names ignore case, and the user; empty without hosts."""
    return f"{place.lower()} user {user}" if place and user else place.lower()


def resolved(table: LookupTable, key: str) -> str:
    """The option ``key`` with its references resolved here; empty where it is not given.

    Raises:
        OptionError: a reference names nothing, or is not allowed on this machine.
        ValueError: a reference names a file that is not text.
    """
    text = table.options.get(key, "")
    return table.resolve(text, option=key, known=set()) if text else ""


def split_url(url: str) -> SplitResult:
    """The parts of ``url``.

    Raises:
        ValueError: its host cannot be told, as what looks like one may be a part of a password.
    """
    parts = urlsplit(url)
    if "@" in url[url.find(parts.netloc) + len(parts.netloc) :]:
        raise ValueError("behind an @ that comes later the host may be elsewhere")
    return parts
