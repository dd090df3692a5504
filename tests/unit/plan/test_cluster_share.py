"""Budgets of the cluster and the share of a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.lookup_spec import Budget
from lookup_hints.plan.decide.budgets import (
    CONCURRENCY,
    RATE,
    REQUESTS,
    BudgetLimit,
    Cluster,
    budget_of,
    cluster_of,
    notes_of,
)
from lookup_hints.plan.explain import explain
from tests.unit.plan.planning import TABLES, context, planned

JOIN = "SELECT 1 FROM orders o JOIN customers c ON o.id = c.id"


DYNAMIC = {"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("conf", "executors", "tasks"),
    [
        ({"spark.master": "local"}, 1, 1),
        ({"spark.master": "local[4]"}, 1, 4),
        ({"spark.master": "local[4,2]"}, 1, 4),
        ({"spark.master": "local[*]"}, 1, None),
        ({"spark.master": "local[*,3]"}, 1, None),
        ({"spark.master": "local-cluster[2,3,1024]"}, 2, 6),
        ({"spark.master": "local-cluster[2, 5, 1024]", "spark.task.cpus": "2"}, 2, 4),
        ({"spark.master": "yarn", "spark.executor.instances": "10"}, 10, 10),
        ({"spark.master": "yarn", "spark.executor.instances": "10", "spark.executor.cores": "4"}, 10, 40),
        ({"spark.master": "k8s://x", "spark.executor.instances": "3", "spark.executor.cores": "2"}, 3, 6),
        (
            {
                **DYNAMIC,
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.instances": "2",
                "spark.executor.cores": "4",
                "spark.task.cpus": "3",
            },
            5,
            5,
        ),
        (DYNAMIC, None, None),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "infinity"}, None, None),
        ({"spark.master": "spark://x:7077", "spark.executor.instances": "3"}, 3, None),
        ({"spark.master": "spark://x:7077", "spark.cores.max": "12", "spark.executor.cores": "4"}, 3, 12),
        ({"spark.master": "spark://x:7077", "spark.cores.max": "3", "spark.executor.cores": "4"}, 1, 3),
        ({"spark.master": "spark://x:7077", "spark.cores.max": "12"}, None, 12),
        ({}, None, None),
    ],
)
def test_the_configuration_says_what_works_at_once(
    conf: dict[str, str], executors: int | None, tasks: int | None
) -> None:
    assert cluster_of(conf.get) == Cluster(executors, tasks)


def test_there_are_no_more_executors_at_work_than_tasks() -> None:
    conf = {"spark.master": "yarn", "spark.executor.instances": "10", "spark.executor.cores": "4"}
    assert cluster_of(conf.get, 8) == Cluster(8, 8)
    assert cluster_of(conf.get, 80) == Cluster(10, 80)
    assert cluster_of(lambda _: None, 8) == Cluster(None, 8)


@pytest.mark.parametrize(
    ("cluster", "budget"),
    [
        (Cluster(1, 4), Budget("", 50, 100.0, 12, 25.0, 1000)),
        (Cluster(3, 12), Budget("", 16, 100 / 3, 4, 100 / 12, 334, executors=3)),
        (Cluster(1, None), Budget("", 50, 100.0, None, None, 1000)),
        (Cluster(None, 8), Budget("", None, None, 6, 12.5, 125, executors=None)),
        (Cluster(2, 80), Budget("", 25, 50.0, 1, 1.25, 500, executors=2)),
    ],
)
def test_executors_have_equal_parts_and_so_have_tasks_without_a_file(
    cluster: Cluster, budget: Budget
) -> None:
    assert budget_with({CONCURRENCY: 50, RATE: 100.0, REQUESTS: 1000}, cluster) == budget


def test_a_budget_without_limits_needs_to_know_nothing() -> None:
    assert budget_with({}, Cluster(None, None)) == Budget(executors=None)


@pytest.mark.parametrize("limits", [{CONCURRENCY: 9}, {RATE: 1.0}, {REQUESTS: 5}])
def test_limits_that_cannot_be_divided_are_refused(limits: dict[str, float]) -> None:
    (option,) = limits
    with pytest.raises(OptionError) as caught:
        budget_with(limits, Cluster(None, None))
    assert str(caught.value).startswith(f"table t: {option!r} is split over the executors that run at once")


def test_less_than_one_request_for_each_executor_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        budget_with({CONCURRENCY: 3}, Cluster(4, 16))
    assert str(caught.value) == (
        "table t: 'lookup.max-concurrency' = 3 is less than one request for each of the 4 executors that may run"
        " at once. Raise it, or use fewer executors."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"task_concurrency": 0},
        {"rate": 0.0},
        {"task_rate": float("nan")},
        {"max_requests": 0},
        {"executors": 0},
        {"on_open": "panic"},
        {"executors": None, "rate": 1.0},
    ],
)
def test_a_budget_that_cannot_be_is_refused_at_birth(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Budget(**wrong)


def budget_with(limits: dict[str, float], cluster: Cluster) -> Budget:
    return budget_of(limits, cluster, table="t", name="", on_open="wait")


def planned_with(conf: dict[str, str], **options: str) -> str:
    """What EXPLAIN says of a join with a table that has such budgets."""
    customers = TABLES["customers"]
    named = {f"lookup.{name.replace('_', '-')}": text for name, text in options.items()}
    budgeted = replace(customers, options={**customers.options, **named})
    return explain(planned(JOIN, context(conf=conf, tables={**TABLES, "customers": budgeted})))


def test_a_plan_tells_workers_their_part_of_the_budget() -> None:
    customers = TABLES["customers"]
    options = {
        "lookup.budget": "crm.v1",
        "lookup.max-concurrency": "100",
        "lookup.rate-limit": "20",
        "lookup.max-requests": "5",
        "lookup.on-open": "fail",
    }
    tables = {**TABLES, "customers": replace(customers, options={**customers.options, **options})}
    conf = {"spark.master": "local-cluster[2,4,1024]", "lookup.max-requests": "7"}
    (join,) = planned(JOIN, context(conf=conf, tables=tables)).joins
    assert join.chosen.settings.budget == Budget("crm.v1", 50, 10.0, 12, 2.5, 3, "fail", 2)

    hinted = JOIN.replace(
        "SELECT", "SELECT /*+ LOOKUP('table'='c', 'on-open'='wait', 'max-requests'='100') */"
    )
    (join,) = planned(hinted, context(conf=conf, tables=tables)).joins
    assert join.chosen.settings.budget == Budget("crm.v1", 50, 10.0, 12, 2.5, 50, "wait", 2)


def test_the_name_of_a_budget_is_one_word() -> None:
    with pytest.raises(OptionError, match=r"'lookup\.budget' cannot be 'a b': write letters, digits"):
        planned_with({}, budget="a b")


def test_explain_says_who_has_which_part() -> None:
    limits = {"max_concurrency": "100", "rate_limit": "200"}
    shown = planned_with({"spark.master": "local-cluster[2,4,1024]"}, **limits)
    assert (
        "'lookup.rate-limit' = 200 is 100/s for each of 2 executors, shared by their tasks; 25/s for each task"
        " where an executor can write no file"
    ) in shown
    assert (
        "'lookup.max-concurrency' = 100 is 50 for each of 2 executors, shared by their tasks; 12 for" in shown
    )
    assert "50 requests in flight per task" in shown
    shown = planned_with({"spark.master": "local[8]"}, **limits)
    assert (
        "'lookup.rate-limit' = 200 is shared by all tasks of the executor; 25/s for each task where it can write"
        " no file"
    ) in shown
    shown = planned_with({"lookup.cluster-tasks": "8"}, **limits)
    assert (
        "'lookup.rate-limit' = 200 is 25/s for each of 8 tasks at once, as nothing says how many executors there"
        " are"
    ) in shown


def test_explain_says_what_a_task_has_that_nobody_can_count() -> None:
    limits, cluster = {RATE: 200.0}, Cluster(2, None)
    (note,) = notes_of(budget_with(limits, cluster), cluster, {RATE: BudgetLimit(200.0, "t")}, table="t")
    assert note.endswith("its part by the processors there for each task where an executor can write no file")


def test_capacity_stays_the_limit_of_a_task() -> None:
    assert "100 requests in flight" in planned_with({"spark.master": "local[2]"}, max_concurrency="5000")


def test_the_session_says_how_many_tasks_where_the_configuration_does_not() -> None:
    conf = {"spark.master": "local[*]", "lookup.cluster-tasks": "4"}
    assert "25 for each task where it can write no file" in planned_with(conf, max_concurrency="100")


@pytest.mark.parametrize("option", ["max-concurrency", "rate-limit"])
def test_a_budget_that_cannot_be_split_is_refused(option: str) -> None:
    with pytest.raises(OptionError) as caught:
        planned_with({"spark.master": "spark://there:7077"}, **{option: "100"})
    assert str(caught.value) == (
        f"table customers: 'lookup.{option}' is split over the executors that run at once, and Spark's"
        " configuration does not say how many. SET lookup.cluster-tasks = <number>, or give Spark spark.executor.cores with"
        " spark.executor.instances or spark.dynamicAllocation.maxExecutors."
    )


@pytest.mark.parametrize(
    ("conf", "parts"),
    [
        ({"spark.master": "local-cluster[8,2,1024]"}, "executors"),
        ({"spark.master": "spark://there:7077", "lookup.cluster-tasks": "8"}, "tasks"),
    ],
)
def test_fewer_requests_than_there_are_to_share_them_are_refused(conf: dict[str, str], parts: str) -> None:
    with pytest.raises(OptionError) as caught:
        planned_with(conf, max_concurrency="7")
    assert str(caught.value) == (
        f"table customers: 'lookup.max-concurrency' = 7 is less than one request for each of the 8 {parts} that"
        f" may run at once. Raise it, or use fewer {parts}."
    )


def test_fewer_requests_than_tasks_go_round_in_an_executor() -> None:
    assert "7 requests in flight per task" in planned_with({"spark.master": "local[8]"}, max_concurrency="7")


def test_without_a_budget_nothing_needs_to_be_known() -> None:
    assert "100 requests in flight per task" in planned_with({})
