"""Request budgets of an origin: which tables share one, its limits, and each executor's and task's share.

The processes of one executor keep a limit together through a shared file. Executors cannot see each other, so
the budget is divided by the largest possible number of executors: together they never exceed it, and use less
of it while fewer run. Without a shared file the same holds for tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lookup_hints.errors import OptionError, Problem
from lookup_hints.lookup_spec import Budget
from lookup_hints.spi import Connector
from lookup_hints.spi.lookup_options import TABLE_OPTIONS
from lookup_hints.spi.option_values import Conf, parsed
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.spi.secrets import has_reference

_NAME = "lookup.budget"
CONCURRENCY, RATE, REQUESTS = "lookup.max-concurrency", "lookup.rate-limit", "lookup.max-requests"


@dataclass(frozen=True)
class BudgetLimit:
    """A limit of a budget, and the table whose WITH clause gives it."""

    value: float
    table: str


def gives_limits(table: LookupTable) -> bool:
    """Whether ``table`` limits the requests of its origin or budget by concurrency or rate."""
    return CONCURRENCY in table.options or RATE in table.options


def limits_of(connector: Connector, others: Iterable[Connector]) -> Mapping[str, BudgetLimit]:
    """The limits of the budget that ``connector`` draws on, by option name.

    Args:
        connector: the connector of a table.
        others: connectors of other tables that may share its budget.

    Raises:
        OptionError: two tables of one budget give it different limits.
    """
    own = _budget_key(connector)
    sharing = [other for other in others if own is not None and _budget_key(other) == own]
    tables = {id(each.table): each.table for each in (connector, *sharing)}
    given = {key: _limits_given(key, tables.values()) for key in (CONCURRENCY, RATE)}
    problems = [
        _contradicting_limits(connector.table.options.get(_NAME), key, limits[0], limit)
        for key, limits in given.items()
        for limit in limits
        if limit.value != limits[0].value
    ]
    if problems:
        raise OptionError(problems)
    return {key: limits[0] for key, limits in given.items() if limits}


def shown_owner(connector: Connector) -> str:
    """The owner of the budget of ``connector``, for EXPLAIN; shows nothing that a reference stands for."""
    table = connector.table
    name = table.options.get(_NAME)
    if name:
        return name
    secret = {option.key for option in connector.OPTIONS if option.secret} - {"url"}
    is_hidden = any(has_reference(text) for key, text in table.options.items() if key not in secret)
    place = "" if is_hidden or not _origin_of(connector) else connector.place()
    return f"the origin {place}" if place else f"the origin of {table.name}"


def _budget_key(connector: Connector) -> tuple[str, str] | None:
    """The name of its budget, or else its origin; None where neither is known here."""
    name = connector.table.options.get(_NAME)
    if name:
        return _NAME, name
    origin = _origin_of(connector)
    return ("origin", origin) if origin else None


def _origin_of(connector: Connector) -> str:
    with suppress(Exception):  # somebody's own may fail where references cannot be resolved
        return connector.origin()
    return ""


def _limits_given(key: str, tables: Iterable[LookupTable]) -> list[BudgetLimit]:
    option = TABLE_OPTIONS[key]
    return [
        BudgetLimit(parsed(option, key, table.options[key], owner=f"table {table.name}: "), table.name)
        for table in tables
        if key in table.options
    ]


def _contradicting_limits(name: str | None, key: str, one: BudgetLimit, other: BudgetLimit) -> Problem:
    what = f"have one budget, {name!r}" if name else "ask one origin, and so have one budget"
    places = " and ".join(f"{each.value:g} in WITH of {each.table}" for each in (one, other))
    tip = (
        "one of them another 'lookup.budget'." if name else "each a 'lookup.budget' of its own, to be apart."
    )
    return Problem(
        f"Tables {one.table} and {other.table} {what}, but {key!r} is {places}.",
        tip=f"Give both one value, leave it out of one of them, or give {tip}",
    )


# --- the share of each executor and task ------------------------------------------------------------


_TIP = (
    "SET lookup.cluster-tasks = <number>, or give Spark spark.executor.cores with spark.executor.instances or"
    " spark.dynamicAllocation.maxExecutors."
)


@dataclass(frozen=True)
class Cluster:
    """The largest possible parallelism, as far as Spark's configuration bounds it.

    Args:
        executors: number of executors, or None if it is not known.
        tasks: tasks that all of them run at once, or None if it is not known.
    """

    executors: int | None
    tasks: int | None


# One budget for each origin: host, port and user, as servers count. (docs/decisions/0140)
def budget_of(
    limits: Mapping[str, float], cluster: Cluster, *, table: str, name: str, on_open: str
) -> Budget:
    """Each executor's share of ``limits`` by option name, and each task's share if there is no shared file.

    Raises:
        OptionError: neither executors nor tasks are known, or there are fewer concurrent requests than
            executors (than tasks, where executors are not known).
    """
    executors, tasks = cluster.executors, cluster.tasks
    if limits and executors is None and tasks is None:
        what = "is split over the executors that run at once, and Spark's configuration does not say how many"
        raise OptionError(Problem(f"table {table}: {next(iter(limits))!r} {what}.", tip=_TIP))
    concurrency, rate, requests = (limits.get(key) for key in (CONCURRENCY, RATE, REQUESTS))
    _check_there_is_one_for_each(concurrency, cluster, table)
    # Where the executors are not known, there are no more of them than tasks.
    parts = executors or tasks or 1
    return Budget(
        name=name,
        concurrency=_slots_of(concurrency, executors),
        rate=_divide_rate(rate, executors),
        task_concurrency=_slots_of(concurrency, tasks),
        task_rate=_divide_rate(rate, tasks),
        max_requests=None if requests is None else int(-(-requests // parts)),
        on_open=on_open,
        executors=executors,
    )


def _slots_of(concurrency: float | None, parts: int | None) -> int | None:
    """The requests in flight that each of ``parts`` may have, at least one; None without a limit or parts."""
    return None if concurrency is None or parts is None else max(1, int(concurrency // parts))


def _divide_rate(rate: float | None, parts: int | None) -> float | None:
    return None if rate is None or parts is None else rate / parts


def notes_of(budget: Budget, cluster: Cluster, given: Mapping[str, BudgetLimit], *, table: str) -> list[str]:
    """For EXPLAIN, the parts of each limit that is ``given``, by ``table`` or by another one."""
    parts = {
        CONCURRENCY: (budget.concurrency, budget.task_concurrency, ""),
        RATE: (budget.rate, budget.task_rate, "/s"),
    }
    return [
        f"{key!r} = {limit.value:g}{'' if limit.table == table else f' of table {limit.table}'}"
        f" is {_shares_text(*parts[key], cluster)}"
        for key, limit in given.items()
    ]


def _shares_text(of_executor: float | None, of_task: float | None, unit: str, cluster: Cluster) -> str:
    if of_executor is None:
        each = f"{of_task:g}{unit} for each of {cluster.tasks} tasks at once"
        return f"{each}, as nothing says how many executors there are"
    alone = "its part by the processors there" if of_task is None else f"{of_task:g}{unit}"
    if cluster.executors == 1:
        return f"shared by all tasks of the executor; {alone} for each task where it can write no file"
    return (
        f"{of_executor:g}{unit} for each of {cluster.executors} executors, shared by their tasks;"
        f" {alone} for each task where an executor can write no file"
    )


def _check_there_is_one_for_each(concurrency: float | None, cluster: Cluster, table: str) -> None:
    """Refuse less than one request for each of those that share nothing."""
    name, parts = "executors", cluster.executors
    if parts is None:
        name, parts = "tasks", cluster.tasks
    if concurrency is None or parts is None or concurrency >= parts:
        return
    what = (
        f"'lookup.max-concurrency' = {concurrency:g} is less than one request for each of the {parts} {name}"
    )
    tip = f"Raise it, or use fewer {name}."
    raise OptionError(Problem(f"table {table}: {what} that may run at once.", tip=tip))


def cluster_of(conf: Conf, tasks: int | None = None) -> Cluster:
    """The cluster that ``conf`` describes; ``tasks`` overrides the number of tasks at once."""
    executors, at_once = executors_of(conf), tasks or tasks_at_once(conf)
    return Cluster(executors and min(executors, at_once or executors), at_once)


def executors_of(conf: Conf) -> int | None:
    """How many executors Spark has at the most, by its configuration; None where that does not say."""
    master = conf("spark.master") or ""
    if master == "local" or master.startswith("local["):
        return 1
    small_cluster = _SMALL_CLUSTER.fullmatch(master)
    if small_cluster:
        return int(small_cluster[1])
    executors = _executors_of(conf)
    if executors is not None:
        return executors
    in_all, cores = (
        _positive_integer(conf("spark.cores.max")),
        _positive_integer(conf("spark.executor.cores")),
    )
    return None if in_all is None or cores is None else max(1, in_all // cores)


_SMALL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")


def tasks_at_once(conf: Conf) -> int | None:
    """How many tasks Spark runs at once at the most, by its configuration; None where that does not say."""
    master = conf("spark.master") or ""
    local = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", master)
    if local:
        return int(local[1] or 1)
    small_cluster = _SMALL_CLUSTER.fullmatch(master)
    if small_cluster:
        return int(small_cluster[1]) * _task_slots(conf, int(small_cluster[2]))
    executors = _executors_of(conf)
    # On YARN and Kubernetes an executor has one core by default; a standalone one has all of its machine.
    default = 1 if master.startswith(("yarn", "k8s")) else None
    cores = _positive_integer(conf("spark.executor.cores")) or default
    if executors is not None and cores is not None:
        return executors * _task_slots(conf, cores)
    in_all = _positive_integer(conf("spark.cores.max"))
    return None if in_all is None else _task_slots(conf, in_all)


def _executors_of(conf: Conf) -> int | None:
    if (conf("spark.dynamicAllocation.enabled") or "").lower() == "true":
        return _positive_integer(conf("spark.dynamicAllocation.maxExecutors"))
    return _positive_integer(conf("spark.executor.instances"))


def _task_slots(conf: Conf, cores: int) -> int:
    return max(1, cores // (_positive_integer(conf("spark.task.cpus")) or 1))


def _positive_integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) else None
