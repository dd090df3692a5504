"""A plugin that dbt imports by its name: models of dbt-spark's method ``session`` may use lookup tables.

The wheel has it at the top, as dbt looks for modules named ``dbt_*`` there. (docs/decisions/0256)
"""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

from dbt.plugins.manager import dbtPlugin
from dbt_common.exceptions import DbtRuntimeError


class LookupHints(dbtPlugin):  # type: ignore[misc]  # dbt may be missing where types are checked
    """Enables lookups in the Spark session that dbt makes. Does nothing for other adapters and methods."""

    def initialize(self) -> None:
        """Called by dbt once, before the first statement."""
        try:
            from dbt.adapters.spark.session import Connection
        except ImportError:  # another adapter, or dbt-spark without PySpark
            return
        if not hasattr(Connection.cursor, "__wrapped__"):
            Connection.cursor = _enable_in_cursors(Connection.cursor)


plugins = [LookupHints]

_MAKES_VIEW = re.compile(r"^\s*create\s+(or\s+replace\s+)?view\b", re.IGNORECASE | re.MULTILINE)
_ADVICE = "\nIn dbt: config(materialized='table'), or 'incremental', or 'ephemeral' for a model others read."


def _enable_in_cursors(make_cursor: Any) -> Any:
    """``make_cursor``, for cursors whose statements run in a session with lookups."""
    from pyspark.sql import SparkSession

    from lookup_hints import enable
    from lookup_hints.errors import LookupHintsError

    @wraps(make_cursor)
    def make_enabled_cursor(connection: Any) -> Any:
        cursor = make_cursor(connection)
        execute = cursor.execute

        def execute_with_lookups(sql: str, *parameters: Any) -> None:
            builder = SparkSession.builder.enableHiveSupport()
            for key, value in connection.server_side_parameters.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
            if "sql" not in vars(session):
                enable(session)
            try:
                execute(sql, *parameters)
            except LookupHintsError as error:  # dbt shows errors of its own kind with the model's name
                raise DbtRuntimeError(f"{error}{_ADVICE if _MAKES_VIEW.search(sql) else ''}") from error

        cursor.execute = execute_with_lookups
        return cursor

    return make_enabled_cursor
