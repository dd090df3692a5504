"""Check that lookup tables can be reached from the driver and each executor, and report line by line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lookup_hints.driver.shipping import shipped, strip_annotations
from lookup_hints.driver.statement_scope import StatementScope
from lookup_hints.errors import ConnectorError, cause_of, counted
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.readable_summary import seconds_text
from lookup_hints.plan.decide.budgets import cluster_of
from lookup_hints.plan.decide.settings import session_option
from lookup_hints.process.open_connectors import install_tip
from lookup_hints.pyspark_internals import cloudpickled
from lookup_hints.spi import Connector, HealthCheck, HealthRequest, ReportsHealth
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.tables.catalog import build_connector
from lookup_hints.worker.doctor_checks import HealthTask, looked_from_executor, package_versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = "driver"
WORKERS = "workers"
"""The name under which findings about Python and packages are listed."""

_TASKS = 100_000  # rows, which Spark deals to as many tasks as it runs at once


@dataclass(frozen=True)
class DoctorFinding:
    """A check of one table at one place.

    Args:
        table: the table.
        place: ``driver``, or the host of an executor and a number.
        check: the result.
    """

    table: str
    place: str
    check: HealthCheck


@dataclass(frozen=True, repr=False)
class DoctorReport:
    """The findings for all tables; its text has a line for each.

    Args:
        findings: table by table, place by place.
        titles: the connector and address of each table.
    """

    findings: tuple[DoctorFinding, ...]
    titles: Mapping[str, str]

    @property
    def is_well(self) -> bool:
        """Whether nothing is broken; there may be warnings."""
        return all(each.check.verdict != "fail" for each in self.findings)

    def __str__(self) -> str:
        tables = dict.fromkeys(each.table for each in self.findings)
        executors = len({each.place for each in self.findings} - {DRIVER})
        lines = []
        for table in tables:
            own = [each for each in self.findings if each.table == table]
            title = self.titles.get(table, "")
            lines += [f"{table}: {title}" if title else table, *(_lines_of_findings(own, executors)), ""]
        broken = sorted({each.table for each in self.findings if each.check.verdict == "fail"})
        warnings = len(
            {(each.table, each.check.what) for each in self.findings if each.check.verdict == "warn"}
        )
        warned = f"; {counted(warnings, 'warning')}" if warnings else ""
        verdict = f"broken: {', '.join(broken)}" if broken else "all is well"
        return "\n".join([*lines, verdict + warned])

    __repr__ = __str__  # what a notebook shows


@dataclass(frozen=True)
class ExaminedTable:
    """A table to examine, and how it will be looked up.

    Args:
        table: the table; without columns if they could not be discovered.
        keys: lists of columns that lookups ask by; by default its primary key.
        capacity: requests in flight of one task.
    """

    table: LookupTable
    keys: tuple[tuple[str, ...], ...] = ()
    capacity: int = 100


# Checked from one worker of each executor, as lookups run there and not on the driver. (docs/decisions/0182)
def examine(
    scope: StatementScope,
    tables: Sequence[ExaminedTable],
    *,
    given: Mapping[str, str] | None = None,
    timeout: float = 10.0,
    joins: int = 1,
) -> DoctorReport:
    """Examine ``tables`` from the driver and from each executor, without writing anything.

    Args:
        scope: of the session.
        tables: the tables to examine.
        given: values of existing keys, by column.
        timeout: seconds for one step.
        joins: lookup joins in one stage of Spark, at most.
    """
    if not tables:
        return DoctorReport((), {})
    conf = scope.settings()
    cluster = cluster_of(conf, session_option("cluster-tasks", conf))
    processes = cluster.tasks and cluster.tasks * joins
    connectors = [build_connector(each.table) for each in tables]
    origins = Counter(connector.origin() for connector in connectors)
    tasks, titles, packages = [], {}, ["pyarrow"]
    for each, connector in zip(tables, connectors, strict=True):
        name, origin = each.table.name, connector.origin()
        request = HealthRequest(
            each.keys or default_keys(connector),
            each.capacity,
            processes,
            origins[origin] if origin else 1,
            timeout,
        )
        tip = install_tip(connector)
        tasks.append(HealthTask(name, cloudpickled(connector), request, dict(given or {}), tip))
        titles[name] = ", ".join(filter(None, (each.table.connector, origin)))
        packages += connector.DRIVERS if isinstance(connector, ReportsHealth) else ()
    packages = list(dict.fromkeys(packages))
    here = [DoctorFinding(task.name, DRIVER, check) for task in tasks for check in task.checks()]
    # Findings of the driver that hold everywhere are not repeated for each executor.
    said = {(each.table, each.check.name) for each in here if each.check.name == "connections"}
    seen = _examine_from_executors(scope.spark, tasks, packages)
    there = [each for each in seen if (each.table, each.check.name) not in said]
    versions = HealthCheck("versions", "ok", _versions_text(package_versions(packages)))
    is_dynamic = (conf("spark.dynamicAllocation.enabled") or "").lower() == "true"
    expected = None if is_dynamic else cluster.executors
    missing = _executors_check(len({each.place for each in there} - {DRIVER}), expected)
    ours = [DoctorFinding(WORKERS, DRIVER, each) for each in (versions, *missing)]
    return DoctorReport((*ours, *here, *there), titles)


# Without keys: a source that is asked in earnest may count requests, or charge for them.
def check_before_stream(scope: StatementScope, lookups: Sequence[LookupSpec]) -> None:
    """Look from each executor whether the tables of a stream can be reached. Looks up nothing.

    Raises:
        ConnectorError: one cannot; says why, and what to try.
    """
    connectors = {each.table.name: each for each in lookups}
    tasks = [
        HealthTask(
            name,
            cloudpickled(each.connector),
            HealthRequest((), each.settings.capacity, timeout=each.settings.timeout),
            install_tip=install_tip(each.connector),
        )
        for name, each in connectors.items()
        if isinstance(each.connector, ReportsHealth) or each.connector.place()
    ]
    for found in _examine_from_executors(scope.spark, tasks, ["pyarrow"]) if tasks else ():
        if found.check.verdict == "fail":
            what = f"table {found.table}: {found.check.what.rstrip('.')}. {found.check.cure}"
            raise ConnectorError(f"{what} The stream has not been started.", permanent=True)


def default_keys(connector: Connector) -> tuple[tuple[str, ...], ...]:
    """Key columns to check without a query: required ones and the primary key, else the first column."""
    table = connector.table
    wanted = {*connector.required_keys(), *table.primary_key} & connector.key_columns()
    able = [name for name in table.schema.names if name in (wanted or connector.key_columns())]
    return (tuple(able if wanted else able[:1]),) if able else ()


def _versions_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _executors_check(seen: int, expected: int | None) -> list[HealthCheck]:
    if not expected or seen >= expected:
        return []
    what = f"{seen} of {expected} executors were there"
    cure = (
        "Start it again when all have come: spark.scheduler.minRegisteredResourcesRatio = 1 waits for them."
    )
    return [HealthCheck("executors", "warn", what, cure)]


# --- executors ------------------------------------------------------------------------------------


def _examine_from_executors(
    spark: SparkSession, tasks: Sequence[HealthTask], packages: Sequence[str]
) -> list[DoctorFinding]:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # to the end: Spark ends a worker that leaves input unread
            pass
        for told in looked_from_executor(tasks, packages):
            yield pa.RecordBatch.from_arrays([pa.array([told])], names=["told"])

    stub = shipped(look)
    strip_annotations(stub)
    try:
        rows = spark.range(0, _TASKS).mapInArrow(stub, "told STRING").collect()
    except Exception as error:
        cure = "See docs/workers.md for what each worker needs."
        return [DoctorFinding(WORKERS, DRIVER, HealthCheck("start", "fail", cause_of(error), cure))]
    told = {(each["host"], each["executor"]): each for each in map(json.loads, (row[0] for row in rows))}
    here, found = package_versions(packages), []
    for number, ((host, _), each) in enumerate(sorted(told.items()), 1):
        place = f"{host} #{number}"
        found.append(DoctorFinding(WORKERS, place, versions_check(here, each["versions"])))
        for task, checks in zip(tasks, each["checks"], strict=True):
            found += [
                DoctorFinding(task.name, place, HealthCheck(**{**check, "seconds": tuple(check["seconds"])}))
                for check in checks
            ]
    return found


def versions_check(driver: Mapping[str, str], worker: Mapping[str, str]) -> HealthCheck:
    """Whether a worker has the versions that the driver has."""
    other = {name: number for name, number in worker.items() if driver.get(name) != number}
    if not other:
        return HealthCheck("versions", "ok", _versions_text(worker))
    mine = _versions_text({name: driver.get(name, "missing") for name in other})
    what = f"{_versions_text(other)}; the driver has {mine}"
    return HealthCheck("versions", "warn", what, "Install the same versions on all machines.")


# --- lines ----------------------------------------------------------------------------------------


def _lines_of_findings(findings: Sequence[DoctorFinding], executors: int) -> Iterator[str]:
    """A line for each thing that was found of a table, which many places may have found."""
    merged: dict[tuple[str, ...], list[DoctorFinding]] = {}
    for each in findings:
        check = each.check
        # Passed checks are grouped although addresses and numbers differ by place; times stay separate.
        told = "" if check.verdict == "ok" and check.name not in _EACH else check.what
        side = ("driver" if each.place == DRIVER else "executors") if len(check.seconds) > 1 else ""
        merged.setdefault((check.name, check.verdict, told, side), []).append(each)
    order = list(dict.fromkeys(name for name, *_ in merged))
    for key in sorted(merged, key=lambda key: order.index(key[0])):
        alike = merged[key]
        first = alike[0].check
        seconds = sorted(second for each in alike for second in each.check.seconds)
        times = f"; {_times_text(seconds)}" if seconds else ""
        cure = f" {first.cure}" if first.cure else ""
        where = _places_text(list(dict.fromkeys(each.place for each in alike)), executors)
        yield f"  {first.verdict:<7} {first.name:<11} {where}: {first.what.rstrip('.')}{times}.{cure}"


# Checks that may occur several times for a table.
_EACH = ("index", "lookup")


def _times_text(seconds: Sequence[float]) -> str:
    if len(seconds) < 10:
        return (
            f"{seconds_text(seconds[0])} to {seconds_text(seconds[-1])}"
            if len(seconds) > 1
            else seconds_text(seconds[0])
        )
    p50, p99 = (seconds[-(-len(seconds) * part // 100) - 1] for part in (50, 99))
    return f"p50 {seconds_text(p50)}, p99 {seconds_text(p99)}"


def _places_text(places: Sequence[str], executors: int) -> str:
    """
    >>> _where(["driver", "a #1", "b #2"], 2), _where(["b #2"], 3), _where(["driver"], 1)
    ('driver, 2 executors', '1 of 3 executors (b #2)', 'driver')
    """
    others = [place for place in places if place != DRIVER]
    parts = [DRIVER] if DRIVER in places else []
    if len(others) == executors:
        parts += [counted(executors, "executor")] if others else []
    elif others:
        named = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        parts.append(f"{len(others)} of {executors} executors ({named})")
    return ", ".join(parts)
