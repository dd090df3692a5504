"""What running tasks have counted so far: said to the driver while they run, and lost without harm.

Accumulators arrive when a task ends. For a line on the screen a worker says its counts in a datagram now and
then; the address travels as a property of Spark's jobs. On Spark Connect the driver is out of reach.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from secrets import compare_digest, token_hex
from typing import TYPE_CHECKING, Any

from lookup_hints.runtime.metrics import LookupMetrics
from lookup_hints.runtime.records import TaskRecord
from lookup_hints.spark.counts import Counts
from lookup_hints.spark.task import job_property, task_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "lookup_hints.live"
"""The property of a job that says where its tasks report: host, port and a word that proves it."""

_LARGEST = 64 * 1024
"""No datagram is larger."""

_log = logging.getLogger("lookup_hints")


# --- on the driver ---------------------------------------------------------------------------------


@contextmanager
def listening(spark: SparkSession, counts: Counts) -> Iterator[None]:
    """Let tasks of statements that this thread runs inside the block tell ``counts`` how far they are.

    For classic Spark. Where no address can be had, nothing is told, and counts come when tasks end.
    """
    context = spark.sparkContext
    try:
        sock = _bound(_host(context))
    except OSError as error:
        _log.debug("no live counts: %s", error)
        yield
        return
    word = token_hex(8)
    before = context.getLocalProperty(PROPERTY)
    listener = threading.Thread(
        target=_listen, args=(sock, word, counts), name="lookup-live-counts", daemon=True
    )
    listener.start()
    host, port = sock.getsockname()[:2]
    context.setLocalProperty(PROPERTY, f"{host} {port} {word}")
    try:
        yield
    finally:
        context.setLocalProperty(PROPERTY, before)  # type: ignore[arg-type]  # None takes it away
        _stop(sock)
        listener.join()
        counts.forget_running()


def _host(context: Any) -> str:
    if (context.master or "").startswith("local"):
        return "127.0.0.1"
    conf = context.getConf()
    return str(conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host") or "127.0.0.1")


def _bound(host: str) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _listen(sock: socket.socket, word: str, counts: Counts) -> None:
    """Take what is told until an empty datagram of our own comes."""
    with sock:
        while said := sock.recv(_LARGEST):
            told = _read(said, word)
            if told is not None:
                counts.see(*told)


def _stop(sock: socket.socket) -> None:
    with socket.socket(sock.family, socket.SOCK_DGRAM) as own:
        own.sendto(b"", sock.getsockname())


def _read(said: bytes, word: str) -> tuple[TaskRecord, int] | None:
    """The record in a datagram, and the keys that wait for a retry; None for what is not of ours."""
    try:
        told = json.loads(said)
        if not compare_digest(str(told["word"]), word):
            return None
        latency: Mapping[str, int] = told["record"]["counts"].get("latency", {})
        told["record"]["counts"]["latency"] = {int(bucket): count for bucket, count in latency.items()}
        return TaskRecord.of(told["record"]), int(told["waiting"])
    except Exception as error:
        _log.debug("a datagram that is not ours: %s", error)
        return None


# --- on a worker -----------------------------------------------------------------------------------

Tell = Callable[[LookupMetrics, int], None]
"""Takes what a lookup has counted so far, and how many of its keys wait for a retry."""


def teller(function: str) -> Tell | None:
    """Tells the driver how far ``function`` is in the task that runs; None where nobody listens."""
    address, run = job_property(PROPERTY), task_run()
    if not address or run is None:
        return None
    host, port, word = address.split()

    def tell(counts: LookupMetrics, waiting: int) -> None:
        record = TaskRecord(function, run, counts).plain()
        said = json.dumps({"word": word, "record": record, "waiting": waiting}).encode()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.sendto(said, (host, int(port)))
        except OSError as error:  # a line on a screen is no reason to fail
            _log.debug("live counts are not told: %s", error)

    return tell
