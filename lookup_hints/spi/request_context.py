"""What a connector reports of its requests (bytes, refusals, waits, HTTP), and permits to send them.

The engine sets the listener before each call; asyncio tasks that the call starts inherit it. Without one, as
in a scan or when a connector is used alone, reports are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from lookup_hints.errors import ConnectorError, LookupTimeout

Wait: TypeAlias = Literal["throttle", "outage", "budget", "slot"]
"""Why a request is not sent yet: the adaptive limit, an outage, a budget, or no free connection."""


class HttpExchange(Protocol):
    """One HTTP request, as long as it is under way."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with it, so that the server's own traces join ours; empty where nothing is traced."""

    def answered(self, status: int) -> None:
        """The response has this status code."""


class Reporting(Protocol):
    """Receives the reports of a connector; called on the thread that called the connector."""

    def sent(self, nbytes: int) -> None:
        """This many bytes of a request went out."""

    def received(self, nbytes: int) -> None:
        """This many bytes of an answer came in."""

    def throttled(self) -> None:
        """The source refused a request because it gets too many."""

    def waiting(self, wait: Wait) -> AbstractContextManager[None]:
        """A block in which one request waits before it is sent."""

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        """A block in which one HTTP request is sent and answered; of ``url`` the host alone is told."""


class _Untold:
    """An HTTP request of which nobody is told."""

    headers: Mapping[str, str] = MappingProxyType({})

    def answered(self, status: int) -> None:
        pass


UNTOLD: AbstractContextManager[HttpExchange] = nullcontext(_Untold())
"""An HTTP request of which nobody is told."""


class _Nobody:
    """Where nothing counts."""

    _block = nullcontext()

    def sent(self, nbytes: int) -> None:
        pass

    def received(self, nbytes: int) -> None:
        pass

    def throttled(self) -> None:
        pass

    def waiting(self, wait: Wait) -> AbstractContextManager[None]:
        return self._block

    def http(self, method: str, url: str) -> AbstractContextManager[HttpExchange]:
        return UNTOLD


NOBODY: Reporting = _Nobody()
"""Listens to nothing."""

_listening: ContextVar[Reporting] = ContextVar("lookup_hints_reporting", default=NOBODY)


def reporting() -> Reporting:
    """The listener of the lookup that runs here.

    Call it in each lookup and do not keep the result: background tasks and callbacks of connections outlive
    the lookup that started them.

    Examples:
        In a lookup:

            reports = reporting()
            with reports.waiting("slot"):
                connection = await pool.acquire()
            reports.sent(len(question))
            answer = await connection.ask(question)
            reports.received(len(answer))
    """
    return _listening.get()


Ending: TypeAlias = Literal["served", "refused", "lost", "unknown", "unsent"]
"""How a request ended: ``served`` (a miss and a 404 are answers, too), ``refused`` because of too many
requests, ``lost`` by a failure of transport, or ``unknown``, which says nothing about the source; ``unsent``
if it never left."""


class Permits(Protocol):
    """Gives permits to one lookup; used on the thread or loop that asks the connector.

    The engine acquires one for each lookup, so most connectors need none of this. A connector that sends
    several requests per lookup, or classifies their ends itself, is an ``AcquiresPermits``. Without limits,
    as in a scan or when a connector is used alone, every permit is granted at once.
    """

    def try_acquire(self, count: int = 1) -> int:
        """Take up to so many permits without waiting; returns how many were taken.

        ``acquire`` and ``acquire_blocking`` wait for one.
        """

    async def acquire(self, deadline: float | None = None, after: float | None = None) -> None:
        """Wait for a permit, and take it.

        Args:
            deadline: on the monotonic clock, or None: when the lookup must be over.
            after: on the same clock, or None: when the source allows this request again, which it refused.

        Raises:
            ConnectorError: the source is paused for longer than that, or down.
        """

    def acquire_blocking(self, deadline: float | None = None, after: float | None = None) -> None:
        """The same for a caller that blocks its thread."""

    def may_send(self, granted: float) -> bool:
        """Whether a request may still leave whose permit was there at ``granted``, on the monotonic clock.

        Ask just before it leaves, where it has waited since. If not, the source has asked for a pause
        meanwhile: ``release`` the permit with ``unsent``, and acquire again.
        """

    def release(self, started: float, ending: Ending, pause: float | None = None, count: int = 1) -> float:
        """A request is over, and its permit is free.

        Returns:
            Seconds after which the same request may be sent again, for ``after`` of its next permit.

        Args:
            started: when it was sent, on the monotonic clock.
            ending: how it ended.
            pause: seconds for which the source asks not to be asked, or None.
            count: how many served requests end with this call; ``started`` is that of the last.
        """


# Seconds to wait after a refusal that says nothing of a pause.
_PAUSE = 1.0


class _Free:
    def try_acquire(self, count: int = 1) -> int:
        return count

    async def acquire(self, deadline: float | None = None, after: float | None = None) -> None:
        await asyncio.sleep(max(0.0, (after or 0.0) - time.monotonic()))

    def acquire_blocking(self, deadline: float | None = None, after: float | None = None) -> None:
        time.sleep(max(0.0, (after or 0.0) - time.monotonic()))

    def may_send(self, granted: float) -> bool:
        return True

    def release(self, started: float, ending: Ending, pause: float | None = None, count: int = 1) -> float:
        return pause or (_PAUSE if ending == "refused" else 0.0)


FREE: Permits = _Free()
"""Each permit is there at once."""


def ending_of(error: BaseException) -> Ending:
    """Classify the end of a request that raised ``error``, by its class or those of its causes.

    >>> ending_of(ConnectionRefusedError()), ending_of(ConnectorError("wait", retry_after=2.0))
    ('lost', 'refused')
    >>> ending_of(ValueError())
    'unknown'
    """
    if isinstance(error, ConnectorError) and error.permanent:
        return "unknown"
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectorError) and seen.retry_after is not None:
            return "refused"
        if isinstance(seen, OSError | asyncio.TimeoutError | LookupTimeout):
            return "lost"
        seen = seen.__cause__
    return "unknown"


_permits: ContextVar[Permits] = ContextVar("lookup_hints_permits", default=FREE)


def permits() -> Permits:
    """The permits of the lookup that runs here.

    Ask again in each lookup.

    Examples:
        In a lookup of a connector that is an ``AcquiresPermits``:

            own = permits()
            if not own.try_acquire():
                await own.acquire(deadline)
            started = time.monotonic()
            try:
                answer = await ask(question)
            except ConnectionError:
                own.release(started, "lost")
                raise
            own.release(started, "refused" if answer.status == 429 else "served")
    """
    return _permits.get()


@contextmanager
def reporting_to(listener: Reporting, own: Permits = FREE) -> Iterator[None]:
    """A block whose lookups report to ``listener`` and take permits from ``own``; for the engine."""
    tokens = _listening.set(listener), _permits.set(own)
    try:
        yield
    finally:
        _listening.reset(tokens[0])
        _permits.reset(tokens[1])
