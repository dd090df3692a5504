"""How a task says what its lookups counted: at its end by what its function carries, meanwhile by datagrams.

Accumulators arrive when a task ends. For a line on the screen a worker says its counts in a datagram now and
then, which may be lost without harm; the address travels as a property of Spark's jobs.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable

from lookup_hints.metrics.lookup_metrics import LookupMetrics, Plain, TaskRecord
from lookup_hints.worker.process.task import job_property, task_run

PROPERTY = "lookup_hints.live"
"""The property of a job that says where its tasks report: host, port and a word that proves it."""

_log = logging.getLogger("lookup_hints")

Send = Callable[[list[Plain]], None]
"""Hands plain records of one task to the driver; pickled with each function."""


class Reporter:
    """Reports what a lookup counted in the task that runs; pickled into its function."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def __call__(self, function: str, counts: LookupMetrics) -> None:
        """Send the counts of ``function``, with the task that they are of."""
        run = task_run()
        if run is not None:
            self._send([TaskRecord(function, run, counts).plain()])


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
