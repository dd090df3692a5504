"""Starting Spark for a command: a Spark of its own, or a Connect server that is waited for."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from tempfile import mkstemp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from lookup_hints.cli.progress import NO_BAR_OF_SPARK
from lookup_hints.errors import LookupHintsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY = 1.0
"""Seconds between two looks at the time."""


Say = Callable[[str], None]
"""Shows a line in place of the line that it showed before."""


def spark_builder(conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession.Builder:
    """What makes a Spark session of ours.

    Raises:
        ModuleNotFoundError: PySpark is missing.
    """
    from pyspark.sql import SparkSession

    # Workers of a local Spark run this Python, not whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("lookup-hints")
    for key, value in {**NO_BAR_OF_SPARK, **conf}.items():
        builder = builder.config(key, value)
    return builder


@contextmanager
def starting_spark(*, quiet: bool = False, say: Say | None = None) -> Iterator[Path]:
    """Say that Spark starts and for how long; what its JVM says goes to a file, which is given.

    The JVM keeps its standard error for as long as it lives, so the file gets all that it logs. Where Spark
    does not start, the file is shown and removed.

    Args:
        quiet: whether nothing is said of a Spark that starts.
        say: shows it; without it, that is the standard error.
    """
    handle, name = mkstemp(prefix="lookup-hints-", suffix="-spark.log")
    log, began = Path(name), time.monotonic()
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as terminal:
        ready = threading.Event()
        show = _on(terminal) if say is None else say
        # In the context of the caller: a notebook finds the cell by it that the line belongs to.
        clock = threading.Thread(target=copy_context().run, args=(_show_seconds, show, ready), daemon=True)
        sys.stderr.flush()
        os.dup2(handle, 2)
        os.close(handle)
        try:
            if not quiet:
                clock.start()
            yield log
        except BaseException:
            terminal.write("\n" + log.read_text(encoding="utf-8", errors="replace"))
            log.unlink()
            raise
        finally:
            ready.set()
            if not quiet:
                clock.join()
            sys.stderr.flush()
            os.dup2(terminal.fileno(), 2)
        if not quiet:
            show(f"Spark started in {time.monotonic() - began:.1f} s. It logs to {log}")
            terminal.write("\n" if say is None else "")


def _on(terminal: TextIO) -> Say:
    def say(line: str) -> None:
        terminal.write(f"\r{line}")
        terminal.flush()

    return say


def _show_seconds(say: Say, ready: threading.Event) -> None:
    seconds = 0
    while True:
        say(f"Starting Spark ... {seconds} s")
        if ready.wait(_EVERY):
            return
        seconds += 1


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
