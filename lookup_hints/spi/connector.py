"""What a connector is: one class, and the abilities that it may have.

A connector is built from a ``LookupTable`` on the driver (once per statement that uses the table),
checked there, pickled as data, opened lazily once per worker process, and shared by all tasks that the
process runs. An ability is a type: the planner asks ``isinstance(connector, AsyncLookup)``.

The runtime calls ``open``/``aopen`` before the first lookup in a process. It cannot promise a last call:
``close``/``aclose`` run when a process ends in good order or a connector is replaced, but Spark kills
workers after a ``LIMIT`` or a cancellation. Connections must be of a kind that the system closes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa

from lookup_hints.errors import AnswerError, ConnectorError, InternalError, nearest
from lookup_hints.spi.address import origin_of, place_of
from lookup_hints.spi.arrow_types import sql_type
from lookup_hints.spi.option_values import Option
from lookup_hints.spi.request_and_answer import (
    Answer,
    Filter,
    LookupRequest,
    LookupTable,
    Miss,
    NearestCondition,
    OrderCondition,
    Outcome,
    Outcomes,
    RowRequest,
    Rows,
    TableSize,
)
from lookup_hints.spi.request_context import Ending, ending_of


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

    def required_keys(self) -> frozenset[str]:
        """Columns that every request needs: a join without an equality on each of them is refused.

        Such a table is never read whole either, as its rows have no value in these columns.

        On the driver, while planning. The default is none.
        """
        return frozenset()

    def request_columns(self) -> frozenset[str]:
        """Columns whose equalities are always part of the key, even if others cover the primary key.

        On the driver, while planning. The default is none: a full primary key is used alone.
        """
        return frozenset()

    def keys_per_request(self) -> int | None:
        """The largest number of keys in one request, or None if only `batch-size` limits it.

        On the driver, while planning. If it is 1, a connector with row lookups is called row by row.
        """
        return None

    def requests_at_once(self) -> int | None:
        """The most requests in flight of one task that make sense, or None if only `capacity` limits them.

        Give a number for a source with few connections: keys that wait for one then go out in larger
        requests. On the worker, once per task, also before opening, when references are not resolved yet.
        """
        return None

    # A worker lives longer than a statement: a file that was replaced by renaming was read as it was for as
    # long as the worker lived. (docs/decisions/0085)
    def opened_with(self) -> Hashable:
        """A value that changes when files read by ``open`` change; the connector is then opened again.

        On the worker, before opening, and of the open connector at the start of each task. Must not raise and
        must be fast. The default covers ``${file:}`` references and the files that options of the type
        ``FILE`` name.
        """
        return self.table.files_now(self.OPTIONS)

    def place(self) -> str:
        """The location of the source for logs, without secrets; empty if unknown.

        On the worker. The default is the host that the options ``url``, or ``host`` and ``port``, name.
        """
        return place_of(self.table)

    # Never a password, token or key: it is shown in messages and is a name of files. (docs/decisions/0140)
    def origin(self) -> str:
        """The server and user that budgets and limits apply to, without a password.

        Connectors with equal origins share them. Empty if there is no server (rows in memory, a file, a
        function) or if it is unknown here. On the worker, and on the driver while planning; must not raise
        and touches nothing outside the process. The default is the host that the options ``url``, or
        ``host`` and ``port``, name, and the option ``user`` or ``username``.
        """
        return origin_of(self.table)

    def dataset(self) -> tuple[str, str]:
        """The namespace and the name of its rows in a lineage, by the naming of OpenLineage, without secrets.

        On the driver. The default is the connector and the place, as ``mydb://host:5432``, and the option
        ``table-name``, or the table's own name.
        """
        place = self.origin().partition(" user ")[0] or self.place()
        namespace = f"{self.table.connector}://{place}" if place else self.table.connector
        return namespace, self.table.options.get("table-name", self.table.name)

    def remarks(self) -> Sequence[str]:
        """What EXPLAIN should say of its lookups beside the rest, each a sentence without a full stop.

        On the driver while planning; touches nothing outside the process.
        """
        return ()

    def ending(self, error: Exception) -> Ending:
        """Classify ``error`` of a lookup: the source is down, gets too many requests, or neither.

        On the worker. By default a lost connection or a timeout is ``lost``, and a source that says how long
        to wait has ``refused``. Override it if the client library has its own errors for these.
        """
        return ending_of(error)

    def secrets(self) -> set[str]:
        """Texts to mask in every message; called on the worker after opening.

        Values of options marked ``secret`` and of references are masked without it. Others belong here, such
        as a token that the connector fetches itself.
        """
        return set()


class SyncLookup(Connector, ABC):
    """A connector with blocking lookups."""

    def open(self) -> None:
        """Connect. On the worker, once per process, before the first ``lookup``."""

    @abstractmethod
    def lookup(self, request: LookupRequest) -> Answer:
        """All rows of each key of ``request``. On the worker, one call at a time.

        Raises:
            ConnectorError: the source failed; ``permanent=True`` where asking again cannot help. Any
                other exception counts as a failure that may pass.
            AnswerTooLarge: fewer keys should be asked at once.
        """

    def close(self) -> None:
        """Disconnect. Spark may end a worker without calling this."""


class AsyncLookup(Connector, ABC):
    """A connector that takes many requests at once, on the one event loop of its worker process."""

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
        """Disconnect. Spark may end a worker without calling this."""


class RowsAsTable(Connector):
    """Base of row lookups: how what they find becomes a table."""

    def keys_per_request(self) -> int | None:
        return 1

    def rows_as_table(self, found: Sequence[tuple[RowRequest, Any]], schema: pa.Schema) -> pa.Table:
        """The rows of many keys, each with its request, as a table of ``schema``, in their order.

        Where it raises, each key is tried alone, and fails alone. The default takes dictionaries, adds the
        key columns that they leave out, and refuses a column that ``schema`` does not have.
        """
        rows = [{**request.key, **row} for request, row in found]
        unknown = {name for row in rows for name in row} - set(self.table.schema.names)
        if unknown:
            name = min(unknown)
            tip = nearest(name, self.table.schema.names)
            raise ConnectorError(
                f"table {self.table.name}: a row has {name!r}, which is not a column. {tip}", permanent=True
            )
        try:
            return pa.Table.from_pylist(rows, schema=schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise self._misfitting_value(rows, schema) from None

    def _misfitting_value(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> ConnectorError:
        for row, column in product(rows, schema):
            try:
                pa.array([row.get(column.name)], column.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                value = row[column.name]
                return ConnectorError(
                    f"table {self.table.name}: column {column.name!r} of the row {row!r:.200}: {value!r:.60}"
                    f" ({type(value).__name__}) does not fit {sql_type(column.type)}.",
                    permanent=True,
                )
        raise InternalError("each value fits, and all together do not")


class StartedRow(Protocol):
    """A key whose lookup was started."""

    def cancel(self) -> None:
        """Stop it: its time is up, or Spark wants no more rows. No outcome is reported for it."""


StartedRows: TypeAlias = Sequence[tuple[StartedRow, "Rows | Exception | Coroutine[Any, Any, Rows]"]]
"""Started keys with their outcomes; a coroutine in place of an outcome finishes the lookup."""

TakeRows: TypeAlias = Callable[[StartedRows], None]


class RowStarter(Protocol):
    """Starts lookups of many keys at once, for one task."""

    def start(self, requests: Sequence[RowRequest]) -> Sequence[StartedRow]:
        """Start as many of the first ``requests`` as can be sent without waiting, and return them."""


class SyncRowLookup(RowsAsTable, SyncLookup):
    """A connector with blocking lookups of one key at a time."""

    @abstractmethod
    def lookup_row(self, request: RowRequest) -> Rows:
        """The rows of one key, as dictionaries by column. On the worker, one call at a time.

        Raises:
            ConnectorError: as for ``SyncLookup.lookup``.
        """

    def lookup(self, request: LookupRequest) -> Answer:
        """The rows of each key; a key that fails fails alone."""
        asked = [(row, self._outcome_of_row(row)) for row in rows_of(request)]
        return outcomes_of(self, asked, request.schema)

    def _outcome_of_row(self, request: RowRequest) -> Rows | Exception:
        try:
            return self.lookup_row(request)
        except Exception as error:
            return error


class AsyncRowLookup(RowsAsTable, AsyncLookup):
    """A connector that is asked one key at a time, for up to `capacity` keys at once.

    Examples:
        A whole connector:

            class Rates(AsyncRowLookup):
                async def alookup_row(self, request):
                    rate = await my_service.rate_of(request.key["currency"])
                    return [] if rate is None else [{"rate": rate}]
    """

    @abstractmethod
    async def alookup_row(self, request: RowRequest) -> Rows:
        """The rows of one key, as dictionaries by column; up to `capacity` calls run at once.

        A call is cancelled when its time is up or Spark wants no more rows.

        Raises:
            ConnectorError: as for ``SyncLookup.lookup``.
        """

    # Without it, a key over HTTP had a coroutine, a future, a permit, a lease and a timer: 275 Python calls.
    # (docs/decisions/0196)
    def row_starter(self, take: TakeRows) -> RowStarter | None:
        """A starter of many keys at once that needs no asyncio task per key; None by default.

        Implement it if asyncio tasks cost more than the requests themselves. The connector must be an
        ``AcquiresPermits``. Keys that it does not start are looked up by ``alookup_row``. Called on the
        event loop in the context of a lookup, so that ``permits()`` and ``reporting()`` work.

        Args:
            take: call it on the loop, after ``start`` has returned, with outcomes of started keys: once for
                each key that was not cancelled.
        """
        return None

    async def alookup(self, request: LookupRequest) -> Answer:
        """The rows of each key, asked all at once; a key that fails fails alone.

        The engine does not call this: it calls ``alookup_row`` or ``row_starter``, bounded by `capacity`.
        """
        return await self._look_up_each(request, self.alookup_row)

    async def _look_up_each(
        self, request: LookupRequest, alookup_row: Callable[[RowRequest], Awaitable[Rows]]
    ) -> Outcomes:
        """What ``alookup_row`` gives for each key of ``request``."""

        async def outcome(row: RowRequest) -> Rows | Exception:
            try:
                return await alookup_row(row)
            except Exception as error:
                return error

        rows = rows_of(request)
        outcomes = await asyncio.gather(*map(outcome, rows))
        return outcomes_of(self, list(zip(rows, outcomes, strict=True)), request.schema)


class SupportsBackpressure(ABC):
    """The ability of an async connector to pause lookups in flight while a task's buffer of rows is full.

    The engine sends no new requests then, but answers in flight may be larger than it expected. Both
    methods are called on the worker's event loop, possibly on a connector that is not open.
    """

    @abstractmethod
    def hold_back(self, task: Hashable, *, needs_answer: bool) -> None:
        """Pause large answers. Called again when ``needs_answer`` changes.

        Args:
            task: identifies the task whose buffer is full.
            needs_answer: whether the buffered rows wait for a lookup in flight (usually the oldest), which
                must then go on.
        """

    @abstractmethod
    def go_on(self, task: Hashable) -> None:
        """Resume: there is room again, or time is short. May be called without a ``hold_back`` before."""


class AcquiresPermits:
    """The ability of a connector to acquire its own permit for each request: see ``spi.permits``.

    Inherit it if one lookup may send several requests, or repeat one. For all others the engine acquires
    one permit per lookup and classifies failures by ``Connector.ending``.
    """


class ReportsOutcomes(ABC):
    """The ability to return a row for a key without rows (a miss or a failure), with a status or an error."""

    @abstractmethod
    def outcome_rows(self, keys: pa.Table, schema: pa.Schema, outcome: Outcome) -> pa.Table | None:
        """A row for each of ``keys``, in their order, or None for no rows. On the worker.

        Called after the last attempt, for misses, and for failures if `on-error` is ``null``. After a
        failure to open it is called on a connector that is not open.
        """


class Scan(ABC):
    """The ability to read the whole table, for a query that uses it outside a lookup join."""

    @abstractmethod
    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns of ``schema``. On a worker, in one task; opens what it needs itself."""

    def partitions(self, wanted: int) -> Sequence[str]:
        """Parts of the table that together hold each row once; one, the default, is the whole table.

        On the driver, when a query is about to read the table. If it fails or takes longer than a second,
        one task reads the table. Later queries reuse the parts, so together they must also hold rows that
        are added after this call.

        Args:
            wanted: the most parts to return.
        """
        return ("",)

    def scan_partition(self, schema: pa.Schema, partition: str) -> Iterator[pa.RecordBatch]:
        """The rows of one of several ``partitions``; as ``scan``, in a task of its own."""
        raise InternalError(f"{type(self).__name__} has partitions, and no scan_partition() to read them")


# Spark pushes no condition below mapInArrow, so the planner hands them over as values, and keeps the
# conditions. (docs/decisions/0156)
class FilteredScan(Scan):
    """The ability to leave rows out while the whole table is read.

    Spark checks the condition again. So a source may return rows that do not meet a filter (for example
    because it ignores case), but must not leave out one that does.
    """

    @abstractmethod
    def can_filter(self, wanted: Filter) -> bool:
        """Whether the source can leave out rows by it. On the driver, while planning; no I/O."""

    @abstractmethod
    def scan_filtered(
        self, schema: pa.Schema, partition: str, filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """Of a partition, or of the whole table where ``partition`` is empty, all rows that meet ``filters``.

        On a worker, in one task. ``schema`` need not have the columns of the filters. A filter that turns out
        not to fit the source's own type can be left out.
        """

    def scan(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows."""
        return self.scan_filtered(schema, "", ())

    def scan_partition(self, schema: pa.Schema, partition: str) -> Iterator[pa.RecordBatch]:
        """The rows of one of several partitions."""
        return self.scan_filtered(schema, partition, ())


def why_not_read(connector: Connector) -> str:
    """Why the whole table cannot be read; empty where it can be."""
    if not isinstance(connector, Scan):
        return f"connector {connector.table.connector!r} answers keys only"
    asked_by = ", ".join(sorted(connector.required_keys()))
    return f"{connector.table.name} is asked by {asked_by} only" if asked_by else ""


# FOR SYSTEM_TIME AS OF and ASOF JOIN want some rows of a key; both are one `OrderCondition`.
# (docs/decisions/0191)
class OrderedLookup(ABC):
    """A connector that selects, among the rows of a key, those nearest to a value or whose range holds it.

    Its requests have a ``LookupRequest.order`` with a column that ``can_order`` accepts, and it answers with
    ``PlacedRows``. Without this ability the worker requests all rows of a key and selects itself.
    """

    picks_known_rows: ClassVar[bool] = False
    """Whether it understands ``OrderCondition.known_from`` (without ``until``), and ``known_apart``; else it
    never gets one."""

    @abstractmethod
    def can_order(self, order: OrderCondition) -> bool:
        """Whether the source compares the column as Spark does. On the driver, no I/O."""


class NearestLookup(ABC):
    """A connector that finds, among the rows of a key or all rows, those nearest to a value.

    Its requests have a ``LookupRequest.nearest`` that ``can_find_nearest`` accepts, and it answers with
    ``PlacedRows``. Without this ability the worker requests all rows of a key, or keeps the table whole, and
    compares them itself.
    """

    @abstractmethod
    def can_find_nearest(self, nearest: NearestCondition, *, among: tuple[str, ...]) -> bool:
        """Whether the source finds the rows that Spark would, among those of the key columns ``among``.

        On the driver, no I/O. Where ``nearest`` is not exact, most of them will do.
        """

    def nearest_search(self, nearest: NearestCondition) -> str:
        """How the source searches, and its setting of recall; EXPLAIN shows it. On the driver, no I/O."""
        return ""


# Where no key of a request is NULL, `=` finds the same rows as `<=>`, by any index. (docs/decisions/0269)
class NullSafeLookup(ABC):
    """The ability to find rows whose key columns are NULL, as ``<=>`` asks for them.

    ``LookupRequest.nulls`` names columns that must be NULL in all rows of the answer, beside its keys. If no
    other column is asked by, the request has one key of no columns. Such a request is never ordered. Without
    this ability ``<=>`` gives no key.
    """

    @abstractmethod
    def can_ask_null(self, column: str) -> bool:
        """Whether the source finds all rows in which it would return NULL for it. On the driver, no I/O."""


class Statistics(ABC):
    """The ability to estimate the table's size, by which the planner chooses lookups or reading it whole."""

    @abstractmethod
    def statistics(self) -> TableSize:
        """About how large the table is, without reading it.

        On the driver while planning, on a thread without an event loop; opens what it needs itself. If it
        fails or takes longer than a second, the size is unknown, and EXPLAIN says so. An answer that is not
        ``exact`` may be reused for a minute.
        """


class ReportsSchema(ABC):
    """The ability to say which columns the table has, for DDL without a column list."""

    @abstractmethod
    def discover(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The columns and the primary key (or none). On the driver, on a thread without an event loop.

        The connector's own ``table`` has an empty schema at this time.

        Raises:
            ConnectorError: the source cannot be reached, or has no such table.
        """

    def tables(self) -> Sequence[str]:
        """The tables of the source, as ``table-name`` names them; on the driver, as ``discover``."""
        return ()


class ShowsAnswers(ABC):
    """The ability to show a raw answer of the source, from which columns can be inferred."""

    @abstractmethod
    def answer_to(self, key: Mapping[str, Any]) -> tuple[Any, Mapping[str, str]] | None:
        """The JSON document that answers ``key``, with fractions as decimals, and headers; None for a miss.

        By one request. On the driver, on a thread without an event loop; opens what it needs itself.
        """


def rows_of(request: LookupRequest) -> list[RowRequest]:
    """The keys of ``request``, each as a request of its own."""
    same = request.schema, request.timeout, request.attempt
    return [RowRequest(key, *same) for key in _keys_of(request)]


def _keys_of(request: LookupRequest) -> list[dict[str, Any]]:
    if request.nulls:
        nulls = dict.fromkeys(request.nulls)
        return [key | nulls for key in request.keys.to_pylist()] or [nulls]
    names = request.key_columns
    columns = [column.to_pylist() for column in request.keys.columns]  # faster than to_pylist of the table
    if len(names) == 1:
        return [{names[0]: value} for value in columns[0]]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def outcomes_of(
    connector: RowsAsTable, asked: Sequence[tuple[RowRequest, Rows | Exception]], schema: pa.Schema
) -> Outcomes:
    """One answer from the outcomes of single keys; their places are those in ``asked``."""
    found: list[tuple[int, tuple[RowRequest, Any]]] = []
    failures: dict[int, Exception] = {}
    notes: dict[int, Any] = {}
    for place, (request, outcome) in enumerate(asked):
        if isinstance(outcome, Exception):
            failures[place] = outcome
        elif isinstance(outcome, Miss):
            notes[place] = outcome.note
        else:
            if not isinstance(outcome, list):
                _check_rows(connector, request, outcome)
            found += [(place, (request, row)) for row in outcome]
    try:
        table = _table_of(connector, found, schema)
    except Exception:
        refused = _refused_rows(connector, found, schema)
        failures |= refused
        found = [(place, row) for place, row in found if place not in refused]
        table = _table_of(connector, found, schema)
    return Outcomes(table, pa.array([place for place, _ in found], pa.int32()), failures, notes)


def _table_of(
    connector: RowsAsTable, found: Sequence[tuple[int, tuple[RowRequest, Any]]], schema: pa.Schema
) -> pa.Table:
    """The rows found as a table. Without rows the connector is not called: it may have failed to open."""
    return connector.rows_as_table([row for _, row in found], schema) if found else schema.empty_table()


def _check_rows(connector: RowsAsTable, request: RowRequest, rows: object) -> None:
    """Refuse a result that is no list of rows: None, a single row, a coroutine."""
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | str | bytes):
        key = " and ".join(f"{name} = {value!r}" for name, value in request.key.items())
        raise AnswerError(
            f"connector {type(connector).__name__} of table {connector.table.name} answered a"
            f" {type(rows).__name__} for {key}; expected a list of dictionaries, an empty one"
            " where there is no row."
        )


def _refused_rows(
    connector: RowsAsTable, found: Sequence[tuple[int, tuple[RowRequest, Any]]], schema: pa.Schema
) -> Mapping[int, Exception]:
    """The keys whose rows cannot become a table, each with its error."""
    refused: dict[int, Exception] = {}
    for place, row in found:
        try:
            connector.rows_as_table([row], schema)
        except ConnectorError as error:
            refused[place] = error
        except Exception as error:
            text = f"table {connector.table.name}: the row {row[1]!r:.200} does not fit the columns: {error}"
            refused[place] = ConnectorError(text, permanent=True)
    return refused
