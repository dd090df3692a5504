"""Networks in a column of the type cidr or inet, asked for by an address: the longest that holds it.

The address is a column of the lookup table alone. So an equality with the column of networks means what it
means without it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address

import pyarrow as pa
from pyarrow import types

from lookup_connectors.postgres.columns import PostgresColumn, SourceColumn
from lookup_connectors.shared.options import option_error
from lookup_connectors.shared.sql_parts import quoted
from lookup_connectors.shared.text_values import address_in
from lookup_hints.errors import nearest
from lookup_hints.spi import TEXT, LookupTable, Option
from lookup_hints.spi.changed_column_and_versions import CHANGED_COLUMN
from lookup_hints.spi.secrets import has_reference

NETWORK_COLUMN = Option(
    "network-column",
    TEXT,
    "The table's `cidr` or `inet` column: of its networks the longest answers that holds an address.",
)
ADDRESS_COLUMN = Option(
    "address-column",
    TEXT,
    "With `network-column`: the STRING column of the address to look up. PostgreSQL has no such column.",
    default="ip",
)


def address_column(table: LookupTable) -> str | None:
    """The column that is asked by an address, as the schema of ``table`` spells it; None where none is."""
    if NETWORK_COLUMN.key not in table.options:
        return None
    asked = table.options.get(ADDRESS_COLUMN.key, str(ADDRESS_COLUMN.default))
    return next((name for name in table.schema.names if name.lower() == asked.lower()), asked)


def check_networks(table: LookupTable) -> None:
    """Refuse options of networks that do not fit together, or the columns.

    Raises:
        OptionError: as said.
    """
    asked, given = address_column(table), table.options
    if asked is None:
        if ADDRESS_COLUMN.key in given:
            what = f"{ADDRESS_COLUMN.key!r} has no effect without {NETWORK_COLUMN.key!r}"
            raise option_error(table, what, "Name the column of networks, too, or leave it out.")
        return
    for key in (NETWORK_COLUMN.key, ADDRESS_COLUMN.key):
        if has_reference(given.get(key, "")):
            raise option_error(table, f"{key!r} may not be a reference")
    if given[NETWORK_COLUMN.key].lower() == asked.lower():
        what = f"{asked!r} is the column of networks and that of addresses"
        raise option_error(table, what, f"Name a column of the lookup table alone in {ADDRESS_COLUMN.key!r}.")
    is_there = asked in table.schema.names
    if len(table.schema) and not (is_there and types.is_string(table.schema.field(asked).type)):
        tip = "" if is_there else nearest(asked, table.schema.names)
        tip = tip or f"Declare it, or name another one in {ADDRESS_COLUMN.key!r}."
        raise option_error(table, f"there is no column {asked} STRING for the address", tip)
    if CHANGED_COLUMN in given:
        what = f"{CHANGED_COLUMN!r} has no effect with {NETWORK_COLUMN.key!r}: changed rows have no address"
        tip = "Leave it out; 'lookup.partial-cache.expire-after-write' says how old a row may be."
        raise option_error(table, what, tip)


# The address is a column that PostgreSQL has not: ON o.ip = g.network would be an equality that is none.
# (docs/decisions/0190)
@dataclass(frozen=True)
class AddressColumn(PostgresColumn):
    """The column of addresses, over the column of networks ``source``.

    Its value in a row is the address asked for; what is ``selected`` is an address of the network.
    """

    is_searched: bool
    """Whether one search finds all networks of an address, in place of one for each length of a prefix."""

    def equality(self, key: str) -> str:
        address = f"{key}::inet"
        if self.is_searched:
            return f"{self.column} >>= {address}"
        prefix = f"network(set_masklen({address}, bits))"
        lengths = f"generate_series(0, CASE family({address}) WHEN 4 THEN 32 ELSE 128 END) AS bits"
        return f"{self.column} = ANY (ARRAY(SELECT {prefix} FROM {lengths}))"  # noqa: S608  quoted

    @property
    def longest_first(self) -> str:
        """What leaves the rows of the longest network."""
        return f" ORDER BY masklen({self.column}) DESC FETCH FIRST 1 ROW WITH TIES"

    def bind(self, keys: pa.ChunkedArray) -> pa.ChunkedArray:
        """The addresses as PostgreSQL reads them: it knows no zone of an interface."""
        found = (address_in(text) for text in keys.to_pylist())
        texts = [str(ip_address(address.packed)) for address in found if address is not None]
        return pa.chunked_array([pa.array(texts, pa.string())])


def plan_addresses(source: SourceColumn, field: pa.Field, indexes: Collection[str]) -> AddressColumn:
    """How ``field`` is asked by, over the column of networks ``source``.

    Args:
        source: the column of networks.
        field: the column of addresses.
        indexes: the kinds of indexes that ``source`` is in.

    Raises:
        ValueError: it holds no networks.
    """
    if source.type not in ("cidr", "inet"):
        raise ValueError(
            f"PostgreSQL's {source.sql} is no network. Look up in a view that casts it to cidr or inet."
        )
    # In a B-tree the 33 or 129 networks that hold an address are found faster than by a search in GiST, which
    # takes 1 ms in half a million networks of IPv4. A network of inet may have bits behind its prefix.
    is_searched = source.type == "inet" or ("gist" in indexes and "btree" not in indexes)
    return AddressColumn(
        source,
        field,
        selected=f"host({quoted(source.name)})",
        wire="text",
        to_arrow=pa.array,
        compared=quoted(source.name),
        key="{k}::inet",
        bound="text",
        possible=_are_addresses,
        is_searched=is_searched,
    )


def _are_addresses(keys: pa.ChunkedArray) -> pa.Array:
    return pa.array([address_in(text) is not None for text in keys.to_pylist()], pa.bool_())
