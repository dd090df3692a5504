"""Lets the requests of one lookup in one task through to their origin.

It belongs to one thread: that of the event loop, or the task's own. Other tasks and processes are met in the
store only. A permit in hand, and nothing amiss: then a request costs no lock. Where another process has
the lock, nothing waits for it here: turns are given a moment later, and statistics are published later.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from lookup_hints.errors import ConnectorError, NoTurn, SourceDown, TooManyRequests
from lookup_hints.limits.leases import Lease, surplus
from lookup_hints.limits.limit import START
from lookup_hints.limits.limit_store import LimitStore, SharedLimits, is_alive
from lookup_hints.spi.reporting import Reporting, Wait, reporting
from lookup_hints.spi.turns import Ending

_UNLIMITED = 1_000_000

POLL_SECONDS = 0.002
"""How often a task looks for a permit that another one gives back."""

_STORE_IS_LOCKED: tuple[float, Wait] = (POLL_SECONDS, "budget")
"""By another process, or by one that was stopped while it had it."""

_PUBLISH_SECONDS = 0.02
"""Seconds between two times at which what was counted is published."""

_SWEEP_SECONDS = 0.5
"""A task that lacks permits looks as often whether their holders are still alive."""

_ASKED_AHEAD_SECONDS = 0.1
"""Where there is a rate, a task asks for as many keys as have their turn in this many seconds."""

_SPARE_SECONDS = 5.0
"""Permits come back so long after the timeout of the last request that may have used them."""


@dataclass(frozen=True)
class Rules:
    """What holds for the requests of one lookup.

    Args:
        source: what is asked, for messages.
        capacity: requests of one task in flight.
        concurrency: requests of one executor in flight, or None.
        rate: requests of one executor per second, or None.
        adapts: whether the source tells by its answers how much it bears.
        timeout: seconds for which a request waits where the source is down.
        waits_on_open: whether it waits at all.
        pause: seconds of the first pause that the source did not ask for.
        max_requests: of one statement, or None.
        statement: the number of that statement.
    """

    source: str = "the source"
    capacity: int = 100
    concurrency: int | None = None
    rate: float | None = None
    adapts: bool = True
    timeout: float = 300.0
    waits_on_open: bool = True
    pause: float = 1.0
    max_requests: int | None = None
    statement: int = 0


@dataclass
class PendingStats:
    """What came of requests since they were last published."""

    served: int = 0
    last_started: float = 0.0
    last_ended: float = 0.0
    sent: int = 0
    most_in_use: int = 0
    retries: int = 0
    outcomes: list[_Outcome] = field(default_factory=list)


@dataclass(frozen=True)
class _Outcome:
    """A request that was not simply served."""

    started: float
    ending: Ending
    pause: float | None
    time: float


class _Waiter:
    """A request that waits for its turn, and tells what for."""

    def __init__(self, turn: asyncio.Future[None], reports: Reporting, why: Wait) -> None:
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

    @property
    def has_turn(self) -> bool:
        """Whether it was given one."""
        return self.turn.done() and not self.turn.cancelled() and self.turn.exception() is None

    def give(self) -> bool:
        """Give it its turn; False where nobody wants that any more."""
        if self.turn.done():
            return False
        self.turn.set_result(None)
        return True

    def refuse(self, error: Exception) -> None:
        """It gets no turn."""
        if not self.turn.done():
            self.turn.set_exception(error)


class OriginLimiter:
    """The turns of one lookup in one task.

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
        self._store, self._rules, self._spent, self._process = store, rules, spent, process
        self.clock, self.sleep = clock, sleep
        self._flag = store.limits.flag
        self._lease: Lease | None = None
        self._ticket = 0.0
        self._held = 0
        self._in_use = 0
        self._reserved: float | None = None
        self._pending = PendingStats()
        self._publishes_at = 0.0
        self._sweeps_at = 0.0
        self._down_since: float | None = None
        self._cooling: deque[float] = deque()
        self._queue: deque[_Waiter] = deque()
        self._announced: Wait | None = None
        """What those of the queue wait for as they know it, but for one that has just come."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # With a rate or a count each request has to be told.
        self._is_free = rules.rate is None and rules.max_requests is None
        self._allowed = 0
        self.outages = 0
        """How often the breaker opened by a request of this lookup."""

    # Asking for turns.

    def permits(self) -> OriginPermits:
        """Turns for one lookup, which knows whether it waits."""
        return OriginPermits(self)

    def is_crowded(self, asked: int) -> bool:
        """Whether enough of the requests ``asked`` have no turn yet: no more need be asked."""
        return asked - self._in_use >= max(self._in_use, self.room or START)

    @property
    def room(self) -> int | None:
        """How many requests may be asked together: no more than have their turn within a moment."""
        rate = self._rules.rate
        return None if rate is None else max(1, int(rate * _ASKED_AHEAD_SECONDS))

    @property
    def limit(self) -> int:
        """How many requests the executor may have in flight, as far as it is known here; 0: any number."""
        return self._allowed if self._allowed < _UNLIMITED else 0

    @property
    def outage(self) -> str:
        """What is said of an origin that does not answer; empty while it does."""
        since = self._store.limits.breaker.opened_at
        if not since:
            return ""
        return f"{self._rules.source} has not answered for {self.clock() - since:.0f} s"

    def take_at_once(self) -> bool:
        """Take a turn where one is free now."""
        if self._queue:
            return False
        if self._in_use < self._held and self._is_free and not (self._flag.is_shut or self._pending.outcomes):
            self._use()
            return True
        return self._wait()[0] <= 0.0

    def _use(self) -> None:
        self._in_use += 1
        pending = self._pending
        pending.sent += 1
        if self._in_use > pending.most_in_use:
            pending.most_in_use = self._in_use

    async def wait(self, deadline: float | None) -> None:
        """Wait for a turn, and take it; see ``Turns.take``."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), reporting(), self._why(deadline))
        self._queue.append(waiter)
        try:
            self._grant_waiters()
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._queue:
                self._queue.remove(waiter)
            elif waiter.has_turn:
                self._in_use -= 1  # it was given at the moment when nobody wanted it any more
            self._grant_waiters()
            raise
        finally:
            waiter.waits_for(None)

    def wait_blocking(self, deadline: float | None) -> None:
        """The same, blocking the thread."""
        while (wait := self._wait())[0] > 0.0:
            self._check(wait[1], deadline)
            if deadline is not None and self.clock() >= deadline:
                raise NoTurn(f"{self._rules.source} had no turn for this lookup within its time.")
            with reporting().waiting(wait[1]):
                self.sleep(wait[0])

    def _why(self, deadline: float | None) -> Wait:
        """What is waited for, at first.

        Raises:
            ConnectorError: it would take too long.
        """
        limits, now = self._store.limits, self.clock()
        why: Wait = "budget"
        if limits.breaker.waits(now):
            why = "outage"
        elif limits.pause.opens > now or not self._is_limited_by_budget:
            why = "throttle"
        self._check(why, deadline)
        return why

    @property
    def _is_limited_by_budget(self) -> bool:
        return self._rules.rate is not None or self._allowed == self._rules.concurrency

    def _check(self, why: Wait, deadline: float | None) -> None:
        """Refuse to wait for what comes too late.

        Raises:
            ConnectorError: it does.
        """
        limits, now = self._store.limits, self.clock()
        if why == "outage":
            self._check_outage(limits.breaker.opened_at, limits.breaker.until, now)
        else:
            self.check_pause(limits.pause.opens, deadline)

    def check_pause(self, opens: float, deadline: float | None) -> None:
        """Refuse to wait until ``opens`` where that is after the ``deadline``.

        Raises:
            ConnectorError: it is.
        """
        if deadline is None or opens < deadline:
            return
        wait = opens - self.clock()
        raise ConnectorError(
            f"{self._rules.source} wants to be asked less: it may be asked again in {wait:.3g} s, which is"
            " longer than this lookup has left. Raise 'timeout', or ask less: 'lookup.rate-limit',"
            " 'lookup.max-concurrency'.",
            retry_after=wait,
        )

    def _check_outage(self, opened_at: float, until: float, now: float) -> None:
        again = f"It is asked again in {max(0.0, until - now):.3g} s"
        if not self._rules.waits_on_open:
            raise SourceDown(
                f"{self._rules.source} does not answer: most of its last requests were lost. {again}"
                " ('lookup.on-open' = 'wait' waits for that)."
            )
        self._down_since = now if self._down_since is None else self._down_since
        if now - self._down_since >= self._rules.timeout:
            raise SourceDown(
                f"{self._rules.source} has not answered for {now - opened_at:.0f} s, which is longer than"
                f" 'timeout' = {self._rules.timeout:g} s. {again}, by other keys. Check the source."
            )

    # Giving turns.

    def _grant_waiters(self) -> None:
        """Give turns to those who wait, in their order, and come back when there may be more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue:
            try:
                wait, why = self._wait()
                if wait > 0.0:
                    self._check(why, None)
            except Exception as error:
                self._refuse_all(error)
                return
            if wait > 0.0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._grant_waiters)
                for waiter in self._queue if why != self._announced else (self._queue[-1],):
                    waiter.waits_for(why)
                self._announced = why
                return
            if not self._queue.popleft().give():
                self._in_use -= 1

    def _refuse_all(self, error: Exception) -> None:
        while self._queue:
            self._queue.popleft().refuse(error)

    def _wait(self) -> tuple[float, Wait]:
        """Take a turn, which gives 0; or the seconds until it is worth asking again, and what for.

        Raises:
            TooManyRequests: the statement may send no more.
        """
        if self._in_use < self._held and self._is_free and not (self._flag.is_shut or self._pending.outcomes):
            self._use()
            return 0.0, "slot"
        now = self.clock()
        self._warm(now)
        limits = self._store.acquire()
        if limits is None:
            return _STORE_IS_LOCKED
        try:
            if now >= self._publishes_at or self._pending.outcomes:
                self._publish_stats(limits, now)
            wait = self._shut(limits, now) or self._lacks_permit(limits, now) or self._lacks_time(limits, now)
            wait = wait or self._lacks_count()
            if wait is None:
                self._probe(limits, now)
        finally:
            self._store.release()
        if wait is not None:
            return wait
        self._reserved = None
        self._use()
        return 0.0, "slot"

    def _shut(self, limits: SharedLimits, now: float) -> tuple[float, Wait] | None:
        """A pause, or an outage."""
        if not self._flag.is_shut:
            return None
        outage = limits.breaker.waits(now)
        if outage > 0:
            return min(outage, self._rules.timeout / 10), "outage"
        if limits.pause.opens > now:
            if limits.pause.may_try(now):
                return None
            return limits.pause.worth_asking(now, POLL_SECONDS), "throttle"
        if not limits.breaker.opened_at:
            self._flag.is_shut = 0.0
        return None

    def _probe(self, limits: SharedLimits, now: float) -> None:
        if limits.breaker.opened_at:
            limits.breaker.probes(now)
        elif limits.pause.opens > now:
            limits.pause.tries(now)

    def _lacks_permit(self, limits: SharedLimits, now: float) -> tuple[float, Wait] | None:
        """Take another permit, if none is left."""
        if self._in_use < self._held:
            return None
        lease = self._own_lease(limits, now)
        self._allowed = self._limit_of(limits)
        wanted = min(1 + len(self._queue), self._rules.capacity - self._held) or 1
        granted = limits.leases.grant(lease, wanted, self._allowed, now)
        if not granted and now >= self._sweeps_at:
            self._sweeps_at = now + _SWEEP_SECONDS
            limits.leases.drop_lost(is_alive, now)
            lease = self._own_lease(limits, now)
            granted = limits.leases.grant(lease, wanted, self._allowed, now)
        self._held = int(lease.held)
        return None if granted else (POLL_SECONDS, "budget" if self._is_limited_by_budget else "throttle")

    def _lacks_time(self, limits: SharedLimits, now: float) -> tuple[float, Wait] | None:
        """Take a place in the row, where there is a rate."""
        if self._rules.rate is not None and self._reserved is None:
            self._reserved = limits.rate.reserve(self._rules.rate, now)
        if self._reserved is not None and self._reserved > now:
            return self._reserved - now, "budget"
        return None

    def _lacks_count(self) -> tuple[float, Wait] | None:
        """Count the request, where those of a statement are bounded.

        Raises:
            TooManyRequests: the statement may send no more.
        """
        most = self._rules.max_requests
        if most is None or self._spent is None:
            return None
        limits = self._spent.acquire()
        if limits is None:
            return _STORE_IS_LOCKED
        try:
            may_send = limits.spent.send(self._rules.statement, most)
        finally:
            self._spent.release()
        if not may_send:
            raise TooManyRequests(
                f"{self._rules.source}: this statement has sent {most:,} requests, and"
                f" 'lookup.max-requests' = {most} allows no more. Raise it, or ask for fewer keys."
            )
        return None

    # What became of them.

    def over(self, started: float, ending: Ending, pause: float | None = None) -> float:
        """A request is over; see ``Turns.over``."""
        now = self.clock()
        if ending == "refused" and not pause:
            self._cool(now)
        else:
            self._in_use -= 1
        if ending == "served":
            self._pending.served += 1
            self._pending.last_started, self._pending.last_ended = started, now
            self._down_since = None
        if ending in ("refused", "lost") or pause:
            self._pending.outcomes.append(_Outcome(started, ending, pause, now))
        if self._pending.outcomes or self._flag.is_shut or now >= self._publishes_at or self._spare():
            self._publish_and_rebalance(now)
        if self._queue:
            self._grant_waiters()
        elif self._idle_timer is None and self._has_something_idle:
            self._give_back_soon()
        return pause or 0.0 if ending == "refused" else 0.0

    def _publish_and_rebalance(self, now: float) -> None:
        limits = self._store.acquire()
        if limits is None:
            return
        try:
            self._publish_stats(limits, now)
            self._rebalance(limits)
        finally:
            self._store.release()

    @property
    def _has_something_idle(self) -> bool:
        """Whether there are permits to give back, or outcomes to publish, while no request does it."""
        return self._held > self._in_use or bool(self._pending.outcomes)

    def _give_back_soon(self) -> None:
        """Give back what is idle when no request comes for a moment; at once where no loop could do it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._pending.most_in_use = self._in_use
            self._give_back_idle()
        else:
            self._idle_timer = loop.call_later(_PUBLISH_SECONDS, self._give_back_later)

    def _give_back_later(self) -> None:
        self._idle_timer = None
        self._give_back_idle()
        if self._has_something_idle and not self._queue:
            self._give_back_soon()

    def _give_back_idle(self) -> None:
        now = self.clock()
        self._publishes_at = min(self._publishes_at, now)
        self._publish_and_rebalance(now)

    def _cool(self, now: float) -> None:
        """Keep the turn of a refused request for as long as others take that are served.

        Until then the source has as much to do as when it refused it.
        """
        self._cooling.append(now + self._store.limits.limit.settling)

    def _warm(self, now: float) -> None:
        while self._cooling and self._cooling[0] <= now:
            self._cooling.popleft()
            self._in_use -= 1

    def _spare(self) -> int:
        """How many permits should go back now: what is idle while others lack it, or more than is fair."""
        leases = self._store.limits.leases
        fair = leases.fair
        if not fair:
            return 0
        idle = self._held - self._in_use
        if not self._queue:
            return idle
        return min(idle, surplus(self._held, fair, leases.excess))

    def _publish_stats(self, limits: SharedLimits, now: float) -> None:
        """Publish what was served and sent, and keep no more permits than are used."""
        pending, self._pending = self._pending, PendingStats(most_in_use=self._in_use)
        lease = self._own_lease(limits, now)
        if pending.served:
            if limits.pause.served(pending.last_started, now):
                limits.limit.unpaused(now)
            limits.breaker.answered(pending.served, pending.last_started, now)
            if self._rules.adapts:
                seconds = pending.last_ended - pending.last_started
                limits.limit.served(pending.served, limits.leases.held, seconds, now)
        if pending.sent:
            limits.retries.tried(pending.sent, now)
        if pending.retries:
            limits.retries.reserve(pending.retries, now)
        self._allowed = self._limit_of(limits)
        idle = self._held - max(pending.most_in_use, self._in_use) if now >= self._publishes_at else 0
        if idle > 0:
            limits.leases.give_back(lease, idle, self._allowed)
            self._held -= idle
        self._publishes_at = now + _PUBLISH_SECONDS
        for each in pending.outcomes:
            self._record_outcome(limits, each.started, each.ending, each.pause, each.time)
        if limits.pause.opens > now or limits.breaker.opened_at:
            self._flag.is_shut = 1.0

    def _limit_of(self, limits: SharedLimits) -> int:
        most = math.inf if self._rules.concurrency is None else self._rules.concurrency
        if self._rules.adapts:
            return limits.limit.allowed(most)
        return _UNLIMITED if math.isinf(most) else int(most)

    def _record_outcome(
        self, limits: SharedLimits, started: float, ending: Ending, pause: float | None, now: float
    ) -> None:
        """What a request that was not simply served says of the origin."""
        if pause:
            try_after = limits.limit.settling if ending == "refused" else None
            limits.pause.asked(pause, started, now, try_after)
        if ending == "refused":
            self._record_refusal(limits, started, pause or 0.0, now)
        elif ending == "lost" and self._rules.adapts:
            limits.limit.lost(started, now)
            self.outages += limits.breaker.lost(started, now)
        self._allowed = self._limit_of(limits)

    def _record_refusal(self, limits: SharedLimits, started: float, pause: float, now: float) -> None:
        limits.breaker.answered(1, started, now)
        if not pause and (self._allowed <= 1 or not self._rules.adapts):
            limits.pause.refused(started, self._rules.pause, now)
        if self._rules.adapts:
            limits.limit.refused(started, limits.leases.held, pause, now)

    def _rebalance(self, limits: SharedLimits) -> None:
        """Give back what others lack."""
        if self._lease is not None and not self._queue:
            self._lease.wanted_since = 0.0
        limits.leases.share(self._allowed)
        spare = self._spare()
        if spare > 0 and self._lease is not None:
            limits.leases.give_back(self._lease, spare, self._allowed)
            self._held -= spare

    def _own_lease(self, limits: SharedLimits, now: float) -> Lease:
        """The lease of this task, as long as it lives; a new one where it was taken back."""
        until = now + self._rules.timeout + _SPARE_SECONDS
        lease = self._lease
        if lease is None or lease.owner != self._process or lease.ticket != self._ticket:
            lease = limits.leases.begin(self._process, until)
            if lease is None:
                limits.leases.drop_lost(is_alive, now)
                lease = limits.leases.begin(self._process, until)
            if lease is None:
                raise ConnectorError(f"{self._rules.source}: too many lookups run at once in this executor.")
            lease.held = self._held
            self._lease, self._ticket = lease, lease.ticket
        lease.until = until
        return lease

    def retry_delay(self, requests: int) -> float:
        """Take so many retries of failures out of their budget: the seconds after which they may be sent."""
        now = self.clock()
        limits = self._store.acquire()
        if limits is None:
            self._pending.retries += requests
            return self._store.limits.retries.estimate(self._pending.retries, now)
        try:
            return limits.retries.reserve(requests, now)
        finally:
            self._store.release()

    def close(self) -> None:
        """Give back all that is held: the task is over."""
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._lease is not None:
            self._give_back_all(self.clock() + self._rules.timeout + _SPARE_SECONDS)

    def _give_back_all(self, until: float) -> None:
        """Drop the lease; where another process has the lock, as soon as that is over.

        Args:
            until: when the lease comes back without that.
        """
        now = self.clock()
        limits = self._store.acquire()
        if limits is not None:
            try:
                self._publish_stats(limits, now)
                limits.leases.drop(self._own_lease(limits, now))
            finally:
                self._store.release()
            self._lease = None
        elif now < until:
            with suppress(RuntimeError):  # without a loop it comes back by itself
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_PUBLISH_SECONDS, self._give_back_all, until)


class OriginPermits:
    """The turns of one lookup, or of several one after the other: a ``spi.turns.Turns``."""

    def __init__(self, limiter: OriginLimiter) -> None:
        self.take_at_once = limiter.take_at_once
        self.over = limiter.over
        self._limiter = limiter
        self._clock = limiter.clock
        self.waited = 0.0
        """Seconds that it has waited for turns so far."""
        self.gave_up = False
        """Whether the last wait for a turn was cancelled."""

    async def take(self, deadline: float | None = None, after: float | None = None) -> None:
        """Wait for a turn, and take it."""
        started = self._clock()
        self.gave_up = False
        try:
            if (wait := self._until(started, deadline, after)) > 0:
                with reporting().waiting("throttle"):
                    await asyncio.sleep(wait)
            await self._limiter.wait(deadline)
        except asyncio.CancelledError:
            self.gave_up = True
            raise
        finally:
            self.waited += self._clock() - started

    def wait_for_turn(self, deadline: float | None = None, after: float | None = None) -> None:
        """The same, blocking the thread."""
        started = self._clock()
        try:
            if (wait := self._until(started, deadline, after)) > 0:
                with reporting().waiting("throttle"):
                    self._limiter.sleep(wait)
            self._limiter.wait_blocking(deadline)
        finally:
            self.waited += self._clock() - started

    def _until(self, now: float, deadline: float | None, after: float | None) -> float:
        """Seconds until ``after``.

        Raises:
            ConnectorError: that is too long.
        """
        if after is None or after <= now:
            return 0.0
        self._limiter.check_pause(after, deadline)
        return after - now
