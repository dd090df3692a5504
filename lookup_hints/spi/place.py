"""Where a source is, as it may be shown: without users, passwords, paths and queries."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import urlsplit

from lookup_hints.errors import OptionError
from lookup_hints.spi.model import LookupTable

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
        url, host, port = (_given(table, key) for key in ("url", "host", "port"))
        hosts = _hosts_of(url) if url else host + (port and f":{port}")
        return hosts if _HOSTS.fullmatch(hosts) else ""
    return ""


def _given(table: LookupTable, key: str) -> str:
    text = table.options.get(key, "")
    return table.resolve(text, option=key, known=set()) if text else ""


def _hosts_of(url: str) -> str:
    parts = urlsplit(url)
    # Behind an @ that comes later the host may be elsewhere, and this a part of a password.
    return "" if "@" in url.partition(parts.netloc)[2] else parts.netloc.rpartition("@")[2]
