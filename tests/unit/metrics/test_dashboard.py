"""The dashboard for Grafana asks for nothing that is not served."""

from __future__ import annotations

import json
import re

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from docs import generate_dashboard
from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import CountsByKey, Latencies, LookupMetrics
from lookup_hints.metrics.prometheus import LookupCollector

_NAME = re.compile(r"\blookup_\w+")
_BY = re.compile(r"by \(([^)]*)\)")


def served() -> dict[str, set[str]]:
    """The labels of each sample of a lookup of which each count has something."""
    counts = LookupMetrics(
        errors_by_class=CountsByKey({"ConnectorError": 1}),
        waited=CountsByKey({"slot": 1.5}),
        latency=Latencies({Latencies.bucket_of(0.1): 1}),
    )
    registry = CollectorRegistry()
    registry.register(
        LookupCollector(lambda: {LookupName("customers", "c", "postgres", 3, "lookup_1"): counts})
    )
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {each.name: set(each.labels) for family in families for each in family.samples}


def test_each_metric_and_label_of_the_dashboard_is_served() -> None:
    samples = served()
    dashboard = json.loads(generate_dashboard.dashboard())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    assert len(queries) > len(generate_dashboard.PANELS)
    for query in queries:
        names = set(_NAME.findall(query))
        assert names, query
        assert names <= samples.keys()
        labels = {label for group in _BY.findall(query) for label in group.split(", ")}
        labels |= set(re.findall(r"(\w+)=~", query))
        assert all(labels <= samples[name] for name in names), query


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = json.loads(generate_dashboard.dashboard())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
