"""Columns that say when rows have changed, by growing with each change, and when they are valid.

With such a column, caches drop only the answers that are outdated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_hints.errors import OptionError, Problem, nearest
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.connector import Connector
from lookup_hints.spi.request_and_answer import LookupTable

CHANGED_COLUMN, CHECK_INTERVAL = "lookup.cache.changed-column", "lookup.cache.check-interval"


@dataclass(frozen=True)
class ChangesRequest:
    """Which rows have changed.

    Args:
        column: a column of the table that is a timestamp, a date or a whole number.
        since: of its type; rows where it is greater have changed. None: only ``Changes.latest`` is wanted.
        schema: columns of the table that identify keys; empty if only whether anything changed matters.
        most: the most keys to return; if more have changed, return None in their place.
        timeout: seconds left for this request, or None.
    """

    column: str
    since: pa.Scalar | None
    schema: pa.Schema
    most: int
    timeout: float | None = None


@dataclass(frozen=True)
class Changes:
    """The answer to a ``ChangesRequest``.

    Args:
        latest: the greatest value of the column, of its type; null if there is none. Read it before ``keys``:
            it must not include a change that they miss.
        keys: the columns of the request's ``schema`` for each row that has changed, in any order, maybe
            several times, NULLs included. None: there are more than ``most``, or ``since`` was None.
    """

    latest: pa.Scalar
    keys: pa.Table | None = None


class ReportsChanges(ABC):
    """The ability to report changed rows, so that a cache drops only their answers."""

    @abstractmethod
    def changes(self, request: ChangesRequest) -> Changes:
        """The keys of changed rows, and the latest value of the column.

        On a worker, on a thread without an event loop, possibly on a connector that is not open and while
        lookups run: it opens what it needs itself. Values are exact: to the microsecond, in UTC if they have
        a zone. Extra rows do no harm; for a row that is left out, outdated answers stay in use.

        Raises:
            ConnectorError: the source failed, or a value of the column cannot be read. The cache is bypassed
                until it succeeds again.
        """


def changed_column_of(table: LookupTable) -> pa.Field | None:
    """The column of ``table`` that grows with each change, where its options name one.

    Raises:
        OptionError: it has no such column.
    """
    return _column_of_option(table, CHANGED_COLUMN) if CHANGED_COLUMN in table.options else None


def check_changed_column(connector: Connector) -> None:
    """Refuse a changed-column of a wrong type or connector, and a check interval without a changed-column.

    On the driver, no I/O. A table that has no columns yet is not checked.

    Raises:
        OptionError: as said.
    """
    table = connector.table
    if CHANGED_COLUMN not in table.options:
        if CHECK_INTERVAL in table.options:
            raise _wrong_option(
                table,
                f"{CHECK_INTERVAL!r} has no effect without {CHANGED_COLUMN!r}.",
                "Name the column that grows with each change of a row, or leave it out.",
            )
        return
    if not isinstance(connector, ReportsChanges):
        raise _wrong_option(
            table,
            f"{CHANGED_COLUMN!r} has no effect: connector {table.connector!r} cannot tell what has changed.",
            "Leave it out; 'lookup.partial-cache.expire-after-write' says how old a row may be.",
        )
    column = changed_column_of(table) if len(table.schema) else None
    if column is not None and not grows(column.type):
        raise _wrong_option(
            table,
            f"{CHANGED_COLUMN!r} is {column.name!r}, which is {sql_type(column.type)}.",
            "Name a TIMESTAMP, TIMESTAMP_NTZ or DATE of the last change, or a number that counts changes.",
        )


def grows(kind: pa.DataType) -> bool:
    """Whether a column of ``kind`` can tell changes."""
    return bool(types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind))


VALID_FROM, VALID_TO, KNOWN_FROM = "lookup.valid-from", "lookup.valid-to", "lookup.known-from"


@dataclass(frozen=True)
class Versions:
    """When the rows of a table are valid: from a moment on, and up to another one, which is not included.

    Args:
        since: the column with the first moment.
        until: the column with the moment at which a row stops being valid, NULL where it has not. None:
            each row is valid until the next one of its key is.
        known: the column with the moment from which a row is known. None: each row always was.
    """

    since: pa.Field
    until: pa.Field | None
    known: pa.Field | None = None

    @property
    def changes_by(self) -> str:
        """The column whose greatest past value says up to when the answers of a key are settled."""
        return str((self.known or self.since).name)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that tell rows of one key apart."""
        return tuple(each.name for each in (self.since, self.known) if each is not None)

    @property
    def need_key(self) -> bool:
        """Whether one row of several is chosen, so that a primary key must say which belong together."""
        return self.until is None or self.known is not None


def versions_of(table: LookupTable) -> Versions | None:
    """The columns by which ``FOR SYSTEM_TIME AS OF`` chooses rows of ``table``, where its options name them.

    Raises:
        OptionError: it has no such column, they cannot be compared, or nothing tells versions of one row.
    """
    if VALID_FROM not in table.options:
        for key in (VALID_TO, KNOWN_FROM):
            if key in table.options:
                tip = f"Name the column with the beginning: {VALID_FROM!r} = '...'."
                raise _wrong_option(table, f"{key!r} needs {VALID_FROM!r}.", tip)
        return None
    if not len(table.schema):
        return None
    since = _column_of_option(table, VALID_FROM)
    until, known = (
        _column_of_option(table, key) if key in table.options else None for key in (VALID_TO, KNOWN_FROM)
    )
    for key, column in ((VALID_FROM, since), (KNOWN_FROM, known)):
        if column is not None and not _is_ordered(column.type):
            raise _wrong_option(
                table,
                f"{key!r} is {column.name!r}, which is {sql_type(column.type)}.",
                "Name a TIMESTAMP, TIMESTAMP_NTZ or DATE, or a number that grows with time.",
            )
    for key, column in ((VALID_TO, until), (KNOWN_FROM, known)):
        if column is not None and column.type != since.type:
            raise _wrong_option(
                table,
                f"{VALID_FROM!r} {since.name!r} is {sql_type(since.type)}, and {key!r} {column.name!r} is"
                f" {sql_type(column.type)}.",
                "Declare both with one type.",
            )
    versions = Versions(since, until, known)
    if versions.need_key and not set(table.primary_key) - {*versions.times}:
        key, end = (
            (VALID_FROM, f", or name the end of a row by {VALID_TO!r}") if known is None else (KNOWN_FROM, "")
        )
        raise _wrong_option(
            table,
            f"{key!r} needs a PRIMARY KEY, which says which rows are versions of one.",
            f"Declare PRIMARY KEY (..., {', '.join(versions.times)}) NOT ENFORCED{end}.",
        )
    return versions


def _column_of_option(table: LookupTable, key: str) -> pa.Field:
    name = table.options[key]
    alike = [field for field in table.schema if field.name.lower() == name.lower()]
    if not alike:
        tip = nearest(name, table.schema.names) or "Add it to the column list."
        raise _wrong_option(table, f"{key!r} is {name!r}, which is no column of it.", tip)
    return next((field for field in alike if field.name == name), alike[0])


def _is_ordered(kind: pa.DataType) -> bool:
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(types.is_timestamp(kind) or types.is_date(kind) or numbers)


def _wrong_option(table: LookupTable, message: str, tip: str) -> OptionError:
    return OptionError(Problem(f"table {table.name}: {message}", tip=tip))
