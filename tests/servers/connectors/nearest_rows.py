"""Distances as Spark computes them, and a check of what a source answers against all rows."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from lookup_hints.spi import NearestCondition
from lookup_hints.spi.arrow_types import TIMESTAMP_NTZ

SIMILARITIES = ("cosine", "inner-product", "trigram")


def distance(metric: str, own: Any, value: Any) -> float | None:
    """The distance or the similarity; None where there is none."""
    parts = [own, value]
    if any(part is None or (isinstance(part, list | tuple) and None in part) for part in parts):
        return None
    return _DISTANCES[metric](own, value)


def _l2(own: list[float], value: list[float]) -> float:
    return _as_float(math.sqrt(sum((a - b) * (a - b) for a, b in zip(own, value, strict=True))))


def _as_float(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _product(own: list[float], value: list[float]) -> float:
    return sum(a * b for a, b in zip(own, value, strict=True))


def _inner_product(own: list[float], value: list[float]) -> float:
    return _as_float(_product(own, value))


def _cosine(own: list[float], value: list[float]) -> float | None:
    lengths = math.sqrt(_product(own, own) * _product(value, value))
    return _as_float(_product(own, value) / lengths) if lengths else None


def _difference(own: Any, value: Any) -> Any:
    return abs(own - value)


def _euclidean(own: Sequence[float], value: Sequence[float]) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(own, value, strict=True)))


def _great_circle(own: Sequence[float], value: Sequence[float]) -> float:
    (lat, lon), (to_lat, to_lon) = own, value
    if not all(map(math.isfinite, (*own, *value))):
        return math.nan
    half = math.sin(math.radians(to_lat - lat) / 2) ** 2
    both = math.cos(math.radians(lat)) * math.cos(math.radians(to_lat))
    return math.asin(min(1.0, math.sqrt(half + both * math.sin(math.radians(to_lon - lon) / 2) ** 2)))


def _levenshtein(own: str, value: str) -> int:
    before = list(range(len(value) + 1))
    for row, a in enumerate(own, start=1):
        now = [row]
        for column, b in enumerate(value, start=1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (a != b)))
        before = now
    return before[-1]


def _trigrams(text: str) -> set[str]:
    words = "".join(each if each.isalnum() else " " for each in text.lower()).split()
    return {f"  {word} "[at : at + 3] for word in words for at in range(len(word) + 1)}


def _trigram(own: str, value: str) -> float:
    one, other = _trigrams(own), _trigrams(value)
    return len(one & other) / len(one | other) if one | other else 0.0


_DISTANCES: dict[str, Callable[[Any, Any], float | None]] = {
    "l2": _l2,
    "cosine": _cosine,
    "inner-product": _inner_product,
    "difference": _difference,
    "euclidean": _euclidean,
    "great-circle": _great_circle,
    "levenshtein": _levenshtein,
    "trigram": _trigram,
}


def must_be_found(nearest: NearestCondition, rows: Sequence[dict[str, Any]], value: Any) -> set[int]:
    """The places of the rows that are as near as the last of the nearest, or nearer."""
    sign = -1 if nearest.metric in SIMILARITIES else 1
    ranked = []
    for at, row in enumerate(rows):
        own = [row[name] for name in nearest.columns]
        parts = (own, list(value.values())) if isinstance(value, dict) else (own[0], value)
        far = distance(nearest.metric, *parts)
        if far is not None:
            is_nan = isinstance(far, float) and math.isnan(far)
            ranked.append(((sign if is_nan else 0, 0 if is_nan else sign * far), at))
    ranked.sort()
    return {at for far, at in ranked if far <= ranked[min(nearest.most, len(ranked)) - 1][0]}


def check_found(
    nearest: NearestCondition,
    rows: Sequence[dict[str, Any]],
    keys: pa.Table,
    found: pa.Table,
    positions: Sequence[int],
) -> int:
    """How many rows were found that were not needed; ``rows`` have an ``id``, their place.

    Raises:
        AssertionError: one is missing, comes twice, or is of another key.
    """
    got: list[list[int]] = [[] for _ in range(keys.num_rows)]
    for position, id_of_row in zip(positions, found.column("id").to_pylist(), strict=True):
        got[position].append(id_of_row)
    more = 0
    by = keys.column_names[:-1]
    values = keys.column(keys.num_columns - 1).to_pylist()
    for at, (key, value) in enumerate(zip(keys.select(by).to_pylist(), values, strict=True)):
        own = [row for row in rows if all(row[name] == key[name] for name in by)]
        needed = {own[place]["id"] for place in must_be_found(nearest, own, value)}
        here = got[at]
        assert len(here) == len(set(here)), f"{nearest}, {key}, {value!r}: rows come twice"
        missing = needed - set(here)
        assert not missing, f"{nearest}, {key}, {value!r}: {sorted(missing)} of {sorted(needed)} are missing"
        assert set(here) <= {row["id"] for row in own}, f"{nearest}, {key}: rows of another key"
        more += len(here) - len(needed)
    return more


def as_float(number: float, code: str = "f") -> float:
    rounded: float = struct.unpack(code, struct.pack(code, number))[0]
    return rounded


def near_vectors(chance: Random, count: int, size: int) -> list[list[float] | None]:
    """Vectors of whole numbers, with ties; near ones that rounding mixes up; NULL, zeros, long and short ones."""
    middle = [chance.gauss(0, 1) for _ in range(size)]
    found: list[list[float] | None] = []
    for number in range(count):
        kind = number % 8
        if kind == 0:
            each = [float(chance.randrange(-2, 3)) for _ in range(size)]
        elif kind < 4:
            each = [part * (1 + chance.gauss(0, 1e-7)) for part in middle]
        elif kind < 6:
            each = [chance.gauss(0, 1) for _ in range(size)]
        else:
            scale = chance.choice([0.0, 1e-20, 1e-16, 1e16, 1e19, 1.0])
            each = [part * scale for part in middle]
        found.append([as_float(part) for part in each])
    found[5] = None
    return found


MOMENT = datetime(2024, 2, 29, 12)
NUMBERS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "int": ("int", pa.int32(), [-(2**31), -3, 0, 7, 8, 8, 11, 2**31 - 1]),
    "bigint": ("bigint", pa.int64(), [-(2**63), -3, 0, 7, 9, 2**63 - 1]),
    "numeric": ("numeric(10,2)", pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0.01"), Decimal("2.00")]),
    "date": ("date", pa.date32(), [date(1, 1, 2), date(2024, 2, 28), date(2024, 2, 29), date(9999, 12, 30)]),
    "timestamp": (
        "timestamp",
        TIMESTAMP_NTZ,
        [MOMENT + timedelta(microseconds=each) for each in (-2, -1, 0, 1, 9**9)],
    ),
    "double": (
        "float8",
        pa.float64(),
        [0.1, 0.2, 0.3, 0.1 + 2**-55, 1e17, 1e17 + 16, -1e17, 5e-324, float("inf"), float("nan"), -0.0],
    ),
    "real": (
        "float4",
        pa.float32(),
        [as_float(each) for each in (0.1, 0.2, 0.3, 16777216, 16777218, -1e30, float("nan"))],
    ),
}
