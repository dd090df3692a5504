"""How many tasks read a table that is read whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.plan.explain import explain
from tests.unit.plan.planning import TABLES, context, planned

FOUR = {"spark.master": "local[4]"}


def readers(conf: dict[str, str], **options: str) -> tuple[int, str]:
    """As the plan has it, and as EXPLAIN shows it."""
    named = {f"lookup.{name.replace('__', '.').replace('_', '-')}": text for name, text in options.items()}
    customers = TABLES["customers"]
    tables = {**TABLES, "customers": replace(customers, options={**customers.options, **named})}
    plan = planned("SELECT name FROM customers", context(conf=conf, tables=tables))
    (scan,) = plan.scans
    return scan.readers, explain(plan)


@pytest.mark.parametrize(
    ("conf", "options", "found"),
    [
        (FOUR, {}, 4),
        ({"spark.master": "local[64]"}, {}, 16),
        ({}, {}, 16),
        ({**FOUR, "lookup.cluster-tasks": "3"}, {}, 3),
        (FOUR, {"max_concurrency": "2"}, 2),
        (FOUR, {"max_requests": "3"}, 3),
        (FOUR, {"scan__partitions": "100"}, 100),
        ({"spark.master": "local-cluster[2,4,1024]"}, {}, 8),
    ],
)
def test_as_many_as_run_at_once_unless_the_user_says_it(
    conf: dict[str, str], options: dict[str, str], found: int
) -> None:
    number, shown = readers(conf, **options)
    assert number == found
    assert f"at most {found} tasks at once" in shown


def test_one_reads_alone() -> None:
    number, shown = readers(FOUR, scan__partitions="1")
    assert (number, "read by       one task" in shown) == (1, True)


def test_a_bad_number_is_refused() -> None:
    with pytest.raises(OptionError, match=r"table customers: 'lookup\.scan\.partitions' cannot be '0'"):
        readers(FOUR, scan__partitions="0")
