"""What an exchange may want next: the alphabet between decisions and I/O.

Named tuples here and in ``response``, as some are made for every request: frozen dataclasses take four times
as long.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lookup_connectors.http.message import KeptConnectionLost, Request, Response
from lookup_hints.spi import Turns

_T = TypeVar("_T")


class Send(NamedTuple):
    """Send ``request`` and give me the Response, within ``timeout`` seconds.

    Over a fresh connection, or over a kept one, which may be lost: then a KeptConnectionLost is thrown.
    """

    request: Request
    timeout: float
    fresh: bool = False


class Take(NamedTuple):
    """Wait for a turn of ``turns`` that is not before ``after``; the lookup must be over at ``deadline``."""

    turns: Turns
    deadline: float | None
    after: float | None


class Room(NamedTuple):
    """Wait until so many more bytes may be held."""

    size: int


class Exclusive(NamedTuple):
    """Run ``steps`` while no other exclusive steps run, and give me what they return."""

    steps: Generator[Any, Any, Any]


class LimitedRetry(NamedTuple):
    """Run ``steps``, which send a request again, while only a few others do."""

    steps: Generator[Any, Any, Any]


Step: TypeAlias = "Send | Take | Room | Exclusive | LimitedRetry"
Steps: TypeAlias = Generator[Step, Any, _T]
"""Says what it wants, is sent what came of it, and returns a result."""


def sent(request: Request, timeout: float) -> Steps[Response]:
    """Send a request that needs no turn, once more where a kept connection was lost."""
    try:
        response: Response = yield Send(request, timeout)
    except KeptConnectionLost:
        response = yield Send(request, timeout, fresh=True)
    return response
