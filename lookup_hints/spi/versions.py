"""Versions of rows: the columns of a table that say from when, and until when, a row is valid."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.spi.model import LookupTable
from lookup_hints.spi.types import sql_type

VALID_FROM, VALID_TO = "lookup.valid-from", "lookup.valid-to"


@dataclass(frozen=True)
class Versions:
    """When the rows of a table are valid: from a moment on, and up to another one, which is not included.

    Args:
        since: the column with the first moment.
        until: the column with the moment at which a row stops being valid, NULL where it has not. None:
            each row is valid until the next one of its key is.
    """

    since: pa.Field
    until: pa.Field | None


def versions_of(table: LookupTable) -> Versions | None:
    """The columns by which ``FOR SYSTEM_TIME AS OF`` chooses rows of ``table``, where its options name them.

    Raises:
        OptionError: it has no such column, they cannot be compared, or nothing tells versions of one row.
    """
    if VALID_FROM not in table.options:
        if VALID_TO in table.options:
            raise _wrong(table, f"{VALID_TO!r} needs {VALID_FROM!r}.", "Name the column with the beginning.")
        return None
    if not len(table.schema):
        return None
    since = _column(table, VALID_FROM)
    until = _column(table, VALID_TO) if VALID_TO in table.options else None
    if not _is_ordered(since.type):
        raise _wrong(
            table,
            f"{VALID_FROM!r} is {since.name!r}, which is {sql_type(since.type)}.",
            "Name a TIMESTAMP, TIMESTAMP_NTZ or DATE, or a number that grows with time.",
        )
    if until is not None and until.type != since.type:
        raise _wrong(
            table,
            f"{VALID_FROM!r} {since.name!r} is {sql_type(since.type)}, and {VALID_TO!r} {until.name!r} is"
            f" {sql_type(until.type)}.",
            "Declare both with one type.",
        )
    if until is None and not set(table.primary_key) - {since.name}:
        raise _wrong(
            table,
            f"{VALID_FROM!r} needs a PRIMARY KEY, which says which rows are versions of one.",
            f"Declare PRIMARY KEY (..., {since.name}) NOT ENFORCED, or name the end of a row by"
            f" {VALID_TO!r}.",
        )
    return Versions(since, until)


def _column(table: LookupTable, key: str) -> pa.Field:
    name = table.options[key]
    alike = [field for field in table.schema if field.name.lower() == name.lower()]
    if not alike:
        tip = nearest(name, table.schema.names) or "Add it to the column list."
        raise _wrong(table, f"{key!r} is {name!r}, which is no column of it.", tip)
    return next((field for field in alike if field.name == name), alike[0])


def _is_ordered(kind: pa.DataType) -> bool:
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(types.is_timestamp(kind) or types.is_date(kind) or numbers)


def _wrong(table: LookupTable, message: str, tip: str) -> OptionError:
    return OptionError(Problem(f"table {table.name}: {message}", tip=tip))
