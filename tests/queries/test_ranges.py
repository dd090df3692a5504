"""Joins by a range without a key: the rows are those of Spark's own join, from the whole table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lookup_hints.errors import UnsupportedLookup
from tests.queries.worlds import QUICK, Data, World, Worlds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKUPS = frozenset({"nets", "kinds"})


def utc(day: int) -> datetime:
    return datetime(2024, 3, day, 12, tzinfo=timezone.utc)


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int32(), [-(2**31), -1, 0, 3, None, 2**31 - 1]),
    "real": (pa.float64(), [-inf, -0.0, 0.0, None, 1.5, nan]),
    "money": (pa.decimal128(20, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25"), None, Decimal(10**17), None]),
    "text": (pa.string(), ["", "a", "ab", None, "é", "\uffff"]),
    "day": (pa.date32(), [date(2020, 1, 1), None, date(2024, 2, 29), date(2024, 3, 1), None, date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [utc(9), utc(10), None, utc(11), utc(12), utc(13)]),
    "local": (pa.timestamp("us"), [utc(each).replace(tzinfo=None) for each in (9, 10, 11)] + [None] * 3),
}  # fmt: skip
ENDS = {
    name: values
    for kind, (arrow_type, every) in VALUES.items()
    for name, values in (
        (f"{kind}_lo", pa.array([every[at] for at in (0, 1, 2, 3, 1, 4, 0)], arrow_type)),
        (f"{kind}_hi", pa.array([every[at] for at in (1, 3, 1, 5, 1, 5, 3)], arrow_type)),
    )
}
TABLES = {
    "hits": Data(pa.table({"no": list(range(9)), "ip": [0, 9, 10, 15, 20, 25, 30, None, 15], "k": [1, 2] * 4 + [None]})),
    "nets": Data(
        pa.table(
            {
                "lo": [10, 20, 0, 12, None, 25, 10, 10],
                "hi": [20, 29, 8, 17, 40, 5, None, 20],
                "name": ["a", "b", "c", "inner", "no start", "reversed", "no end", "a"],
                "k": [1, 1, 2, 2, 1, 1, 2, None],
            }
        )
    ),
    "kinds": Data(pa.table({"no": list(range(7)), **ENDS})),
    "asked": Data(pa.table({"no": list(range(6)), **{kind: pa.array(*each[::-1]) for kind, each in VALUES.items()}})),
}  # fmt: skip

RANGES = [
    "h.ip BETWEEN n.lo AND n.hi",
    "n.lo <= h.ip AND h.ip < n.hi",
    "h.ip > n.lo AND n.hi >= h.ip",
    "(h.ip > n.lo) AND (h.ip < n.hi)",
    "h.ip + 1 BETWEEN n.lo AND n.hi AND n.name <> 'a'",
    "h.ip BETWEEN n.lo AND n.hi AND h.k = 1",
    "h.ip BETWEEN n.lo AND n.hi AND h.ip < n.hi AND n.lo + n.hi > h.no",
    "15 BETWEEN n.lo AND n.hi AND h.no > 3",
    "CASE WHEN h.no BETWEEN 2 AND 4 THEN 15 ELSE h.ip END BETWEEN n.lo AND n.hi",
    "CAST(h.ip AS INT) BETWEEN n.lo AND n.hi",
]
ASKED = [
    " UNION ALL ".join(
        f"SELECT '{kind}' AS kind, {shown} FROM hits h {kind} JOIN nets n ON {condition}"
        for kind, shown in (
            ("INNER", "h.no, n.name, n.lo"),
            ("LEFT", "h.no, n.name, 1"),
            ("LEFT SEMI", "h.no, '', 1"),
            ("LEFT ANTI", "no, '', ip"),
        )
    )
    for condition in RANGES
]
ASKED += [
    "SELECT n.lo, m.name FROM hits h JOIN nets n ON h.ip BETWEEN n.lo AND n.hi LEFT JOIN nets m ON n.hi BETWEEN m.lo AND m.hi",
    "SELECT * FROM hits |> JOIN nets n ON ip BETWEEN n.lo AND n.hi |> SELECT no, name",
    "SELECT * FROM hits |> LEFT JOIN nets n ON ip BETWEEN n.lo AND n.hi |> SELECT no, name",
    "SELECT h.no, n.name FROM hits h JOIN (SELECT name, lo AS a, hi AS b FROM nets WHERE name <> 'inner') n"
    " ON h.ip BETWEEN n.a AND n.b",
    "SELECT h.no, n.twice FROM hits h LEFT JOIN (SELECT concat(name, name) AS twice, lo, hi FROM nets) n"
    " ON h.ip BETWEEN n.lo AND n.hi",
    "SELECT count(*), max(n.name) FROM hits h JOIN nets n ON h.ip BETWEEN n.lo AND n.hi GROUP BY h.k",
    "SELECT h.no FROM hits h JOIN nets n(p, q, r, s) ON h.ip BETWEEN p AND q WHERE r = 'a' OR s = 2",
    "SELECT * FROM hits h, nets n WHERE h.ip BETWEEN n.lo AND n.hi AND n.name <> 'b'",
    "SELECT n.name, h.no FROM nets n, (hits h LEFT JOIN asked a ON a.no = h.no) WHERE h.ip >= n.lo AND n.hi > h.ip",
    "SELECT h.no, n.name FROM hits h CROSS JOIN nets n WHERE h.ip BETWEEN n.lo AND n.hi AND h.k = 2",
    "SELECT * FROM nets n JOIN hits h ON h.ip BETWEEN n.lo AND n.hi",
    "SELECT * FROM nets n RIGHT JOIN hits h ON h.ip BETWEEN n.lo AND n.hi AND n.name <> 'a'",
    "SELECT h.no FROM hits h WHERE h.no IN (SELECT g.no FROM hits g JOIN nets n ON g.ip BETWEEN n.lo AND n.hi)",
    *(
        " UNION ALL ".join(
            f"SELECT '{no}', h.no FROM hits h WHERE h.no < 8 AND {no} EXISTS (SELECT 1 FROM nets n WHERE {condition})"
            for no in ("", "NOT")
        )
        for condition in RANGES[:7]
    ),
]  # fmt: skip
READ = {
    "no equality": [
        "SELECT * FROM hits h JOIN nets n ON h.ip >= n.lo",
        "SELECT * FROM hits h JOIN nets n ON h.ip >= n.lo AND h.no <= n.hi",
        "SELECT * FROM hits h JOIN nets n ON h.ip NOT BETWEEN n.lo AND n.hi",
        "SELECT * FROM hits h JOIN nets n ON h.ip BETWEEN n.lo AND n.hi OR h.no = 1",
        "SELECT * FROM hits h JOIN nets n ON h.ip BETWEEN n.lo + 1 AND n.hi",
        "SELECT * FROM hits h JOIN nets n ON n.k BETWEEN n.lo AND n.hi",
        "SELECT h.no FROM hits h, asked a, nets n WHERE a.no BETWEEN n.lo AND n.hi AND h.no = a.no",
        "SELECT h.no FROM hits h LEFT JOIN nets n ON h.no > 1 WHERE h.ip BETWEEN n.lo AND n.hi",
        "SELECT h.no FROM hits h JOIN nets n ON (SELECT max(ip) FROM hits) BETWEEN n.lo AND n.hi",
    ],
    "compares DOUBLE with lo, which is BIGINT": [
        "SELECT * FROM hits h JOIN nets n ON CAST(h.ip AS DOUBLE) BETWEEN n.lo AND n.hi"
    ],
    "compares DECIMAL(20,0) with lo": [
        "SELECT h.no FROM hits h JOIN nets n ON CAST(h.ip AS DECIMAL(20,0)) BETWEEN n.lo AND n.hi"
    ],
}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("ranges"), TABLES, QUICK, "memory")


@pytest.fixture
def world(worlds: Worlds) -> Iterator[World]:
    found = worlds.world(LOOKUPS)
    yield found
    for key in ("lookup.on-scan", "lookup.scan.max-rows", "lookup.access"):
        found.session.spark.conf.unset(key)


EACH_TYPE = [
    f"SELECT a.no AS asked, k.no FROM asked a LEFT JOIN kinds k ON a.{kind} {condition.format(kind)}"
    for kind in VALUES
    for condition in ("BETWEEN k.{0}_lo AND k.{0}_hi", ">= k.{0}_lo AND a.{0} < k.{0}_hi")
]


@pytest.mark.parametrize("texts", [ASKED, EACH_TYPE], ids=["each form", "each type"])
def test_the_rows_are_sparks(worlds: Worlds, world: World, texts: list[str]) -> None:
    worlds.check_all(texts, LOOKUPS)
    for text in texts:
        assert "in range, from the whole table" in world.session.explain(text), text


@pytest.mark.parametrize("cache", ["none", "partial"])
def test_without_full_a_range_without_a_key_keeps_the_whole_table_for_one_statement(
    worlds: Worlds, world: World, cache: str
) -> None:
    hinted = BY_RANGE.replace("SELECT", f"SELECT /*+ LOOKUP('table'='n', 'cache'='{cache}') */", 1)
    assert "each executor reads the table for this statement" in world.session.explain(hinted)
    worlds.check(hinted, LOOKUPS)


def test_what_is_no_range_of_one_value_is_joined_by_spark(worlds: Worlds, world: World) -> None:
    worlds.check_all([text for texts in READ.values() for text in texts], LOOKUPS)
    for why, text in ((why, text) for why, texts in READ.items() for text in texts):
        plan = world.session.explain(text)
        assert "Whole table nets is read" in plan, text
        assert why in plan, text
        if "," not in text:
            hinted = text.replace("SELECT", "SELECT /*+ LOOKUP('table'='n') */", 1)
            with pytest.raises(UnsupportedLookup, match=re.escape(why)):
                world.session.sql(hinted)


BY_RANGE = "SELECT h.no, n.name FROM hits h LEFT JOIN nets n ON h.ip BETWEEN n.lo AND n.hi"
BY_KEY = f"{BY_RANGE} AND h.k = n.k"


def test_beside_an_equality_the_range_is_checked_on_the_rows_of_the_key(worlds: Worlds, world: World) -> None:
    worlds.check(BY_KEY, LOOKUPS)
    assert "residual   h.ip BETWEEN n.lo AND n.hi" in re.sub(r" {4,}", "   ", world.session.explain(BY_KEY))


@pytest.mark.parametrize(("key", "value"), [("lookup.on-scan", "error"), ("lookup.scan.max-rows", "7")])
def test_a_table_that_may_not_be_read_is_not_kept_whole(world: World, key: str, value: str) -> None:
    world.session.spark.conf.set(key, value)
    with pytest.raises(UnsupportedLookup, match=re.escape(f"'{key}' = '{value}'")):
        world.session.sql(BY_RANGE)


def test_who_wants_spark_to_join_says_so(worlds: Worlds, world: World) -> None:
    world.session.spark.conf.set("lookup.access", "scan")
    worlds.check(BY_RANGE, LOOKUPS)
    assert "Whole table nets is read" in world.session.explain(BY_RANGE)


def test_a_retry_of_misses_cannot_ask(world: World) -> None:
    hint = (
        "/*+ LOOKUP('table'='n', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
        " 'fixed-delay'='1s', 'max-attempts'='2') */"
    )
    with pytest.raises(UnsupportedLookup, match="a retry asks for rows that were not there"):
        world.session.sql(BY_RANGE.replace("SELECT", f"SELECT {hint}"))
