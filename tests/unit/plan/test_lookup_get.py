"""``lookup_get`` in check and completion, and what statements without it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lookup_hints.cli.check import check_script
from lookup_hints.cli.completion import candidates
from tests.unit.plan.planning import context, planned

TABLE = (
    "CREATE TEMPORARY TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    " WITH ('connector' = 'memory', 'rows' = '[]');\n"
)


class Names:
    def tables(self) -> Sequence[str]:
        return ["customers", "cities", "orders"]

    def columns(self, table: str) -> Sequence[str]:
        return {"customers": ["id", "name"]}.get(table, [])


def test_a_statement_without_a_call_asks_spark_for_no_function() -> None:
    def has_function(name: str) -> bool:
        raise AssertionError(name)

    using = replace(context(), has_function=has_function)
    assert planned("SELECT c.name, lookup_get FROM orders o JOIN customers c ON o.k = c.id", using).joins


def test_a_function_of_the_users_own_is_left_alone() -> None:
    text = "SELECT lookup_get('customers', 'name', o.k) FROM orders o"
    assert planned(text, replace(context(), has_function=lambda _: True)).sql == text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT lookup_get('c', 'name', o.k) FROM orders o", []),
        ("SELECT lookup_get('c', 'nam', o.k) FROM orders o", [(2, 24)]),
        ("SELECT\n lookup_get('c', 'name', o.k, 1, 2) FROM orders o", [(3, 2)]),
        ("SELECT /*+ LOOKUP('table'='c') */ lookup_get('c', 'name', o.k) FROM orders o", []),
        ("SELECT /*+ LOOKUP('table'='d') */ lookup_get('c', 'name', o.k) FROM orders o", [(2, 27)]),
        ("SELECT lookup_get('elsewhere', 'name', o.k) FROM orders o", []),
    ],
)
def test_check_reads_calls(query: str, found: list[tuple[int, int]]) -> None:
    assert [(each.line, each.column) for each in check_script(TABLE + query)] == found


def test_check_leaves_columns_that_only_the_source_knows() -> None:
    table = "CREATE TEMPORARY TABLE c WITH ('connector' = 'memory', 'rows' = '[]');\n"
    (note,) = check_script(f"{table}SELECT lookup_get('c', 'name', o.k) FROM orders o")
    assert note.is_gap


@pytest.mark.parametrize(
    ("typed", "after", "offered"),
    [
        ("SELECT lookup_get('c", "", ["customers'", "cities'"]),
        ("SELECT lookup_get('c", "', 'name', k) FROM o", ["customers", "cities"]),
        ("SELECT lookup_get('customers', 'n", "", ["name'"]),
        ("SELECT lookup_get('customers', '", "'", ["id", "name"]),
        ("SELECT concat('c", "", []),
        ("SELECT concat('customers', 'n", "", []),
    ],
)
def test_completion_offers_tables_and_columns_inside_the_quotes(
    typed: str, after: str, offered: list[str]
) -> None:
    assert [each.text for each in candidates(typed + after, len(typed), Names())] == offered
