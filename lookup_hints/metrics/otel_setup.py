"""The observer of the requests of a worker process: OpenTelemetry if it is configured, else none."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.task_recorder import UNOBSERVED, RequestObserver

if TYPE_CHECKING:
    from lookup_hints.metrics.otel_export import Sending

_OTLP = "otlp"
_HTTP = "http/protobuf"


@dataclass(frozen=True)
class Signals:
    """The signals sent to a collector."""

    metrics: bool = False
    traces: bool = False
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.metrics or self.traces


# Asked for by OpenTelemetry's own variables; there is no option of ours. (docs/decisions/0137)
def signals(environment: Mapping[str, str]) -> Signals:
    """The signals enabled by ``environment``: none, unless it names an endpoint or the exporter ``otlp``.

    >>> signals({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    Signals(metrics=True, traces=True, refused=())
    >>> signals({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"})
    Signals(metrics=True, traces=False, refused=())
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Signals()
    wanted = {signal: _is_exported(signal, environment) for signal in ("METRICS", "TRACES")}
    refused = {
        signal: _other_protocol(signal, environment) for signal, is_wanted in wanted.items() if is_wanted
    }
    return Signals(
        metrics=wanted["METRICS"] and not refused["METRICS"],
        traces=wanted["TRACES"] and not refused["TRACES"],
        refused=tuple(dict.fromkeys(each for each in refused.values() if each)),
    )


def _is_exported(signal: str, environment: Mapping[str, str]) -> bool:
    named = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if named:
        exporters = {each.strip() for each in named.split(",")}
        return _OTLP in exporters
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environment.get(each, "").strip() for each in endpoints)


def _other_protocol(signal: str, environment: Mapping[str, str]) -> str:
    """The variable that asks for another protocol than ours, and its value; empty where none does."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        value = environment.get(variable, "").strip()
        if value:
            return "" if value == _HTTP else f"{variable}={value}"
    return ""


_log = logging.getLogger("lookup_hints.metrics")


class Telemetry:
    """The exporter of this process; made at a worker's first task, never in the daemon that forks workers."""

    def __init__(self) -> None:
        self._sending = sending_of(os.environ)

    def observer(self, name: LookupName) -> RequestObserver:
        return UNOBSERVED if self._sending is None else self._sending.observer(name)


# At the first task of a worker: threads of the SDK do not live through the fork from PySpark's daemon.
# (docs/decisions/0137)
def sending_of(environment: Mapping[str, str]) -> Sending | None:
    """What sends what ``environment`` asks for; None where it asks for nothing, or the SDK is not there.

    What cannot be set up is one warning: it is no reason to fail a task.
    """
    wanted = signals(environment)
    for refused in wanted.refused:
        _log.warning("%s: lookup_hints sends http/protobuf alone, and so nothing of it", refused)
    if not wanted:
        return None
    try:
        from lookup_hints.metrics.otel_export import Sending

        return Sending(wanted)
    except ModuleNotFoundError:
        return None
    except Exception as error:  # its text may hold what a variable does, a secret for one
        _log.warning("OpenTelemetry cannot be set up, and nothing is sent: %s", type(error).__name__)
        return None
