"""What a hedge means to the planner, and where it has no effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.errors import HintError, OptionError, QueryError
from lookup_hints.plan.draft import LookupPlan
from lookup_hints.plan.explain import explain
from lookup_hints.runtime.spec import Hedge
from tests.unit.plan.planning import TABLES, context, planned

SYNC = "'async'='false', "


def plan(hint: str = "", **table: str) -> LookupPlan:
    written = f"/*+ LOOKUP('table'='c', {hint}) */" if hint else ""
    given = {key.replace("_", "."): value for key, value in table.items()}
    customers = TABLES["customers"]
    tables = {**TABLES, "customers": replace(customers, options={**customers.options, **given})}
    return planned(
        f"SELECT {written} 1 FROM orders o JOIN customers c ON o.id = c.id", context(tables=tables)
    )


def hedge(hint: str = "", **table: str) -> Hedge | None:
    return plan(hint, **table).joins[0].chosen.settings.hedge


def test_none_is_made_where_nobody_wants_one() -> None:
    assert hedge() is None
    assert "hedge" not in explain(plan())


@pytest.mark.parametrize(("text", "found"), [("50 ms", Hedge(0.05)), ("P95", Hedge()), ("2s", Hedge(2.0))])
def test_a_delay_or_the_percentile(text: str, found: Hedge) -> None:
    assert hedge(f"'hedge'='{text}'") == found
    assert hedge(lookup_hedge=text) == found
    assert hedge("'hedge'='1 h'", lookup_hedge=text) == Hedge(3600.0)


def test_explain_says_when() -> None:
    assert "a second request after 0.05 s, for 5 % of them at most (hint)" in explain(plan("'hedge'='50 ms'"))
    shown = explain(plan(lookup_hedge="p95"))
    assert "a second request after the time of 95 % of its requests, for 5 % of them at most (table)" in shown


@pytest.mark.parametrize("text", ["p99", "0 ms", "soon", "5 m"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match=r"'hedge' cannot be '.*': write p95, or a duration: "):
        hedge(f"'hedge'='{text}'")
    with pytest.raises(OptionError, match=r"table customers: 'lookup\.hedge' cannot be"):
        hedge(lookup_hedge=text)


def test_the_sync_runner_refuses_a_hint_and_notes_what_a_table_says() -> None:
    with pytest.raises(HintError) as caught:
        hedge(f"{SYNC}'hedge'='p95'")
    (problem,) = caught.value.problems
    assert problem.message == "'hedge' has no effect with the sync runner, which waits for each request."
    assert problem.tip == "Leave it out, or use the async runner: 'async' = 'true', where the connector can."
    assert problem.at is not None
    of_table = plan(f"{SYNC}'timeout'='1 s'", lookup_hedge="p95")
    assert of_table.joins[0].chosen.settings.hedge is None
    assert "'lookup.hedge' has no effect with the sync runner" in explain(of_table)
