"""The task that this worker is in, as Spark tells of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from lookup_hints.metrics.lookup_metrics import TaskRun

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Of Spark's StreamExecution and MicroBatchExecution: properties of the jobs of a micro-batch."""


def job_property(name: str) -> str | None:
    """A property of the job that the task belongs to; None where it has none, and outside of Spark."""
    context = _context()
    return None if context is None else cast("str | None", context.getLocalProperty(name))


def running_statement() -> str | None:
    """What Spark calls the run of a statement that this task belongs to, however many jobs it has."""
    return job_property("spark.sql.execution.id")


def running_part() -> str | None:
    """The same, but that each batch of a streaming query is one for itself."""
    found = (running_statement(), job_property(_QUERY), job_property(_BATCH))
    return "-".join(filter(None, found)) or None


def in_stream() -> bool:
    """Whether this task belongs to a streaming query."""
    return job_property(_QUERY) is not None


def task_run() -> TaskRun | None:
    """The run of a task that this worker is in; None outside of Spark."""
    context = _context()
    if context is None:
        return None
    query, batch = job_property(_QUERY), job_property(_BATCH)
    return TaskRun(
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        number=context.taskAttemptId(),
        batch=(query, int(batch)) if query and batch else None,
    )


def _context() -> Any:
    # Imported late, as the rest does without Spark; a worker has it.
    return import_module("pyspark").TaskContext.get()
