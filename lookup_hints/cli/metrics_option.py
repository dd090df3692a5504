"""The option of commands that run a file and let Prometheus scrape what its lookups count."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lookup_hints.metrics.endpoint import LOOPBACK, check_package

if TYPE_CHECKING:
    from lookup_hints.session import LookupSession

OPTIONS = {"--metrics-port": True, "--metrics-names": True}
"""Our options, and whether each takes a value."""


@dataclass(frozen=True)
class MetricsAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=_address,
        metavar="[HOST:]PORT",
        help=f"let Prometheus scrape counts here while the file runs (host {LOOPBACK}; port 0: any)",
    )
    parser.add_argument(
        "--metrics-names",
        choices=("lookup", "flink"),
        default="lookup",
        help="flink: serve Flink's names of metrics, too",
    )


def _address(text: str) -> MetricsAddress:
    """``9091``, ``0.0.0.0:9091`` or ``[::]:9091``."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"[HOST:]PORT needs a port of 0 to 65535, not {text!r}")
    return MetricsAddress(host.strip("[]") or LOOPBACK, int(port))


def passed_on(options: argparse.Namespace) -> list[str]:
    """The options as another command takes them."""
    if options.metrics_port is None:
        return []
    return ["--metrics-port", str(options.metrics_port), "--metrics-names", options.metrics_names]


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot be served: before Spark starts, which takes long."""
    if options.metrics_port is not None:
        check_package()


@contextmanager
def serving(session: LookupSession, options: argparse.Namespace) -> Iterator[None]:
    """Serve metrics for a block, if a command was asked to."""
    if options.metrics_port is None:
        yield
        return
    at, flink_names = options.metrics_port, options.metrics_names == "flink"
    with session.serve_metrics(at.port, at.host, flink_names=flink_names) as server:
        if server.url:
            print(f"metrics: {server.url}", flush=True)
        yield
