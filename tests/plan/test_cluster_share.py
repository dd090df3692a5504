"""Budgets of the cluster and the share of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.errors import OptionError
from lookup_hints.plan.cluster_share import tasks_at_once
from lookup_hints.plan.explain import explain
from tests.plan.planning import TABLES, context, planned

JOIN = "SELECT 1 FROM orders o JOIN customers c ON o.id = c.id"


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[4,2]"}, 4),
        ({"spark.master": "local[*]"}, None),
        ({"spark.master": "local-cluster[2,3,1024]"}, 6),
        ({"spark.master": "local-cluster[2, 5, 1024]", "spark.task.cpus": "2"}, 4),
        ({"spark.master": "yarn", "spark.executor.instances": "10"}, 10),
        ({"spark.master": "yarn", "spark.executor.instances": "10", "spark.executor.cores": "4"}, 40),
        ({"spark.master": "k8s://x", "spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        (
            {
                "spark.master": "yarn",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "5",
                "spark.executor.instances": "2",
                "spark.executor.cores": "4",
                "spark.task.cpus": "3",
            },
            5,
        ),
        ({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}, None),
        (
            {
                "spark.master": "yarn",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "infinity",
            },
            None,
        ),
        ({"spark.master": "spark://x:7077", "spark.executor.instances": "3"}, None),
        ({"spark.master": "spark://x:7077", "spark.cores.max": "12", "spark.executor.cores": "4"}, 12),
        ({}, None),
    ],
)
def test_the_configuration_says_how_many_tasks_run_at_once(conf: dict[str, str], tasks: int | None) -> None:
    assert tasks_at_once(conf.get) == tasks


def planned_with(conf: dict[str, str], **options: str) -> str:
    """What EXPLAIN says of a join with a table that has such budgets."""
    customers = TABLES["customers"]
    named = {f"lookup.{name.replace('_', '-')}": text for name, text in options.items()}
    budgeted = replace(customers, options={**customers.options, **named})
    return explain(planned(JOIN, context(conf=conf, tables={**TABLES, "customers": budgeted})))


def test_each_task_has_an_equal_part_and_explain_says_so() -> None:
    shown = planned_with({"spark.master": "local[8]"}, max_concurrency="100", rate_limit="20")
    assert "12 requests in flight per task" in shown
    assert "'lookup.max-concurrency' = 100 is 12 for each of 8 tasks at once" in shown
    assert "'lookup.rate-limit' = 20 is 2.5/s for each of 8 tasks at once" in shown


def test_capacity_stays_the_limit_of_a_task() -> None:
    assert "100 requests in flight" in planned_with({"spark.master": "local[2]"}, max_concurrency="5000")


def test_the_session_says_how_many_tasks_where_the_configuration_does_not() -> None:
    conf = {"spark.master": "local[*]", "lookup.cluster-tasks": "4"}
    assert "25 requests in flight per task" in planned_with(conf, max_concurrency="100")


@pytest.mark.parametrize("option", ["max-concurrency", "rate-limit"])
def test_a_budget_that_nobody_can_split_is_refused(option: str) -> None:
    with pytest.raises(OptionError) as caught:
        planned_with({"spark.master": "local[*]"}, **{option: "100"})
    assert str(caught.value) == (
        f"table customers: 'lookup.{option}' is split over the tasks that run at once, and Spark's configuration"
        " does not say how many. SET lookup.cluster-tasks = <number>, or give Spark spark.executor.cores with"
        " spark.executor.instances or spark.dynamicAllocation.maxExecutors."
    )


def test_fewer_requests_than_tasks_are_refused() -> None:
    with pytest.raises(OptionError) as caught:
        planned_with({"spark.master": "local[8]"}, max_concurrency="7")
    assert str(caught.value) == (
        "table customers: 'lookup.max-concurrency' = 7 is less than one request for each of the 8 tasks that may"
        " run at once. Raise it, or let Spark run fewer tasks."
    )


def test_without_a_budget_nothing_needs_to_be_known() -> None:
    assert "100 requests in flight per task" in planned_with({})
