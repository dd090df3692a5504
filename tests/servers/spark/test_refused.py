"""Nobody listens: the statement fails at once and says so, however many rows it has."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from lookup_hints import LookupSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOON = 120.0
"""Seconds; the rows alone take far longer."""


@pytest.mark.parametrize(
    "options",
    [
        "'connector' = 'http', 'url' = 'http://127.0.0.1:{port}/c/{{id}}'",
        "'connector' = 'redis', 'url' = 'redis://127.0.0.1:{port}', 'key' = 'c:{{id}}'",
    ],
    ids=["http", "redis"],
)
def test_where_nobody_listens_the_statement_fails_before_its_rows_are_read(
    spark: SparkSession, options: str
) -> None:
    session = LookupSession(spark.newSession())
    with socket.socket() as bound:  # and does not listen, so that nobody else does
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        session.sql(f"CREATE TEMPORARY TABLE c (id BIGINT, n STRING) WITH ({options.format(port=port)})")
        query = session.sql(
            "SELECT /*+ LOOKUP('table'='c') */ count(c.n) AS n"
            " FROM range(0, 4000000000, 1, 2) b LEFT JOIN c ON b.id = c.id"
        )
        late = threading.Timer(SOON, spark.sparkContext.cancelAllJobs)
        late.start()
        try:
            with pytest.raises(Exception, match=rf"Is the server running at 127\.0\.0\.1:{port}\?"):
                query.collect()
        finally:
            late.cancel()
