"""All that the processes of an executor know of one origin. Pure: times are given, who calls has the lock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from lookup_hints.limits.adaptive_concurrency import AdaptiveLimit
from lookup_hints.limits.circuit_breaker import Breaker, Pause
from lookup_hints.limits.leases import Leases
from lookup_hints.limits.rate_and_retry_budget import Rate, Retries, Spent
from lookup_hints.limits.shared_numbers import SharedNumbers
from lookup_hints.spi.request_context import Ending, Wait

CELLS = 8192
"""More than the limits take; the rest is there for what comes."""

IS_SHUT = 0
"""The cell that says whether a pause or an outage may be going on; it is read without the lock."""

UNBOUNDED = 1_000_000

_FIRST_PAUSE = 1.0
"""Seconds, where the source did not ask for a pause."""

POLL_SECONDS = 0.002
"""How often a task looks for a permit that another one gives back."""

Lack: TypeAlias = tuple[float, Wait]
"""The seconds until it is worth asking for a permit again, and what is waited for."""


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
    max_requests: int | None = None
    statement: int = 0


class OriginSignal(NamedTuple):
    """A request that was not simply served."""

    started: float
    ending: Ending
    pause: float | None
    time: float


class SharedLimits:
    """The limits of one origin, in cells."""

    def __init__(self, cells: SharedNumbers) -> None:
        self.cells = cells
        self.limit = AdaptiveLimit(cells, place := IS_SHUT + 1)
        self.pause = Pause(cells, place := place + AdaptiveLimit.SIZE)
        self.rate = Rate(cells, place := place + Pause.SIZE)
        self.retries = Retries(cells, place := place + Rate.SIZE)
        self.breaker = Breaker(cells, place := place + Retries.SIZE)
        self.leases = Leases(cells, place := place + Breaker.cells_for())
        self.spent = Spent(cells, place + Leases.cells_for())

    def allowed(self, rules: Rules) -> int:
        """Requests that the executor may have in flight."""
        most = math.inf if rules.concurrency is None else rules.concurrency
        if rules.adapts:
            return self.limit.allowed(most)
        return UNBOUNDED if math.isinf(most) else int(most)

    def shut(self, longest: float, now: float) -> Lack | None:
        """What a pause or an outage makes a request wait for; ``longest`` seconds in an outage."""
        if not self.cells[IS_SHUT]:
            return None
        outage = self.breaker.waits(now)
        if outage > 0:
            return min(outage, longest), "outage"
        if self.pause.opens > now:
            if self.pause.may_try(now):
                return None
            return self.pause.worth_asking(now, POLL_SECONDS), "throttle"
        if not self.breaker.opened_at:
            self.cells[IS_SHUT] = 0.0
        return None

    def sends(self, now: float) -> None:
        """A request goes out: a probe, or a try, where there is an outage or a pause."""
        if self.breaker.opened_at:
            self.breaker.probes(now)
        elif self.pause.opens > now:
            self.pause.tries(now)

    def served(self, requests: int, started: float, ended: float, rules: Rules, now: float) -> None:
        """So many requests were served, the last one between ``started`` and ``ended``."""
        if self.pause.served(started, now):
            self.limit.unpaused(now)
        self.breaker.answered(requests, started, now)
        if rules.adapts:
            self.limit.served(requests, self.leases.held, ended - started, now)

    def ended(self, signal: OriginSignal, rules: Rules) -> bool:
        """Learn from ``signal`` what the origin bears; whether the breaker opened by it."""
        started, pause, now = signal.started, signal.pause, signal.time
        is_refused = signal.ending == "refused"
        if pause:
            self.pause.asked(pause, started, now, self.limit.settling if is_refused else None)
        if is_refused:
            self.breaker.answered(1, started, now)
            if not pause and (self.allowed(rules) <= 1 or not rules.adapts):
                self.pause.refused(started, _FIRST_PAUSE, now)
            if rules.adapts:
                self.limit.refused(started, self.leases.held, pause or 0.0, now)
        elif signal.ending == "lost" and rules.adapts:
            self.limit.lost(started, now)
            return self.breaker.lost(started, now)
        return False
