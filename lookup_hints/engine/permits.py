"""Permits for requests: the limits, budgets and outages of the origin that a task must respect."""

from __future__ import annotations

import math
import os
import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TypeAlias, TypeVar

from lookup_hints.errors import ConnectorError, LookupTimeout
from lookup_hints.limits.origin_limiter import OriginLimiter, OriginPermits
from lookup_hints.limits.shared_limits import LimitStores, Rules
from lookup_hints.lookup_spec import LookupSpec
from lookup_hints.metrics.task_recorder import TIMER_TOLERANCE, UNOBSERVED, RequestObserver
from lookup_hints.spi import (
    AcquiresPermits,
    Answer,
    Connector,
    Ending,
    LookupRequest,
    Permits,
    RowRequest,
    permits,
)
from lookup_hints.spi.request_context import FREE

Request = TypeVar("Request", LookupRequest, RowRequest)
_T = TypeVar("_T")


class _NoLimits:
    """Where nothing bounds the requests: limiter and permits in one."""

    room: int | None = None
    limit = outages = 0
    outage = ""
    gave_up = False
    waited = waited_first = 0.0
    try_acquire, acquire = FREE.try_acquire, FREE.acquire
    acquire_blocking, release = FREE.acquire_blocking, FREE.release
    may_send = FREE.may_send

    def permits(self) -> _NoLimits:
        return self

    def begin_lookup(self) -> None:
        pass

    def is_crowded(self, asked: int) -> bool:
        return False

    def retry_delay(self, requests: int) -> float:
        return 0.0

    def close(self) -> None:
        pass


UNLIMITED = _NoLimits()
"""Lets each request pass at once."""

RequestPermits: TypeAlias = OriginPermits | _NoLimits
RequestLimiter: TypeAlias = OriginLimiter | _NoLimits

_STATEMENTS = "the requests of statements"


# Limits belong to an origin (host, port, user), as servers count, and not to a join: two joins of one
# statement used to get twice what the API allows. (docs/decisions/0140)
def limiter_of(
    spec: LookupSpec,
    stores: LimitStores,
    folder: Path | None,
    *,
    statement: int = 0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RequestLimiter:
    """The limiter for the requests of ``spec``, whose connector is the one that is open here."""
    budget, origin = spec.settings.budget, spec.connector.origin()
    is_bounded = any((budget.concurrency, budget.rate, budget.task_concurrency, budget.task_rate))
    if not origin and not is_bounded and budget.max_requests is None:
        return UNLIMITED
    # Executors of unknown number share nothing: each task keeps to its own part.
    folder = None if budget.executors is None else folder
    store = stores.of(folder, budget.name or origin or f"table {spec.table.name}")
    concurrency, rate = budget.concurrency, budget.rate
    if not store.is_shared:
        concurrency, rate = budget.without_file(os.cpu_count() or 1)
    rules = Rules(
        source=f"table {spec.table.name}: {spec.connector.place() or 'the source'}",
        capacity=spec.settings.capacity,
        concurrency=concurrency,
        rate=rate,
        adapts=bool(origin),
        timeout=spec.settings.timeout,
        waits_on_open=budget.on_open == "wait",
        max_requests=budget.max_requests,
        statement=statement,
    )
    spent = None if budget.max_requests is None else stores.of(folder, _STATEMENTS)
    return OriginLimiter(store, rules, spent=spent, process=os.getpid(), clock=clock, sleep=sleep)


class BlockingRequests:
    """The requests of one task whose calls block, each on the thread that calls the connector.

    A request takes its permit there, just before its call, and keeps it until that has returned: nobody can
    end a call, and it loads the source also when its task has given it up. (docs/decisions/0306)
    """

    def __init__(
        self,
        lookup: Callable[[LookupRequest], Answer],
        connector: Connector,
        limiter: RequestLimiter,
        clock: Callable[[], float],
        observer: RequestObserver = UNOBSERVED,
    ) -> None:
        self._lookup, self._connector, self._limiter = lookup, connector, limiter
        self._clock, self._observer = clock, observer
        self._takes_permits = _takes_permits(connector, limiter)
        self._lock = Lock()
        """Who has it may use the limiter, as long as no call looks for its permit."""
        self._sent: _SentRequest | None = None
        self._is_calling = self._is_closed = False

    def send(self, request: LookupRequest, late_at: Callable[[], float]) -> Answer:
        """The answer to ``request``, once it has its permit.

        Args:
            request: what is asked.
            late_at: when its time is up, which is later by what it has waited for its permit.

        Raises:
            LookupTimeout: no time is left for it, so it is not sent.
        """
        with self._lock:
            self._is_calling = True
        try:
            own = permits() if self._takes_permits else None
            if own is not None and not own.try_acquire():
                own.acquire_blocking(late_at())
            # Nothing else ends a lookup that has waited for the call before it. Where it has not, messages
            # tell the time that users have set.
            started = self._clock()
            left = late_at() - started
            if left < TIMER_TOLERANCE:
                if own is not None:
                    own.release(started, "unsent")
                raise LookupTimeout("no time was left to send the request")
            sent = _SentRequest(request, own, self._connector, self._observer, self._clock, left)
            if left < 0.99 * (request.timeout or math.inf):
                request = replace(request, timeout=left)
            with self._lock:
                self._sent = sent
            try:
                answer = self._lookup(request)
            except BaseException as error:
                self._end_request(sent, error)
                raise
            self._end_request(sent, None)
            return answer
        finally:
            with self._lock:
                self._is_calling = False
                if self._is_closed:
                    self._limiter.close()

    def _end_request(self, sent: _SentRequest, error: BaseException | None) -> None:
        with self._lock:
            self._sent = None
            sent.end(error)

    def give_up(self) -> None:
        """Tell that the call that goes on is late; called by who has waited for it."""
        with self._lock:
            if self._sent is not None:
                self._sent.give_up()

    def close(self) -> None:
        """Give all permits back, that of a call that goes on when it is over."""
        with self._lock:
            self._is_closed = True
            if not self._is_calling:
                self._limiter.close()


def with_permits_async(
    lookup: Callable[[Request], Awaitable[_T]],
    connector: Connector,
    limiter: RequestLimiter,
    clock: Callable[[], float],
    observer: RequestObserver = UNOBSERVED,
) -> Callable[[Request], Awaitable[_T]]:
    """``lookup`` on an event loop, wrapped so that each call takes a permit and is reported to ``observer``.

    Some connectors take their permits themselves.
    """
    takes_permits = _takes_permits(connector, limiter)
    if not takes_permits and observer is UNOBSERVED:
        return lookup

    async def sending(request: Request) -> _T:
        own = permits() if takes_permits else None
        if own is not None and not own.try_acquire():
            await own.acquire(None if request.timeout is None else clock() + request.timeout)
        with _SentRequest(request, own, connector, observer, clock):
            return await lookup(request)

    return sending


# A connector that sends several requests in a lookup takes a permit for each: pages, redirects and repeated
# requests count, too. (docs/decisions/0141)
def _takes_permits(connector: Connector, limiter: RequestLimiter) -> bool:
    return limiter is not UNLIMITED and not isinstance(connector, AcquiresPermits)


class _SentRequest:
    """A block in which one request is sent; its end releases the permit and tells the observer."""

    def __init__(
        self,
        request: LookupRequest | RowRequest,
        own: Permits | None,
        connector: Connector,
        observer: RequestObserver,
        clock: Callable[[], float],
        left: float = math.inf,
    ) -> None:
        self._own, self._connector, self._observer, self._clock = own, connector, observer, clock
        self._timeout = math.inf if request.timeout is None else request.timeout
        self._left = left
        """Seconds of its timeout that are left when it is sent."""
        self._started = clock()
        self._begun = observer.begin(request.keys.num_rows if isinstance(request, LookupRequest) else 1)
        self._is_given_up = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """It was answered, or failed with ``error``."""
        if self._is_given_up:
            if self._own is not None:
                self._own.release(self._started, "unknown")
            return
        seconds = self._clock() - self._started
        is_late = isinstance(error, CancelledError) and self._had_its_time(seconds)
        self._observer.end(
            self._begun, seconds, LookupTimeout if is_late else None if error is None else type(error)
        )
        if self._own is None:
            return
        ending: Ending = "lost" if is_late else "unknown"
        if error is None:
            ending = "served"
        elif isinstance(error, Exception) and not self._was_cut_short(error, seconds):
            ending = self._connector.ending(error)
        pause = error.retry_after if isinstance(error, ConnectorError) else None
        self._own.release(self._started, ending, pause)

    def give_up(self) -> None:
        """It is late, which is told once, whoever waits for it; it keeps its permit until its end."""
        if self._is_given_up:
            return
        self._is_given_up = True
        seconds = self._clock() - self._started
        self._observer.end(self._begun, seconds, LookupTimeout)
        if self._own is not None and self._had_its_time(seconds):
            self._own.release(self._started, "lost", count=0)

    # That the call before it has left it too little time says nothing about the source.
    def _had_its_time(self, seconds: float) -> bool:
        return seconds + TIMER_TOLERANCE >= self._timeout

    def _was_cut_short(self, error: Exception, seconds: float) -> bool:
        """Whether the connector has kept to what was left of the time of the request."""
        is_late = isinstance(error, LookupTimeout) and seconds + TIMER_TOLERANCE >= self._left
        return is_late and not self._had_its_time(seconds)
