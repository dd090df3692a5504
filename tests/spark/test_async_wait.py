"""async_wait: functions of the user's own, async and plain; what they return; retries; streams; mistakes."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)
from pyspark.sql.types import LongType, StructField, StructType

from lookup_hints import ExponentialDelay, FixedDelay, async_wait
from lookup_hints.errors import DdlError, OptionError, QueryError
from tests.spark.answers import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count()
ROWS = [(1, 2, "a"), (2, 3, "b"), (3, None, "c"), (4, 9, "d"), (5, 2, "e")]


@pytest.fixture(scope="module")
def numbers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Rows in one task, so that what a function is called for can be counted."""
    path = str(tmp_path_factory.mktemp("numbers") / "rows")
    spark.createDataFrame(ROWS, "id INT, k INT, s STRING").coalesce(1).write.parquet(path)
    return spark.read.schema("id INT, k INT, s STRING").parquet(path).coalesce(1)


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


# The functions here are made inside tests, as those of a notebook are: workers get them with their code.


def logged(log: Path, what: str) -> None:
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
        file.write(f"{what}\n")


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


# --- what is called and what it returns -------------------------------------------------------------


def test_an_async_function_for_each_row(numbers: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    async def double(k: int) -> int:
        logged(log, str(k))
        await asyncio.sleep(0)
        return 2 * k

    doubled = async_wait(numbers, double, ["k"], "double BIGINT")
    assert not lines(log), "lazy"
    assert doubled.columns == ["id", "k", "s", "double"]
    assert doubled.schema["double"].dataType.simpleString() == "bigint"
    assert rows(doubled, "id", "double") == [(1, 4), (2, 6), (3, None), (4, 18), (5, 4)]
    assert sorted(lines(log)) == ["2", "3", "9"], "equal inputs once, NULL never"


def test_a_plain_function_runs_on_threads(numbers: DataFrame) -> None:
    def slow(number: int) -> str:
        time.sleep(0.2)
        return f"n{number}"

    many = numbers.sparkSession.range(0, 400, 1, 1)
    started = time.monotonic()
    assert rows(async_wait(many, slow, ["id"], "n STRING", capacity=100), "n")[:2] == [("n0",), ("n1",)]
    assert time.monotonic() - started < 40, "one after the other it would take 80 s"


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (lambda k: (k, "x"), [(2, "x")]),
        (lambda k: {"m": k, "n": "x"}, [(2, "x")]),
        (lambda k: {"n": "x"}, [(None, "x")]),
        (lambda k: [(k, "x"), {"m": 7}], [(2, "x"), (7, None)]),
        (lambda k: [], []),
        (lambda k: None, []),
    ],
)
def test_one_row_many_or_none(
    numbers: DataFrame, returned: Callable[[int], Any], found: list[tuple[Any, ...]]
) -> None:
    one = numbers.filter("id = 1")
    assert rows(async_wait(one, returned, ["k"], "m INT, n STRING", how="inner"), "m", "n") == found
    kept = async_wait(one, returned, ["k"], "m INT, n STRING")
    assert rows(kept, "m", "n") == (found or [(None, None)])


def test_values_of_each_type_arrive_and_leave(spark: SparkSession) -> None:
    kinds = "b BOOLEAN, l BIGINT, d DOUBLE, m DECIMAL(10,2), s STRING, x BINARY, t DATE, z TIMESTAMP, n TIMESTAMP_NTZ"

    def same(*values: Any) -> tuple[Any, ...]:
        _, _, _, m, _, x, t, z, n = values
        assert (type(m), type(t), type(x)) == (Decimal, date, bytes), values
        assert z.tzinfo is not None
        assert n.tzinfo is None
        return values

    one = spark.sql(
        "SELECT true b, 7L l, 0.5D d, CAST(1.25 AS DECIMAL(10,2)) m, 'é' s, X'00ff' x, DATE'2024-02-29' t,"
        " TIMESTAMP'2024-11-03 01:30:00' z, TIMESTAMP_NTZ'2024-03-10 02:30:00' n"
    )
    returns = ", ".join(f"r_{each.strip()}" for each in kinds.split(", "))
    result = async_wait(one, same, one.columns, returns).collect()[0]
    assert tuple(result)[9:] == tuple(result)[:9]
    assert isinstance(result.r_z, datetime)


def test_inputs_are_columns_expressions_and_columns_of_the_frame(numbers: DataFrame) -> None:
    def told(*values: Any) -> str:
        return repr(values)

    aliased = numbers.filter("id = 1").alias("n")
    result = async_wait(aliased, told, ["K", "n.s", "k + 1", F.upper(aliased.s), "k"], "told STRING")
    assert result.columns == ["id", "k", "s", "told"]
    assert rows(result, "told") == [("(2, 'a', 3, 'A', 2)",)]


def test_returns_can_be_a_struct_type(numbers: DataFrame) -> None:
    returns = StructType([StructField("a b", LongType())])
    result = async_wait(numbers, lambda k: k, [numbers.k], returns)
    assert result.schema["a b"].dataType == LongType()


def test_callable_objects_and_partials(numbers: DataFrame) -> None:
    class Adds:
        def __init__(self, more: int) -> None:
            self.more = more

        async def __call__(self, k: int) -> int:
            return k + self.more

    async def plus(more: int, k: int) -> int:
        return k + more

    for function in (Adds(10), partial(plus, 10)):
        assert rows(async_wait(numbers, function, ["k"], "m INT", how="inner"), "m")[0] == (12,)


# --- capacity, time, retries, failures ----------------------------------------------------------------


def test_capacity_bounds_the_calls_at_once(spark: SparkSession, tmp_path: Path) -> None:
    running = 0

    async def count(number: int) -> int:
        nonlocal running
        running += 1
        most = running
        await asyncio.sleep(0.02)
        running -= 1
        return most

    few = async_wait(spark.range(0, 60, 1, 1), count, ["id"], "most INT", capacity=7)
    assert few.agg(F.max("most")).collect()[0][0] == 7


@pytest.mark.parametrize("plain", [False, True])
def test_timeout_is_for_each_row(numbers: DataFrame, plain: bool) -> None:
    async def stuck(k: int) -> int:
        await asyncio.sleep(600 if k == 9 else 0)
        return k

    def blocked(k: int) -> int:
        time.sleep(8 if k == 9 else 0)
        return k

    function = blocked if plain else stuck
    with pytest.raises(Exception, match=r"1 key \(k = 9\).*no final outcome within the timeout of 3 s"):
        async_wait(numbers, function, ["k"], "m INT", timeout=3.0).collect()
    kept = async_wait(numbers, function, ["k"], "m INT", timeout=3.0, on_error="null")
    assert rows(kept, "id", "m") == [(1, 2), (2, 3), (3, None), (4, None), (5, 2)]


def test_a_failure_fails_the_query_with_its_cause(numbers: DataFrame) -> None:
    async def fails(k: int) -> int:
        raise OSError("no route to host")

    with pytest.raises(Exception, match="OSError: no route to host"):
        async_wait(numbers, fails, ["k"], "m INT").collect()
    assert async_wait(numbers, fails, ["k"], "m INT", on_error="null").filter("m IS NULL").count() == 5
    assert async_wait(numbers, fails, ["k"], "m INT", on_error="skip").count() == 1


def test_retry_on_an_exception_on_a_result_and_on_a_miss(numbers: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    async def late(k: int) -> int | None:
        logged(log, str(k))
        attempt = lines(log).count(str(k))
        if k == 2 and attempt == 1:
            raise ConnectionResetError("reset")
        if k == 3 and attempt < 3:
            return None
        return -1 if attempt == 1 and k == 9 else k

    def negative(found: Sequence[Mapping[str, Any]]) -> bool:
        return any(row["m"] < 0 for row in found)

    retry = ExponentialDelay(3, 0.01).if_exception(OSError).if_result(negative).if_miss()
    result = async_wait(numbers, late, ["k"], "m INT", how="inner", retry=retry)
    assert rows(result, "id", "m") == [(1, 2), (2, 3), (4, 9), (5, 2)]
    assert sorted(lines(log)) == ["2", "2", "3", "3", "3", "9", "9"]


def test_another_exception_is_not_retried(numbers: DataFrame, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def wrong(k: int) -> int:
        logged(log, "called")
        raise ValueError("not a number")

    one = numbers.filter("id = 1")
    with pytest.raises(Exception, match=r"ValueError: not a number\. .* failed after 1 attempt"):
        async_wait(one, wrong, ["k"], "m INT", retry=FixedDelay(3, 0.01).if_exception(OSError)).collect()
    assert len(lines(log)) == 1


def test_a_row_that_waits_for_its_retry_holds_no_slot(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    async def first_misses(number: int) -> int | None:
        logged(log, str(number))
        return None if number == 0 and lines(log).count("0") == 1 else number

    retry = FixedDelay(1, 4.0).if_miss()
    result = async_wait(
        spark.range(0, 20, 1, 1), first_misses, ["id"], "n BIGINT", capacity=1, ordered=False, retry=retry
    )
    assert rows(result, "n") == sorted(((number,) for number in range(20)), key=repr)
    assert lines(log)[-1] == "0", "all others were asked meanwhile"


# --- streams -------------------------------------------------------------------------------------------


def test_a_stream_gets_the_rows_of_the_batch(numbers: DataFrame, tmp_path: Path) -> None:
    async def double(k: int) -> int:
        return 2 * k

    files = str(tmp_path / "arriving")
    numbers.repartition(2).write.parquet(files)
    arriving = numbers.sparkSession.readStream.schema(numbers.schema).parquet(files)
    name = f"waited_{next(_numbers)}"
    writing = async_wait(arriving, double, ["k"], "m INT").writeStream.format("memory").queryName(name)
    options = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert options.trigger(availableNow=True).start().awaitTermination(120)
    expected = async_wait(numbers, double, ["k"], "m INT")
    assert sorted(collected(numbers.sparkSession.table(name))) == sorted(collected(expected))


# --- mistakes ------------------------------------------------------------------------------------------


async def one_argument(k: int) -> int:
    return k


async def generated(k: int) -> Any:
    yield k


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"func": "rate"}, "async_wait takes a function, not 'rate'."),
        ({"func": generated}, "generated yields its rows. Return them, as a list."),
        ({"inputs": "k"}, "inputs cannot be 'k'. Write inputs=['column', ...]."),
        ({"inputs": []}, "inputs cannot be []. Write inputs=['column', ...]."),
        ({"inputs": ["k", "s"]}, "cannot be called with 2 inputs: too many positional arguments."),
        ({"inputs": ["array(k)"]}, "The input array(k) cannot be asked by: it is ARRAY<INT>. Give its parts"),
        ({"returns": "S STRING"}, "The frame has a column 'S' already. Give the result another name."),
        ({"how": "semi"}, "async_wait cannot be 'semi'. Write how='left' or how='inner'."),
    ],
)
def test_a_mistake_is_told_with_what_to_write(
    numbers: DataFrame, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        async_wait(numbers, **{"func": one_argument, "inputs": ["k"], "returns": "m INT", **wrong})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ("DOUBLE", "line 1, column 7: Column 'DOUBLE': The type is missing."),
        ("m INTT", "line 1, column 3: Column 'm': The type is missing before INTT. Did you mean 'INT'?"),
        ("", "The column list is empty. Write names and types: 'name STRING'."),
        ("m INT, PRIMARY KEY (m) NOT ENFORCED", "A PRIMARY KEY cannot stand here. Leave it out."),
    ],
)
def test_bad_types_are_shown(numbers: DataFrame, returns: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        async_wait(numbers, one_argument, ["k"], returns)
    assert message in str(caught.value)


def test_bad_options_are_told_all_at_once(numbers: DataFrame) -> None:
    with pytest.raises(OptionError) as caught:
        async_wait(numbers, one_argument, ["k"], "m INT", capacity=0, timeout=0.0001)
    assert "async_wait: 'capacity' cannot be '0'" in str(caught.value)
    assert "async_wait: 'timeout' cannot be '0 ms': it must be at least 1 ms" in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            lambda k: (1, 2, 3),
            r"returned a tuple of 3, \(1, 2, 3\); expected for each row a dictionary or a tuple",
        ),
        (lambda k: 5, "returned a int, 5; expected for each row"),
        (lambda k: {"o": 1}, "a row has 'o', which is not a column"),
        (lambda k: ("x", "y"), "does not fit INT"),
    ],
)
def test_what_a_function_may_not_return(numbers: DataFrame, returned: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        async_wait(numbers, returned, ["k"], "m INT, n STRING").collect()
