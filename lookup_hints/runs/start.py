"""Starting Spark for a command: a Spark of its own, or a Connect server that is waited for."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from lookup_hints.errors import LookupHintsError
from lookup_hints.pyspark_internals import has_jvm, launched_jvm, load_sql, oldest_java
from lookup_hints.runs.java import NoJava, check_java, failed_jvm
from lookup_hints.runs.show_meanwhile import showing_meanwhile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_BAR_OF_SPARK = {"spark.ui.showConsoleProgress": "false"}
"""Turns off Spark's own progress bar: ours uses the same line, and logs need none."""

# Seconds between two looks at the time.
_EVERY = 1.0

Say = Callable[[str], None]
"""Shows a line in place of the line that it showed before."""


# The JVM needs 1.6 s before Python can talk to it, so it starts while the rest is imported.
# (docs/decisions/0193)
class SparkStart:
    """A Spark that starts: its JVM at once in the background, its session on demand.

    If the process ends before that, the JVM ends too, without having requested executors of a cluster.

    Args:
        conf: the configuration of the session, with ``spark.master`` or ``spark.remote`` if they are given.
        hides_log: whether the JVM's output goes to a file, not to the standard error.

    Raises:
        ModuleNotFoundError: PySpark is missing.
    """

    def __init__(self, conf: Mapping[str, str], *, hides_log: bool) -> None:
        # Workers of a local Spark run this Python, not the `python3` on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._conf = {"spark.app.name": "lookup-hints", **NO_BAR_OF_SPARK, **conf}
        self._began = time.monotonic()
        self._jvm: Future[Any] | None = None
        self.is_there = False
        """Whether there is a session."""
        self.log: Path | None = None
        """The file that the JVM writes to for as long as it lives."""
        import_module("pyspark")
        if not _is_connect(self._conf) and not has_jvm():
            self.log = _new_file() if hides_log else None
            self._jvm = ThreadPoolExecutor(1, "spark-start").submit(_launch_jvm, self._conf, self.log)

    def session(self, say: Say | None = None) -> SparkSession:
        """The session, when it is there. Where Spark does not start, its log is shown and removed.

        Args:
            say: shows for how long Spark starts, and where it logs.
        """
        with _show_start(self._began, self.log, say):
            session = self._build_session()
        self.is_there = True
        return session

    def _build_session(self) -> SparkSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        if self._jvm is not None:
            gateway = self._jvm.result()
            loading = threading.Thread(target=load_sql, args=(gateway,), name="spark-load-sql", daemon=True)
            loading.start()
            handler = signal.getsignal(signal.SIGINT)
            SparkContext(conf=SparkConf().setAll(list(self._conf.items())), gateway=gateway)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # a context sets one of its own, which fails
            loading.join()
        builder = SparkSession.builder
        for key, value in self._conf.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def _is_connect(conf: Mapping[str, str]) -> bool:
    """Whether the session is one of a Connect server, as ``SparkSession.Builder.getOrCreate`` decides it."""
    if "spark.remote" in conf or {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"} & os.environ.keys():
        return True
    mode = conf.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    if mode in ("classic", "connect"):
        return mode == "connect"
    return os.environ.get("SPARK_CONNECT_MODE", "1" if find_spec("pyspark_connect") else "0") == "1"


def _new_file() -> Path:
    handle, name = mkstemp(prefix="lookup-hints-", suffix="-spark.log")
    os.close(handle)
    return Path(name)


def _launch_jvm(conf: Mapping[str, str], log: Path | None) -> Any:
    oldest = oldest_java()
    java = check_java(os.environ, oldest)
    try:
        if log is None:
            return launched_jvm(conf, None)
        with log.open("ab") as file:
            return launched_jvm(conf, file)
    except Exception as error:
        memory = conf.get("spark.driver.memory", "1g")
        raise failed_jvm(java, oldest, memory, "" if log is None else _text_of(log)) or error from None


def _text_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _show_start(began: float, log: Path | None, say: Say | None) -> Iterator[None]:
    """Say that Spark starts and for how long, while the block starts it."""
    try:
        if say is None:
            yield
        else:
            with showing_meanwhile(partial(_show_seconds, began, say), "spark-starts"):
                yield
    except BaseException as error:
        if log is not None:
            if isinstance(error, Exception) and not isinstance(error, NoJava):
                sys.stderr.write("\n" + _text_of(log))
            log.unlink()
        raise
    if say is not None:
        say(f"Spark started in {time.monotonic() - began:.1f} s." + (f" It logs to {log}" if log else ""))


@contextmanager
def on_terminal(terminal: TextIO) -> Iterator[Say]:
    """Shows lines one over the other on a terminal; the last one stays."""

    def say(line: str) -> None:
        terminal.write(f"\r{line}")
        terminal.flush()

    try:
        yield say
    finally:
        terminal.write("\n")
        terminal.flush()


def _show_seconds(began: float, say: Say, ready: threading.Event) -> None:
    while True:
        say(f"Starting Spark ... {time.monotonic() - began:.0f} s")
        if ready.wait(_EVERY):
            return


PATIENCE = 30.0
"""Seconds after which a server that does not answer is given up."""
_SILENT = 2.0


class NoServer(LookupHintsError):
    """No Spark Connect server answers at an address."""


def await_server(url: str, say: Callable[[str], None], patience: float = PATIENCE) -> None:
    """Wait until a Spark Connect server takes connections.

    Args:
        url: ``sc://host:port/...``; anything else is not waited for.
        say: called with a message once waiting takes longer than usual.
        patience: seconds.

    Raises:
        NoServer: none did in time.
    """
    if not url.startswith("sc://"):
        return
    place = urlsplit(url).netloc
    client = import_module("pyspark.sql.connect.client")
    # Before Spark 4.0 it had another name.
    builder = getattr(client, "DefaultChannelBuilder", None) or client.ChannelBuilder
    channel = builder(url).toChannel()
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
