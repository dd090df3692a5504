"""A key that Spark cannot analyse by itself: what the user reads names what the user wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lookup_hints.errors import UnsupportedLookup
from lookup_hints.plan.key_casts import key_cast
from lookup_hints.plan.spark_analysis import NamesAndTypes
from tests.unit.plan.planning import context, planned


def refusing(word: str) -> NamesAndTypes:
    """An analysis that finds ``word`` nowhere."""
    raise ValueError(
        f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `{word}` cannot be resolved. Did you mean one"
        " of the following? [`__keys`.`k0`]. SQLSTATE: 42703; line 1 pos 125;\n'Project"
    )


def refused(text: str, word: str) -> str:
    def analyse(sql: str) -> NamesAndTypes:
        is_about_keys = " AS k0" in sql
        return refusing(word) if is_about_keys and word in sql else (("a", "bigint"), ("b", "bigint"))

    with pytest.raises(UnsupportedLookup) as caught:
        planned(text, replace(context(), analyse=analyse))
    return str(caught.value)


def test_the_key_is_shown_where_it_stands_and_no_place_of_another_text() -> None:
    told = refused("SELECT 1 FROM orders o JOIN rates r\nON r.kind = 'x' AND r.currency = o.odd + 1", "odd")
    assert told == (
        "line 2, column 34: The lookup join with r cannot run: its key o.odd + 1 cannot be computed before the"
        " lookup. Spark says: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `odd` cannot be resolved."
        " Write a subquery on the left that gives o.odd + 1 as a column, and join by that.\n"
        "ON r.kind = 'x' AND r.currency = o.odd + 1\n"
        "                                 ^^^^^^^^^"
    )


def test_a_time_is_shown_at_its_place() -> None:
    told = refused(
        "SELECT 1 FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.odd AS r ON r.currency = o.k", "odd"
    )
    assert "its time o.odd cannot be computed before the lookup" in told
    assert told.endswith(" " * 56 + "^^^^^")


@pytest.mark.parametrize(
    ("left", "column", "steps"),
    [
        ("decimal(10,3)", "decimal(8,2)", ("decimal(10,3)", "decimal(8,2)")),
        ("decimal(30,20)", "decimal(20,10)", ("decimal(30,20)", "decimal(20,10)")),
        ("decimal(38,18)", "decimal(38,2)", ("decimal(38,2)", "decimal(38,2)")),
        ("decimal(20,0)", "decimal(38,18)", ("decimal(38,18)", "decimal(38,18)")),
        ("decimal(21,0)", "decimal(38,18)", None),
        ("bigint", "decimal(38,20)", None),
    ],
)
def test_decimals_are_compared_as_the_type_that_spark_takes(
    left: str, column: str, steps: tuple[str, ...] | None
) -> None:
    cast = key_cast(left, column)
    assert (cast.steps if cast is not None else None) == steps
