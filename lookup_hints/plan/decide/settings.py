"""How a lookup join runs: the runner, and each option from hint, table, session or default, in that order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lookup_hints.errors import HintError, OptionError, Problem, QueryError, Span, nearest
from lookup_hints.hints.hint_comments import LookupHint
from lookup_hints.lookup_spec import (
    ChangedColumn,
    DailyReload,
    DeadLetters,
    FullCache,
    LookupSettings,
    PartialCache,
    PeriodicReload,
)
from lookup_hints.plan.decide.budgets import REQUESTS, budget_of, cluster_of, limits_of, notes_of
from lookup_hints.retry import ExponentialDelay, FixedDelay, RetryPolicy, RowPredicate
from lookup_hints.spi import AsyncLookup, Connector, SyncLookup
from lookup_hints.spi.changed_column_and_versions import changed_column_of, versions_of
from lookup_hints.spi.connector import why_not_read
from lookup_hints.spi.lookup_options import (
    DEAD_LETTER_KEYS,
    ERROR_LIMIT_KEYS,
    LOOKUP_OPTIONS,
    RETRY_KEYS,
    SESSION_OPTIONS,
    options_of_table,
)
from lookup_hints.spi.option_values import Conf, InForce, Place, in_force
from lookup_hints.spi.request_and_answer import LookupTable

_MISS, _EXCEPTION = "lookup_miss", "exception"
_DEAD_LETTER = "dead-letter"
_RELOAD_KEYS = {
    "periodic": ("full-cache.periodic-reload.interval", "full-cache.periodic-reload.schedule-mode"),
    "timed": ("full-cache.timed-reload.iso-time", "full-cache.timed-reload.interval-in-days"),
}
# Longest default time in seconds after which a missing key is looked up again.
_LONGEST_MISSING = 30.0
_STRATEGY_KEYS = {
    "fixed_delay": ("fixed-delay",),
    "exponential_delay": ("initial-backoff", "max-backoff", "backoff-multiplier", "jitter-factor"),
}


_OPTIONS_WITH_FIELD = tuple(option for option in LOOKUP_OPTIONS if option.field)

Unwritable = Callable[[str], str | None]
"""Why the driver cannot write to a folder; None if it can, or if the driver cannot check."""


@dataclass(frozen=True)
class Choice:
    """The settings of one lookup join, and what EXPLAIN says about them.

    Args:
        settings: the settings that the worker gets.
        shuffle: whether the left rows are partitioned by key first.
        runner_reason: why it is async or sync.
        sources: where each value that is not a default comes from, by option.
        notes: notes for the user.
    """

    settings: LookupSettings
    shuffle: bool
    runner_reason: str
    sources: Mapping[str, Place]
    notes: tuple[str, ...] = ()

    def source(self, *keys: str) -> str:
        """The places that give values to ``keys``, as EXPLAIN shows them: `` (hint)``, or nothing."""
        places = {place.value: None for key in keys if (place := self.sources.get(key))}
        return f" ({', '.join(places)})" if places else ""


@dataclass(frozen=True)
class _OptionsOfJoin:
    """The options in force for one join: value, and place in the text where the hint gives it."""

    values: Mapping[str, InForce]
    hint: LookupHint | None
    table: LookupTable

    def __getitem__(self, key: str) -> Any:
        return self.values[key].value

    def fields_of(self, settings: type) -> dict[str, Any]:
        """What options fill the fields of ``settings`` with; a field without a value keeps its default."""
        found = {}
        for option in _OPTIONS_WITH_FIELD:
            owner, field = option.field.split(".")
            if owner == settings.__name__ and self[option.key] is not None:
                found[field] = self[option.key]
        return found

    def own(self, keys: Iterable[str]) -> list[str]:
        """The subset of ``keys`` that are set for this join or its table."""
        return [key for key in keys if self.values[key].source in (Place.HINT, Place.TABLE)]

    def at(self, *keys: str) -> Span | None:
        """The place of the first of ``keys`` that the hint gives, else of the hint."""
        if self.hint is None:
            return None
        places = [self.hint.places[key] for key in keys if key in self.hint.places]
        return places[0] if places else self.hint.at

    def problem(self, message: str, *keys: str, tip: str = "") -> Problem:
        """A problem with options, placed in the hint if there is one; else it names the table."""
        owner = f"table {self.table.name}: " if self.hint is None else ""
        return Problem(f"{owner}{message}", self.at(*keys), tip)

    def error(self, *problems: Problem) -> QueryError:
        return OptionError(problems) if self.hint is None else HintError(problems)


def choose(
    hint: LookupHint | None,
    connector: Connector,
    conf: Conf,
    predicates: Mapping[str, RowPredicate],
    unwritable: Unwritable = lambda _: None,
    others: Iterable[Connector] = (),
) -> Choice:
    """The settings of a lookup join; ``others`` are the connectors of tables that may share its budget.

    Raises:
        QueryError: incomplete options of a retry or of dead letters, a folder that cannot be written, a bad
            value in the table or session, or budgets that contradict each other.
    """
    given = _gather_options(hint, connector.table, conf)
    asynchronous, reason = _choose_runner(given, connector)
    retry = _retry_policy(given, predicates)
    limit = connector.keys_per_request()
    name, cluster = connector.table.name, cluster_of(conf, session_option("cluster-tasks", conf))
    shared = limits_of(connector, others)
    limits = {key: limit.value for key, limit in shared.items()}
    limits |= {REQUESTS: given["max-requests"]} if given["max-requests"] is not None else {}
    budget = budget_of(limits, cluster, table=name, name=given["budget"] or "", on_open=given["on-open"])
    _check_effect(given)
    letters = _dead_letters(given, conf, unwritable)
    cache = None
    if given["cache"] == "partial":
        cache = replace(_partial_cache(given), changed=_changed_column(given))
    settings = LookupSettings(
        **given.fields_of(LookupSettings),
        asynchronous=asynchronous,
        capacity=min(given["capacity"], budget.concurrency or budget.task_concurrency or given["capacity"]),
        ordered=given["output-mode"] == "ordered",
        batch_size=min(given["batch-size"], limit or given["batch-size"]),
        on_error=given["on-error"] if letters is None else given["dead-letter.then"],
        retry=retry,
        budget=budget,
        cache=cache,
        whole=_full_cache(given, connector) if given["cache"] == "full" else None,
        log_keys=session_option("log-keys", conf),
        dead_letters=letters,
        max_errors=_error_limit(given, "max-errors"),
        max_error_ratio=_error_limit(given, "max-error-ratio"),
    )
    parts = notes_of(budget, cluster, shared, table=name)
    notes = (*_notes_on_retry(settings), *_limit_notes(given, limit), *_effect_notes(given), *parts)
    return Choice(settings, given["shuffle"], reason, _sources_of_values(given, settings), notes)


def session_option(key: str, conf: Conf) -> Any:
    """The value in force of one of ``SESSION_OPTIONS``."""
    return in_force(next(option for option in SESSION_OPTIONS if option.key == key), conf).value


def _gather_options(hint: LookupHint | None, table: LookupTable, conf: Conf) -> _OptionsOfJoin:
    given = {Place.HINT: {} if hint is None else hint.options, Place.TABLE: options_of_table(table)}
    return _OptionsOfJoin(
        {option.key: in_force(option, conf, given) for option in LOOKUP_OPTIONS}, hint, table
    )


def _sources_of_values(given: _OptionsOfJoin, settings: LookupSettings) -> dict[str, Place]:
    """Where values come from; not of those that the connector or a budget has lowered."""
    lowered = {"capacity": settings.capacity, "batch-size": settings.batch_size}
    sources = {
        key: each.source
        for key, each in given.values.items()
        if each.source is not None and lowered.get(key, each.value) == each.value
    }
    has_policy = given.hint is not None and given.hint.retry is not None
    return {**sources, "retry-strategy": Place.HINT} if has_policy else sources


def _choose_runner(given: _OptionsOfJoin, connector: Connector) -> tuple[bool, str]:
    """Async or sync, and why: the request is followed where the connector can (Flink's rule)."""
    requested = given["async"]
    can_sync, can_async = isinstance(connector, SyncLookup), isinstance(connector, AsyncLookup)
    name = connector.table.connector
    if can_sync and can_async:
        if requested is None:
            return True, f"connector {name!r} can do both, and async is preferred"
        return (
            requested,
            f"connector {name!r} can do both, and 'async'='{str(requested).lower()}' asks for it",
        )
    only = "async" if can_async else "sync"
    if requested is not None and requested != can_async:
        return can_async, (
            f"connector {name!r} can do {only} only; 'async'='{str(requested).lower()}' has no effect"
        )
    return can_async, f"connector {name!r} can do {only} only"


def _retry_policy(given: _OptionsOfJoin, predicates: Mapping[str, RowPredicate]) -> RetryPolicy:
    if given.hint is not None and given.hint.retry is not None:
        return given.hint.retry
    explicit = given.own(RETRY_KEYS)
    if not explicit:
        return RetryPolicy()
    problems = [
        *_missing_retry_options(given),
        *_misfitting_options(given),
        *_unknown_predicates(given, predicates),
    ]
    if problems:
        raise given.error(*sorted(problems, key=lambda problem: problem.at.start if problem.at else 0))
    names: tuple[str, ...] = given["retry-predicate"]
    strategy = FixedDelay if given["retry-strategy"] == "fixed_delay" else ExponentialDelay
    try:
        policy = RetryPolicy(strategy(given["max-attempts"], **given.fields_of(strategy)))
    except ValueError as error:
        raise given.error(given.problem(f"{error}.", *explicit)) from None
    for name in names:
        if name == _MISS:
            policy = policy.if_miss()
        elif name == _EXCEPTION:
            policy = policy.if_exception()
        else:
            policy = policy.if_result(predicates[name], name)
    return policy


def _missing_retry_options(given: _OptionsOfJoin) -> list[Problem]:
    """Retry is all or nothing, as in FLIP-234: a predicate, a strategy, its wait, and the attempts."""
    wait = {None: (), "fixed_delay": ("fixed-delay",), "exponential_delay": ("initial-backoff",)}
    required = (
        "retry-predicate",
        "retry-strategy",
        *wait[given["retry-strategy"]],
        "max-attempts",
    )
    missing = [key for key in required if given[key] is None]
    if not missing:
        return []
    listed = ", ".join(repr(key) for key in missing)
    return [
        given.problem(
            f"A retry also needs {listed}.",
            *RETRY_KEYS,
            tip="For example 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay',"
            " 'fixed-delay'='10s', 'max-attempts'='3'.",
        )
    ]


def _misfitting_options(given: _OptionsOfJoin) -> list[Problem]:
    strategy = given["retry-strategy"]
    return [
        given.problem(f"{key!r} belongs to the strategy {other!r}, not to {strategy!r}.", key)
        for other, keys in _STRATEGY_KEYS.items()
        if strategy not in (None, other)
        for key in given.own(keys)
    ]


def _unknown_predicates(given: _OptionsOfJoin, predicates: Mapping[str, RowPredicate]) -> list[Problem]:
    known = [_MISS, _EXCEPTION, *predicates]
    return [
        Problem(
            f"No retry predicate is called {name!r}.",
            given.at("retry-predicate"),
            f"{nearest(name, known)} Your own: lookup_hints.register_retry_predicate(name, function).",
        )
        for name in given["retry-predicate"] or ()
        if name not in known
    ]


def _dead_letters(given: _OptionsOfJoin, conf: Conf, unwritable: Unwritable) -> DeadLetters | None:
    if given["on-error"] != _DEAD_LETTER:
        return None
    folder, key = given["dead-letter.path"], "dead-letter.path"
    if folder is None:
        raise given.error(
            given.problem(
                "'on-error' = 'dead-letter' needs a folder to write to.",
                "on-error",
                tip="Give 'dead-letter.path' = '/...' in the hint, 'lookup.dead-letter.path' in WITH, or SET"
                " lookup.dead-letter.path = ....",
            )
        )
    given.table.check_folder(folder, option=key)
    why = unwritable(folder)
    if why is not None:
        message = f"Dead letters cannot be written to {folder}: {why.rstrip('.')}."
        raise given.error(given.problem(message, key, "on-error"))
    return DeadLetters(
        **given.fields_of(DeadLetters),
        application=conf("spark.app.id") or "",
        copies=(conf("spark.speculation") or "").lower() == "true",
    )


def _error_limit(given: _OptionsOfJoin, key: str) -> Any:
    """How much may fail; None where nothing may anyway."""
    return None if given["on-error"] == "fail" else given[key]


def _check_effect(given: _OptionsOfJoin) -> None:
    """Refuse options about failures that the hint gives in vain."""
    vain = [key for key in _options_without_effect(given) if given.values[key].source is Place.HINT]
    if vain:
        wanted = _DEAD_LETTER if vain[0] in DEAD_LETTER_KEYS else "null', 'skip' or 'dead-letter"
        source = given.values["on-error"].source
        place = f" ({source.value})" if source else ", its default"
        message = f"{vain[0]!r} has no effect where 'on-error' is '{given['on-error']}'{place}."
        raise HintError(Problem(message, given.at(vain[0]), f"Give 'on-error' = '{wanted}'."))


def _effect_notes(given: _OptionsOfJoin) -> list[str]:
    """Notes on failure options of a table without effect here: they may be meant for other statements."""
    vain = [key for key in _options_without_effect(given) if given.values[key].source is Place.TABLE]
    return [f"'lookup.{key}' has no effect: 'on-error' is '{given['on-error']}'" for key in vain]


def cache_of(table: LookupTable, conf: Conf) -> PartialCache:
    """How answers of ``table`` are remembered where that is wanted."""
    return _partial_cache(_gather_options(None, table, conf))


def whole_of(connector: Connector, conf: Conf) -> FullCache | None:
    """How the table of ``connector`` is kept whole where no hint says otherwise; None where it is not."""
    given = _gather_options(None, connector.table, conf)
    return _full_cache(given, connector) if given["cache"] == "full" else None


def _changed_column(given: _OptionsOfJoin) -> ChangedColumn | None:
    column = changed_column_of(given.table)
    return None if column is None else ChangedColumn(column, given["cache.check-interval"])


def _partial_cache(given: _OptionsOfJoin) -> PartialCache:
    ttl, missing_ttl = given["partial-cache.expire-after-write"], given["partial-cache.missing-ttl"]
    if missing_ttl is None:
        missing_ttl = min(ttl / 10, _LONGEST_MISSING)
    versions = versions_of(given.table)
    return PartialCache(
        **given.fields_of(PartialCache),
        missing_ttl=missing_ttl if given["partial-cache.cache-missing-key"] else None,
        versions_by=None if versions is None else versions.changes_by,
    )


def _full_cache(given: _OptionsOfJoin, connector: Connector) -> FullCache:
    """How the table is kept whole.

    Raises:
        QueryError: it cannot be read, or the options say not when to read it again.
    """
    why = _reason_not_whole(given, connector)
    if why:
        message = f"'cache' = 'full' is not possible here: {why}."
        tip = "Write 'partial': it keeps the answers to keys that were asked."
        raise given.error(given.problem(message, "cache", tip=tip))
    strategy = given["full-cache.reload-strategy"]
    for key in given.own(_RELOAD_KEYS["timed" if strategy == "periodic" else "periodic"]):
        message = f"'lookup.{key}' has no effect where 'lookup.full-cache.reload-strategy' is '{strategy}'."
        raise given.error(given.problem(message, "cache", tip="Leave it out, or write the other strategy."))
    return FullCache(
        **given.fields_of(FullCache),
        reload=_reload_schedule(given),
        keeps_old=given["full-cache.on-reload-failure"] == "keep",
        changed=_changed_column(given),
    )


def _reason_not_whole(given: _OptionsOfJoin, connector: Connector) -> str:
    if why := why_not_read(connector):
        return f"{why}, so the table cannot be read"
    if not given["scan"]:
        return "'scan' = 'false' forbids to read the table"
    is_guarded = given["on-scan"] == "error"
    return "'lookup.on-scan' = 'error' forbids to read the table" if is_guarded else ""


def _reload_schedule(given: _OptionsOfJoin) -> PeriodicReload | DailyReload:
    strategy = given["full-cache.reload-strategy"]
    needed, example = {
        "periodic": ("full-cache.periodic-reload.interval", "10 min"),
        "timed": ("full-cache.timed-reload.iso-time", "03:00"),
    }[strategy]
    if given[needed] is None:
        message = f"'cache' = 'full' with the reload strategy '{strategy}' needs 'lookup.{needed}'."
        tip = f"For example 'lookup.{needed}' = '{example}' in WITH."
        raise given.error(given.problem(message, "cache", tip=tip))
    if strategy == "timed":
        return DailyReload(given[needed], given["full-cache.timed-reload.interval-in-days"])
    is_rate = given["full-cache.periodic-reload.schedule-mode"] == "fixed_rate"
    return PeriodicReload(given[needed], fixed_rate=is_rate)


def _options_without_effect(given: _OptionsOfJoin) -> Iterator[str]:
    requested = given["on-error"]
    yield from () if requested == _DEAD_LETTER else DEAD_LETTER_KEYS
    yield from ERROR_LIMIT_KEYS if requested == "fail" else ()


def _limit_notes(given: _OptionsOfJoin, limit: int | None) -> list[str]:
    requested = given["batch-size"]
    if limit is None or requested <= limit or not given.own(["batch-size"]):
        return []
    return [f"'batch-size'='{requested}' has no effect: a request of this table holds {limit} at most"]


def _notes_on_retry(settings: LookupSettings) -> list[str]:
    waits = settings.retry.longest_wait()
    if waits < settings.timeout:
        return []
    return [
        f"the waits of all retries ({waits:g} s) do not fit into the timeout ({settings.timeout:g} s):"
        " a key that stays away fails the lookup before its last attempt"
    ]
