"""Spark's JDBC source for PostgreSQL, to compare with where the jar of its driver is there."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrameReader, SparkSession

from tests.servers.postgres import PASSWORD, SUPERUSER, PostgresServer

DEBIAN_JAR = Path("/usr/share/java/postgresql.jar")
"""Where Debian's package ``libpostgresql-jdbc-java`` puts it."""


def jdbc_reader(spark: SparkSession, server: PostgresServer, table: str) -> DataFrameReader:
    """A reader of ``table``, to which nothing is said of speed."""
    reader = spark.read.format("jdbc").option("driver", "org.postgresql.Driver").option("dbtable", table)
    reader = reader.option("url", f"jdbc:postgresql://127.0.0.1:{server.port}/postgres")
    return reader.option("user", SUPERUSER).option("password", PASSWORD)


def fetching(reader: DataFrameReader) -> DataFrameReader:
    """It with a size of fetches that suits large tables."""
    return reader.option("fetchsize", "10000")


def in_parts(reader: DataFrameReader, column: str, first: int, last: int, parts: int) -> DataFrameReader:
    """It with ``parts`` ranges of ``column`` read at once."""
    reader = reader.option("partitionColumn", column).option("numPartitions", str(parts))
    return reader.option("lowerBound", str(first)).option("upperBound", str(last))
