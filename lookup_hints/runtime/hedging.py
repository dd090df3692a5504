"""Sends a slow request a second time, and takes the answer that comes first.

As in "The Tail at Scale" (Dean and Barroso, 2013): a second request that is sent once the first one is slower
than most adds little load and cuts the longest waits, where another replica may answer it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from lookup_hints.runtime.spec import Hedge
from lookup_hints.runtime.tally import Tally
from lookup_hints.spi import Turns, turns
from lookup_hints.spi.turns import taking

PART = 0.05
"""At most so many second requests for each first one."""

_MOST_SAVED = 10.0
"""So many may be sent at once after a while without any: a source that stalls does not get twice the load."""

REMEMBERED = 1000
"""The last durations, of which the 95th percentile is taken."""

_FEWEST = 100
"""Durations that must be known before their percentile counts; it is found anew after as many."""

_TICK = 1e-3
"""A loop's timer may fire this much early."""

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")
_T = TypeVar("_T")


class Hedges:
    """Says when a request may be sent a second time. Pure: durations are given.

    >>> hedges = Hedges(Hedge(0.2))
    >>> hedges.delay
    0.2
    >>> [hedges.spend() for _ in range(2) if [hedges.begin() for _ in range(20)]]
    [True, True]
    >>> hedges.spend()
    False
    """

    def __init__(self, hedge: Hedge) -> None:
        self.delay = hedge.delay
        """Seconds after which a request is slow; None while nobody knows."""
        self._learns = hedge.delay is None
        self._durations: deque[float] = deque(maxlen=REMEMBERED)
        self._until_next = _FEWEST
        self._saved = 0.0

    def begin(self) -> None:
        """A first request is sent."""
        self._saved = min(_MOST_SAVED, self._saved + PART)

    def spend(self) -> bool:
        """Take one second request out of what is saved; False where that is not enough."""
        if self._saved < 1.0 - 1e-9:
            return False
        self._saved -= 1.0
        return True

    def took(self, seconds: float) -> None:
        """A request was answered after so long, by whichever try."""
        if not self._learns:
            return
        self._durations.append(seconds)
        self._until_next -= 1
        if not self._until_next:
            self._until_next = _FEWEST
            self.delay = sorted(self._durations)[int(0.95 * len(self._durations))]


class Spawn(Protocol):
    """Starts a task that ends with the run."""

    def __call__(self, coroutine: Coroutine[Any, Any, _T], /) -> asyncio.Task[_T]: ...


def hedged(
    lookup: Callable[[_Request], Awaitable[_Answer]],
    hedge: Hedge | None,
    tally: Tally,
    spawn: Spawn,
    clock: Callable[[], float],
) -> Callable[[_Request], Awaitable[_Answer]]:
    """``lookup``, which takes its turns itself, with a second try where it is slow; itself without ``hedge``.

    Time without a turn does not count. Where no turn is free a request is not sent again: the source has no
    room then.
    """
    if hedge is None:
        return lookup
    hedges = Hedges(hedge)

    async def answer(request: _Request) -> _Answer:
        return await lookup(request)

    def again(request: _Request, own: Turns) -> asyncio.Task[_Answer]:
        tally.count(requests=1, hedges=1)
        taken = _Taken(own)
        with taking(taken):
            task = spawn(answer(request))
        task.add_done_callback(lambda _: taken.give_back(clock()))
        return task

    async def hedging(request: _Request) -> _Answer:
        first = _First(turns(), clock)
        hedges.begin()
        with taking(first):
            tries = [spawn(answer(request))]
        try:
            while (
                len(tries) == 1 and not (await asyncio.wait(tries, timeout=first.patience(hedges.delay)))[0]
            ):
                # Where there was none to spend, one that is still slow after as long comes again.
                if first.is_slow(hedges.delay) and hedges.spend() and first.take_at_once():
                    tries.append(again(request, first))
            best = await _first_answer(tries)
        except asyncio.CancelledError:
            _cancel(tries)
            await asyncio.wait(tries)  # they hand back what they borrowed before this request is over
            raise
        _cancel(tries)
        hedges.took(first.seconds)
        if best is not tries[0]:
            tally.count(hedges_won=1)
        return best.result()

    return hedging


async def _first_answer(tries: Sequence[asyncio.Task[_T]]) -> asyncio.Task[_T]:
    """The try that is answered first; the first one where none is."""
    pending = set(tries)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in tries:
            if each in done and not each.cancelled() and each.exception() is None:
                return each
    return tries[0]


def _cancel(tries: Iterable[asyncio.Task[Any]]) -> None:
    for each in tries:
        each.cancel()
        each.add_done_callback(_hear)


def _hear(task: asyncio.Task[Any]) -> None:
    # What nobody asks for, asyncio would log.
    if not task.cancelled():
        task.exception()


class _First:
    """The turns of a first try: they tell for how long it is under way, without its waits for them."""

    def __init__(self, own: Turns, clock: Callable[[], float]) -> None:
        self._own, self._clock = own, clock
        self.take_at_once, self.over = own.take_at_once, own.over
        self._sent = clock()
        self._is_waiting = False

    async def take(self, deadline: float | None = None, after: float | None = None) -> None:
        self._is_waiting = True
        try:
            await self._own.take(deadline, after)
        finally:
            self._is_waiting = False
            self._sent = self._clock()

    def wait_for_turn(self, deadline: float | None = None, after: float | None = None) -> None:
        self._own.wait_for_turn(deadline, after)
        self._sent = self._clock()

    @property
    def seconds(self) -> float:
        """For how long it is under way."""
        return self._clock() - self._sent

    def is_slow(self, delay: float | None) -> bool:
        """Whether it is under way for ``delay`` seconds."""
        return delay is not None and not self._is_waiting and self.seconds + _TICK >= delay

    def patience(self, delay: float | None) -> float | None:
        """Seconds after which to look again; None: it need not be looked at."""
        if delay is None or self._is_waiting or self.is_slow(delay):
            return delay
        return delay - self.seconds


class _Taken:
    """The turns of a second try: the first of them is taken already."""

    def __init__(self, own: Turns) -> None:
        self._own = own
        self.over, self.take, self.wait_for_turn = own.over, own.take, own.wait_for_turn
        self._is_used = False

    def take_at_once(self) -> bool:
        if self._is_used:
            return self._own.take_at_once()
        self._is_used = True
        return True

    def give_back(self, now: float) -> None:
        """The try is over: a turn that it did not use is one for others."""
        if not self._is_used:
            self._own.over(now, "unknown")
