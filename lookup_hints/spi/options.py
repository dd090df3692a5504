"""Options as data: key, type, default, meaning, and where each may stand.

Validation, nearest-name help, DESCRIBE and the reference in ``docs/options.md`` are all made from the
tables of this module (and, for connectors, from their ``OPTIONS``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lookup_hints.errors import OptionError, Problem, did_you_mean


class Place(Enum):
    """Where an option may be given; what is nearer to the statement beats what is further away."""

    HINT = "hint"
    TABLE = "table"
    INSERT = "insert"
    SESSION = "session"


@dataclass(frozen=True)
class OptionType:
    """A named set of values and how one is read from text; ``parse`` raises ValueError."""

    name: str
    parse: Callable[[str], Any] = field(compare=False)


@dataclass(frozen=True)
class Option:
    """One option.

    Args:
        key: its name in a hint or a ``WITH`` clause; that of a family ends with a dot (``header.``).
        type: what values it takes.
        meaning: one sentence for the reference.
        default: the value in force when it is given nowhere; None when there is none.
        places: where it may stand.
        table_key: its name in ``WITH`` where that differs.
        session_key: its name in ``SET`` (also accepted with the prefix ``spark.``).
        insert_key: its name in the ``WITH`` of a streaming INSERT.
        session_aliases: other names that it has in ``SET``.
        required: whether it must be given.
        secret: whether its value is never shown.
        family: what follows the dot where one option stands for many (``header.<name>``); its value is
            then a dictionary by what follows.
    """

    key: str
    type: OptionType
    meaning: str
    default: Any = None
    places: frozenset[Place] = frozenset({Place.TABLE})
    table_key: str = ""
    session_key: str = ""
    insert_key: str = ""
    session_aliases: tuple[str, ...] = ()
    required: bool = False
    secret: bool = False
    family: str = ""

    @property
    def shown_key(self) -> str:
        """Its name for a reader."""
        return f"{self.key}<{self.family}>" if self.family else self.key

    def is_named(self, key: str) -> bool:
        """Whether ``key`` of a ``WITH`` clause is this option, or one of this family."""
        own = self.key_in(Place.TABLE)
        return key.startswith(own) and key != own if self.family else key == own

    def key_in(self, place: Place) -> str:
        """The name that the option has at ``place``."""
        names = {
            Place.TABLE: self.table_key,
            Place.SESSION: self.session_key,
            Place.INSERT: self.insert_key,
        }
        return names.get(place) or self.key

    @property
    def session_keys(self) -> tuple[str, ...]:
        """Its names in ``SET``; the first that is set counts."""
        names = (self.key_in(Place.SESSION), *self.session_aliases)
        return (*names, *(f"spark.{name}" for name in names))


# --- types -----------------------------------------------------------------------------------------

_DURATION = re.compile(r"\s*(-?\d+)\s*([^\d\s]*)\s*", re.UNICODE)
_UNITS: dict[str, float] = {
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
}


def _duration(text: str, least: float = 1e-3) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("write a whole number and a unit, as in '10s', '500 ms', '3 min' or '1 h'")
    unit = match[2].lower()
    if unit not in _UNITS:
        tip = "; write 'min' for minutes" if unit == "m" else ""
        raise ValueError(f"{match[2]!r} is not a unit; use d, h, min, s, ms, µs or ns{tip}")
    seconds = int(match[1]) * _UNITS[unit]
    if seconds < least:
        raise ValueError("it must be at least 1 ms" if least else "it must not be negative")
    return seconds


_SIZE = re.compile(r"\s*(\d{1,18})\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS: dict[str, int] = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib"), 1024),
    **dict.fromkeys(("m", "mb", "mib"), 1024**2),
    **dict.fromkeys(("g", "gb", "gib"), 1024**3),
}


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("write a whole number and a unit, as in '256 mb', '64 kb' or '1 gb'")
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()]
    if size < 1:
        raise ValueError("it must be at least 1 byte")
    return size


def _boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("write true or false")
    return value


def integer(minimum: int, maximum: int = 2**31 - 1) -> OptionType:
    """Whole numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text):
            raise ValueError("write a whole number")
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"it must be between {minimum} and {maximum}")
        return value

    return OptionType(f"integer >= {minimum}", parse)


def number(minimum: float, maximum: float | None = None) -> OptionType:
    """Numbers from ``minimum`` to ``maximum``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("write a number") from None
        if not value >= minimum or (maximum is not None and value > maximum):
            upper = "" if maximum is None else f" and at most {maximum:g}"
            raise ValueError(f"it must be at least {minimum:g}{upper}")
        return value

    return OptionType(f"number >= {minimum:g}", parse)


def choice(*values: str) -> OptionType:
    """One of ``values``, ignoring case and taking ``-`` for ``_``."""

    def parse(text: str) -> str:
        value = normal_value(text)
        if value not in values:
            raise ValueError(_one_of(", ".join(values), text, values))
        return value

    return OptionType(" | ".join(values), parse)


def _one_of(listed: str, given: str, values: Sequence[str]) -> str:
    return f"it must be one of {listed}. {did_you_mean(given, values)}".rstrip(". ")


def spelled(**values: Sequence[str]) -> OptionType:
    """One of ``values``, each with its other spellings; case is ignored, ``_`` stands for ``-``.

    Keyword arguments take no dash, so ``fixed_delay=...`` is the value ``fixed-delay``.
    """
    names = {name.replace("_", "-"): others for name, others in values.items()}
    spellings = {spelling: name for name, others in names.items() for spelling in (name, *others)}

    def parse(text: str) -> str:
        value = text.strip().lower().replace("_", "-")
        if value not in spellings:
            raise ValueError(_one_of(", ".join(names), value, list(names)))
        return spellings[value]

    return OptionType(" | ".join(names), parse)


Trigger = tuple[str, str | bool]
"""When a streaming query runs: keyword and value for ``DataStreamWriter.trigger``."""

_TRIGGERS = {
    "processing-time": "processingTime",
    "available-now": "availableNow",
    "once": "once",
    "real-time": "realTime",
    "continuous": "continuous",
}
_WITHOUT_TIME = ("available-now", "once")


def _trigger(text: str) -> Trigger:
    match = re.fullmatch(r"([a-z]+(?:[-_ ][a-z]+)?)\s*(.*)", text.strip().lower())
    kind = match[1].replace("_", "-").replace(" ", "-") if match else text
    if match is None or kind not in _TRIGGERS:
        raise ValueError(_one_of(TRIGGER.name, kind, list(_TRIGGERS)))
    if kind in _WITHOUT_TIME:
        if match[2]:
            raise ValueError(f"{kind} takes no time")
        return _TRIGGERS[kind], True
    if not match[2]:
        raise ValueError(f"{kind} needs a time, as in '{kind} 10s'")
    seconds = _duration(match[2], 0.0 if kind == "processing-time" else 1e-3)
    return _TRIGGERS[kind], f"{round(seconds * 1000)} milliseconds"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(normal_value(name) for name in text.split(","))
    if "" in names:
        raise ValueError("write names separated by commas")
    return names


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text


def normal_value(text: str) -> str:
    """The normal form of an enumerated value: case is ignored, ``-`` and ``_`` are the same."""
    return text.strip().lower().replace("-", "_")


BOOLEAN = OptionType("boolean", _boolean)
DURATION = OptionType("duration", _duration)
SIZE = OptionType("size", _size)
DURATION_OR_ZERO = OptionType("duration", lambda text: _duration(text, 0.0))
TRIGGER = OptionType(
    "processing-time <duration> | available-now | once | real-time <duration> | continuous <duration>",
    _trigger,
)
TEXT = OptionType("text", _text)
FILE = OptionType("file", _text)
"""The path of a file on the machine that connects; `lookup.security.allowed-references` counts for it."""
NAMES = OptionType("names, comma-separated", _names)

# --- the lookup options ----------------------------------------------------------------------------

_QUERY = frozenset({Place.HINT, Place.TABLE})
_EVERYWHERE = frozenset(Place)
_SESSION = frozenset({Place.SESSION})

LOOKUP_OPTIONS: tuple[Option, ...] = (
    Option(
        "table",
        TEXT,
        "Alias of the lookup table in this query block (its name where it has no alias).",
        places=frozenset({Place.HINT}),
        required=True,
    ),
    Option(
        "async",
        BOOLEAN,
        "A wish for the async (true) or sync (false) runner; without it async, where the connector can.",
        places=_QUERY,
        table_key="lookup.async",
    ),
    Option(
        "output-mode",
        choice("ordered", "allow_unordered"),
        "ordered: completed requests count against capacity until all before them are out;"
        " allow_unordered: a slow request never stops new ones. Rows keep their order in both.",
        default="ordered",
        places=_EVERYWHERE,
        session_key="table.exec.async-lookup.output-mode",
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
    ),
    Option(
        "shuffle",
        BOOLEAN,
        "Partition the left rows by lookup key first, so that each key is asked by one task.",
        default=False,
        places=_QUERY,
    ),
    Option(
        "retry-predicate",
        NAMES,
        "What is asked again: lookup_miss, exception, both, or a registered predicate.",
        places=_QUERY,
    ),
    Option(
        "retry-strategy",
        choice("fixed_delay", "exponential_delay"),
        "How the wait before a retry is found.",
        places=_QUERY,
    ),
    Option("fixed-delay", DURATION, "The wait of fixed_delay.", places=_QUERY),
    Option(
        "max-attempts",
        integer(1),
        "Retries after the first try: 3 means up to 4 lookups of a key.",
        places=_QUERY,
    ),
    Option("initial-backoff", DURATION, "The first wait of exponential_delay.", places=_QUERY),
    Option(
        "max-backoff",
        DURATION,
        "The longest wait of exponential_delay.",
        default=60.0,
        places=_QUERY,
    ),
    Option(
        "backoff-multiplier",
        number(1),
        "Growth of exponential_delay from one wait to the next.",
        default=2.0,
        places=_QUERY,
    ),
    Option(
        "jitter-factor",
        number(0, 1),
        "Part of a wait of exponential_delay that is added or taken at random.",
        default=0.1,
        places=_QUERY,
    ),
    Option(
        "on-error",
        choice("fail", "null", "skip"),
        "When a lookup fails for good: fail the task, take it for a miss (null), or drop the row (skip).",
        default="fail",
        places=_QUERY,
    ),
    Option(
        "batch-size",
        integer(1, 1_000_000),
        "Keys in one request, at most; requests start smaller and grow while they are answered quickly.",
        default=8192,
        places=_QUERY,
    ),
    Option(
        "max-concurrency",
        integer(1),
        "Requests in flight in the whole cluster for one lookup join: each task that may run at once has its"
        " part of them, and `capacity` at most.",
        table_key="lookup.max-concurrency",
    ),
    Option(
        "rate-limit",
        number(0.001),
        "Requests per second in the whole cluster for one lookup join: each task that may run at once has its"
        " part of them.",
        table_key="lookup.rate-limit",
    ),
)

SESSION_OPTIONS: tuple[Option, ...] = (
    Option(
        "on-invalid-hint",
        choice("error", "warn"),
        "error: a wrong LOOKUP hint fails the statement; warn: it is logged and has no effect.",
        default="error",
        places=_SESSION,
        session_key="lookup.on-invalid-hint",
    ),
    Option(
        "transport",
        choice("auto", "arrow", "pandas"),
        "How keys and rows travel between Spark and Python; auto takes Arrow where PySpark has it.",
        default="auto",
        places=_SESSION,
        session_key="lookup.transport",
    ),
    Option(
        "rebalance-order-by",
        BOOLEAN,
        "Add a REBALANCE hint below a global ORDER BY, whose sampling would ask for each key twice.",
        default=True,
        places=_SESSION,
        session_key="lookup.rebalance-order-by",
    ),
    Option(
        "cluster-tasks",
        integer(1),
        "How many tasks run at once at the most, by which lookup.max-concurrency and lookup.rate-limit are"
        " split; by default what Spark's configuration says.",
        places=_SESSION,
        session_key="lookup.cluster-tasks",
    ),
)

_STREAM = frozenset({Place.INSERT, Place.SESSION})

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "checkpoint",
        TEXT,
        "Folder of the query's checkpoint, its own alone: what it has read and written, to go on from there."
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
    Option(
        "sync",
        BOOLEAN,
        "true: a streaming INSERT returns when its query has ended; false: when it has started.",
        default=False,
        places=_SESSION,
        session_key="table.dml-sync",
    ),
)

RESTART_OPTIONS: tuple[Option, ...] = (
    Option(
        "restart-strategy.type",
        spelled(
            none=("off", "disable"),
            fixed_delay=("fixeddelay",),
            exponential_delay=("exponentialdelay",),
            failure_rate=("failurerate",),
        ),
        "What happens when a streaming query fails. Without it: exponential-delay where the query has a"
        " checkpoint, else none.",
        places=_SESSION,
        session_aliases=("restart-strategy",),
    ),
    Option(
        "restart-strategy.fixed-delay.attempts",
        integer(0),
        "Restarts in all, of fixed-delay.",
        default=1,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.fixed-delay.delay",
        DURATION_OR_ZERO,
        "The wait before each restart, of fixed-delay.",
        default=1.0,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.initial-backoff",
        DURATION,
        "The first wait of exponential-delay.",
        default=1.0,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.max-backoff",
        DURATION,
        "The longest wait of exponential-delay.",
        default=60.0,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        number(1),
        "Growth of exponential-delay from one wait to the next; more than 1.",
        default=1.5,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        DURATION,
        "Time without a failure after which exponential-delay begins anew with its first wait.",
        default=3600.0,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.jitter-factor",
        number(0, 1),
        "Part of a wait of exponential-delay that is added or taken at random.",
        default=0.1,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        integer(1),
        "Restarts in a row, of exponential-delay; the default is without limit.",
        default=2**31 - 1,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        integer(1),
        "Failures within the interval that failure-rate bears; one more is final.",
        default=1,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.failure-rate.failure-rate-interval",
        DURATION,
        "The time over which failure-rate counts.",
        default=60.0,
        places=_SESSION,
    ),
    Option(
        "restart-strategy.failure-rate.delay",
        DURATION_OR_ZERO,
        "The wait before each restart, of failure-rate.",
        default=1.0,
        places=_SESSION,
    ),
    Option(
        "execution.failover-strategy",
        spelled(region=(), full=()),
        "What starts again after a failure: the query that failed (region), or all streaming queries of the"
        " session that have this set (full).",
        default="region",
        places=_SESSION,
        session_aliases=("jobmanager.execution.failover-strategy",),
    ),
)

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


def options_at(place: Place, options: Sequence[Option] = LOOKUP_OPTIONS) -> dict[str, Option]:
    """The options that may stand at ``place``, by the name they have there."""
    return {option.key_in(place): option for option in options if place in option.places}


def read_options(given: Mapping[str, str], options: Sequence[Option], *, owner: str) -> dict[str, Any]:
    """The typed value of each option of ``options``, defaults included; keys of others are left out.

    Raises:
        OptionError: all bad values and missing required options at once; ``owner`` says whose they are.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for option in options:
        key = option.key_in(Place.TABLE)
        if option.family:
            values[option.key], wrong = _read_family(given, option, owner)
            problems += wrong
            continue
        text = given.get(key)
        if text is None:
            if option.required:
                problems.append(Problem(f"{owner}: the option {key!r} is missing.", tip=option.meaning))
            values[option.key] = option.default
            continue
        try:
            values[option.key] = option.type.parse(text)
        except ValueError as error:
            problems.append(bad_value(option, key, text, error, owner=f"{owner}: "))
    if problems:
        raise OptionError(problems)
    return values


def from_session(option: Option, conf: Callable[[str], str | None]) -> Any:
    """The value that the session gives ``option``, or None.

    Raises:
        OptionError: it is one that the option cannot have.
    """
    if Place.SESSION not in option.places:
        return None
    for key in option.session_keys:
        text = conf(key)
        if text is not None:
            return parsed(option, key, text, owner="session: ")
    return None


def parsed(option: Option, key: str, text: str, *, owner: str) -> Any:
    """The typed value of ``text``, which stands under ``key``; an OptionError says whose it is."""
    try:
        return option.type.parse(text)
    except ValueError as error:
        raise OptionError(bad_value(option, key, text, error, owner=owner)) from None


def _read_family(
    given: Mapping[str, str], option: Option, owner: str
) -> tuple[dict[str, Any], list[Problem]]:
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key in filter(option.is_named, given):
        try:
            values[key[len(option.key) :]] = option.type.parse(given[key])
        except ValueError as error:
            problems.append(bad_value(option, key, given[key], error, owner=f"{owner}: "))
    return values, problems


def bad_value(option: Option, key: str, text: str, error: ValueError, *, owner: str = "") -> Problem:
    """The problem of a value that ``option`` cannot have; the value is shown unless it is secret."""
    shown = "the value given" if option.secret else repr(text)
    why = str(error)
    return Problem(f"{owner}{key!r} cannot be {shown}: {why}{'' if why.endswith(('.', '?')) else '.'}")
