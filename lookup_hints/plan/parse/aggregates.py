"""The names of functions that make one value of many rows."""

from __future__ import annotations

from sqlglot import exp

AGGREGATES = frozenset(
    name
    for function in exp.ALL_FUNCTIONS
    if issubclass(function, exp.AggFunc)
    for name in function.sql_names()
) | {"COLLECT_LIST", "COLLECT_SET", "PERCENTILE"}
"""In capitals."""
