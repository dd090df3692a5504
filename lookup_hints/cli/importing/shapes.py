"""What JSON looks like as Arrow types: of values, of several values together, and as a column can have it.

A member of a STRUCT that no type can hold is there without one: as NULL, with the reason in its metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_hints.spi.types import TIMESTAMP, TIMESTAMP_NTZ, sql_type

WHY = b"why"
"""Where the metadata of a member says why it has no type."""

LARGE = pa.decimal128(19, 0)
"""A whole number that a BIGINT holds, and a DOUBLE may not."""

WIDE = pa.decimal128(38, 18)

URI = pa.large_string()
"""A text that is known to be an address."""

_MOST_DIGITS = 38
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_MOMENT = re.compile(
    rf"{_DATE.pattern}[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d{{1,6}})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NAME_OF_A_ROW = re.compile(r"-?\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d", re.IGNORECASE)


class NoType(Exception):
    """There is no type for it; why, as the end of a sentence that begins with what it is."""


def field(name: str, kind: Callable[[], pa.DataType]) -> pa.Field:
    """The member ``name`` of a STRUCT, with the reason where it has no type."""
    try:
        return pa.field(name, kind())
    except NoType as none:
        return pa.field(name, pa.null(), metadata={WHY: str(none)})


def type_of(value: Any) -> pa.DataType:
    """The type of a JSON value, of which nothing is lost.

    Args:
        value: with fractions as exact decimals.

    Raises:
        NoType: no column can hold it.
    """
    if isinstance(value, dict):
        return _type_of_object(value)
    if isinstance(value, list):
        return pa.list_(together(map(type_of, value)))
    if isinstance(value, str):
        return _type_of_text(value)
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if abs(value) <= 2**53 else _exact(Decimal(value))
    return pa.null() if value is None else _type_of_fraction(value)


def _type_of_object(value: dict[str, Any]) -> pa.DataType:
    if value and all(map(_NAME_OF_A_ROW.fullmatch, value)):
        return pa.map_(pa.string(), together(map(type_of, value.values())))
    return pa.struct([field(name, partial(type_of, each)) for name, each in value.items()])


def _type_of_text(text: str) -> pa.DataType:
    if text.startswith(("https://", "http://")):
        return URI
    match = _MOMENT.fullmatch(text) or _DATE.fullmatch(text)
    if match is None:
        return pa.string()
    *parts, zone = (*match.groups(), None) if match.re is _DATE else match.groups()
    try:
        datetime(*(int(part or 0) for part in parts))  # type: ignore[arg-type]
    except ValueError:  # 2024-02-30
        return pa.string()
    if match.re is _DATE:
        return pa.date32()
    return TIMESTAMP if zone else TIMESTAMP_NTZ


def _type_of_fraction(value: Decimal | float) -> pa.DataType:
    if isinstance(value, float) or Decimal(repr(float(value))) == value:
        return pa.float64()
    return _exact(value)


def _exact(value: Decimal) -> pa.DataType:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    before, behind = max(len(digits) + exponent, 0), max(-exponent, 0)
    if not behind and -(2**63) <= value < 2**63:
        return LARGE
    behind = max(behind, WIDE.scale) if behind else 0
    if before + behind > _MOST_DIGITS:
        raise NoType(f"is a number of more digits than a DECIMAL has ({value:.6g})")
    return pa.decimal128(_MOST_DIGITS, behind)


def together(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """One type for values of all ``kinds``.

    Raises:
        NoType: there is none.
    """
    return reduce(union, kinds, pa.null())


def union(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """One type for values of both.

    Raises:
        NoType: there is none.
    """
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        names = dict.fromkeys(each.name for kind in (one, other) for each in kind)
        return pa.struct([_member(name, one, other) for name in names])
    if types.is_list(one) and types.is_list(other):
        return pa.list_(union(one.value_type, other.value_type))
    maps = [each for each in (one, other) if types.is_map(each)]
    if len(maps) == 2:
        return pa.map_(pa.string(), union(one.item_type, other.item_type))
    if maps and pa.struct([]) in (one, other):
        return maps[0]
    return _of_plain(one, other)


def _member(name: str, one: pa.DataType, other: pa.DataType) -> pa.Field:
    there = [kind.field(name) for kind in (one, other) if kind.get_field_index(name) >= 0]
    without = [each for each in there if WHY in (each.metadata or {})]
    return without[0] if without else field(name, lambda: together(each.type for each in there))


def _of_plain(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    both = (one, other)
    if all(kind == URI or types.is_string(kind) or types.is_temporal(kind) for kind in both):
        return pa.string()
    if all(types.is_integer(kind) for kind in both):
        return pa.int64()
    if all(types.is_integer(kind) or types.is_float64(kind) for kind in both):
        return pa.float64()
    if all(types.is_integer(kind) or types.is_decimal(kind) or types.is_float64(kind) for kind in both):
        before, behind = map(max, zip(*map(_digits, both), strict=True))
        if before + behind <= _MOST_DIGITS:
            return pa.decimal128(_MOST_DIGITS if behind else before, behind)
    raise NoType(f"is {_shown(one)} here and {_shown(other)} there")


def _digits(number: pa.DataType) -> tuple[int, int]:
    """How many digits stand before and behind the point."""
    kind = LARGE if types.is_integer(number) else WIDE if types.is_float64(number) else number
    return kind.precision - kind.scale, kind.scale


def _shown(kind: pa.DataType) -> str:
    if types.is_nested(kind):
        return "an object" if types.is_struct(kind) or types.is_map(kind) else "an array"
    return sql_type(pa.string() if kind == URI else kind)


def finished(kind: pa.DataType, where: str, notes: list[str]) -> pa.DataType:
    """The type of a column of ``kind``; what is left out of it, and what is guessed, goes into ``notes``.

    Raises:
        NoType: nothing is left of it.
    """
    if types.is_null(kind):
        notes.append(f"{where} is NULL wherever it was seen: STRING is a guess")
        return pa.string()
    if kind in (LARGE, URI):
        return pa.int64() if kind == LARGE else pa.string()
    if types.is_list(kind):
        return pa.list_(finished(kind.value_type, f"{where}[]", notes))
    if types.is_map(kind):
        return pa.map_(pa.string(), finished(kind.item_type, f"{where}.*", notes))
    if types.is_struct(kind):
        members = finished_members(kind, f"{where}.", notes)
        if not members:
            raise NoType("is an object of unknown members")
        return pa.struct(members)
    return kind


def finished_members(row: pa.DataType, where: str, notes: list[str]) -> list[pa.Field]:
    """The members of ``row`` as columns or fields; what is left out goes into ``notes``."""
    members: dict[str, pa.Field] = {}
    for each in row:
        try:
            if why := (each.metadata or {}).get(WHY):
                raise NoType(why.decode())
            if each.name.lower() in members:
                raise NoType("differs from another name in capitals alone")
            if not each.name:
                raise NoType("is a member without a name")
            members[each.name.lower()] = pa.field(each.name, finished(each.type, where + each.name, notes))
        except NoType as none:
            notes.append(f"left out: {where}{each.name}, which {none}")
    return list(members.values())
