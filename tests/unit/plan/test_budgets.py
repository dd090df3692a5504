"""Tables of one origin, or of one name, share a budget: they agree, and EXPLAIN says what it belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.cli.check import check_script
from lookup_hints.errors import OptionError
from lookup_hints.plan.explain import explain
from lookup_hints.plan.joins import LookupPlan
from lookup_hints.spi.request_and_answer import LookupTable
from tests.unit.plan.planning import CUSTOMERS, RATES, context, planned

JOIN = "SELECT 1 FROM orders o JOIN customers c ON o.id = c.id"
BOTH = f"{JOIN} JOIN rates r ON o.currency = r.currency"
CRM = {"url": "https://crm/x"}
BANK = {"url": "https://bank/x"}


def given(table: LookupTable, **options: str) -> LookupTable:
    named = {
        key if key in ("url", "password") else f"lookup.{key.replace('_', '-')}": text
        for key, text in options.items()
    }
    return replace(table, options={**table.options, **named})


def plan_of(customers: LookupTable, *others: LookupTable, query: str = JOIN, hint: str = "") -> LookupPlan:
    """A plan in a session that knows all these tables, on two executors with two tasks each."""
    tables = {each.name: each for each in (customers, *others)}
    using = replace(
        context(conf={"spark.master": "local-cluster[2,2,1024]"}, tables=tables),
        tables=lambda: list(tables.values()),
    )
    return planned(query.replace("SELECT", f"SELECT {hint}"), using)


def said_of(customers: LookupTable, *others: LookupTable, query: str = JOIN) -> str:
    with pytest.raises(OptionError) as caught:
        plan_of(customers, *others, query=query)
    return str(caught.value)


def explained(customers: LookupTable, *others: LookupTable, hint: str = "") -> list[str]:
    text = explain(plan_of(customers, *others, hint=hint))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_one_name_with_two_limits_is_an_error_that_shows_both_places() -> None:
    one, other = (
        given(CUSTOMERS, budget="crm", rate_limit="100"),
        given(RATES, budget="crm", rate_limit="200"),
    )
    assert said_of(one, other) == (
        "Tables customers and rates have one budget, 'crm', but 'lookup.rate-limit' is 100 in WITH of customers"
        " and 200 in WITH of rates. Give both one value, leave it out of one of them, or give one of them another"
        " 'lookup.budget'."
    )


def test_one_origin_with_two_limits_is_an_error_that_shows_both_places() -> None:
    one = given(CUSTOMERS, url="https://me:secret@crm/x", max_concurrency="10")
    other = given(RATES, url="https://crm/y", max_concurrency="20")
    assert said_of(one, other) == (
        "Tables customers and rates ask one origin, and so have one budget, but 'lookup.max-concurrency' is 10 in"
        " WITH of customers and 20 in WITH of rates. Give both one value, leave it out of one of them, or give"
        " each a 'lookup.budget' of its own, to be apart."
    )


def test_all_contradictions_are_reported_at_once() -> None:
    one = given(CUSTOMERS, budget="crm", rate_limit="1", max_concurrency="10")
    other = given(RATES, budget="crm", rate_limit="2", max_concurrency="20")
    said = said_of(one, other, query=BOTH)
    assert "'lookup.rate-limit' is 1 in WITH" in said
    assert "'lookup.max-concurrency' is 10 in WITH" in said


def test_two_other_tables_of_the_budget_may_contradict_each_other() -> None:
    mine = given(CUSTOMERS, budget="crm")
    one = given(RATES, budget="crm", rate_limit="1")
    other = replace(given(RATES, budget="crm", rate_limit="2"), name="fees")
    assert "Tables rates and fees" in said_of(mine, one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({**CRM, "rate_limit": "1"}, {**CRM, "rate_limit": "1"}),
        ({**CRM, "rate_limit": "1"}, {**BANK, "rate_limit": "2"}),
        ({**CRM, "rate_limit": "1"}, {**CRM, "rate_limit": "2", "budget": "bulk"}),
        ({**CRM, "rate_limit": "1", "budget": "a"}, {**CRM, "rate_limit": "2", "budget": "b"}),
        ({"budget": "a", "rate_limit": "1"}, {"budget": "A", "rate_limit": "2"}),
        ({"rate_limit": "1"}, {"rate_limit": "2"}),
        (
            {"url": "${env:LOOKUP_NO_SUCH_NAME}", "rate_limit": "1"},
            {"url": "${env:LOOKUP_NO_SUCH_NAME}", "rate_limit": "2"},
        ),
    ],
)
def test_budgets_that_agree_are_apart_or_cannot_be_compared_are_planned(
    one: dict[str, str], other: dict[str, str]
) -> None:
    customers, rates = given(CUSTOMERS, **one), given(RATES, **other)
    first, second = plan_of(customers, rates, query=BOTH).joins
    assert first.chosen.settings.budget.rate == float(one["rate_limit"]) / 2
    assert second.chosen.settings.budget.rate == float(other["rate_limit"]) / 2


@pytest.mark.parametrize("shared", [{"budget": "crm"}, CRM])
def test_a_limit_holds_for_all_tables_of_its_budget(shared: dict[str, str]) -> None:
    plan = plan_of(given(CUSTOMERS, **shared), given(RATES, **shared, rate_limit="200", max_concurrency="8"))
    (join,) = plan.joins
    budget = join.chosen.settings.budget
    assert (budget.rate, budget.concurrency) == (100.0, 4)
    assert "note 'lookup.rate-limit' = 200 of table rates is 100/s for each of 2 executors" in " ".join(
        explain(plan).split()
    )


def test_tables_that_the_statement_does_not_ask_do_not_hinder_it() -> None:
    one, other = given(RATES, budget="x", rate_limit="1"), given(RATES, budget="x", rate_limit="2")
    (join,) = plan_of(given(CUSTOMERS, **CRM), one, replace(other, name="fees")).joins
    assert not join.chosen.settings.budget.is_limited


@pytest.mark.parametrize(
    ("options", "owner"),
    [
        ({"budget": "crm", **CRM}, "crm (table)"),
        (CRM, "the origin crm"),
        ({}, "the origin of customers"),
        ({"url": "https://me:secret@crm:1/x", "password": "secret"}, "the origin crm:1"),
        ({"url": "${env:LOOKUP_TEST_URL}"}, "the origin of customers"),
    ],
)
def test_explain_names_what_a_budget_belongs_to_and_no_reference(
    options: dict[str, str], owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKUP_TEST_URL", "https://hidden/x")
    lines = explained(given(CUSTOMERS, **options, rate_limit="4"))
    assert f"budget {owner}" in lines
    assert "on open wait" in lines


def test_explain_says_what_is_given_for_outages_and_money() -> None:
    hint = "/*+ LOOKUP('table'='c', 'on-open'='fail', 'max-requests'='3000') */"
    lines = explained(given(CUSTOMERS, **CRM), hint=hint)
    assert "on open fail (hint)" in lines
    assert "max requests 1,500 of one statement in each executor (hint)" in lines
    assert not [line for line in lines if line.startswith("budget")]


def test_a_lookup_without_a_budget_has_no_word_of_it() -> None:
    lines = explained(given(CUSTOMERS, **CRM))
    assert not [line for line in lines if line.startswith(("budget", "on open", "max requests"))]


def test_check_finds_contradictions_without_spark() -> None:
    script = "".join(
        f"CREATE TEMPORARY TABLE {name} (id BIGINT) WITH ('connector' = 'memory', 'rows' = '[]',"
        f" 'lookup.budget' = 'crm', 'lookup.rate-limit' = '{rate}');\n"
        for name, rate in (("a", 1), ("b", 2))
    )
    (finding,) = check_script(f"{script}SELECT a.id FROM o JOIN a ON o.id = a.id;\n")
    assert finding.message.startswith(
        "Tables a and b have one budget, 'crm', but 'lookup.rate-limit' is 1 in"
    )
    assert finding.line == 3
