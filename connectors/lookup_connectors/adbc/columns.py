"""How a column of a driver's Arrow type becomes the declared one: strictly, or with an error. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.conversion import from_json, is_nested
from lookup_connectors.shared.sql_parts import find_name
from lookup_connectors.shared.text_values import REFUSALS, from_texts, moments
from lookup_hints.errors import ConnectorError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, cast, sql_type

_TYPE_NAMES = (b"POSTGRESQL:type", b"ADBC:postgresql:typname")
_PLAIN_TEXT = {"", "text", "varchar", "bpchar", "name"}
# Types that the driver gives as something that they are not: $1.00 as the number 100.
_NEVER = {"money"}

_WHOLE_IN_DOUBLE = 2**53


@dataclass(frozen=True)
class AdbcColumn:
    """How one column is read.

    Args:
        field: what it is declared as.
        name: what the source calls it.
        source: the driver's type; None where that depends on the rows.
        source_type: the database's own name of the type, where the driver tells it.
        as_text: whether the database turns it into text.
        as_exact_text: whether only its floating numbers are turned into text, in as few digits as they need.
    """

    field: pa.Field
    name: str
    source: pa.DataType | None
    source_type: str = ""
    as_text: bool = False
    as_exact_text: bool = False

    def is_still(self, told: pa.Field) -> bool:
        """Whether the column has the type still that the plan was made for."""
        if self.as_text or self.source is None:
            return True
        return bool(told.type == self.source) and type_name(told) == self.source_type


def type_name(field: pa.Field) -> str:
    """The database's own name of a column's type, where the driver tells it."""
    metadata = field.metadata or {}
    return next((metadata[key].decode() for key in _TYPE_NAMES if key in metadata), "")


def plan_columns(source: pa.Schema, wanted: pa.Schema, table: str, relation: str) -> dict[str, AdbcColumn]:
    """How each column of ``wanted`` is read from columns of ``source``.

    Raises:
        ConnectorError: a column is not there, or cannot be read as declared.
    """
    return {field.name: _plan_column(source, field, table, relation) for field in wanted}


def _plan_column(source: pa.Schema, field: pa.Field, table: str, relation: str) -> AdbcColumn:
    name = find_name(field.name, source.names, table, relation)
    found = source.field(name)
    plan = AdbcColumn(field, name, found.type, type_name(found))
    if types.is_string(field.type):
        is_text = _is_text(found.type) and plan.source_type in _PLAIN_TEXT
        return plan if is_text else replace(plan, as_text=True)
    storage = found.type.storage_type if isinstance(found.type, pa.BaseExtensionType) else found.type
    if plan.source_type in _NEVER or not _can_read(storage, field.type, plan.source_type):
        shown = plan.source_type or str(found.type)
        raise ConnectorError(
            f"table {table}: column {field.name!r}: {relation} has it as {shown}, which cannot be read as"
            f" {sql_type(field.type)}. Declare it {sql_type(reported_type(found))}.",
            permanent=True,
        )
    return plan


def in_text_if_huge(plan: AdbcColumn) -> AdbcColumn:
    """``plan`` for DuckDB, which gives the 128 bits of a HUGEINT or UHUGEINT for those of a decimal."""
    return replace(plan, as_text=True) if plan.source == pa.decimal128(38, 0) else plan


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view")


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or str(kind) == "binary_view"
    )


def _can_read(source: pa.DataType, kind: pa.DataType, name: str) -> bool:
    """Whether values of ``source`` may be values of ``kind``; each is still looked at."""
    if is_nested(kind):
        return _can_read_nested(source, kind)
    if _is_text(source):  # how PostgreSQL's driver gives a numeric
        return name == "numeric" and bool(
            types.is_decimal(kind) or types.is_integer(kind) or types.is_float64(kind)
        )
    if types.is_boolean(kind):
        return bool(types.is_boolean(source))
    if types.is_integer(kind):
        return bool(types.is_integer(source) or types.is_decimal(source))
    if types.is_floating(kind):
        return _can_be_float(source, kind)
    if types.is_decimal(kind):
        return bool(types.is_integer(source) or types.is_decimal(source))
    if types.is_binary(kind):
        return _is_bytes(source) and name in ("", "bytea")
    if types.is_timestamp(kind):
        return bool(types.is_timestamp(source)) and (source.tz is None) == (kind.tz is None)
    if types.is_date(kind):
        return bool(types.is_date(source))
    return bool(types.is_duration(kind) and types.is_duration(source))


def _can_be_float(source: pa.DataType, kind: pa.DataType) -> bool:
    if not types.is_float64(kind):
        return bool(types.is_float16(source) or types.is_float32(source))
    return bool(types.is_floating(source) or types.is_integer(source) or types.is_decimal(source))


def _can_read_nested(source: pa.DataType, kind: pa.DataType) -> bool:
    if types.is_map(kind):
        return bool(types.is_map(source)) and all(
            _can_read_inner(*pair)
            for pair in ((source.key_type, kind.key_type), (source.item_type, kind.item_type))
        )
    if types.is_list(kind):
        is_list = types.is_list(source) or types.is_large_list(source) or types.is_fixed_size_list(source)
        return bool(is_list) and _can_read_inner(source.value_type, kind.value_type)
    if not types.is_struct(source) or source.num_fields != kind.num_fields:
        return False
    pairs = zip(source, kind, strict=True)
    return all(mine.name == told.name and _can_read_inner(mine.type, told.type) for mine, told in pairs)


def _can_read_inner(source: pa.DataType, kind: pa.DataType) -> bool:
    return (bool(types.is_string(kind)) and _is_text(source)) or _can_read(source, kind, "")


# --- values -----------------------------------------------------------------------------------------


def read_column(column: pa.Array, plan: AdbcColumn) -> pa.Array:
    """``column`` as declared.

    Raises:
        REFUSALS: a value does not fit.
    """
    kind = plan.field.type
    values = column.storage if isinstance(column, pa.ExtensionArray) else column
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return _from_sqlite_values(values, kind) if plan.source is None else _convert_values(values, kind)


def _convert_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _is_text(values.type) or types.is_string(kind):
        return cast(values, kind)
    if types.is_integer(kind):  # a numeric that is whole
        return cast(from_texts(values, pa.decimal128(38, 0)), kind)
    return from_texts(values, kind)


def _from_sqlite_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of SQLite, which stores what it is given."""
    if types.is_null(values.type):
        return values.cast(kind)
    if types.is_boolean(kind):
        if not types.is_integer(values.type):
            raise TypeError("not a truth value")
        if not set(pc.unique(values).to_pylist()) <= {0, 1, None}:
            raise ValueError("neither 0 nor 1")
        return values.cast(pa.bool_())
    is_rounded = types.is_integer(kind) and types.is_floating(values.type)
    if is_rounded and pc.any(pc.greater(pc.abs(values), _WHOLE_IN_DOUBLE)).as_py():
        raise ValueError("perhaps not the number that was written")
    if not _is_stored_as(values.type, kind):
        raise TypeError("of another kind")
    if is_nested(kind):
        return from_json(values.to_pylist(), kind)
    if types.is_timestamp(kind):
        return moments(values, kind)
    return from_texts(values, kind) if types.is_date(kind) or types.is_decimal(kind) else cast(values, kind)


def _is_stored_as(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether SQLite's class of values ``source`` is the one for ``kind``."""
    if types.is_integer(kind) or types.is_floating(kind):
        return bool(types.is_integer(source) or types.is_floating(source))
    return _is_bytes(source) if types.is_binary(kind) else _is_text(source)


def refused_row(column: pa.Array, plan: AdbcColumn) -> int:
    """The first row whose value does not fit."""
    for row in range(len(column)):
        try:
            read_column(column.slice(row, 1), plan)
        except REFUSALS:
            return row
    return 0


# --- telling the schema -----------------------------------------------------------------------------


def reported_type(source: pa.Field) -> pa.DataType:
    """The type that a column without a declaration gets: the nearest one, or STRING."""
    name = type_name(source)
    if name == "numeric":
        modifier = int((source.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))
        if modifier < 0:
            return pa.decimal128(38, 18)
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        return pa.decimal128(precision, scale) if precision <= 38 and scale <= precision else pa.string()
    if name in _NEVER or isinstance(source.type, pa.BaseExtensionType):
        return pa.string()
    return _nearest_type(source.type)


def _nearest_type(kind: pa.DataType) -> pa.DataType:
    if types.is_timestamp(kind):
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    if types.is_decimal(kind):
        return pa.decimal128(min(kind.precision, 38), kind.scale) if 0 <= kind.scale <= 38 else pa.string()
    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width, pa.decimal128(20, 0))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_nearest_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _nearest_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_nearest_type(kind.key_type), _nearest_type(kind.item_type))
    if types.is_float16(kind):
        return pa.float32()
    if _is_bytes(kind):
        return pa.binary()
    if types.is_duration(kind):
        return pa.duration("us")
    is_plain = types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_floating(kind)
    return kind if is_plain or types.is_date32(kind) else pa.string()
