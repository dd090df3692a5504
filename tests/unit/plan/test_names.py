"""What names refer to, where it is known which columns there are, and what a script declares."""

from __future__ import annotations

import pytest

from lookup_hints.plan.parse.query_parts import script_variables
from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import NamesAndTypes
from lookup_hints.sql.sql_text import SqlText
from tests.unit.plan.planning import context, planned


@pytest.mark.parametrize(
    ("text", "columns", "becomes"),
    [
        (
            "SELECT (SELECT max(c.name) FROM zips z NATURAL JOIN customers c) AS n FROM orders o",
            (("id", "bigint"),),
            "SELECT (SELECT max(c.name) FROM zips z LATERAL VIEW inline(ask_customers(`id`)) c AS"
            " `__lookup_using_id`, `name`, `country`, `zip`, `address`) AS n FROM orders o",
        ),
        (  # the column of the customer, and not the alias of the zips
            "SELECT o.k FROM orders o JOIN customers c ON o.k = c.id"
            " AND o.zip = (SELECT max(country.zip) FROM zips country WHERE country = 'a')",
            (("k", "bigint"), ("zip", "string")),
            "SELECT o.k FROM (SELECT struct(o.*) AS `__lookup_1`, struct(c.*) AS `__lookup_2` FROM orders o"
            " LATERAL VIEW inline(ask_customers(o.k)) c WHERE (o.zip = (SELECT max(country.zip) FROM zips country"
            " WHERE country = 'a'))) AS `__lookup_3` JOIN LATERAL (SELECT `__lookup_1`.*) AS o JOIN LATERAL"
            " (SELECT `__lookup_2`.*) AS c",
        ),
    ],
)
def test_names_are_those_of_columns(text: str, columns: NamesAndTypes, becomes: str) -> None:
    assert planned(text, context(analyse=columns)).sql == becomes


@pytest.mark.parametrize("name", ["all", "any", "VALUES", "case", "`all`"])
def test_a_table_may_have_a_name_that_begins_an_expression_elsewhere(name: str) -> None:
    text = f"SELECT {name}.name FROM orders o JOIN customers {name} ON {name}.id = lower(o.k)"
    assert planned(text).sql.endswith(f"LATERAL VIEW inline(ask_customers(lower(o.k))) {name}")


@pytest.mark.parametrize(
    ("declared", "types"),
    [
        ("x INT; SELECT 1", {"x": "INT"}),
        ("x INT DEFAULT 3; SELECT 1", {"x": "INT"}),
        ("x, Y DECIMAL(10, 2) = 0; DECLARE z ARRAY<INT>; SELECT 1", {
            "x": "DECIMAL(10, 2)", "y": "DECIMAL(10, 2)", "z": "ARRAY<INT>"
        }),
        ("EXIT HANDLER FOR NOT FOUND SELECT 1", {}),
    ],
)  # fmt: skip
def test_variables_of_a_script_have_the_types_that_it_declares(declared: str, types: dict[str, str]) -> None:
    assert script_variables(Statement(SqlText(f"BEGIN DECLARE {declared}; END"), lambda _: None)) == types
