"""Which Spark a session is of: its version, classic or Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """The first two numbers of Spark's version, of the server on Spark Connect."""
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)
