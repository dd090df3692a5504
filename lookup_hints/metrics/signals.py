"""What the standard variables of OpenTelemetry say should be sent; decided without OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_OTLP = "otlp"
_HTTP = "http/protobuf"


@dataclass(frozen=True)
class Signals:
    """What is sent to a collector.

    Args:
        metrics: whether metrics are.
        traces: whether spans are.
        refused: variables whose value asks for what we do not have, each with what it asks for.
    """

    metrics: bool = False
    traces: bool = False
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.metrics or self.traces


def signals(environment: Mapping[str, str]) -> Signals:
    """What ``environment`` asks for: nothing, unless it names an endpoint or the exporter ``otlp``.

    >>> signals({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
    Signals(metrics=True, traces=True, refused=())
    >>> signals({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"})
    Signals(metrics=True, traces=False, refused=())
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Signals()
    wanted = {signal: _is_wanted(signal, environment) for signal in ("METRICS", "TRACES")}
    refused = {
        signal: _other_protocol(signal, environment) for signal, is_wanted in wanted.items() if is_wanted
    }
    return Signals(
        metrics=wanted["METRICS"] and not refused["METRICS"],
        traces=wanted["TRACES"] and not refused["TRACES"],
        refused=tuple(dict.fromkeys(each for each in refused.values() if each)),
    )


def _is_wanted(signal: str, environment: Mapping[str, str]) -> bool:
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
