"""What a check of a script sees in its text, beside what the planner says."""

from __future__ import annotations

import pytest

from lookup_hints.surfaces.check import check_script

TABLE = (
    "CREATE TEMPORARY TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)"
    " WITH ('connector' = '{}', 'rows' = '[]');\n"
)


def found(query: str, connector: str = "memory") -> list[str]:
    """The mistakes of a script that creates a table and runs a query, with their places."""
    return [
        f"{each.line}:{each.column} {each.message}" for each in check_script(TABLE.format(connector) + query)
    ]


@pytest.mark.parametrize(
    ("query", "mistakes"),
    [
        (
            "SELECT c.nam, o.nam FROM o JOIN c ON o.id = c.id",
            ["2:10 The table c has no column 'nam'. Did you mean 'name'?"],
        ),
        (
            "SELECT o.id FROM o JOIN c AS p ON o.id = p.id WHERE P.`Idd` = 1 AND p.nme > 'a'",
            [
                "2:55 The table c has no column 'Idd'. Did you mean 'id'?",
                "2:71 The table c has no column 'nme'. Did you mean 'name'?",
            ],
        ),
        (
            "SELECT o.id FROM o JOIN c ON o.id = c.id WHERE o.x = (SELECT max(x) FROM u WHERE u.z = c.nm)",
            ["2:90 The table c has no column 'nm'. Did you mean 'name'?"],
        ),
        (
            "SELECT o.id, FROM o JOIN c ON o.id = c.id",
            ["2:12 There is no column between this comma and FROM. Leave the comma out."],
        ),
    ],
)
def test_columns_that_are_not_there(query: str, mistakes: list[str]) -> None:
    assert found(query) == mistakes


@pytest.mark.parametrize(
    "query",
    [
        "SELECT C.NAME, c.*, o.c.nam, c.name.field FROM o JOIN c ON o.id = c.id",
        "SELECT o.id FROM o JOIN c ON o.id = c.id WHERE EXISTS (SELECT 1 FROM d AS c WHERE c.nope = 1)",
        "SELECT x.a, x.b FROM o JOIN c AS x(a, b) ON o.id = x.a",
        "FROM o |> JOIN c ON o.id = c.id |> EXTEND 1 AS n |> SELECT c.name, n",
    ],
)
def test_columns_that_may_be_there(query: str) -> None:
    assert found(query) == []


def test_a_misspelt_connector_is_one_mistake() -> None:
    (mistake,) = found("SELECT o.id, c.name FROM o JOIN c ON o.id = c.id", connector="memry")
    assert "No connector is called 'memry'. Did you mean 'memory'?" in mistake
