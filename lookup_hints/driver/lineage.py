"""Lineage: OpenLineage events of the statements that use lookup tables, with these as inputs."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING

from lookup_hints.plan.joins import LookupPlan
from lookup_hints.spi.arrow_types import type_name
from lookup_hints.spi.option_values import Conf
from lookup_hints.version import __version__

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, RunEvent

_log = logging.getLogger("lookup_hints.lineage")

_PRODUCER = f"urn:lookup-hints:{__version__}"
_MOST_WAITING = 1000
# After a failure, so that a server that hangs is not waited for at each statement, nor long at the end.
_PAUSE_SECONDS = 60.0

# Airflow's operators for Spark give these to a job.
_PARENT = tuple(f"spark.openlineage.parent{part}" for part in ("RunId", "JobNamespace", "JobName"))


# Asked for by OpenLineage's own variables; there is no option of ours. (docs/decisions/0255)
def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether ``environment`` says where events of OpenLineage go.

    >>> is_configured({"OPENLINEAGE_URL": "http://marquez:5000"}), is_configured({})
    (True, False)
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    targets = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
    return any(text.strip() for name, text in environment.items() if name.startswith(targets))


class Lineage:
    """Sends the events of a session's statements in the background; failing is a warning, never an error."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting, self._quiet_until = 0, 0.0
        if is_configured(os.environ):
            with self._warning_of_failure():
                from openlineage.client import OpenLineageClient

                self._client = OpenLineageClient()
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="lookup-lineage")

    @contextmanager
    def reporting(self, plan: LookupPlan, conf: Conf, *, is_stream: bool) -> Iterator[None]:
        """Report the statement of ``plan`` as started, and at the end of the block as complete or failed.

        A query is complete when Spark has taken it, a statement that writes when it has written, and a stream
        when it has started.
        """
        if self._thread is None:
            yield
            return
        event_in: Callable[[str], RunEvent] | None = None
        with self._warning_of_failure():
            event_in = _events_of(plan, conf, is_stream=is_stream)
        self._send_later(event_in, "START")
        try:
            yield
        except BaseException:
            self._send_later(event_in, "FAIL")
            raise
        self._send_later(event_in, "COMPLETE")

    def _send_later(self, event_in: Callable[[str], RunEvent] | None, state: str) -> None:
        if self._thread is not None and event_in is not None and self._waiting < _MOST_WAITING:
            self._waiting += 1
            # Near the end of the process a pool takes nothing more.
            with suppress(RuntimeError):
                self._thread.submit(self._send_event, event_in(state))

    def _send_event(self, event: RunEvent) -> None:
        self._waiting -= 1
        if time.monotonic() >= self._quiet_until:
            with self._warning_of_failure():
                self._client.emit(event)

    @contextmanager
    def _warning_of_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # its text may hold what a variable does, a secret for one
            self._quiet_until = time.monotonic() + _PAUSE_SECONDS
            _log.warning("Lineage: no event can be sent: %s", type(error).__name__)


def _events_of(plan: LookupPlan, conf: Conf, *, is_stream: bool) -> Callable[[str], RunEvent]:
    """The event of each state of one run of the statement.

    Its job is named by the application, its lookup tables, and the first digits of a hash of its text.
    """
    from openlineage.client import event_v2, facet_v2
    from openlineage.client.uuid import generate_new_uuid

    inputs = _input_datasets(plan)
    connectors = [*(join.use.connector for join in plan.joins), *(scan.use.connector for scan in plan.scans)]
    tables = "_".join(sorted({each.table.name for each in connectors}))
    digest = sha256(plan.text.encode()).hexdigest()[:8]
    name = ".".join((conf("spark.app.name") or "spark", tables, digest))
    kind = facet_v2.job_type_job.JobTypeJobFacet(
        "STREAMING" if is_stream else "BATCH", "LOOKUP_HINTS", "QUERY"
    )
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or conf("spark.openlineage.namespace") or "default"
    job = event_v2.Job(namespace, name, {"jobType": kind})
    run = event_v2.Run(str(generate_new_uuid()))
    run_id, namespace_of_parent, name_of_parent = (conf(key) for key in _PARENT)
    if run_id and namespace_of_parent and name_of_parent:
        facets = facet_v2.parent_run
        parent = facets.Job(namespace_of_parent, name_of_parent)
        run.facets = {"parent": facets.ParentRunFacet(facets.Run(run_id), parent, producer=_PRODUCER)}

    def event_in(state: str) -> RunEvent:
        return event_v2.RunEvent(
            eventTime=datetime.now(timezone.utc).isoformat(),
            producer=_PRODUCER,
            run=run,
            job=job,
            eventType=event_v2.RunState[state],
            inputs=inputs,
            outputs=[],
        )

    return event_in


def _input_datasets(plan: LookupPlan) -> list[InputDataset]:
    """The lookup tables of a plan, each with the columns that the plan uses."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import schema_dataset

    used = [(each.use.connector, (*each.function.key_columns, *each.function.columns)) for each in plan.joins]
    used += [(scan.use.connector, scan.columns) for scan in plan.scans]
    found = list[InputDataset]()
    for name, connector in {each.table.name: each for each, _ in used}.items():
        columns = {column for each, columns in used if each.table.name == name for column in columns}
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=each.name, type=type_name(each.type))
            for each in connector.table.schema
            if each.name in columns
        ]
        facet = schema_dataset.SchemaDatasetFacet(fields=fields, producer=_PRODUCER)
        found.append(InputDataset(*connector.dataset(), facets={"schema": facet}))
    return found
