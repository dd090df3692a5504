"""Writes ``docs/grafana-lookups.json``, a dashboard for Grafana: ``python docs/generate_dashboard.py``.

A test compares the file with what this makes, and each metric in it with what a session serves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("grafana-lookups.json")

_WHICH = 'table=~"$table", alias=~"$alias"'
_LOOKUP = "table, alias, line"
_LEGEND = "{{table}} AS {{alias}}, line {{line}}"


def _rate(metric: str) -> str:
    return f"sum by ({_LOOKUP}) (rate({metric}{{{_WHICH}}}[$__rate_interval]))"


def _rate_by(label: str, metric: str) -> str:
    return f"sum by ({_LOOKUP}, {label}) (rate({metric}{{{_WHICH}}}[$__rate_interval]))"


def _quantile(part: float) -> str:
    buckets = f"rate(lookup_latency_seconds_bucket{{{_WHICH}}}[$__rate_interval])"
    return f"histogram_quantile({part}, sum by ({_LOOKUP}, le) ({buckets}))"


@dataclass(frozen=True)
class Panel:
    """A graph.

    Args:
        title: what it shows.
        description: what to make of it.
        unit: as Grafana calls it.
        queries: expressions, by what follows the lookup in their legend.
    """

    title: str
    description: str
    unit: str
    queries: dict[str, str]


PANELS = (
    Panel(
        "Rows",
        "Input rows, and rows of the join, per second.",
        "ops",
        {"in": _rate("lookup_rows_in_total"), "out": _rate("lookup_rows_out_total")},
    ),
    Panel(
        "Keys asked",
        "Keys per second. Near the rows in: keys seldom repeat within a window.",
        "ops",
        {"": _rate("lookup_keys_total")},
    ),
    Panel(
        "Hit ratio",
        "Part of the keys that found a row.",
        "percentunit",
        {
            "": f"{_rate('lookup_hits_total')} /"
            f" ({_rate('lookup_hits_total')} + {_rate('lookup_misses_total')})"
        },
    ),
    Panel("Requests", "Questions to the source per second.", "ops", {"": _rate("lookup_requests_total")}),
    Panel(
        "Latency of requests",
        "From sending a request to its answer.",
        "s",
        {f"p{100 * part:g}": _quantile(part) for part in (0.5, 0.95, 0.99)},
    ),
    Panel(
        "Requests in flight, at most",
        "Of one task. Where it equals `capacity`, the source is slower than the tasks.",
        "short",
        {"": f"max by ({_LOOKUP}) (lookup_most_in_flight{{{_WHICH}}})"},
    ),
    Panel(
        "Tasks that only wait, by cause",
        "How many tasks, on average, could do nothing but wait; `slot`: the source is slower than the tasks.",
        "short",
        {"{{cause}}": _rate_by("cause", "lookup_waited_seconds_total")},
    ),
    Panel(
        "Errors by class",
        "Requests per second that failed.",
        "ops",
        {"{{class}}": _rate_by("class", "lookup_errors_by_class_total")},
    ),
    Panel(
        "Retries and pauses",
        "Keys per second that wait for their next attempt, and requests answered with a pause.",
        "ops",
        {
            "after a miss": _rate("lookup_retried_misses_total"),
            "after a failure": _rate("lookup_retried_failures_total"),
            "throttled": _rate("lookup_throttled_total"),
        },
    ),
    Panel(
        "Input held back",
        "Times per second that reading stopped, as too much was held.",
        "ops",
        {"": _rate("lookup_buffer_full_total")},
    ),
)

_WIDTH, _HEIGHT = 12, 8


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "legendFormat": f"{_LEGEND} {legend}".rstrip()}
            for at, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": f"label_values(lookup_rows_in_total, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> str:
    """The text of the file."""
    content = {
        "title": "Lookup joins",
        "uid": "lookup-hints",
        "tags": ["spark", "lookup-hints"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("table"),
                _variable("alias"),
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(content, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(dashboard(), encoding="utf-8")
