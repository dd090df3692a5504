"""SQLite's declared types: what a column declared so may hold."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from pyarrow import types

from lookup_connectors.conversion import readable_as_json
from lookup_hints.spi.types import TIMESTAMP_NTZ, sql_type


def has_one_spelling(kind: pa.DataType) -> bool:
    """Whether equal values of ``kind`` are stored alike in SQLite, and can be bound by its driver."""
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
        or types.is_date(kind)
    )


def affinity(declared: str) -> str:
    """What SQLite makes of values stored in a column declared so: https://sqlite.org/datatype3.html, 3.1."""
    upper = declared.upper()
    rules = (
        ("INTEGER", ("INT",)),
        ("TEXT", ("CHAR", "CLOB", "TEXT")),
        ("BLOB", ("BLOB",)),
        ("REAL", ("REAL", "FLOA", "DOUB")),
    )
    found = next((name for name, parts in rules if any(part in upper for part in parts)), "NUMERIC")
    return found if upper else "BLOB"


def never_fits(declared: str, kind: pa.DataType) -> str:
    """Why values of a column that SQLite declares so can never be read as ``kind``; empty when they can."""
    kept = affinity(declared)
    if not readable_as_json(kind) and not types.is_binary(kind):
        return f"SQLite has no value that can be read as {sql_type(kind)}."
    numeric = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    whole = types.is_boolean(kind) or types.is_integer(kind)
    if kept == "TEXT" and numeric:
        return _kept_as("text", "STRING", declared, kind)
    if kept == "REAL" and whole:
        return _kept_as("floats", "DOUBLE", declared, kind)
    if kept in ("INTEGER", "REAL") and types.is_string(kind):
        return _kept_as("numbers", "BIGINT" if kept == "INTEGER" else "DOUBLE", declared, kind)
    return ""


def _kept_as(what: str, told: str, declared: str, kind: pa.DataType) -> str:
    return f"SQLite keeps numbers of a {declared} column as {what}. Declare it {told}, not {sql_type(kind)}."


_WORDS: tuple[tuple[str, Callable[[], pa.DataType]], ...] = (
    (r"BOOL(EAN)?", pa.bool_),
    (r"DATE", pa.date32),
    (r"(DATETIME|TIMESTAMP)", lambda: TIMESTAMP_NTZ),
    (r"(DECIMAL|NUMERIC)", lambda: pa.decimal128(38, 18)),
    (r"JSON", pa.string),
)
_EXACT_NUMBER = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def arrow_type(declared: str) -> pa.DataType | None:
    """The type of a column declared so; None when it does not say."""
    upper = declared.strip().upper()
    sized = _EXACT_NUMBER.fullmatch(upper)
    if sized and int(sized[2] or 0) <= int(sized[1]) <= 38:
        return pa.decimal128(int(sized[1]), int(sized[2] or 0))
    named = next((kind() for words, kind in _WORDS if re.fullmatch(words, upper)), None)
    by_affinity = {"INTEGER": pa.int64(), "TEXT": pa.string(), "REAL": pa.float64()}
    blob = pa.binary() if upper == "BLOB" else None
    return named or by_affinity.get(affinity(upper)) or blob
