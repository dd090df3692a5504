"""What must hold of single requests: when a key is asked again, when the cache answers, how old its rows may be."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from lookup_hints.errors import AnswerTooLarge, ConnectorError
from lookup_hints.limits import circuit_breaker
from lookup_hints.limits.circuit_breaker import _OPEN_SECONDS, _PROBE_SECONDS, PROBES
from lookup_hints.limits.origin_limiter import OriginLimiter
from lookup_hints.lookup_spec import PeriodicReload
from tests.simulation.source import Ask
from tests.simulation.world import Broken

if TYPE_CHECKING:
    from tests.simulation.jobs import Attempt, Job

_JITTER = 0.1
"""The cache takes up to this part off the life of an answer."""

_TOLERANCE = 1e-6
"""Seconds that sums of times may be off."""

_SECONDS_AT_ONCE = 0.001
"""A task takes less than so many seconds from its beginning to its first request, where it waits for nothing."""

_SECONDS_TO_PUBLISH = 0.5
"""After so long all see a table that was read, or how a request ended."""

_SECONDS_TO_NOTICE = 1.0
"""After so long others have the permits of a process that was killed."""

_LONGEST_COOLING = 10.0
"""A refused request counts as under way for less than so many seconds."""


def check_delays(job: Job) -> None:
    """A key is asked again when it may be, and not once it is answered.

    Only keys of a single row are looked at: equal ones of two windows are asked apart.

    Raises:
        Broken: it was not so.
    """
    for attempt in job.attempts:
        rows = Counter(attempt.keys)
        asks = job.asks_of(attempt)
        for key in (key for key, times in rows.items() if key is not None and times == 1):
            for before, after in pairwise([each for each in asks if key in each.keys]):
                least = _least_delay(job, before, key)
                if after.at < before.until + least - _TOLERANCE:
                    raise Broken(
                        f"run {attempt.context.number}: {key} was asked again {after.at - before.until:.6f} s"
                        f" after its answer {before.outcomes.get(key)} ({before.error!r}), and at least {least:g} s"
                        " must lie between"
                    )


def _least_delay(job: Job, ask: Ask, key: int) -> float:
    """Seconds after the end of ``ask`` before which ``key`` may not be asked again."""
    if not is_heard(job, ask) or isinstance(ask.error, AnswerTooLarge):
        return -inf
    if ask.outcomes.get(key):
        return inf
    strategy = job.spec.settings.retry.strategy
    least = 0.0 if strategy is None else strategy.backoff(1) * (1 - strategy.jitter)
    told = ask.error.retry_after if isinstance(ask.error, ConnectorError) else None
    return max(least, told or 0.0)


def is_heard(job: Job, ask: Ask) -> bool:
    """Whether the answer, or failure, of ``ask`` came before its time was up, as its task saw it."""
    if job.world.stalls or ask.is_cancelled:
        return False
    return ask.timeout is None or ask.until + _TOLERANCE < ask.at + ask.timeout


def remembered(job: Job, attempt: Attempt, key: int | None) -> Ask | None:
    """The last answer to ``key`` that the executor's cache surely had when ``attempt`` began; None without one."""
    cache = job.spec.settings.cache
    if cache is None or cache.max_rows or cache.max_bytes or job.disk.failing:
        return None  # rows may go
    over = [each for each in job.attempts if (each.is_done or each.error is not None) and not each.is_cut]
    ended = {each.thread: each.ended for each in over}
    asks = [each for each in job.source.asked if key in each.keys and each.at < attempt.started]
    # What a task has learned it may write when it ends, as the newest of all; so may who asks beside the tasks.
    if not asks or any(ended.get(each.thread, inf) >= attempt.started for each in asks):
        return None
    last = max(asks, key=lambda each: each.at)
    is_alone = all(ended[each.thread] < last.at for each in asks if each.thread is not last.thread)
    answered = [each for each in asks if each.thread is last.thread]
    is_done = any(
        each.is_done for each in over if each.thread is last.thread
    )  # one that fails may drop an answer
    found = last.outcomes.get(key)
    is_final = bool(found) or (found is not None and not job.spec.settings.retry.on_miss)
    is_known = is_done and is_final and is_heard(job, last)
    is_in_order = all(each.until < last.at for each in answered if each is not last)
    is_lasting = last.at > job.reset_at
    return last if is_alone and is_known and is_in_order and is_lasting else None


def check_cache_is_used(job: Job) -> None:
    """No task does without its cache where nothing is wrong with the disk, or with the source that is read.

    Raises:
        Broken: one did.
    """
    has_reason = job.disk.failing or job.is_machine_reset or job.source.failures
    if job.world.cache_warnings and not has_reason:
        raise Broken(f"the cache is not used: {job.world.cache_warnings}")


def check_cache_answers(job: Job) -> None:
    """No key is asked for whose answer is cached and young.

    Raises:
        Broken: one was.
    """
    settings = job.spec.settings
    cache = settings.cache
    if cache is None or cache.expire_after_access is not None or settings.retry.on_rows is not None:
        return
    misses = 0.0 if settings.retry.on_miss else cache.missing_ttl or 0.0
    for attempt in job.attempts:
        for ask in job.asks_of(attempt):
            for key in ask.keys:
                known = remembered(job, attempt, key)
                if known is None or known.at <= _heard_at(job, ask.at, key, known):
                    continue
                longest = cache.expire_after_write if known.outcomes[key] else misses
                if ask.at - known.at < longest * (1 - _JITTER):
                    raise Broken(
                        f"run {attempt.context.number}: {key} was asked, and what was found"
                        f" {ask.at - known.at:.6f} s before is cached for {longest:g} s"
                    )


def _heard_at(job: Job, at: float, key: int | None, known: Ask) -> float:
    """Until when requests for ``key`` may count as sent before the last invalidation that was heard of by ``at``.

    ``known`` is a request that was sent later.
    """
    # A task hears of it from each that has begun by then, as they share the notes.
    begun = [each for each in job.attempts if each.started <= at]
    last = max((each.invalidated.get(key, -inf) for each in begun), default=-inf)
    # What that task asks at once has the same time.
    told = min((each.started for each in begun if last in each.invalidated.values()), default=last)
    heard = told + _SECONDS_AT_ONCE
    if not job.is_machine_reset or not job.spec.settings.invalidations:
        return heard
    # The note may be lost or damaged. A task writes another one before it asks, and all others keep to that.
    return max(heard, min(each.at for each in job.source.asked if each.thread is known.thread))


def check_ages(job: Job) -> None:
    """No answer that is too old comes out of the cache, whether its rows are still the same or not.

    Raises:
        Broken: one did.
    """
    cache = job.spec.settings.cache
    if cache is None:
        return
    stale = max(cache.stale_if_error, cache.stale_while_revalidate)
    for attempt in job.attempts:
        asked = {key for each in job.source.asked if each.at >= attempt.started for key in each.keys}
        for key, read, row in zip(attempt.keys, attempt.read, attempt.rows, strict=False):
            # A key that was asked, or has no row, may have failed.
            known = remembered(job, attempt, key) if row and key not in asked else None
            if known is not None:
                longest = cache.expire_after_write + stale
                if read - known.at > longest + _TOLERANCE:
                    raise Broken(
                        f"run {attempt.context.number}: {key} was not asked, and what was found"
                        f" {read - known.at:.6f} s before may be used for {longest:g} s"
                    )


def check_permits_in_use(job: Job) -> None:
    """When all is over, no task counts a request as under way.

    Raises:
        Broken: one does.
    """
    for worker in job.workers:
        for limiter in () if worker.is_dead else worker.limiters:
            if isinstance(limiter, OriginLimiter):
                limiter._permits.warm(job.world.now + _LONGEST_COOLING)
                if limiter._permits.in_use:
                    raise Broken(
                        f"a task of process {worker.number} counts {limiter._permits.in_use} requests as under way,"
                        " and all are over"
                    )


def check_breaker(job: Job) -> None:
    """The breaker opens when enough requests were lost, and lets few through while it is open.

    Raises:
        Broken: it is not so.
    """
    if job.disk.failing or job.is_machine_reset:
        return  # each process may have limits of its own
    asked, fewest = job.source.asked, circuit_breaker._FEWEST
    lost = [_told_at(each) for each in asked if isinstance(each.error, OSError) or _may_be_late(job, each)]
    for before, opened in pairwise([-inf, *sorted(job.source.outages)]):
        since = before + _OPEN_SECONDS - _SECONDS_TO_PUBLISH
        ends = sum(since < _told_at(each) <= opened + _TOLERANCE for each in asked)
        losses = sum(since < each <= opened + _TOLERANCE for each in lost)
        if ends < fewest or 2 * losses < fewest:
            raise Broken(
                f"the breaker opened at {opened - 10_000:.6f}, where {losses} of {ends} requests were lost since it"
                f" closed, and half of {fewest} are needed"
            )
    if job.world.stalls:
        return  # a permit that was given may be used late
    probes: dict[tuple[float, float], list[float]] = defaultdict(list)
    for each in asked:
        if each.probes is not None:
            probes[each.probes].append(each.at)
    for (began, _), times in probes.items():
        for first in times:
            within = sum(first <= each < first + _PROBE_SECONDS - 0.01 for each in times)
            if within > PROBES:
                raise Broken(
                    f"{within} requests within {_PROBE_SECONDS:g} s probe a source that is down since"
                    f" {began - 10_000:.6f}, and there may be {PROBES}"
                )


def _told_at(ask: Ask) -> float:
    """When its task took ``ask`` for over, which may go on."""
    return min(ask.until, ask.at + (inf if ask.timeout is None else ask.timeout))


def _is_late(ask: Ask) -> bool:
    return ask.timeout is not None and ask.until >= ask.at + ask.timeout - 0.01


def _may_be_late(job: Job, ask: Ask) -> bool:
    """Whether its task may have taken ``ask`` for late: its time may run before the source hears of it."""
    return _is_late(ask) or (job.world.stalls and ask.is_cancelled)


def is_in_time(ask: Ask) -> bool:
    """Whether ``ask`` was answered, or failed, before its time was up; so was one whose process was killed."""
    return not ask.is_cancelled and not _is_late(ask)


def check_reloads(job: Job) -> None:
    """A table that is kept whole is read again when a lookup finds that this is due.

    Raises:
        Broken: it was not.
    """
    whole = job.spec.settings.whole
    if whole is None or not isinstance(whole.reload, PeriodicReload) or not is_undisturbed(job):
        return
    for attempt in job.attempts:
        before = newest_read(job, attempt)
        looked_up = attempt.keys[: len(attempt.rows)] if attempt.is_cut else attempt.keys
        if before is None or not attempt.is_done or not any(key is not None for key in looked_up):
            continue
        began, ended = before
        due = (began if whole.reload.fixed_rate else ended) + whole.reload.interval + _SECONDS_TO_PUBLISH
        if attempt.started > due and not any(
            began < at <= attempt.ended + _SECONDS_TO_PUBLISH for at, _ in job.source.reads
        ):
            raise Broken(
                f"run {attempt.context.number} found a table that was read until {ended - 10_000:.6f}, and at"
                f" {attempt.started - 10_000:.6f} nobody has read it again after {whole.reload.interval:g} s"
            )


def is_undisturbed(job: Job) -> bool:
    """Whether neither disk nor source has failed, and no process was killed."""
    is_well = not (job.disk.failing or job.disk.busy or job.is_machine_reset or job.has_strange_files)
    return (
        is_well and not job.source.failures and not any(each.is_dead for each in job.world.processes.values())
    )


def newest_read(job: Job, attempt: Attempt) -> tuple[float, float] | None:
    """From when to when the table was read that the executor surely had when ``attempt`` began."""
    reads = [each for each in job.source.reads if each[1] + _SECONDS_TO_PUBLISH < attempt.started]
    return max(reads, default=None)


def check_waits(job: Job) -> None:
    """No task waits for a permit that nobody holds who lives.

    Only the first request of a task is looked at, where nothing but the number of requests is bounded. Blocking
    calls of a process wait for each other.

    Raises:
        Broken: one did.
    """
    settings, asked = job.spec.settings, job.source.asked
    most = settings.budget.concurrency
    if most is None or not settings.asynchronous or settings.whole or settings.switch or settings.budget.rate:
        return
    if job.world.stalls or job.source.failures or not all(map(is_in_time, asked)):
        return
    if job.disk.failing or job.is_machine_reset:
        return
    for attempt in job.attempts:
        first = min((each.at for each in job.asks_of(attempt)), default=inf)
        ready = max((each for each in attempt.read if each <= first), default=inf)
        ends = sorted(
            (
                end
                for each in asked
                if (end := min(each.until, each.process.died_at)) <= first and each.at < first
            ),
            reverse=True,
        )
        # Up to the end before which as many as may be were under way.
        for end in ends:
            under_way = sum(each.at < end <= min(each.until, each.process.died_at) for each in asked)
            if under_way >= most:
                ready = max(ready, end)
                break
        if first - ready > _SECONDS_TO_NOTICE and first < inf:
            raise Broken(
                f"run {attempt.context.number} waited for {first - ready:.3f} s, and fewer than {most} requests were"
                " under way"
            )
