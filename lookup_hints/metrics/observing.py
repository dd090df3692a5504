"""Who is told of single requests while a task runs, to measure and trace them."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, Protocol, TypeVar

from lookup_hints.errors import LookupTimeout
from lookup_hints.metrics.counts import LookupMetrics
from lookup_hints.spi.model import LookupRequest, RowRequest
from lookup_hints.spi.reporting import UNTOLD, HttpExchange

_Request = TypeVar("_Request", LookupRequest, RowRequest)
_T = TypeVar("_T")

TIMER_TOLERANCE = 1e-3
"""Seconds: a loop's timer may fire this much early, for the resolution of its clock."""


class RequestObserver(Protocol):
    """Is told of each request of one lookup in one task; called on the thread that asks the connector."""

    def begin(self, keys: int) -> Any:
        """A request for this many keys is sent; gives what ``end`` wants to have back."""

    def end(self, begun: Any, seconds: float, error: type[BaseException] | None) -> None:
        """What ``begin`` gave has its answer, or failed, after this many seconds."""

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        """A block in which the connector sends one HTTP request, and reads its response."""

    def task_ended(self, counts: LookupMetrics) -> None:
        """The task is over, and this is what it counted."""


class _Unobserved:
    def begin(self, keys: int) -> None:
        pass

    def end(self, begun: Any, seconds: float, error: type[BaseException] | None) -> None:
        pass

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        return UNTOLD

    def task_ended(self, counts: LookupMetrics) -> None:
        pass


UNOBSERVED: RequestObserver = _Unobserved()
"""Tells nobody."""


def observed(
    lookup: Callable[[_Request], _T], observer: RequestObserver, clock: Callable[[], float] = monotonic
) -> Callable[[_Request], _T]:
    """``lookup``, of which ``observer`` is told."""
    if observer is UNOBSERVED:
        return lookup

    def telling(request: _Request) -> _T:
        with _Telling(observer, request, clock):
            return lookup(request)

    return telling


def observed_async(
    lookup: Callable[[_Request], Awaitable[_T]],
    observer: RequestObserver,
    clock: Callable[[], float] = monotonic,
) -> Callable[[_Request], Awaitable[_T]]:
    """The same of a lookup on an event loop."""
    if observer is UNOBSERVED:
        return lookup

    async def telling(request: _Request) -> _T:
        with _Telling(observer, request, clock):
            return await lookup(request)

    return telling


class _Telling:
    def __init__(
        self, observer: RequestObserver, request: LookupRequest | RowRequest, clock: Callable[[], float]
    ) -> None:
        self._observer, self._clock = observer, clock
        self._timeout = request.timeout
        self._started = clock()
        self._begun = observer.begin(request.keys.num_rows if isinstance(request, LookupRequest) else 1)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds = self._clock() - self._started
        if (
            kind is CancelledError
            and self._timeout is not None
            and seconds + TIMER_TOLERANCE >= self._timeout
        ):
            kind = LookupTimeout
        self._observer.end(self._begun, seconds, kind)
