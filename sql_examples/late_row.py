"""A late row that really comes: ``python sql_examples/late_row.py``.

Customer 3 is written to the database two seconds after the second query has started. A lookup without a retry
has missed it; one with a retry asks again each second, and finds it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from lookup_hints import LookupSession

RETRY = """/*+ LOOKUP('table' = 'c', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay',
                  'fixed-delay' = '1 s', 'max-attempts' = '10') */"""
QUERY = """
SELECT {hint} o.order_id, c.name
FROM VALUES (101, 1L), (102, 2L), (103, 3L) AS o (order_id, customer_id)
LEFT JOIN customers AS c ON o.customer_id = c.id
ORDER BY o.order_id
"""


def main() -> None:
    """Start the query, and write the missing customer while it waits."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "customers.sqlite"
        _write(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        _write(path, "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Emmy')")
        session = LookupSession(SparkSession.builder.master("local[1]").getOrCreate())
        session.sql(f"CREATE TEMPORARY TABLE customers WITH ('connector' = 'sqlite', 'path' = '{path}')")
        print("Without a retry:")
        session.sql(QUERY.format(hint="")).show()
        print("With one:")
        late = threading.Timer(2.0, _write, (path, "INSERT INTO customers VALUES (3, 'Grace')"))
        late.start()
        session.sql(QUERY.format(hint=RETRY)).show()
        for counts in session.metrics().values():
            print(f"keys asked: {counts.keys}, asked again: {counts.retried_keys}, misses: {counts.misses}")
        late.join()


def _write(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    database.close()


if __name__ == "__main__":
    main()
