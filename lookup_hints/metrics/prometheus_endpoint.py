"""An HTTP endpoint on the driver that Prometheus scrapes."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING

from lookup_hints.errors import OptionError, Problem

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from lookup_hints.metrics.prometheus_families import Read

LOOPBACK = "127.0.0.1"

_log = logging.getLogger("lookup_hints.metrics")


class MetricsServer:
    """Serves the counts of a session until it is stopped, or the driver ends; a context manager.

    A port that is taken is no reason to fail a job: then nothing is served, and ``url`` is empty.
    """

    def __init__(self, running: tuple[WSGIServer, Thread] | None) -> None:
        self._running = running

    @property
    def port(self) -> int | None:
        """Where it listens; None where it serves nothing."""
        return None if self._running is None else self._running[0].server_port

    @property
    def url(self) -> str:
        """What Prometheus is given; empty where it serves nothing."""
        if self._running is None:
            return ""
        host = str(self._running[0].server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def stop(self) -> None:
        """Close the port; may be called again."""
        if self._running is None:
            return
        (server, thread), self._running = self._running, None
        server.shutdown()
        server.server_close()
        thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def check_port(port: int) -> None:
    if not 0 <= port <= 65535:
        raise OptionError(Problem(f"{port} is no port.", tip="Give one of 1 to 65535, or 0 for any."))


def check_package() -> None:
    """Refuse to serve where what serves is not installed."""
    if find_spec("prometheus_client") is None:
        raise OptionError(
            Problem(
                "Metrics cannot be served: the driver lacks the Python module 'prometheus_client'.",
                tip="Try: pip install 'lookup-hints[prometheus]'",
            )
        )


def serve(
    port: int, host: str, read: Read, *, flink_names: bool = False, job_name: str = ""
) -> MetricsServer:
    """Serve what ``read`` gives, at each scrape again.

    Args:
        port: where; 0 takes one that is free.
        host: the address to listen on; that of loopback lets nobody in from elsewhere.
        read: gives the counts so far.
        flink_names: whether Flink's names of metrics are served, too.
        job_name: what dashboards for Flink call the job.

    Raises:
        OptionError: ``port`` is none, or the package is missing.
    """
    check_port(port)
    check_package()
    from prometheus_client import CollectorRegistry, start_http_server

    from lookup_hints.metrics.prometheus_families import LookupCollector

    registry = CollectorRegistry()
    registry.register(LookupCollector(read))
    if flink_names:
        from lookup_hints.metrics.prometheus_families import FlinkCollector

        registry.register(FlinkCollector(read, job_name))
    try:
        return MetricsServer(start_http_server(port, host, registry))
    except OSError as error:
        _log.warning("metrics are not served at %s, port %d: %s; all else goes on", host, port, error)
        return MetricsServer(None)
