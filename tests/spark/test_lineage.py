"""Events of OpenLineage for statements with lookup tables, as a file of OpenLineage's own client has them."""

from __future__ import annotations

import json
import logging
import time
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attr
import pytest
from openlineage.client import event_v2
from openlineage.client.facet_v2 import job_type_job, parent_run, schema_dataset

from lookup_hints import LookupSession
from lookup_hints.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT o.id, c.name FROM VALUES (1), (2) AS o(id) LEFT JOIN customers c ON o.id = c.id"
CREATE = (
    "CREATE TEMPORARY TABLE customers (id INT, name STRING, country STRING, PRIMARY KEY (id) NOT ENFORCED)"
    ' WITH (\'connector\' = \'memory\', \'rows\' = \'[{"id": 1, "name": "Ada", "country": "GB"}]\')'
)


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    """A session of its own, whose events go to a file."""
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path / "events"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    return Events(LookupSession(spark.newSession()), tmp_path / "events")


class Events:
    """A session, and the events of its statements."""

    def __init__(self, session: LookupSession, file: Path) -> None:
        self.session, self._file = session, file

    def of(self, count: int) -> list[dict[str, Any]]:
        """The first ``count`` events, waited for: they are sent in the background."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            lines = self._file.read_text().splitlines() if self._file.exists() else []
            if len(lines) >= count:
                break
            time.sleep(0.05)
        found = [json.loads(line) for line in lines]
        for event in found:
            _check(event, event_v2.RunEvent)
        return found


FACETS = {
    "jobType": job_type_job.JobTypeJobFacet,
    "parent": parent_run.ParentRunFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
}


def _check(value: Any, kind: type) -> None:
    """Check an object against a class that OpenLineage generates from the schema of its specification."""
    types = typing.get_type_hints(kind)
    members = {each.name: each for each in attr.fields(kind)}
    assert value.keys() <= members.keys(), value
    for name, member in members.items():
        assert name in value or member.default is not attr.NOTHING, f"{kind.__name__} without {name}"
    for name, inner in value.items():
        if name == "facets":
            for facet, content in inner.items():
                if facet in FACETS:
                    _check(content, FACETS[facet])
        else:
            for each in inner if isinstance(inner, list) else [inner]:
                part = next((arg for arg in _parts(types[name]) if attr.has(arg)), None)
                if part is not None and each is not None:
                    _check(each, part)


def _parts(hint: Any) -> Iterator[Any]:
    inside = typing.get_args(hint)
    yield from (part for each in inside for part in _parts(each)) if inside else iter([hint])


def test_a_query_gives_an_event_at_its_start_and_at_its_end(events: Events) -> None:
    """With the lookup table, its place, and the columns that the query uses."""
    events.session.sql(CREATE)
    events.session.sql(QUERY)
    started, complete = events.of(2)
    assert [started["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert started["run"]["runId"] == complete["run"]["runId"]
    assert started["job"]["name"] == complete["job"]["name"]
    assert ".customers." in started["job"]["name"]
    (table,) = complete["inputs"]
    assert (table["namespace"], table["name"]) == ("memory", "customers")
    columns = [(each["name"], each["type"]) for each in table["facets"]["schema"]["fields"]]
    assert columns == [("id", "int"), ("name", "string")]
    assert complete["producer"] == f"urn:lookup-hints:{__version__}"
    assert complete["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_a_table_that_is_read_whole_is_an_input(events: Events) -> None:
    events.session.sql(CREATE)
    events.session.sql("SELECT count(country) FROM customers")
    (table,) = events.of(2)[1]["inputs"]
    assert [each["name"] for each in table["facets"]["schema"]["fields"]] == ["country"]


def test_a_statement_that_spark_refuses_has_failed(events: Events, tmp_path: Path) -> None:
    events.session.sql(CREATE)
    target = tmp_path / "there"
    target.write_text("no folder")
    with pytest.raises(Exception, match="there"):
        events.session.sql(f"INSERT OVERWRITE DIRECTORY '{target}/x' USING parquet {QUERY}")
    assert [each["eventType"] for each in events.of(2)] == ["START", "FAIL"]


def test_the_same_text_is_the_same_job_and_another_run(events: Events) -> None:
    events.session.sql(CREATE)
    for text in (QUERY, QUERY, f"{QUERY} WHERE o.id > 1"):
        events.session.sql(text)
    found = [each for each in events.of(6) if each["eventType"] == "START"]
    assert len({each["run"]["runId"] for each in found}) == 3
    jobs = [each["job"]["name"] for each in found]
    assert jobs[0] == jobs[1] != jobs[2]


def test_a_task_of_airflow_is_the_parent(events: Events) -> None:
    """Its operators give these settings to a job of Spark."""
    conf = events.session.spark.conf
    conf.set("spark.openlineage.parentRunId", "0190c7c1-7a3b-7e3b-8c3b-0242ac120002")
    conf.set("spark.openlineage.parentJobNamespace", "airflow")
    conf.set("spark.openlineage.parentJobName", "nightly.enrich")
    events.session.sql(CREATE)
    events.session.sql(QUERY)
    parent = events.of(2)[0]["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == "0190c7c1-7a3b-7e3b-8c3b-0242ac120002"
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("airflow", "nightly.enrich")


def test_statements_without_lookup_tables_have_no_event(events: Events) -> None:
    events.session.sql(CREATE)
    events.session.sql("SELECT 1")
    events.session.sql(QUERY)
    assert len(events.of(2)) == 2


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "lookup_hints.lineage"]


def test_a_server_that_refuses_is_one_warning_and_no_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning shows no secret of the address."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://me:hunter2@127.0.0.1:9")
    session = LookupSession(spark.newSession())
    session.sql(CREATE)
    with caplog.at_level(logging.WARNING, "lookup_hints.lineage"):
        rows = session.sql(QUERY).collect()
        session.sql(QUERY)
        until = time.monotonic() + 60
        while not _warnings(caplog) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)  # for a second one
        texts = _warnings(caplog)
    assert [row.name for row in rows] == ["Ada", None]
    assert len(texts) == 1
    assert texts[0].startswith("Lineage: no event can be sent: ")
    assert "hunter2" not in texts[0]
