"""Remembered answers that a stream of changes invalidates: ``python sql_examples/invalidate.py``.

Customers are kept for an hour. Customer 1 moves; a file of changes says so, as a tool for change data capture
would. A stream reads it and invalidates what is remembered of that customer alone.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from lookup_hints import LookupSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CUSTOMERS = """
CREATE OR REPLACE TEMPORARY TABLE customers (id BIGINT, city STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'sqlite', 'path' = '{path}',
  'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.expire-after-write' = '1 h'
)
"""
QUERY = """
SELECT o.order_id, c.city
FROM VALUES (101, 1L), (102, 2L) AS o (order_id, customer_id) JOIN customers AS c ON o.customer_id = c.id
ORDER BY o.order_id
"""


def main(spark: SparkSession) -> list[list[str]]:
    """The cities before the move, after it, and when the change has been read."""
    with tempfile.TemporaryDirectory() as folder:
        path, changes = Path(folder, "customers.sqlite"), Path(folder, "changes")
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            # With this journal changes leave the file as it is. The cache of a changed file begins anew.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, city TEXT)")
            database.execute("INSERT INTO customers VALUES (1, 'Bern'), (2, 'Oslo')")
            session = LookupSession(spark)
            session.sql(CUSTOMERS.format(path=path))
            seen = [_cities(session)]

            database.execute("UPDATE customers SET city = 'Rome' WHERE id = 1")
            seen.append(_cities(session))  # as it was: nobody has said that it changed

            changes.mkdir()
            (changes / "1.json").write_text('{"id": 1, "op": "u"}\n')
            _invalidate(session, changes, Path(folder, "checkpoint"))
            seen.append(_cities(session))
            session.sql("DROP TEMPORARY TABLE customers")
    return seen


def _invalidate(session: LookupSession, changes: Path, checkpoint: Path) -> None:
    """Invalidate what is remembered of the customers in files of changes."""

    def invalidate(batch: DataFrame, _: int) -> None:
        session.invalidate("customers", batch.select("id").distinct())

    stream = session.spark.readStream.schema("id BIGINT, op STRING").json(str(changes))
    writer = stream.writeStream.foreachBatch(invalidate).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def _cities(session: LookupSession) -> list[str]:
    return [row.city for row in session.sql(QUERY).collect()]


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for cities in main(SparkSession.builder.master("local[1]").getOrCreate()):
        print(cities)
