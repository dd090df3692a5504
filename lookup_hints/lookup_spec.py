"""What one lookup join does and how it runs: made by the planner, pickled, run by the workers."""

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
from lookup_hints.spi.request_and_answer import LookupTable, OrderCondition


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


# Counted per executor, and divided between executors: no counter exists that all tasks of a cluster share.
# (docs/decisions/0140)
@dataclass(frozen=True)
class Budget:
    """What requests to one origin may use together, over all lookups and statements of a session.

    An origin is what ``Connector.origin`` says, or what has one ``name``. None is no limit.

    Args:
        name: its own name; empty for the origin of the connector.
        concurrency: requests in flight of all processes of one executor.
        rate: requests per second of all processes of one executor.
        task_concurrency: what one task may have of it where its executor can share no file.
        task_rate: the same of the rate.
        max_requests: requests of one statement, in one executor.
        on_open: what requests do while the source is down: ``wait`` within their timeout, or ``fail``.
        executors: how many share the numbers of the cluster. None where nobody knows: then ``concurrency``
            and ``rate`` are None, and each task keeps to its own part.
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
        """Requests in flight, and per second, of one task whose executor can share no file.

        Args:
            processors: those of the machine. Where Spark's configuration does not say how many tasks an
                executor runs, there are no more of them than processors.

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
    """A column that grows with each change of a row: answers that are older than a change are not used.

    Args:
        column: the column.
        interval: seconds from one time that the source is asked for changes to the next one.
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
    """Answers of a table that all tasks of an executor share, and for how long.

    Args:
        expire_after_write: seconds after which rows are asked again.
        expire_after_access: the same since they were last used, if at all.
        missing_ttl: seconds after which a key without rows is asked again; None: it is not remembered.
        max_rows: how many rows one executor keeps; a key without rows counts as one.
        max_bytes: how many bytes of its disk they may take.
        stale_while_revalidate: seconds for which older rows are used while they are asked for again.
        stale_if_error: seconds for which older rows are used where asking fails.
        changed: what tells that they have changed.
        versions_by: the column with which versions begin. Of those that have ended none changes, and none
            comes between them.
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
    """Answers that may not be used any more: those that were asked for before an executor hears of this.

    Args:
        session: who has taken them back, and counts.
        number: which time it was, from 1.
        columns: those that tell keys; none where everything is invalidated.
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
    """A table that is kept whole is read again at a time of day.

    Args:
        at: the time; without an offset, that of the machine.
        days: how many days lie between two times, but for the first one.
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
    """A table that each executor keeps whole.

    Args:
        reload: when it is read again.
        keeps_old: whether the rows of the last time are used when that fails; else lookups fail.
        max_bytes: how many bytes of its disk they may take.
        changed: what tells that rows have changed.
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
    """When an executor reads a table that it asks by key, in one run of a statement.

    Args:
        keys: when it has asked for so many: then they have cost as much as reading will.
        max_bytes: a table that takes more of its disk is asked on.
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

    ``on_error`` is what becomes of a row whose lookup failed: ``fail``, ``null`` or ``skip``. Its key is
    written to ``dead_letters``, if there are any. ``max_errors`` keys may fail, ``max_error_ratio`` of all.

    ``budget`` is what its requests share with others.
    ``cache`` says how answers are remembered, if they are; those in ``invalidations`` are not used.
    ``whole`` says that the table is kept as a whole, ``switch`` that it may be read for this statement.
    ``stops_early`` says that the query may be content with the first rows, ``log_keys`` that logs may hold
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
        """What tells that remembered rows have changed."""
        kept = self.cache or self.whole
        return None if kept is None else kept.changed

    @property
    def longest(self) -> float:
        """No remembered row is used that is older."""
        return inf if self.cache is None else self.cache.longest

    @property
    def failures(self) -> str:
        """What becomes of lookups that fail for good, for a reader."""
        limits = [] if self.max_errors is None else [counted(self.max_errors, "key")]
        limits += [] if self.max_error_ratio is None else [f"{self.max_error_ratio:.6g} of the keys"]
        then = self.on_error if self.dead_letters is None else f"{self.dead_letters}, then {self.on_error}"
        return f"{then}; at most {' and '.join(limits)} of a task" if limits else then


# Counts were kept by a function's hash at first, which nobody knows. (docs/decisions/0139)
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
        order: which rows of a key answer; the value that is compared is the last argument of the UDF. Without
            key columns all rows of the table may: it is kept whole, and asked for ranges that hold the value.
        order_asked: whether the worker is given them alone; else it is given all rows of a key, and chooses.
    """

    connector: Connector
    key_columns: tuple[str, ...]
    columns: tuple[str, ...]
    settings: LookupSettings
    name: LookupName = LookupName()
    packed: bool = False
    kind: str = "INNER"
    order: OrderCondition | None = None
    order_asked: bool = False

    def over(self, opened: Connector) -> LookupSpec:
        """The same lookup by ``opened``, which this process has opened for equal connectors."""
        return replace(self, connector=opened)

    @property
    def table(self) -> LookupTable:
        return self.connector.table

    @property
    def by_row(self) -> bool:
        """Whether keys are asked one by one, many at once; then there is no order to ask by."""
        return (
            self.settings.asynchronous
            and not self.order_asked
            and isinstance(self.connector, AsyncRowLookup)
            and self.connector.keys_per_request() == 1
        )

    @property
    def in_range(self) -> OrderCondition | None:
        """Which rows of the whole table answer a value; None where it is asked by key."""
        return None if self.key_columns else self.order

    @property
    def keys_are_immutable(self) -> bool:
        """Whether a row keeps its key when it changes: then a change concerns the answer to one key."""
        return set(self.key_columns) <= set(self.table.primary_key)

    @property
    def key_schema(self) -> pa.Schema:
        """Schema of the keys of a request; the value is a part of them where the source compares it."""
        if self.order_asked:
            return self.argument_schema
        return pa.schema([self.table.schema.field(name) for name in self.key_columns])

    @property
    def argument_schema(self) -> pa.Schema:
        """Schema of the UDF's arguments: the keys, and the value that is compared with the ordered column."""
        names = self.key_columns if self.order is None else (*self.key_columns, self.order.column)
        fields = [self.table.schema.field(name) for name in names]
        if self.order is not None:
            fields[-1] = fields[-1].with_name(f"{self.order.column} AS OF")
        return pa.schema(fields)

    @property
    def chosen_order(self) -> OrderCondition | None:
        """Which of the rows that the source gives for a key answer a value; None where all do."""
        return None if self.order_asked else self.order

    @property
    def past_order(self) -> OrderCondition | None:
        """The order of versions, where rows of a cache answer for the past however old they are."""
        order, cache = self.chosen_order, self.settings.cache
        is_past = order is not None and cache is not None and order.column == cache.versions_by
        return order if is_past else None

    @property
    def held_columns(self) -> tuple[str, ...]:
        """What is kept of a row until it is handed back."""
        compared = () if self.chosen_order is None else self.chosen_order.columns
        return tuple(dict.fromkeys((*self.columns, *compared)))

    @property
    def answer_schema(self) -> pa.Schema:
        """Schema of an answer: key and held columns, in the table's order."""
        compared = () if self.in_range is None else self.in_range.columns
        wanted = {*self.key_columns, *self.held_columns, *compared}
        return pa.schema([column for column in self.table.schema if column.name in wanted])

    @property
    def row_type(self) -> pa.StructType:
        """Arrow type of one row that is handed back."""
        return pa.struct([self.table.schema.field(name) for name in self.columns])
