"""What a metrics server gives, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.request import urlopen

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


def scraped(url: str) -> dict[str, Metric]:
    """The families of metrics at ``url``, by name."""
    with urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: Mapping[str, Metric], sample: str, **labels: str) -> float:
    """The value of the one sample of that name which has at least those labels."""
    (found,) = [
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return found
