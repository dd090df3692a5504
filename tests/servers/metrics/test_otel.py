"""What a worker process sends to an OpenTelemetry collector, and what a bad collector costs it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lookup_hints.errors import ConnectorError
from lookup_hints.lookup_spec import LookupName, LookupSettings, LookupSpec
from lookup_hints.metrics import otel_setup as telemetry
from lookup_hints.metrics.lookup_metrics import LookupMetrics, about_counts
from lookup_hints.metrics.otel_export import TASK_SECONDS, ExportStatus
from lookup_hints.metrics.otel_setup import Telemetry, sending_of
from lookup_hints.metrics.task_recorder import UNOBSERVED
from lookup_hints.process import open_connectors as process
from lookup_hints.process.open_connectors import Process
from lookup_hints.spi import SyncLookup
from lookup_hints.spi.request_and_answer import LookupRequest, LookupTable
from lookup_hints.worker.arrow_worker import look_up
from tests.servers.otlp_collector import Collector, collecting, values

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROOT = Path(__file__).resolve().parents[3]
SECRET = "hunter2"


class People(SyncLookup):
    """Knows every key but 13, and fails at 99."""

    def lookup(self, request: LookupRequest) -> pa.Table:
        keys = [key for key in request.keys.column("id").to_pylist() if key != 13]
        if 99 in keys:
            raise ConnectorError(f"password {SECRET} is wrong", permanent=True)
        return pa.table({"id": keys, "name": [f"n{key}" for key in keys]}, schema=request.schema)


def people(connector: str = "memory") -> LookupSpec:
    table = LookupTable("people", SCHEMA, options={"connector": connector, "password": SECRET})
    return LookupSpec(
        People(table),
        ("id",),
        ("name",),
        LookupSettings(asynchronous=False),
        name=LookupName("people", "p", connector, 3, "lookup_1f2e"),
    )


def run_task(*keys: int, connector: str = "memory") -> None:
    """One task of a lookup, from its first row to its last."""
    list(look_up(people(connector), connector, iter([(pa.array(keys, pa.int64()),)]), None))


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a worker process of its own, as far as the library can tell, and no configuration."""
    monkeypatch.setattr(process, "this_process", Process())
    for variable in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(variable)


Configure = Callable[..., None]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Sets variables of OpenTelemetry, without their prefix."""

    def set_all(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_{name}", value)

    return set_all


@pytest.fixture
def collector(configure: Configure) -> Iterator[Collector]:
    with collecting() as made:
        configure(EXPORTER_OTLP_ENDPOINT=made.url)
        yield made


# --- what is sent ----------------------------------------------------------------------------------


def test_the_counts_of_a_task_are_counters_with_the_lookup_as_attributes(collector: Collector) -> None:
    run_task(1, 2, 13)
    lookup = {"lookup.table": "people", "lookup.alias": "p", "lookup.connector": "memory"}
    for name, count in {"rows_in": 3, "keys": 3, "requests": 1, "hits": 2, "misses": 1, "tasks": 1}.items():
        ((attributes, point),) = collector.points(f"lookup.{name}")
        assert (attributes, point.as_int) == (lookup, count)
    units = collector.units()
    assert (units["lookup.rows_in"], units["lookup.seconds"], units["lookup.bytes_in"]) == (
        "{rows}",
        "s",
        "By",
    )
    assert collector.points("lookup.most_in_flight")[0][1].as_int == 1


def test_all_is_there_when_the_task_is_over_and_tasks_add_up(collector: Collector) -> None:
    for tasks in (1, 2, 3):
        run_task(1, 2)
        assert collector.total("lookup.tasks") == tasks
        assert len(collector.spans) == tasks


def test_each_count_with_a_value_is_sent(collector: Collector) -> None:
    run_task(1)
    with pytest.raises(ConnectorError):
        run_task(99)
    sent = set(collector.units())
    counted = {"errors", "errors_by_class", "waited", "rows_out", "bytes_out"}
    assert {f"lookup.{each}" for each in counted} <= sent
    assert sent <= {f"lookup.{each}" for each in about_counts()} | {"lookup.request.duration"}
    assert collector.total("lookup.errors_by_class", **{"lookup.class": "ConnectorError"}) == 1


@pytest.mark.parametrize(
    ("connector", "metric", "span", "own"),
    [
        ("sqlite", "db.client.operation.duration", "SELECT people", {"db.system.name": "sqlite"}),
        ("postgres", "db.client.operation.duration", "SELECT people", {"db.system.name": "postgresql"}),
        ("redis", "db.client.operation.duration", "redis people", {"db.system.name": "redis"}),
        ("my_own", "lookup.request.duration", "lookup people", {}),
    ],
)
def test_each_request_is_measured_and_traced(
    collector: Collector, connector: str, metric: str, span: str, own: dict[str, str]
) -> None:
    run_task(1, 2, 3, connector=connector)
    ((attributes, point),) = collector.points(metric)
    assert own.items() <= attributes.items()
    assert (attributes["lookup.table"], point.count) == ("people", 1)
    assert 0 < point.sum < 10
    assert collector.units()[metric] == "s"
    (sent,) = collector.spans
    assert (sent.name, sent.kind) == (span, Span.SPAN_KIND_CLIENT)
    assert {**attributes, "lookup.keys": 3}.items() <= values(sent.attributes).items()
    assert 0 < sent.end_time_unix_nano - sent.start_time_unix_nano < 10e9


def test_a_failure_has_the_kind_of_its_error_and_nothing_of_its_text(collector: Collector) -> None:
    with pytest.raises(ConnectorError):
        run_task(99, connector="sqlite")
    ((attributes, point),) = collector.points("db.client.operation.duration")
    assert (attributes["error.type"], point.count) == ("ConnectorError", 1)
    (span,) = collector.spans
    assert values(span.attributes)["error.type"] == "ConnectorError"
    assert (span.status.code, span.status.message, len(span.events)) == (Status.STATUS_CODE_ERROR, "", 0)
    assert not [body for body in collector.bodies if SECRET.encode() in body]


def test_a_process_says_what_it_is(collector: Collector, configure: Configure) -> None:
    configure(SERVICE_NAME="nightly", RESOURCE_ATTRIBUTES="deployment.environment.name=test,host.name=mine")
    run_task(1)
    said = collector.resources
    assert len(said) == 2
    for each in said:
        assert each["service.name"] == "nightly"
        assert each["deployment.environment.name"] == "test"
        assert (each["host.name"], each["process.pid"]) == ("mine", os.getpid())
    assert len({each["service.instance.id"] for each in said}) == 1


# --- what is configured ----------------------------------------------------------------------------


def test_the_sampler_decides_which_requests_are_traced(collector: Collector, configure: Configure) -> None:
    configure(TRACES_SAMPLER="always_off")
    run_task(1)
    assert collector.spans == []
    assert collector.total("lookup.tasks") == 1


@pytest.mark.parametrize(
    ("variables", "has_metrics", "has_spans"),
    [
        ({"TRACES_EXPORTER": "none"}, True, False),
        ({"METRICS_EXPORTER": "none"}, False, True),
        ({"SDK_DISABLED": "true"}, False, False),
    ],
)
def test_signals_can_be_left_out(
    collector: Collector,
    configure: Configure,
    variables: dict[str, str],
    has_metrics: bool,
    has_spans: bool,
) -> None:
    configure(**variables)
    run_task(1)
    assert (bool(collector.units()), bool(collector.spans)) == (has_metrics, has_spans)


def test_headers_and_compression_are_the_sdks(collector: Collector, configure: Configure) -> None:
    configure(EXPORTER_OTLP_COMPRESSION="gzip", EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{SECRET}")
    run_task(1)
    assert collector.total("lookup.tasks") == 1
    assert not [body for body in collector.bodies if SECRET.encode() in body]


def test_without_configuration_nothing_of_it_is_imported() -> None:
    code = (
        "import sys; from lookup_hints.metrics.otel_setup import Telemetry;"
        "from lookup_hints.lookup_spec import LookupName; Telemetry().observer(LookupName());"
        "print(*sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    assert "lookup_hints.metrics.otel_setup" in run.stdout.split()
    assert not [name for name in run.stdout.split() if name.startswith("opentelemetry")]


def test_without_the_sdk_nothing_is_sent_and_nothing_said(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configure(EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "lookup_hints.metrics.otel_export", None)
    assert Telemetry().observer(LookupName()) is UNOBSERVED
    assert caplog.records == []


def test_a_protocol_that_we_do_not_speak_is_said(caplog: pytest.LogCaptureFixture) -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert sending_of(named) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("OTEL_EXPORTER_OTLP_PROTOCOL=grpc: ")


def test_what_cannot_be_set_up_does_not_fail_a_task(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(_: Any) -> None:
        raise ValueError(f"bad header {SECRET}")

    monkeypatch.setattr("lookup_hints.metrics.otel_export.Sending", refuses)
    run_task(1)
    assert [record.getMessage() for record in caplog.records] == [
        "OpenTelemetry cannot be set up, and nothing is sent: ValueError"
    ]


# --- bad collectors --------------------------------------------------------------------------------


def run_tasks(count: int) -> None:
    for _ in range(count):
        run_task(1, 2)


def test_a_collector_that_hangs_costs_one_wait(
    collector: Collector, caplog: pytest.LogCaptureFixture, waits: list[bool]
) -> None:
    collector.lets_go.clear()
    started = time.monotonic()
    run_tasks(1)
    assert time.monotonic() - started >= TASK_SECONDS
    run_tasks(50)
    assert waits == [False]
    assert len(caplog.records) == 1
    assert "does not reach the OpenTelemetry collector" in caplog.records[0].getMessage()


def test_a_collector_that_is_not_there_costs_one_wait(
    configure: Configure, caplog: pytest.LogCaptureFixture, waits: list[bool]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        configure(EXPORTER_OTLP_ENDPOINT=f"http://user:{SECRET}@127.0.0.1:{nobody.getsockname()[1]}")
        run_tasks(51)
    assert len(waits) == 1
    time.sleep(0.5)
    assert len(caplog.records) == 1, [record.getMessage() for record in caplog.records]
    assert SECRET not in caplog.text


def test_a_collector_that_refuses_is_said_once_and_why(
    collector: Collector, configure: Configure, caplog: pytest.LogCaptureFixture, waits: list[bool]
) -> None:
    collector.status = 401
    run_tasks(51)
    assert waits == [True], "the first one knows that it is refused, and the others do not wait"
    (record,) = caplog.records
    assert "401" in record.getMessage()


def test_the_reason_holds_no_secret_of_an_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    outcome = ExportStatus()
    logger = logging.getLogger("opentelemetry.test")

    def export() -> str:
        logger.error("POST http://user:%s@c/v1?key=%s failed with url: /v1/%s", SECRET, SECRET, SECRET)
        return "refused"

    outcome.hush()
    assert outcome.of(lambda: outcome.of_export(export, "taken", "refused")) is False
    outcome.warn()
    (record,) = caplog.records
    assert "POST http:...c/v1... failed with url: ..." in record.getMessage()
    assert SECRET not in caplog.text


def test_what_was_not_taken_is_sent_when_the_collector_is_back(collector: Collector) -> None:
    collector.status = 400
    run_task(1)
    collector.status = 200
    run_task(1)
    until = time.monotonic() + 10
    while not collector.units() and time.monotonic() < until:
        time.sleep(0.05)
    assert collector.total("lookup.tasks") == 2  # sums since the process began


def test_a_task_that_ended_is_told_once(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[LookupMetrics] = []
    observer = SimpleNamespace(
        begin=lambda keys: keys, end=lambda *_: None, http=UNOBSERVED.http, task_ended=ended.append
    )
    monkeypatch.setattr(telemetry.Telemetry, "observer", lambda self, name: observer)
    run_task(1, 2)
    assert [counts.keys for counts in ended] == [2]
