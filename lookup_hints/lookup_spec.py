"""The specification of one lookup join: made by the planner, pickled, run by the workers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from math import inf
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_hints.errors import counted
from lookup_hints.retry import RetryPolicy
from lookup_hints.spi import AsyncRowLookup, Connector
from lookup_hints.spi.multiple_match import ALL, multiple_match_of
from lookup_hints.spi.request_and_answer import LookupTable, NearestCondition, OrderCondition

NULL_IS_KEY = {b"lookup_hints": b"NULL is a key"}
"""The metadata of a key column for which NULL is a key like others."""


@dataclass(frozen=True)
class DeadLetters:
    """Where keys that failed permanently are written.

    Args:
        folder: an absolute path, or the URI of a folder.
        format: ``parquet`` or ``json``.
        application: the id of Spark's application, to distinguish statements of several applications.
        copies: whether Spark may run copies of a task at once, of which any may win (``spark.speculation``).
    """

    folder: str
    format: str = "parquet"
    application: str = ""
    copies: bool = False

    def __str__(self) -> str:
        return f"dead-letter in {self.folder} as {self.format}"


# Counted per executor, and divided between executors: no counter exists that all tasks of a cluster share.
# (docs/decisions/0140)
@dataclass(frozen=True)
class Budget:
    """The shared limits of requests to one origin, for all lookups and statements of a session.

    An origin is given by ``Connector.origin``, or by a common ``name``. None means no limit.

    Args:
        name: its own name; empty for the origin of the connector.
        concurrency: requests in flight of all processes of one executor.
        rate: requests per second of all processes of one executor.
        task_concurrency: one task's share of ``concurrency``, used without a shared file.
        task_rate: one task's share of ``rate``, used without a shared file.
        max_requests: requests of one statement, in one executor.
        on_open: what requests do while the source is down: ``wait`` within their timeout, or ``fail``.
        executors: number of executors that share the cluster's limits. None if unknown: then ``concurrency``
            and ``rate`` are None, and each task keeps to its own share.
    """

    name: str = ""
    concurrency: int | None = None
    rate: float | None = None
    task_concurrency: int | None = None
    task_rate: float | None = None
    max_requests: int | None = None
    on_open: str = "wait"
    executors: int | None = 1

    def __post_init__(self) -> None:
        whole = (self.concurrency, self.task_concurrency, self.max_requests, self.executors)
        if any(number is not None and number < 1 for number in whole):
            raise ValueError("concurrency, max_requests and executors must be at least 1")
        if any(rate is not None and not rate > 0 for rate in (self.rate, self.task_rate)):
            raise ValueError("a rate must be greater than 0")
        if self.on_open not in ("wait", "fail"):
            raise ValueError("on_open must be 'wait' or 'fail'")
        if self.executors is None and (self.concurrency is not None or self.rate is not None):
            raise ValueError("limits for each executor need the number of executors")

    @property
    def is_limited(self) -> bool:
        """Whether requests in flight, or per second, have a limit."""
        limits = (self.concurrency, self.rate, self.task_concurrency, self.task_rate)
        return any(limit is not None for limit in limits)

    def without_file(self, processors: int) -> tuple[int | None, float | None]:
        """Requests in flight, and per second, of one task whose executor has no shared file.

        Args:
            processors: processors of the machine: the upper bound for the tasks of an executor if Spark's
                configuration does not give their number.

        >>> Budget(concurrency=50, rate=100.0, task_concurrency=12, task_rate=25.0).without_file(2)
        (12, 25.0)
        >>> Budget(concurrency=50, rate=100.0).without_file(2)
        (25, 50.0)
        """
        concurrency, rate = self.task_concurrency, self.task_rate
        if concurrency is None and self.concurrency is not None:
            concurrency = max(1, self.concurrency // processors)
        if rate is None and self.rate is not None:
            rate = self.rate / processors
        return concurrency, rate


@dataclass(frozen=True)
class ChangedColumn:
    """A column that grows with each change of a row: cached answers older than a change are dropped.

    Args:
        column: the column.
        interval: seconds between two polls of the source for changes.
    """

    column: pa.Field
    interval: float

    @property
    def step(self) -> float | None:
        """How many seconds its unit is; None for a number that counts."""
        kind = self.column.type
        if types.is_date(kind):
            return 86_400.0
        return 1e-6 if types.is_timestamp(kind) else None

    def __str__(self) -> str:
        return f"what {self.column.name} says has changed is dropped, each {self.interval:g} s"


@dataclass(frozen=True)
class PartialCache:
    """A partial cache: answers that all tasks of an executor share, and their time to live.

    Args:
        expire_after_write: seconds after which rows are looked up again.
        expire_after_access: seconds since the last use after which they are; None: no such limit.
        missing_ttl: seconds after which a key without rows is looked up again; None: misses are not cached.
        max_rows: rows that one executor keeps; a key without rows counts as one.
        max_bytes: bytes of disk that they may take on one executor.
        stale_while_revalidate: seconds for which expired rows are served while they are looked up again.
        stale_if_error: seconds for which expired rows are served if looking up fails.
        changed: how changes of rows are detected, if they are.
        versions_by: the column with the start of each version. Versions that have ended never change, and no
            new one comes between them.
    """

    expire_after_write: float
    expire_after_access: float | None = None
    missing_ttl: float | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    stale_while_revalidate: float = 0.0
    stale_if_error: float = 0.0
    changed: ChangedColumn | None = None
    versions_by: str | None = None

    @property
    def longest(self) -> float:
        """No answer is used that is older."""
        if self.versions_by is not None:
            return inf
        stale = max(self.stale_while_revalidate, self.stale_if_error)
        return max(self.expire_after_write + stale, self.missing_ttl or 0.0)

    def __str__(self) -> str:
        missing = "is asked again" if self.missing_ttl is None else f"{self.missing_ttl:g} s"
        unused = "" if self.expire_after_access is None else f", unused for {self.expire_after_access:g} s"
        rows = "" if self.max_rows is None else counted(self.max_rows, "row")
        nbytes = "" if self.max_bytes is None else f"{self.max_bytes / 1024**2:,.6g} MB"
        limits = " and ".join(filter(None, (rows, nbytes)))
        kept = f"; at most {limits} in each executor" if limits else ""
        stale = ""
        if self.stale_while_revalidate:
            age = self.expire_after_write + self.stale_while_revalidate
            stale += f"; {age:g} s while it is fetched again"
        if self.stale_if_error:
            stale += f"; {self.expire_after_write + self.stale_if_error:g} s where asking fails"
        old = f"a row may be {self.expire_after_write:g} s old{unused}, a miss {missing}"
        changed = "" if self.changed is None else f"; {self.changed}"
        return f"partial: {old}{stale}{changed}{kept}"


@dataclass(frozen=True)
class Invalidation:
    """An invalidation: drops the cached answers requested before it reaches an executor.

    Args:
        session: the session that issued it, and numbers it.
        number: its number in that session, from 1.
        columns: the key columns; empty to invalidate everything.
        keys: their values.
    """

    session: str
    number: int
    columns: tuple[str, ...] = ()
    keys: tuple[tuple[Any, ...], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PeriodicReload:
    """A table that is kept whole is read again after an interval.

    Args:
        interval: seconds.
        fixed_rate: whether they count from the beginning of the last load, not from its end.
    """

    interval: float
    fixed_rate: bool = False

    def after(self, number: int, began: float, ended: float) -> float:
        """When it is due after load ``number``, from 1, in seconds on the clock of the others."""
        return (began if self.fixed_rate else ended) + self.interval

    def __str__(self) -> str:
        return f"{self.interval:g} s after {'the start' if self.fixed_rate else 'the end'} of the last time"


@dataclass(frozen=True)
class DailyReload:
    """Reload a fully cached table at a time of day.

    Args:
        at: the time; without an offset, in the machine's zone.
        days: days between two reloads after the first.
    """

    at: time
    days: int = 1

    def after(self, number: int, began: float, ended: float) -> float:
        """When it is due after load ``number``, from 1, in seconds since 1970, as the others are."""
        since = datetime.fromtimestamp(began, self.at.tzinfo)
        due = datetime.combine(since.date(), self.at)
        if due <= since:
            due += timedelta(days=1)
        return (due + timedelta(days=0 if number == 1 else self.days - 1)).timestamp()

    def __str__(self) -> str:
        return f"at {self.at.isoformat()}{'' if self.days == 1 else f' each {self.days} days'}"


@dataclass(frozen=True)
class FullCache:
    """A full cache: each executor keeps the whole table.

    Args:
        reload: when the table is read again.
        keeps_old: whether the old rows stay in use if a reload fails; else lookups fail.
        max_bytes: bytes of disk that the table may take.
        changed: how changes of rows are detected, if they are.
    """

    reload: PeriodicReload | DailyReload
    keeps_old: bool = True
    max_bytes: int | None = None
    changed: ChangedColumn | None = None

    @property
    def is_for_run(self) -> bool:
        """Whether it is kept for one run of a statement, and not for others."""
        return isinstance(self.reload, PeriodicReload) and self.reload.interval == inf

    def __str__(self) -> str:
        then = "the old rows are used" if self.keeps_old else "lookups fail"
        limit = "" if self.max_bytes is None else f"; at most {self.max_bytes / 1024**2:,.6g} MB of its disk"
        if self.is_for_run:
            return f"each executor reads the table for this statement{limit}"
        changed = "" if self.changed is None else f"; {self.changed}"
        again = f"full: each executor reads the table, and again {self.reload}"
        return f"{again}; where that fails, {then}{changed}{limit}"


# Bounded regret: by then the keys have cost as much as reading does. (docs/decisions/0163)
@dataclass(frozen=True)
class Switch:
    """When an executor switches from lookups to reading the whole table, in one run of a statement.

    Args:
        keys: the number of keys looked up before the switch: by then they cost as much as reading will.
        max_bytes: if the table takes more bytes of disk, lookups go on.
    """

    keys: int
    max_bytes: int = 2**30

    def __str__(self) -> str:
        return (
            f"each executor reads the table when it has asked for {counted(self.keys, 'key')}, and answers"
            " from that until the statement ends"
        )


@dataclass(frozen=True)
class LookupSettings:
    """How one lookup join runs; made by the planner from hint, table, session and defaults.

    ``on_error``: what happens to a row whose lookup failed: ``fail``, ``null`` or ``skip``. Its key is
    written to ``dead_letters``, if set. ``max_errors`` keys may fail, and the share ``max_error_ratio``.

    ``budget``: limits that its requests share with others.
    ``cache``: the partial cache, if any; ``invalidations`` are the answers it must drop.
    ``whole``: the full cache, if any; ``switch``: when the table may be read whole for this statement.
    ``stops_early``: whether the query may need only its first rows; ``log_keys``: whether logs may hold
    values of keys.
    """

    asynchronous: bool
    capacity: int = 100
    timeout: float = 300.0
    ordered: bool = True
    batch_size: int = 8192
    on_error: str = "fail"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    budget: Budget = Budget()
    cache: PartialCache | None = None
    invalidations: tuple[Invalidation, ...] = ()
    whole: FullCache | None = None
    switch: Switch | None = None
    stops_early: bool = False
    log_keys: bool = False
    dead_letters: DeadLetters | None = None
    max_errors: int | None = None
    max_error_ratio: float | None = None

    @property
    def changed(self) -> ChangedColumn | None:
        """How changes of cached rows are detected, if they are."""
        kept = self.cache or self.whole
        return None if kept is None else kept.changed

    @property
    def longest(self) -> float:
        """No remembered row is used that is older."""
        return inf if self.cache is None else self.cache.longest

    @property
    def failures(self) -> str:
        """A readable text of what happens to permanent failures."""
        limits = [] if self.max_errors is None else [counted(self.max_errors, "key")]
        limits += [] if self.max_error_ratio is None else [f"{self.max_error_ratio:.6g} of the keys"]
        then = self.on_error if self.dead_letters is None else f"{self.dead_letters}, then {self.on_error}"
        return f"{then}; at most {' and '.join(limits)} of a task" if limits else then


# Counts are keyed by a readable name, as a function's hash means nothing to users. (docs/decisions/0139)
@dataclass(frozen=True, order=True)
class LookupName:
    """The name of a lookup in metrics, logs and output.

    Args:
        table: the lookup table.
        alias: the table's alias in the statement.
        connector: the kind of source.
        line: the first line of its statement in its file or cell; from 1.
        function: the Spark function that runs it, named by a hash of everything that determines its result.

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
            connectors and shares it between its tasks; code on the worker gets it from ``over``.
        key_columns: columns of the lookup table to look up by, in the order of the UDF's arguments.
        columns: columns of the lookup table to return, in the order of the UDF's struct.
        settings: how to run.
        name: its name, which includes that of its function.
        packed: whether the keys come as one struct, not as one argument each.
        kind: the join: ``INNER``, ``LEFT``, ``LEFT SEMI`` or ``LEFT ANTI``; only counts depend on it.
        order: the comparison that selects rows of a key; its values are the last arguments of the UDF.
            Without key columns the table is cached whole and searched, unless the source finds the nearest.
        order_asked: whether the source applies ``order``; else the worker does, on all rows of a key.
        null_safe: the key columns for which NULL is a key like others.
    """

    connector: Connector
    key_columns: tuple[str, ...]
    columns: tuple[str, ...]
    settings: LookupSettings
    name: LookupName = LookupName()
    packed: bool = False
    kind: str = "INNER"
    order: OrderCondition | NearestCondition | None = None
    order_asked: bool = False
    null_safe: tuple[str, ...] = ()

    def over(self, opened: Connector) -> LookupSpec:
        """The same lookup by ``opened``, which this process has opened for equal connectors."""
        return replace(self, connector=opened)

    @property
    def table(self) -> LookupTable:
        return self.connector.table

    @property
    def by_row(self) -> bool:
        """Whether each key is a request of its own, many at once; never if the source applies ``order``."""
        return (
            self.settings.asynchronous
            and not self.order_asked
            and isinstance(self.connector, AsyncRowLookup)
            and self.connector.keys_per_request() == 1
        )

    @property
    def searched_whole(self) -> OrderCondition | NearestCondition | None:
        """The comparison for which a table is cached whole and searched; None for lookups by key."""
        is_asked = self.order_asked and isinstance(self.order, NearestCondition)
        return None if self.key_columns or is_asked else self.order

    @property
    def keys_are_immutable(self) -> bool:
        """Whether a row keeps its key when it changes: then a change concerns the answer to one key."""
        return set(self.key_columns) <= set(self.table.primary_key)

    @property
    def key_schema(self) -> pa.Schema:
        """Schema of the keys of a request; the value is a part of them where the worker compares no rows."""
        if self.chosen_order is None:
            return self.argument_schema
        return pa.schema(self._key_fields)

    # The mark goes where keys go, and costs other keys nothing. (docs/decisions/0269)
    @property
    def _key_fields(self) -> list[pa.Field]:
        fields = map(self.table.schema.field, self.key_columns)
        return [each.with_metadata(NULL_IS_KEY) if each.name in self.null_safe else each for each in fields]

    @property
    def argument_schema(self) -> pa.Schema:
        """Schema of the UDF's arguments: the keys, and the values that rows are compared with."""
        if self.order is None:
            return pa.schema(self._key_fields)
        if isinstance(self.order, NearestCondition):
            return pa.schema([*self._key_fields, self.order.value_field(self.table.schema)])
        since, known = self.order.column, self.order.known_from
        moments = [self.table.schema.field(since).with_name(f"{since} AS OF")]
        if self.order.known_apart:
            moments.append(moments[0].with_name(f"{known} KNOWN AS OF"))
        return pa.schema([*self._key_fields, *moments])

    @property
    def chosen_order(self) -> OrderCondition | NearestCondition | None:
        """Which of the rows that the source gives for a key answer a value; None where all do."""
        return None if self.order_asked or not self.key_columns else self.order

    @property
    def past_order(self) -> OrderCondition | None:
        """The order of versions, where rows of a cache answer for the past however old they are."""
        order, cache = self.chosen_order, self.settings.cache
        if not isinstance(order, OrderCondition) or cache is None:
            return None
        return order if (order.known_from or order.column) == cache.versions_by else None

    @property
    def match_key(self) -> tuple[str, ...]:
        """The primary key of which one row counts; empty where all do, or where it makes no difference.

        A SEMI or ANTI join by key alone has equal rows, however many a key has.
        """
        table = self.table
        is_there = self.kind in ("LEFT SEMI", "LEFT ANTI") and {*self.columns} <= {*table.primary_key}
        return () if is_there or multiple_match_of(table) == ALL else table.primary_key

    @property
    def held_columns(self) -> tuple[str, ...]:
        """The columns of a row that are held until it is returned."""
        compared = () if self.chosen_order is None else self._compared_columns
        return tuple(dict.fromkeys((*self.columns, *compared, *self.match_key)))

    @property
    def _compared_columns(self) -> tuple[str, ...]:
        """The columns that ``order`` compares."""
        if isinstance(self.order, NearestCondition):
            return (*self.order.columns, *self.order.ties)
        return () if self.order is None else self.order.columns

    @property
    def answer_schema(self) -> pa.Schema:
        """Schema of an answer: key and held columns, in the table's order."""
        compared = () if self.searched_whole is None else self._compared_columns
        wanted = {*self.key_columns, *self.held_columns, *compared}
        return pa.schema([column for column in self.table.schema if column.name in wanted])

    @property
    def row_type(self) -> pa.StructType:
        """Arrow type of one row that is handed back."""
        return pa.struct([self.table.schema.field(name) for name in self.columns])
