"""SQL for the rows nearest to a value, by an index where there is one for the metric. Pure.

Spark ranks the rows again, so more of them may be found than are wanted: those that rounding, in the server
or in Spark, could put among the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.postgres.columns import VECTORS, PostgresColumn
from lookup_hints.spi import NearestCondition

OPERATORS = {"l2": "<->", "cosine": "<=>", "inner-product": "<#>"}
"""Those of pgvector, by metric."""
EXTENSIONS = {
    "great-circle": "earthdistance CASCADE",
    "trigram": "pg_trgm",
    "levenshtein": "fuzzystrmatch",
}
"""What a database needs for a metric."""

# More than the error of rounding to a float, relative to it. Spark adds up doubles, pgvector floats.
_ROUNDING = "6.1e-8"
# Lengths of vectors whose squares, and those of their elements, are floats of full precision.
_EXACT_LENGTHS = "BETWEEN 1e-13 AND 1e13"
# Beyond, the square of a distance is no double.
_LARGEST = "1e150"
# The haversine formula of Spark is right to half a metre, and the chord of earthdistance.
_METRE = "earth() * 1.6e-7"
# More characters are too many for levenshtein().
_MOST_CHARACTERS = 255


def can_find_nearest(nearest: NearestCondition, schema: pa.Schema) -> bool:
    """Whether PostgreSQL knows distances of the columns, which have the types of ``schema``."""
    kinds = [schema.field(name).type for name in nearest.columns]
    first = kinds[0]
    if nearest.metric in OPERATORS:
        return bool(types.is_list(first) and types.is_float32(first.value_type))
    if nearest.metric in ("trigram", "levenshtein"):
        return bool(types.is_string(first))
    if nearest.metric != "difference":
        return all(map(types.is_float64, kinds))
    if types.is_decimal(first):
        return bool(first.precision < 38)  # Spark rounds differences of longer ones
    is_time = types.is_date(first) or types.is_timestamp(first)
    return bool(is_time or types.is_integer(first) or types.is_floating(first))


def bind_nearest(
    nearest: NearestCondition, plans: Sequence[PostgresColumn], values: pa.ChunkedArray
) -> list[pa.ChunkedArray]:
    """Texts of ``values``, for each column that they are compared with; nothing is near to a NULL."""
    if nearest.metric in OPERATORS:
        lists = values.combine_chunks().cast(pa.list_(pa.string()))
        start, end = "[]" if plans[0].source.type in VECTORS else "{}"
        texts = pc.binary_join_element_wise(start, pc.binary_join(lists, ","), end, "")
        return [pa.chunked_array([texts], pa.string())]
    if nearest.metric == "difference":
        return [plans[0].bind_ordered(values)]
    if not types.is_struct(values.type):
        return [plan.bind(values) for plan in plans]
    return [plan.bind(pc.struct_field(values, [at])) for at, plan in enumerate(plans)]


def bound_kinds(nearest: NearestCondition, plans: Sequence[PostgresColumn]) -> list[str]:
    """The types that values are bound as."""
    return ["text"] if nearest.metric in OPERATORS else [plan.bound for plan in plans]


@dataclass(frozen=True)
class Distance:
    """How far a row is from a value, in SQL over the row and ``__asked``.

    Args:
        made: by name what is made of the bound values once, before rows are compared with them.
        ordered: the distance, in whose order an index may have the rows.
        most: what it is at most, as it is rounded; NULL where it cannot be told.
        within: the condition that it may be at most ``__kth.far``.
        far: what is within: ``last`` is that of the last of the nearest rows.
        can_tell: the condition on a row that its distance is right; else it answers always.
        can_tell_any: the same on the value; else all rows answer.
        needed: conditions without which there is no distance.
    """

    made: dict[str, str]
    ordered: str
    most: str
    within: str
    far: str = "last"
    can_tell: str = "TRUE"
    can_tell_any: str = "TRUE"
    needed: tuple[str, ...] = ()


def distance_of(
    nearest: NearestCondition, plans: Sequence[PostgresColumn], values: Sequence[str], *, is_unicode: bool
) -> Distance:
    """How far rows are from values, whose parts are bound as ``values``."""
    first, value = plans[0], values[0]
    columns = [plan.compared for plan in plans]
    if nearest.metric in OPERATORS:
        return _between_vectors(nearest, first, value)
    if nearest.metric == "great-circle":
        return _on_a_sphere(columns, values)
    if nearest.metric == "euclidean":
        return _between_points(columns, values)
    if nearest.metric == "difference":
        return _between_numbers(first, value)
    if nearest.metric == "levenshtein":
        return _between_spellings(first.selected, value, is_unicode=is_unicode)
    similarity = f"{first.compared} <-> __asked.v"
    return Distance({"v": value}, similarity, similarity, "")


def _between_vectors(nearest: NearestCondition, plan: PostgresColumn, value: str) -> Distance:
    """By pgvector, which refuses NaN, infinity and vectors of another length; else element by element."""
    if plan.source.type not in VECTORS:
        return _between_arrays(nearest.metric, plan.column, value)
    schema, kind = plan.source.schema, plan.source.type
    operator = OPERATORS[nearest.metric]
    operator = f"OPERATOR({schema}{operator})" if schema else operator
    vector = f"CASE WHEN {value} !~ 'n' THEN {value}::{schema}vector END"  # of nan and inf
    own = plan.column if kind == "vector" else f"{plan.column}::{schema}vector"
    length = f"{schema}vector_norm({{}})".format
    made = {
        "v": vector if nearest.exact or kind == "vector" else f"({vector})::{schema}{kind}",
        "size": f"{schema}vector_dims({vector})",
        "length": length(vector),
    }
    ordered = f"{plan.column} {operator} __asked.v"
    return _bound_error(nearest.metric, made, ordered, f"({own} {operator} __asked.v)", length(own))


def _between_arrays(metric: str, column: str, value: str) -> Distance:
    """Element by element, in doubles."""
    own, other = f"{column}::float8[]", f"{value}::real[]::float8[]"
    length = "(SELECT sqrt(sum(a * a)) FROM unnest({}) AS __each(a))".format
    pairs = f"FROM unnest({own}, __asked.v) AS __pair(a, b))"
    product = f"(SELECT sum(a * b) {pairs}"
    distance = {
        "l2": f"(SELECT sqrt(sum((a - b) * (a - b))) {pairs}",
        "cosine": f"(1 - {product} / nullif({length(own)} * __asked.length, 0))",
        "inner-product": f"(- {product})",
    }[metric]
    made = {"v": other, "size": f"cardinality({other})", "length": length(other)}
    found = _bound_error(metric, made, distance, distance, length(own))
    is_same_length = f"cardinality({column}) = __asked.size"
    has_all = f"array_position({column}, NULL) IS NULL"
    return replace(found, can_tell=f"{found.can_tell} AND {is_same_length}", needed=(*found.needed, has_all))


def _bound_error(metric: str, made: dict[str, str], ordered: str, distance: str, length: str) -> Distance:
    """The distance of vectors, where ``distance`` is a sum of rounded numbers.

    A sum of so many is wrong by ``size`` roundings of the sum of what is added, without signs.
    """
    is_exact = "TRUE"
    needed: tuple[str, ...] = ()
    if metric == "l2":
        error = f"({distance} * (__asked.size + 16) * {_ROUNDING} + 1e-14)"
    elif metric == "cosine":
        error = f"((2 * __asked.size + 16) * {_ROUNDING})"
        is_exact = f"{{}} {_EXACT_LENGTHS}"
        needed = (f"({length} * __asked.length <> 0) IS NOT FALSE",)
    else:
        error = f"((__asked.size + 16) * {_ROUNDING} * {length} * __asked.length + 1e-14)"
        is_exact = "{} <= 1e13"
    return Distance(
        made,
        ordered,
        most=f"{distance} + {error}",
        within=f"{distance} - {error} <= __kth.far",
        can_tell=is_exact.format(length),
        can_tell_any=is_exact.format("__asked.length"),
        needed=needed,
    )


def _on_a_sphere(columns: Sequence[str], values: Sequence[str]) -> Distance:
    """By the chord, which an index has: the farther, the longer."""
    is_angle = " AND ".join(f"{value} BETWEEN -1e6 AND 1e6" for value in values)
    made = {"v": f"CASE WHEN {is_angle} THEN ll_to_earth({', '.join(values)}) END"}
    own = f"ll_to_earth({', '.join(columns)})"
    chord = f"{own} <-> __asked.v"
    within = f"{own} <@ cube_enlarge(__asked.v, __kth.far, 3)"
    return Distance(made, chord, chord, within, far=f"last * (1 + 1e-9) + {_METRE}")


def _between_points(columns: Sequence[str], values: Sequence[str]) -> Distance:
    names = [f"v{number}" for number in range(len(values))]
    made = dict(zip(names, values, strict=True))
    if len(columns) != 2:
        distance = f"abs({columns[0]} - __asked.v0)"
        for column, name in zip(columns[1:], names[1:], strict=True):
            distance = f"(point({distance}, {column}) <-> point(0, __asked.{name}))"
        within = f"{distance} <= __kth.far"
        return Distance(made, distance, distance, within, far="last * (1 + 1e-12) + 1e-150")
    own = f"point({', '.join(columns)})"
    distance = f"{own} <-> __asked.v"
    corners = (f"point(__asked.v0 {side} __kth.far, __asked.v1 {side} __kth.far)" for side in "-+")
    return Distance(
        made | {"v": f"point({', '.join(values)})"},
        distance,
        distance,
        within=f"{own} <@ box({', '.join(corners)})",
        far="last * (1 + 1e-12) + greatest(abs(__asked.v0), abs(__asked.v1), 1e-150) * 1e-14 + 1e-150",
    )


def _between_numbers(plan: PostgresColumn, value: str) -> Distance:
    made = {"v": plan.key.replace("{k}", value)}
    distance = f"abs({plan.compared} - __asked.v)"
    rounding = "1e-6" if types.is_float32(plan.field.type) else "1e-15"
    return Distance(
        made,
        distance,
        distance,
        within=f"{plan.compared} BETWEEN __asked.v - __kth.far AND __asked.v + __kth.far",
        far=f"last * (1 + {rounding}) + greatest(abs(__asked.v), 1e-150) * 1e-15",
    )


def _between_spellings(column: str, value: str, *, is_unicode: bool) -> Distance:
    """By the number of changed characters, or by the lengths of what is too long to count them."""
    lengths = f"length({column}), length(__asked.v)"
    can_count = f"greatest({lengths}) <= {_MOST_CHARACTERS}" if is_unicode else "FALSE"
    counted = f"(CASE WHEN {can_count} THEN levenshtein({column}, __asked.v) ELSE {{}} END)::float8".format
    most, least = counted(f"greatest({lengths})"), counted(f"abs(length({column}) - length(__asked.v))")
    return Distance({"v": value}, most, most, f"{least} <= __kth.far")


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NearestQuery:
    """The query for the rows of ``source`` that are nearest to ``__asked``, for LATERAL.

    Args:
        nearest: which rows.
        plan: how the first of the columns is read.
        distance: how far they are.
        source: the table.
        equalities: the conditions that rows of the key meet.
        is_unicode: whether the server's encoding is UTF-8.
    """

    nearest: NearestCondition
    plan: PostgresColumn
    distance: Distance
    source: str
    equalities: Sequence[str]
    is_unicode: bool

    def query(self, selected: str) -> str:
        """The query for ``selected`` of them."""
        nearest, distance = self.nearest, self.distance
        is_float = types.is_floating(self.plan.field.type)
        if nearest.metric == "difference" and not (is_float and nearest.exact):
            return self._on_both_sides(selected, self._with_ties)
        if not nearest.exact:
            return self._select_rows(
                selected, *distance.needed, ending=f"ORDER BY {distance.ordered} {self._first_ones}"
            )
        if nearest.metric == "trigram":
            return self._most_similar(selected)
        return self._within_last(selected)

    @property
    def _first_ones(self) -> str:
        return f"LIMIT {self.nearest.most}"

    @property
    def _with_ties(self) -> str:
        return f"FETCH FIRST {self.nearest.most} ROWS WITH TIES"

    def _select_rows(self, selected: str, *conditions: str, ending: str = "") -> str:
        met = " AND ".join((*self.equalities, *conditions)) or "TRUE"
        return f"(SELECT {selected} FROM {self.source} WHERE {met} {ending})"  # noqa: S608  quoted

    def _on_both_sides(self, selected: str, ending: str) -> str:
        """The nearest rows below the value and those above, by an index on the column."""
        column = self.plan.compared
        below = self._select_rows(
            selected, f"{column} <= __asked.v", ending=f"ORDER BY {column} DESC {ending}"
        )
        above = self._select_rows(selected, f"{column} > __asked.v", ending=f"ORDER BY {column} {ending}")
        return f"{below} UNION ALL {above}"

    # A database decides which letters it knows, and how they are in lower case: for others than those of
    # ASCII that may not be as in Spark.
    def _most_similar(self, selected: str) -> str:
        """The most similar rows of those in ASCII, and all others."""
        own, is_ascii = self.plan.selected, "octet_length({0}) = length({0})".format
        if not self.is_unicode:
            return self._select_rows(selected)
        is_plain = is_ascii("__asked.v")
        ending = f"ORDER BY {self.distance.ordered} {self._with_ties}"
        plain = self._select_rows(selected, is_plain, is_ascii(own), ending=ending)
        others = self._select_rows(selected, is_plain, f"octet_length({own}) > length({own})")
        return f"{plain} UNION ALL {others} UNION ALL {self._select_rows(selected, f'NOT ({is_plain})')}"

    def _within_last(self, selected: str) -> str:
        """The rows that are as near as the last of the nearest, or may be; all if these are not known."""
        distance, measured = self.distance, f"{self.distance.most} AS d"
        if self.nearest.metric == "difference":
            sides = self._on_both_sides(measured, self._first_ones)
            found = f"SELECT d FROM ({sides}) AS __sides ORDER BY d {self._first_ones}"  # noqa: S608  quoted
        else:
            known = (*distance.needed, distance.can_tell)
            found = self._select_rows(measured, *known, ending=f"ORDER BY d {self._first_ones}")
        is_known = f"count(d) = {self.nearest.most} AND max(d) < {_LARGEST} AND {distance.can_tell_any}"
        last = f"SELECT CASE WHEN {is_known} THEN max(d) END AS last FROM ({found}) AS __nearest"  # noqa: S608  quoted
        far = f"SELECT {distance.far} AS far FROM ({last}) AS __last"  # noqa: S608  quoted
        near = f"({distance.within} OR NOT ({distance.can_tell}))"
        if distance.can_tell == "TRUE":
            near = distance.within
        within = self._select_rows(selected, *distance.needed, "__kth.far IS NOT NULL", near)
        all_rows = self._select_rows(selected, *distance.needed, "__kth.far IS NULL")
        return (
            f"SELECT __rows.* FROM ({far}) AS __kth"  # noqa: S608  quoted
            f" CROSS JOIN LATERAL ({within} UNION ALL {all_rows}) AS __rows"
        )
