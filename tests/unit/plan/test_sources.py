"""EXPLAIN says where a value comes from that is not the default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.plan.explain import explain
from tests.unit.plan.planning import TABLES, context, planned

SESSION = {
    "table.exec.async-lookup.buffer-capacity": "7",
    "table.exec.async-lookup.timeout": "2 min",
    "spark.master": "local[8]",
}
RETRY = "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='1s'"


def explained(hint: str = "", **options: str) -> list[str]:
    """The lines of EXPLAIN, for a table with ``options`` and a session with some of its own."""
    customers = TABLES["customers"]
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in options.items()}
    given = replace(customers, options={**customers.options, **named})
    written = f"/*+ LOOKUP('table'='c', {hint}) */" if hint else ""
    query = f"SELECT {written} 1 FROM orders o JOIN customers c ON o.id = c.id"
    text = explain(planned(query, context(conf=SESSION, tables={**TABLES, "customers": given})))
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("hint", "options", "line"),
    [
        ("", {}, "capacity 7 requests in flight per task (session)"),
        ("", {"capacity": "5"}, "capacity 5 requests in flight per task (table)"),
        ("'capacity'='3'", {"capacity": "5"}, "capacity 3 requests in flight per task (hint)"),
        ("", {"lookup__max_concurrency": "5"}, "capacity 5 requests in flight per task"),
        ("", {}, "timeout 120 s (session)"),
        ("", {}, "on error fail"),
        ("'on-error'='skip'", {}, "on error skip (hint)"),
        ("", {}, "retry none"),
        (f"{RETRY}, 'max-attempts'='2'", {}, "retry lookup_miss, fixed_delay 1 s, max-attempts 2 (hint)"),
        (RETRY, {"max_attempts": "4"}, "retry lookup_miss, fixed_delay 1 s, max-attempts 4 (hint, table)"),
        ("'batch-size'='10'", {}, "batch size at most 10 keys in one request (hint)"),
        ("'output-mode'='allow_unordered'", {}, "output mode allow_unordered (hint)"),
        ("", {"lookup__async": "false"}, "'async'='false' asks for it (table)"),
        ("'shuffle'='true'", {}, "shuffle left rows are partitioned by key (hint)"),
    ],
)
def test_a_line_names_the_place_that_gives_its_value(hint: str, options: dict[str, str], line: str) -> None:
    lines = explained(hint, **options)
    assert any(each == line or each.endswith(f", and {line}") for each in lines), lines
