"""What a connector may tell of its requests while it works on them: bytes, refusals, what it waits for, HTTP.

The engine sets who listens before each call; tasks that the call starts inherit it. Where nobody counts, as
in a scan or when a connector is used alone, telling does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

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
    """Listens to what a connector tells of its requests; called on the thread that asked the connector."""

    def sent(self, nbytes: int) -> None:
        """This many bytes of a request went out."""

    def received(self, nbytes: int) -> None:
        """This many bytes of an answer came in."""

    def throttled(self) -> None:
        """The source refused a request for a while, as it gets too many."""

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
    """Who listens to what the lookup tells that runs here.

    Ask again in each lookup: a task in the background, or a callback of a connection, outlives the lookup
    that it was started in.

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


@contextmanager
def reporting_to(listener: Reporting) -> Iterator[None]:
    """A block in which ``listener`` listens; for the engine."""
    token = _listening.set(listener)
    try:
        yield
    finally:
        _listening.reset(token)
