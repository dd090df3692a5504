"""The limiter of one lookup in one task: whose limits hold for it, and where they are kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from lookup_hints.limits.limit_store import LimitStore, LimitStores
from lookup_hints.limits.limiter import OriginLimiter, Rules
from lookup_hints.runtime.limiter import UNLIMITED, RequestLimiter
from lookup_hints.runtime.spec import Budget, LookupSpec

_STATEMENTS = "the requests of statements"


def limiter_of(
    spec: LookupSpec,
    stores: LimitStores,
    folder: Path | None,
    *,
    statement: int = 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RequestLimiter:
    """What the requests of ``spec`` have to pass, whose connector is the one that is open here.

    Args:
        spec: the lookup.
        stores: those that this process has opened.
        folder: where the processes of the executor share what they know; None where they cannot.
        statement: the number of the statement that runs.
        clock: seconds, the same for all processes.
        sleep: waits this many seconds.
    """
    budget, origin = spec.settings.budget, spec.connector.origin()
    is_bounded = any((budget.concurrency, budget.rate, budget.task_concurrency, budget.task_rate))
    if not origin and not is_bounded and budget.max_requests is None:
        return UNLIMITED
    # Executors of unknown number share nothing: each task keeps to its own part.
    folder = None if budget.executors is None else folder
    store = stores.of(folder, budget.name or origin or f"table {spec.table.name}")
    rules = _rules(spec, budget, store, adapts=bool(origin), statement=statement)
    spent = None if budget.max_requests is None else stores.of(folder, _STATEMENTS)
    return OriginLimiter(store, rules, spent=spent, process=os.getpid(), clock=clock, sleep=sleep)


def _rules(spec: LookupSpec, budget: Budget, store: LimitStore, *, adapts: bool, statement: int) -> Rules:
    concurrency, rate = budget.concurrency, budget.rate
    if not store.is_shared:
        concurrency, rate = budget.without_file(os.cpu_count() or 1)
    place = spec.connector.place()
    return Rules(
        source=f"table {spec.table.name}: {place or 'the source'}",
        capacity=spec.settings.capacity,
        concurrency=concurrency,
        rate=rate,
        adapts=adapts,
        timeout=spec.settings.timeout,
        waits_on_open=budget.on_open == "wait",
        max_requests=budget.max_requests,
        statement=statement,
    )


def folder_of_executor() -> Path | None:
    """A folder that Spark makes for each executor, and deletes with it; None where this is no worker."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    return Path(folders.split(",")[0]) / "lookup_hints" if folders else None
