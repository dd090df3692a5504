"""What the driver pickles for the workers comes back as it was."""

from __future__ import annotations

import pickle

import pyarrow as pa

from lookup_hints.pyspark_internals import cloudpickled
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"comment": "the key"}),
        ("at", TIMESTAMP),
        ("there", TIMESTAMP_NTZ),
        ("parts", pa.list_(pa.struct([("price", pa.decimal128(10, 2)), ("took", pa.duration("us"))]))),
        ("by_name", pa.map_(pa.string(), pa.date32())),
    ],
    metadata={"from": "a source"},
)


def test_a_schema_comes_back_with_all_that_it_says() -> None:
    found = pickle.loads(cloudpickled({"schema": SCHEMA}))["schema"]
    assert found.equals(SCHEMA, check_metadata=True)
    assert not found.field("id").nullable


def test_schemas_that_differ_are_pickled_differently() -> None:
    """Functions are named by what they are pickled as."""
    others = [
        SCHEMA.set(0, SCHEMA.field(0).with_nullable(True)),
        SCHEMA.set(0, SCHEMA.field(0).remove_metadata()),
        SCHEMA.set(0, SCHEMA.field(0).with_name("ID")),
        SCHEMA.set(0, SCHEMA.field(0).with_type(pa.int32())),
        SCHEMA.remove(4),
    ]
    assert len({cloudpickled(each) for each in [SCHEMA, *others]}) == 6
    assert cloudpickled(SCHEMA) == cloudpickled(pickle.loads(cloudpickled(SCHEMA)))
