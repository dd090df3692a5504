"""lookup_join: rows, names and types are those of df.join; options, names, laziness, streams; mistakes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

from lookup_hints import ExponentialDelay, FixedDelay, LookupSession, RetryStrategy, async_wait
from lookup_hints.errors import OptionError, QueryError
from lookup_hints.metrics.lookup_metrics import LookupMetrics
from tests.queries.test_oracle import CUSTOMERS, ORDERS, PRICES
from tests.spark.answers import collected
from tests.spark.joined import check_joins
from tests.spark.oracle import Twins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="module")
def twins(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("twins"))
    made.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    made.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", CUSTOMERS, key="id")
    made.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    return made


@pytest.fixture
def orders(twins: Twins) -> DataFrame:
    return twins.session.spark.table("orders")


# --- the rows of df.join ---------------------------------------------------------------------------

JOINS: dict[str, dict[str, Any]] = {
    "a name": {"table": "customers", "on": "id"},
    "a name that is not first": {"table": "prices", "on": "kind"},
    "names": {"table": "prices", "on": ["kind", "k"]},
    "names, some columns": {"table": "prices", "on": ["k"], "columns": ["price"]},
    "a dictionary": {"table": "customers", "on": {"k": "id"}},
    "a dictionary of two": {"table": "prices", "on": {"k": "k", "kind": "kind"}},
    "one column": {"table": "customers", "on": {"k": "id"}, "columns": ["name"]},
    "columns with new names": {
        "table": "customers",
        "on": {"k": "id"},
        "columns": {"id": "customer_id", "zip": "zip"},
    },
    "no columns": {"table": "prices", "on": {"k": "k"}, "columns": []},
    "a condition on the table": {
        "table": "customers",
        "on": {"k": "id"},
        "condition": "customers.country <> 'DE'",
    },
    "a condition on both": {"table": "prices", "on": "k", "condition": "price < df.total - 5 OR df.total < 9"},
    "a condition on the frame": {"table": "customers", "on": {"k": "id"}, "condition": "df.total > 20 -- enough"},
    "a key in the condition": {"table": "prices", "on": {"k": "k"}, "condition": "prices.kind = 'b'"},
    "the condition alone": {"table": "customers", "condition": "k + 1 = customers.id AND name LIKE '%{n}%'"},
}  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_rows_names_and_types_are_those_of_df_join(twins: Twins, how: str) -> None:
    left_out = {"columns"} if how.startswith("left_") else set()
    check_joins(
        twins,
        "orders",
        ({key: join[key] for key in join.keys() - left_out} | {"how": how} for join in JOINS.values()),
    )


def test_spark_s_other_names_of_a_join(twins: Twins) -> None:
    names = ["leftouter", "LEFT_OUTER", "leftsemi", "semi", "anti", "leftanti"]
    check_joins(twins, "orders", ({"table": "customers", "on": {"k": "id"}, "how": name} for name in names))


# --- keys and names ---------------------------------------------------------------------------------


def test_a_key_is_a_column_an_expression_or_a_part_of_a_struct(twins: Twins, orders: DataFrame) -> None:
    packed = orders.select("id", F.struct("k", "kind").alias("of")).alias("p")
    expected = sorted(collected(check(twins, orders, {"k": "id"}).select("name", "zip")))
    for left in ("of.k", "p.of.k", "CAST(of.k AS BIGINT) + 0"):
        joined = check(twins, packed, {left: "id"})
        assert joined.columns == ["id", "of", "id", "name", "country", "zip"]
        assert sorted(collected(joined.select("name", "zip"))) == expected
    joined = check(twins, packed, [(packed["of"]["k"] + F.lit(0), "id")])
    assert sorted(collected(joined.select("name", "zip"))) == expected


def check(twins: Twins, df: DataFrame, on: Any, **more: Any) -> DataFrame:
    return twins.session.lookup_join(df, "customers", on, "left", **more)


def test_columns_of_the_frame_stay_its_own(twins: Twins, orders: DataFrame) -> None:
    joined = check(twins, orders, {"k": "id"}, alias="c")
    mine = joined.filter(orders.id < 3).select(orders.id, orders["k"], "c.id", "c.name", "df.total")
    assert sorted(tuple(row) for row in mine.collect()) == [(1, 1, 1, "Ann", 1.5), (2, 2, 2, "Bob", 3.0)]
    assert joined.drop(orders.id).columns == ["k", "kind", "total", "id", "name", "country", "zip"]


def test_a_frame_with_two_columns_of_one_name(twins: Twins, orders: DataFrame) -> None:
    other = orders.select("id", F.col("k").alias("k2")).alias("p")
    twice = orders.alias("o").join(other, F.col("o.id") == F.col("p.id"))
    joined = check(twins, twice, {"p.k2": "id"}, columns=["name"])
    assert joined.columns == ["id", "k", "kind", "total", "id", "k2", "name"]
    assert joined.filter("name = 'Ann'").count() == 4
    with pytest.raises(QueryError, match=r"more than one column 'id'\. Say which as a Column"):
        check(twins, twice, "id")
    with pytest.raises(QueryError, match="more than one column 'id': 'kind' cannot come first"):
        twins.session.lookup_join(twice, "prices", "kind")


def test_one_join_after_the_other(twins: Twins, orders: DataFrame) -> None:
    named = check(twins, orders, {"k": "id"}, columns=["name"])
    priced = twins.session.lookup_join(named, "prices", ["k", "kind"], "left")
    assert priced.columns == ["k", "kind", "id", "total", "name", "price"]
    expected = twins.plain.sql(
        "SELECT o.k, o.kind, o.id, o.total, c.name, p.price FROM orders o LEFT JOIN customers c ON o.k = c.id"
        " LEFT JOIN prices p ON p.k = o.k AND p.kind = o.kind"
    )
    assert sorted(collected(priced)) == sorted(collected(expected))


def test_case_of_names_follows_spark(twins: Twins, orders: DataFrame) -> None:
    assert check(twins, orders, {"K": "ID"}, columns=["NAME"]).columns[-1] == "name"
    assert twins.session.lookup_join(orders, "PRICES", ["KIND"]).columns[0] == "kind"


def test_frames_in_braces_stand_in_sql(twins: Twins, orders: DataFrame) -> None:
    text = "SELECT o.id, c.name, '{{}}' AS braces FROM {orders} o JOIN {few} f ON o.id = f.id JOIN customers c ON o.k = c.id"
    joined = twins.session.sql(
        text + " AND c.country = :land", {"land": "US"}, orders=orders, few=orders.filter("id < 10")
    )
    assert sorted(tuple(row) for row in joined.collect()) == [(2, "Bob", "{}"), (7, "Ed", "{}")]
    assert not [row for row in twins.session.spark.sql("SHOW TABLES").collect() if "frame" in row.tableName]


def test_a_view_over_a_lookup_table_is_asked_by_frames_in_braces(twins: Twins, orders: DataFrame) -> None:
    twins.session.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT id AS who, name FROM customers")
    try:
        text = "SELECT o.id, s.name FROM {orders} o JOIN seen s ON o.k = s.who WHERE o.id < %s"
        twins.forget()
        asked = sorted(twins.session.sql(text % 10, orders=orders).collect())
        assert (2, "Bob") in asked
        assert twins.calls("customers").keys
        twins.forget()
        read = sorted(twins.session.sql(text % "{most}", orders=orders, most=10).collect())
        assert read == asked
        assert not twins.calls("customers").keys, "values in braces are Spark's alone: it reads the table"
        with pytest.raises(QueryError, match=r"Variables in braces \(most\)"):
            twins.session.sql("SELECT * FROM customers WHERE id < {most}", most=10)
    finally:
        twins.session.sql("DROP VIEW seen")


# --- how it runs -------------------------------------------------------------------------------------


def test_nothing_is_asked_before_an_action_and_each_key_once_in_each_task(
    twins: Twins, orders: DataFrame
) -> None:
    twins.forget()
    joined = check(twins, orders, {"k": "id"}, columns=["name"])
    assert not twins.calls("customers").requests
    joined.collect()
    asked = twins.calls("customers")
    assert max(asked.keys.values()) <= 2, "two files make two tasks"
    assert asked.columns == {"id", "name"}
    assert ("None",) not in asked.keys


@dataclass(frozen=True)
class Twice(RetryStrategy):
    """A strategy as a user writes one."""

    wait: float = 0.001

    def can_retry(self, attempt: int) -> bool:
        return attempt < 3

    def backoff(self, attempt: int) -> float:
        return self.wait * attempt


def nameless(found: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["name"] == "Cy" for row in found)


@pytest.mark.parametrize(
    ("retry", "again"),
    [
        (FixedDelay(2, 0.001).if_miss(), "5"),
        (ExponentialDelay(2, 0.001).if_miss(), "5"),
        (Twice().if_miss(), "5"),
        (Twice().if_result(nameless), "3"),
    ],
)
def test_a_key_is_asked_again_as_the_policy_says(
    twins: Twins, orders: DataFrame, retry: Any, again: str
) -> None:
    twins.forget()
    check(twins, orders.filter("k IN (1, 3, 5)").coalesce(1), {"k": "id"}, retry=retry).collect()
    keys = twins.calls("customers").keys
    assert {key: times for (key,), times in keys.items()} == {
        key: 3 if key == again else 1 for key in ("1", "3", "5")
    }


def test_options_reach_the_runtime(twins: Twins, orders: DataFrame) -> None:
    twins.forget()
    check(twins, orders.coalesce(1), {"k": "id"}, batch_size=2, asynchronous=False).collect()
    assert {len(request["keys"]) for request in twins.calls("customers").requests} <= {1, 2}
    shuffled = check(twins, orders, {"k": "id"}, shuffle=True)
    assert sorted(collected(shuffled)) == sorted(collected(check(twins, orders, {"k": "id"})))
    twins.forget()
    shuffled.collect()
    assert set(twins.calls("customers").keys.values()) == {1}, "each key has one task"


def test_a_bad_option_of_the_table_is_found_and_the_call_beats_the_table(
    twins: Twins, orders: DataFrame
) -> None:
    session = LookupSession(twins.session.spark)
    session.sql(
        "CREATE OR REPLACE TEMPORARY TABLE slow (id BIGINT, name STRING) WITH ('connector' = 'memory', 'rows' = '[]',"
        " 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '1 h', 'max-attempts' = '9')"
    )
    retry = FixedDelay(1, 0.001).if_miss()
    assert session.lookup_join(orders, "slow", "id", "left_anti", retry=retry).count() == len(ORDERS)


# --- streams -----------------------------------------------------------------------------------------


@pytest.fixture
def arriving(twins: Twins, tmp_path: Path) -> DataFrame:
    files = str(tmp_path / "arriving")
    twins.plain.table("orders").repartition(3).write.parquet(files)
    spark = twins.session.spark
    reader = spark.readStream.schema("id INT, k BIGINT, kind STRING, total DOUBLE")
    return reader.option("maxFilesPerTrigger", 1).parquet(files)


def test_a_stream_gets_the_rows_of_the_batch(
    twins: Twins, orders: DataFrame, arriving: DataFrame, tmp_path: Path
) -> None:
    joined = check(twins, arriving, {"k": "id"}, condition="customers.country <> 'DE'")
    assert joined.isStreaming
    name = f"arrived_{next(_numbers)}"
    writing = joined.toDF(*"abcdefgh").writeStream.format("memory").queryName(name)
    options = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = options.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    expected = check(twins, orders, {"k": "id"}, condition="customers.country <> 'DE'")
    assert sorted(collected(twins.session.spark.table(name))) == sorted(collected(expected))


def hand_over(arriving: DataFrame, keep: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    """Give each micro-batch that is there to ``keep``."""
    writer = arriving.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)


def test_in_each_micro_batch(twins: Twins, orders: DataFrame, arriving: DataFrame, tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend(collected(check(twins, batch, {"k": "id"}).select("df.id", "name")))

    hand_over(arriving, keep, tmp_path / "checkpoint")
    assert sorted(seen) == sorted(collected(check(twins, orders, {"k": "id"}).select("df.id", "name")))


def test_all_micro_batches_share_one_function_of_a_lookup_and_its_counts(
    twins: Twins, arriving: DataFrame, tmp_path: Path
) -> None:
    left: list[tuple[set[str], int]] = []

    def keep(batch: DataFrame, number: int) -> None:
        check(twins, batch, {"k": "id"}, columns=["zip"], alias="each").collect()
        async_wait(batch, abs, ["k"], "size BIGINT").collect()
        twins.session.sql("SELECT p.price FROM {b} b JOIN prices p ON b.k = p.k", b=batch).collect()
        LookupSession(batch.sparkSession).metrics()
        made = {row.function for row in batch.sparkSession.sql("SHOW USER FUNCTIONS").collect()}
        left.append((made, len(_accumulatorRegistry)))

    before = twins.session.metrics()
    hand_over(arriving, keep, tmp_path / "checkpoint")
    assert len(left) == 3
    assert left[0] == left[1] == left[2]
    none = LookupMetrics()
    rows_in = [(counts - before.get(name, none)).rows_in for name, counts in twins.session.metrics().items()]
    assert [number for number in rows_in if number] == [40, 40], "all rows of all batches"


# --- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"table": "costumers", "on": "id"},
            "No lookup table is called 'costumers'. Did you mean 'customers'?",
        ),
        ({"on": "idd"}, "The frame has no column 'idd'. Did you mean 'id'?"),
        ({"on": "total"}, "The table customers has no column 'total'. Known: id, name, country, zip."),
        ({"on": {"kk": "id"}}, "The frame has no column 'kk'. Did you mean 'k'?"),
        ({"on": {"k": "ids"}}, "The table customers has no column 'ids'. Did you mean 'id'?"),
        ({"on": {"k": "id"}, "columns": ["nmae"]}, "has no column 'nmae'. Did you mean 'name'?"),
        ({"on": {"k": "id"}, "columns": "name"}, "columns cannot be 'name'. Write columns=['name']."),
        (
            {"on": F.lit},
            "Write on='id', on=['id', 'kind'], on={'customer_id': 'id'} or on=[(df.customer_id, 'id')]",
        ),
        (
            {},
            "The lookup join with customers has no key. Give on='name', or on={'column of the frame': 'id'}.",
        ),
        ({"on": []}, "The lookup join with customers has no key."),
        ({"on": "id", "condition": " "}, "The condition is empty. Leave it out."),
        (
            {"on": "id", "how": "right"},
            "A lookup join cannot be 'right'. Read the whole table: df.join(session.sql(",
        ),
        ({"on": "id", "how": "full_outer"}, "A lookup join cannot be 'full_outer'. Read the whole table"),
        ({"on": "id", "how": "outer"}, "A lookup join cannot be 'outer'. Read the whole table"),
        ({"how": "cross"}, "A lookup join cannot be 'cross'. A lookup needs a key"),
        ({"on": "id", "how": "lefft"}, "No join is called 'lefft'. Did you mean 'left'?"),
        ({"on": "id", "how": "semi", "columns": ["name"]}, "A left semi join gives no columns of the table."),
        ({"on": "id", "alias": "df"}, "The table cannot be called 'df': that is the frame. Give an alias."),
    ],
)
def test_a_mistake_is_told_with_what_to_write(
    twins: Twins, orders: DataFrame, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        twins.session.lookup_join(orders, **{"table": "customers", **given})
    assert message in str(caught.value)


def test_bad_options_are_told_all_at_once(twins: Twins, orders: DataFrame) -> None:
    wrong: dict[str, Any] = {"capacity": 0, "timeout": "1.5s", "on_error": "ignore", "batch_size": True}
    with pytest.raises(OptionError) as caught:
        check(twins, orders, {"k": "id"}, **wrong)
    for part in (
        "lookup_join: 'capacity' cannot be '0': it must be between 1 and",
        "lookup_join: 'timeout' cannot be '1.5s': write a whole number and a unit",
        "lookup_join: 'on_error' cannot be 'ignore': it must be one of fail, null, skip",
        "lookup_join: 'batch_size' cannot be 'true'",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("retry", "message"),
    [
        (
            FixedDelay(3, 1.0),
            "does not say what is asked again. Write FixedDelay(...).if_miss(), .if_exception()",
        ),
        (3, "retry cannot be 3. Write FixedDelay(3, 10.0).if_miss()."),
    ],
)
def test_a_retry_that_is_no_policy(twins: Twins, orders: DataFrame, retry: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check(twins, orders, {"k": "id"}, retry=retry)
    assert message in str(caught.value)


def test_what_spark_says_about_a_condition_is_said_by_spark(twins: Twins, orders: DataFrame) -> None:
    with pytest.raises(Exception, match="nope"):
        check(twins, orders, {"k": "id"}, condition="nope > 1")
    with pytest.raises(Exception, match="AMBIGUOUS_REFERENCE"):
        check(twins, orders, {"k": "id"}, condition="id > 1")


def test_no_frame_at_all(twins: Twins) -> None:
    with pytest.raises(QueryError, match="A lookup join takes a DataFrame, not str"):
        twins.session.lookup_join("orders", "customers", "id")  # type: ignore[arg-type]
