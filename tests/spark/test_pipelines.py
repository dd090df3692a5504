"""Joins as a pipeline defines them: over frames whose columns nobody asks for. See ``tests/processes`` for pipelines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lookup_hints import LookupSession
from lookup_hints.dataframe import join as frame_join
from lookup_hints.driver.pipelines import join_in_pipeline
from lookup_hints.errors import QueryError
from tests.spark.versions import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(SPARK < (4, 1), reason="Spark has pipelines from 4.1 on")

ROWS = [[1, "a", "Ann"], [2, "b", "Bob"], [2, "b", "Bea"], [5, None, "Eve"]]
COLUMNS = "id INT, code STRING, name STRING"


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> LookupSession:
    own = LookupSession(spark.newSession())
    own.sql(
        f"CREATE TEMPORARY TABLE people ({COLUMNS}) WITH ('connector' = 'tests.spark.counting:CountingConnector',"
        f" 'rows' = '{json.dumps(ROWS)}', 'log' = '{tmp_path}/log')"
    )
    return own


def joined(session: LookupSession, df: DataFrame, on: Any, how: str = "inner", **arguments: Any) -> DataFrame:
    """What ``session.lookup_join`` makes of its arguments in a definition file."""
    columns = arguments.pop("columns", None)
    request = frame_join.JoinRequest(
        pairs=frame_join.pairs_of(on),
        is_using=frame_join.is_using(on),
        kind=frame_join.kind_of(how, "people"),
        condition=arguments.get("condition"),
        columns=None if columns is None else frame_join.renamed(columns),
        alias="people",
        options={},
        retry=None,
        as_of=arguments.get("as_of"),
        known_as_of=arguments.get("known_as_of"),
    )
    scope = session._statements.scope
    return join_in_pipeline(df, scope.connector_of(scope.table("people")), request, scope)


def answer(frame: DataFrame) -> tuple[list[tuple[str, str]], list[str]]:
    return frame.dtypes, sorted(map(str, map(tuple, frame.collect())))


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
@pytest.mark.parametrize("on", ["id", ["code"], ["id", "code"], {"id": "id"}, {"upper(lower(code))": "code"}])
def test_rows_names_and_types_are_those_of_the_planned_join(
    session: LookupSession, how: str, on: Any, tmp_path: Path
) -> None:
    whole = session.spark.createDataFrame(
        [(1.5, 1, "a"), (2.5, 2, "x"), (3.5, None, "b"), (4.5, 7, None)], "x DOUBLE, id INT, code STRING"
    )
    expected = answer(session.lookup_join(whole, "people", on, how))
    asked = (tmp_path / "log").read_text(encoding="utf-8")
    (tmp_path / "log").unlink()
    assert answer(joined(session, whole, on, how)) == expected
    keys = {json.dumps(key) for line in asked.splitlines() for key in json.loads(line)["keys"]}
    again = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert {json.dumps(key) for line in again for key in json.loads(line)["keys"]} == keys


def test_columns_are_chosen_and_renamed(session: LookupSession) -> None:
    orders = session.spark.range(3).selectExpr("id AS order_id", "id AS id")
    assert joined(session, orders, "id", "left", columns={"name": "who", "code": "c"}).columns == [
        "id",
        "order_id",
        "who",
        "c",
    ]
    assert joined(session, orders, "id", columns=[]).columns == ["id", "order_id"]
    with pytest.raises(QueryError, match="A left semi join gives no columns of the table"):
        joined(session, orders, "id", "semi", columns=["name"])


@pytest.mark.parametrize("key", ["CAST(id AS TINYINT)", "id", "id + 4000000000"])
def test_whole_numbers_of_each_width_are_keys(session: LookupSession, key: str) -> None:
    frame = session.spark.range(3)
    expected = session.lookup_join(frame, "people", {key: "id"}, "left", columns=["name"])
    assert answer(joined(session, frame, {key: "id"}, "left", columns=["name"])) == answer(expected)


@pytest.mark.parametrize(
    ("key", "kind"), [("CAST(id AS DOUBLE)", "double"), ("CAST(id AS STRING)", "string")]
)
def test_a_key_of_another_type_is_an_error_and_no_miss(session: LookupSession, key: str, kind: str) -> None:
    frame = joined(session, session.spark.range(3), {key: "id"}, "left")
    message = rf"The key of the lookup by id is of the type {kind}, and the column is INT: give on=\{{'CAST\(\.\.\. AS INT\)'"
    with pytest.raises(Exception, match=message):
        frame.collect()


def test_what_needs_the_columns_is_refused(session: LookupSession) -> None:
    for name in ("condition", "as_of", "known_as_of"):
        with pytest.raises(QueryError, match=f"^{name}= cannot be used while a pipeline is defined"):
            joined(session, session.spark.range(3), "id", **{name: "name = 'Ann'"})
    with pytest.raises(QueryError, match="The table people has no column 'nam'"):
        joined(session, session.spark.range(3), "id", columns=["nam"])
