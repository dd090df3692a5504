"""What a connector is made of and asked with: tables, requests, answers. All are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from lookup_hints.options import Option, Place, read_options
from lookup_hints.secrets import Secret, has_reference, resolve


@dataclass(frozen=True)
class LookupTable:
    """A table created ``WITH ('connector' = ...)``: what it is called, holds, and is asked by.

    Args:
        name: its name in SQL.
        schema: its columns as Arrow fields; TIMESTAMP is ``timestamp[us, UTC]``, TIMESTAMP_NTZ has no zone.
        primary_key: columns that together are unique, none when not known.
        options: the ``WITH`` clause as written; references to secrets are not resolved.
        conf: values of the ``${conf:key}`` references, taken from Spark on the driver.
    """

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    conf: Mapping[str, Secret] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = [name for name in self.primary_key if name not in self.schema.names]
        if missing:
            raise ValueError(f"primary key column {missing[0]!r} is not a column of {self.name}")

    @property
    def connector(self) -> str:
        """The value of the option ``connector``."""
        return self.options["connector"]

    def read(self, options: tuple[Option, ...]) -> tuple[dict[str, Any], set[str]]:
        """Typed values of ``options`` with references resolved here, and the secrets read on the way.

        Called on the side that connects: a worker, or the driver when it asks for a schema.

        Raises:
            OptionError: a reference names nothing, a required option is missing, or a value is bad.
        """
        secrets: set[str] = set()
        resolved = {
            key: resolve(text, self.conf, option=key, known=secrets) for key, text in self.options.items()
        }
        secret_keys = {option.key_in(Place.TABLE) for option in options if option.secret}
        secrets |= {resolved[key] for key in secret_keys & resolved.keys()}
        return read_options(resolved, options, owner=f"table {self.name}"), secrets

    def check(self, options: tuple[Option, ...]) -> None:
        """Raise what ``read`` would, as far as it can be known without resolving references.

        Raises:
            OptionError: a required option is missing, or a value without references is bad.
        """
        known_now = tuple(
            option
            for option in options
            if not has_reference(self.options.get(option.key_in(Place.TABLE), ""))
        )
        read_options(self.options, known_now, owner=f"table {self.name}")


@dataclass(frozen=True)
class LookupRequest:
    """One question to a connector: distinct, non-null keys, and the columns wanted.

    Args:
        keys: one row per key; its columns are the dimension columns asked by, typed as in the table's
            schema, in the order of the join's equalities. No NULL, no duplicate, at least one row.
        schema: what the answer must hold: the key columns and the wanted ones, in the table's order.
        timeout: seconds left for this request, or None.
    """

    keys: pa.Table
    schema: pa.Schema
    timeout: float | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the answer must hold."""
        return tuple(self.schema.names)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Names of the columns asked by."""
        return tuple(self.keys.column_names)


@dataclass(frozen=True)
class PlacedRows:
    """An answer that says itself which key each row belongs to.

    For sources whose own equality differs from SQL's (case-insensitive, prefix, nearest): row ``i`` of
    ``rows`` belongs to row ``positions[i]`` of the request's keys, and its key columns are not compared.
    """

    rows: pa.Table
    positions: pa.Array


Answer: TypeAlias = "pa.Table | PlacedRows"
"""Rows that contain their key columns (any number per key, none for a miss), or placed rows."""
