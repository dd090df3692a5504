"""Waiting for a Spark Connect server, whose client is silent for minutes where there is none."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from lookup_hints.errors import LookupHintsError

PATIENCE = 30.0
"""Seconds after which a server that does not answer is given up."""
_SILENT = 2.0


class NoServer(LookupHintsError):
    """No Spark Connect server answers at an address."""


def await_server(url: str, say: Callable[[str], None], patience: float = PATIENCE) -> None:
    """Wait until a Spark Connect server takes connections.

    Args:
        url: ``sc://host:port/...``; anything else is not waited for.
        say: is told what is waited for, once it takes longer than usual.
        patience: seconds.

    Raises:
        NoServer: none did in time.
    """
    if not url.startswith("sc://"):
        return
    place = urlsplit(url).netloc
    channel = _channel(url)
    ready = import_module("grpc").channel_ready_future(channel)
    try:
        if _is_ready(ready, min(_SILENT, patience)):
            return
        say(f"waiting for the Spark Connect server at {place}, up to {patience:g} s")
        if not _is_ready(ready, max(0.0, patience - _SILENT)):
            raise NoServer(
                f"No Spark Connect server answers at {place} within {patience:g} s."
                " Check host and port (15002 by default), and whether the server runs."
            )
    finally:
        ready.cancel()
        channel.close()


def _is_ready(ready: Any, seconds: float) -> bool:
    try:
        ready.result(timeout=seconds)
    except import_module("grpc").FutureTimeoutError:
        return False
    return True


def _channel(url: str) -> Any:
    client = import_module("pyspark.sql.connect.client")
    # Before Spark 4.0 it had another name.
    builder = getattr(client, "DefaultChannelBuilder", None) or client.ChannelBuilder
    return builder(url).toChannel()
