"""What the Spark that runs the tests has."""

from __future__ import annotations

from collections.abc import Mapping

import pyspark
import pytest

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

needs_connect_server = pytest.mark.skipif(
    SPARK < (4, 0), reason="PySpark brings a Connect server from 4.0 on; before, it is a jar to be downloaded"
)


def since(statements: Mapping[str, str], versions: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """The statements that this Spark can parse: some need one of ``versions`` or newer."""
    return {name: sql for name, sql in statements.items() if versions.get(name, SPARK) <= SPARK}
