"""OTLP's exporters, watched: whether sending goes well, and one warning where it does not."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Condition, Thread, local
from typing import Any, TypeVar

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

_log = logging.getLogger("lookup_hints.metrics")

_Result = TypeVar("_Result")

_PLACES = re.compile(r"//[^/@\s]*@|(?<=url: )\S+|\?\S+")
"""What of a message may hold a secret: a user's name before a host, a path, a query."""


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
                logger.addFilter(self._may_say)

    def of_export(self, export: Callable[[], _Result], taken: _Result, refused: _Result) -> _Result:
        """``taken`` or ``refused``: what ``export`` gives. What it logs is kept for the one warning."""
        with self._doing("exporting"):
            try:
                result = export()
            except Exception as error:
                result, self._said = refused, type(error).__name__
        if result is not taken:
            self._failures += 1
        return result

    def queueing(self) -> AbstractContextManager[None]:
        """A block in which a full queue is logged once, and not at all while exports fail."""
        return self._doing("queueing")

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        self._this_thread.does = what
        try:
            yield
        finally:
            self._this_thread.does = ""

    def _may_say(self, record: logging.LogRecord) -> bool:
        does = getattr(self._this_thread, "does", "")
        if does == "exporting":
            self._said = _PLACES.sub("...", record.getMessage())
            return False
        if does == "queueing":
            may_say, self._told_of_queue = self._is_well and not self._told_of_queue, True
            return may_say
        return True

    def warn(self) -> None:
        """Say that nothing is taken."""
        self._is_well = False
        _log.warning(
            "what is measured does not reach the OpenTelemetry collector: %s. The job goes on at full speed;"
            " sending is tried again after each task, and this is said once",
            self._said,
        )


class WatchedSpanExporter(OTLPSpanExporter):
    """Tells ``outcome`` what becomes of the spans."""

    def __init__(self, outcome: ExportStatus) -> None:
        super().__init__()
        self._outcome = outcome

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        send = partial(super().export, spans)
        return self._outcome.of_export(send, SpanExportResult.SUCCESS, SpanExportResult.FAILURE)


class WatchedMetricExporter(OTLPMetricExporter):
    """Tells ``outcome`` what becomes of the metrics."""

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


class Flusher:
    """Flushes on a thread of its own whenever a task ends; the task waits, but only while that goes well.

    Spark ends idle workers without a word, so what a task measured should be sent before it ends. Where a
    flush fails, or takes longer than a task waits, no task waits for the next ones, until one goes well.
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
                self._thread = Thread(target=self._run, name="lookup_hints.metrics", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if self._goes_well and not self._changed.wait_for(lambda: self._done >= number, self._seconds):
                self._goes_badly()

    def _run(self) -> None:
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
                    self._goes_badly()
                self._changed.notify_all()

    def _goes_badly(self) -> None:
        self._goes_well = False
        if not self._is_told:
            self._is_told = True
            self._failed()
