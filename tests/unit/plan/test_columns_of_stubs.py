"""Which columns of a lookup table Spark sees where it analyses the whole statement: those that it can name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.unit.plan.planning import context, planned

FROM = "FROM orders o JOIN customers c ON o.k = c.id"
ALL = ("id", "name", "country", "zip", "address")


def analysed(text: str, *, refused: bool = False) -> list[tuple[str, ...]]:
    """The columns of the first stub in each text that Spark is asked about the statement, in their order."""
    seen: list[str] = []

    def analyse(sql: str) -> tuple[tuple[str, str], ...]:
        seen.append(sql)
        if refused:
            raise ValueError(sql)
        return (("k", "bigint"),)

    using = replace(context(), analyse=analyse)
    if refused:
        with pytest.raises(ValueError, match="WHERE false"):
            planned(text, using)
    else:
        planned(text, using)
    stubs = [re.search(r"\(SELECT (CAST\(NULL AS .*?) WHERE false\)", sql) for sql in seen]
    return [tuple(re.findall(r" AS `(\w+)`", stub[1])) for stub in stubs if stub is not None]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (f"SELECT c.name {FROM}", ("id", "name")),
        (f"SELECT NAME, `zip` {FROM}", ("id", "name", "zip")),
        (f"SELECT c.address.city {FROM}", ("id", "address")),
        (f"SELECT o.zip {FROM}", ("id",)),
        (f"SELECT o.name AS zip {FROM} WHERE country > ''", ("id", "country")),
        (f"SELECT count(*) {FROM}", ("id",)),
        (f"SELECT o.k {FROM} JOIN e ON e.zip = c.zip", ("id", "zip")),
        (f"SELECT o.k, (SELECT max(e.x) FROM e WHERE e.zip = c.zip) {FROM}", ("id", "zip")),
        ("SELECT k FROM orders o JOIN customers c USING (id)", ("id",)),
        (f"SELECT * {FROM}", ALL),
        (f"SELECT o.k, c.* {FROM}", ALL),
        (f"SELECT struct(*) {FROM}", ALL),
        (f"{FROM} |> SELECT c.name", ("id", "name")),
        (f"{FROM} |> WHERE c.name > ''", ALL),
        ("SELECT o.k FROM orders o NATURAL JOIN customers c", ALL),
        (f"SELECT IDENTIFIER('c.zip') {FROM}", ALL),
        ("SELECT b FROM orders o JOIN customers c(a, b, d, e, f) ON o.k = c.a", ALL),
    ],
)
def test_they_are_those_that_it_can_name(text: str, columns: tuple[str, ...]) -> None:
    assert analysed(text)[0] == columns


def test_an_error_is_that_of_the_whole_table() -> None:
    """So that what Spark suggests may be any column."""
    assert analysed(f"SELECT c.nmae {FROM}", refused=True) == [("id",), ALL]
    assert analysed(f"SELECT c.* {FROM}", refused=True) == [ALL]
