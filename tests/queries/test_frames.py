"""lookup_join of any frames: rows, names and types are those of df.join."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.queries.test_properties import DATES, DOUBLES, FINE_DECIMALS, SMALL, TEXTS, rows
from tests.spark.joined import check_joins
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = max(8, int(os.environ.get("TREES", "150")) // 20)

# Names that need quoting, clash, or differ in case; types that Spark casts.
NAMES = ["id", "a b", "é", "x.y", "q`t", "select", "Key", "value"]
KEYS: dict[str, Sequence[Any]] = {
    "INT": SMALL,
    "BIGINT": SMALL,
    "STRING": TEXTS,
    "DOUBLE": DOUBLES,
    "DATE": DATES,
    "DECIMAL(10,3)": FINE_DECIMALS,
}


def some_columns(random: Random) -> dict[str, str]:
    """Names of columns with their types; the first two are never nested."""
    names = random.sample(NAMES, random.randrange(2, 6))
    return {name: random.choice(list(KEYS)) for name in names}


def columns_sql(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def wishes(random: Random, left: Mapping[str, str], dim: Mapping[str, str]) -> dict[str, Any]:
    """One call: keys of one type, by shared names or in pairs, and sometimes options."""
    shared = [name for name in left if dim.get(name) == left[name]]
    pairs = [(one, two) for one, kind in left.items() for two, other in dim.items() if kind == other]
    out: dict[str, Any] = {"how": random.choice(["inner", "left", "left_semi", "left_anti"])}
    if shared and random.random() < 0.5:
        out["on"] = random.sample(shared, random.randrange(1, len(shared) + 1))
    elif pairs:
        out["on"] = dict(random.sample(pairs, random.randrange(1, min(2, len(pairs)) + 1)))
    else:
        return {}
    if random.random() < 0.5:
        out |= {"batch_size": random.choice([1, 2]), "ordered": random.choice([True, False]), "capacity": 2}
        out["asynchronous"] = random.choice([True, False])
    return out


@pytest.mark.timeout(900)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(seed=st.integers(0, 2**32))
def test_any_join_of_any_frames(spark: SparkSession, tmp_path_factory: Any, seed: int) -> None:
    random = Random(seed)
    made = Twins(spark.newSession, tmp_path_factory.mktemp("any"))
    left, dim = some_columns(random), some_columns(random)
    made.table("lefts", columns_sql(left), rows(random, 30, *(KEYS[kind] for kind in left.values())), 1)
    made.dimension("dims", columns_sql(dim), rows(random, 15, *(KEYS[kind] for kind in dim.values())))
    joins = list(filter(None, (wishes(random, left, dim) for _ in range(4))))
    if joins:
        check_joins(made, "lefts", ({"table": "dims", **join} for join in joins))
