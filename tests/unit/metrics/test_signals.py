"""Which variables of OpenTelemetry ask for what."""

from __future__ import annotations

import pytest

from lookup_hints.metrics.otel_setup import Signals, signals

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
ALL = Signals(metrics=True, traces=True)
NONE = Signals()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, NONE),
        ({"OTEL_SERVICE_NAME": "nightly", "OTEL_TRACES_SAMPLER": "always_on"}, NONE),
        (ENDPOINT, ALL),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, NONE),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c/v1/metrics"}, Signals(metrics=True)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, Signals(traces=True)),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, NONE),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, ALL),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, Signals(metrics=True)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "None"}, Signals(traces=True)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "console"}, Signals(traces=True)),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "console, otlp"}, ALL),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, Signals(metrics=True)),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ALL),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            Signals(refused=("OTEL_EXPORTER_OTLP_PROTOCOL=grpc",)),
        ),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            Signals(metrics=True, refused=("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json",)),
        ),
        (
            {
                **ENDPOINT,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            },
            Signals(metrics=True, refused=("OTEL_EXPORTER_OTLP_PROTOCOL=grpc",)),
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, NONE),
    ],
)
def test_what_is_sent(environment: dict[str, str], wanted: Signals) -> None:
    assert signals(environment) == wanted
    assert bool(signals(environment)) == (wanted.metrics or wanted.traces)
