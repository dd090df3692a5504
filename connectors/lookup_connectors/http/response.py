"""Response -> rows -> columns, strictly: what does not fit is told with column, path and what came."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import types

from lookup_connectors.conversion import convert, from_json_values, from_texts, is_nested
from lookup_connectors.http.message import HttpFailure, Response
from lookup_connectors.http.paths import Path, PathFailure
from lookup_hints.types import sql_type

METADATA: Mapping[str, pa.DataType] = {
    "$outcome": pa.string(),
    "$status": pa.int32(),
    "$error": pa.string(),
    "$attempts": pa.int32(),
    "$elapsed": pa.float64(),
    "$headers": pa.map_(pa.string(), pa.string()),
}
"""What a column can tell about the request that found (or did not find) its row."""


class Told(NamedTuple):
    """What is known about how a row was found, or not found, by the names of ``METADATA``."""

    outcome: str
    status: int | None = None
    error: str | None = None
    attempts: int | None = None
    elapsed: float | None = None
    headers: Mapping[str, str] | None = None

    def value(self, name: str) -> Any:
        """The value of the metadata ``name``."""
        value = getattr(self, name[1:])
        return list(value.items()) if isinstance(value, Mapping) else value


class Found(NamedTuple):
    """One row of a response.

    Args:
        row: the JSON value.
        name: its name, where the rows are the members of an object.
        given: values of key columns that the request settled.
        told: how it was found.
    """

    row: Any
    name: str | None
    given: Mapping[str, Any]
    told: Told


@dataclass(frozen=True)
class Reader:
    """How responses become rows, and rows become columns.

    Args:
        table: its name, for messages.
        rows: where the rows are.
        row_key: the column that takes the names of an object's members, where the rows are those.
        sources: for each column its path, or the name of its metadata.
        required: columns that a row must have.
        exact: whether fractions are read as decimals.
    """

    table: str
    rows: Path
    row_key: str | None
    sources: Mapping[str, Path | str]
    required: frozenset[str]
    exact: bool

    def document(self, response: Response) -> Any:
        """The JSON document of ``response``, None for an empty body.

        Raises:
            HttpFailure: it is no JSON.
        """
        body = response.body.strip()
        if not body:
            return None
        try:
            text = body.decode(_charset(response))
            return json.loads(text, parse_float=Decimal) if self.exact else json.loads(text)
        except (ValueError, LookupError):
            kind = response.headers.get("content-type", "without a content type")
            failure = HttpFailure(
                f"table {self.table}: the body is not JSON ({kind}). It begins: {response.excerpt()}",
                permanent=True,
            )
            failure.response = response
            raise failure from None

    def found(self, document: Any) -> list[tuple[str | None, Any]]:
        """The rows of ``document``, each with its name where it has one.

        Raises:
            HttpFailure: they are not where they should be.
        """
        with self._following(self.rows, "'rows'"):
            rows = self.rows.find(document)
        if self.row_key is not None:
            return self._members(rows)
        if isinstance(rows, list):
            return [(None, row) for row in rows if row is not None]
        return [] if rows is None or rows == {} else [(None, rows)]

    def _members(self, rows: Any) -> list[tuple[str | None, Any]]:
        if rows is None or rows == []:  # PHP's empty object
            return []
        if not isinstance(rows, dict):
            raise HttpFailure(
                f"table {self.table}: 'row-key' expects an object whose members are the rows at"
                f" {self.rows.text!r}; {_shown(rows)} came.",
                permanent=True,
            )
        listed = ((name, row if isinstance(row, list) else [row]) for name, row in rows.items())
        return [(name, row) for name, each in listed for row in each if row is not None]

    def as_table(self, found: Sequence[Found], schema: pa.Schema, keys: Collection[str] = ()) -> pa.Table:
        """The columns of ``schema`` for the rows ``found``, which say with ``keys`` whose they are.

        Raises:
            ConnectorError: a value does not fit its column, or a required one is missing.
        """
        self._refuse_strangers(found)
        # A row that does not say whose it is would be lost without a word.
        required = self.required | set(keys)
        columns = [self._column(field, found, is_required=field.name in required) for field in schema]
        return pa.table(columns, schema=schema)

    def _column(self, field: pa.Field, found: Sequence[Found], *, is_required: bool) -> pa.Array:
        source = self.sources[field.name]
        if isinstance(source, str):
            return metadata_column(field, source, [each.told for each in found])
        if all(field.name in each.given for each in found):
            return pa.array([each.given[field.name] for each in found], field.type)
        by_name = field.name == self.row_key
        values = [each.name for each in found] if by_name else self._values(source, found, field.name)
        if is_required and None in values:
            raise self._lacks(field.name, source, found[values.index(None)])
        path = "its name" if by_name else f"path {source.text}"

        def where(row: int) -> str:
            return f"{_for(found[row])} ({path})"

        def to_arrow(given: Sequence[Any]) -> pa.Array:
            return from_texts(given, field.type) if by_name else from_json_values(given, field.type)

        return convert(values, to_arrow, field, table=self.table, where=where)

    def _values(self, path: Path, found: Sequence[Found], column: str) -> list[Any]:
        find = path.find
        with self._following(path, f"the path of column {column!r}"):
            return [find(each.row) for each in found]

    @contextmanager
    def _following(self, path: Path, what: str) -> Iterator[None]:
        try:
            yield
        except PathFailure as error:
            raise HttpFailure(
                f"table {self.table}: {what}, {path.text}, cannot be followed: {error}", permanent=True
            ) from None

    def _lacks(self, column: str, path: Path, found: Found) -> HttpFailure:
        return HttpFailure(
            f"table {self.table}: column {column!r} of the row {_for(found)} is required, and its path"
            f" {path.text} finds nothing in {_shown(found.row)}.",
            permanent=True,
        )

    def _refuse_strangers(self, found: Sequence[Found]) -> None:
        """A row that has nothing of ours is most likely no row: an error page with status 200."""
        firsts = {source.first for source in self.sources.values() if isinstance(source, Path)}
        if None in firsts or self.row_key is not None:
            return
        for each in found:
            if not isinstance(each.row, dict) or firsts.isdisjoint(each.row):
                raise HttpFailure(
                    f"table {self.table}: the row {_for(each)} has none of the columns: {_shown(each.row)}"
                    " came. 'rows' says where the rows are, 'path.<column>' where a column is.",
                    permanent=True,
                )


def metadata_column(field: pa.Field, name: str, told: Sequence[Told]) -> pa.Array:
    """The metadata ``name`` as column ``field``."""
    return pa.array([each.value(name) for each in told], METADATA[name]).cast(field.type)


def _charset(response: Response) -> str:
    if "charset" not in response.headers.get("content-type", ""):
        return "utf-8-sig"
    match = re.search(r"charset=\"?([\w.:-]+)", response.headers.get("content-type", ""), re.IGNORECASE)
    return match[1] if match else "utf-8-sig"


def _for(found: Found) -> str:
    given = " and ".join(f"{name} = {value!r}" for name, value in found.given.items())
    return f"for {given}" if given else "of the answer"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."


def unreadable(column: pa.Field, source: Path | str) -> str:
    """Why ``column`` can never hold what its source gives; empty when it can."""
    if isinstance(source, str):
        kind = METADATA.get(source)
        if kind is None:
            return f"there is no metadata {source!r}; there are {', '.join(METADATA)}"
        if column.type != kind and not (types.is_integer(kind) and types.is_integer(column.type)):
            return f"{source} is {sql_type(kind)}, not {sql_type(column.type)}"
        return ""
    if _has_no_json(column.type):
        return f"JSON has no value that can be read as {sql_type(column.type)}"
    return ""


def _has_no_json(kind: pa.DataType) -> bool:
    if is_nested(kind):
        return any(_has_no_json(kind.field(position).type) for position in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_duration(kind))
