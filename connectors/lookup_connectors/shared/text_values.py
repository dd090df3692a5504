"""Texts of a source as values: one strict reader for each type, which all connectors use.

What is read is what Spark's own CAST makes of the text. What is no text of the type is refused, and so is
what CAST would change: decimals are not rounded, nothing becomes infinity, no zone is dropped or guessed.

Arrow parses a column many times as fast as Python parses its texts, but not strictly: it takes 0xFF for an
integer, 1e400 for infinity, and the digits of a decimal modulo 2^128. So it parses what is known to be safe,
and the rest is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_hints.spi.arrow_types import TIMESTAMP_NTZ, checked

REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError)
"""What is raised where a value does not fit."""


# Spark's CAST is the measure, never its repair: where CAST would change what the text says, it is refused.
# (docs/decisions/0170)
def from_texts(texts: Sequence[str | None] | pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of ``kind`` that ``texts`` spell."""
    column = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if types.is_string(kind) or types.is_binary(kind):
        return column.cast(kind)
    values = spelled_values(column, kind)
    if values.null_count != column.null_count:
        raise ValueError("a text is no value of the type")
    return values


def spelled_values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same, with NULL for a text that spells no value of ``kind``, which is not nested."""
    if not types.is_string(texts.type):
        texts = texts.cast(pa.string())
    if types.is_duration(kind):  # microseconds
        return spelled_values(texts, pa.int64()).cast(kind)
    if types.is_boolean(kind):
        return _read_booleans(texts)
    if types.is_floating(kind):
        return _read_floats(texts, kind)
    return _with_rest(texts, _reader_of_type(kind))


def moments(texts: Sequence[str | None] | pa.Array, kind: pa.DataType) -> pa.Array:
    """Timestamps of ``kind``; where that has a zone, a text without one is UTC, as SQLite itself writes it.

    Raises:
        REFUSALS: a text is no moment.
    """
    column = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if kind.tz is None:
        return from_texts(column, kind)
    for each in (kind, TIMESTAMP_NTZ):
        values = spelled_values(column, each).cast(kind)
        if values.null_count == column.null_count:
            return values
    values = pc.coalesce(spelled_values(column, kind), values)
    if values.null_count != column.null_count:
        raise ValueError("a text is no moment")
    return values


_FEW = 100


@dataclass(frozen=True)
class _TextReader:
    """How texts of one type are read.

    Args:
        parse: Arrow's parser, for columns that it reads rightly; it raises for others.
        plain: a regular expression of the texts that Arrow reads rightly.
        tidy: brings other spellings that are common into that form.
        spelled: the value of any text, None where it spells none.
        kind: the type.
    """

    parse: Callable[[pa.Array], pa.Array]
    plain: str
    tidy: Callable[[pa.Array], pa.Array]
    spelled: Callable[[str], Any]
    kind: pa.DataType


def _reader_of_type(kind: pa.DataType) -> _TextReader:
    if types.is_decimal(kind):
        return _TextReader(
            partial(_parsed_decimals, kind=kind),
            r"^[+-]?[0-9]{1,19}(\.[0-9]{0,18})?$",
            _as_it_is,
            partial(_parse_decimal, kind=kind),
            kind,
        )
    if types.is_integer(kind):
        return _TextReader(
            partial(_parsed_integers, kind=kind),
            r"^-?[0-9]{1,18}$",
            _as_it_is,
            partial(_parse_integer, bits=kind.bit_width),
            kind,
        )
    parse: Callable[[pa.Array], pa.Array] = lambda texts: checked(texts.cast(kind))  # noqa: E731
    if types.is_date(kind):
        return _TextReader(parse, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", _as_it_is, _read_date, kind)
    zone = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)" if kind.tz else ""
    return _TextReader(
        parse,
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?" + zone + "$",
        _tidied_moments,
        partial(_read_moment, has_zone=kind.tz is not None),
        kind,
    )


def _with_rest(texts: pa.Array, reader: _TextReader) -> pa.Array:
    """All texts by Arrow, else the tidied ones, else the plain ones, and the rest one by one."""
    for form in (_as_it_is, reader.tidy):
        try:
            # Arrow takes twenty times as long to refuse a column as to parse it: first a few.
            reader.parse(form(texts.slice(0, _FEW)))
            return reader.parse(form(texts))
        except REFUSALS:
            continue
    tidied = reader.tidy(texts)
    is_plain = pc.match_substring_regex(tidied, reader.plain)
    rest, values = texts, pa.nulls(len(texts), reader.kind)
    with suppress(*REFUSALS):  # 2024-02-30 looks plain, and so does what is too large
        values = reader.parse(pc.if_else(is_plain, tidied, None))
        rest = pc.if_else(is_plain, None, texts)
    spelled = [None if text is None else reader.spelled(text) for text in rest.to_pylist()]
    return pc.coalesce(values, pa.array(spelled, reader.kind))


def _as_it_is(texts: pa.Array) -> pa.Array:
    return texts


def _all_bytes(texts: pa.Array) -> bytes:
    """Those of all texts: to look for one there takes no time beside parsing them."""
    if not len(texts):
        return b""
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("i")
    begin, end = ends[texts.offset], ends[texts.offset + len(texts)]
    return bytes(data.slice(begin, end - begin)) if data else b""


# --- numbers --------------------------------------------------------------------------------------

_WIDEST = 38
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FLOAT = r"^([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)|(?i:nan))$"
_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])


# Arrow takes 0xFF for an integer. (docs/decisions/0170)
def _parsed_integers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    characters = _all_bytes(texts)
    if b"x" in characters or b"X" in characters:
        raise ValueError("hexadecimal")
    return texts.cast(kind)


def _parse_integer(text: str, bits: int) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


# Arrow computes decimals modulo 2^128, so more digits than that are looked at one by one.
# (docs/decisions/0170)
def _parsed_decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """By Arrow, where it has room for all the digits, and as many again as the scale may add."""
    characters = _all_bytes(texts)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if b"e" in characters or b"E" in characters or longest + kind.scale > 2 * _WIDEST:
        raise ValueError("an exponent, or many digits")
    if longest + kind.scale <= _WIDEST:
        return texts.cast(kind)
    return texts.cast(pa.decimal256(2 * _WIDEST, kind.scale)).cast(kind)


def _parse_decimal(text: str, kind: pa.DataType) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        return None
    assert isinstance(exponent, int), "the pattern lets in no NaN"
    significant = list(digits)
    while len(significant) > 1 and significant[-1] == 0:
        significant.pop()
        exponent += 1
    if significant == [0]:
        return Decimal(0)
    fits = -kind.scale <= exponent <= kind.precision - kind.scale - len(significant)
    return Decimal((sign, tuple(significant), exponent)) if fits else None


def _read_floats(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        values = texts.cast(kind)
        if pc.all(pc.is_finite(values), min_count=0).as_py():
            return values
    except pa.ArrowException:
        pass
    # NaN(1) is none, and a number that is too large is not infinity.
    values = pc.if_else(pc.match_substring_regex(texts, _FLOAT), texts, None).cast(kind)
    is_word = pc.match_substring(texts, "n", ignore_case=True)
    return pc.if_else(pc.or_(pc.is_finite(values), is_word), values, None)


def is_number(text: str) -> bool:
    """Whether ``text`` spells a DOUBLE, if perhaps one that is too large."""
    return re.fullmatch(_FLOAT, text) is not None


def _read_booleans(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    is_true = pc.is_in(lower, value_set=_TRUE)
    return pc.if_else(pc.or_(is_true, pc.is_in(lower, value_set=_FALSE)), is_true, None)


# --- dates and moments ----------------------------------------------------------------------------

_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_MOMENT = re.compile(
    _DATE.pattern + r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(?: *([^ ].*))?)?)?)?"
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)?|([0-9]{2})([0-9]{2})([0-9]{2})?)"
)
_UTC = ("Z", "UTC", "GMT", "UT", "Zulu")
_REGION = re.compile(r"[A-Za-z_]+(/[A-Za-z0-9_+-]+)+")
# Characters of a moment with microseconds and without a zone.
_WHOLE = 26


def _tidied_moments(texts: pa.Array) -> pa.Array:
    """Fractions of seconds as .NET and Go write them cut to microseconds, and UTC by its letter.

    By places, as a regular expression takes ten times as long as parsing does.
    """
    octets = texts.view(pa.binary())
    fraction = pc.binary_slice(octets, _WHOLE - 7, _WHOLE)
    digits = pc.ascii_is_decimal(pc.binary_slice(fraction, 1, 7).view(pa.string()))
    is_long = pc.and_(
        pc.and_(pc.starts_with(fraction, b"."), digits), pc.greater(pc.binary_length(texts), _WHOLE)
    )
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    zone = pc.ascii_ltrim(
        pc.binary_slice(octets, _WHOLE, max(longest, _WHOLE)).view(pa.string()), "0123456789"
    )
    cut = pc.binary_join_element_wise(pc.binary_slice(octets, 0, _WHOLE), zone.view(pa.binary()), b"")
    return pc.replace_substring(pc.if_else(is_long, cut, octets).view(pa.string()), " UTC", "Z")


def _read_date(text: str) -> date | None:
    match = _DATE.fullmatch(text)
    try:
        return date(*map(int, match.groups())) if match else None
    except ValueError:
        return None


def _read_moment(text: str, has_zone: bool) -> datetime | None:
    match = _MOMENT.fullmatch(text)
    if match is None or (match[8] is not None) != has_zone:
        return None
    year, month, day, hour, minute, second = (int(match[number] or 0) for number in range(1, 7))
    microsecond = int((match[7] or "")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, microsecond)
        if not has_zone:
            return moment
        return moment.replace(tzinfo=_find_zone(match[8])).astimezone(timezone.utc)
    except (ValueError, LookupError, OverflowError, OSError):
        return None


@lru_cache(256)
def _find_zone(name: str) -> tzinfo:
    """The zone of that name, as Spark's CAST takes it, but for abbreviations: CST is many."""
    if name in _UTC:
        return timezone.utc
    match = _OFFSET.fullmatch(name)
    if match is None:
        if not _REGION.fullmatch(name):
            raise LookupError(name)
        return ZoneInfo(name)
    hours, minutes, seconds = (int(match[number] or match[number + 3] or 0) for number in (2, 3, 4))
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59:
        raise LookupError(name)
    return timezone(-offset if match[1] == "-" else offset)


# --- addresses ------------------------------------------------------------------------------------


# Strict as Python's ipaddress: a bare number in a column of addresses is more likely a mistake.
# (docs/decisions/0192)
def address_in(text: str) -> IPv4Address | IPv6Address | None:
    """The address that ``text`` spells; that of IPv4 where it is mapped into IPv6."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
