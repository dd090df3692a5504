"""Two connectors of your own, and a query over both: ``python sql_examples/own_connectors.py``.

They use nothing but ``lookup_hints.spi``. The first one answers one key at a time from a Python function; the
second one asks a Parquet or CSV file for a batch of keys through DuckDB (``pip install duckdb``).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lookup_hints import LookupSession, register_connector
from lookup_hints.spi import (
    TEXT,
    AsyncRowLookup,
    ConnectorError,
    LookupRequest,
    Option,
    RowRequest,
    Rows,
    SyncLookup,
)

RATES = {"EUR": 1.0, "USD": 1.09, "GBP": 0.84}


class Rates(AsyncRowLookup):
    """Exchange rates, from a dictionary; any awaitable would do."""

    async def alookup_row(self, request: RowRequest) -> Rows:
        """The rate of one currency."""
        rate = RATES.get(request.key["currency"])
        return [] if rate is None else [{"rate": rate}]


class FileLookup(SyncLookup):
    """A Parquet or CSV file, asked through DuckDB."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "The file, as each worker sees it.", required=True),
    )

    def open(self) -> None:
        """Connect, once per worker process."""
        import duckdb

        path = self.table.read(self.OPTIONS)[0]["path"]
        if not Path(path).is_file():
            raise ConnectorError(f"table {self.table.name}: there is no file {path}", permanent=True)
        # One thread: Spark runs a worker for each core as it is.
        self._database = duckdb.connect(config={"threads": 1})
        self._database.execute(f"CREATE VIEW file AS FROM '{path}'")

    def lookup(self, request: LookupRequest) -> pa.Table:
        """The rows of all keys, in one query."""
        columns = ", ".join(f'file."{name}"' for name in request.columns)
        using = ", ".join(f'"{name}"' for name in request.key_columns)
        self._database.register("keys", request.keys)
        found = self._database.sql(f"SELECT {columns} FROM file JOIN keys USING ({using})")  # noqa: S608
        return pa.table(found.to_arrow_table())


QUERY = """
SELECT o.order_id, p.label, o.currency, round(p.price * r.rate, 2) AS price
FROM VALUES (1, 10L, 'USD'), (2, 11L, 'EUR'), (3, 12L, 'GBP'), (4, 10L, 'XYZ')
  AS o (order_id, product, currency)
LEFT JOIN products AS p ON o.product = p.id
LEFT JOIN rates AS r ON o.currency = r.currency
ORDER BY o.order_id
"""


def main() -> None:
    """Make a small file, create both tables, and join them."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    register_connector("rates", Rates)
    register_connector("file", FileLookup)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "products.parquet"
        pq.write_table(pa.table({"id": [10, 11], "label": ["tea", "cup"], "price": [3.5, 8.0]}), path)
        session = LookupSession(SparkSession.builder.master("local[1]").getOrCreate())
        session.sql(
            "CREATE TEMPORARY TABLE rates (currency STRING, rate DOUBLE) WITH ('connector' = 'rates')"
        )
        session.sql(
            "CREATE TEMPORARY TABLE products (id BIGINT, label STRING, price DOUBLE)"
            f" WITH ('connector' = 'file', 'path' = '{path}')"
        )
        session.sql(QUERY).show()


if __name__ == "__main__":
    main()
