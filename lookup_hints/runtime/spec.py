"""What one lookup join does and how it runs: made by the planner, pickled, run by the workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from lookup_hints.retry import RetryPolicy
from lookup_hints.spi import AsyncRowLookup, Connector
from lookup_hints.spi.model import LookupTable


@dataclass(frozen=True)
class DeadLetters:
    """Where the keys of a lookup are written that fail for good.

    Args:
        folder: an absolute path or the address of a folder.
        format: ``parquet`` or ``json``.
        application: the id of Spark's application, by which statements of several are told apart.
    """

    folder: str
    format: str = "parquet"
    application: str = ""

    def __str__(self) -> str:
        return f"dead-letter in {self.folder} as {self.format}"


@dataclass(frozen=True)
class LookupSettings:
    """How one lookup join runs; made by the planner from hint, table, session and defaults.

    ``on_error`` is what becomes of a row whose lookup failed: ``fail``, ``null`` or ``skip``. Its key is
    written to ``dead_letters``, if there are any. ``max_errors`` keys may fail, ``max_error_ratio`` of all.

    ``rate`` is this task's share of the requests per second, None where there is no limit. ``stops_early``
    says that the query may be content with the first rows, ``log_keys`` that logs may hold values of keys.
    """

    asynchronous: bool
    capacity: int = 100
    timeout: float = 300.0
    ordered: bool = True
    batch_size: int = 8192
    on_error: str = "fail"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    rate: float | None = None
    stops_early: bool = False
    log_keys: bool = False
    dead_letters: DeadLetters | None = None
    max_errors: int | None = None
    max_error_ratio: float | None = None

    @property
    def failures(self) -> str:
        """What becomes of lookups that fail for good, for a reader."""
        limits = [] if self.max_errors is None else [f"{self.max_errors:,} keys"]
        limits += [] if self.max_error_ratio is None else [f"{self.max_error_ratio:.6g} of the keys"]
        then = self.on_error if self.dead_letters is None else f"{self.dead_letters}, then {self.on_error}"
        return f"{then}; at most {' and '.join(limits)} of a task" if limits else then


@dataclass(frozen=True, order=True)
class LookupName:
    """What a lookup is called where it is counted, logged and shown.

    Args:
        table: the lookup table.
        alias: what its statement calls the table.
        connector: the kind of source.
        line: the line at which its statement begins, in its file or cell; from 1.
        function: the Spark function that runs it, named by a hash of all that decides its result.

    >>> str(LookupName("customers", "c", "postgres", 12))
    'customers AS c, line 12'
    """

    table: str = ""
    alias: str = ""
    connector: str = ""
    line: int = 1
    function: str = ""

    def __str__(self) -> str:
        alias = "" if self.alias in ("", self.table) else f" AS {self.alias}"
        return f"{self.table}{alias}, line {self.line}"


@dataclass(frozen=True)
class LookupSpec:
    """Everything that a worker needs to run one lookup join; pickled into the UDF.

    Args:
        connector: built and checked on the driver. A worker process reads and opens one of all equal
            connectors, and shares it between its tasks: whatever acts there takes it from ``over``.
        key_columns: dimension columns asked by, in the order of the UDF's arguments.
        columns: dimension columns handed back, in the order of the UDF's struct.
        settings: how to run.
        name: what it is called, and the name of its function.
        packed: whether the keys come as one struct, not as one argument each.
        kind: the join: ``INNER``, ``LEFT``, ``LEFT SEMI`` or ``LEFT ANTI``; only counts depend on it.
    """

    connector: Connector
    key_columns: tuple[str, ...]
    columns: tuple[str, ...]
    settings: LookupSettings
    name: LookupName = LookupName()
    packed: bool = False
    kind: str = "INNER"

    def over(self, opened: Connector) -> LookupSpec:
        """The same lookup by ``opened``, which this process has opened for equal connectors."""
        return replace(self, connector=opened)

    @property
    def table(self) -> LookupTable:
        """The table asked."""
        return self.connector.table

    @property
    def by_row(self) -> bool:
        """Whether keys are asked through the connector's row door, many at once."""
        return (
            self.settings.asynchronous
            and isinstance(self.connector, AsyncRowLookup)
            and self.connector.keys_per_request() == 1
        )

    @property
    def key_schema(self) -> pa.Schema:
        """Schema of the keys of a request."""
        return pa.schema([self.table.schema.field(name) for name in self.key_columns])

    @property
    def answer_schema(self) -> pa.Schema:
        """Schema of an answer: key and handed-back columns, in the table's order."""
        wanted = {*self.key_columns, *self.columns}
        return pa.schema([column for column in self.table.schema if column.name in wanted])

    @property
    def row_type(self) -> pa.StructType:
        """Arrow type of one row that is handed back."""
        return pa.struct([self.table.schema.field(name) for name in self.columns])
