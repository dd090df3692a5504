"""Lets the requests of one lookup in one task through to their origin.

It belongs to one thread: that of the event loop, or the task's own. Other tasks and processes are met in the
store only. A permit in hand, and nothing amiss: then a request costs no lock. Where another process has
the lock, nothing waits for it here: permits are given a moment later, and statistics are published later.
"""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import Future
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from lookup_hints.errors import ConnectorError, NoTurn, SourceDown, TooManyRequests, counted
from lookup_hints.limits.adaptive_concurrency import START
from lookup_hints.limits.shared_limits import POLL_SECONDS, UNBOUNDED, Lack, LimitStore, Rules, is_alive
from lookup_hints.limits.task_permits import PUBLISH_SECONDS, TaskPermits
from lookup_hints.spi.request_context import Ending, Reporting, Wait, reporting


class Waiter:
    """A request that waits for its permit, with the reason why it waits."""

    def __init__(self, granted: Future[None], reports: Reporting, why: Wait) -> None:
        self.granted = granted
        self.granted_at = 0.0
        self._reports = reports
        self._why: Wait | None = None
        self._block: AbstractContextManager[None] | None = None
        self.waits_for(why)

    def waits_for(self, why: Wait | None) -> None:
        if why == self._why:
            return
        if self._block is not None:
            self._block.__exit__(None, None, None)
        self._why = why
        self._block = None if why is None else self._reports.waiting(why)
        if self._block is not None:
            self._block.__enter__()


class WaitQueue(deque[Waiter]):
    """First come, first served. Pure: it is told when to look, and futures are set by it alone."""

    # The reason why the queue waits, as last determined.
    _announced: Wait | None = None

    def serve(self, acquire: Callable[[], Lack | None]) -> Lack | None:
        """Give permits as long as ``acquire`` gets some; what it lacks for the first of those who are left.

        Where it fails, all fail with its error. Who was cancelled a moment ago, and is still here, gets none.
        """
        while self:
            if not self[0].granted.done():
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
                self[0].granted.set_result(None)
            self.popleft()
        return None

    def _refuse_all(self, error: Exception) -> None:
        while self:
            if not (granted := self.popleft().granted).done():
                granted.set_exception(error)


# By another process, or by one that was stopped while it had it.
_STORE_IS_LOCKED: Lack = (POLL_SECONDS, "budget")

# Where there is a rate, a task asks for as many keys as get a permit in this many seconds.
_ASKED_AHEAD_SECONDS = 0.1


# The one place that acquires and releases: what decides about the origin is pure and is told the time, so
# each part is tested without a loop or a lock. (docs/decisions/0188)
class OriginLimiter:
    """The door through which the requests of one lookup in one task go: acquire, and release.

    Args:
        store: the shared limits of its origin.
        rules: what holds for it.
        spent: the store that counts the requests of statements, where they are bounded.
        process: the number of this process.
        clock: seconds, the same for all processes.
        sleep: waits this many seconds.
    """

    def __init__(
        self,
        store: LimitStore,
        rules: Rules,
        *,
        spent: LimitStore | None = None,
        process: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._rules, self._spent = store, rules, spent
        self.clock, self.sleep = clock, sleep
        self._permits = TaskPermits(store.limits, rules, process, is_alive)
        self._queue = WaitQueue()
        self._unsent = 0
        """Requests that were counted for their statement, and did not leave."""
        self._down_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    def permits(self) -> OriginPermits:
        """Permits for one lookup, which know whether they wait."""
        return OriginPermits(self)

    def is_crowded(self, asked: int) -> bool:
        """Whether enough of the requests ``asked`` have no permit yet: no more need be asked."""
        in_use = self._permits.in_use
        return asked - in_use >= max(in_use, self.room or START)

    @property
    def room(self) -> int | None:
        """How many requests may be asked together: no more than get a permit within a moment."""
        rate = self._rules.rate
        return None if rate is None else max(1, int(rate * _ASKED_AHEAD_SECONDS))

    @property
    def limit(self) -> int:
        return self._permits.allowed if self._permits.allowed < UNBOUNDED else 0

    @property
    def outages(self) -> int:
        """How often the breaker opened by a request of this lookup."""
        return self._permits.outages

    @property
    def outage(self) -> str:
        """The message about an origin that does not answer; empty while it does."""
        since = self._store.limits.breaker.opened_at
        if not since:
            return ""
        return f"{self._rules.source} has not answered for {self.clock() - since:.0f} s"

    # Acquire.

    def try_acquire(self, count: int = 1) -> int:
        taken = 0
        while taken < count and not self._queue:
            in_hand = self._permits.use(count - taken)
            if not in_hand and self._take_permit(count - taken) is not None:
                break
            taken += in_hand or 1
        return taken

    async def acquire(self, deadline: float | None) -> None:
        granted = await self._wait_for_permit(deadline)
        while not self.may_send(granted):  # a pause was asked for before this task went on
            self.release(granted, "unsent")
            granted = await self._wait_for_permit(deadline)

    async def _wait_for_permit(self, deadline: float | None) -> float:
        """Take a permit when it is there; returns when that was."""
        waiter = Waiter(
            asyncio.get_running_loop().create_future(), reporting(), self._reason_to_wait(deadline)
        )
        self._queue.append(waiter)
        try:
            self._serve_queue()
            await waiter.granted
            return waiter.granted_at
        except asyncio.CancelledError:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self._permits.in_use -= 1  # it was given at the moment when nobody wanted it any more
            self._serve_queue()
            if not self._queue:
                self._give_back_soon()
            raise
        finally:
            waiter.waits_for(None)

    def acquire_blocking(self, deadline: float | None) -> None:
        while not self._permits.use() and (lack := self._take_permit()) is not None:
            seconds, why = lack
            self._check_wait(why, deadline, self.clock())
            left = math.inf if deadline is None else deadline - self.clock()
            if left <= 0:
                raise NoTurn(f"{self._rules.source} allowed no request of this lookup within its timeout.")
            with reporting().waiting(why):
                self.sleep(min(seconds, left))

    def _take_permit(self, wanted: int = 1) -> Lack | None:
        """Take one of the permits that are ``wanted`` under the lock, or say what it lacks."""
        now, permits = self.clock(), self._permits
        permits.warm(now)
        if self._store.acquire() is None:
            return _STORE_IS_LOCKED
        try:
            lack = permits.lack(len(self._queue) + wanted - 1, now)
            if lack is None and self._spent is not None:
                lack = self._lack_of_count(self._spent)
            if lack is None:
                permits.sends(now)
        finally:
            self._store.release()
        return lack

    def _lack_of_count(self, store: LimitStore) -> Lack | None:
        """Count the request, where those of a statement are bounded."""
        if self._unsent:
            self._unsent -= 1
            return None
        most = self._rules.max_requests or 0
        limits = store.acquire()
        if limits is None:
            return _STORE_IS_LOCKED
        try:
            may_send = limits.spent.send(self._rules.statement, most)
        finally:
            store.release()
        if not may_send:
            raise TooManyRequests(
                f"{self._rules.source}: this statement has sent {counted(most, 'request')}, and"
                f" 'lookup.max-requests' = {most} allows no more. Raise it, or ask for fewer keys."
            )
        return None

    def _serve_queue(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (lack := self._queue.serve(self._acquire_next)) is not None:
            self._timer = asyncio.get_running_loop().call_later(lack[0], self._serve_queue)

    def _acquire_next(self) -> Lack | None:
        if self._permits.use() or (lack := self._take_permit()) is None:
            self._queue[0].granted_at = self.clock()
            return None
        self._check_wait(lack[1], None, self.clock())
        return lack

    def _reason_to_wait(self, deadline: float | None) -> Wait:
        """The reason why a new request must wait."""
        limits, now = self._store.limits, self.clock()
        why: Wait = "budget"
        if limits.breaker.waits(now):
            why = "outage"
        elif limits.pause.opens > now or not self._permits.is_limited_by_budget:
            why = "throttle"
        self._check_wait(why, deadline, now)
        return why

    def check_pause(self, opens: float, deadline: float | None) -> None:
        """Refuse to wait until ``opens`` where that is after the ``deadline``."""
        if deadline is None or opens < deadline:
            return
        wait = opens - self.clock()
        raise ConnectorError(
            f"{self._rules.source} asks for fewer requests: it takes the next one in {wait:.3g} s, which is"
            " longer than this lookup has left. Raise 'timeout', or send fewer: 'lookup.rate-limit',"
            " 'lookup.max-concurrency'.",
            retry_after=wait,
        )

    def _check_wait(self, why: Wait, deadline: float | None, now: float) -> None:
        """Refuse to wait for what comes too late."""
        if why != "outage":
            self.check_pause(self._store.limits.pause.opens, deadline)
            return
        breaker = self._store.limits.breaker
        again = f"It is asked again in {max(0.0, breaker.until - now):.3g} s"
        # Who may not wait for a source waits for its probes: a task that fails cancels those that it sent,
        # and a source that is well again would be taken for down for good.
        if not self._rules.waits_on_open and now < breaker.until:
            raise SourceDown(
                f"{self._rules.source} does not answer: most of its last requests were lost. {again}"
                " ('lookup.on-open' = 'wait' waits for that)."
            )
        self._down_since = now if self._down_since is None else self._down_since
        if now - self._down_since >= self._rules.timeout:
            raise SourceDown(
                f"{self._rules.source} has not answered for {now - breaker.opened_at:.0f} s, which is longer"
                f" than 'timeout' = {self._rules.timeout:g} s. {again}, by other keys. Check the source."
            )

    def may_send(self, granted: float) -> bool:
        return self._permits.may_send(granted, self.clock())

    # Release.

    def release(self, started: float, ending: Ending, pause: float | None = None, count: int = 1) -> float:
        """A request is over, or as many as were served; see ``Permits.release``."""
        now, permits = self.clock(), self._permits
        if ending == "served":
            self._down_since = None
        elif ending == "unsent":
            self._unsent += count
        if permits.release(started, ending, pause, len(self._queue), now, count):
            self._publish_use(now)
        if self._queue:
            self._serve_queue()
        else:
            self._give_back_soon()
        return pause or 0.0 if ending == "refused" else 0.0

    def _publish_use(self, now: float) -> None:
        if self._store.acquire() is not None:
            try:
                self._permits.publish(now)
                self._permits.rebalance(len(self._queue))
            finally:
                self._store.release()

    def _give_back_soon(self) -> None:
        """Give back what is idle when no request comes for a moment; at once where no loop could do it."""
        if self._idle_timer is not None or not self._permits.has_something_idle:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            now = self.clock()
            self._permits.expire(now, recent=True)
            self._publish_use(now)
        else:
            self._idle_timer = loop.call_later(PUBLISH_SECONDS, self._give_back_later)

    def _give_back_later(self) -> None:
        self._idle_timer = None
        now = self.clock()
        self._permits.expire(now)
        self._publish_use(now)
        if not self._queue:
            self._give_back_soon()

    def retry_delay(self, requests: int) -> float:
        """Take retries out of their budget; returns the seconds after which they may be sent."""
        now = self.clock()
        limits = self._store.acquire()
        if limits is None:
            return self._permits.retry_later(requests, now)
        try:
            return limits.retries.reserve(requests, now)
        finally:
            self._store.release()

    def close(self) -> None:
        """Give back all that is held: the task is over."""
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._permits.has_lease:
            self._give_back_all(self.clock() + self._permits.term)

    def _give_back_all(self, until: float) -> None:
        """Drop the lease, later where another process has the lock; at ``until`` it is back by itself."""
        now = self.clock()
        if self._store.acquire() is not None:
            try:
                self._permits.drop(now)
            finally:
                self._store.release()
        elif now < until:
            with suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(PUBLISH_SECONDS, self._give_back_all, until)


class OriginPermits:
    """The permits of one lookup, or of several one after the other: a ``spi.request_context.Permits``."""

    def __init__(self, limiter: OriginLimiter) -> None:
        self.release = limiter.release
        self.may_send = limiter.may_send
        self._limiter = limiter
        self._clock = limiter.clock
        self.waited = 0.0
        """Seconds that it has waited for permits so far."""
        self.waited_first = 0.0
        """Those of them before the first permit of a lookup: what it finds is not older than that."""
        self._is_past_first = False
        """Whether the first permit of the lookup has been taken, or was waited for in vain."""
        self.gave_up = False
        """Whether the last wait for a permit was cancelled."""

    def begin_lookup(self) -> None:
        """Another lookup begins, on the same permits."""
        self.waited_first, self._is_past_first = 0.0, False

    def try_acquire(self, count: int = 1) -> int:
        taken = self._limiter.try_acquire(count)
        self._is_past_first |= taken > 0
        return taken

    async def acquire(self, deadline: float | None = None, after: float | None = None) -> None:
        started = self._clock()
        self.gave_up = False
        try:
            if (wait := self._wait_before(started, deadline, after)) > 0:
                with reporting().waiting("throttle"):
                    await asyncio.sleep(wait)
            await self._limiter.acquire(deadline)
        except asyncio.CancelledError:
            self.gave_up = True
            raise
        finally:
            self._count_wait(self._clock() - started)

    def acquire_blocking(self, deadline: float | None = None, after: float | None = None) -> None:
        started = self._clock()
        try:
            if (wait := self._wait_before(started, deadline, after)) > 0:
                with reporting().waiting("throttle"):
                    self._limiter.sleep(wait)
            self._limiter.acquire_blocking(deadline)
        finally:
            self._count_wait(self._clock() - started)

    def _count_wait(self, seconds: float) -> None:
        self.waited += seconds
        if not self._is_past_first:
            self.waited_first, self._is_past_first = seconds, True

    def _wait_before(self, now: float, deadline: float | None, after: float | None) -> float:
        if after is None or after <= now:
            return 0.0
        self._limiter.check_pause(after, deadline)
        return after - now
