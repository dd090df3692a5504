"""The ``mmdb`` connector: a file in MaxMind's format, which holds a record for each network of IP addresses.

The file is mapped into memory. An address is answered by the longest network that holds it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from pyarrow import types

from lookup_connectors.shared import json_paths
from lookup_connectors.shared.conversion import convert, from_json_values, readable_as_json
from lookup_connectors.shared.options import check_file_exists
from lookup_connectors.shared.text_values import address_in
from lookup_hints.errors import ConnectorError, OptionError, Problem, nearest
from lookup_hints.spi import FILE, TEXT, LookupRequest, LookupTable, Option, Outcomes, SyncLookup, choice
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.request_and_answer import identity_of_file
from lookup_hints.spi.secrets import has_reference

_NETWORK = "$network"
_PATH = "path."


class MmdbConnector(SyncLookup):
    """A MaxMind DB file: the record of the smallest network that an IP address is in."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("path", FILE, "The file, as each worker sees it.", required=True),
        Option("address-column", TEXT, "The STRING column of the address that is looked up.", default="ip"),
        Option(
            _PATH,
            TEXT,
            "JMESPath from a record to a column's value (its name by default), or `$network`.",
            family="column",
        ),
        Option(
            "invalid-address",
            choice("miss", "error"),
            "How a text that is no address counts: as a key without a row, or one that fails.",
            default="miss",
        ),
    )

    def __init__(self, table: LookupTable) -> None:
        super().__init__(table)
        self._live: _OpenMmdb | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None}

    def check(self) -> None:
        """Refuse paths that cannot be followed, and columns that no record fills."""
        problems = [
            Problem(f"table {self.table.name}: {what}.", tip=tip) for what, tip in self._find_mistakes()
        ]
        if problems:
            raise OptionError(problems)

    def key_columns(self) -> frozenset[str]:
        asked = self.table.options.get("address-column", "ip").lower()
        return frozenset(name for name in self.table.schema.names if name.lower() == asked)

    def required_keys(self) -> frozenset[str]:
        return self.key_columns()

    def place(self) -> str:
        return self.table.options["path"]

    # Life.

    def open(self) -> None:
        """Map the file; one that is open stays so where that fails."""
        options = self.table.read(self.OPTIONS)[0]
        path = str(Path(options["path"]).absolute())
        identity = identity_of_file(path)  # first, so that a change while it is opened is noticed
        reader, has_both = self._open_file(path)
        self.close()
        self._live = _OpenMmdb(path, identity, reader, has_both, options["invalid-address"] == "error")

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.reader.close()

    # Lookups.

    def lookup(self, request: LookupRequest) -> Outcomes:
        """The record of the longest network that holds each address."""
        while True:
            assert self._live is not None, "open() comes before lookup()"
            answer = self._answer_addresses(request, self._live)
            if identity_of_file(self._live.path) == self._live.identity:
                return answer
            self.open()  # what was read may be half of the one file, half of the next

    # Inside.

    def _answer_addresses(self, request: LookupRequest, live: _OpenMmdb) -> Outcomes:
        keys, failures = request.keys.column(0), dict[int, Exception]()
        positions: list[int] = []
        rows: list[_FoundRecord] = []
        for position, text in enumerate(keys.to_pylist()):
            address = address_in(text)
            if address is None and live.is_strict:
                failures[position] = self._table_error(
                    f"{text!r} is no IP address. Correct the value, or trim it"
                )
            found = None if address is None else self._find_record(text, address, live)
            if found is not None:
                positions.append(position)
                rows.append(found)
        at, asked = pa.array(positions, pa.int64()), request.key_columns[0]
        columns = [
            keys.take(at) if field.name == asked else self._column_values(field, rows)
            for field in request.schema
        ]
        return Outcomes(pa.table(columns, schema=request.schema), at, failures)

    # Python's `ipaddress` reads the address: the C reader takes `1359103393` for 81.2.69.161, the Python
    # reader does not. (docs/decisions/0192)
    def _find_record(
        self, text: str, address: IPv4Address | IPv6Address, live: _OpenMmdb
    ) -> _FoundRecord | None:
        if address.version == 6 and not live.has_both:
            return None
        try:
            record, bits = live.reader.get_with_prefix_len(address)
        except Exception as error:
            what = f"{live.path} is damaged where {text!r} is ({error}). Fetch the file again"
            raise self._table_error(what) from error
        return None if record is None else _FoundRecord(text, address, record, bits)

    def _column_values(self, field: pa.Field, rows: list[_FoundRecord]) -> pa.Array:
        path = _path_of(field.name, self.table.options)
        if path.text == _NETWORK:
            networks = [ip_network((row.address.packed, row.bits), strict=False) for row in rows]
            return pa.array(map(str, networks), pa.string())
        try:
            values = [path.find(row.record) for row in rows]
        except json_paths.PathFailure as error:
            what = f"the path of column {field.name!r}, {path.text}, cannot be followed: {error}"
            raise self._table_error(what) from None
        return convert(
            values,
            partial(from_json_values, target=field.type),
            field,
            table=self.table.name,
            where=lambda row: f"{rows[row].text!r} (path {path.text})",
        )

    def _open_file(self, path: str) -> tuple[Any, bool]:
        """A reader of the file, and whether it has addresses of both versions."""
        check_file_exists(self.table, path)
        try:
            from maxminddb import open_database
        except ImportError:
            what = "this machine lacks the package maxminddb: pip install 'lookup-hints[mmdb]'"
            raise self._table_error(what) from None
        try:
            reader = open_database(path)
            return reader, reader.metadata().ip_version == 6
        except Exception as error:
            raise self._table_error(
                f"{path} cannot be read as an MMDB file ({error})."
                " Is it unpacked, whole, and in MaxMind's binary format? Fetch it again"
            ) from error

    def _table_error(self, what: str) -> ConnectorError:
        return ConnectorError(f"table {self.table.name}: {what}.", permanent=True)

    def _find_mistakes(self) -> Iterator[tuple[str, str]]:
        names = {name.lower(): name for name in self.table.schema.names}
        given = self.table.options
        for key in given:
            if key.startswith((_PATH, "address-column")) and has_reference(given[key]):
                yield f"{key!r} may not be a reference", ""
            if key.startswith(_PATH) and key.removeprefix(_PATH).lower() not in names:
                column = key.removeprefix(_PATH)
                yield f"{key!r}: there is no column {column!r}", nearest(column, list(names.values()))
        asked = next(iter(self.key_columns()), None)
        if asked is None or not types.is_string(self.table.schema.field(asked).type):
            name = given.get("address-column", "ip")
            yield f"there is no column {name} STRING for the address", "'address-column' names another one."
        for field in self.table.schema:
            try:
                path = _path_of(field.name, given)
            except ValueError as error:
                yield f"'{_PATH}{field.name}': {error}", ""
                continue
            if field.name == asked and path.text != field.name:
                yield f"column {field.name!r} holds the address asked for, and takes no path", ""
            if path.text == _NETWORK and not types.is_string(field.type):
                yield f"column {field.name!r}: {_NETWORK} is STRING, not {sql_type(field.type)}", ""
            if not readable_as_json(field.type):
                yield f"column {field.name!r}: no value can be read as {sql_type(field.type)}", ""


def _path_of(column: str, options: Mapping[str, str]) -> json_paths.Path:
    text = next((text for key, text in options.items() if key.lower() == f"{_PATH}{column}".lower()), None)
    if text is None:
        return json_paths.named(column)
    if text.strip().startswith("$"):
        if text.strip().lower() != _NETWORK:
            raise ValueError(f"there is no {text.strip()!r}, only {_NETWORK}")
        return json_paths.Path(_NETWORK, lambda _: None)
    return json_paths.parse_path(text)


class _OpenMmdb(NamedTuple):
    path: str
    identity: Hashable
    reader: Any
    has_both: bool  # families of addresses
    is_strict: bool


class _FoundRecord(NamedTuple):
    text: str
    address: IPv4Address | IPv6Address
    record: Any
    bits: int
