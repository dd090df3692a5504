"""Which Spark a session is of: its version, classic or Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookup_hints.pyspark_internals import defines_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_pipeline(spark: SparkSession) -> bool:
    """Whether this thread reads a definition file of a Declarative Pipeline."""
    return is_connect(spark) and defines_pipeline(spark.client)


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """The first two numbers of Spark's version, of the server on Spark Connect."""
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)
