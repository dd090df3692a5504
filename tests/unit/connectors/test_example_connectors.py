"""The connectors of the examples answer, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from lookup_hints.errors import ConnectorError
from lookup_hints.spi.request_and_answer import LookupTable
from lookup_hints.testing import looked_up
from sql_examples.own_connectors import FileLookup, Rates

PRODUCTS = pa.table({"id": [10, 11, 11], "label": ["tea", "cup", "mug"], "price": [3.5, 8.0, 9.0]})


def test_a_row_connector_over_a_dictionary() -> None:
    schema = pa.schema([("currency", pa.string()), ("rate", pa.float64())])
    found = looked_up(Rates(LookupTable("rates", schema)), [("EUR",), ("XYZ",), (None,)])
    assert found.rows == [[("EUR", 1.0)], [], []]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_batch_connector_over_a_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"products.{kind}"
    if kind == "csv":
        csv.write_csv(PRODUCTS, path)
    else:
        pq.write_table(PRODUCTS, path)
    table = LookupTable("products", PRODUCTS.schema, options={"connector": "file", "path": str(path)})
    found = looked_up(FileLookup(table), [(11,), (12,), (10,)])
    assert [len(rows or ()) for rows in found.rows] == [2, 0, 1]
    assert found.rows[2] == [(10, "tea", 3.5)]


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.csv"
    table = LookupTable("products", PRODUCTS.schema, options={"connector": "file", "path": str(path)})
    with pytest.raises(ConnectorError, match="there is no file"):
        looked_up(FileLookup(table), [(11,)])
