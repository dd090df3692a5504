"""The task that this worker is in: what Spark tells of it, and how it tells the driver what it counted.

Accumulators arrive when a task ends. For a line on the screen a worker says its counts in a datagram now and
then, which may be lost without harm; the address travels as a property of Spark's jobs.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from lookup_hints.metrics.lookup_metrics import LookupMetrics, Plain, TaskRecord, TaskRun

if TYPE_CHECKING:
    from lookup_hints.metrics.task_recorder import OnCounts

# Of Spark's StreamExecution and MicroBatchExecution: properties of the jobs of a micro-batch. Their group is
# the run of the query.
_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


def job_property(name: str) -> str | None:
    """A property of the job that the task belongs to; None where it has none, and outside of Spark."""
    context = _task_context()
    return None if context is None else cast("str | None", context.getLocalProperty(name))


def running_statement() -> str | None:
    """Spark's id of the execution that this task belongs to, equal for all jobs of a statement."""
    return job_property("spark.sql.execution.id")


def running_part() -> str | None:
    """The same, but that each batch of a streaming query is one for itself."""
    found = (running_statement(), job_property(_QUERY), job_property(_BATCH))
    return "-".join(filter(None, found)) or None


def in_stream() -> bool:
    return job_property(_QUERY) is not None


def task_run() -> TaskRun | None:
    """The run of a task that this worker is in; None outside of Spark."""
    context = _task_context()
    if context is None:
        return None
    query, batch = job_property(_QUERY), job_property(_BATCH)
    return TaskRun(
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        number=context.taskAttemptId(),
        batch=(query, int(batch)) if query and batch else None,
        query_run=(job_property(_RUN) or "") if query else "",
    )


def _task_context() -> Any:
    # Imported late, as the rest does without Spark; a worker has it.
    return import_module("pyspark").TaskContext.get()


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
        run = task_run()
        if run is not None:
            self._send([TaskRecord(function, run, counts).plain()])


def teller(function: str) -> OnCounts | None:
    """A function that reports the progress of ``function`` to the driver; None if it does not listen."""
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
