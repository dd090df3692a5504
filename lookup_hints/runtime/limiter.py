"""What a task must pass before it asks its source: the limits, budgets and outages of the origin."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from lookup_hints.errors import ConnectorError
from lookup_hints.runtime.observing import TIMER_TOLERANCE
from lookup_hints.spi import Answer, Connector, Ending, LookupRequest, RowRequest, TakesTurns, Turns, turns
from lookup_hints.spi.turns import FREE

Request = TypeVar("Request", LookupRequest, RowRequest)
_T = TypeVar("_T")


class RequestPermits(Turns, Protocol):
    """The turns of one lookup, or of several one after the other."""

    @property
    def gave_up(self) -> bool:
        """Whether the last wait for a turn was cancelled."""

    @property
    def waited(self) -> float:
        """Seconds that it has waited for turns so far."""


class RequestLimiter(Protocol):
    """The limits of an origin, as one lookup in one task meets them."""

    @property
    def room(self) -> int | None:
        """How many requests may be asked together: no more than have their turn soon; None: any number."""

    def is_crowded(self, asked: int) -> bool:
        """Whether enough of the requests ``asked`` have no turn yet: no more need be asked."""

    @property
    def limit(self) -> int:
        """How many requests the executor may have in flight as far as the source bears it; 0: any number."""

    @property
    def outages(self) -> int:
        """How often the circuit breaker opened by a request of this lookup."""

    @property
    def outage(self) -> str:
        """What is said of an origin that does not answer; empty while it does."""

    def permits(self) -> RequestPermits:
        """Turns for a lookup."""

    def retry_delay(self, requests: int) -> float:
        """Take this many retries of failures: the seconds after which they may be sent."""

    def close(self) -> None:
        """The task is over."""


class _FreePermits:
    gave_up = False
    waited = 0.0
    take_at_once, take = FREE.take_at_once, FREE.take
    wait_for_turn, over = FREE.wait_for_turn, FREE.over


class _NoLimits:
    """Where nothing bounds the requests."""

    room = None
    limit = outages = 0
    outage = ""
    _permits = _FreePermits()

    def permits(self) -> RequestPermits:
        return self._permits

    def is_crowded(self, asked: int) -> bool:
        return False

    def retry_delay(self, requests: int) -> float:
        return 0.0

    def close(self) -> None:
        pass


UNLIMITED: RequestLimiter = _NoLimits()
"""Lets each request pass at once."""


def with_permits(
    lookup: Callable[[LookupRequest], Answer],
    connector: Connector,
    limiter: RequestLimiter,
    clock: Callable[[], float],
) -> Callable[[LookupRequest], Answer]:
    """``lookup``, each call of which takes a turn; not where the connector does that itself."""
    if limiter is UNLIMITED or isinstance(connector, TakesTurns):
        return lookup

    def taking_turns(request: LookupRequest) -> Answer:
        own = turns()
        if not own.take_at_once():
            deadline = None if request.timeout is None else clock() + request.timeout
            own.wait_for_turn(deadline)
            if deadline is not None:  # nothing else ends a lookup that has the time of its turn as well
                request = replace(request, timeout=max(TIMER_TOLERANCE, deadline - clock()))
        with _Permit(own, connector, request.timeout, clock):
            return lookup(request)

    return taking_turns


def with_permits_async(
    lookup: Callable[[Request], Awaitable[_T]],
    connector: Connector,
    limiter: RequestLimiter,
    clock: Callable[[], float],
) -> Callable[[Request], Awaitable[_T]]:
    """The same of a lookup on an event loop."""
    if limiter is UNLIMITED or isinstance(connector, TakesTurns):
        return lookup

    async def taking_turns(request: Request) -> _T:
        own = turns()
        if not own.take_at_once():
            await own.take(None if request.timeout is None else clock() + request.timeout)
        with _Permit(own, connector, request.timeout, clock):
            return await lookup(request)

    return taking_turns


class _Permit:
    """A block in which a turn is used for one lookup, and then is over."""

    def __init__(
        self, own: Turns, connector: Connector, timeout: float | None, clock: Callable[[], float]
    ) -> None:
        self._own, self._connector, self._timeout, self._clock = own, connector, timeout, clock
        self._started = clock()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        pause = error.retry_after if isinstance(error, ConnectorError) else None
        self._own.over(self._started, self._ending(error), pause)

    def _ending(self, error: BaseException | None) -> Ending:
        if error is None:
            return "served"
        if isinstance(error, CancelledError):
            is_late = (
                self._timeout is not None and self._clock() - self._started + TIMER_TOLERANCE >= self._timeout
            )
            return "lost" if is_late else "unknown"
        return self._connector.ending(error) if isinstance(error, Exception) else "unknown"
