"""Keys and rows by way of Arrow and by way of pandas: the rows must be the same."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.queries.test_oracle import CUSTOMERS, ORDERS, PRICES, STATEMENTS
from tests.spark.oracle import Twins
from tests.spark.test_transport import BY_ARROW
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEYOND_DOUBLE = 2**53 + 1
KEYS = "id INT, i INT, l BIGINT, s STRING, m DECIMAL(20,4), d DOUBLE, f FLOAT, t DATE, z TIMESTAMP, n TIMESTAMP_NTZ, x BINARY, b BOOLEAN"
NAN = float("nan")


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]


# New York, the session's zone, has 01:30 twice on 2024-11-03 (05:30 and 06:30 UTC), and no 02:30 on 2024-03-10.
# pandas' nanoseconds end in 2262, and the other columns hold what floats and naive times cannot.
VALUES: dict[str, list[object]] = {
    "i": [2**31 - 1, -1, 0],
    "l": [BEYOND_DOUBLE, BEYOND_DOUBLE + 1, -(2**63)],
    "s": ["", "é\0x", "it's"],
    "m": [Decimal("1234567890123456.7891"), Decimal("-0.0001"), Decimal("0.0000")],
    "d": [0.1, NAN, float("-inf")],
    "f": [0.10000000149011612, NAN, -0.0],
    "t": [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "z": [utc(2024, 11, 3, 5, 30), utc(2024, 11, 3, 6, 30), utc(3024, 1, 1, 0, 0, 0, 123456)],
    "n": [datetime(2024, 3, 10, 2, 30), datetime(1024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 100000)],
    "x": [b"", b"\x00\xff", b"abc"],
    "b": [True, False, True],
}
NESTED = "id INT, words ARRAY<STRING>, numbers ARRAY<BIGINT>, point STRUCT<x: DOUBLE, at: TIMESTAMP, on: DATE>, counts MAP<STRING, BIGINT>, path ARRAY<STRUCT<n: BIGINT, x: BINARY>>"
NESTED_ROWS = [
    (
        1,
        ["a", None],
        [BEYOND_DOUBLE, None],
        (1.5, utc(2024, 11, 3, 6, 30), date(1, 1, 1)),
        {"k": BEYOND_DOUBLE, "none": None},
        [(1, b"\x00"), (None, None)],
    ),
    (2, [], [], (None, None, None), {}, []),
    (3, None, None, None, None, None),
    (3, ["again"], [1], (0.0, utc(2024, 7, 1), None), {"k": 1}, [None]),
]


@pytest.fixture(scope="module", params=[BY_ARROW, "pandas"])
def twins(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Twins:
    made = Twins(spark.newSession, tmp_path_factory.mktemp("twins"))
    made.session.sql(f"SET lookup.transport = {request.param}")
    made.table("orders", "id INT, k BIGINT, kind STRING, total DOUBLE", ORDERS)
    made.table("zips", "zip STRING, town STRING", [("10115", "Berlin"), ("75001", "Paris")])
    made.dimension("customers", "id BIGINT, name STRING, country STRING, zip STRING", CUSTOMERS, key="id")
    made.dimension("prices", "k BIGINT, kind STRING, price DOUBLE", PRICES)
    held = [(number, *values) for number, values in enumerate(zip(*VALUES.values(), strict=True))]
    nothing = (99, *[None] * len(VALUES))
    made.table("keys", KEYS, [*held, nothing, *held[:2], nothing], partitions=1)
    made.dimension("held", KEYS, [*held[1:], *held[:1], nothing])
    made.dimension("nested", NESTED, NESTED_ROWS)
    return made


# All of them run in test_oracle, by the way that a Spark takes by itself: those before 4.1 by way of pandas.
@pytest.mark.skipif(SPARK < (4, 1), reason="test_oracle runs them by way of pandas")
@pytest.mark.parametrize("twins", ["pandas"], indirect=True)
def test_some_statements_of_the_oracle(twins: Twins) -> None:
    twins.check_all(list(STATEMENTS.values())[::6])


def test_keys_of_each_type_among_nulls(twins: Twins) -> None:
    # Bytes as texts need not be text.
    answers = twins.check_all(
        f"SELECT k.id, h.id AS found, {'hex(h.x)' if column == 'x' else f'h.{column}'} AS value"
        f" FROM keys k LEFT JOIN held h ON k.{column} = h.{column}"
        for column in VALUES
    )
    for column, answer in zip(VALUES, answers, strict=True):
        assert len({found for _, found, _ in answer.rows}) == 4, f"{column}: three are found, and NULL is not"


PAIRS = [("l", "s"), ("z", "n"), ("m", "x"), ("i", "d"), ("f", "b"), ("t", "l")]


def test_composite_keys_among_nulls(twins: Twins) -> None:
    twins.check_all(
        f"SELECT k.id, h.id AS found, hex(h.x) AS x, h.{one}, h.{other} FROM keys k"
        f" LEFT JOIN held h ON k.{one} = h.{one} AND k.{other} = h.{other} AND k.id < 2"
        for one, other in PAIRS
    )


def test_composite_keys_of_which_a_query_gives_one(twins: Twins) -> None:
    twins.check_all(
        text
        for one, other in PAIRS
        for text in (
            f"SELECT k.id FROM keys k WHERE k.{one} IN (SELECT {one} FROM held WHERE {other} ="
            f" (SELECT min({other}) FROM keys))",
            f"SELECT k.id FROM keys k WHERE (k.{one}, (SELECT max({other}) FROM keys)) IN"
            f" (SELECT {one}, {other} FROM held)",
        )
    )


def test_numbers_that_no_double_holds_are_not_rounded(twins: Twins) -> None:
    rows = twins.check("SELECT k.l, h.l FROM keys k JOIN held h ON k.l = h.l")
    assert (str(BEYOND_DOUBLE), str(BEYOND_DOUBLE)) in rows
    assert all(asked == found for asked, found in rows)


def test_keys_that_spark_casts(twins: Twins) -> None:
    twins.check_all(
        f"SELECT k.id, h.id AS found FROM keys k LEFT JOIN held h ON {on}"
        for on in ("k.i = h.l", "k.l = h.i", "k.t = h.z")
    )


def test_nested_rows(twins: Twins) -> None:
    twins.check("SELECT o.id, n.* FROM orders o LEFT JOIN nested n ON o.id = n.id")
