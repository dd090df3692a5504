"""Read a response strictly: its JSON, the rows in it and their columns."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_connectors.http.completeness import SIGNS, cut_list
from lookup_connectors.http.error_bodies import plain_name
from lookup_connectors.shared.conversion import (
    TOO_DEEP,
    JsonWord,
    convert,
    from_json_values,
    readable_as_json,
    shown_as_json,
)
from lookup_connectors.shared.json_paths import Path, PathFailure
from lookup_connectors.shared.text_values import from_texts
from lookup_hints.errors import ConnectorError, did_you_mean
from lookup_hints.spi.arrow_types import sql_type


class Response(NamedTuple):
    """One HTTP response, read whole.

    Args:
        status: the status code.
        headers: by name in lower case; values of a name that came twice are joined with commas.
        body: as it was before any content encoding.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def excerpt(self) -> str:
        """The beginning of the body as text, for an error message."""
        text = " ".join(self.body[:400].decode("utf-8", "replace").split())
        return text if len(text) <= 120 else f"{text[:117]}..."


class HttpFailure(ConnectorError):
    """A lookup over HTTP failed.

    It remembers the response, where there was one, and the time it took; but no body, as failures may be kept
    for long.
    """

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        response: Response | None = None,
    ) -> None:
        super().__init__(message, permanent=permanent, retry_after=retry_after)
        self.response = None if response is None else response._replace(body=b"")
        self.elapsed: float | None = None


class KeptConnectionLost(HttpFailure):
    """A kept connection ended before any answer: perhaps the server closed it just when it was taken."""


METADATA: Mapping[str, pa.DataType] = {
    "$outcome": pa.string(),
    "$status": pa.int32(),
    "$error": pa.string(),
    "$attempts": pa.int32(),
    "$elapsed": pa.float64(),
    "$headers": pa.map_(pa.string(), pa.string()),
}
"""Metadata for columns, about the request that found (or did not find) a row."""


ROWS_BEFORE_ABSENT = 50
"""If more rows than this, and all so far, lack the path of a column, an error says so. A null is no lack."""

_AS_IT_IS = json.JSONDecoder(parse_constant=JsonWord)
_EXACTLY = json.JSONDecoder(parse_float=Decimal, parse_constant=JsonWord)


class RowMetadata(NamedTuple):
    """How a row was found, or not found, by the names of ``METADATA``."""

    outcome: str
    status: int | None = None
    error: str | None = None
    attempts: int | None = None
    elapsed: float | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, rows: PageRows, response: Response, attempt: int, elapsed: float) -> RowMetadata:
        """How ``rows`` were found in a ``response``, or none."""
        outcome = "hit" if rows.rows else "miss"
        return cls(outcome, response.status, None, attempt, elapsed, response.headers)

    def value(self, name: str) -> Any:
        """The value of the metadata ``name``."""
        value = getattr(self, name[1:])
        return list(value.items()) if isinstance(value, Mapping) else value


@dataclass(slots=True)
class PageRows:
    """The rows of one response, or of all its pages.

    Args:
        rows: the JSON values.
        names: for each its name, where the rows are the members of an object.
        is_listed: whether there is a place for several rows, and not for one alone.
    """

    rows: list[Any] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    is_listed: bool = True

    def add(self, more: PageRows) -> None:
        """The rows of the next page."""
        self.rows += more.rows
        self.names += more.names


class FoundRow(NamedTuple):
    """One row of a response.

    Args:
        row: the JSON value.
        name: its name, if the rows are the members of an object.
        given: values of key columns that the request settled.
        told: its metadata.
    """

    row: Any
    name: str | None
    given: Mapping[str, Any]
    told: RowMetadata


@dataclass(frozen=True)
class FoundRows:
    """The rows of responses: the fields of ``FoundRow``, column by column."""

    rows: list[Any] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    given: list[Mapping[str, Any]] = field(default_factory=list)
    told: list[RowMetadata] = field(default_factory=list)

    @classmethod
    def of(cls, found: Sequence[FoundRow]) -> FoundRows:
        """The rows ``found``, one by one."""
        return cls(*map(list, zip(*found, strict=True)))

    @classmethod
    def together(cls, answers: Sequence[FoundRows]) -> FoundRows:
        """The rows of all ``answers``."""
        columns = zip(*((each.rows, each.names, each.given, each.told) for each in answers), strict=True)
        return cls(*(list(chain.from_iterable(column)) for column in columns))

    def whose(self, row: int) -> str:
        """The key of ``row``, as far as it is known, for messages."""
        given = " and ".join(f"{name} = {value!r}" for name, value in self.given[row].items())
        return f"for {given}" if given else "of the answer"


@dataclass(frozen=True)
class ResponseReader:
    """Turns responses into rows, and rows into columns.

    Args:
        table: its name, for messages.
        rows: where the rows are.
        row_key: the column for the names of an object's members, if these are the rows.
        sources: for each column its path, or the name of its metadata.
        required: columns that a row must have.
        said: columns that have a path, or are the row key: if they are keys, each row must state its key.
        exact: whether fractions are read as decimals.
        takes_part: whether answers that report being incomplete are accepted.
        lists: columns with lists, which a row may report as truncated.
        charset: charset of all responses; empty to use the declared one.
        unseen: columns whose path no row had yet, and the number of rows without it.
    """

    table: str
    rows: Path
    row_key: str | None
    sources: Mapping[str, Path | str]
    required: frozenset[str]
    said: frozenset[str]
    exact: bool
    takes_part: bool = False
    lists: frozenset[str] = frozenset()
    charset: str = ""
    unseen: dict[str, int] = field(default_factory=dict, compare=False)

    # NaN and Infinity are read, as many servers write them. (docs/decisions/0065)
    def document(self, response: Response) -> Any:
        """The JSON document of ``response``, None for an empty body."""
        try:
            text = self._decode_body(response).strip("\ufeff \t\r\n")
            if not text:
                return None
            document, end = (_EXACTLY if self.exact else _AS_IT_IS).raw_decode(text)
            if end < len(text):
                raise ValueError("more follows")
            return document
        except RecursionError:
            columns = ", ".join(self.sources)
            raise self._unreadable_error(
                response, f"{TOO_DEEP}, so the columns {columns} cannot be found in it."
            ) from None
        except ValueError:
            raise self._unreadable_error(
                response, f"the body is not JSON ({_content_kind(response)})."
            ) from None

    def _decode_body(self, response: Response) -> str:
        """The body of ``response`` in its charset."""
        charset = self.charset or _charset_of(response.headers.get("content-type", ""))
        try:
            return response.body.decode(charset or "utf-8")
        except UnicodeError as error:
            at = f" at byte {error.start + 1}" if isinstance(error, UnicodeDecodeError) else ""
            why = (
                f"it is not in the charset {charset}{at}"
                if charset
                else f"no charset is named, and it is not UTF-8{at}. 'charset' names it, as 'iso-8859-1'"
            )
        except LookupError:
            why = f"no charset is called {charset!r}; 'charset' names another one"
        if "content-encoding" in response.headers:  # an unknown coding
            raise self._unreadable_error(response, f"the body is not JSON ({_content_kind(response)}).")
        raise self._unreadable_error(
            response, f"the body is not JSON ({_content_kind(response)}) that can be read: {why}."
        )

    def _unreadable_error(self, response: Response, why: str) -> HttpFailure:
        return self.refused(f"{why} It begins: {response.excerpt()}", response)

    def found(self, document: Any) -> PageRows:
        """The rows of ``document``, each with its name where it has one.

        Raises:
            HttpFailure: they are not where they should be.
        """
        try:
            rows = self.rows.find(document)
        except PathFailure as error:
            raise self.not_followed(self.rows, "'rows'", error) from None
        if self.row_key is not None:
            return self._rows_of_members(rows)
        if type(rows) is dict and rows:  # most answers to one key
            return PageRows([rows], [None], is_listed=False)
        listed = rows if isinstance(rows, list) else [] if rows == {} else [rows]
        there = [row for row in listed if row is not None]
        return PageRows(there, [None] * len(there), isinstance(rows, list))

    def is_envelope(self, document: Mapping[str, Any]) -> bool:
        """Whether the members of ``document`` are beside the rows: none of them is read as or in one."""
        read = self._members_read
        if read is not None:
            return read.isdisjoint(document)
        return self.rows.text != "@"

    def is_row(self, document: Any) -> bool:
        """Whether ``document`` is one row, and says nothing of errors or of parts that are missing."""
        return (
            type(document) is dict
            and self._members_to_check.isdisjoint(document)
            and not self.is_envelope(document)
        )

    @cached_property
    def _members_to_check(self) -> frozenset[str]:
        return SIGNS - (self._members_read or frozenset()) | {"errors"}

    def read_of(self, document: Any) -> frozenset[str]:
        """The members of the ``document`` itself that columns may be read from."""
        if self.rows.text != "@" or not isinstance(document, dict):
            return frozenset()
        return frozenset(name for name in document if self.reads(name))

    @cached_property
    def _members_read(self) -> frozenset[str] | None:
        """The members of the document that columns are read from; None if unknown."""
        if self.rows.text != "@" or self.row_key is not None:
            return None
        ways = [source.way for source in self.sources.values() if isinstance(source, Path)]
        return frozenset(way[0] for way in ways) if all(ways) else None

    def reads(self, name: str) -> bool:
        """Whether a column may be read from the member ``name`` of the document itself."""
        return self.rows.text == "@" and any(
            name in source.text for source in self.sources.values() if isinstance(source, Path)
        )

    def _rows_of_members(self, rows: Any) -> PageRows:
        if rows is None or rows == []:  # PHP's empty object
            return PageRows()
        if not isinstance(rows, dict):
            raise self.refused(
                f"'row-key' expects an object whose members are the rows at {self.rows.text!r};"
                f" {shown_as_json(rows)} came."
            )
        listed = ((name, row if isinstance(row, list) else [row]) for name, row in rows.items())
        there = [(row, name) for name, each in listed for row in each if row is not None]
        return PageRows([row for row, _ in there], [name for _, name in there])

    def as_table(self, found: FoundRows, schema: pa.Schema, keys: Collection[str] = ()) -> pa.Table:
        """The columns of ``schema`` for the rows ``found``, which say with ``keys`` whose they are.

        Raises:
            ConnectorError: a value does not fit its column, or a required one is missing.
        """
        self._refuse_rows_without_columns(found)
        # A row that does not say whose it is would be lost without a word.
        required = self.required | set(keys)
        columns = [self._column_array(each, found, is_required=each.name in required) for each in schema]
        return pa.table(columns, schema=schema)

    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, told: Sequence[RowMetadata]) -> pa.Table:
        """A row of ``schema`` for each of ``keys``, with the metadata ``told`` of its end, else NULL."""

        def column(field: pa.Field) -> Any:
            if field.name in keys.column_names:
                return keys.column(field.name)
            source = self.sources[field.name]
            if isinstance(source, str):
                return metadata_column(field, source, told)
            return pa.nulls(len(told), field.type)

        return pa.table([column(field) for field in schema], schema=schema)

    # An API may ignore a parameter that it does not know, and return the rows that it has. They would be
    # taken for rows of the key, or match no key, which would be a miss. (docs/decisions/0065)
    def check_asked(self, rows: pa.Table, column: str, asked: Sequence[Any]) -> None:
        """Refuse rows that say that they are another key's: an API that does not select, gives all it has."""
        said = rows.column(column).to_pylist()
        for key, other in zip(asked, said, strict=True):
            if key != other:
                raise self._wrong_key_failure(column, key, other, "the row")

    def check_any_asked(self, rows: pa.Table, column: str, asked: pa.ChunkedArray) -> None:
        """Refuse ``rows`` if none of them has a requested key; some foreign rows do no harm."""
        said = rows.column(column)
        if not len(said) or pc.index(asked, said[0]).as_py() >= 0:
            return
        if not pc.any(pc.is_in(said, value_set=asked.combine_chunks())).as_py():
            raise self._wrong_key_failure(column, asked[0].as_py(), said[0].as_py(), "every row")

    def _wrong_key_failure(self, column: str, key: Any, other: Any, which: str) -> HttpFailure:
        tip = (
            "The API spells it otherwise: write the key as it does."
            if str(key).strip().casefold() == str(other).strip().casefold()
            else "The API does not select by what 'url', 'query' and 'body' send."
        )
        return self.refused(
            f"{which} that came is of a key that was not asked: {column} = {other!r},"
            f" where {key!r} was asked. {tip}"
        )

    def _column_array(self, column: pa.Field, found: FoundRows, *, is_required: bool) -> pa.Array:
        source = self.sources[column.name]
        if isinstance(source, str):
            return metadata_column(column, source, found.told)
        if found.given and column.name in found.given[0]:  # all rows have the same key columns
            return pa.array([given[column.name] for given in found.given], column.type)
        by_name = column.name == self.row_key
        values = found.names if by_name else self._column_values(source, found.rows, column.name)
        if is_required and None in values:
            row = values.index(None)
            raise self.refused(
                f"column {column.name!r} of the row {found.whose(row)} is required, and its path"
                f" {source.text} finds nothing in {shown_as_json(found.rows[row])}."
            )
        if column.name in self.unseen:
            self._refuse_absent_path(source, column.name, values, found)
        if column.name in self.lists:
            self._refuse_cut_lists(source, column, found)
        path = "its name" if by_name else f"path {source.text}"

        def where(row: int) -> str:
            return f"{found.whose(row)} ({path})"

        def to_arrow(given: Sequence[Any]) -> pa.Array:
            return from_texts(given, column.type) if by_name else from_json_values(given, column.type)

        return convert(values, to_arrow, column, table=self.table, where=where)

    def _refuse_absent_path(self, path: Path, column: str, values: Sequence[Any], found: FoundRows) -> None:
        """Refuse a path that no row has had: where a row has a name that is nearly it at once, else later."""
        lacks = (
            [_missing_name(path.way, row) for row in found.rows]
            if values.count(None) == len(values)
            else [None]
        )
        if None in lacks or not path.way:
            del self.unseen[column]
            return
        at, lack = next(((at, each) for at, each in enumerate(lacks) if each), (0, None))
        if not lack:
            return
        self.unseen[column] += sum(map(bool, lacks))
        depth, members = lack
        before, name = path.way[:depth], path.way[depth]
        ways = [source.way for source in self.sources.values() if isinstance(source, Path)]
        read = {way[depth] for way in ways if len(way) > depth and way[:depth] == before}
        slip = next((each for each in members if each not in read and _is_typo(name, each)), None)
        if slip is not None or self.unseen[column] > ROWS_BEFORE_ABSENT:
            near = did_you_mean(name, list(members)) if slip is None else f"Did you mean {slip!r}?"
            what = (
                f"no row has had {name!r} so far, to which the path {path.text} of column {column!r} leads:",
                f"the row {found.whose(at)} has {', '.join(map(repr, list(members)[:20]))} there.",
                *([near] if near else ()),
                f"If all rows may be without it, write 'path.{column}' = 'not_null({path.text})'.",
            )
            raise self.refused(" ".join(what))

    def _refuse_cut_lists(self, path: Path, column: pa.Field, found: FoundRows) -> None:
        for at, row in enumerate(found.rows):
            if type(row) is dict and (where := cut_list(row, path, column.type)):
                raise self.refused(
                    f"column {column.name!r} of the row {found.whose(at)} is not whole: the row says in"
                    f" {where} that there is more. 'partial' = 'accept' takes what came."
                )

    def _column_values(self, path: Path, rows: Sequence[Any], column: str) -> list[Any]:
        find, name = path.find, path.only
        try:
            if name is not None and set(map(type, rows)) <= {dict}:
                return [row.get(name) for row in rows]  # most columns of most tables
            return [find(row) for row in rows]
        except PathFailure as error:
            raise self.not_followed(path, f"the path of column {column!r}", error) from None

    def refused(self, why: str, response: Response | None = None) -> HttpFailure:
        return HttpFailure(f"table {self.table}: {why}", permanent=True, response=response)

    def not_followed(self, path: Path, what: str, error: PathFailure) -> HttpFailure:
        """The failure that ``error`` is, which came of following ``path``."""
        return self.refused(f"{what}, {path.text}, cannot be followed: {error}")

    @cached_property
    def _first_texts(self) -> frozenset[str | None]:
        return frozenset(source.first for source in self.sources.values() if isinstance(source, Path))

    @property
    def reads_members(self) -> bool:
        """Whether each row must be an object that has at least one of the columns."""
        return None not in self._first_texts and self.row_key is None

    def _refuse_rows_without_columns(self, found: FoundRows) -> None:
        """A row that has nothing of ours is most likely no row: an error page with status 200."""
        firsts = self._first_texts
        if not self.reads_members:
            return
        strangers = [
            at for at, row in enumerate(found.rows) if type(row) is not dict or firsts.isdisjoint(row)
        ]
        if strangers:
            row = strangers[0]
            raise self.refused(
                f"the row {found.whose(row)} has none of the columns:"
                f" {shown_as_json(found.rows[row])} came. 'rows' says where the rows are,"
                " 'path.<column>' where a column is, 'miss-when' when nothing was found."
            )


def _missing_name(way: Sequence[str], row: Any) -> tuple[int, Mapping[str, Any]] | tuple[()] | None:
    """Which name of ``way`` the ``row`` lacks, and the members there; nothing where there is nothing.

    None where the way is there, though it may lead to a null.
    """
    for depth, name in enumerate(way):
        if not isinstance(row, dict) or not row:
            return ()
        if name not in row:
            return depth, row
        row = row[name]
    return None


def _is_typo(name: str, other: str) -> bool:
    """Whether ``other`` is ``name`` but for signs, capitals, one letter, or two that changed places."""
    one, two = sorted((plain_name(name), plain_name(other)), key=len)
    if one == two or len(one) < 3 or len(two) - len(one) > 1:
        return one == two
    at = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
    if len(one) < len(two):
        return two[at].isalpha() and one[at:] == two[at + 1 :]
    is_letter = one[at].isalpha() and two[at].isalpha()
    changed_places = one[at : at + 2] == two[at : at + 2][::-1] and one[at + 2 :] == two[at + 2 :]
    return is_letter and (changed_places or one[at + 1 :] == two[at + 1 :])


def _content_kind(response: Response) -> str:
    kind = response.headers.get("content-type", "without a content type")
    encoding = response.headers.get("content-encoding")
    return f"{kind}, encoded as {encoding}" if encoding else kind


def metadata_column(column: pa.Field, name: str, told: Sequence[RowMetadata]) -> pa.Array:
    """The metadata ``name`` as ``column``."""
    return pa.array([each.value(name) for each in told], METADATA[name]).cast(column.type)


@lru_cache(64)
def _charset_of(content_type: str) -> str:
    """The charset that ``content_type`` names, empty for none."""
    match = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", content_type, re.IGNORECASE)
    named = match[1] if match else ""
    return _OTHER_CHARSETS.get(named.lower(), named)


# Names of charsets in databases; the first names none.
_OTHER_CHARSETS = {"binary": "", "utf8mb4": "utf-8", "utf8mb3": "utf-8"}


def unreadable(column: pa.Field, source: Path | str) -> str:
    """Why ``column`` can never hold the values of its source; empty if it can."""
    if isinstance(source, str):
        kind = METADATA.get(source)
        if kind is None:
            return f"there is no metadata {source!r}; there are {', '.join(METADATA)}"
        if column.type != kind and not (types.is_integer(kind) and types.is_integer(column.type)):
            return f"{source} is {sql_type(kind)}, not {sql_type(column.type)}"
        return ""
    if not readable_as_json(column.type):
        return f"JSON has no value that can be read as {sql_type(column.type)}"
    return ""
