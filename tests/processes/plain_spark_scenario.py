"""Plain `spark.sql` in a driver whose environment is not activated; prints as JSON what came of it.

The first `python3` of the path is a bare one, as in a notebook that was started from a menu.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from lookup_hints import LookupSession, enable, register_connector
from lookup_hints.spi import AsyncLookup, LookupRequest, SyncRowLookup


class Unreachable(SyncRowLookup):
    """A source that is away, and whose driver tells the password."""

    def lookup_row(self, request: object) -> list[Any]:
        """No rows."""
        raise OSError("no route to db1 as t0ken")

    def secrets(self) -> set[str]:
        """What its driver tells."""
        return {"t0ken"}


class Answering(AsyncLookup):
    """A source that answers the Python that asked it."""

    async def alookup(self, request: LookupRequest) -> Any:
        """A row for each key."""
        rows = [{**key, "v": sys.executable} for key in request.keys.to_pylist()]
        import pyarrow as pa

        return pa.Table.from_pylist(rows, request.schema)


def main() -> None:
    """Run each query, and print its rows or its error."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    remote = os.environ.get("REMOTE")
    spark = (builder.remote(remote) if remote else builder.master("local[1]")).getOrCreate()
    session = LookupSession(spark)
    enable(spark)
    register_connector("away", Unreachable)
    register_connector("here", Answering)
    told: dict[str, str] = {}

    def tell(name: str, action: Any) -> None:
        try:
            told[name] = str(action()[0][1])
        except Exception as error:
            told[name] = str(error)

    for name in ("away", "here"):
        spark.sql(f"CREATE TEMPORARY TABLE {name} (id BIGINT, v STRING) WITH ('connector' = '{name}')")
    query = "SELECT o.id, t.v FROM range(7, 8) o JOIN {} t ON o.id = t.id"
    tell("rows", lambda: spark.sql(query.format("here")).collect())
    tell("plain", lambda: spark.sql(query.format("away")).collect())
    tell("frame", lambda: session.sql(query.format("away")).toPandas())
    spark.sql("SET lookup.transport = pandas")
    tell("pandas", lambda: spark.sql(query.format("away")).collect())
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
