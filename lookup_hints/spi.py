"""What a connector is: one class, and the abilities that it may have.

A connector is built from a ``LookupTable`` on the driver (once per statement that uses the table),
checked there, pickled as data, opened lazily once per worker process, and shared by all tasks that the
process runs. An ability is a type: the planner asks ``isinstance(connector, AsyncLookup)``.

The runtime calls ``open``/``aopen`` before the first lookup in a process. It cannot promise a last call:
``close``/``aclose`` run when a process ends in good order or a connector is replaced, but Spark kills
workers after a ``LIMIT`` or a cancellation. Connections must be of a kind that the system closes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from lookup_hints.errors import ConnectorError, LookupTimeout, OptionError
from lookup_hints.model import Answer, LookupRequest, LookupTable, PlacedRows
from lookup_hints.options import (
    BOOLEAN,
    DURATION,
    TEXT,
    Option,
    OptionType,
    choice,
    integer,
    number,
)

__all__ = [
    "BOOLEAN",
    "DURATION",
    "TEXT",
    "Answer",
    "AsyncLookup",
    "Connector",
    "ConnectorError",
    "LookupRequest",
    "LookupTable",
    "LookupTimeout",
    "Option",
    "OptionError",
    "OptionType",
    "PlacedRows",
    "Scan",
    "SyncLookup",
    "TellsSchema",
    "choice",
    "integer",
    "number",
]


class Connector:
    """Base of all connectors; inherit an ability (``SyncLookup``, ``AsyncLookup`` or both) instead.

    ``OPTIONS`` declares the ``WITH`` options beside ``connector`` and the lookup options; names and
    values are validated before the connector is built. An instance must be picklable until it is opened.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()

    def __init__(self, table: LookupTable) -> None:
        """Keep the table. Called on the driver; touches nothing outside the process."""
        self.table = table

    def check(self) -> None:
        """Raise OptionError for options that do not fit together. On the driver, no I/O."""

    def key_columns(self) -> frozenset[str]:
        """The columns that the source can be asked by; an equality on another one is a residual condition.

        On the driver, while planning. The default is all columns.
        """
        return frozenset(self.table.schema.names)

    def secrets(self) -> set[str]:
        """Texts that must not appear in any message; called on the worker after opening.

        Values of options marked ``secret`` and of resolved references belong here;
        ``LookupTable.read`` returns them.
        """
        return set()


class SyncLookup(Connector, ABC):
    """A connector that answers while its caller waits."""

    def open(self) -> None:
        """Connect. On the worker, once per process, before the first ``lookup``."""

    @abstractmethod
    def lookup(self, request: LookupRequest) -> Answer:
        """All rows of each key of ``request``. On the worker, one call at a time.

        Raises:
            ConnectorError: the source failed; ``permanent=True`` where asking again cannot help. Any
                other exception counts as a failure that may pass.
        """

    def close(self) -> None:
        """Disconnect; see the module's text for when this can be relied upon."""


class AsyncLookup(Connector, ABC):
    """A connector that is asked many things at once, on the one event loop of its worker process."""

    async def aopen(self) -> None:
        """Connect. On the worker's event loop, once per process, before the first ``alookup``."""

    @abstractmethod
    async def alookup(self, request: LookupRequest) -> Answer:
        """All rows of each key of ``request``; up to `capacity` calls run at once.

        A call is cancelled when its time is up or Spark wants no more rows: hand back what was borrowed.

        Raises:
            ConnectorError: as for ``SyncLookup.lookup``.
        """

    async def aclose(self) -> None:
        """Disconnect; see the module's text for when this can be relied upon."""


class Scan(ABC):
    """The ability to read the whole table, for a query that uses it outside a lookup join."""

    @abstractmethod
    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns of ``schema``. On a worker, in one task; opens what it needs itself."""


class TellsSchema(ABC):
    """The ability to say which columns the table has, for DDL without a column list."""

    @abstractmethod
    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns and the primary key (or none). On the driver, on a thread without an event loop.

        The connector's own ``table`` has an empty schema at this time.

        Raises:
            ConnectorError: the source cannot be reached, or has no such table.
        """
