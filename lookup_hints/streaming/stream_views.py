"""``FROM STREAM t`` in an INSERT for Sparks that do not parse it: each stream becomes a view of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lookup_hints.sql.lexer import quoted
from lookup_hints.streaming.insert import StreamSource, stream_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINCE = (4, 1)
"""The first Spark whose SQL has ``FROM STREAM``."""


def with_views(query: str, spark: SparkSession, name: Callable[[StreamSource], str]) -> str:
    """``query`` over views of its streams, as a Spark before ``SINCE`` can parse it.

    Args:
        query: a query with ``FROM STREAM t``.
        spark: where the views are made.
        name: what the view of a stream is called.
    """
    for source in reversed(stream_sources(query)):
        relation = ".".join(map(quoted, source.name))
        if "/" not in source.name[-1]:  # a path: Spark has never read a stream there
            view = name(source)
            spark.readStream.options(**source.options).table(relation).createOrReplaceTempView(view)
            relation = quoted(view) if source.has_alias else f"{quoted(view)} AS {quoted(source.name[-1])}"
        query = query[: source.start] + relation + query[source.end :]
    return query
