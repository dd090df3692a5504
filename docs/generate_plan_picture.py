"""Writes ``docs/notebook-plan.svg``, what a notebook shows: run ``python docs/generate_plan_picture.py``.

A test compares the file with what this makes. The planner that notebooks use makes the plan, without Spark.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lookup_connectors.http.connector import HttpConnector  # noqa: E402 (the path above comes first)
from lookup_connectors.postgres import PostgresConnector  # noqa: E402

from lookup_hints.notebook.html import plan_picture  # noqa: E402
from lookup_hints.spi.request_and_answer import LookupTable  # noqa: E402
from tests.unit.plan.planning import context, planned  # noqa: E402

TARGET = Path(__file__).with_name("notebook-plan.svg")

QUERY = """\
SELECT /*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '10 s', 'max-attempts' = '3') */
       o.id, c.name, r.rate * o.total AS euros
FROM orders AS o
LEFT JOIN customers AS c ON o.customer = c.id
JOIN rates AS r ON o.currency = r.currency AND r.rate > 0"""

_CUSTOMERS = LookupTable(
    "customers",
    pa.schema({"id": pa.int64(), "name": pa.string()}),
    ("id",),
    {"connector": "postgres", "url": "postgresql://db/shop", "table-name": "customers"},
)
_RATES = LookupTable(
    "rates",
    pa.schema({"currency": pa.string(), "rate": pa.float64()}),
    ("currency",),
    {"connector": "http", "url": "https://rates.example/{currency}"},
)


def picture() -> str:
    """The picture of ``QUERY``, in the colours of the site's page; elsewhere dark on light."""
    kinds = {"postgres": PostgresConnector, "http": HttpConnector}
    using = context(tables={each.name: each for each in (_CUSTOMERS, _RATES)})
    using = replace(using, connector=lambda table: kinds[table.connector](table))
    [svg] = re.findall(r"<svg.*</svg>", plan_picture(planned(QUERY, using)), re.DOTALL)
    colours = "color:var(--md-typeset-color, #1f2933);background:var(--md-code-bg-color, #f5f7fa)"
    drawn: str = svg.replace("max-width:100%;color:inherit", colours)
    return f"{drawn}\n"


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
