"""Types of MariaDB and MySQL: how to read a column into an Arrow type, and to look it up by such values.

The server gives each column in a type of its own, and says in each answer which. What Spark cannot hold is
refused instead of bent: zero dates, numbers and times beyond the declared type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.shared.conversion import from_json, is_nested, readable_as_json
from lookup_connectors.shared.text_values import from_texts, moments
from lookup_hints.errors import ConnectorError
from lookup_hints.spi.arrow_types import TIMESTAMP, TIMESTAMP_NTZ, cast, sql_type


@dataclass(frozen=True)
class CatalogColumn:
    """A column of the source in the catalog.

    Args:
        name: its name.
        type: name of its type, as in ``varchar``.
        sql: the type as SQL writes it.
        charset: the character set of a text.
        collation: the collation of a text.
        digits: the precision of a number, or the bits of a BIT.
        scale: the scale of a number.
        comment: what is said of it.
    """

    name: str
    type: str
    sql: str
    charset: str | None
    collation: str | None
    digits: int | None
    scale: int | None
    comment: str

    @property
    def wire(self) -> str:
        """How the server sends it: a name of ``_WIRES``."""
        if self.charset is not None or self.type in _TEXTS:
            return "text"
        return _WIRE_OF_TYPE.get(self.type, "bytes")

    @property
    def is_wide(self) -> bool:
        """Whether a value may be large."""
        return (
            self.type.endswith(("text", "blob")) and not self.type.startswith("tiny")
        ) or self.type == "json"

    @property
    def is_unsigned(self) -> bool:
        return "unsigned" in self.sql


_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
# Types of texts, whatever their columns say of a character set.
_TEXTS = ("json", "uuid", "inet4", "inet6")
_WIRE_OF_TYPE = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **{
        each: each
        for each in ("year", "decimal", "float", "double", "date", "datetime", "timestamp", "time", "bit")
    },
}
# By codes of the protocol; a bit of its flags, and the number of the character set of bytes.
_TYPES = {
    1: "tinyint",
    2: "smallint",
    3: "int",
    4: "float",
    5: "double",
    7: "timestamp",
    8: "bigint",
    9: "mediumint",
    10: "date",
    11: "time",
    12: "datetime",
    13: "year",
    16: "bit",
    245: "json",
    246: "decimal",
}
_LARGE = 252
_UNSIGNED = 32
_BINARY = 63


def described_column(described: Any, charset: str | None = None) -> CatalogColumn:
    """The column of an answer, by the driver's description of it; ``charset`` is that of its texts."""
    is_text = described.charsetnr != _BINARY
    large, small = ("text", "varchar") if is_text else ("blob", "varbinary")
    name = _TYPES.get(described.type_code, large if described.type_code == _LARGE else small)
    is_unsigned, digits, sql = bool(described.flags & _UNSIGNED), described.length, name
    if name == "decimal":
        digits -= (described.scale > 0) + (not is_unsigned)  # the point, and a sign
        sql = f"decimal({digits},{described.scale})"
    if is_unsigned and name in (*_INTEGERS, "decimal"):
        sql += " unsigned"
    charset = charset or "utf8mb4" if name in ("text", "varchar") else None
    return CatalogColumn(described.name, name, sql, charset, None, digits, described.scale, "")


def quoted(name: str) -> str:
    """``name`` as an identifier under each mode of the server.

    >>> quoted("odd `name")
    '`odd ``name`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class MysqlColumn:
    """How to select one column, and to compare it with keys.

    Args:
        source: the column that is read.
        field: its declared type.
        is_shown: whether it is read as the text that the server shows of it, and compared so.
        reads_zero_as_null: whether a zero date is NULL, and no error.
    """

    source: CatalogColumn
    field: pa.Field
    is_shown: bool = False
    reads_zero_as_null: bool = False

    @property
    def wire(self) -> str:
        """How its values are sent."""
        return "text" if self.is_shown else self.source.wire

    def selected(self, of: str = "") -> str:
        """SQL for its value, which keys are compared with: the bare column where an index can be used."""
        column = of + quoted(self.source.name)
        return f"CAST({column} AS CHAR)" if self.is_shown else column

    def in_text(self) -> str:
        """SQL for its value where all are sent as texts or bytes; the server itself would round FLOATs."""
        column = self.selected()
        if self.wire in ("float", "bit"):
            return f"{column} + 0" if self.wire == "bit" else f"{column} + 0e0"
        return column

    # The driver has None for a zero date, as for NULL. (docs/decisions/0243)
    def odd_date(self) -> str:
        """SQL for the text of a value that is no date of the calendar; empty for other types."""
        if self.wire not in ("date", "datetime", "timestamp"):
            return ""
        column = self.selected()
        is_odd = f"YEAR({column}) = 0 OR MONTH({column}) = 0 OR DAYOFMONTH({column}) = 0"
        return f"IF({is_odd}, CAST({column} AS CHAR), NULL)"

    # Reading.

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """The column of values as the driver gives them; odd dates among them are texts.

        Raises:
            REFUSALS: a value does not fit.
        """
        kind = self.field.type
        if self.wire == "bit":
            values = [None if value is None else int.from_bytes(value, "big") for value in values]
        if types.is_boolean(kind):
            return _as_booleans(values)
        if types.is_decimal(kind) and self.wire in _NUMBERS:
            return cast(pa.array(values, pa.decimal128(20, 0)), kind)
        if self.wire in ("text", "decimal"):
            return _from_own_texts(values, kind)
        if types.is_timestamp(kind):
            return pa.array(values, TIMESTAMP_NTZ).cast(kind)
        return pa.array(values, kind)

    def from_text(self, values: Sequence[Any]) -> pa.Array:
        """The column of values that the server sent as texts, or as bytes.

        Raises:
            REFUSALS: a value does not fit.
        """
        kind = self.field.type
        if self.wire in ("text", "bytes"):
            return self.to_arrow(values)
        if self.wire == "time":
            return pa.array([None if value is None else _parse_time(value) for value in values], kind)
        if types.is_boolean(kind):
            return _as_booleans([None if value is None else int(value) for value in values])
        if self.odd_date() and self.reads_zero_as_null:
            values = [None if value is not None and is_zero_date(value) else value for value in values]
        return moments(values, kind) if types.is_timestamp(kind) else from_texts(values, kind)

    # Asking.

    def possible(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which ``keys`` the source's type can hold; others are misses."""
        if types.is_decimal(keys.type) and self.wire in _NUMBERS:
            return pa.chunked_array(
                [[each == int(each) and abs(each) < 2**64 for each in keys.to_pylist()]], pa.bool_()
            )
        if types.is_floating(keys.type):
            return pc.is_finite(keys)
        if types.is_date(keys.type) or types.is_timestamp(keys.type):
            texts = keys.cast(pa.string())
            return pc.and_not(pc.match_substring_regex(texts, r"^\d{4}-"), pc.starts_with(texts, "0000"))
        if types.is_duration(keys.type):
            return pc.less(pc.abs(keys.cast(pa.int64())), _BEYOND_TIME)
        # What is no year becomes one: 70 is 1970.
        return pc.or_(pc.equal(keys, 0), pc.greater(keys, 1900)) if self.wire == "year" else pc.is_valid(keys)

    def bind(self, keys: pa.ChunkedArray) -> list[Any]:
        """``keys`` as values to bind."""
        if types.is_boolean(keys.type):
            keys = keys.cast(pa.int8())
        elif types.is_timestamp(keys.type):
            keys = keys.cast(TIMESTAMP_NTZ)
        values: list[Any] = keys.to_pylist()
        return (
            [int(value) for value in values]
            if self.wire in _NUMBERS and types.is_decimal(keys.type)
            else values
        )

    def bind_ordered(self, values: pa.ChunkedArray) -> list[Any]:
        """Values that the column is compared with by order: years that it has not are beyond all."""
        if not (types.is_date(values.type) or types.is_timestamp(values.type)):
            return values.to_pylist()  # type: ignore[no-any-return]
        is_date = types.is_date(values.type)
        least, most = (date.min, date.max) if is_date else (datetime.min, datetime.max)
        numbers = values.cast(pa.int32() if is_date else pa.int64())
        bounds = [
            pa.scalar(each, pa.date32() if is_date else TIMESTAMP_NTZ).cast(numbers.type)
            for each in (least, most)
        ]
        inside = pc.min_element_wise(pc.max_element_wise(numbers, bounds[0]), bounds[1])
        return inside.cast(pa.date32() if is_date else TIMESTAMP_NTZ).to_pylist()  # type: ignore[no-any-return]


_NUMBERS = ("integer", "year", "bit")
_BEYOND_TIME = 839 * 3600 * 1_000_000
_ZERO = re.compile(r"\d{4}-(00-|\d\d-00)")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def is_zero_date(text: str) -> bool:
    """Whether ``text`` is a date or time with month 0 or day 0.

    >>> is_zero_date("2024-00-10"), is_zero_date("0000-01-01")
    (True, False)
    """
    return _ZERO.match(text) is not None


def _as_booleans(values: Sequence[Any]) -> pa.Array:
    if not {*values} <= {0, 1, None}:
        raise ValueError("neither 0 nor 1")
    return pa.array([None if value is None else bool(value) for value in values], pa.bool_())


def _from_own_texts(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if types.is_string(kind):
        return pa.array(values, kind)
    if is_nested(kind):
        return from_json(values, kind)
    if types.is_integer(kind):  # of a DECIMAL that is whole
        return cast(from_texts(values, pa.decimal128(38, 0)), kind)
    return from_texts(values, kind)


def _parse_time(text: str) -> timedelta:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    sign, hours, minutes, seconds, fraction = match.groups(default="")
    size = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=int(fraction.ljust(6, "0"))
    )
    return -size if sign else size


# --- which types can be read as which -------------------------------------------------------------

_KindTest = Callable[[pa.DataType], bool]
_READABLE: tuple[tuple[_KindTest, tuple[str, ...]], ...] = (
    (types.is_boolean, ("tinyint", "bit")),
    (types.is_integer, (*_INTEGERS, "year", "bit", "decimal")),
    (types.is_float32, ("float",)),
    (types.is_float64, ("float", "double", "decimal", "tinyint", "smallint", "mediumint", "int", "year")),
    (types.is_decimal, (*_INTEGERS, "year", "bit", "decimal")),
    (types.is_date, ("date",)),
    (lambda kind: bool(kind == TIMESTAMP_NTZ), ("datetime",)),
    (lambda kind: bool(kind == TIMESTAMP), ("timestamp",)),
    (types.is_duration, ("time",)),
)
# What the server shows as one text; not of numbers that are rounded, nor of bytes.
_SHOWN = (*_INTEGERS, "year", "decimal", "date", "datetime", "timestamp", "time", "uuid", "inet4", "inet6")


def plan_column(source: CatalogColumn, field: pa.Field, *, reads_zero_as_null: bool) -> MysqlColumn:
    """How ``source`` is read as ``field``.

    Raises:
        ValueError: the types have no exact conversion; names possible types.
    """
    kind = field.type
    plan = MysqlColumn(source, field, reads_zero_as_null=reads_zero_as_null)
    if types.is_string(kind):
        if source.type == "json" or (source.type in _SHOWN and source.wire != "text"):
            return MysqlColumn(source, field, is_shown=True)
        is_readable = source.wire == "text"
    elif is_nested(kind):
        is_readable = source.wire == "text" and readable_as_json(kind)
    elif types.is_binary(kind):
        is_readable = source.wire == "bytes"
    else:
        is_readable = any(is_kind(kind) and source.type in read for is_kind, read in _READABLE)
    if not is_readable:
        told = sql_type(reported_type(source))
        raise ValueError(f"{source.sql} cannot be read as {sql_type(kind)}. Declare it {told}.")
    return plan


# TINYINT(1) has values from -128 to 127, whatever tools take it for.
_REPORTED: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "year": (pa.int16(), pa.int16()),
    "float": (pa.float32(), pa.float32()),
    "double": (pa.float64(), pa.float64()),
    "date": (pa.date32(), pa.date32()),
    "datetime": (TIMESTAMP_NTZ, TIMESTAMP_NTZ),
    "timestamp": (TIMESTAMP, TIMESTAMP),
    "time": (pa.duration("us"), pa.duration("us")),
}
_WIDEST = 38


def reported_type(source: CatalogColumn) -> pa.DataType:
    """The type that a column without a declaration gets: the one that holds its values."""
    digits = source.digits or 0
    if source.type == "decimal":
        return pa.decimal128(min(digits, _WIDEST), source.scale or 0)
    if source.type == "bit":
        return pa.bool_() if digits == 1 else pa.int64() if digits < 64 else pa.decimal128(20, 0)
    if source.type in _REPORTED:
        return _REPORTED[source.type][source.is_unsigned]
    return pa.string() if source.wire == "text" else pa.binary()


# --- character sets -------------------------------------------------------------------------------

_HOLD_ALL = ("utf8mb4", "utf16", "utf16le", "utf32", "gb18030")


def holds_all(charset: str | None) -> bool:
    """Whether each character can stand in a text of this character set."""
    return charset is None or charset in _HOLD_ALL


def without_characters(keys: pa.ChunkedArray, characters: Iterable[str]) -> pa.ChunkedArray:
    """Which of ``keys`` hold none of ``characters``."""
    pattern = f"[{''.join(map(re.escape, sorted(characters)))}]"
    return pc.invert(pc.match_substring_regex(keys, pattern))


def explain_refusal(error: ConnectorError, plan: MysqlColumn) -> ConnectorError:
    """``error`` of a value of ``plan``, with what helps where that was a zero date."""
    if plan.odd_date() and _ZERO.search(str(error)):
        return ConnectorError(f"{error} 'zero-dates' = 'null' reads zero dates as NULL.", permanent=True)
    return error
