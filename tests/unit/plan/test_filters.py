"""Which conditions of a query go to the source when its table is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_hints.errors import InternalError
from lookup_hints.plan.explain import explain
from lookup_hints.spi import Connector, Filter, FilteredScan, LookupTable
from tests.unit.plan.planning import FakeContext, SyncOnly, context, planned, table


class Filtered(SyncOnly, FilteredScan):
    """Is never asked, and takes every filter but on the column ``secret``."""

    def key_columns(self) -> frozenset[str]:
        return frozenset()

    def can_filter(self, wanted: Filter) -> bool:
        return wanted.column != "secret"

    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        raise AssertionError("planning reads nothing")


GOODS = table(
    "goods",
    "filtered",
    {
        "id": pa.int64(),
        "name": pa.string(),
        "active": pa.bool_(),
        "price": pa.decimal128(10, 2),
        "huge": pa.decimal128(38, 10),
        "since": pa.date32(),
        "seen": pa.timestamp("us", "UTC"),
        "weight": pa.float64(),
        "place": pa.struct([("id", pa.int64())]),
        "secret": pa.int64(),
    },
)


def connector(of: LookupTable) -> Connector:
    return Filtered(of)


def using() -> FakeContext:
    return replace(context(tables={"goods": GOODS}), connector=connector)


def filters(text: str) -> list[str]:
    (scan,) = planned(text, using()).scans
    return [str(each) for each in scan.filters]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("id = 5", ["id = 5"]),
        ("g.id == -5", ["id = -5"]),
        ("(5) < (ID)", ["id > 5"]),
        ("id >= 1 AND id <= 9 AND id < 3", ["id >= 1", "id <= 9", "id < 3"]),
        ("id BETWEEN 1 AND 9", ["id >= 1", "id <= 9"]),
        ("id IN (1, 2)", ["id IN (1, 2)"]),
        ("id IS NULL", ["id IS NULL"]),
        ("id IS NOT NULL", ["id IS NOT NULL"]),
        ("NOT id IS NULL", ["id IS NOT NULL"]),
        ("id = 9223372036854775807", ["id = 9223372036854775807"]),
        ("name = 'DE'", ["name = 'DE'"]),
        ("name IN ('DE', 'é ')", ["name IN ('DE', 'é ')"]),
        ("active", ["active = TRUE"]),
        ("NOT active", ["active = FALSE"]),
        ("active = false", ["active = FALSE"]),
        ("price > 1.50", ["price > 1.50"]),
        ("price IN (1, -2.5)", ["price IN (1, -2.5)"]),
        ("since >= DATE '2024-02-29'", ["since >= DATE '2024-02-29'"]),
        ("since < '2024-02-29'", ["since < DATE '2024-02-29'"]),
        ("id = 5 AND weight > 1 AND rand() < 0.5", ["id = 5"]),
        ("id = 5 AND id = 5", ["id = 5"]),
    ],
)
def test_conditions_that_each_source_understands_alike(condition: str, found: list[str]) -> None:
    assert filters(f"SELECT name FROM goods g WHERE {condition}") == found


@pytest.mark.parametrize(
    "condition",
    [
        "id = '5'",
        "id = 5.0",
        "id = 5e0",
        "id = 9223372036854775808",
        "id = 5L",
        "id <> 5",
        "NOT id = 5",
        "id <=> 5",
        "id = 5 OR name = 'a'",
        "id + 0 = 5",
        "CAST(id AS INT) = 5",
        "id = NULL",
        "id IN (1, NULL)",
        "id IN (1, '2')",
        "id NOT IN (1, 2)",
        "id IN (SELECT 1)",
        "id = (SELECT 1)",
        "id = :id",
        "name = 5",
        r"name = 'a\nb'",
        "name = 'it''s'",
        "name = '${x}'",
        "id = 5 AND name = 'a' ${x}",
        'name = "a"',
        "name = 'a' 'b'",
        "name = 'a' COLLATE UTF8_LCASE",
        "name LIKE 'a%'",
        "active = 1",
        "id = 5 IS NULL",
        "(id = 5) = true",
        "id = 1 = true",
        "price = '1.5'",
        "price = 1.5D",
        "huge = 0.00000000001",
        "huge IN (1, 12345678901234567890123456789)",
        "since = '2024-2-9'",
        "since = '2024-02-30'",
        "since = TIMESTAMP '2024-02-29 00:00:00'",
        "weight = 1.0",
        "weight IS NULL",
        "seen IS NOT NULL",
        "place.id = 5",
        "g.place.id = 5",
        "secret = 5",
        f"id IN ({', '.join(map(str, range(1001)))})",
    ],
)
def test_all_else_is_left_to_spark(condition: str) -> None:
    assert filters(f"SELECT name FROM goods g WHERE {condition}") == []


@pytest.mark.parametrize(
    ("rows", "where", "on"),
    [
        ("goods g", "id IS NULL, id = 1", ""),
        ("goods g CROSS JOIN o", "id IS NULL, id = 1", ""),
        ("goods g JOIN o ON {}", "id IS NULL, id = 1", "name IS NULL, name = 'a'"),
        ("o JOIN goods g ON {}", "id IS NULL, id = 1", "name IS NULL, name = 'a'"),
        ("goods g LEFT JOIN o ON {}", "id IS NULL, id = 1", ""),
        ("o LEFT JOIN goods g ON {}", "id = 1", "name IS NULL, name = 'a'"),
        ("goods g RIGHT JOIN o ON {}", "id = 1", "name IS NULL, name = 'a'"),
        ("o RIGHT JOIN goods g ON {}", "id IS NULL, id = 1", ""),
        ("goods g FULL JOIN o ON {}", "id = 1", ""),
        ("o FULL JOIN goods g ON {}", "id = 1", ""),
        ("goods g LEFT SEMI JOIN o ON {}", "id IS NULL, id = 1", "name IS NULL, name = 'a'"),
        ("goods g LEFT ANTI JOIN o ON {}", "id IS NULL, id = 1", ""),
        ("o LEFT SEMI JOIN goods g ON {}", "", "name IS NULL, name = 'a'"),
        ("o LEFT ANTI JOIN goods g ON {}", "", "name IS NULL, name = 'a'"),
        ("o JOIN goods g ON {} RIGHT JOIN p ON true", "id = 1", "name IS NULL, name = 'a'"),
        ("o JOIN (p LEFT JOIN goods g ON {}) ON true", "id = 1", "name IS NULL, name = 'a'"),
    ],
)
def test_an_outer_join_lets_through_what_cannot_change_its_rows(rows: str, where: str, on: str) -> None:
    statement = f"SELECT 1 FROM {rows.format('g.name IS NULL AND g.name = {}'.format(repr('a')))}"
    assert ", ".join(filters(statement)) == on
    both = [each for each in (where, on) if each]
    assert ", ".join(filters(f"{statement} WHERE g.id IS NULL AND g.id = 1")) == ", ".join(both)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM goods TABLESAMPLE (5 ROWS) g WHERE g.id = 1",
        "SELECT 1 FROM goods g LATERAL VIEW explode(array(1)) v AS id WHERE id = 1",
        "SELECT 1 FROM o FULL JOIN goods g USING (id) WHERE id = 1",
        "SELECT 1 FROM o NATURAL FULL JOIN goods g WHERE id = 1",
        "SELECT 1 FROM goods GROUP BY id HAVING id = 1",
        "SELECT 1 FROM o ASOF JOIN goods g MATCH_CONDITION (o.t >= g.id) ON o.k = g.id AND g.id = 2 WHERE g.id = 1",
        "SELECT 1 FROM o ASOF JOIN (goods g CROSS JOIN p) MATCH_CONDITION (o.t >= p.t) WHERE g.id = 1",
        "SELECT 1 FROM goods PIVOT (max(price) FOR name IN ('a' AS id)) WHERE id = 1",
        "SELECT 1 FROM goods g JOIN o PIVOT (max(price) FOR name IN ('a' AS id)) WHERE id = 1",
        "SELECT 1 FROM goods UNPIVOT (id FOR k IN (secret)) WHERE id = 1",
        "FROM goods |> SET id = 1 |> WHERE id = 1",
        "SELECT name AS id FROM goods |> WHERE id = 1",
        "FROM goods |> LIMIT 5 |> WHERE id = 1",
        "FROM goods INSERT INTO a SELECT id WHERE id = 1 INSERT INTO b SELECT id WHERE id = 2",
    ],
)
def test_what_is_filtered_elsewhere_is_left_to_spark(text: str) -> None:
    assert [each.filters for each in planned(text, using()).scans] == [()]


def test_columns_go_by_the_names_that_the_query_gives_them() -> None:
    assert filters("SELECT 1 FROM goods AS g(a, b, c, d, e, f, g, h, i, j) WHERE g.b = 'x' AND a = 1") == [
        "name = 'x'",
        "id = 1",
    ]


def test_each_query_block_has_filters_of_its_own() -> None:
    text = "SELECT 1 FROM goods WHERE id = 1 UNION ALL FROM goods |> WHERE id = 2"
    assert [list(map(str, scan.filters)) for scan in planned(text, using()).scans] == [["id = 1"], ["id = 2"]]


def test_conditions_stay_in_the_statement_and_explain_shows_the_filters() -> None:
    plan = planned("SELECT name FROM goods WHERE id = 1 AND active", using())
    assert plan.sql.endswith("WHERE id = 1 AND active")
    assert "    filters       id = 1 AND active = TRUE\n" in explain(plan)


def test_other_filters_are_another_relation() -> None:
    named: list[tuple[Filter, ...]] = []

    def name_scan(
        _: LookupTable, __: tuple[str, ...], filters: tuple[Filter, ...], ___: tuple[str, ...]
    ) -> str:
        named.append(filters)
        return f"scan_{len(named)}"

    planned("SELECT name FROM goods WHERE id = 1", replace(using(), name_scan=name_scan))
    assert named == [(Filter("id", "=", (1,)),)]


@pytest.mark.parametrize(("op", "values"), [("<>", (1,)), ("=", ()), ("IN", ()), ("IS NULL", (1,))])
def test_a_filter_is_checked_at_birth(op: str, values: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="a filter cannot be"):
        Filter("id", op, values)
