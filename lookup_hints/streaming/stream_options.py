"""The options of a streaming INSERT, including restarts after failures."""

from __future__ import annotations

from functools import partial

from lookup_hints.spi.option_values import (
    BOOLEAN,
    DURATION,
    DURATION_OR_ZERO,
    TEXT,
    TRIGGER,
    Option,
    Place,
    choice,
    integer,
    number,
    spelled,
)

_SESSION = frozenset({Place.SESSION})
_STREAM = frozenset({Place.INSERT, Place.SESSION})
_session_option = partial(Option, places=_SESSION)

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "checkpoint",
        TEXT,
        "Folder of the query's checkpoint, for no other query: what it has read and written, to resume there."
        " Needed for all sinks but console, noop and memory, which take it from `WITH` alone. Without it,"
        " `spark.sql.streaming.checkpointLocation` and the name say where it is.",
        places=_STREAM,
        session_key="lookup.stream.checkpoint",
        insert_key="checkpointLocation",
    ),
    Option(
        "trigger",
        TRIGGER,
        "When the query looks for new rows. available-now: all that is there, then it ends."
        " Without it, a batch begins when the last one is done.",
        places=_STREAM,
        session_key="lookup.stream.trigger",
    ),
    Option(
        "output-mode",
        choice("append", "update", "complete"),
        "Which rows of a query with an aggregation reach the sink.",
        default="append",
        places=_STREAM,
        session_key="lookup.stream.output-mode",
        insert_key="outputMode",
    ),
    Option(
        "name",
        TEXT,
        "Name of the query, in logs, the Spark UI and `spark.streams`.",
        places=_STREAM,
        session_key="lookup.stream.name",
        insert_key="queryName",
    ),
    _session_option(
        "sync",
        BOOLEAN,
        "true: a streaming INSERT returns when its query has ended; false: when it has started.",
        default=False,
        session_key="table.dml-sync",
    ),
)

RESTART_OPTIONS: tuple[Option, ...] = (
    _session_option(
        "restart-strategy.type",
        spelled(
            none=("off", "disable"),
            fixed_delay=("fixeddelay",),
            exponential_delay=("exponentialdelay",),
            failure_rate=("failurerate",),
        ),
        "How a failed streaming query is restarted. Default: exponential-delay if the query has a checkpoint,"
        " else none.",
        session_aliases=("restart-strategy",),
    ),
    _session_option(
        "restart-strategy.fixed-delay.attempts", integer(0), "Restarts in all, of fixed-delay.", default=1
    ),
    _session_option(
        "restart-strategy.fixed-delay.delay",
        DURATION_OR_ZERO,
        "The wait before each restart, of fixed-delay.",
        default=1.0,
    ),
    _session_option(
        "restart-strategy.exponential-delay.initial-backoff",
        DURATION,
        "The first wait of exponential-delay.",
        default=1.0,
    ),
    _session_option(
        "restart-strategy.exponential-delay.max-backoff",
        DURATION,
        "The longest wait of exponential-delay.",
        default=60.0,
    ),
    _session_option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        number(1),
        "Growth of exponential-delay from one wait to the next; more than 1.",
        default=1.5,
    ),
    _session_option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        DURATION,
        "Time without a failure after which exponential-delay restarts with its first wait.",
        default=3600.0,
    ),
    _session_option(
        "restart-strategy.exponential-delay.jitter-factor",
        number(0, 1),
        "Part of a wait of exponential-delay that is added or subtracted at random.",
        default=0.1,
    ),
    _session_option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        integer(1),
        "Restarts in a row, of exponential-delay; the default is without limit.",
        default=2**31 - 1,
    ),
    _session_option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        integer(1),
        "Failures within the interval that failure-rate allows; one more is final.",
        default=1,
    ),
    _session_option(
        "restart-strategy.failure-rate.failure-rate-interval",
        DURATION,
        "The time over which failure-rate counts.",
        default=60.0,
    ),
    _session_option(
        "restart-strategy.failure-rate.delay",
        DURATION_OR_ZERO,
        "The wait before each restart, of failure-rate.",
        default=1.0,
    ),
    _session_option(
        "execution.failover-strategy",
        spelled(region=(), full=()),
        "Queries that restart after a failure: the failed one (region), or all streaming queries of the"
        " session that have this set (full).",
        default="region",
        session_aliases=("jobmanager.execution.failover-strategy",),
    ),
)
