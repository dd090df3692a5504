"""The memory connector: rows given in Python and as JSON, and what is wrong with some."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup_connectors.memory import MemoryConnector, put_rows

from lookup_hints.errors import OptionError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ
from lookup_hints.spi.request_and_answer import LookupTable
from tests.unit.connectors.asking import failure_of, request_for, rows_of

UTC = timezone.utc
PEOPLE = pa.schema([("id", pa.int64()), ("name", pa.string())])


def connector_of(schema: pa.Schema = PEOPLE, **options: str) -> MemoryConnector:
    connector = MemoryConnector(LookupTable("people", schema, options=options))
    connector.check()
    return connector


def ask(connector: MemoryConnector, keys: dict[str, list[Any]]) -> list[dict[str, Any]]:
    connector.open()
    found = connector.lookup(request_for(connector.table.schema, keys))
    rows: list[dict[str, Any]] = rows_of(found).to_pylist()
    return rows


ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}, {"name": "nobody"}]


@pytest.mark.parametrize(
    "rows",
    [ROWS, pd.DataFrame(ROWS).astype({"id": "Int64"}), pa.Table.from_pylist(ROWS), tuple(ROWS)],
    ids=["dictionaries", "DataFrame", "Arrow table", "tuple"],
)
def test_rows_are_given_in_several_forms(rows: Any) -> None:
    put_rows("people", rows)
    assert ask(connector_of(), {"id": [2, 1, 3]}) == [{"id": 2, "name": None}, {"id": 1, "name": "Ada"}]


def test_the_option_data_names_the_rows() -> None:
    put_rows("friends", ROWS[:1])
    assert ask(connector_of(data="friends"), {"id": [1]}) == ROWS[:1]


def test_rows_are_replaced_for_connectors_built_afterwards() -> None:
    put_rows("people", [{"id": 1, "name": "old"}])
    before = connector_of()
    put_rows("people", [{"id": 1, "name": "new"}])
    assert ask(before, {"id": [1]}) == [{"id": 1, "name": "old"}]
    assert ask(connector_of(), {"id": [1]}) == [{"id": 1, "name": "new"}]


def test_a_list_that_changes_after_it_was_given_does_not_matter() -> None:
    rows = [{"id": 1, "name": "Ada"}]
    put_rows("people", rows)
    rows[0]["name"] = "changed"
    assert ask(connector_of(), {"id": [1]}) == [{"id": 1, "name": "Ada"}]


def test_rows_travel_inside_the_pickle_with_or_without_a_check() -> None:
    put_rows("people", ROWS)
    for connector in (connector_of(), MemoryConnector(LookupTable("people", PEOPLE))):
        data = pickle.dumps(connector)
        put_rows("people", [])
        assert ask(pickle.loads(data), {"id": [1]}) == ROWS[:1]
        put_rows("people", ROWS)


@pytest.mark.parametrize(
    "rows",
    [
        '[{"id": 1, "name": "Ada"}, {"id": 2}]',
        '[[1, "Ada"], [2, null]]',
        ' [[1,"Ada"], {"name": null, "id": 2}]',
    ],
)
def test_rows_are_given_as_json(rows: str) -> None:
    assert ask(connector_of(rows=rows), {"id": [1, 2]}) == [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}]


def test_json_may_hold_no_rows() -> None:
    assert ask(connector_of(rows="[]"), {"id": [1]}) == []


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        (pa.date32(), "2024-02-29", date(2024, 2, 29)),
        (TIMESTAMP_NTZ, "2024-02-29 12:00:00", datetime(2024, 2, 29, 12)),
        (TIMESTAMP, "2024-02-29T12:00:00+01:00", datetime(2024, 2, 29, 11, tzinfo=UTC)),
        (pa.decimal128(20, 2), "12345678901234567.89", Decimal("12345678901234567.89")),
        (pa.float64(), 1, 1.0),
        (pa.bool_(), False, False),
        (pa.list_(pa.int64()), [1, None], [1, None]),
        (pa.map_(pa.int32(), pa.date32()), {"5": "2024-02-29"}, [(5, date(2024, 2, 29))]),
        (
            pa.struct([("a", pa.list_(pa.date32()))]),
            {"a": ["2024-02-29", None]},
            {"a": [date(2024, 2, 29), None]},
        ),
        (
            pa.list_(pa.struct([("d", pa.date32())])),
            [None, {"d": "2024-02-29"}],
            [None, {"d": date(2024, 2, 29)}],
        ),
    ],
    ids=str,
)
def test_json_is_read_as_the_declared_type(kind: pa.DataType, written: Any, expected: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    connector = connector_of(schema, rows=json.dumps([[1, written], [2, None], [3, written]]))
    values = [row["v"] for row in ask(connector, {"id": [1, 2, 3]})]
    assert values == [expected, None, expected]


def test_a_fraction_in_json_is_an_exact_decimal() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.decimal128(30, 20))])
    connector = connector_of(schema, rows="[[1, 0.10000000000000000001]]")
    assert ask(connector, {"id": [1]})[0]["v"] == Decimal("0.10000000000000000001")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "1"), (pa.int64(), 1.0), (pa.int64(), True), (pa.int8(), 300), (pa.string(), 1),
        (pa.string(), b"a"), (pa.float64(), True), (pa.float64(), 2**53 + 1), (pa.binary(), "a"),
        (pa.bool_(), 1), (pa.date32(), datetime(2024, 1, 1)), (pa.date32(), "2024-01-01"),
        (TIMESTAMP, datetime(2024, 1, 1)), (TIMESTAMP_NTZ, datetime(2024, 1, 1, tzinfo=UTC)),
        (pa.decimal128(4, 2), Decimal("1.005")), (pa.decimal128(4, 2), 0.5), (pa.list_(pa.int64()), "ab"),
        (pa.duration("us"), 5),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_another_type_is_an_error_with_row_and_column(kind: pa.DataType, value: Any) -> None:
    put_rows("people", [{"id": 1, "v": None}, {"id": 2, "v": value}])
    with pytest.raises(OptionError) as raised:
        connector_of(pa.schema([("id", pa.int64()), ("v", kind)]))
    assert "column 'v' of the row number 2" in str(raised.value)
    assert f"({type(value).__name__})" in str(raised.value)


def test_a_value_in_an_arrow_table_that_does_not_fit_is_named_too() -> None:
    put_rows("people", pa.table({"id": [1, 2**40], "name": ["a", "b"]}))
    with pytest.raises(OptionError, match="row number 2: 1099511627776"):
        connector_of(pa.schema([("id", pa.int32()), ("name", pa.string())]))
    put_rows("people", pa.table({"id": ["1", "2"], "name": ["a", "b"]}))
    with pytest.raises(OptionError, match="'id' of the row number 1"):
        connector_of()


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"rows": "[{"}, "not JSON"),
        ({"rows": "[" * 50_000}, "option 'rows': the JSON is nested too deep to be read"),
        ({"rows": '{"id": 1}'}, "must be a JSON array"),
        ({"rows": "[[1]]"}, "row number 1 of 'rows' must be an object, or an array of 2 values"),
        ({"rows": '[{"id": 1, "nmae": "x"}]'}, "no column 'name'. Did you mean 'nmae'?"),
        ({"rows": '[["1", "x"]]'}, "column 'id' of the row number 1"),
        ({"rows": "[]", "data": "x"}, "'data' and 'rows'"),
        ({"data": "peeple"}, r"put_rows\('peeple', rows\) first. Did you mean 'people'?"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, str], shown: str) -> None:
    put_rows("people", ROWS)
    with pytest.raises(OptionError, match=shown.replace("?", r"\?")):
        connector_of(**options)


def test_what_is_no_rows_is_refused() -> None:
    with pytest.raises(TypeError, match="dictionaries"):
        put_rows("people", [1, 2])


def test_the_schema_is_told_from_the_values() -> None:
    given = {
        "i": 1, "s": "x", "b": True, "f": 1.5, "n": Decimal("1.50"), "x": b"x", "d": date(2024, 1, 1),
        "t": datetime(2024, 1, 1, tzinfo=UTC), "z": datetime(2024, 1, 1), "v": timedelta(1), "l": [1],
        "r": {"a": 1},
    }  # fmt: skip
    put_rows("people", [{}, given])
    schema, key = MemoryConnector(LookupTable("people", pa.schema([]))).discover()
    assert key == ()
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "i": pa.int64(), "s": pa.string(), "b": pa.bool_(), "f": pa.float64(), "n": pa.decimal128(3, 2),
        "x": pa.binary(), "d": pa.date32(), "t": TIMESTAMP, "z": TIMESTAMP_NTZ, "v": pa.duration("us"),
        "l": pa.list_(pa.int64()), "r": pa.struct([("a", pa.int64())]),
    }  # fmt: skip


def test_the_schema_of_a_data_frame_is_told_in_sparks_types() -> None:
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-01-01"]), "c": pd.Categorical(["x"]), "i": [1]})
    put_rows("people", frame)
    told, _ = MemoryConnector(LookupTable("people", pa.schema([]))).discover()
    assert told.types == [TIMESTAMP_NTZ, pa.string(), pa.int64()]
    assert ask(connector_of(told), {"c": ["x"]}) == [{"t": datetime(2024, 1, 1), "c": "x", "i": 1}]


@pytest.mark.parametrize("rows", [[{"v": None}], [{"v": 1}, {"v": "x"}]])
def test_values_that_do_not_tell_a_type_ask_for_a_column_list(rows: list[dict[str, Any]]) -> None:
    put_rows("people", rows)
    connector = MemoryConnector(LookupTable("people", pa.schema([])))
    error = failure_of(connector.discover)
    assert error.permanent
    assert "Give a column list" in str(error)


def test_it_is_not_asked_by_nested_columns() -> None:
    put_rows("people", [{"id": 1, "l": [1]}])
    connector = connector_of(pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int64()))]))
    assert connector.key_columns() == {"id"}


def test_nan_finds_nan_and_both_zeros_are_one_key() -> None:
    put_rows("people", [{"f": float("nan")}, {"f": 0.0}, {"f": None}])
    connector = connector_of(pa.schema([("f", pa.float64())]))
    rows = ask(connector, {"f": [float("nan"), 0.0, -0.0]})
    assert [str(row["f"]) for row in rows] == ["nan", "0.0"]


_MOMENTS = st.datetimes(timezones=st.just(UTC))
_CELLS = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.dates(),
    st.none() | _MOMENTS,
    st.none() | st.binary(max_size=1),
)
_SCHEMA = pa.schema([("i", pa.int64()), ("d", pa.date32()), ("t", TIMESTAMP), ("x", pa.binary())])


@given(rows=st.lists(_CELLS, max_size=8), picked=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_composite_keys_of_any_type_find_exactly_their_rows(
    rows: list[tuple[Any, ...]], picked: list[int]
) -> None:
    put_rows("people", [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows])
    keys = (
        {row for row in (rows[place % len(rows)] for place in picked) if None not in row} if rows else set()
    )
    if keys:
        asked = dict(zip(_SCHEMA.names, map(list, zip(*keys, strict=True)), strict=True))
        found = Counter(tuple(row.values()) for row in ask(connector_of(_SCHEMA), asked))
        assert found == Counter(row for row in rows if row in keys)
