"""The commands that look up keys in Redis, and the rows in its replies. No I/O.

A lookup is a generator: it yields commands, receives their replies, and returns the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import types

from lookup_connectors.shared.conversion import (
    ToArrow,
    convert,
    from_json,
    from_json_values,
    is_nested,
    parse_json,
    readable_as_json,
    shown_as_json,
)
from lookup_connectors.shared.key_templates import (
    Hole,
    Resolve,
    Template,
    TemplateError,
    can_be_spelled,
    keys_of,
    parse_template,
)
from lookup_connectors.shared.text_values import from_texts
from lookup_hints.errors import ConnectorError, OptionError, Problem, nearest
from lookup_hints.spi import TEXT, LookupRequest, LookupTable, Option, Outcomes, choice
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.secrets import has_reference

READING: tuple[Option, ...] = (
    Option("key", TEXT, "The key: text with a `{column}` for each key column of the join.", required=True),
    Option(
        "value-type",
        choice("string", "hash", "json"),
        "The value of the key: a string that is one column, a hash whose fields are columns,"
        " or a string of JSON (an object is a row, an array of objects many).",
        default="hash",
    ),
    Option(
        "field.",
        TEXT,
        "The field of a hash, or the member of a JSON object, for a column; its own name by default.",
        family="column",
    ),
)

_T = TypeVar("_T")
Commands = Sequence[tuple[Any, ...]]
Steps = Generator[Commands, list[Any], _T]
"""Gives commands, is sent the reply to each (errors in their places), returns a result."""


class NotPermitted(ConnectorError):
    """The user may not run a command, or not with these keys; another command may do."""


MOST_KEYS = 1000
"""Keys that go out in one go: a server does nothing else while it answers one command."""


@dataclass(frozen=True)
class Reading:
    """How to look up and read a table.

    Args:
        table: its name, for messages.
        template: of the keys.
        kind: what a key holds: ``string``, ``hash`` or ``json``.
        fields: for each column that is not a key its field, or member.
    """

    table: str
    template: Template
    kind: str
    fields: Mapping[str, str]

    def resolved(self, resolve: Resolve) -> Reading:
        """The same, with references in the key resolved."""
        return replace(self, template=self.template.resolved(resolve))

    def keys(self, keys: pa.Table) -> list[str]:
        return [
            self.template.filled(lambda hole: hole.text(_as_cast(row[hole.column])))  # noqa: B023  called at once
            for row in keys_of(keys)
        ]

    def mistaken(self, keys: pa.Table) -> dict[int, Exception]:
        """Errors for the rows of ``keys`` whose Redis key may belong to another row."""
        if not self.template.several:
            return {}
        said = ((at, self.template.mistaken(row)) for at, row in enumerate(keys_of(keys)))
        return {
            at: ConnectorError(f"table {self.table}: {text}", permanent=True) for at, text in said if text
        }

    def error(self, key: str, text: str) -> ConnectorError:
        return ConnectorError(f"table {self.table}: the value at {key!r} {text}", permanent=True)


# --- asking ---------------------------------------------------------------------------------------


def answer(reading: Reading, request: LookupRequest, *, together: bool) -> Steps[Outcomes]:
    """The rows of each key of ``request``; ``together``: one command may hold many keys."""
    keys = reading.keys(request.keys)
    values: list[Any] = []
    for start in range(0, len(keys), MOST_KEYS):
        part = keys[start : start + MOST_KEYS]
        if reading.kind == "hash":
            fields = [reading.fields[name] for name in request.columns if name in reading.fields]
            values += yield from _get_hashes(part, fields, together=together)
        else:
            values += yield from _get_strings(part, together=together)
    mistaken = reading.mistaken(request.keys)
    values = [None if at in mistaken else value for at, value in enumerate(values)]
    return _RowBuilder(reading, request, keys, mistaken).outcomes(values)


def _get_strings(keys: Sequence[str], *, together: bool) -> Steps[list[Any]]:
    """The string at each key, None where there is nothing, and an error where there is no string."""
    if not together:
        return (yield [("GET", key) for key in keys])
    try:
        [values] = yield [("MGET", *keys)]
    except NotPermitted:
        return (yield [("GET", key) for key in keys])
    # MGET says nothing of keys that hold something else.
    others = yield from _keys_if_any_exists(
        [key for key, value in zip(keys, values, strict=True) if value is None]
    )
    if not others:
        return list(values)
    again = yield [("GET", key) for key in others]
    known = dict(zip(others, again, strict=True))
    return [known.get(key) if value is None else value for key, value in zip(keys, values, strict=True)]


# HMGET answers as many nils for a hash without these fields as for no hash at all. (docs/decisions/0024)
def _get_hashes(keys: Sequence[str], fields: Sequence[str], *, together: bool) -> Steps[list[Any]]:
    """The ``fields`` of the hash at each key, None where there is nothing, and errors in their places."""
    values: list[Any] = [[]] * len(keys)
    if fields:
        values = yield [("HMGET", key, *fields) for key in keys]
    # A hash may have none of the fields.
    bare = [key for key, value in zip(keys, values, strict=True) if _is_bare(value)]
    if together and fields:
        bare = yield from _keys_if_any_exists(bare)
    sizes = (yield from _hash_sizes(bare)) if bare else []
    known = dict(zip(bare, sizes, strict=True))
    return [
        _hash_or_missing(value, known.get(key, 0)) if _is_bare(value) else value
        for key, value in zip(keys, values, strict=True)
    ]


# A hash without the fields is no miss; HLEN tells it from no hash at all. (docs/decisions/0024)
def _hash_sizes(keys: list[str]) -> Steps[list[Any]]:
    """The number of fields of each key: 0 where there is nothing."""
    try:
        return (yield [("HLEN", key) for key in keys])
    except NotPermitted:
        return (yield [("EXISTS", key) for key in keys])


def _is_bare(value: Any) -> bool:
    return not isinstance(value, Exception) and all(each is None for each in value)


def _hash_or_missing(value: list[Any], size: Any) -> Any:
    if isinstance(size, Exception):
        return size
    return value if size else None


# MGET and HMGET answer nil for a missing key and for one of another type. Without this look a wrong
# `value-type` would be a join full of NULLs. (docs/decisions/0024)
def _keys_if_any_exists(keys: list[str]) -> Steps[list[str]]:
    """``keys``, or none where none of them exists, as is usual; all where EXISTS is not permitted."""
    if not keys:
        return []
    try:
        [count] = yield [("EXISTS", *keys)]
    except NotPermitted:
        return keys
    return keys if count else []


# --- rows -----------------------------------------------------------------------------------------


class _RowBuilder:
    """The values of the keys of one request, on their way to be columns."""

    def __init__(
        self, reading: Reading, request: LookupRequest, keys: Sequence[str], failures: dict[int, Exception]
    ) -> None:
        self._reading = reading
        self._request = request
        self._keys = keys
        self._failures = failures

    def outcomes(self, values: Sequence[Any]) -> Outcomes:
        """All rows; a key whose value cannot be read fails alone."""
        found: list[tuple[int, Any]] = []
        for position, value in enumerate(values):
            if isinstance(value, Exception):
                what = "hash" if self._reading.kind == "hash" else "string"
                self._failures[position] = self._reading.error(
                    self._keys[position], f"is not a {what}: see 'value-type'."
                )
            elif value is not None:
                found += ((position, row) for row in self._rows_of_value(position, value))
        try:
            table = self._build_table(found)
        except ConnectorError:
            found = [each for each in found if self._row_fits(each)]
            found = [each for each in found if each[0] not in self._failures]
            table = self._build_table(found)
        return Outcomes(table, pa.array([position for position, _ in found], pa.int32()), self._failures)

    def _rows_of_value(self, position: int, value: Any) -> Sequence[Any]:
        """The rows that ``value`` holds."""
        if self._reading.kind != "json":
            return [value]
        try:
            return self._json_rows(self._keys[position], value)
        except ConnectorError as error:
            self._failures[position] = error
            return []

    def _json_rows(self, key: str, value: bytes) -> list[dict[str, Any]]:
        try:
            document = parse_json(value.decode())
        except ValueError:
            raise self._reading.error(key, f"is not JSON: {value[:60]!r} came.") from None
        except RecursionError:
            raise self._reading.error(key, f"holds JSON that is nested too deep: {value[:60]!r}...") from None
        rows = document if isinstance(document, list) else [document]
        rows = [row for row in rows if row is not None]
        members = set(self._reading.fields.values())
        for row in rows:
            if not isinstance(row, dict):
                raise self._reading.error(
                    key, f"is neither a JSON object nor an array of objects: {shown_as_json(row)} came."
                )
            if members and members.isdisjoint(row):
                raise self._reading.error(
                    key,
                    f"has none of the columns: {shown_as_json(row)} came."
                    " 'field.<column>' names a column's member.",
                )
        return rows

    def _row_fits(self, row: tuple[int, Any]) -> bool:
        try:
            self._build_table([row])
        except ConnectorError as error:
            self._failures.setdefault(row[0], error)
            return False
        return True

    def _build_table(self, found: Sequence[tuple[int, Any]]) -> pa.Table:
        positions = pa.array([position for position, _ in found], pa.int64())
        rows = [row for _, row in found]
        asked = [name for name in self._request.columns if name in self._reading.fields]

        def where(row: int) -> str:
            return f"at {self._keys[found[row][0]]!r}"

        columns = []
        for column in self._request.schema:
            if column.name not in self._reading.fields:
                columns.append(self._request.keys.column(column.name).take(positions))
                continue
            values = self._column_values(rows, column.name, asked)
            columns.append(
                convert(
                    values,
                    _value_reader(column.type, self._reading.kind),
                    column,
                    table=self._reading.table,
                    where=where,
                )
            )
        return pa.table(columns, schema=self._request.schema)

    def _column_values(self, rows: Sequence[Any], column: str, asked: Sequence[str]) -> list[Any]:
        if self._reading.kind == "json":
            member = self._reading.fields[column]
            return [row.get(member) for row in rows]
        if self._reading.kind == "hash":
            place = asked.index(column)
            return [_decode_text(row[place]) for row in rows]
        return [_decode_text(row) for row in rows]


def _decode_text(value: bytes | None) -> str | bytes | None:
    """Text where it is text; what is not is left to be refused, or taken for BINARY."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _value_reader(kind: pa.DataType, value_type: str) -> ToArrow:
    """How values become a column of ``kind``."""
    if value_type == "json":
        return lambda values: from_json_values(values, kind)
    if types.is_binary(kind):
        return lambda values: pa.array([_encode_text(value) for value in values], kind)
    return lambda values: (from_json if is_nested(kind) else from_texts)(_check_utf8(values), kind)


def _encode_text(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _check_utf8(values: Sequence[Any]) -> Sequence[str | None]:
    if any(isinstance(value, bytes) for value in values):
        raise TypeError("not UTF-8")  # pyarrow would take them for text
    return values


# --- options --------------------------------------------------------------------------------------


def reading_of(table: LookupTable) -> Reading:
    """The reading that the options of ``table`` describe; references in the key are left.

    Raises:
        OptionError: all that is wrong with them, at once.
    """
    return _RedisPlanning(table).reading()


class _RedisPlanning:
    def __init__(self, table: LookupTable) -> None:
        self._table = table
        self._names = table.schema.names
        self._problems: list[Problem] = []

    def reading(self) -> Reading:
        for key, text in self._table.options.items():
            is_ours = key != "key" and any(option.is_named(key) for option in READING)
            if is_ours and has_reference(text):
                self._add_problem(f"{key!r} may not be a reference")
        template = self._read_template()
        kind = self._table.options.get("value-type", "hash").strip().lower()
        fields = self._read_fields(template)
        self._check_columns(kind, fields)
        if self._problems:
            raise OptionError(self._problems)
        return Reading(self._table.name, template, kind, fields)

    def _add_problem(self, what: str, tip: str = "") -> None:
        self._problems.append(Problem(f"table {self._table.name}: {what}.", tip=tip))

    def _read_template(self) -> Template:
        text = self._table.options.get("key", "")
        try:
            template = parse_template(text, self._names)
        except TemplateError as error:
            self._add_problem(f"'key': {error}", error.tip)
            return Template(())
        if not template.columns:
            self._add_problem(
                "'key' names no column, so every key would be the same", "Write {column} in it."
            )
        for first, second in zip(template.parts, template.parts[1:], strict=False):
            if isinstance(first, Hole) and isinstance(second, Hole):
                both = f"{{{first.column}}}{{{second.column}}}"
                self._add_problem(
                    f"'key': something must stand between the columns of {both}: 1 and 23 is 12 and 3"
                )
        for name in template.columns:
            kind = self._table.schema.field(name).type
            if not _has_one_spelling(kind):
                self._add_problem(
                    f"column {name!r} cannot stand in a key: {sql_type(kind)} has no one spelling"
                )
        return template

    def _read_fields(self, template: Template) -> dict[str, str]:
        fields = {name: name for name in self._names if name not in template.columns}
        by_lower = {name.lower(): name for name in fields}
        for key, text in self._table.options.items():
            if not key.startswith("field."):
                continue
            name = key[len("field.") :]
            column = by_lower.get(name.lower())
            if column is None:
                self._add_problem(
                    f"{key!r}: no column {name!r} is read from the value", nearest(name, tuple(fields))
                )
            else:
                fields[column] = text
        return fields

    def _check_columns(self, kind: str, fields: Mapping[str, str]) -> None:
        if kind == "string" and len(fields) > 1:
            listed = ", ".join(fields)
            self._add_problem(f"a string is one column, and {listed} are {len(fields)}", "See 'value-type'.")
        if kind == "string" and any(key.startswith("field.") for key in self._table.options):
            self._add_problem("a string has no fields: 'field.<column>' is for hash and json")
        readable: Callable[[pa.DataType], bool] = readable_as_json if kind == "json" else _readable_as_text
        for name in fields:
            column = self._table.schema.field(name).type
            if not readable(column):
                self._add_problem(f"column {name!r}: no value can be read as {sql_type(column)}")


def _as_cast(value: Any) -> Any:
    """A decimal as Spark's CAST writes it, with all digits of its scale: so are the keys that Spark wrote."""
    return format(value, "f") if isinstance(value, Decimal) else value


def _has_one_spelling(kind: pa.DataType) -> bool:
    """Whether equal values are the same text."""
    return can_be_spelled(kind) and not types.is_floating(kind)


def _readable_as_text(kind: pa.DataType) -> bool:
    return not types.is_duration(kind) and (not is_nested(kind) or readable_as_json(kind))
