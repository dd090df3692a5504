"""The nearest rows among those of a key: what is asked and held, and which rows answer."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lookup_hints.lookup_spec import LookupSettings, LookupSpec
from lookup_hints.spi import NearestCondition, OrderCondition
from lookup_hints.spi.request_and_answer import LookupTable
from tests.unit.engine.support import Asked, names_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("shop", pa.string()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("name", pa.string()),
        ("vector", pa.list_(pa.float32())),
    ]
)


def lookup_of(order: NearestCondition | OrderCondition, *by: str, asked: bool = False) -> LookupSpec:
    connector = Asked(names_of())
    connector.table = LookupTable("places", SCHEMA, primary_key=("id",), options={"connector": "asked"})
    return LookupSpec(
        connector, by, ("name",), LookupSettings(asynchronous=False), order=order, order_asked=asked
    )


def test_the_value_is_the_last_argument_and_part_of_the_key_where_no_rows_of_a_key_are_compared() -> None:
    place = NearestCondition(("lat", "lon"), "great-circle", 3, ties=("id",))
    value = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
    by_worker, by_source = lookup_of(place, "shop"), lookup_of(place, "shop", asked=True)
    for each in (by_worker, by_source):
        assert each.argument_schema.types == [pa.string(), value]
    assert by_worker.key_schema.names == ["shop"]
    assert by_worker.held_columns == ("name", "lat", "lon", "id")
    assert by_source.key_schema == by_source.argument_schema
    assert by_source.answer_schema.names == ["shop", "name"]
    assert by_worker.searched_whole is None
    assert by_source.searched_whole is None
    anywhere = lookup_of(place)
    assert anywhere.searched_whole is place
    assert anywhere.chosen_order is None
    assert anywhere.key_schema.types == [value]
    assert anywhere.answer_schema.names == ["id", "lat", "lon", "name"]
    assert lookup_of(place, asked=True).searched_whole is None
    vector = replace(place, columns=("vector",), metric="l2")
    assert lookup_of(vector).argument_schema.types == [pa.list_(pa.float32())]
    assert lookup_of(OrderCondition("lat", until="lon"), asked=True).searched_whole is not None
