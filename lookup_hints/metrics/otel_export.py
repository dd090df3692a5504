"""Metrics and spans of requests by OpenTelemetry, sent from a worker process over OTLP.

It needs OpenTelemetry's SDK: `otel_setup` knows whether that is there. Nothing of a request's content
is told: no keys, no URLs, no messages of errors.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Condition, Thread, local
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import (
    CountsByKey,
    Latencies,
    LookupMetrics,
    MaxGauge,
    about_counts,
    division,
)
from lookup_hints.metrics.otel_setup import Signals
from lookup_hints.spi.request_context import HttpExchange
from lookup_hints.version import __version__

_log = logging.getLogger("lookup_hints.metrics")

_Result = TypeVar("_Result")

# Parts of a message that may hold a secret: a user's name before a host, a path, a query.
_PLACES = re.compile(r"//[^/@\s]*@|(?<=url: )\S+|\?\S+")


class ExportStatus:
    """Whether what this process exports is taken, and what OpenTelemetry says where it is not.

    OpenTelemetry would log each export that fails, for as long as the process lives.
    """

    def __init__(self) -> None:
        self._is_well = True
        self._failures = 0
        self._said = "no answer in time"
        self._told_of_queue = False
        self._this_thread = local()

    def of(self, flush: Callable[[], object]) -> bool:
        """Whether all that ``flush`` sends is taken."""
        self._failures = 0
        try:
            flush()
        except Exception as error:
            self._failures, self._said = 1, type(error).__name__
        self._is_well = not self._failures
        return self._is_well

    def hush(self) -> None:
        """Let the loggers of OpenTelemetry heed ``of_export`` and ``queueing``."""
        for name, logger in [*logging.root.manager.loggerDict.items()]:
            if name.startswith("opentelemetry.") and isinstance(logger, logging.Logger):
                logger.addFilter(self._filter_record)

    def of_export(self, export: Callable[[], _Result], taken: _Result, refused: _Result) -> _Result:
        """``taken`` or ``refused``: what ``export`` gives. What it logs is kept for the one warning."""
        with self._name_step("exporting"):
            try:
                result = export()
            except Exception as error:
                result, self._said = refused, type(error).__name__
        if result is not taken:
            self._failures += 1
        return result

    def queueing(self) -> AbstractContextManager[None]:
        """A block in which a full queue is logged once, and not at all while exports fail."""
        return self._name_step("queueing")

    @contextmanager
    def _name_step(self, what: str) -> Iterator[None]:
        self._this_thread.does = what
        try:
            yield
        finally:
            self._this_thread.does = ""

    def _filter_record(self, record: logging.LogRecord) -> bool:
        does = getattr(self._this_thread, "does", "")
        if does == "exporting":
            self._said = _PLACES.sub("...", record.getMessage())
            return False
        if does == "queueing":
            may_say, self._told_of_queue = self._is_well and not self._told_of_queue, True
            return may_say
        return True

    def warn(self) -> None:
        self._is_well = False
        _log.warning(
            "what is measured does not reach the OpenTelemetry collector: %s. The job goes on at full speed;"
            " sending is tried again after each task, and this is said once",
            self._said,
        )


class WatchedSpanExporter(OTLPSpanExporter):
    def __init__(self, outcome: ExportStatus) -> None:
        super().__init__()
        self._outcome = outcome

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        send = partial(super().export, spans)
        return self._outcome.of_export(send, SpanExportResult.SUCCESS, SpanExportResult.FAILURE)


class WatchedMetricExporter(OTLPMetricExporter):
    def __init__(self, outcome: ExportStatus) -> None:
        super().__init__()
        self._outcome = outcome

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        send = partial(super().export, metrics_data, timeout_millis, **kwargs)
        return self._outcome.of_export(send, MetricExportResult.SUCCESS, MetricExportResult.FAILURE)


TASK_SECONDS = 2.0
"""How long the end of a task waits at most until all is sent."""


# Pushed at the end of a task: Spark ends an idle worker after a minute, and at the end of an application at
# once, without a word. (docs/decisions/0137)
class Flusher:
    """Flushes on a thread of its own whenever a task ends; the task waits, but only while that goes well.

    Where a flush fails, or takes longer than a task waits, no task waits for the next ones, until one goes
    well.
    """

    def __init__(
        self,
        flush: Callable[[], bool],
        failed: Callable[[], None],
        seconds: float = TASK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush, self._failed = flush, failed
        self._seconds, self._clock = seconds, clock
        self._changed = Condition()
        self._wanted = self._done = 0
        self._goes_well = True
        self._is_told = False
        self._thread: Thread | None = None

    def end_of_task(self) -> None:
        """Have all sent that was measured so far, and wait for it while that goes well."""
        with self._changed:
            self._wanted += 1
            number = self._wanted
            if self._thread is None:
                self._thread = Thread(target=self._flush_when_asked, name="lookup_hints.metrics", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if self._goes_well and not self._changed.wait_for(lambda: self._done >= number, self._seconds):
                self._note_failure()

    def _flush_when_asked(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._done)
                number = self._wanted
            started = self._clock()
            is_sent = self._flush()
            is_fast = self._clock() - started < self._seconds
            with self._changed:
                self._done = number
                self._goes_well = is_sent and is_fast
                if not is_sent:
                    self._note_failure()
                self._changed.notify_all()

    def _note_failure(self) -> None:
        self._goes_well = False
        if not self._is_told:
            self._is_told = True
            self._failed()


Attributes = dict[str, str | int]

_SCOPE = "lookup_hints"
_UNITS = {"seconds": "s", "bytes": "By"}

DATABASES = {"postgres": ("postgresql", "SELECT"), "sqlite": ("sqlite", "SELECT"), "redis": ("redis", "")}
"""By connector: OpenTelemetry's name of the system, and of the operation where there is just one."""

# The connector that reports each HTTP request itself: a request of its lookup may have several.
_HTTP = "http"

# The bounds that the semantic conventions give.
_DATABASE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
_HTTP_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Sending:
    """The providers of this process, and what sends for them."""

    def __init__(self, wanted: Signals) -> None:
        self._outcome = ExportStatus()
        own: Attributes = {
            "service.instance.id": str(uuid4()),
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
        }
        resource = Resource(own).merge(Resource.create())
        self._providers: list[MeterProvider | TracerProvider] = []
        self.tracer: Tracer | None = None
        self.instruments: Instruments | None = None
        # None is shut down when the process ends: that would wait for a collector that hangs.
        if wanted.traces:
            tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
            tracers.add_span_processor(BatchSpanProcessor(WatchedSpanExporter(self._outcome)))
            self.tracer = tracers.get_tracer(_SCOPE, __version__)
            self._providers.append(tracers)
        if wanted.metrics:
            reader = PeriodicExportingMetricReader(WatchedMetricExporter(self._outcome))
            meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            self.instruments = Instruments(meters.get_meter(_SCOPE, __version__))
            self._providers.append(meters)
        self._outcome.hush()
        flush = partial(self._outcome.of, lambda: [each.force_flush() for each in self._providers])
        self._flusher = Flusher(flush, self._outcome.warn)

    def observer(self, name: LookupName) -> LookupObserver:
        return LookupObserver(self, name)

    def finish(self, span: Span, error_type: str | None) -> None:
        if error_type is not None:
            span.set_attribute("error.type", error_type)
            span.set_status(Status(StatusCode.ERROR))
        with self._outcome.queueing():
            span.end()

    def flush(self) -> None:
        """Send all that was measured, for a moment at most."""
        self._flusher.end_of_task()


class Instruments:
    def __init__(self, meter: Meter) -> None:
        self._counters: dict[str, Counter] = {}
        self._most: dict[str, Any] = {}
        for field, about in about_counts().items():
            kind = type(getattr(LookupMetrics(), field))
            unit = _UNITS.get(about.unit, f"{{{about.unit}}}")
            if issubclass(kind, MaxGauge):
                self._most[field] = meter.create_gauge(f"lookup.{field}", unit, about.meaning)
            elif not issubclass(kind, Latencies):  # they are measured as they come
                self._counters[field] = meter.create_counter(f"lookup.{field}", unit, about.meaning)
        self.database = meter.create_histogram(
            "db.client.operation.duration",
            "s",
            "Duration of database client operations.",
            explicit_bucket_boundaries_advisory=_DATABASE_BOUNDS,
        )
        self.http = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=_HTTP_BOUNDS,
        )
        self.other = meter.create_histogram(
            "lookup.request.duration",
            "s",
            "Duration of requests to connectors that are neither databases nor HTTP.",
            explicit_bucket_boundaries_advisory=_HTTP_BOUNDS,
        )

    def count(self, counts: LookupMetrics, attributes: Mapping[str, str | int]) -> None:
        for field, gauge in self._most.items():
            gauge.set(int(getattr(counts, field)), attributes)
        for field, counter in self._counters.items():
            value = getattr(counts, field)
            if isinstance(value, CountsByKey):
                for key, count in value.counts.items():
                    counter.add(count, {**attributes, f"lookup.{division(field)}": str(key)})
            elif value:
                counter.add(value, attributes)


class LookupObserver:
    """Measures the requests of one lookup, and traces them where that is wanted."""

    def __init__(self, sending: Sending, name: LookupName) -> None:
        self._sending = sending
        self._instruments = sending.instruments
        is_http = name.connector == _HTTP
        self._tracer = None if is_http else sending.tracer
        self.lookup: Attributes = {
            "lookup.table": name.table,
            "lookup.alias": name.alias,
            "lookup.connector": name.connector,
        }
        system, operation = DATABASES.get(name.connector, ("", ""))
        database = {"db.system.name": system, "db.operation.name": operation}
        self._attributes = {**self.lookup, **{name: value for name, value in database.items() if value}}
        self._span_name = f"{operation or system or 'lookup'} {name.table}"
        self._durations: Histogram | None = None
        if self._instruments is not None and not is_http:
            self._durations = self._instruments.database if system else self._instruments.other

    def begin(self, keys: int) -> Span | None:
        if self._tracer is None:
            return None
        attributes = {**self._attributes, "lookup.keys": keys}
        return self._tracer.start_span(self._span_name, kind=SpanKind.CLIENT, attributes=attributes)

    def end(self, begun: Span | None, seconds: float, error: type[BaseException] | None) -> None:
        error_type = None if error is None else error.__name__
        if self._durations is not None:
            self._durations.record(seconds, with_error(self._attributes, error_type))
        if begun is not None:
            self._sending.finish(begun, error_type)

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        # Method and server only: path and query hold keys, and may hold secrets.
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        server: Attributes = {"server.address": parts.hostname or "", "server.port": port}
        return _ObservedRequest(
            self._sending, {**self.lookup, "http.request.method": method, **server}, method
        )

    def task_ended(self, counts: LookupMetrics) -> None:
        if self._instruments is not None:
            self._instruments.count(counts, self.lookup)
        self._sending.flush()


class _ObservedRequest:
    def __init__(self, sending: Sending, attributes: Attributes, method: str) -> None:
        self._sending, self._attributes, self._method = sending, attributes, method
        self._span: Span | None = None
        self._status: int | None = None
        self._started = 0.0
        self.headers: dict[str, str] = {}

    def answered(self, status: int) -> None:
        self._status = status

    def __enter__(self) -> _ObservedRequest:
        self._started = perf_counter()
        tracer = self._sending.tracer
        if tracer is not None:
            self._span = tracer.start_span(self._method, kind=SpanKind.CLIENT, attributes=self._attributes)
            propagate.inject(self.headers, set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds, attributes, error_type = perf_counter() - self._started, self._attributes, None
        if self._status is not None:
            attributes = {**attributes, "http.response.status_code": self._status}
            error_type = str(self._status) if self._status >= 400 else None
        if kind is not None:
            error_type = kind.__name__
        if self._sending.instruments is not None:
            self._sending.instruments.http.record(seconds, with_error(attributes, error_type))
        if self._span is not None:
            if self._status is not None:
                self._span.set_attribute("http.response.status_code", self._status)
            self._sending.finish(self._span, error_type)


def with_error(attributes: Attributes, error_type: str | None) -> Attributes:
    return attributes if error_type is None else {**attributes, "error.type": error_type}
