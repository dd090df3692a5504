"""The administrator's security policy for SQL, from Spark's configuration and the environment at start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookup_hints.driver.spark_versions import is_connect
from lookup_hints.spi.security_policy import SWITCHES, Policy, policy_of_configuration, policy_of_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def policy_of(spark: SparkSession) -> Policy:
    """The security policy set by the application of ``spark`` and the environment of this process.

    Classic Spark: from the application's configuration, which sessions cannot change. Spark Connect: from
    that of the session, which starts as a copy of the server's.

    Raises:
        OptionError: a setting is not a list of patterns.
    """
    if not is_connect(spark):
        settings = dict(spark.sparkContext.getConf().getAll())
    elif hasattr(spark.conf, "getAll"):  # new in Spark 4.0
        settings = spark.conf.getAll
    else:
        keys = [prefix + switch for switch in SWITCHES for prefix in ("", "spark.")]
        settings = {key: value for key in keys if (value := spark.conf.get(key, None)) is not None}
    return policy_of_configuration(settings) & policy_of_environment()
