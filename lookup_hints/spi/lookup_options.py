"""The options of a lookup: in a hint, in ``WITH`` and in the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lookup_hints.spi.option_values import (
    AMOUNT,
    BOOLEAN,
    COLUMN,
    DURATION,
    FOLDER,
    LABEL,
    NAMES,
    SIZE,
    TEXT,
    TIME_OF_DAY,
    Option,
    OptionType,
    Place,
    choice,
    integer,
    number,
    options_at,
    parsed,
    spelled,
)

if TYPE_CHECKING:
    from lookup_hints.spi.request_and_answer import LookupTable

KNOWN_AS_OF = "known-as-of"
LOOKUP, SCAN, AUTO = "lookup", "scan", "auto"
"""The values of the option ``access``."""

_QUERY = frozenset({Place.HINT, Place.TABLE})
_EVERYWHERE = frozenset(Place)
_SESSION = frozenset({Place.SESSION})
_TABLE_AND_SESSION = frozenset({Place.TABLE, Place.SESSION})

_NO_HEDGE = (
    "It was removed. Write 'output-mode' = 'allow_unordered', and a slow request holds up no others. To give"
    " it up and ask again: a timeout of the connector ('request-timeout' of http), and 'retry-predicate' ="
    " 'exception'."
)


def _lookup_option(key: str, type_: OptionType, meaning: str, **more: Any) -> Option:
    """An option that ``WITH`` and ``SET`` call ``lookup.<key>``."""
    names = {"table_key": f"lookup.{key}", "session_key": f"lookup.{key}"}
    return Option(key, type_, meaning, **{**names, **more})


LOOKUP_OPTIONS: tuple[Option, ...] = (
    Option(
        "table",
        TEXT,
        "Alias of the lookup table in this query block; its name if it has no alias.",
        places=frozenset({Place.HINT}),
        required=True,
    ),
    _lookup_option(
        "async",
        BOOLEAN,
        "true: use the async runner; false: the sync one. Default: async, if the connector supports it.",
        places=_QUERY,
        python_name="asynchronous",
    ),
    _lookup_option(
        "access",
        choice(LOOKUP, SCAN, AUTO),
        "lookup: look up rows by key; scan: read the whole table, and let Spark join; auto: whichever is "
        "clearly cheaper. Default: lookup if a LOOKUP hint names the table, else auto.",
        places=_EVERYWHERE,
    ),
    Option("scan", BOOLEAN, "Whether the table may ever be read whole.", default=True),
    Option(
        "multiple-match",
        choice("all", "first", "error"),
        "Where several rows have one declared primary key: all of them count, the first, or it is an error.",
        default="all",
    ),
    _lookup_option(
        "on-scan",
        choice("allow", "warn", "error"),
        "Before the whole table is read, for any reason: allow it, warn in log and EXPLAIN, or fail. "
        "Default: warn if it is known to have more than 10 million rows.",
        places=_TABLE_AND_SESSION,
    ),
    _lookup_option(
        "on-event-time",
        choice("allow", "warn", "error"),
        "If the time of FOR SYSTEM_TIME AS OF is not known to be processing time: allow it, warn in log "
        "and EXPLAIN, or fail. A lookup reads current rows, unless its table has valid-from.",
        default="warn",
        places=_TABLE_AND_SESSION,
    ),
    _lookup_option(
        "valid-from",
        TEXT,
        "Column with the moment from which a row is valid: FOR SYSTEM_TIME AS OF then chooses the last row of"
        " the key that had begun by the given moment.",
    ),
    _lookup_option(
        "valid-to",
        TEXT,
        "Column with the moment at which a row stops being valid, or NULL: FOR SYSTEM_TIME AS OF then gives"
        " all rows of the key that were valid at the given moment.",
    ),
    _lookup_option(
        "known-from",
        TEXT,
        "Column with the moment from which a row is known: FOR SYSTEM_TIME AS OF then chooses among the rows"
        " known by the given moment. Of several with one beginning, the one learned last counts.",
    ),
    Option(
        KNOWN_AS_OF,
        COLUMN,
        "Column of the left side with the moment by which rows must be known. Without it, that of FOR"
        " SYSTEM_TIME AS OF counts.",
        places=frozenset({Place.HINT}),
    ),
    _lookup_option(
        "scan.max-rows",
        integer(0),
        "A table that is known to have more rows is never read whole.",
        places=_TABLE_AND_SESSION,
    ),
    Option(
        "output-mode",
        choice("ordered", "allow_unordered"),
        "ordered: a finished request keeps its slot until all earlier ones are delivered; "
        "allow_unordered: a slow request never stops new ones. Rows keep their order in both.",
        default="ordered",
        places=_EVERYWHERE,
        session_key="table.exec.async-lookup.output-mode",
        python_name="ordered",
    ),
    Option(
        "capacity",
        integer(1),
        "Requests in flight per task; a key that waits for its retry holds no slot.",
        default=100,
        places=_EVERYWHERE,
        session_key="table.exec.async-lookup.buffer-capacity",
    ),
    Option(
        "timeout",
        DURATION,
        "Time for one key from its first request to its final outcome, retries and waits included.",
        default=300.0,
        places=_EVERYWHERE,
        session_key="table.exec.async-lookup.timeout",
        field="LookupSettings.timeout",
    ),
    Option(
        "shuffle",
        BOOLEAN,
        "Partition the left rows by lookup key first, so that only one task looks up each key.",
        default=False,
        places=_QUERY,
    ),
    Option(
        "retry-predicate",
        NAMES,
        "Outcomes that are retried: lookup_miss, exception, both, or a registered predicate.",
        places=_QUERY,
    ),
    Option(
        "retry-strategy",
        choice("fixed_delay", "exponential_delay"),
        "How long to wait before a retry: the same time each time, or a growing one.",
        places=_QUERY,
    ),
    Option("fixed-delay", DURATION, "The wait of fixed_delay.", places=_QUERY, field="FixedDelay.delay"),
    Option(
        "max-attempts",
        integer(1),
        "Retries after the first try: 3 means up to 4 lookups of a key.",
        places=_QUERY,
    ),
    Option(
        "initial-backoff",
        DURATION,
        "The first wait of exponential_delay.",
        places=_QUERY,
        field="ExponentialDelay.initial",
    ),
    Option(
        "max-backoff",
        DURATION,
        "The longest wait of exponential_delay.",
        default=60.0,
        places=_QUERY,
        field="ExponentialDelay.maximum",
    ),
    Option(
        "backoff-multiplier",
        number(1),
        "Factor from one wait of exponential_delay to the next.",
        default=2.0,
        places=_QUERY,
        field="ExponentialDelay.multiplier",
    ),
    Option(
        "jitter-factor",
        number(0, 1),
        "Share of a wait of exponential_delay that is added or subtracted at random.",
        default=0.1,
        places=_QUERY,
        field="ExponentialDelay.jitter",
    ),
    Option(
        "on-error",
        spelled(fail=(), null=(), skip=(), dead_letter=()),
        "When a lookup fails permanently: fail the task, treat it as a miss (null), drop the row (skip),"
        " or write its key to a folder and continue (dead-letter).",
        default="fail",
        places=_QUERY,
    ),
    _lookup_option(
        "dead-letter.path",
        FOLDER,
        "Folder of the keys that failed: an absolute path that all workers see, or an address that"
        " begins with `s3://`, `s3a://`, `gs://` or `hdfs://`.",
        places=_EVERYWHERE,
        field="DeadLetters.folder",
    ),
    _lookup_option(
        "dead-letter.format",
        choice("parquet", "json"),
        "Format of the files there.",
        default="parquet",
        places=_EVERYWHERE,
        field="DeadLetters.format",
    ),
    _lookup_option(
        "dead-letter.then",
        choice("null", "skip"),
        "Effect on the row whose key is written there: null and skip have the same meaning as in `on-error`.",
        default="null",
        places=_EVERYWHERE,
    ),
    _lookup_option(
        "max-errors",
        integer(0),
        "Keys of one task that may fail; one more fails the task, whatever `on-error` says.",
        places=_EVERYWHERE,
    ),
    _lookup_option(
        "max-error-ratio",
        number(0, 1),
        "Share of one task's keys that may fail, from 0 to 1; if more fail, the task fails at its end.",
        places=_EVERYWHERE,
    ),
    Option(
        "batch-size",
        integer(1, 1_000_000),
        "Keys in one request, at most; requests start smaller and grow while they are answered quickly.",
        default=8192,
        places=_QUERY,
    ),
    _lookup_option(
        "budget",
        LABEL,
        "Name of the budget that limits the table's requests, in place of the origin's (host, port, "
        "user). Tables with one name share one budget.",
    ),
    _lookup_option(
        "max-concurrency",
        integer(1),
        "Requests in flight to the origin in the whole cluster, of all lookup joins, statements and queries"
        " of a session together. A task has `capacity` at most.",
    ),
    _lookup_option(
        "rate-limit",
        number(0.001),
        "Requests per second to the origin in the whole cluster, of all lookup joins, statements and queries"
        " of a session together.",
    ),
    _lookup_option(
        "max-requests",
        integer(1),
        "Requests of one statement, in the whole cluster; one more fails the statement.",
        places=_EVERYWHERE,
    ),
    _lookup_option(
        "admission",
        choice("off", "warn", "refuse"),
        "Before a statement runs, count its left sides: warn or refuse if it surely needs more requests than"
        " max-requests.",
        default="off",
        places=_TABLE_AND_SESSION,
    ),
    _lookup_option(
        "price-per-request",
        AMOUNT,
        "What one request costs, in a currency of your choice: EXPLAIN ESTIMATE gives the sum.",
    ),
    _lookup_option(
        "price-per-row",
        AMOUNT,
        "What one row that the source returns costs, in the same currency.",
    ),
    _lookup_option(
        "scan.partitions",
        integer(1, 10_000),
        "Maximum of parts in which the whole table is read in parallel, each by a task with its own "
        "connection. Default: the number of parallel tasks, and at most `lookup.max-concurrency` or 16. "
        "1 reads all rows in one snapshot.",
    ),
    _lookup_option(
        "on-open",
        choice("wait", "fail"),
        "While the source is down, requests wait within their `timeout`, or fail at once.",
        default="wait",
        places=_QUERY,
    ),
    _lookup_option(
        "cache",
        choice("none", "partial", "full"),
        "Cache on the disk of each executor, for all its tasks and queries: partial keeps the answers "
        "to keys that were looked up, full the whole table. In a hint, none turns it off for one query.",
        default="none",
        places=_QUERY,
    ),
    _lookup_option(
        "cache.changed-column",
        TEXT,
        "Column that grows with each change of a row: a timestamp, a date or a whole number. Cached "
        "answers of changed rows are dropped.",
    ),
    _lookup_option(
        "cache.check-interval",
        DURATION,
        "Shortest time between two checks of changed-column by one executor.",
        default=10.0,
    ),
    _lookup_option(
        "partial-cache.expire-after-write",
        DURATION,
        "Rows older than this are fetched again. In Flink there is no default.",
        default=600.0,
        field="PartialCache.expire_after_write",
    ),
    _lookup_option(
        "partial-cache.expire-after-access",
        DURATION,
        "Rows not used for this long are fetched again.",
        field="PartialCache.expire_after_access",
    ),
    _lookup_option(
        "partial-cache.cache-missing-key",
        BOOLEAN,
        "Whether misses are cached. A lookup that retries misses always looks them up.",
        default=True,
    ),
    _lookup_option(
        "partial-cache.missing-ttl",
        DURATION,
        "Misses older than this are looked up again; by default a tenth of expire-after-write, at most 30 s.",
    ),
    _lookup_option(
        "partial-cache.max-rows",
        integer(1),
        "Rows of the table that one executor keeps, at most; a miss counts as one.",
        field="PartialCache.max_rows",
    ),
    _lookup_option(
        "partial-cache.max-bytes",
        SIZE,
        "Bytes that these rows take on its disk, at most.",
        default=256 * 1024**2,
        field="PartialCache.max_bytes",
    ),
    _lookup_option(
        "partial-cache.stale-while-revalidate",
        DURATION,
        "How long an expired row may still be used while the worker fetches it again in the background.",
        field="PartialCache.stale_while_revalidate",
    ),
    _lookup_option(
        "partial-cache.stale-if-error",
        DURATION,
        "How long an expired row may still be used if fetching it has failed.",
        field="PartialCache.stale_if_error",
    ),
    _lookup_option(
        "full-cache.reload-strategy",
        choice("periodic", "timed"),
        "When a fully cached table is reloaded: after an interval (periodic), or at a time of day (timed).",
        default="periodic",
    ),
    _lookup_option(
        "full-cache.periodic-reload.interval",
        DURATION,
        "With periodic: time between two loads. Required there.",
    ),
    _lookup_option(
        "full-cache.periodic-reload.schedule-mode",
        choice("fixed_delay", "fixed_rate"),
        "With periodic: whether the interval begins when a load ends (fixed_delay) or begins (fixed_rate).",
        default="fixed_delay",
    ),
    _lookup_option(
        "full-cache.timed-reload.iso-time",
        TIME_OF_DAY,
        "With timed: the time of day, as in `10:15`, `10:15Z` or `10:15+07:00`; without an offset it "
        "is that of the executor. Required there.",
    ),
    _lookup_option(
        "full-cache.timed-reload.interval-in-days",
        integer(1),
        "With timed: days between two loads, after the first one.",
        default=1,
    ),
    _lookup_option(
        "full-cache.on-reload-failure",
        choice("keep", "fail"),
        "If a reload fails: keep uses the rows of the last load, fail fails the lookups, as Flink does.",
        default="keep",
    ),
    _lookup_option(
        "full-cache.max-bytes",
        SIZE,
        "Bytes that the table may take on the disk of one executor, and twice that during a reload. A"
        " larger table is not cached: it is looked up by key.",
        default=1024**3,
        field="FullCache.max_bytes",
    ),
)

INIT = _lookup_option(
    "init",
    TEXT,
    "What creates the lookup tables of a session: the path of a file of SQL, or module:function, which is"
    " called with the LookupSession. It is read when Spark starts, and runs before the first statement.",
    places=_SESSION,
)

SESSION_OPTIONS: tuple[Option, ...] = (
    INIT,
    _lookup_option(
        "on-invalid-hint",
        choice("error", "warn"),
        "error: a wrong LOOKUP hint fails the statement; warn: it is logged and has no effect.",
        default="error",
        places=_SESSION,
    ),
    _lookup_option(
        "transport",
        choice("auto", "arrow", "pandas"),
        "How keys and rows travel between Spark and Python; auto takes Arrow where PySpark has it.",
        default="auto",
        places=_SESSION,
    ),
    _lookup_option(
        "log-keys",
        BOOLEAN,
        "Whether lines in logs may hold values of keys; else they only say how many there are.",
        default=False,
        places=_SESSION,
    ),
    _lookup_option(
        "rebalance-order-by",
        BOOLEAN,
        "Add a REBALANCE hint below a global ORDER BY, whose sampling would ask for each key twice.",
        default=True,
        places=_SESSION,
    ),
    _lookup_option(
        "cluster-tasks",
        integer(1),
        "The most tasks that run at once. lookup.max-concurrency and lookup.rate-limit are divided by"
        " it where the number of executors is unknown, or an executor can share no file. By default "
        "what Spark's configuration says.",
        places=_SESSION,
    ),
)

REMOVED_OPTIONS: Mapping[str, str] = {
    "http.cache": "It was removed. Write 'lookup.cache' = 'PARTIAL', and say how long rows are used:"
    " 'lookup.partial-cache.expire-after-write' = '10 min'.",
    "hedge": _NO_HEDGE,
    "lookup.hedge": _NO_HEDGE,
}
"""What to write in place of an option that there was, by its name in a hint or in WITH."""

TABLE_OPTIONS: Mapping[str, Option] = options_at(Place.TABLE, LOOKUP_OPTIONS)
"""The options of a lookup that may stand in ``WITH``, by the name that they have there."""

DEAD_LETTER_KEYS: tuple[str, ...] = ("dead-letter.path", "dead-letter.format", "dead-letter.then")

CACHE_KEYS: tuple[str, ...] = tuple(
    option.key for option in LOOKUP_OPTIONS if option.key.startswith(("cache", "partial-cache."))
)

FULL_CACHE_KEYS: tuple[str, ...] = (
    *(option.key for option in LOOKUP_OPTIONS if option.key.startswith(("cache", "full-cache."))),
)

ERROR_LIMIT_KEYS: tuple[str, ...] = ("max-errors", "max-error-ratio")

RETRY_KEYS: tuple[str, ...] = (
    "retry-predicate",
    "retry-strategy",
    "fixed-delay",
    "max-attempts",
    "initial-backoff",
    "max-backoff",
    "backoff-multiplier",
    "jitter-factor",
)


def options_of_table(table: LookupTable) -> dict[str, Any]:
    """The typed lookup options of its WITH, by their keys in a hint.

    Raises:
        OptionError: one has a value that it cannot have.
    """
    owner = f"table {table.name}: "
    return {
        option.key: parsed(option, key, text, owner=owner)
        for key, text in table.options.items()
        if text and (option := TABLE_OPTIONS.get(key)) is not None
    }
