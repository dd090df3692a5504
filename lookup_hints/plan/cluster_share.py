"""Budgets of a lookup join for the whole cluster, and the share of each task.

No task knows of the others. What can be known is how many tasks Spark runs at once at the most, and so each
gets that part of the budget: together they never spend more, and less while fewer run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lookup_hints.errors import OptionError, Problem
from lookup_hints.spi.in_force import Conf

_TIP = (
    "SET lookup.cluster-tasks = <number>, or give Spark spark.executor.cores with spark.executor.instances or"
    " spark.dynamicAllocation.maxExecutors."
)


@dataclass(frozen=True)
class Share:
    """What one task may use.

    Args:
        capacity: requests in flight.
        rate: requests per second, or None.
        notes: for EXPLAIN, how they were found.
    """

    capacity: int
    rate: float | None = None
    notes: tuple[str, ...] = ()


def share_of(
    capacity: int, concurrency: int | None, rate: float | None, tasks: int | None, *, table: str
) -> Share:
    """The share of one of ``tasks`` tasks, where a task has ``capacity`` slots without a budget.

    Raises:
        OptionError: nobody knows how many tasks there are, or there is not one request for each.
    """
    if concurrency is None and rate is None:
        return Share(capacity)
    if tasks is None:
        given = "lookup.max-concurrency" if concurrency is not None else "lookup.rate-limit"
        what = "is split over the tasks that run at once, and Spark's configuration does not say how many"
        raise OptionError(Problem(f"table {table}: {given!r} {what}.", tip=_TIP))
    notes = []
    if concurrency is not None:
        if concurrency < tasks:
            raise OptionError(
                Problem(
                    f"table {table}: 'lookup.max-concurrency' = {concurrency} is less than one request for"
                    f" each of the {tasks} tasks that may run at once.",
                    tip="Raise it, or let Spark run fewer tasks.",
                )
            )
        own = concurrency // tasks
        notes.append(f"'lookup.max-concurrency' = {concurrency} is {own} for each of {tasks} tasks at once")
        capacity = min(capacity, own)
    if rate is not None:
        notes.append(
            f"'lookup.rate-limit' = {rate:g} is {rate / tasks:g}/s for each of {tasks} tasks at once"
        )
    return Share(capacity, None if rate is None else rate / tasks, tuple(notes))


def tasks_at_once(conf: Conf) -> int | None:
    """How many tasks Spark runs at once at the most, by its configuration; None where that does not say."""
    master = conf("spark.master") or ""
    local = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", master)
    if local:
        return int(local[1] or 1)
    small_cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master)
    if small_cluster:
        return int(small_cluster[1]) * _slots(conf, int(small_cluster[2]))
    executors = _executors(conf)
    # On YARN and Kubernetes an executor has one core by default; a standalone one has all of its machine.
    default = 1 if master.startswith(("yarn", "k8s")) else None
    cores = _whole(conf("spark.executor.cores")) or default
    if executors is not None and cores is not None:
        return executors * _slots(conf, cores)
    in_all = _whole(conf("spark.cores.max"))
    return None if in_all is None else _slots(conf, in_all)


def _executors(conf: Conf) -> int | None:
    if (conf("spark.dynamicAllocation.enabled") or "").lower() == "true":
        return _whole(conf("spark.dynamicAllocation.maxExecutors"))
    return _whole(conf("spark.executor.instances"))


def _slots(conf: Conf, cores: int) -> int:
    return max(1, cores // (_whole(conf("spark.task.cpus")) or 1))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) else None
