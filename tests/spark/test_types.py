"""Spark reads the types as we do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from lookup_hints.driver.spark_functions import spark_type
from lookup_hints.spi.arrow_types import sql_type
from tests.unit.tables.test_types import SPARK_TYPES


@pytest.mark.usefixtures("spark")
def test_spark_reads_the_same_types_from_the_same_text() -> None:
    for text, arrow in SPARK_TYPES.items():
        as_spark_reads = StructType.fromDDL(f"c {text}")
        assert isinstance(as_spark_reads, StructType)
        expected = as_spark_reads.fields[0].dataType.simpleString()
        assert from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString() == expected
        assert StructType.fromDDL(f"c {sql_type(arrow)}").simpleString() == f"struct<c:{expected}>"


@pytest.mark.usefixtures("spark")
def test_a_function_gives_the_type_that_is_written() -> None:
    fields = [pa.field(f"c {number}", kind) for number, kind in enumerate(SPARK_TYPES.values())]
    every = pa.list_(pa.struct([*fields, pa.field("some", pa.int64(), nullable=False)]))
    as_spark_reads = StructType.fromDDL(f"c {sql_type(every)}")
    assert isinstance(as_spark_reads, StructType)
    assert as_spark_reads.fields[0].dataType == spark_type(every)
