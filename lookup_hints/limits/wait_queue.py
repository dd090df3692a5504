"""Who waits for a permit, in their order. Pure: it is told when to look, and futures are set by it alone."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from lookup_hints.limits.shared_limits import Lack
from lookup_hints.spi.reporting import Reporting, Wait


class Waiter:
    """A request that waits for its permit, and tells what for."""

    def __init__(self, turn: Future[None], reports: Reporting, why: Wait) -> None:
        self.turn = turn
        self._reports = reports
        self._why: Wait | None = None
        self._block: AbstractContextManager[None] | None = None
        self.waits_for(why)

    def waits_for(self, why: Wait | None) -> None:
        """Now it waits for ``why``, or for nothing any more."""
        if why == self._why:
            return
        if self._block is not None:
            self._block.__exit__(None, None, None)
        self._why = why
        self._block = None if why is None else self._reports.waiting(why)
        if self._block is not None:
            self._block.__enter__()


class WaitQueue(deque[Waiter]):
    """First come, first served."""

    _announced: Wait | None = None
    """What all wait for as they know it, but for one that has just come."""

    def serve(self, acquire: Callable[[], Lack | None]) -> Lack | None:
        """Give permits as long as ``acquire`` gets some; what it lacks for the first of those who are left.

        Where it fails, all fail with its error. Who was cancelled a moment ago, and is still here, gets none.
        """
        while self:
            if not self[0].turn.done():
                try:
                    lack = acquire()
                except Exception as error:
                    self._refuse_all(error)
                    return None
                if lack is not None:
                    why = lack[1]
                    for waiter in self if why != self._announced else (self[-1],):
                        waiter.waits_for(why)
                    self._announced = why
                    return lack
                self[0].turn.set_result(None)
            self.popleft()
        return None

    def _refuse_all(self, error: Exception) -> None:
        while self:
            if not (turn := self.popleft().turn).done():
                turn.set_exception(error)
