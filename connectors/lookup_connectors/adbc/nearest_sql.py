"""SQL of DuckDB for the rows nearest to a value among those of a key. Pure.

Spark ranks the rows again, so those may be found, too, that its rounding could put among the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_connectors.shared.sql_parts import quoted
from lookup_hints.spi import NearestCondition

_OF_LISTS = {
    "l2": "list_distance({}, {})",
    "cosine": "-list_cosine_similarity({}, {})",
    "inner-product": "-list_inner_product({}, {})",
}
# What is beyond is no float, or its square no double.
_LARGEST = "1e38"


def can_measure(nearest: NearestCondition, schema: pa.Schema) -> bool:
    """Whether DuckDB knows distances of the columns, which have the types of ``schema``."""
    kinds = [schema.field(name).type for name in nearest.columns]
    first = kinds[0]
    if nearest.metric in _OF_LISTS:
        return bool(types.is_list(first) and types.is_float32(first.value_type))
    if nearest.metric == "levenshtein":
        return bool(types.is_string(first))
    if nearest.metric in ("euclidean", "great-circle"):
        return all(map(types.is_float64, kinds))
    if types.is_decimal(first):
        return bool(nearest.metric == "difference" and first.precision < 38)  # Spark rounds longer ones
    is_number = types.is_integer(first) or types.is_floating(first)
    is_ordered = is_number or types.is_date(first) or types.is_timestamp(first)
    return bool(nearest.metric == "difference" and is_ordered)


@dataclass(frozen=True)
class Measure:
    """How far a row is from a value, in SQL.

    Args:
        most: what the distance is at most; NULL for none.
        least: what it is at least.
        slack: how far is as far as ``{}``, or may be as Spark rounds it.
        is_found: the condition on a row that answers whatever its distance is.
    """

    most: str
    least: str
    slack: str = "{}"
    is_found: str = "FALSE"

    def is_near(self, most: int, smallest: str) -> str:
        """The condition on a row, by a list of the smallest distances; true where it is too short."""
        last = f"{smallest}[{most}]"
        near = f"{self.least} <= {self.slack.format(last)} OR {self.is_found}"
        return f"CASE WHEN abs({last}) < {_LARGEST} THEN {near} ELSE TRUE END"


def measure_of(nearest: NearestCondition, columns: Sequence[str], kind: pa.DataType, value: str) -> Measure:
    """How far rows are from ``value``: by ``columns``, the first of which has the type ``kind``."""
    first = columns[0]
    if nearest.metric in _OF_LISTS:
        return _compare_vectors(nearest.metric, first, value)
    if nearest.metric == "levenshtein":
        return _compare_letters(first, value)
    if nearest.metric == "difference":
        return _subtract_value(first, kind, value)
    parts = [f"{value}.{quoted(name)}" for name in nearest.columns]
    if nearest.metric == "great-circle":
        return _compare_places([*columns, *parts])
    squares = (f"power({own} - {part}, 2)" for own, part in zip(columns, parts, strict=True))
    distance = f"sqrt({' + '.join(squares)})"
    return Measure(distance, distance, "{} * (1 + 1e-12) + 1e-150")


def _compare_vectors(metric: str, column: str, value: str) -> Measure:
    """In doubles, as Spark does, which rounds the result to a float."""
    # A NULL in a list is an error of DuckDB, also behind CASE; a row at NaN does no harm.
    vectors = [f"[coalesce(x::DOUBLE, 'NaN') for x in {each}]" for each in (column, value)]
    distance = _OF_LISTS[metric].format(*vectors)
    slack, least = "{0} + abs({0}) * 2e-7", distance
    if metric == "cosine":
        slack = "{} + 2e-7"
    if metric == "inner-product":  # doubles are rounded, too, where what is added is large
        lengths = " * ".join(f"list_inner_product({each}, {each})" for each in vectors)
        least = f"{distance} - 1e-11 * sqrt({lengths})"
    # NaN is the greatest similarity.
    return Measure(distance, least, slack, f"isnan({distance})")


def _compare_letters(column: str, value: str) -> Measure:
    """By bytes where these are letters, as old versions count them; else by how many letters there are."""
    texts = (column, value)
    is_ascii = " AND ".join(f"strlen({each}) = length({each})" for each in texts)
    counted = f"CASE WHEN {is_ascii} THEN levenshtein({column}, {value}) ELSE {{}} END"
    longest, apart = (
        f"greatest(length({column}), length({value}))",
        f"abs(length({column}) - length({value}))",
    )
    return Measure(counted.format(longest), counted.format(apart))


def _subtract_value(column: str, kind: pa.DataType, value: str) -> Measure:
    slack, taken = "{}", "abs({} - {})"
    if types.is_timestamp(kind):
        taken = "abs(epoch_us({}) - epoch_us({}))"
    elif types.is_integer(kind):
        taken = "abs({}::HUGEINT - {}::HUGEINT)"
    elif types.is_floating(kind):
        taken = "abs({}::DOUBLE - {}::DOUBLE)"
        slack = f"{{}} * (1 + {'1e-6' if types.is_float32(kind) else '1e-15'})"
    distance = taken.format(column, value)
    return Measure(distance, distance, slack)


def _compare_places(angles: Sequence[str]) -> Measure:
    """By the haversine formula, whose results differ by half a metre, as Spark's own do."""
    lat, lon, to_lat, to_lon = (f"radians({each})" for each in angles)
    half = f"power(sin(({to_lat} - {lat}) / 2), 2)"
    both = f"cos({lat}) * cos({to_lat}) * power(sin(({to_lon} - {lon}) / 2), 2)"
    is_angle = " AND ".join(f"isfinite({each})" for each in angles)
    arc = f"CASE WHEN {is_angle} THEN asin(least(1, sqrt({half} + {both}))) ELSE 'NaN'::DOUBLE END"
    return Measure(arc, arc, "{} * (1 + 1e-9) + 1e-7")
