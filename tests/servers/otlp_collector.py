"""A small collector that takes OTLP over HTTP on loopback, and decodes it."""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Values = dict[str, Any]


class Collector:
    """What came, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.lets_go = threading.Event()
        self.lets_go.set()
        self.reset()

    def reset(self) -> None:
        """Forget what came."""
        self.bodies: list[bytes] = []
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            self._traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            assert path == "/v1/metrics"
            self._metrics.append(ExportMetricsServiceRequest.FromString(body))

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [
            span
            for request in self._traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resources(self) -> list[Values]:
        """What is said of the processes that sent something, each time."""
        sent = [each for request in self._traces for each in request.resource_spans]
        measured = [each for request in self._metrics for each in request.resource_metrics]
        return [values(each.resource.attributes) for each in [*sent, *measured]]

    def points(self, name: str) -> list[tuple[Values, Any]]:
        """The points of a metric, each with its attributes: of sums since a process began, the last ones."""
        last: dict[tuple[Any, ...], tuple[Values, Any]] = {}
        for number, request in enumerate(self._metrics):
            for resource in request.resource_metrics:
                instance = values(resource.resource.attributes)["service.instance.id"]
                for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                    for point in _points(metric) if metric.name == name else ():
                        attributes = values(point.attributes)
                        series = (instance, number if _is_delta(metric) else 0, *sorted(attributes.items()))
                        last[series] = attributes, point
        return list(last.values())

    def units(self) -> dict[str, str]:
        """The unit of each metric."""
        return {
            metric.name: metric.unit
            for request in self._metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def total(self, name: str, **wanted: Any) -> float:
        """The sum of a counter over all series that have at least those attributes."""
        return math.fsum(
            point.as_double + point.as_int
            for attributes, point in self.points(name)
            if wanted.items() <= attributes.items()
        )


def values(attributes: Any) -> Values:
    """Attributes as a dictionary."""
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


def _is_delta(metric: Metric) -> bool:
    data = getattr(metric, metric.WhichOneof("data") or "sum")
    return getattr(data, "aggregation_temporality", None) == AGGREGATION_TEMPORALITY_DELTA


def _points(metric: Metric) -> Any:
    return getattr(metric, metric.WhichOneof("data") or "sum").data_points


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens for the time of a block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # (the server's name)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.lets_go.wait(60)
            if collector.status == 200:
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                collector.take(self.path, gzip.decompress(body) if is_packed else body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        collector.lets_go.set()
        server.shutdown()
        server.server_close()
        thread.join()
