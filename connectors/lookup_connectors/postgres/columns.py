"""PostgreSQL's types: how to read a column into an Arrow type, and to look it up by values of that type.

Few types cross the wire: bigint, double precision, boolean, date, both timestamps, bytea and text, which is
that of numbers with a scale, too. What Spark cannot hold is refused ('NaN' of a decimal, 'infinity', years
before 1 and after 9999) instead of bent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.conversion import ToArrow, from_json, is_nested, readable_as_json
from lookup_connectors.shared.sql_parts import quoted
from lookup_connectors.shared.text_values import from_texts
from lookup_hints.errors import nearest
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, sql_type

VECTORS = frozenset({"vector", "halfvec"})
"""Types of the extension pgvector."""


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source in the catalog, with domains resolved.

    Args:
        name: its name.
        type: name of the built-in type, ``enum``, ``_`` for an array of others, or empty.
        sql: the type as SQL writes it.
        modifier: the type's modifier (precision and scale of a numeric), -1 for none.
        structured: an array, a composite or an hstore: what JSON can show the parts of.
        oid: the type's own number, that of a domain for a domain.
        element: what ``type`` is for the elements of an array, seen through domains.
        element_modifier: what ``modifier`` is for them.
        dimensions: how many an array is declared with, if it says so.
    """

    name: str
    type: str
    sql: str
    modifier: int
    structured: bool
    oid: int
    element: str = ""
    element_modifier: int = -1
    dimensions: int = 1

    @property
    def schema(self) -> str:
        """What stands in SQL before the type of an extension, and before its functions."""
        return self.sql.rpartition(self.type)[0] if self.type in VECTORS else ""


# No value becomes an object of asyncpg, which reads 'infinity' as date.max and is slower than Arrow. The
# server packs the columns, numbers with a scale as exact text. (docs/decisions/0006, docs/decisions/0240)
@dataclass(frozen=True)
class PostgresColumn:
    """How to select one column, and to compare it with keys.

    Args:
        source: the column that is read.
        field: its declared type.
        selected: SQL that gives its value in a type of the wire.
        wire: that type: ``bigint``, ``float8``, ``boolean``, ``date``, ``timestamp``, ``timestamptz``,
            ``bytea``, ``floats`` in bytes, ``text``, or ``json`` in a text.
        to_arrow: makes a column of single values, to find the one that does not fit.
        compared: SQL that a key is compared with: the bare column where an index can be used.
        key: SQL that makes the comparable value of a bound key ``{k}``.
        bound: the type that keys are bound as.
        possible: which keys the source's type can hold; others are misses.
    """

    source: SourceColumn
    field: pa.Field
    selected: str
    wire: str
    to_arrow: ToArrow
    compared: str
    key: str
    bound: str
    possible: Callable[[pa.ChunkedArray], pa.ChunkedArray]

    @property
    def column(self) -> str:
        return quoted(self.source.name)

    @property
    def depends_on_settings(self) -> bool:
        """Whether the session decides how its values are written, beside how it writes dates and moments."""
        is_own_text = types.is_string(self.field.type) and self.source.type not in _WRITTEN_ONE_WAY
        return self.wire == "json" or is_own_text

    def equality(self, key: str) -> str:
        """SQL that compares the column with ``key``, a bound one."""
        return f"{self.compared} = {self.key.replace('{k}', key)}"

    def bind(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """``keys`` as texts of the type that they are bound as."""
        if types.is_binary(keys.type):
            return pa.chunked_array([pa.array([f"\\x{key.hex()}" for key in keys.to_pylist()], pa.string())])
        if types.is_duration(keys.type):
            keys = keys.cast(pa.int64())
        elif types.is_float32(keys.type):
            keys = keys.cast(pa.float64())  # whose shortest text is another number
        return keys.cast(pa.string())

    def bind_ordered(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Values that the column is compared with by order: years that it has not are beyond all."""
        texts = self.bind(values)
        if not (types.is_date(values.type) or types.is_timestamp(values.type)):
            return texts
        is_early = pc.or_(pc.starts_with(texts, "-"), pc.starts_with(texts, "0000"))
        return pc.if_else(_common_years(values), texts, pc.if_else(is_early, "-infinity", "infinity"))


def plan_column(source: SourceColumn, field: pa.Field) -> PostgresColumn:
    """How ``source`` is read as ``field``.

    Raises:
        ValueError: the types have no exact conversion; names possible types.
    """
    rule = next((rule for rule in _RULES if rule.applies(source, field.type)), None)
    if rule is None or not (readable_as_json(field.type) or not is_nested(field.type)):
        told = sql_type(reported_type(source))
        raise ValueError(
            f"PostgreSQL's {source.sql} cannot be read as {sql_type(field.type)}. Declare it {told}."
        )
    column = quoted(source.name)
    return PostgresColumn(
        source,
        field,
        selected=rule.selected.format(c=column, s=source.schema),
        wire=rule.wire,
        to_arrow=_value_reader(rule.wire, field.type),
        compared=rule.compared.format(c=column),
        key=rule.key.replace("{type}", source.sql),
        bound=_bound_type(field.type),
        possible=rule.possible,
    )


# --- reading --------------------------------------------------------------------------------------

INTEGERS = frozenset({"int2", "int4", "int8"})
_JSON = frozenset({"json", "jsonb"})
_WRITTEN_ONE_WAY = INTEGERS | _JSON | {"text", "varchar", "bpchar", "name", "uuid", "enum", "numeric", "bool"}
_NO_MONTHS = "extract(year FROM {c}) = 0 AND extract(month FROM {c}) = 0"
_MICROSECONDS = "(extract(epoch FROM {c}) * 1000000)::bigint::text"
_ENUM_LABEL = "(SELECT label FROM unnest(enum_range(NULL::{type})) AS label WHERE label::text = {k})"


def _without_nul(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.invert(pc.match_substring(keys, "\0"))


def _canonical_uuids(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    # Another spelling of a uuid cannot equal the canonical text that is read.
    return pc.match_substring_regex(keys, "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def _common_years(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    # Years that neither Spark nor Python's calendar has; their texts are not dates to PostgreSQL.
    texts = keys.cast(pa.string())
    return pc.and_not(pc.match_substring_regex(texts, r"^\d{4}-"), pc.starts_with(texts, pattern="0000"))


@dataclass(frozen=True)
class _Rule:
    """Source types that are read as one Arrow type; None stands for every type."""

    declared: Callable[[pa.DataType], bool]
    sources: frozenset[str] | None
    wire: str
    selected: str
    compared: str = "{c}"
    key: str = "{k}"
    possible: Callable[[pa.ChunkedArray], pa.ChunkedArray] = pc.is_valid
    structured: bool = False
    array: bool = False

    def applies(self, source: SourceColumn, kind: pa.DataType) -> bool:
        """Whether this is the rule for ``source`` declared as ``kind``."""
        known = self.sources is None or source.type in self.sources
        fits = (source.structured or not self.structured) and (_is_array(source) or not self.array)
        return self.declared(kind) and known and fits


def _is_array(source: SourceColumn) -> bool:
    return source.type.startswith("_")  # as PostgreSQL calls the array types of its own types


def _is_list_of_texts(kind: pa.DataType) -> bool:
    """Whether ``kind`` is ARRAY<STRING>, or an array of such."""
    return bool(types.is_list(kind)) and (
        types.is_string(kind.value_type) or _is_list_of_texts(kind.value_type)
    )


def _is_list_of_floats(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) and types.is_floating(kind.value_type))


def _is_type(expected: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda kind: bool(kind == expected)


_RULES = (
    _Rule(types.is_boolean, frozenset({"bool"}), "boolean", "{c}::boolean"),
    # Integers of all widths compare with a bigint by index; numeric needs a numeric.
    _Rule(types.is_integer, INTEGERS, "bigint", "{c}::bigint"),
    _Rule(types.is_integer, frozenset({"numeric"}), "text", "trim_scale({c})::text", key="{k}::numeric"),
    _Rule(types.is_float32, frozenset({"float4"}), "float8", "{c}::float8"),
    _Rule(types.is_float64, frozenset({"float4", "float8"}), "float8", "{c}::float8"),
    _Rule(
        types.is_float64,
        frozenset({"numeric", "int2", "int4"}),
        "float8",
        "{c}::float8",
        compared="{c}::float8",
    ),
    _Rule(types.is_decimal, frozenset({"numeric"}), "text", "{c}::text", key="{k}::numeric"),
    _Rule(types.is_decimal, INTEGERS, "text", "{c}::text", compared="{c}::numeric", key="{k}::numeric"),
    _Rule(types.is_binary, frozenset({"bytea"}), "bytea", "{c}::bytea"),
    _Rule(types.is_date, frozenset({"date"}), "date", "{c}::date", key="{k}::date", possible=_common_years),
    _Rule(
        _is_type(TIMESTAMP_NTZ),
        frozenset({"timestamp"}),
        "timestamp",
        "{c}::timestamp",
        key="{k}::timestamp",
        possible=_common_years,
    ),
    _Rule(
        _is_type(TIMESTAMP),
        frozenset({"timestamptz"}),
        "timestamptz",
        "{c}::timestamptz",
        key="{k}::timestamptz",
        possible=_common_years,
    ),
    # A month has no fixed length: an interval that has months arrives as its text, and is refused.
    _Rule(
        types.is_duration,
        frozenset({"interval"}),
        "text",
        f"CASE WHEN {_NO_MONTHS} THEN {_MICROSECONDS} ELSE {{c}}::text END",
        key="({k} || ' microseconds')::interval",
    ),
    _Rule(types.is_string, frozenset({"text", "varchar"}), "text", "{c}::text", possible=_without_nul),
    _Rule(
        types.is_string, frozenset({"bpchar"}), "text", "{c}::text", key="{k}::bpchar", possible=_without_nul
    ),
    _Rule(
        types.is_string, frozenset({"uuid"}), "text", "{c}::text", key="{k}::uuid", possible=_canonical_uuids
    ),
    # A text that is not a label must not be cast: that would be an error for the whole batch.
    _Rule(types.is_string, frozenset({"enum"}), "text", "{c}::text", key=_ENUM_LABEL, possible=_without_nul),
    _Rule(types.is_string, None, "text", "{c}::text", compared="{c}::text", possible=_without_nul),
    _Rule(is_nested, _JSON, "json", "{c}::text"),
    # The head of what is sent has the number of dimensions.
    _Rule(_is_list_of_floats, VECTORS, "floats", "substr({s}vector_send({c}::{s}vector), 5)"),
    # PostgreSQL's own text of each element, as it is of a value alone: JSON has numbers and objects for some.
    _Rule(_is_list_of_texts, None, "json", "to_json({c}::text[])::text", array=True),
    _Rule(is_nested, None, "json", "to_json({c})::text", structured=True),
)


def _value_reader(wire: str, kind: pa.DataType) -> ToArrow:
    if wire == "json":
        return partial(from_json, target=kind)
    if wire in ("text", "date", "timestamp", "timestamptz") and not types.is_string(kind):
        return partial(from_texts, kind=kind)
    return partial(pa.array, type=kind)


def _bound_type(kind: pa.DataType) -> str:
    plain = (
        (types.is_boolean, "boolean"),
        (types.is_integer, "bigint"),
        (types.is_floating, "float8"),
        (types.is_binary, "bytea"),
    )
    return next((name for is_kind, name in plain if is_kind(kind)), "text")


# --- telling the schema ---------------------------------------------------------------------------

_TOLD: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP_NTZ,
    "timestamptz": TIMESTAMP,
    "interval": pa.duration("us"),
    **dict.fromkeys(VECTORS, pa.list_(pa.float32())),
}
_LARGEST = 38


def reported_type(source: SourceColumn) -> pa.DataType:
    """The type that a column without a declaration gets: the nearest one, or STRING."""
    if _is_array(source):
        element = _simple_type(source.element, source.element_modifier)
        kind = element if readable_as_json(element) else pa.string()
        for _ in range(max(source.dimensions, 1)):
            kind = pa.list_(kind)
        return kind
    return _simple_type(source.type, source.modifier)


def _simple_type(name: str, modifier: int) -> pa.DataType:
    return _numeric_type(modifier) if name == "numeric" else _TOLD.get(name, pa.string())


def _numeric_type(modifier: int) -> pa.DataType:
    if modifier < 0:
        return pa.decimal128(_LARGEST, 18)
    precision = (modifier - 4) >> 16
    scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400  # eleven bits with a sign
    # A negative scale means trailing zeros before the point, a scale above the precision zeros after it.
    return pa.decimal128(
        min(max(precision, scale, precision - scale), _LARGEST), min(max(scale, 0), _LARGEST)
    )


def missing_column(name: str, sources: Sequence[SourceColumn]) -> str:
    """The error for an unknown column ``name``, with the nearest existing one."""
    return f"there is no column {name!r}. {nearest(name, [source.name for source in sources])}"
