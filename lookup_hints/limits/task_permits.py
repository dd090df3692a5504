"""The permits of one lookup in one task. Pure: times are given.

What is said to need the lock reads and writes what other tasks share, and is called by who holds their lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lookup_hints.errors import ConnectorError
from lookup_hints.limits.rate_and_retry_budget import BUNCH_SECONDS
from lookup_hints.limits.shared_limits import (
    IS_SHUT,
    POLL_SECONDS,
    Lack,
    Lease,
    OriginSignal,
    Rules,
    SharedLimits,
    surplus,
)
from lookup_hints.spi.request_context import Ending

PUBLISH_SECONDS = 0.02
"""Seconds between two times at which what was counted is published."""

# A task that lacks permits looks as often whether their holders are still alive.
_SWEEP_SECONDS = 0.5

# Permits come back so long after the timeout of the last request that may have used them.
_SPARE_SECONDS = 5.0


@dataclass
class PendingStats:
    """Outcomes of requests since the last publish."""

    served: int = 0
    last_started: float = 0.0
    last_ended: float = 0.0
    sent: int = 0
    most_in_use: int = 0
    retries: int = 0
    signals: list[OriginSignal] = field(default_factory=list)


# What one task holds, uses and publishes of the permits that its executor shares; told the time, so that it
# runs without a loop or a lock. (docs/decisions/0188)
class TaskPermits:
    """Permits that a task has leased, how many of them are in use, and the outcomes of its requests."""

    def __init__(
        self, limits: SharedLimits, rules: Rules, process: int, is_alive: Callable[[int], bool]
    ) -> None:
        self._limits, self._rules, self._process, self._is_alive = limits, rules, process, is_alive
        self._leases, self._cells = limits.leases, limits.cells
        # With a rate or a count each request has to be told.
        self._is_free = rules.rate is None and rules.max_requests is None
        self.term = rules.timeout + _SPARE_SECONDS
        """Seconds after which permits come back if nothing is heard of their task."""
        self._lease: Lease | None = None
        self._ticket = 0.0
        self._held = 0
        self.in_use = 0
        self.allowed = 0
        """How many requests the executor may have in flight, when last looked at."""
        self.outages = 0
        """How often the breaker opened by a request of this lookup."""
        self._reserved: float | None = None
        self._cooling: deque[float] = deque()
        self._pending = PendingStats()
        self._publishes_at = 0.0
        self._sweeps_at = 0.0

    @property
    def has_lease(self) -> bool:
        return self._lease is not None

    @property
    def has_something_idle(self) -> bool:
        """Whether there are permits to give back, or outcomes to publish, while no request does it."""
        return self._held > self.in_use or bool(self._pending.signals)

    # Given to others, it would not be there when its time comes: then that is late, and bunches with theirs.
    @property
    def _needed_permits(self) -> int:
        """How many permits are in use, or wait for a time that is theirs."""
        return self.in_use + (self._reserved is not None)

    @property
    def is_limited_by_budget(self) -> bool:
        return self._rules.rate is not None or self.allowed == self._rules.concurrency

    def use(self, count: int = 1, *, is_granted: bool = False) -> int:
        """Use up to ``count`` permits in hand, or all that were just granted; returns how many.

        None in hand is used while the origin is shut, a signal is unpublished, or each request must be told.
        """
        pending = self._pending
        if not is_granted:
            count = min(count, self._held - self.in_use)
            if count <= 0 or not self._is_free or self._cells[IS_SHUT] or pending.signals:
                return 0
        self.in_use += count
        pending.sent += count
        if self.in_use > pending.most_in_use:
            pending.most_in_use = self.in_use
        return count

    def warm(self, now: float) -> None:
        while self._cooling and self._cooling[0] <= now:
            self._cooling.popleft()
            self.in_use -= 1

    def lack(self, waiting: int, now: float) -> Lack | None:
        """What stands against another request, of which so many wait; if nothing does, ``sends`` it.

        It needs the lock.
        """
        if now >= self._publishes_at or self._pending.signals:
            self.publish(now)
        lack = self._limits.shut(self._rules.timeout / 10, now)
        if lack is not None:
            # A time that passes meanwhile is not made up for: all tasks would go out at once with theirs.
            self._reserved = None
        if lack is None and self.in_use >= self._held:
            self.allowed = self._limits.allowed(self._rules)
            wanted = min(1 + waiting, self._rules.capacity - self._held) or 1
            lease = self._own_lease(now)
            granted = self._leases.grant(lease, wanted, self.allowed, now)
            if not granted and now >= self._sweeps_at:
                self._sweeps_at = now + _SWEEP_SECONDS
                self._leases.drop_lost(self._is_alive, now)
                lease = self._own_lease(now)
                granted = self._leases.grant(lease, wanted, self.allowed, now)
            self._held = int(lease.held)
            lack = None if granted else (POLL_SECONDS, "budget" if self.is_limited_by_budget else "throttle")
        if lack is None and self._rules.rate is not None:
            # A request that comes too late for its time would bunch with those of others.
            if self._reserved is None or self._reserved < now - BUNCH_SECONDS:
                self._reserved = self._limits.rate.reserve(self._rules.rate, now)
            if self._reserved > now:
                lack = self._reserved - now, "budget"
        return lack

    def sends(self, now: float) -> None:
        """Use a permit after ``lack`` found nothing against it; needs the lock."""
        self._limits.sends(now)
        self._reserved = None
        self.use(is_granted=True)

    def may_send(self, granted: float, now: float) -> bool:
        """Whether no pause was asked for since ``granted`` that goes on; it needs no lock."""
        if any(each.pause for each in self._pending.signals):
            return False
        pause = self._limits.pause
        return not (self._cells[IS_SHUT] and pause.opens > now and pause.told_at >= granted)

    def release(
        self, started: float, ending: Ending, pause: float | None, waiting: int, now: float, count: int = 1
    ) -> bool:
        """A request is over, or as many as were served.

        Returns:
            Whether others should hear of it, or have permits back, by ``publish``.
        """
        pending = self._pending
        if ending == "refused" and not pause:
            # As long as others take that are served, the source has as much to do as when it refused.
            self._cooling.append(now + self._limits.limit.settling)
        else:
            self.in_use -= count
        if ending == "served":
            pending.served += count
            pending.last_started, pending.last_ended = started, now
        if ending in ("refused", "lost") or pause:
            pending.signals.append(OriginSignal(started, ending, pause, now))
        is_due = pending.signals or self._cells[IS_SHUT] or now >= self._publishes_at
        return bool(is_due or (self._leases.fair and self._permits_to_return(waiting)))

    def _permits_to_return(self, waiting: int) -> int:
        """How many permits should go back now: what is idle while others lack it, or more than is fair."""
        fair = self._leases.fair
        if not fair:
            return 0
        idle = max(0, self._held - self._needed_permits)
        return min(idle, surplus(self._held, fair, self._leases.excess)) if waiting else idle

    def publish(self, now: float) -> None:
        """Publish what was served and sent, and keep no more permits than are used; it needs the lock."""
        limits, rules = self._limits, self._rules
        pending, self._pending = self._pending, PendingStats(most_in_use=self.in_use)
        lease = self._own_lease(now)
        if pending.served:
            limits.served(pending.served, pending.last_started, pending.last_ended, rules, now)
        if pending.sent:
            limits.retries.tried(pending.sent, now)
        if pending.retries:
            limits.retries.reserve(pending.retries, now)
        self.allowed = limits.allowed(rules)
        idle = self._held - max(pending.most_in_use, self._needed_permits) if now >= self._publishes_at else 0
        if idle > 0:
            self._leases.give_back(lease, idle, self.allowed)
            self._held -= idle
        self._publishes_at = now + PUBLISH_SECONDS
        if pending.signals:
            opens = limits.pause.opens
            self.outages += sum(limits.ended(signal, rules) for signal in pending.signals)
            if limits.pause.opens > opens:
                limits.pause.told_at = now
            self.allowed = limits.allowed(rules)
        if limits.pause.opens > now or limits.breaker.opened_at:
            self._cells[IS_SHUT] = 1.0

    def expire(self, now: float, *, recent: bool = False) -> None:
        """Let the next ``publish`` return idle permits, also recently used ones with ``recent``."""
        self._publishes_at = 0.0
        if self._reserved is not None and self._reserved < now - BUNCH_SECONDS:
            self._reserved = None  # nobody has come for it
        if recent:
            self._pending.most_in_use = self.in_use

    def rebalance(self, waiting: int) -> None:
        """Give back what others lack; it needs the lock."""
        if self._lease is not None and not waiting:
            self._lease.wanted_since = 0.0
        self._leases.share(self.allowed)
        spare = self._permits_to_return(waiting)
        if spare > 0 and self._lease is not None:
            self._leases.give_back(self._lease, spare, self.allowed)
            self._held -= spare

    def _own_lease(self, now: float) -> Lease:
        """The lease of this task, as long as it lives; a new one where it was taken back."""
        until = now + self.term
        lease = self._lease
        if lease is None or lease.owner != self._process or lease.ticket != self._ticket:
            lease = self._leases.begin(self._process, until)
            if lease is None:
                self._leases.drop_lost(self._is_alive, now)
                lease = self._leases.begin(self._process, until)
            if lease is None:
                raise ConnectorError(f"{self._rules.source}: too many lookups run at once in this executor.")
            lease.held = self._held
            self._lease, self._ticket = lease, lease.ticket
        lease.until = until
        return lease

    def drop(self, now: float) -> None:
        """Publish the rest, and give all permits back; it needs the lock."""
        self.publish(now)
        self._leases.drop(self._own_lease(now))
        self._lease, self._held = None, 0  # a request that ends later has nothing to give back

    def retry_later(self, requests: int, now: float) -> float:
        """Keep so many retries for the next ``publish``; the seconds after which they may be sent, about."""
        self._pending.retries += requests
        return self._limits.retries.estimate(self._pending.retries, now)
