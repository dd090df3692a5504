"""Places in Spark's errors, moved from the text over stubs to the user's."""

from __future__ import annotations

import pytest

from lookup_hints.plan.parse.statement import Statement
from lookup_hints.plan.spark_analysis import as_written, original_place, put_in_place
from lookup_hints.sql.sql_text import SqlText
from lookup_hints.sql.text_edits import Cut, Edit, spliced

TEXT = "CREATE VIEW v AS\nSELECT c.name, o.id FROM orders o\nJOIN customers c ON o.k = c.id WHERE o.nope = 1"
QUERY = Cut(TEXT.index("SELECT"), len(TEXT))
TABLE = Cut(TEXT.index("customers c"), TEXT.index(" ON"))
EDITS = [Edit(TABLE, ("(SELECT 1 AS id) AS c",))]


class SparkError(Exception):
    def __init__(self, desc: str) -> None:
        self._desc = desc


def place_of(word: str, text: str) -> tuple[int, int]:
    before = text[: text.index(word)]
    return before.count("\n") + 1, len(before) - before.rfind("\n") - 1


@pytest.mark.parametrize("word", ["c.name", "o.id", "orders", "JOIN", "ON", "o.nope", "= 1"])
def test_a_place_is_that_of_the_users_text(word: str) -> None:
    made = spliced(TEXT, EDITS, QUERY)
    assert original_place(TEXT, EDITS, QUERY, *place_of(word, made)) == place_of(word, TEXT)


def test_a_place_in_what_the_user_did_not_write_has_none() -> None:
    assert original_place(TEXT, EDITS, QUERY, *place_of("AS id", spliced(TEXT, EDITS, QUERY))) is None


def test_an_error_names_the_users_places_and_keeps_the_rest() -> None:
    line, column = place_of("o.nope", spliced(TEXT, EDITS, QUERY))
    error = SparkError(f"no `o`.`nope`. SQLSTATE: 42703; line {line} pos {column};\n'Project [line 9 pos 9]")
    put_in_place(error, TEXT, EDITS, QUERY)
    line, column = place_of("o.nope", TEXT)
    assert (
        error._desc == f"no `o`.`nope`. SQLSTATE: 42703; line {line} pos {column};\n'Project [line 9 pos 9]"
    )


def test_the_written_query_stays_where_it_is() -> None:
    text = (
        "CACHE TABLE t AS\n SELECT /*+ LOOKUP('table'='c',\n 'async'='true'), BROADCAST(o) */ c.name FROM x c"
    )
    written = as_written(Statement(SqlText(text), lambda _: None), Cut(text.index("SELECT"), len(text)))
    assert len(written) == len(text)
    assert [len(line) for line in written.split("\n")] == [len(line) for line in text.split("\n")]
    assert "LOOKUP" not in written
    assert "CACHE" not in written
    assert place_of("c.name", written) == place_of("c.name", text)


def test_private_names_are_not_suggested() -> None:
    error = SparkError(
        "no `kk`. Did you mean one of the following? [`__lookup_relation_get_1`.`__lookup_relation_get_1_id`,"
        " `o`.`k`]. SQLSTATE: 42703"
    )
    put_in_place(error, TEXT, EDITS, QUERY)
    assert error._desc == "no `kk`. Did you mean one of the following? [`o`.`k`]. SQLSTATE: 42703"
    error = SparkError("no `kk`. Did you mean one of the following? [`__lookup_1`]. SQLSTATE: 42703")
    put_in_place(error, TEXT, EDITS, QUERY)
    assert error._desc == "no `kk`. SQLSTATE: 42703"


@pytest.mark.parametrize("attribute", ["_desc", "_message", "desc", "message"])
def test_each_spark_has_its_own_attribute_for_what_it_says(attribute: str) -> None:
    error = Exception()
    line, column = place_of("o.nope", spliced(TEXT, EDITS, QUERY))
    setattr(error, attribute, f"no `o`.`nope`; line {line} pos {column}")
    put_in_place(error, TEXT, EDITS, QUERY)
    line, column = place_of("o.nope", TEXT)
    assert getattr(error, attribute) == f"no `o`.`nope`; line {line} pos {column}"
